"""Tablet servers in the simulator: one tablet end to end, through crashes and lease changes."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from cluster.config import NodeConfig
from cluster.knobs import Knobs
from cluster.node import run_node
from cluster.quorum.messages import ReadPartition, decode_quorum_reply, encode_quorum_request
from cluster.quorum.slices import Slice
from cluster.store.clock_guard import ClockLimits
from cluster.store.node_clock import NodeClock
from cluster.wire.clocked import ClockedNetwork
from cluster.wire.identity import ForeignDisk
from cluster.wire.known_masters import KnownMasters, telling
from cluster.wire.messages import (
    CompareAndSet,
    DeleteTablet,
    Done,
    DoneReply,
    ErrorReply,
    GetStatus,
    GetTableLocations,
    Heartbeat,
    HeartbeatReply,
    ListTables,
    ReadCell,
    ReadReply,
    Replica,
    Reply,
    StatusReply,
    WriteCell,
    decode_reports,
    decode_request,
    encode,
)
from harness.ports.api import CallLost, Peer
from harness.ports.failpoints import Arming
from harness.ports.machines import ProcessState
from tests.cluster.tserver.tserver_rig import NAMES, SECOND, TserverRig, create_on, simulate
from tests.support.played import played


@played(simulate, seed=1)
async def test_a_tablet_serves_reads_writes_and_compare_and_sets(servers: TserverRig, /) -> None:
    await servers.created()
    assert (await servers.read()).value is None
    assert isinstance(await servers.write(1, 5), Done)
    written = await servers.read()
    assert written.value == 5
    assert isinstance(reply := await servers.cas(2, 5, 6), Done) and reply.applied
    assert isinstance(failed := await servers.cas(3, 5, 7), Done)
    assert (failed.applied, failed.found) == (False, 6)
    after = await servers.read()
    assert after.value == 6
    assert after.timestamp > failed.timestamp > reply.timestamp > written.timestamp


@played(simulate, seed=2)
async def test_a_follower_names_the_leader_and_foreign_requests_are_refused(servers: TserverRig, /) -> None:
    await servers.created()
    leader = await servers.leader()
    for name in NAMES:
        if name != leader:
            for request in (ReadCell("tab", 1, 0, 0), WriteCell(servers.rid(1), "tab", 1, 0, 0, 1)):
                reply = await servers.call(name, request)
                assert isinstance(reply, ErrorReply)
                assert (reply.kind, reply.definite, reply.leader) == ("NOT_THE_LEADER", True, leader)
    for request, kind in ((ReadCell("nope", 1, 0, 0), "NOT_FOUND"), (ListTables(), "INVALID")):
        reply = await servers.call(leader, request)
        assert isinstance(reply, ErrorReply) and reply.kind == kind
    status = await servers.call(leader, GetStatus())
    assert isinstance(status, StatusReply)
    assert [(group.group, group.role, group.lease_valid) for group in status.groups] == [("tab", "leader", True)]


@played(simulate, seed=3)
async def test_a_retried_compare_and_set_takes_effect_once_across_crashes_and_snapshots(servers: TserverRig, /) -> None:
    await servers.created()
    first = await servers.cas(1, None, 5)
    assert isinstance(first, Done) and first.applied
    for sequence in range(2, 60):
        await servers.write(sequence, 100 + sequence)
    for name in NAMES:
        assert any(path.startswith("snapshots/tab/") for path in servers.world.node(name).disk.paths())
        servers.world.node(name).kill()
    servers.start()
    assert await servers.cas(1, None, 5) == first
    assert (await servers.read()).value == 159


def test_what_was_acknowledged_survives_a_kill_of_every_server() -> None:
    async def scenario(servers: TserverRig) -> None:
        await servers.created()
        for turn in range(5):
            assert isinstance(await servers.write(turn + 1, turn), Done)
            for name in NAMES:
                servers.world.node(name).kill()
            servers.start()
            assert (await servers.read()).value == turn

    for seed in range(3):
        simulate(seed, scenario)


@played(simulate, seed=4)
async def test_two_doubles_of_a_request_in_flight_at_once_take_effect_once(servers: TserverRig, /) -> None:
    await servers.created()
    leader = await servers.leader()
    request = CompareAndSet(servers.rid(1), "tab", 1, 0, 0, None, 5)
    replies = await asyncio.gather(*(servers.call(leader, request) for _ in range(4)))
    assert all(reply == replies[0] for reply in replies)
    assert isinstance(replies[0], Done) and replies[0].applied


@played(simulate, seed=4, knobs=Knobs(max_requests=2))
async def test_requests_above_the_bound_are_refused_at_once_and_definitely(servers: TserverRig, /) -> None:
    await servers.created()
    leader = await servers.leader()
    requests = [WriteCell(servers.rid(number), "tab", 1, 0, 0, number) for number in range(1, 7)]
    replies = await asyncio.gather(*(servers.call(leader, request) for request in requests))
    refused = [reply for reply in replies if isinstance(reply, ErrorReply)]
    assert [(reply.kind, reply.definite) for reply in refused] == [("OVERLOADED", True)] * 4
    assert all(isinstance(reply, Done) for reply in replies if reply not in refused)
    assert isinstance(await servers.write(7, 7), Done), "what was answered makes room"


async def stale_read(servers: TserverRig) -> Reply:
    """What a cut-off leader answers after another one has taken a write."""
    await servers.created()
    await servers.write(1, 1)
    old = await servers.leader()
    servers.cut_off(old)
    new = await servers.leader(*(name for name in NAMES if name != old))
    assert isinstance(await servers.call(new, WriteCell(servers.rid(2), "tab", 1, 0, 0, 2)), Done)
    return await servers.call(old, ReadCell("tab", 1, 0, 0), 10.0)


@played(simulate, seed=5)
async def test_a_cut_off_leader_serves_no_stale_read(servers: TserverRig, /) -> None:
    reply = await stale_read(servers)
    assert isinstance(reply, ErrorReply)
    servers.world.network.heal()
    assert (await servers.read()).value == 2


@played(simulate, seed=5, flaws=("read-without-lease",))
async def test_with_the_flaw_read_without_lease_it_does(servers: TserverRig, /) -> None:
    assert isinstance(reply := await stale_read(servers), ReadReply)
    assert reply.value == 1


@played(simulate, seed=7)
async def test_an_idle_tablet_keeps_reading_at_present_times(servers: TserverRig, /) -> None:
    await servers.created()
    first = await servers.read()
    for _ in range(20):
        await servers.clock.sleep(1.0)
        last = await servers.read()
    assert last.timestamp - first.timestamp > 15 * SECOND


@played(simulate, seed=8)
async def test_creating_twice_is_one_tablet_and_deleting_is_for_good(servers: TserverRig, /) -> None:
    await servers.created()
    twice = await asyncio.gather(*(servers.call("t1", create_on("t1")) for _ in range(3)))
    assert twice == [DoneReply(True)] * 3
    other = await servers.call("t1", DeleteTablet("tab", server_id="t1.lost"))
    assert isinstance(other, ErrorReply) and other.kind == "INVALID", "it is meant for who was there before"
    assert await servers.call("t1", DeleteTablet("tab")) == DoneReply(True)
    assert await servers.call("t1", DeleteTablet("tab")) == DoneReply(True)
    for _ in range(2):
        reply = await servers.call("t1", create_on("t1"))
        assert isinstance(reply, ErrorReply) and reply.kind == "INVALID"
        paths = servers.world.node("t1").disk.paths()
        assert [path for path in paths if path.startswith("tablets/")] == ["tablets/tab.meta"]
        assert not [path for path in paths if path.startswith("snapshots/")]
        servers.world.node("t1").kill()
        servers.start("t1")
        await servers.clock.sleep(0.1)


@pytest.mark.parametrize("point", ["tserver.before_create", "tserver.after_create", "tserver.after_tombstone"])
@played(simulate, seed=9)
async def test_a_crash_in_mid_creation_or_deletion_is_mended_by_the_retry(servers: TserverRig, /, point: str) -> None:
    servers.start()
    await servers.clock.sleep(0.1)
    node = servers.world.node("t1")
    node.failpoints.arm(Arming(point))
    with pytest.raises(CallLost):
        await servers.call("t1", create_on("t1"))
        await servers.call("t1", DeleteTablet("tab"))
    assert node.state is ProcessState.DEAD
    servers.start("t1")
    await servers.clock.sleep(0.1)
    if point == "tserver.after_tombstone":
        assert isinstance(await servers.call("t1", ReadCell("tab", 1, 0, 0)), ErrorReply)
        assert [path for path in node.disk.paths() if path.startswith("tablets/")] == ["tablets/tab.meta"]
    else:
        for name in NAMES:
            assert await servers.call(name, create_on(name)) == DoneReply(True)
        await servers.registered()
        assert isinstance(await servers.write(1, 1), Done)


@played(simulate, seed=10)
async def test_a_disk_of_another_node_is_refused(servers: TserverRig, /) -> None:
    servers.start()
    await servers.clock.sleep(0.1)
    node = servers.world.node("t1")
    node.kill()
    config = NodeConfig(node_id="t9", role="tserver", listen="t1:7050", masters=())
    node.start(lambda ports: run_node(ports, config))
    await node.wait_dead()
    assert isinstance(node.error, ForeignDisk)


class FakeMaster:
    """Takes heartbeats down; leads a term or follows."""

    def __init__(self) -> None:
        self.beats: list[Heartbeat] = []
        self.leader_term: int | None = None

    async def on_call(self, peer: Peer, payload: bytes) -> bytes:
        request = decode_request(payload)
        assert isinstance(request, Heartbeat)
        self.beats.append(request)
        return encode(HeartbeatReply("m", self.leader_term, False))

    def of(self, name: str) -> list[Heartbeat]:
        return [beat for beat in self.beats if beat.node_id == name]


@played(simulate, seed=11)
async def test_every_master_hears_of_every_change_once_and_a_new_leader_of_everything(servers: TserverRig, /) -> None:
    masters = {name: FakeMaster() for name in ("m1", "m2")}
    servers.masters = tuple(Replica(name, f"{name}:7051") for name in masters)
    known = [KnownMasters(0, ())]
    for name, master in masters.items():
        ports = servers.world.harness_ports(name)
        network = ClockedNetwork(ports.network, NodeClock(ports.clock, ClockLimits.of(Knobs()), name), ports.failpoints)
        await network.listen(f"{name}:7051", telling(master.on_call, lambda: known[-1]), lambda peer, payload: None)
    masters["m1"].leader_term = 1
    await servers.created()
    leader = await servers.leader()
    await servers.clock.sleep(3.0)
    for master in masters.values():
        for name in NAMES:
            beats = master.of(name)
            assert beats[0].full
            assert [report for beat in beats for report in decode_reports(beat.reports)][-1].leader == leader
            assert not any(beat.full for beat in beats[1:])
            assert all(decode_reports(beat.reports) == () for beat in beats[-3:])
            assert [beat.sequence for beat in beats] == list(range(1, len(beats) + 1))
    masters["m2"].leader_term = 2
    seen = len(masters["m2"].beats)
    await servers.clock.sleep(1.5)
    for name in NAMES:
        late = [beat for beat in masters["m2"].beats[seen:] if beat.node_id == name]
        assert [beat.full for beat in late if decode_reports(beat.reports)] == [True]
    # In the place of one whose disk was lost another stands, which has heard of the servers since.
    seen = len(masters["m2"].beats)
    known.append(KnownMasters(5, (servers.masters[0], Replica("m2.new", "m2:7051"))))
    await servers.clock.sleep(1.5)
    for name in NAMES:
        beats = masters["m2"].of(name)
        assert any(beat.full for beat in masters["m2"].beats[seen:] if beat.node_id == name)
        assert [beat.sequence for beat in beats] == list(range(1, len(beats) + 1))


class Replaced:
    """The master m1, which m2 takes the place of once `moved`; what each was asked, and by whom its heartbeats are."""

    def __init__(self, servers: TserverRig) -> None:
        self.servers, self.moved = servers, False
        self.asked: dict[str, list[type]] = {"m1": [], "m2": []}
        self.heard: dict[str, dict[str, None]] = {"m1": {}, "m2": {}}
        servers.masters = (Replica("m1", "m1:7051"),)

    async def serve(self) -> None:
        for name in self.asked:
            ports = self.servers.world.harness_ports(name)
            network = ClockedNetwork(
                ports.network, NodeClock(ports.clock, ClockLimits.of(Knobs()), name), ports.failpoints
            )
            on_call = telling(partial(self._answer, name), self._known)
            await network.listen(f"{name}:7051", on_call, lambda peer, payload: None)

    def _known(self) -> KnownMasters:
        return KnownMasters(5, (Replica("m2", "m2:7051"),)) if self.moved else KnownMasters(0, ())

    async def _answer(self, name: str, peer: Peer, payload: bytes) -> bytes:
        request = decode_request(payload)
        self.asked[name].append(type(request))
        if not isinstance(request, Heartbeat):
            return encode(ErrorReply("NOT_FOUND", "no such table", definite=True))
        self.heard[name][request.node_id] = None
        return encode(HeartbeatReply(name, None, False))


@played(simulate, seed=11)
async def test_a_server_goes_to_the_masters_that_it_learnt_for_its_coordinators_too(servers: TserverRig, /) -> None:
    """The masters of its configuration are gone, and nothing failed while they were replaced (G1)."""
    masters = Replaced(servers)
    await masters.serve()
    masters.moved = True
    servers.start("t1")
    await servers.clock.sleep(2.0)
    read = encode_quorum_request(ReadPartition("paper", Slice(b"", (), None), "ONE", 2.0))
    reply = decode_quorum_reply(await servers.ports.network.call("t1:7050", read, 2.0))
    assert isinstance(reply, ErrorReply) and reply.kind == "NOT_LOCATED"
    assert masters.asked["m1"] == [Heartbeat] and {*masters.asked["m2"]} == {Heartbeat, GetTableLocations}


@played(simulate, seed=11)
async def test_a_server_that_was_down_while_all_masters_were_replaced_asks_its_peers(servers: TserverRig, /) -> None:
    masters = Replaced(servers)
    await masters.serve()
    await servers.created()
    servers.world.node("t1").kill()
    masters.moved = True
    await servers.clock.sleep(2.0)
    for name in NAMES:
        servers.world.network.cut(name, "m1")
    servers.start("t1")
    await servers.clock.sleep(5.0)
    assert {*masters.heard["m2"]} == {*NAMES}


@played(simulate, seed=12)
async def test_a_server_whose_disk_is_full_answers_so_and_creates_when_there_is_space(servers: TserverRig, /) -> None:
    servers.start()
    await servers.clock.sleep(0.1)
    servers.world.node("t1").disk.full = True
    reply = await servers.call("t1", create_on("t1"))
    assert isinstance(reply, ErrorReply) and not reply.definite
    servers.world.node("t1").disk.full = False
    for name in NAMES:
        assert await servers.call(name, create_on(name)) == DoneReply(True)
    await servers.registered()
    assert isinstance(await servers.write(1, 1), Done)


@played(simulate, seed=13)
async def test_a_leaseholder_whose_disk_is_full_lets_another_one_serve(servers: TserverRig, /) -> None:
    await servers.created()
    assert isinstance(await servers.write(1, 1), Done)
    full = await servers.leader()
    servers.world.node(full).disk.full = True
    assert isinstance(await servers.write(2, 2), Done)
    assert isinstance(await servers.write(3, 3), Done)
    assert await servers.leader() != full
    servers.world.node(full).disk.full = False
    assert (await servers.read()).value == 3


async def candidate(servers: TserverRig, *among: str) -> str:
    """The first of these that stands for election, as soon as it does."""
    while True:
        for name in among:
            status = await servers.call(name, GetStatus())
            assert isinstance(status, StatusReply)
            if status.groups[0].role == "candidate":
                return name


@played(simulate, seed=1)
async def test_a_leader_that_could_not_ask_for_its_lease_asks_again(servers: TserverRig, /) -> None:
    await servers.created()
    assert isinstance(await servers.write(1, 1), Done)
    assert await servers.leader() == "t2"
    servers.world.node("t2").kill()  # whom t1 would hand over to
    for name in NAMES:
        servers.world.node(name).disk.extra_sync_ns = SECOND // 10
    assert await candidate(servers, "t1", "t3") == "t1"
    disk = servers.world.node("t1").disk
    await servers.clock.sleep(0.15)  # its own vote is durable, the other one's is not
    disk.full = True
    await servers.clock.sleep(3)
    disk.full = False
    assert isinstance(await servers.write(2, 2), Done)
