"""A large snapshot sent to learners while the group serves: throughput, memory and stalls, on real disks and loopback.

Six tablet servers, a process each: three voters with a tablet of `--mib` MiB in values of 4 KiB, and three learners
that are added one after the other under load. Each stream is paired with the load before and after it. Every node
watches its own event loop: how late a timer comes (which also counts what other processes take of the machine), and
how much processor time passes between two of them (which doesn't).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import uvloop

from bench.measure import Row, report
from cluster.config import NodeConfig, dump_config, load_config
from cluster.knobs import Knobs
from cluster.node import format_process, run_process
from cluster.raft.types import ChangeKind
from cluster.wire.messages import (
    WIRE_VERSION,
    Cell,
    ChangeReplicas,
    Column,
    CreateTablet,
    Done,
    ErrorReply,
    GetStatus,
    GroupState,
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
    WriteCells,
    decode_reply,
    encode,
)
from harness.ports.api import CallLost, Hello, Ports, Unreachable
from harness.ports.real.ports import real_ports

VALUE_BYTES = 4096
CELLS_AT_ONCE = 16
HOT_ROWS = 1_000
TICK_S = 0.002
SAMPLE_S = 0.05
CLIENT_ID = "client"
TABLET = "tab"
KNOBS = Knobs(version_retention_ms=1_000)


# ---- a node, and how it watches its own loop ----


class StreamTick(NamedTuple):
    """The worst of a quarter of a second: how late a timer came, and the processor time between two, in ms."""

    at_s: float
    late_ms: float
    busy_ms: float


async def _watch(path: Path) -> None:
    with path.open("a", buffering=1) as out:
        while True:
            end_s, late_s, busy_s = time.monotonic() + 0.25, 0.0, 0.0
            while (began_s := time.monotonic()) < end_s:
                cpu_s = time.thread_time()
                await asyncio.sleep(TICK_S)
                late_s = max(late_s, time.monotonic() - began_s - TICK_S)
                busy_s = max(busy_s, time.thread_time() - cpu_s)
            out.write(json.dumps(StreamTick(end_s, late_s * 1e3, busy_s * 1e3)) + "\n")


async def _run_node(config: NodeConfig) -> None:
    await format_process(config)
    watching = asyncio.create_task(_watch(Path(f"{config.data_dir}.ticks")))
    try:
        await run_process(config)
    finally:
        watching.cancel()


@dataclass(slots=True)
class BenchNode:
    """A tablet server's process, as seen from outside."""

    replica: Replica
    process: asyncio.subprocess.Process
    ticks_path: Path
    memory: list[tuple[float, int]] = field(default_factory=list)

    def sample(self) -> None:
        """Note how much memory it holds now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        self.memory.append((time.monotonic(), pages * os.sysconf("SC_PAGE_SIZE")))

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self, since_s: float, until_s: float) -> int:
        """The most memory it held then."""
        return max(held for at_s, held in self.memory if since_s <= at_s <= until_s)

    def worst(self, since_s: float, until_s: float) -> StreamTick:
        """The longest stalls then."""
        ticks = [StreamTick(*json.loads(line)) for line in self.ticks_path.read_text().splitlines()]
        chosen = [tick for tick in ticks if since_s <= tick.at_s <= until_s + 0.25]
        return StreamTick(0, max(tick.late_ms for tick in chosen), max(tick.busy_ms for tick in chosen))


# ---- the group ----


class BenchGroup:
    """The tablet's nodes, and a way to ask them."""

    def __init__(self, ports: Ports, nodes: list[BenchNode]) -> None:
        self._ports, self.nodes = ports, nodes
        self.leader = nodes[0].replica

    async def ask(self, replica: Replica, request: Request) -> Reply | None:
        """The answer to a request that is sent once; None if there was none."""
        try:
            reply: Reply = decode_reply(await self._ports.network.call(replica.address, encode(request), 10.0))
        except (Unreachable, CallLost):
            return None
        return reply

    async def ask_leader(self, request: Request) -> Reply:
        """Try until the leader answers."""
        while True:
            reply = await self.ask(self.leader, request)
            if reply is not None and not isinstance(reply, ErrorReply):
                return reply
            if isinstance(reply, ErrorReply) and reply.leader:
                self.leader = next(node.replica for node in self.nodes if node.replica.node_id == reply.leader)
            await asyncio.sleep(0.02)

    async def state(self, replica: Replica) -> GroupState | None:
        """What a node says of its replica."""
        reply = await self.ask(replica, GetStatus())
        found = reply.groups if isinstance(reply, StatusReply) else ()
        return next((group for group in found if group.group == TABLET), None)

    async def create(self) -> None:
        """Found the tablet on the first three nodes."""
        voters = tuple(node.replica for node in self.nodes[:3])
        for replica in voters:
            request = CreateTablet(
                replica.node_id, True, TABLET, "t", "t", Partition(0, 1), (Column(0, "value", "bytes"),), 1, voters
            )
            while await self.ask(replica, request) is None:
                await asyncio.sleep(0.05)

    async def add_learner(self, replica: Replica) -> int:
        """Ask for it; up to where the group had applied then."""
        while True:
            state = await self.state(self.leader)
            if state is not None:
                op_id = (state.config_term, state.config_index)
                change = ChangeReplicas(TABLET, ChangeKind.ADD_LEARNER, replica.node_id, replica.address, *op_id, 5.0)
                if not isinstance(await self.ask(self.leader, change), ErrorReply | None):
                    return state.applied_index
            await asyncio.sleep(0.05)


