"""What `membership` waits for: learners over slow links, and voters whose votes are split."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

import pytest
from fake_cluster import NODES, FakeEnvironment

from harness.protocols import GroupStatus, NodeStatus
from nemesis.faults import Change, Hold, Restart
from nemesis.observe import Leader, View
from nemesis.scripts import membership
from nemesis.scripts.membership import ELECTIONS, PATIENT_S, Members, promoted, stands
from nemesis.scripts.scene import Scene

GROUP, VOTERS = "tablet", ("t1", "t2", "t3")
LEADER = Leader("t1", GROUP, 4, True, 100, 100, VOTERS)
NOW = Members(LEADER, VOTERS, ("t4",), (4, 90))


class SlowLinks:
    """A group whose learner `t4` gets `rate` entries a second, until it has `most` of its leader's 100; it is promoted
    when that is asked once it has them all. Stage and observer in one."""

    def __init__(self, rate: int, most: int = 100) -> None:
        self.environment = FakeEnvironment()
        self.database: Any = None
        self.rate, self.most = rate, most
        self.voters, self.actions = VOTERS, list[Any]()

    @property
    def lacks(self) -> int:
        return 100 - min(self.most, self.rate * self.environment.clock.monotonic_ns() // 10**9)

    async def act(self, action: object, core: object = None) -> None:
        self.actions.append(action)
        if isinstance(action, Change):
            await self.environment.clock.sleep(0.0 if self.lacks == 0 else action.timeout_s)
            self.voters = self.voters if self.lacks else (*VOTERS, "t4")

    async def view(self, skip: Collection[str] = ()) -> View:
        learners = () if "t4" in self.voters else ("t4",)
        leads = GroupStatus(GROUP, "leader", 4, self.voters, "t1", 100, 100, 100, 4, True, learners, 1, 4, 90)
        learns = GroupStatus(GROUP, "learner", 4, self.voters, "t1", 0, 0, 100 - self.lacks, 4, False)
        groups = {"t1": leads, "t4": learns}
        return View(NODES, {n: NodeStatus(n, "tserver", 1, (each,)) for n, each in groups.items() if n not in skip})


def scene_of(links: SlowLinks) -> Scene:
    links.database = type("Named", (), {"nodes": NODES})
    return Scene(links, Random(1), links, poll_s=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rate", "most", "asked", "votes"),
    [(100, 100, 1, True), (6, 100, 2, True), (0, 100, 1, False), (6, 90, 1, False), (2, 100, 1, False)],
    ids=["it has all", "it comes nearer", "it gets nothing", "it gets no further", "it takes too long"],
)
async def test_a_learner_is_promoted_for_as_long_as_it_comes_nearer(
    rate: int, most: int, asked: int, votes: bool
) -> None:
    """Seed 50 of `register`: a request lasts 8 s, a learner that got 20 entries a second took twice as long, and was
    removed each time."""
    links = SlowLinks(rate, most)
    await links.environment.clock.sleep(1.0)
    assert await promoted(scene_of(links), NOW, "t4") is votes
    assert links.actions == asked * [Change("t1", GROUP, "promote", "t4", (4, 90), PATIENT_S)]


@pytest.mark.parametrize("split", range(ELECTIONS + 1))
async def test_a_successor_is_waited_for_again_where_votes_were_split(
    split: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 50 of `register`: two stood at once, the third voter was held with its vote for one of them, and nobody
    could be elected for as long as the script waited."""
    links, elections = SlowLinks(0), iter([None] * split + [("t3", 5)])

    async def candidate(*_: object) -> tuple[str, int] | None:
        return next(elections)

    monkeypatch.setattr(membership, "candidate", candidate)

    found = await stands(scene_of(links), LEADER)
    held, let_go = Hold(("t2", "t3"), "before_vote", GROUP), Restart(("t2", "t3"))
    assert found == ("t3" if split < ELECTIONS else None)
    assert links.actions == split * [held, let_go] + (split < ELECTIONS) * [held]
