"""A replica that is damaged or whose state machine raises fails alone: its node and its other replicas go on (G7)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from cluster.raft.types import ChangeKind, OpId
from cluster.ranges.tablet import TabletMachine
from cluster.wire.messages import (
    ChangeReplicas,
    DeleteTablet,
    Done,
    DoneReply,
    ErrorReply,
    GetStatus,
    ReadCell,
    ReadReply,
    Reply,
    StatusReply,
)
from harness.ports.api import CallLost, Unreachable
from harness.ports.machines import ProcessState
from tests.cluster.tserver.tserver_rig import NAMES, TserverRig, create_on, simulate
from tests.support.played import played


async def role(servers: TserverRig, name: str, tablet_id: str) -> str:
    status = await servers.call(name, GetStatus())
    assert isinstance(status, StatusReply)
    return {group.group: group.role for group in status.groups}[tablet_id]


async def two_tablets(servers: TserverRig) -> None:
    """The last frames of each log but the very last are those of `tab`."""
    await servers.created()
    for name in NAMES:
        assert await servers.call(name, msgspec.structs.replace(create_on(name), tablet_id="other")) == DoneReply(True)
    assert await served(servers, "other", NAMES)
    for number in range(1, 12):
        assert isinstance(await servers.write(number, number), Done)
    await servers.clock.sleep(3)


async def served(servers: TserverRig, tablet_id: str, among: Sequence[str]) -> bool:
    """Whether one of these serves the tablet within a few seconds; the others refuse."""
    for _ in range(40):
        for name in among:
            try:
                reply = await servers.call(name, ReadCell(tablet_id, 1, 0, 0), 0.5)
            except (CallLost, Unreachable):
                continue
            if isinstance(reply, ReadReply):
                return True
            assert isinstance(reply, ErrorReply) and reply.definite
        await servers.clock.sleep(0.1)
    return False


async def restart(servers: TserverRig, name: str) -> None:
    """Kill a server, unless it is dead already, and give it a second after its start."""
    servers.world.node(name).kill()
    servers.start(name)
    await servers.clock.sleep(1)


def damage_tab(servers: TserverRig, name: str) -> None:
    """Damage of what was synced, wider than a frame's guard can repair, in frames of `tab`."""
    node = servers.world.node(name)
    node.kill()
    path = max(path for path in node.disk.paths() if path.startswith("log/"))
    data = node.disk.peek(path)
    end = data.rfind(b"\xa3tab", 0, data.rfind(b"\xa5other"))
    for byte in range(end - 1_000, end - 300):
        node.disk.flip_bit(path, 8 * byte)


@played(simulate, seed=1)
async def test_a_damaged_tablet_is_quarantined_and_its_node_serves_the_others(servers: TserverRig, /) -> None:
    """G7: one damaged tablet stopped its whole node."""
    await two_tablets(servers)
    damage_tab(servers, "t1")
    await restart(servers, "t1")
    assert await role(servers, "t1", "tab") == "quarantined"
    assert await role(servers, "t1", "other") in ("follower", "leader")
    reply = await servers.call("t1", ReadCell("tab", 1, 0, 0))
    assert isinstance(reply, ErrorReply) and reply.kind == "NOT_THE_LEADER" and "QUARANTINED" in reply.message
    assert await served(servers, "tab", ("t2", "t3"))
    servers.world.node("t2").kill()
    assert await served(servers, "other", ("t1", "t3"))
    assert not await served(servers, "tab", ("t1", "t3"))  # a quarantined replica is nobody's quorum
    servers.world.node("t1").kill()
    servers.start("t1", "t2")
    await servers.clock.sleep(1)
    assert await role(servers, "t1", "tab") == "quarantined"
    assert (await servers.read()).value == 11


