"""Generators that say which threads do what, and when they wait for each other."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from harness.generators.choice import any_of
from harness.generators.core import (
    CLIENTS_MASK,
    DONE,
    EMPTY,
    NEMESIS_MASK,
    PENDING,
    Context,
    Generator,
    Pending,
    Source,
    Step,
    chain,
    lift,
)
from harness.history.ops import Op


class OnThreads(msgspec.Struct, frozen=True):
    """`inner` sees only the threads of a mask, and their events."""

    inner: Generator
    mask: int

    def step(self, context: Context) -> Step:
        if not context.free & self.mask:
            return PENDING, self
        op, after = self.inner.step(context.restrict(self.mask))
        if op is None or after is None:
            return op, None
        return op, self if after is self.inner else OnThreads(after, self.mask)

    def update(self, context: Context, event: Op) -> Generator:
        if not self.mask >> context.bit_of(event.process) & 1:
            return self
        inner = self.inner.update(context.restrict(self.mask), event)
        return self if inner is self.inner else OnThreads(inner, self.mask)


class Synchronize(msgspec.Struct, frozen=True):
    """Begins when every thread in scope is free; from then on it is what it holds."""

    inner: Generator

    def step(self, context: Context) -> Step:
        return self.inner.step(context) if context.free == context.threads else (PENDING, self)

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else Synchronize(inner)


class EachProcess(msgspec.Struct, frozen=True):
    """A copy of `origin` for each process; `copies[bit]` is its (process, generator or None when exhausted)."""

    origin: Generator
    copies: tuple[tuple[int, Generator | None] | None, ...] = ()

    def step(self, context: Context) -> Step:
        copies = list(self.copies) or [None] * (len(context.processes) + 1)
        pending: Pending | None = None
        for bit in _bits(context.free, context.turn):
            process = context.process_at(bit)
            known = copies[bit]
            copy = known[1] if known is not None and known[0] == process else self.origin
            if copy is None:
                continue
            op, after = copy.step(context.restrict(1 << bit))
            copies[bit] = (process, after)
            if isinstance(op, Pending):
                pending = op.before(pending.until_ns if pending else None)
            elif op is not None:
                return op, EachProcess(self.origin, tuple(copies))
        if pending is None and context.free == context.threads:
            return DONE
        following = tuple(copies)
        return pending or PENDING, self if following == self.copies else EachProcess(self.origin, following)

    def update(self, context: Context, event: Op) -> Generator:
        bit = context.bit_of(event.process)
        known = self.copies[bit] if self.copies else None
        if known is None or known[1] is None:
            return self
        inner = known[1].update(context.restrict(1 << bit), event)
        if inner is known[1]:
            return self
        return EachProcess(self.origin, (*self.copies[:bit], (event.process, inner), *self.copies[bit + 1 :]))


def _bits(mask: int, turn: int) -> Iterable[int]:
    """The bits of a mask, from `turn` on and round."""
    for part in (mask >> turn << turn, mask & ((1 << turn) - 1)):
        rest = part
        while rest:
            yield (rest & -rest).bit_length() - 1
            rest &= rest - 1


def mask_of(threads: Iterable[int]) -> int:
    """The mask of client threads, numbered from 0."""
    mask = 0
    for thread in threads:
        mask |= 1 << (thread + 1)
    return mask


def on_threads(threads: Iterable[int], source: Source) -> Generator:
    """The source on these client threads (numbered from 0) only."""
    return OnThreads(lift(source), mask_of(threads))


def clients(source: Source) -> Generator:
    """The source on the clients' threads only."""
    return OnThreads(lift(source), CLIENTS_MASK)


def nemesis(source: Source) -> Generator:
    """The source on the nemesis' thread only."""
    return OnThreads(lift(source), NEMESIS_MASK)


def reserve(*parts: tuple[int, Source], default: Source = None) -> Generator:
    """The first n client threads for the first (n, source), the next ones for the next; the rest for the default."""
    generators: list[Generator] = []
    first = 0
    for count, source in parts:
        generators.append(on_threads(range(first, first + count), source))
        first += count
    if default is not None:
        generators.append(OnThreads(lift(default), CLIENTS_MASK & ~mask_of(range(first))))
    return any_of(*generators) if generators else EMPTY


def synchronize(source: Source) -> Generator:
    """The source, begun only when every thread in scope is free."""
    return Synchronize(lift(source))


def phases(*sources: Source) -> Generator:
    """Each source in turn; all threads finish with one before the next begins."""
    return chain(*(synchronize(source) for source in sources))


def then(first: Source, second: Source) -> Generator:
    """The first, and when all threads have finished with it the second."""
    return chain(first, synchronize(second))


def each_process(source: Source) -> Generator:
    """A copy of the source for each process (a process that ends `info` is replaced by a new one, with a new copy)."""
    return EachProcess(lift(source))
