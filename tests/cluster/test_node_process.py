"""The node program as real processes on this machine: handshake, `kill -9`, graceful stop, refusals to start."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.config import NodeConfig, dump_config, load_config
from cluster.knobs import Knobs
from cluster.log import envelope, frames
from cluster.log.node import NodeLog
from cluster.node import next_incarnation, sole_process, tend_garbage
from cluster.wire.identity import format_disk
from cluster.wire.messages import (
    WIRE_VERSION,
    CreateTablet,
    Done,
    DoneReply,
    ErrorReply,
    GetStatus,
    Partition,
    ReadCell,
    ReadReply,
    RegisterSession,
    Replica,
    Reply,
    Request,
    RequestId,
    SessionReply,
    StatusReply,
    WriteCell,
    decode_reply,
    encode,
)
from harness.errors import UserError
from harness.ports.api import CallLost, Hello, Ports, Unreachable
from harness.ports.real.ports import real_ports


async def free_port() -> int:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


class Processes:
    """Three tablet servers as processes, in torture mode: a kill loses what was not fsynced."""

    def __init__(self, folder: Path, ports: Ports, voters: tuple[Replica, ...]) -> None:
        self.folder, self.ports, self.voters = folder, ports, voters
        self.running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, replica: Replica) -> None:
        config = NodeConfig(
            node_id=replica.node_id,
            role="tserver",
            listen=replica.address,
            masters=(),
            cluster_id="real",
            data_dir=str(self.folder / replica.node_id),
            torture=True,
            knobs=Knobs(election_timeout_ms=300, raft_heartbeat_ms=50),
        )
        path = self.folder / f"{replica.node_id}.json"
        path.write_bytes(dump_config(config))
        formatting = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cluster.node", "--format", str(path), stderr=asyncio.subprocess.DEVNULL
        )
        assert await formatting.wait() == 0
        with (self.folder / f"{replica.node_id}.log").open("ab") as log:
            self.running[replica.node_id] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "cluster.node", str(path), stderr=log
            )

    def kill(self) -> None:
        for process in self.running.values():
            if process.returncode is None:
                process.kill()

    async def call(self, replica: Replica, request: Request) -> Reply | None:
        try:
            return decode_reply(await self.ports.network.call(replica.address, encode(request), 1.0))
        except (Unreachable, CallLost):
            return None

    async def anyone(self, request: Request) -> Reply:
        while True:
            for replica in self.voters:
                reply = await self.call(replica, request)
                if reply is not None and not isinstance(reply, ErrorReply):
                    return reply
            await asyncio.sleep(0.05)

    async def answers(self, replica: Replica, request: Request) -> Reply:
        while (reply := await self.call(replica, request)) is None:
            await asyncio.sleep(0.05)
        return reply


@asynccontextmanager
async def processes(folder: Path) -> AsyncIterator[Processes]:
    voters = tuple([Replica(f"t{number}", f"127.0.0.1:{await free_port()}") for number in (1, 2, 3)])
    ports = real_ports(Hello("real", "client", 1, WIRE_VERSION), folder / "client")
    cluster = Processes(folder, ports, voters)
    try:
        for replica in voters:
            await cluster.start(replica)
        yield cluster
    finally:
        cluster.kill()
        for process in cluster.running.values():
            await process.wait()
        await ports.network.close()


def scenario(folder: Path, body: Callable[[Processes], Awaitable[None]]) -> None:
    async def run() -> None:
        async with processes(folder) as cluster:
            await body(cluster)

    asyncio.run(run())


def write(session: int, sequence: int, value: int) -> WriteCell:
    return WriteCell(RequestId(session, sequence, 0), "tab", 1, 0, 0, value)


def test_what_was_acknowledged_survives_kill_9_of_every_process(tmp_path: Path) -> None:
    async def body(cluster: Processes) -> None:
        for replica in cluster.voters:
            create = CreateTablet(
                replica.node_id, True, "tab", "table", "registers", Partition(0, 1), (), 0, cluster.voters
            )
            assert await cluster.answers(replica, create) == DoneReply(True)
        registered = await cluster.anyone(RegisterSession("tab"))
        assert isinstance(registered, SessionReply)
        session = registered.session
        first = await cluster.anyone(write(session, 1, 41))
        assert isinstance(first, Done)
        assert isinstance(await cluster.anyone(write(session, 2, 42)), Done)
        before = await cluster.answers(cluster.voters[0], GetStatus())
        cluster.kill()
        for replica in cluster.voters:
            await cluster.running[replica.node_id].wait()
            await cluster.start(replica)
        assert await cluster.anyone(write(session, 1, 41)) == first
        reply = await cluster.anyone(ReadCell("tab", 1, 0, 0))
        assert isinstance(reply, ReadReply)
        assert reply.value == 42
        status = await cluster.answers(cluster.voters[0], GetStatus())
        assert isinstance(before, StatusReply) and isinstance(status, StatusReply)
        assert status.incarnation == before.incarnation + 1

    scenario(tmp_path, body)


def test_sigterm_is_a_graceful_stop_and_leaves_a_stamped_log(tmp_path: Path) -> None:
    async def body(cluster: Processes) -> None:
        replica = cluster.voters[0]
        await cluster.answers(replica, GetStatus())
        process = cluster.running[replica.node_id]
        process.terminate()
        assert await process.wait() == 0
        lines = (tmp_path / "t1.log").read_text().splitlines()
        assert lines[-1].endswith("INFO cluster.t1 stopped")
        assert all(line.startswith("20") and "+00:00 INFO cluster.t1" in line for line in lines)

    scenario(tmp_path, body)


def node(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cluster.node", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_second_process_is_refused_the_data_directory(tmp_path: Path) -> None:
    config = NodeConfig(
        node_id="t1", role="tserver", listen="127.0.0.1:0", masters=(), cluster_id="real", data_dir=f"{tmp_path}/data"
    )
    (tmp_path / "t1.json").write_bytes(dump_config(config))
    with sole_process(tmp_path / "data"):
        ended = subprocess.run(
            [sys.executable, "-m", "cluster.node", str(tmp_path / "t1.json")], capture_output=True, text=True
        )
    assert ended.returncode == 254
    assert ended.stderr.strip().endswith(f"Another process uses the data directory {tmp_path}/data.")
    assert list((tmp_path / "data").iterdir()) == [], "it wrote nothing"
    with sole_process(tmp_path / "data"):
        pass


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid"),
        ('{"node_id": "t1", "role": "chef", "listen": "x:1", "masters": []}', "role"),
        ('{"node_id": "t1", "role": "tserver", "listen": "x:1", "masters": [], "flaws": ["no-such"]}', "no-such"),
        ('{"node_id": "t1", "role": "tserver", "listen": "x:1", "masters": []}', "data_dir"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "node.json"
    path.write_text(text)
    ended = node(str(path))
    assert ended.returncode == 254
    assert reason in ended.stderr
    assert ended.stderr.count("\n") == 1


def complaint(folder: Path, code: int, listen: str = "127.0.0.1:0") -> str:
    """What a node that can't start with `data` in this folder says, which is one line."""
    data = folder / "data"
    config = NodeConfig(node_id="t1", role="tserver", listen=listen, masters=(), cluster_id="c", data_dir=str(data))
    (folder / "node.json").write_bytes(dump_config(config))
    ended = node(str(folder / "node.json"))
    assert ended.returncode == code and "Traceback" not in ended.stderr, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if " INFO " not in line]
    return line