@pytest.mark.parametrize("at", ["apply", "restoring"])
@played(simulate, seed=2)
async def test_a_state_machine_that_raises_fails_its_replica_alone(
    servers: TserverRig, /, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_tablets(servers)
    broken = servers.world.node("t1")
    original = getattr(TabletMachine, at)
    replicas: dict[TabletMachine, None] = {}

    def raising(machine: TabletMachine, *arguments: object) -> object:
        replicas[machine] = None
        if machine is next(iter(replicas)):
            raise RuntimeError("poisoned")
        return original(machine, *arguments)

    if at == "restoring":
        for number in range(12, 40):
            assert isinstance(await servers.write(number, number), Done)
        broken.kill()
    monkeypatch.setattr(TabletMachine, at, raising)
    if at == "restoring":
        servers.start("t1")
        await servers.clock.sleep(1)
    for number in range(40, 45):
        assert isinstance(await servers.write(number, number), Done)
    await servers.clock.sleep(1)
    failed = [name for name in NAMES if await role(servers, name, "tab") == "failed"]
    assert len(failed) == 1
    assert all(servers.world.node(name).state is ProcessState.RUNNING for name in NAMES)
    assert await served(servers, "other", NAMES)
    monkeypatch.undo()
    servers.world.node(failed[0]).kill()
    servers.start(failed[0])
    await servers.clock.sleep(2)
    assert await role(servers, failed[0], "tab") in ("follower", "leader")


async def change(servers: TserverRig, kind: ChangeKind, server_id: str) -> Reply:
    """One change of the configuration of `tab`, at its leader."""
    for _ in range(50):
        for name in ("t2", "t3"):
            status = await servers.call(name, GetStatus())
            assert isinstance(status, StatusReply)
            group = next(group for group in status.groups if group.group == "tab")
            op_id = (group.config_term, group.config_index)
            request = ChangeReplicas("tab", kind, server_id, f"{server_id}:7050", *op_id, 5.0)
            reply = await servers.call(name, request, 10.0)
            if not isinstance(reply, ErrorReply) or (
                kind is ChangeKind.ADD_LEARNER and "still a member" in reply.message
            ):
                return reply
        await servers.clock.sleep(0.1)
    raise AssertionError(f"{kind} of {server_id} was refused: {reply}")


@played(simulate, seed=3)
async def test_an_operator_rebuilds_a_quarantined_replica_by_removing_and_adding_it(servers: TserverRig, /) -> None:
    await two_tablets(servers)
    damage_tab(servers, "t1")
    await restart(servers, "t1")
    assert await role(servers, "t1", "tab") == "quarantined"
    early = await change(servers, ChangeKind.ADD_LEARNER, "t1")
    assert isinstance(early, ErrorReply) and "remove it first" in early.message
    assert await role(servers, "t1", "tab") == "quarantined"
    for kind in (ChangeKind.REMOVE, ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE):
        await change(servers, kind, "t1")
    await servers.clock.sleep(1)
    assert await role(servers, "t1", "tab") in ("follower", "leader")
    servers.world.node("t2").kill()
    assert await served(servers, "tab", ("t1", "t3"))
    assert (await servers.read()).value == 11
    servers.world.node("t1").kill()
    servers.start("t1")
    assert await served(servers, "tab", ("t1", "t3"))


@pytest.mark.parametrize("copies", [1, 2])
@played(simulate, seed=4)
async def test_a_damaged_tablet_record_does_not_stop_its_node(servers: TserverRig, /, copies: int) -> None:
    """One copy of two is enough; without either the tablet is not served, and can't be founded a second time."""
    await two_tablets(servers)
    node = servers.world.node("t1")
    node.kill()
    size = len(node.disk.peek("tablets/tab.meta"))
    for copy in range(copies):
        node.disk.flip_bit("tablets/tab.meta", 8 * (20 + copy * size // 2))
    servers.start("t1")
    await servers.clock.sleep(1)
    assert await role(servers, "t1", "other") in ("follower", "leader")
    again = await servers.call("t1", create_on("t1"))
    if copies == 1:
        assert again == DoneReply(True)
        assert await role(servers, "t1", "tab") in ("follower", "leader")
    else:
        assert isinstance(again, ErrorReply) and "damaged" in again.message
    assert await served(servers, "tab", NAMES)


def destroy_record(servers: TserverRig, name: str) -> None:
    """Of `tab`, both copies."""
    node = servers.world.node(name)
    node.kill()
    for byte in range(len(node.disk.peek("tablets/tab.meta"))):
        node.disk.flip_bit("tablets/tab.meta", 8 * byte)


async def created_anew(servers: TserverRig, name: str, awaits_index: int) -> Reply:
    """The answer of a server that is to have a learner of `tab`."""
    request = msgspec.structs.replace(create_on(name), voters=(), founding=False, awaits_index=awaits_index)
    return await servers.call(name, request)


@pytest.mark.parametrize("restarted", [False, True])
@played(simulate, seed=6)
async def test_a_tablet_with_a_damaged_record_is_deleted_for_good_like_any_other(
    servers: TserverRig, /, restarted: bool
) -> None:
    """It was still reported as broken after that, and might be founded anew, though deletions are for ever."""
    await two_tablets(servers)
    destroy_record(servers, "t1")
    await restart(servers, "t1")
    assert await servers.call("t1", DeleteTablet("tab")) == DoneReply(True)
    if restarted:
        await restart(servers, "t1")
    for again in (await created_anew(servers, "t1", 99), await servers.call("t1", create_on("t1"))):
        assert isinstance(again, ErrorReply) and "was deleted here" in again.message


@played(simulate, seed=7)
async def test_a_tablet_with_a_damaged_record_that_is_buried_stays_away_until_it_is_added_again(
    servers: TserverRig, /
) -> None:
    """Its burial was acknowledged and nothing done: each full report told of it anew."""
    await two_tablets(servers)
    destroy_record(servers, "t1")
    await restart(servers, "t1")
    assert await servers.call("t1", DeleteTablet("tab", OpId(1, 50))) == DoneReply(True)
    for restarted in (False, True):
        early = await created_anew(servers, "t1", 49)
        assert isinstance(early, ErrorReply) and "was removed from here" in early.message, restarted
        await restart(servers, "t1")
    assert await created_anew(servers, "t1", 50) == DoneReply(True)
    assert await role(servers, "t1", "tab") == "learner"


@played(simulate, seed=5)
async def test_a_flipped_bit_of_any_small_file_harms_nobody(servers: TserverRig, /) -> None:
    await two_tablets(servers)
    node = servers.world.node("t1")
    for path in ("identity", "tablets/tab.meta"):
        node.kill()
        for bit in range(0, 8 * len(node.disk.peek(path)), 61):
            node.disk.flip_bit(path, bit)
            servers.start("t1")
            await servers.clock.sleep(0.05)
            assert node.state is ProcessState.RUNNING
            node.kill()
            node.disk.flip_bit(path, bit)
        servers.start("t1")
        await servers.clock.sleep(1)
        assert await role(servers, "t1", "tab") in ("follower", "leader")
