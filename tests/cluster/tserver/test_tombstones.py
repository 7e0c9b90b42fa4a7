"""Deletions of replicas that their groups have removed: compare-and-set, tombstones, and the way back (M9)."""

from __future__ import annotations

import msgspec
import pytest

from cluster.raft.types import ChangeKind, Configuration, HardState, Member, OpId
from cluster.tserver.metadata import Tombstone, keeps, stays_away
from cluster.wire.messages import (
    ChangeReplicas,
    ConfigurationReply,
    DeleteTablet,
    Done,
    DoneReply,
    ErrorReply,
    GetStatus,
    GroupState,
    StatusReply,
)
from harness.ports.api import CallLost, Unreachable
from tests.cluster.tserver.tserver_rig import NAMES, TserverRig, create_on, simulate
from tests.support.played import played


def configuration(index: int, *names: str, term: int = 1) -> Configuration:
    return Configuration(tuple(Member(name, f"{name}:1") for name in names), (), index, term)


FOUNDED = configuration(1, "t1", "t2", "t3")
WITHOUT = configuration(7, "t1", "t2")


@pytest.mark.parametrize(
    ("committed", "in_force", "awaits", "goes"),
    [
        (FOUNDED, FOUNDED, 0, True),
        (FOUNDED, WITHOUT, 0, True),
        (WITHOUT, WITHOUT, 0, True),
        (Configuration(), Configuration(), 5, True),
        (Configuration(), Configuration(), 7, False),
        (WITHOUT, WITHOUT, 7, False),
        (WITHOUT, configuration(9, "t1", "t2", "t3"), 0, False),
        (configuration(9, "t1", "t2", "t3"), configuration(9, "t1", "t2", "t3"), 5, False),
        (configuration(9, "t1", "t2", "t3"), configuration(11, "t1", "t2"), 5, False),
        (FOUNDED, configuration(9, "t1", "t3", term=0), 0, True),
    ],
    ids=[
        "it has not heard of its removal",
        "it has, and not that it is committed",
        "it knows all",
        "a learner that a change was to add which was never made",
        "one that waits to be added to this configuration",
        "the same, and its old replica is still there",
        "it was added again, not committed yet",
        "it was added again",
        "it was added again and is being removed again",
        "what would have it is on a branch that was given up",
    ],
)
def test_a_replica_goes_unless_a_configuration_that_is_not_older_may_have_it(
    committed: Configuration, in_force: Configuration, awaits: int, goes: bool
) -> None:
    assert (keeps("t3", committed, in_force, awaits, OpId(1, 7)) is None) is goes


def test_only_a_change_of_no_older_configuration_brings_a_removed_replica_back() -> None:
    tombstone = Tombstone(OpId(1, 7), HardState(3, "t1"), OpId(3, 9))
    learner = msgspec.structs.replace(create_on("t3"), founding=False)
    for awaits, comes in ((0, False), (6, False), (7, True), (9, True)):
        request = msgspec.structs.replace(learner, awaits_index=awaits)
        assert (stays_away(tombstone, request) is None) is comes
    assert stays_away(tombstone, msgspec.structs.replace(learner, founding=True, awaits_index=9)) is not None


async def group(servers: TserverRig, name: str) -> GroupState | None:
    status = await servers.call(name, GetStatus())
    assert isinstance(status, StatusReply)
    return next((each for each in status.groups if each.group == "tab"), None)


async def change(servers: TserverRig, kind: ChangeKind, server_id: str) -> OpId:
    """The op id of the configuration after the change, made by whoever leads."""
    for _ in range(80):
        for name in NAMES:
            try:
                found = await group(servers, name)
                if found is None or found.role != "leader":
                    continue
                op_id = (found.config_term, found.config_index)
                request = ChangeReplicas("tab", kind, server_id, f"{server_id}:7050", *op_id, 5.0)
                reply = await servers.call(name, request, 10.0)
            except (CallLost, Unreachable):
                continue
            if isinstance(reply, ConfigurationReply):
                return OpId(reply.config_term, reply.config_index)
        await servers.clock.sleep(0.1)
    raise AssertionError(f"{kind} {server_id}")


