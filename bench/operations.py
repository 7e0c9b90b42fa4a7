"""What one operation of a client costs: the interpreter alone, and the cluster in the simulator, timed and counted."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Annotated, Any, Final, TypeAlias

from bench.clusters import simulated, started
from bench.measure import Row, Spent, kept_in, spent
from cluster.deploy.database_sim import SimDatabase
from harness.generators import Chance, Context, clients, draw, invoke, limit, mix, stagger
from harness.history.journal import JournalWriter
from harness.history.ops import Op, read, write
from harness.ports.api import Clock
from harness.ports.real.ports import RealClock
from harness.ports.sim.world import World
from harness.run.interpreter import ProcessIds, Recorder, interpret
from harness.verdict.failures import FailureLog

CLIENTS: Final = 10
KEYS: Final = 30

Rate: TypeAlias = Annotated[float, "operations a second; 0: a closed loop"]


# ---- the interpreter ----


class NoOpClient:
    async def invoke(self, op: Op) -> Op:
        return op.complete("ok")

    async def close(self) -> None:
        pass


class NoOpClients:
    async def open(self, process: int) -> NoOpClient:
        return NoOpClient()


def interpreter(ops: int = 200_000, concurrency: int = 100) -> Iterator[Row]:
    """Operations a second with a client that does nothing, journal included."""
    with kept_in() as folder:
        took = asyncio.run(_interpreted(ops, concurrency, folder / "journal"))
    speeds = {"ops_per_s": round(ops / took.wall_s), "ops_per_CPU_s": round(ops / took.cpu_s)}
    yield {"client": "does nothing", "concurrency": concurrency, "ops": ops, "s": round(took.wall_s, 3), **speeds}


async def _interpreted(ops: int, concurrency: int, path: Path) -> Spent:
    source = clients(limit(ops, stagger(3, 1e9, mix(1, draw(1, _write), draw(2, _read)))))
    journal = JournalWriter(path)
    recorder, processes = Recorder(journal, RealClock()), ProcessIds(concurrency)
    with spent() as took:
        await interpret(
            source, clients=NoOpClients(), nemesis=None, recorder=recorder, failures=FailureLog(), processes=processes
        )
        journal.close()
    return took


def _write(context: Context, chance: Chance, count: int) -> Op:
    return invoke("write", write(chance.below(100), count))


def _read(context: Context, chance: Chance, count: int) -> Op:
    return invoke("read", read(chance.below(100)))


# ---- the cluster in the simulator, without faults ----


async def _load(clock: Clock, database: SimDatabase, seconds: float, rate_hz: float) -> int:
    """How many operations are done in that time."""
    pause_s = CLIENTS / rate_hz if rate_hz else 0.0
    until_ns = clock.monotonic_ns() + int(seconds * 1e9)
    return sum(await asyncio.gather(*(_work(database, clock, each, until_ns, pause_s) for each in range(CLIENTS))))


async def _work(database: SimDatabase, clock: Clock, process: int, until_ns: int, pause_s: float) -> int:
    entropy = random.Random(process)
    client = await database.open_client(process, 5.0)
    done = 0
    while clock.monotonic_ns() < until_ns:
        if pause_s:
            await clock.sleep(pause_s * (0.5 + entropy.random()))
        key = entropy.randrange(KEYS)
        mop = read(key) if entropy.random() < 0.5 else write(key, done)
        await client.invoke(Op("invoke", process, mop.f, (mop,)))
        done += 1
    return done


def simulator(seconds: Annotated[float, "virtual seconds of the closed loop"] = 20.0) -> Iterator[Row]:
    """Operations a CPU-second of 3 masters and 5 tablet servers, starting up included, and speed against real time."""
    for rate_hz, lasts_s in ((0.0, seconds), (100.0, 3 * seconds)):
        with spent() as took:
            ops, world = simulated(lambda world, database: _loaded(world, database, lasts_s, rate_hz))  # noqa: B023
        virtual_s, cpu_s = world.loop.time(), took.cpu_s
        figures = {"ops": ops, "virtual_s": round(virtual_s, 1), "CPU_s": round(cpu_s, 2)}
        speeds = {"ops_per_CPU_s": round(ops / cpu_s), "times_real_time": round(virtual_s / cpu_s, 1)}
        yield {"clients": _clients(rate_hz), **figures, **speeds}


def _clients(rate_hz: float) -> str:
    return f"{CLIENTS}, {rate_hz:g} operations a second" if rate_hz else f"{CLIENTS} in a closed loop"


async def _loaded(world: World, database: SimDatabase, seconds: float, rate_hz: float) -> tuple[int, World]:
    await started(database)
    await database.setup_workload("register", {})
    return await _load(world.harness_ports("bench").clock, database, seconds, rate_hz), world


# ---- counted by function: the same on every machine, at any load ----

ByCode: TypeAlias = Counter[CodeType]


@dataclass(frozen=True, slots=True)
class Costs:
    """What operations took together; `by_code` is what was counted, by the code that did it."""

    ops: int
    by_code: ByCode
    turns: int
    messages: int
    fsyncs: int

    def per_op(self) -> dict[str, float]:
        """All of it, for each operation."""
        sums = {"counted": self.by_code.total(), "turns": self.turns, "messages": self.messages, "fsyncs": self.fsyncs}
        return {name: round(total / self.ops, 2) for name, total in sums.items()}


@contextmanager
def bytecodes() -> Iterator[ByCode]:
    """Counts the bytecodes that this thread executes meanwhile."""
    counts: ByCode = Counter()

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            counts[frame.f_code] += 1
        elif event == "call":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return traced

    above: FrameType | None = sys._getframe(2)
    while above is not None:  # what runs already is not called any more, the simulator's loop among it
        above.f_trace_lines, above.f_trace_opcodes, above.f_trace = False, True, traced
        above = above.f_back
    sys.settrace(traced)
    try:
        yield counts
    finally:
        sys.settrace(None)


@contextmanager
def calls() -> Iterator[ByCode]:
    """Counts the calls of functions in this thread meanwhile: of one written in Python as its own, of others as their
    caller's."""
    counts: ByCode = Counter()

    def profiled(frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_call"):
            counts[frame.f_code] += 1

    sys.setprofile(profiled)
    try:
        yield counts
    finally:
        sys.setprofile(None)


def count(seconds: float, rate_hz: float, counting: Callable[[], AbstractContextManager[ByCode]]) -> Costs:
    """What virtual seconds of load take, on a cluster that is up."""
    return simulated(lambda world, database: _counted(world, database, seconds, rate_hz, counting))


async def _counted(
    world: World,
    database: SimDatabase,
    seconds: float,
    rate_hz: float,
    counting: Callable[[], AbstractContextManager[ByCode]],
) -> Costs:
    await started(database)
    await database.setup_workload("register", {})
    clock, before = world.harness_ports("bench").clock, _done(world)
    with counting() as counts:
        ops = await _load(clock, database, seconds, rate_hz)
    return Costs(ops, counts, *(after - first for after, first in zip(_done(world), before, strict=True)))


def _done(world: World) -> tuple[int, int, int]:
    return world.loop.steps, world.network.delivered, sum(node.disk.syncs for node in world.nodes)


def counts(
    seconds: Annotated[float, "virtual seconds"] = 0.7,
    rate: Rate = 0.0,
    calls: Annotated[bool, "count calls instead of bytecodes"] = False,
    top: Annotated[int, "how many functions are listed"] = 0,
) -> Iterator[Row]:
    """Bytecodes that Python executes for an operation, or its function calls (C's included), by function.

    A virtual second in a closed loop takes about a minute where bytecodes are counted.
    """
    what = "calls" if calls else "bytecodes"
    costs = count(seconds, rate, COUNTED[what])
    per_op = {what if name == "counted" else name: each for name, each in costs.per_op().items()}
    most = [
        f"{number / costs.ops:.1f} {code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
        for code, number in costs.by_code.most_common(top)
    ]
    yield {"clients": _clients(rate), "ops": costs.ops, **per_op, "most": most}


COUNTED: Final = {"calls": calls, "bytecodes": bytecodes}