class StreamSession:
    """A client of the tablet."""

    def __init__(self, group: BenchGroup, number: int) -> None:
        self._group, self._number, self._sequence = group, number, 0

    async def begin(self) -> None:
        reply = await self._group.ask_leader(RegisterSession(TABLET))
        assert isinstance(reply, SessionReply)
        self._number = reply.session

    def identity(self) -> RequestId:
        self._sequence += 1
        return RequestId(self._number, self._sequence, self._sequence)

    async def load(self, rows: range) -> None:
        """Write values of 4 KiB."""
        for first in rows[::CELLS_AT_ONCE]:
            cells = tuple(Cell(row, 0, os.urandom(VALUE_BYTES)) for row in range(first, first + CELLS_AT_ONCE))
            reply = await self._group.ask_leader(WriteCells(self.identity(), TABLET, 0, cells))
            assert isinstance(reply, Done)

    async def work(self, rows: range, load: Load) -> None:
        """Reads and writes of small values in turn, one after the other, for ever."""
        while True:
            for row in rows:
                read = ReadCell(TABLET, 0, row, 0) if row % 2 else WriteCell(self.identity(), TABLET, 0, row, 0, row)
                reply = await self._group.ask_leader(read)
                assert isinstance(reply, Done | ReadReply)
                load.done += 1


class Load:
    """Counts what clients have done."""

    def __init__(self) -> None:
        self.done = 0

    async def rate(self, seconds: float) -> float:
        """Operations a second over that time from now on."""
        before, began_s = self.done, time.monotonic()
        await asyncio.sleep(seconds)
        return (self.done - before) / (time.monotonic() - began_s)


# ---- the measurement ----


@dataclass(slots=True)
class Stream:
    """One learner's: its rates are of operations a second, its memory is above the state, in MiB.

    `sender_cpu_s` is the sender's processor time beyond what as many operations take it without a stream.
    """

    seconds: float
    rate: float
    rate_without: float
    sender_cpu_s: float
    receiver_cpu_s: float
    sender_mib: float
    receiver_mib: float
    sender: StreamTick
    receiver: StreamTick
    sender_without: StreamTick

    def figures(self) -> dict[str, float]:
        """What was measured, by its name."""
        return {
            "seconds": round(self.seconds, 1),
            "operations a second with a stream": round(self.rate),
            "operations a second without": round(self.rate_without),
            "with a stream, as a share of without": round(self.rate / self.rate_without, 3),
            "sender: CPU s beyond its clients'": round(self.sender_cpu_s, 2),
            "receiver: CPU s, installation included": round(self.receiver_cpu_s, 2),
            "sender: MiB above its state": round(self.sender_mib, 1),
            "receiver: MiB above its state": round(self.receiver_mib, 1),
            "sender: longest turn, CPU ms": round(self.sender.busy_ms, 1),
            "sender without a stream: longest turn, CPU ms": round(self.sender_without.busy_ms, 1),
            "receiver: longest turn, CPU ms": round(self.receiver.busy_ms, 1),
            "sender: latest timer, ms": round(self.sender.late_ms, 1),
            "sender without a stream: latest timer, ms": round(self.sender_without.late_ms, 1),
            "receiver: latest timer, ms": round(self.receiver.late_ms, 1),
        }


async def _stream(group: BenchGroup, learner: BenchNode, load: Load, window_s: float) -> Stream:
    sender = next(node for node in group.nodes if node.replica == group.leader)
    began_s, began_cpu_s, began_done = time.monotonic(), sender.cpu_s(), load.done
    before = await load.rate(window_s)
    stream_s, done = time.monotonic(), load.done
    sender_cpu_s, receiver_cpu_s = sender.cpu_s(), learner.cpu_s()
    each_s = (sender_cpu_s - began_cpu_s) / max(1, done - began_done)
    held = sender.memory[-1][1]
    index = await group.add_learner(learner.replica)
    while (state := await group.state(learner.replica)) is None or state.applied_index < index:
        await asyncio.sleep(0.1)
    end_s = time.monotonic()
    rate = (load.done - done) / (end_s - stream_s)
    sender_cpu_s = sender.cpu_s() - sender_cpu_s - (load.done - done) * each_s
    receiver_cpu_s = learner.cpu_s() - receiver_cpu_s
    after = await load.rate(window_s)
    settled = learner.memory[-1][1]
    return Stream(
        seconds=end_s - stream_s,
        rate=rate,
        rate_without=(before + after) / 2,
        sender_cpu_s=sender_cpu_s,
        receiver_cpu_s=receiver_cpu_s,
        sender_mib=(sender.peak_bytes(stream_s, end_s) - held) / 2**20,
        receiver_mib=(learner.peak_bytes(stream_s, end_s) - settled) / 2**20,
        sender=sender.worst(stream_s, end_s),
        receiver=learner.worst(stream_s, end_s),
        sender_without=sender.worst(began_s, stream_s),
    )