async def follower(servers: TserverRig) -> str:
    leader = await servers.leader()
    return next(name for name in NAMES if name != leader)


@played(simulate, seed=3)
async def test_a_removed_replica_leaves_its_vote_and_comes_back_as_a_learner_with_it(servers: TserverRig, /) -> None:
    await servers.created()
    for number in range(1, 6):
        assert isinstance(await servers.write(number, number), Done)
    gone = await follower(servers)
    refused = await servers.call(gone, DeleteTablet("tab", OpId(1, 1)))
    assert isinstance(refused, ErrorReply) and refused.kind == "CHANGE_REFUSED", "it is a member"
    before = await group(servers, gone)
    removed_at = await change(servers, ChangeKind.REMOVE, gone)
    assert await servers.call(gone, DeleteTablet("tab", removed_at)) == DoneReply(True)
    assert await servers.call(gone, DeleteTablet("tab", removed_at)) == DoneReply(True)
    for again in range(2):
        assert await group(servers, gone) is None
        late = await servers.call(gone, create_on(gone))
        assert isinstance(late, ErrorReply) and "was removed from here" in late.message
        if not again:
            servers.world.node(gone).kill()
            servers.start(gone)
            await servers.clock.sleep(1)
    await change(servers, ChangeKind.ADD_LEARNER, gone)
    stale = await servers.call(gone, DeleteTablet("tab", removed_at))
    assert isinstance(stale, ErrorReply) and stale.kind == "CHANGE_REFUSED", "the decision was overtaken"
    await change(servers, ChangeKind.PROMOTE, gone)
    after = await group(servers, gone)
    assert before is not None and after is not None and after.term >= before.term
    others = [name for name in NAMES if name != gone]
    servers.world.node(others[0]).kill()
    assert isinstance(await servers.write(6, 6), Done)
    assert (await servers.read()).value == 6


@played(simulate, seed=4)
async def test_a_vote_outlives_the_replica_that_cast_it(servers: TserverRig, /) -> None:
    """It is removed, deleted and added again within a term: it must not vote for another candidate of that term."""
    await servers.created()
    assert isinstance(await servers.write(1, 1), Done)
    gone = await follower(servers)
    removed_at = await change(servers, ChangeKind.REMOVE, gone)
    before = await group(servers, gone)
    assert before is not None and await servers.call(gone, DeleteTablet("tab", removed_at)) == DoneReply(True)
    leader = await servers.leader()
    other = next(name for name in NAMES if name not in (gone, leader))
    servers.world.network.cut(leader, gone)
    request = msgspec.structs.replace(create_on(gone), founding=False, awaits_index=removed_at.index)
    assert await servers.call(gone, request) == DoneReply(True)
    await servers.clock.sleep(1)
    alone = await group(servers, gone)
    assert alone is not None and (alone.term, alone.last_index) == (before.term, 0), (before, other)
    early = await servers.call(gone, DeleteTablet("tab", removed_at))
    assert isinstance(early, ErrorReply) and "about to be added" in early.message


@pytest.mark.parametrize("point", ["tserver.before_tombstone", "tserver.after_tombstone"])
@played(simulate, seed=5)
async def test_a_crash_as_a_replica_is_buried_leaves_it_whole_or_gone(servers: TserverRig, /, point: str) -> None:
    from cluster.wire.messages import ArmFailpoint

    await servers.created()
    assert isinstance(await servers.write(1, 1), Done)
    gone = await follower(servers)
    removed_at = await change(servers, ChangeKind.REMOVE, gone)
    await servers.call(gone, ArmFailpoint(point, "crash"))
    with pytest.raises((CallLost, Unreachable)):
        await servers.call(gone, DeleteTablet("tab", removed_at))
    servers.start(gone)
    await servers.clock.sleep(1)
    assert (await group(servers, gone) is None) is (point == "tserver.after_tombstone")
    assert await servers.call(gone, DeleteTablet("tab", removed_at)) == DoneReply(True)
    assert await group(servers, gone) is None
    await change(servers, ChangeKind.ADD_LEARNER, gone)
    await change(servers, ChangeKind.PROMOTE, gone)
