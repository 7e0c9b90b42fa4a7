"""Operations that are known beforehand: each thread does its next one at its time, or as soon as it is free after."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from harness.generators.core import PENDING, Context, Generator, Pending, Step
from harness.history.ops import Op


class Played(msgspec.Struct, frozen=True):
    """`ops` are invocations in the order of their times, `process` of each is its thread; `queues` are for each
    thread the places of its own among them, of which it has begun the first `begun`. Only the load's end ends it."""

    ops: tuple[Op, ...]
    queues: tuple[tuple[int, ...], ...]
    begun: tuple[int, ...]

    def step(self, context: Context) -> Step:
        first: int | None = None
        due_ns: int | None = None
        for thread, (queue, begun) in enumerate(zip(self.queues, self.begun, strict=True)):
            if begun == len(queue) or not context.free >> (thread + 1) & 1:
                continue
            place = queue[begun]
            time_ns = self.ops[place].time
            if time_ns > context.time_ns:
                due_ns = time_ns if due_ns is None else min(due_ns, time_ns)
            elif first is None or place < first:
                first = place
        if first is None:
            return (PENDING if due_ns is None else Pending(due_ns)), self
        op = self.ops[first]
        process = context.processes[op.process]
        counts = tuple([count + (thread == op.process) for thread, count in enumerate(self.begun)])
        return replace(op, process=process, time=context.time_ns), replace(self, begun=counts)

    def update(self, context: Context, event: Op) -> Generator:
        return self


def played(ops: Sequence[Op], threads: int) -> Generator:
    """These invocations, each by the thread that is its `process` (below `threads`), in the order of their times."""
    ordered = tuple(sorted(ops, key=lambda op: op.time))
    queues: list[list[int]] = [[] for _ in range(threads)]
    for place, op in enumerate(ordered):
        queues[op.process].append(place)
    return Played(ordered, tuple(map(tuple, queues)), (0,) * threads)
