"""A pure driver for generators: what history would they make, with given latencies? (Jepsen's `generator.test`.)"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from harness.generators.core import Context, Generator, Pending, Source, lift
from harness.history.ops import Op, OpType

Latency: TypeAlias = Callable[[Op, int], tuple[int, OpType]]
"""(invocation, how many came before) → how long it takes in ns, and how it ends."""


def quick(op: Op, number: int) -> tuple[int, OpType]:
    """Every operation succeeds at once."""
    return 0, "ok"


def perfect(op: Op, number: int) -> tuple[int, OpType]:
    """Every operation takes 10 ns and succeeds."""
    return 10, "ok"


def imperfect(op: Op, number: int) -> tuple[int, OpType]:
    """Operations take 10 to 30 ns and end ok, info, fail in turn."""
    types: tuple[OpType, ...] = ("ok", "info", "fail")
    return 10 * (1 + number % 3), types[number % 3]


def simulate(
    source: Source, *, concurrency: int = 2, nemesis: bool = False, latency: Latency = perfect, max_ops: int = 10_000
) -> list[Op]:
    """All events, in order, of running a generator to its end (or to `max_ops` invocations) in virtual time.

    Completions are handled before invocations; a process that ends `info` is retired, as the interpreter does.
    """
    generator: Generator | None = lift(source)
    context = Context.initial(concurrency, nemesis)
    flying: list[tuple[int, int, Op]] = []
    events: list[Op] = []
    invoked = 0
    while True:
        while flying and flying[0][0] <= context.time_ns:
            completion = heapq.heappop(flying)[2]
            context = _completed(context, completion)
            events.append(completion)
            generator = generator and generator.update(context, completion)
        op, after = generator.step(context) if generator and invoked < max_ops else (None, None)
        generator = after
        if isinstance(op, Op):
            taken_ns, type = latency(op, invoked)
            heapq.heappush(flying, (op.time + taken_ns, invoked, op.complete(type, time=op.time + taken_ns)))
            invoked += 1
            events.append(op)
            context = _invoked(context, op)
            generator = generator and generator.update(context, op)
            continue
        wake_ns = _wake_ns(op, flying)
        if wake_ns is None:
            return events
        context = replace(context, time_ns=wake_ns)


def _wake_ns(op: Pending | None, flying: list[tuple[int, int, Op]]) -> int | None:
    """When something happens next; None if nothing ever will."""
    times = [flying[0][0]] if flying else []
    if op is not None and op.until_ns is not None:
        times.append(op.until_ns)
    return min(times, default=None)


def _invoked(context: Context, op: Op) -> Context:
    bit = context.bit_of(op.process)
    return replace(context, free=context.free & ~(1 << bit), turn=bit + 1)


def _completed(context: Context, op: Op) -> Context:
    bit = context.bit_of(op.process)
    processes = context.processes
    if op.type == "info" and op.process >= 0:
        processes = (*processes[: bit - 1], op.process + len(processes), *processes[bit:])
    return replace(context, free=context.free | 1 << bit, processes=processes)