def refused(folder: Path, code: int) -> str:
    """The complaint of a node that changes nothing in its directory, but that it may count its start."""
    before = contents(folder / "data")
    line = complaint(folder, code)
    assert contents(folder / "data") == before
    return line


def contents(data: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != "incarnation"}


def begun(folder: Path, cluster_id: str = "c") -> Path:
    """The data directory of a node that was formatted and has begun a log; the path of its segment."""
    ports = real_ports(Hello(cluster_id, "t1", 1, WIRE_VERSION), folder / "data")

    async def begin() -> None:
        await format_disk(ports.disk, cluster_id, "t1")
        await (await NodeLog.open(ports, Knobs(), "tablets", ())).close()

    asyncio.run(begin())
    (segment,) = (folder / "data" / "log").iterdir()
    return segment


def test_a_damaged_disk_ends_the_process_with_1(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "identity").write_bytes(b"not ours")
    line = refused(tmp_path, 1)
    assert f"ERROR cluster t1: in the data directory {tmp_path}/data, identity: the record is cut short; keep" in line


@pytest.mark.parametrize("harmed", [0, 4])
def test_a_log_of_another_format_version_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harmed: int
) -> None:
    """It is so where the first bytes of the segment are damaged: a copy of the header is at the frame's end."""
    with monkeypatch.context() as patch:
        patch.setattr(frames, "LOG_VERSION", 99)
        segment = begun(tmp_path)
    segment.write_bytes(b"torn"[:harmed] + segment.read_bytes()[harmed:])
    line = refused(tmp_path, 254)
    assert f"data directory {tmp_path}/data, log/{segment.name}: the log has format version 99; this program" in line
    assert line.endswith("start the program that wrote it, or give the node an empty data_dir.")
    assert not (tmp_path / "data" / "incarnation").exists(), "a start that is refused is not counted"


