"""What one operation of a client costs in the simulator, counted by function: the same on every machine, at any load.

Counted are the bytecodes that Python executes, or its function calls (C's included), and what is done for an operation:
turns of the loop, messages, fsyncs. It is of the load alone, on a cluster that is up. A virtual second in a closed loop
takes about a minute where bytecodes are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeAlias

from bench.simulator import run_client
from cluster.deploy.database_sim import SimDatabase
from harness.ports.sim.world import World

CLIENTS = 10

ByCode: TypeAlias = Counter[CodeType]


@dataclass(frozen=True, slots=True)
class Costs:
    """What so many operations took together; `by_code` is what was counted, by the code that did it."""

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
    """What so many virtual seconds of load take; `rate_hz` 0: in a closed loop."""
    with World(1, record_decisions=False) as world:
        return world.run(_counted(world, seconds, rate_hz, counting))


async def _counted(
    world: World, seconds: float, rate_hz: float, counting: Callable[[], AbstractContextManager[ByCode]]
) -> Costs:
    database, clock = SimDatabase(world), world.harness_ports("bench").clock
    await database.install()
    for node in database.nodes:
        await database.start(node.name)
    await database.await_ready(20)
    await database.setup_workload("register", {})
    pause_s = CLIENTS / rate_hz if rate_hz else 0.0
    until_ns = clock.monotonic_ns() + int(seconds * 1e9)
    before = _done(world)
    with counting() as counts:
        done = await asyncio.gather(*(run_client(database, clock, each, until_ns, pause_s) for each in range(CLIENTS)))
    turns, messages, fsyncs = (after - first for after, first in zip(_done(world), before, strict=True))
    await database.teardown()
    return Costs(sum(done), counts, turns, messages, fsyncs)


def _done(world: World) -> tuple[int, int, int]:
    return world.loop.steps, world.network.delivered, sum(node.disk.syncs for node in world.nodes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.7, help="virtual seconds")
    parser.add_argument("--rate", type=float, default=0, help="operations a second; 0: a closed loop")
    parser.add_argument("--calls", action="store_true", help="count calls instead of bytecodes")
    parser.add_argument("--top", type=int, default=0, help="how many functions are listed")
    arguments = parser.parse_args()
    costs = count(arguments.seconds, arguments.rate, calls if arguments.calls else bytecodes)
    print(json.dumps({"benchmark": "counts", "ops": costs.ops, "per_op": costs.per_op()}))
    for code, number in costs.by_code.most_common(arguments.top):
        print(f"{number / costs.ops:8.1f}  {code.co_filename}:{code.co_firstlineno} {code.co_qualname}")


if __name__ == "__main__":
    main()
