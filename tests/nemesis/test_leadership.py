"""Leaders that are asked to hand over: what counts as done, what is told of a refusal, and whom is asked for whom."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from fake_cluster import FakeDatabase, FakeEnvironment

from nemesis.faults import Move, MoveLeaders
from nemesis.kinds.api import Claims, Moment
from nemesis.kinds.leadership import LEADERSHIP, LeaderMoves
from nemesis.observe import DatabaseObserver
from nemesis.view import View

MOVE = Move("t1", "tablet", 1, "t2")


class Deaf(FakeDatabase):
    """Its leaders do nothing, and say what they are told to."""

    answer: str | None = None

    async def transfer_leadership(self, leader: str, group: str, target: str, timeout_s: float) -> str | None:
        self.calls.append(f"let {target} lead {group}")
        return self.answer


def moves_of(database: FakeDatabase) -> tuple[LeaderMoves, DatabaseObserver]:
    observer = DatabaseObserver(database, FakeEnvironment())
    return LeaderMoves(observer, Claims()), observer


def asked(sight: Any) -> dict[str, Any]:
    (told,) = sight.evidence["asked"]
    return dict(told)


async def test_a_move_is_in_effect_while_another_node_leads_in_a_later_term() -> None:
    database = FakeDatabase()
    moves, observer = moves_of(database)
    await observer.view()
    await moves.carry_out(1, MoveLeaders((MOVE,)))
    sight = await moves.look(1)
    assert sight.met and asked(sight)["leads"] == {"node": "t2", "term": 2}
    database.depose("tablet")
    assert (await moves.look(1)).met, "t3 leads: it was moved all the same"
    await moves.undo(1)
    assert (await moves.look_gone(1)).met and moves.instances() == frozenset()


@pytest.mark.parametrize("seen", [True, False])
async def test_a_leader_that_a_later_election_brings_back_has_handed_over_if_another_was_seen(seen: bool) -> None:
    """A clock that jumped deposed the heir: of 6.3 s asked it was in effect for 2.5 s (register, swarm, seed 70)."""
    database = FakeDatabase()
    moves, observer = moves_of(database)
    await observer.view()
    await moves.carry_out(1, MoveLeaders((MOVE,)))
    assert not seen or (await moves.look(1)).met
    database.depose("tablet")
    database.depose("tablet")
    sight = await moves.look(1)
    assert sight.met is seen and asked(sight)["leads"] == {"node": "t1", "term": 4}


async def test_who_says_yes_and_goes_on_to_lead_has_not_handed_over() -> None:
    moves, observer = moves_of(Deaf())
    await observer.view()
    await moves.carry_out(1, MoveLeaders((MOVE,)))
    sight = await moves.look(1)
    assert not sight.met and asked(sight)["leads"] == {"node": "t1", "term": 1}


async def test_a_refusal_is_told_and_asked_again_only_while_the_same_leader_leads() -> None:
    database = Deaf()
    database.answer = "not-caught-up: t2 lacks 9 entries"
    moves, observer = moves_of(database)
    await observer.view()
    await moves.carry_out(1, MoveLeaders((MOVE,)))
    assert len(database.calls) > 10
    sight = await moves.look(1)
    assert not sight.met and asked(sight)["refused"] == "not-caught-up: t2 lacks 9 entries"
    database.depose("tablet")
    assert not (await moves.look(1)).met, "another one leads, but not because it was asked"
    database.calls.clear()
    await moves.carry_out(2, MoveLeaders((MOVE,)))
    assert database.calls == ["let t2 lead tablet"]


async def test_what_was_refused_costs_the_others_nothing() -> None:
    database = FakeDatabase()
    moves, observer = moves_of(database)
    await observer.view()
    stale = Move("m2", "catalog", 0, "m3")
    await moves.carry_out(1, MoveLeaders((MOVE, stale)))
    sight = await moves.look(1)
    told = {each["group"]: each for each in sight.evidence["asked"]}
    assert sight.met and "refused" in told["catalog"] and "leads" in told["tablet"]


async def test_a_group_that_nobody_leads_can_be_told_nothing_of_and_is_not_healed() -> None:
    database = FakeDatabase()
    moves, observer = moves_of(database)
    await observer.view()
    await moves.carry_out(1, MoveLeaders((MOVE,)))
    database.mute = {"t1", "t2", "t3"}
    assert (await moves.look(1)).met is None
    await moves.undo(1)
    gone = await moves.look_gone(1)
    assert not gone.met and gone.blame == "database" and gone.evidence["idle"] == ["tablet"]


async def test_of_a_tablet_that_is_deleted_meanwhile_nothing_is_told_nor_asked() -> None:
    database = FakeDatabase()
    moves, observer = moves_of(database)
    await observer.view()
    await moves.carry_out(1, MoveLeaders((MOVE, Move("m1", "catalog", 1, "m2"))))
    await moves.carry_out(2, MoveLeaders((Move("t2", "tablet", 2, "t3"),)))
    database.deleted = {"tablet"}
    assert (await moves.look(1)).met, "the masters' leader was moved"
    assert (await moves.look(2)).met is None
    await moves.undo(2)
    assert (await moves.look_gone(2)).met


def choose(variant: str, busy: tuple[str, ...] = (), to: tuple[str, ...] = (), seed: int = 1) -> tuple[Move, ...]:
    view: View = asyncio.run(DatabaseObserver(FakeDatabase(), FakeEnvironment()).view())
    names = {"to": to} if to else {}
    plan = LEADERSHIP.variants[variant].choose(Moment(view, busy, Random(seed), {}, names))
    assert plan.action is None or isinstance(plan.action, MoveLeaders)
    return () if plan.action is None else plan.action.moves


def test_leaders_of_the_role_are_asked_for_voters_that_answer() -> None:
    for seed in range(10):
        (tablet,) = choose("leaseholder", seed=seed)
        assert (tablet.node, tablet.group) == ("t1", "tablet") and tablet.server in ("t2", "t3"), "t4 is a learner"
        (master,) = choose("leader-master", seed=seed)
        assert (master.node, master.group) == ("m1", "catalog") and master.server in ("m2", "m3")
    assert {move.group for move in choose("all")} == {"tablet", "catalog"}
    assert {move.group for move in choose("leaseholders")} == {"tablet"}


def test_only_those_that_were_named_are_to_lead_and_none_that_others_hold() -> None:
    assert {choose("leaseholder", to=("t3",), seed=seed)[0].server for seed in range(8)} == {"t3"}
    assert {choose("leaseholder", busy=("t3",), seed=seed)[0].server for seed in range(8)} == {"t2"}
    assert choose("leaseholder", to=("t4",)) == () == choose("leaseholder", busy=("t1",))
