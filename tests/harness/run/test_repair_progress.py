"""A repair is waited for as long as it comes nearer to its end, and not for ever."""

from __future__ import annotations

from dataclasses import replace

from harness.protocols import GroupStatus, NodeStatus
from harness.run.allowances import LONGEST, RepairProgress, lacked_by_all
from harness.run.interpreter import HardLimits
from nemesis.kinds import damage, masters, scripted
from nemesis.nemesis import Patience

S = 1_000_000_000


def test_no_repair_is_waited_for_beyond_the_limit_of_the_step_that_asks_for_it() -> None:
    """Seed 733 of a swarm: the harness gave its nemesis up while an operator still repaired."""
    longest = LONGEST * max(damage.REPAIR_S, masters.REPAIR_S, scripted.WHOLE_S)
    assert damage.START_S + longest + Patience().recover_s < HardLimits().nemesis_s


class Hand:
    """A clock that is set by hand."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


def given_up_at(*lacked: int) -> int | None:
    """The second at which a repair is given up that lacks this much, second by second; patience is two."""
    clock = Hand()
    nearing = RepairProgress(clock, 2.0)  # type: ignore[arg-type]
    for second, entries in enumerate(lacked):
        clock.now_ns = second * S
        nearing.note({"it": entries})
        if nearing.over():
            return second
    return None


def test_what_stands_still_or_goes_to_and_fro_is_given_up_and_what_comes_nearer_is_not() -> None:
    assert given_up_at(5, 5, 5, 5) == 2
    assert given_up_at(5, 9, 5, 9) == 2
    assert given_up_at(5, 4, 4, 3, 3, 2, 2) is None
    assert given_up_at(*range(100, 0, -1)) == LONGEST * 2


def group(role: str, last_index: int, term: int = 1) -> GroupStatus:
    return GroupStatus("g", role, term, ("t1", "t2", "t3"), None, 1, 1, last_index, 1, False)


def test_followers_lack_what_the_latest_leader_has() -> None:
    roles = {"t1": group("leader", 9, 3), "t2": group("follower", 7), "t3": group("leader", 12, 2)}
    statuses = {name: NodeStatus(name, "tserver", 1, (each,)) for name, each in roles.items()}
    assert lacked_by_all(statuses) == 2, "nobody lacks what an earlier leader has"
    assert lacked_by_all({**statuses, "t2": None}) == 9, "who does not answer may lack all of it"


def test_a_group_without_a_leader_is_farther_from_its_end_than_with_one() -> None:
    """Seed 455 of `leader-returns`: the tail of a leader that was cut off came after the election."""
    led = [group("leader", 158), group("follower", 77), group("follower", 78)]
    unled = [replace(each, role="pre-candidate") for each in led]

    def lacked(groups: list[GroupStatus]) -> int:
        return lacked_by_all({f"t{n}": NodeStatus(f"t{n}", "tserver", 1, (each,)) for n, each in enumerate(groups, 1)})

    assert lacked(unled) > lacked(led) > 0