async def _compacted(group: BenchGroup, last: int, session: StreamSession) -> None:
    """Write until a snapshot covers everything up to an index, so that learners need it."""
    while (state := await group.state(group.leader)) is None or state.first_index <= last - KNOBS.retained_entries:
        await session.load(range(CELLS_AT_ONCE * 16))


async def measure(folder: Path, mib: int, clients: int, window_s: float, knobs: Knobs) -> list[Stream]:
    """Load the tablet, then add learner after learner."""
    async with _nodes(folder, knobs) as group:
        await group.create()
        sessions = [StreamSession(group, 0) for _ in range(clients)]
        for session in sessions:
            await session.begin()
        rows = mib * 2**20 // VALUE_BYTES
        share = rows // clients // CELLS_AT_ONCE * CELLS_AT_ONCE
        await asyncio.gather(*(each.load(range(n * share, (n + 1) * share)) for n, each in enumerate(sessions)))
        state = await group.state(group.leader)
        assert state is not None
        await _compacted(group, state.applied_index, sessions[0])
        report(f"loaded {rows} values; streaming")
        load = Load()
        hot = [range(rows + n * HOT_ROWS, rows + (n + 1) * HOT_ROWS) for n in range(clients)]
        working = [asyncio.create_task(each.work(rows, load)) for each, rows in zip(sessions, hot, strict=True)]
        await load.rate(2 * window_s)
        streams = [await _stream(group, learner, load, window_s) for learner in group.nodes[3:]]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        return streams


@asynccontextmanager
async def _nodes(folder: Path, knobs: Knobs) -> AsyncIterator[BenchGroup]:
    ports = real_ports(Hello("bench", CLIENT_ID, 1, WIRE_VERSION), folder / CLIENT_ID, seed=1)
    nodes = [await _start(folder, number, knobs) for number in range(1, 7)]
    sampling = asyncio.create_task(_sample(nodes))
    try:
        yield BenchGroup(ports, nodes)
    finally:
        sampling.cancel()
        for node in nodes:
            node.process.kill()
            await node.process.wait()
        await ports.network.close()


async def _start(folder: Path, number: int, knobs: Knobs) -> BenchNode:
    name = f"t{number}"
    config = NodeConfig(
        node_id=name,
        role="tserver",
        listen=f"127.0.0.1:{await _free_port()}",
        masters=(),
        cluster_id="bench",
        data_dir=str(folder / name),
        knobs=knobs,
    )
    path = folder / f"{name}.json"
    path.write_bytes(dump_config(config))
    with (folder / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.snapshot_stream", str(path), stderr=log
        )
    return BenchNode(Replica(name, config.listen), process, folder / f"{name}.ticks")


async def _free_port() -> int:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def _sample(nodes: list[BenchNode]) -> None:
    while True:
        for node in nodes:
            node.sample()
        await asyncio.sleep(SAMPLE_S)


def snapshot_stream(
    mib: int = 256,
    clients: int = 16,
    window_s: Annotated[float, "how long the load is measured without a stream"] = 8.0,
    rate: Annotated[int, "the knob bulk_bytes_per_s"] = KNOBS.bulk_bytes_per_s,
    folder: Annotated[Path | None, "where the disks are; default: the temporary directory"] = None,
) -> Iterator[Row]:
    """Learners added one after the other to a group under load: of each figure the median, the least and the most."""
    knobs = msgspec.structs.replace(KNOBS, bulk_bytes_per_s=rate)
    with tempfile.TemporaryDirectory(dir=folder, prefix="snapshot-stream-") as place:
        streams = [each.figures() for each in uvloop.run(measure(Path(place), mib, clients, window_s, knobs))]
    for what in streams[0]:
        of_each = [figures[what] for figures in streams]
        median = round(statistics.median(of_each), 3)
        yield {"what": what, "median": median, "least": min(of_each), "most": max(of_each), "of_each": of_each}


if __name__ == "__main__":
    uvloop.run(_run_node(load_config(Path(sys.argv[1]).read_bytes())))
