"""G9: nodes and their peers are who they say, at masters as at tablet servers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from cluster.config import NodeConfig
from cluster.deploy.database_sim import format_machine
from cluster.deploy.node_files import format_command
from cluster.node import run_node
from cluster.raft.types import RequestVote
from cluster.wire.identity import ForeignDisk, PeerCheck, identity_file, read_identity
from cluster.wire.messages import (
    CATALOG_GROUP,
    ErrorReply,
    GetStatus,
    GroupMessages,
    Heartbeat,
    HeartbeatReply,
    PeerEnvelope,
    Replica,
    Reply,
    Request,
    StatusReply,
    decode_reply,
    encode,
    encode_reports,
)
from harness.ports.api import Peer, Ports
from harness.ports.machines import ProcessState
from harness.ports.real.disk import RealDisk
from harness.ports.sim.world import World

MASTER = Replica("m1", "m1:7051")
FAR_TERM = 1_000


def test_a_peer_speaks_for_itself_and_in_its_present_life() -> None:
    check = PeerCheck("t1")
    assert check.refusal(Peer("t2", 3), ("t2", "t2.9f3a")) is None
    assert check.refusal(Peer("t2", 3), ("t2", "t3")) == "t2 speaks for t3"
    assert check.refusal(Peer("t2", 3), ("t2",), incarnation=4) == "t2 connects as incarnation 3 and speaks as 4"
    assert check.refusal(Peer("t2", 4), ()) is None
    assert check.refusal(Peer("t2", 3), ()) == "incarnation 3 of t2, and 4 was heard already"
    assert check.refusal(Peer("t3", 1), ()) is None


def test_a_refused_peer_does_not_count_as_heard() -> None:
    check = PeerCheck("t1")
    assert check.refusal(Peer("t2", 9), ("t3",)) is not None
    assert check.refusal(Peer("t2", 3), ("t2",)) is None


class OneMaster:
    """A master of its own, and another machine that connects to it."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start_master(self, cluster_id: str = "sim") -> None:
        config = NodeConfig(
            node_id="m1", role="master", listen=MASTER.address, masters=(MASTER,), cluster_id=cluster_id
        )
        format_machine(self.world.node("m1"), cluster_id)
        self.world.node("m1").start(lambda ports: run_node(ports, config))

    async def connect(self, name: str) -> Ports:
        """The ports of a new process on that machine."""
        connected: asyncio.Future[Ports] = asyncio.get_running_loop().create_future()

        async def main(ports: Ports) -> None:
            connected.set_result(ports)
            await asyncio.Event().wait()

        self.world.node(name).start(main)
        return await connected

    async def ask(self, ports: Ports, request: Request) -> Reply:
        reply: Reply = decode_reply(await ports.network.call(MASTER.address, encode(request), 2.0))
        return reply

    async def term(self, ports: Ports) -> int:
        status = await self.ask(ports, GetStatus())
        assert isinstance(status, StatusReply)
        return status.groups[0].term


def beat(node_id: str, incarnation: int) -> Heartbeat:
    return Heartbeat(node_id, incarnation, f"{node_id}:7050", "z1", 1, True, encode_reports(()))


def play(scenario: Callable[[OneMaster], Awaitable[None]], crashes: int = 0) -> None:
    with World(1) as world:
        world.run(scenario(OneMaster(world)))
        assert len(world.node("m1").errors) == crashes


def test_masters_refuse_heartbeats_in_another_name_or_of_an_earlier_life() -> None:
    """G9: masters did not check who connects."""

    async def scenario(rig: OneMaster) -> None:
        rig.start_master()
        await asyncio.sleep(3)
        first = await rig.connect("t9")
        assert isinstance(await rig.ask(first, beat("t9", 1)), HeartbeatReply)
        for request in (beat("t1", 1), beat("t9", 2)):
            reply = await rig.ask(first, request)
            assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("STRANGER", True)

    play(scenario)


def test_a_master_takes_no_raft_message_in_another_name() -> None:
    async def scenario(rig: OneMaster) -> None:
        rig.start_master()
        await asyncio.sleep(3)
        stranger = await rig.connect("x")
        forged = RequestVote("m2", "m1", FAR_TERM, FAR_TERM, FAR_TERM, True)
        stranger.network.notify(
            MASTER.address, encode(PeerEnvelope("x", 1, 0, 0, (GroupMessages(CATALOG_GROUP, (forged,)),)))
        )
        await asyncio.sleep(1)
        assert await rig.term(stranger) < FAR_TERM

    play(scenario)


def test_a_server_with_a_new_disk_that_is_full_waits_for_room() -> None:
    """Swarm seed 1340: it could not write down who it was, died of that, and nobody started it again."""

    async def scenario(rig: OneMaster) -> None:
        node = rig.world.node("t9")
        node.disk.full = True
        config = NodeConfig(node_id="t9", role="tserver", listen="t9:7050", masters=(MASTER,), cluster_id="sim")
        node.start(lambda ports: run_node(ports, config))
        await asyncio.sleep(3)
        assert node.state is ProcessState.RUNNING and node.disk.paths() == []
        node.disk.full = False
        await asyncio.sleep(1)
        asker = await rig.connect("x")
        status = decode_reply(await asker.network.call("t9:7050", encode(GetStatus()), 2.0))
        assert isinstance(status, StatusReply) and status.node_id.startswith("t9.")
        assert node.errors == []

    play(scenario)


def test_a_master_does_not_start_on_the_disk_of_another_cluster() -> None:
    async def scenario(rig: OneMaster) -> None:
        rig.start_master()
        await asyncio.sleep(1)
        rig.world.node("m1").kill()
        rig.start_master("other")
        await asyncio.sleep(1)
        assert isinstance(rig.world.node("m1").error, ForeignDisk)

    play(scenario, crashes=1)


def test_a_machine_s_disk_is_formatted_without_the_node_program_and_only_once(tmp_path: Path) -> None:
    """What the command is fed becomes the identity; a disk that has one keeps it."""
    command = format_command(str(tmp_path / "data"))
    for node in ("m1", "m2"):
        subprocess.run(["sh", "-c", command], input=identity_file("c", node), check=True)

    async def found() -> str | None:
        return await read_identity(RealDisk(tmp_path / "data"), "c", "m1")

    assert asyncio.run(found()) == "m1"
