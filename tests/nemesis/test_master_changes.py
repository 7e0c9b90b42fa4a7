"""Who is to be a master, and who has been put in a master's place: decisions, and what a whole group is again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fake_cluster import FakeDatabase, FakeEnvironment

from harness.history.ops import Op
from nemesis.kinds.api import Claims
from nemesis.kinds.masters import MasterChanges, ReplaceMasters, Strangers, Supplant, next_step
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.observe import DatabaseObserver, View
from nemesis.operator import MemberNodes, missing_change, unlike

MASTERS = ("m1", "m2", "m3")


def seen(database: FakeDatabase) -> View:
    return asyncio.run(DatabaseObserver(database, FakeEnvironment()).view())


def catalog(view: View, **changes: object) -> View:
    """The same view, where the leader of the catalog says something else of its group."""
    status = view.statuses["m1"]
    group = replace(status.groups[0], **changes)  # type: ignore[arg-type]
    return replace(view, statuses={**view.statuses, "m1": replace(status, groups=(group,))})


def test_a_group_of_masters_is_whole_when_each_is_a_voter_as_it_is_now() -> None:
    database = FakeDatabase()
    assert next_step(seen(database), MASTERS) is None
    database.masters = ("m1", "m3")
    assert next_step(seen(database), MASTERS) == ("m2", None)
    database.servers["m2"], database.masters = "m2.5", ("m1", "m2", "m3")
    assert next_step(seen(database), MASTERS) == ("m2", "m2"), "it came up with another disk"
    database.masters = ("m1", "m2.5", "m3", "m2")
    assert next_step(seen(database), MASTERS) == (None, "m2")
    database.mute = {"m3"}
    assert next_step(seen(database), MASTERS) == (None, None), "nothing can be told: ask nobody for nothing"


async def test_a_change_that_nobody_makes_is_not_observed_and_never_seen_to_be_gone() -> None:
    class Deaf(FakeDatabase):
        async def change_masters(self, add: str | None, remove: str | None, timeout_s: float) -> str | None:
            return "of the voters that would be left only one is in contact"

    observer, claims = DatabaseObserver(Deaf(renames=True), FakeEnvironment()), Claims()
    changes = MasterChanges(observer, claims)
    await changes.carry_out(1, ReplaceMasters(("m2",), ("m2",), lose=True))
    assert not (await changes.look(1)).met and claims.down().keys() == {"m2"}
    await changes.undo(1)
    gone = await changes.look_gone(1)
    assert not gone.met and gone.blame == "database" and not claims.down()


async def test_fewer_than_three_voters_are_no_effect_that_was_asked_for() -> None:
    changes = MasterChanges(DatabaseObserver(FakeDatabase(), FakeEnvironment()), Claims())
    await changes.carry_out(1, ReplaceMasters(("m2",), (None,)))
    sight = await changes.look(1)
    assert sight.evidence["voters"] == ["m1", "m3"] and not sight.met


def test_a_leader_that_a_change_takes_out_led_when_it_began() -> None:
    """Two of five runs of `master-membership` were unknown: a lost leader was asked for its role when another led."""

    class Deposing(FakeDatabase):
        async def wipe(self, node: str) -> None:
            await super().wipe(node)
            self.depose("catalog")

    async def scenario() -> list[dict[str, object]]:
        environment = FakeEnvironment()
        clock = environment.clock
        database = Deposing(renames=True, wall_ns=environment.wall_ns, now_ns=clock.monotonic_ns)
        nemesis = FaultNemesis(database, environment, Patience(recover_s=1.0))
        value = {"fault": "master-membership", "variant": "leader-lost", "instance": 1, "step": "begin", "seed": 1}
        begun = await nemesis.invoke(Op("invoke", -1, "begin-master-membership", value=value, time=0))
        assert begun.value["observed"] is True
        await nemesis.teardown()
        roles: list[dict[str, object]] = begun.value["roles"]
        return roles

    role = {"node": "m1", "role": "leader", "group": "catalog", "term": 1}
    assert asyncio.run(scenario()) == [{**role, "held": True}]


async def test_strangers_are_in_effect_only_while_they_answer_and_ours_do_not() -> None:
    database = FakeDatabase()
    strangers = Strangers(DatabaseObserver(database, FakeEnvironment()), Claims())
    await strangers.carry_out(1, Supplant(("m2",)))
    assert (await strangers.look(1)).met
    await database.start("m2")
    assert not (await strangers.look(1)).met, "our own master answers there"
    await database.kill("m2")
    database.strangers.clear()
    assert not (await strangers.look(1)).met, "nobody is there"
    database.strangers.add("m2")
    await strangers.undo(1)
    assert (await strangers.look_gone(1)).met
    database.strangers.add("m2")
    left = await strangers.look_gone(1)
    assert not left.met and left.blame == "harness"


def test_a_group_that_was_changed_gets_as_many_voters_back() -> None:
    view, before = seen(FakeDatabase()), MemberNodes(MASTERS)
    assert unlike(view, "catalog", before) is None and missing_change(view, "catalog", before) is None
    two = catalog(view, voters=("m1", "m2"))
    assert missing_change(two, "catalog", before) == ("add-learner", "m3")
    assert "there were 3 voters" in str(unlike(two, "catalog", before))
    learning = catalog(view, voters=("m1", "m2"), learners=("m3",))
    assert missing_change(learning, "catalog", before) == ("promote", "m3")
    assert missing_change(catalog(view, learners=("m9",)), "catalog", before) == ("remove", "m9")
    four = catalog(view, voters=("m1", "m2", "m3", "m9"))
    assert missing_change(four, "catalog", before) == ("remove", "m9"), "those of old stay"
    assert unlike(catalog(view, config_index=99), "catalog", before) is not None, "not committed"