@pytest.mark.parametrize("name", ["identity", "incarnation", "masters", "tablets/tab.meta", "mutation-ids"])
def test_a_small_file_of_another_format_version_is_refused_in_one_line_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It was taken for a damaged one: of a tablet its replica was given up, and who the masters are was forgotten."""
    begun(tmp_path)
    path = tmp_path / "data" / name
    path.parent.mkdir(exist_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr(envelope, "FORMAT_VERSION", 99)
        path.write_bytes(envelope.twice(1, b"of then"))
    before = path.read_bytes()
    line = complaint(tmp_path, 254)
    assert f"{name}: the record has format version 99; this program reads 1; start the program that wrote it" in line
    assert path.read_bytes() == before


def test_the_disk_of_another_cluster_is_refused_in_one_line_and_left_as_it_is(tmp_path: Path) -> None:
    begun(tmp_path, cluster_id="theirs")
    line = refused(tmp_path, 254)
    assert "identity: the disk belongs to server t1 of cluster theirs, and not to node t1 of c; give" in line
    assert not (tmp_path / "data" / "incarnation").exists()


@pytest.mark.parametrize(
    ("listen", "words"),
    [("127.0.0.1:{used}", "in use"), ("127.0.0.1:http", "HOST:PORT"), ("nowhere.invalid:0", "known")],
)
def test_an_address_that_can_t_be_bound_is_refused_in_one_line(tmp_path: Path, listen: str, words: str) -> None:
    begun(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = listen.format(used=server.getsockname()[1])
        line = complaint(tmp_path, 254, address)
    assert f"can't listen at {address}: " in line and words in line


def test_a_data_directory_that_can_t_be_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert f"The data directory {tmp_path}/data can't be used: " in refused(tmp_path, 254)


def test_every_start_counts_an_incarnation(tmp_path: Path) -> None:
    first, *others = [asyncio.run(next_incarnation(tmp_path)) for _ in range(3)]
    assert others == [first + 1, first + 2]


def test_a_node_whose_disk_was_replaced_counts_above_its_earlier_lives(tmp_path: Path) -> None:
    """Peers refuse an incarnation below one that they have heard (G9)."""
    old = [asyncio.run(next_incarnation(tmp_path / "old")) for _ in range(2)]
    assert asyncio.run(next_incarnation(tmp_path / "new")) > max(old)


def test_a_configuration_survives_its_file() -> None:
    config = NodeConfig(
        node_id="m1",
        role="master",
        listen="0.0.0.0:7051",
        advertise="10.0.0.1:7051",
        masters=(Replica("m1", "10.0.0.1:7051"),),
        flaws=("read-without-lease",),
        knobs=Knobs(snapshot_entries=7),
    )
    assert load_config(dump_config(config)) == config
    assert config.address == "10.0.0.1:7051"
    with pytest.raises(UserError):
        load_config(b"[]")


@pytest.mark.parametrize(
    "knobs", [b'"raft_heartbeat_ms": 600', b'"lease_ms": 700', b'"max_batch_entries": 0', b'"no_such": 1']
)
def test_knobs_that_could_not_work_are_refused(knobs: bytes) -> None:
    text = b'{"node_id": "t1", "role": "tserver", "listen": "x:1", "masters": [], "knobs": {%s}}'
    load_config(text % b'"snapshot_entries": 5')
    with pytest.raises(UserError, match="not valid"):
        load_config(text % knobs)


def test_node_code_needs_only_msgspec_and_uvloop() -> None:
    heavy = ["numpy", "pyarrow", "pandas", "numba", "pyspark", "typer", "rich", "docker", "paramiko", "networkx"]
    code = (
        "import sys; import cluster.node, cluster.master.master, cluster.tserver.server; "
        f"sys.exit(', '.join(name for name in {heavy} if name in sys.modules) or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_large_state_is_left_out_of_garbage_collections() -> None:
    async def scenario() -> None:
        before = gc.get_freeze_count()
        state = [[number] for number in range(300_000)]
        tending = asyncio.create_task(tend_garbage())
        await asyncio.sleep(0.01)
        tending.cancel()
        assert gc.get_freeze_count() - before > len(state)

    thresholds = gc.get_threshold()
    try:
        asyncio.run(scenario())
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_a_node_on_a_full_disk_says_that_it_waits_and_ends_quietly_when_it_is_stopped(tmp_path: Path) -> None:
    config = NodeConfig(
        node_id="t1", role="tserver", listen="127.0.0.1:1", masters=(), cluster_id="c", data_dir=str(tmp_path / "data")
    )
    (tmp_path / "t1.json").write_bytes(dump_config(config))
    program = """
import errno, sys
import cluster.node
from harness.ports.api import DiskFull

async def full(directory):
    raise DiskFull(errno.ENOSPC, "no space left")

cluster.node.next_incarnation = full
sys.exit(cluster.node.main(sys.argv[1:]))
"""
    started = [sys.executable, "-c", program, str(tmp_path / "t1.json")]
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "the disk is full: the node starts once there is room" in first
        process.terminate()
        rest = process.stderr.read()
    assert (process.returncode, rest) == (0, "")
