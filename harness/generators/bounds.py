"""Generators that bound, repeat, filter or change another's operations."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from harness.generators.core import DONE, EMPTY, Context, Generator, Pending, Source, Step, lift
from harness.history.ops import Op


class Limit(msgspec.Struct, frozen=True):
    """At most `remaining` operations."""

    inner: Generator
    remaining: int

    def step(self, context: Context) -> Step:
        if self.remaining <= 0:
            return DONE
        op, after = self.inner.step(context)
        if op is None or after is None:
            return op, None
        if isinstance(op, Pending):
            return op, self if after is self.inner else Limit(after, self.remaining)
        return op, Limit(after, self.remaining - 1) if self.remaining > 1 else None

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else Limit(inner, self.remaining)


class Repeat(msgspec.Struct, frozen=True):
    """The first operation of `origin`, again and again, each time from the same state."""

    origin: Generator
    inner: Generator
    remaining: int | None

    def step(self, context: Context) -> Step:
        if self.remaining == 0:
            return DONE
        op, after = self.inner.step(context)
        if op is None:
            return DONE
        if isinstance(op, Pending):
            return op, self if after is self.inner else replace(self, inner=after)
        if self.remaining is None:
            return op, self if self.inner is self.origin else Repeat(self.origin, self.origin, None)
        return op, Repeat(self.origin, self.origin, self.remaining - 1) if self.remaining > 1 else None

    def update(self, context: Context, event: Op) -> Generator:
        origin = self.origin.update(context, event)
        inner = origin if self.inner is self.origin else self.inner.update(context, event)
        return self if origin is self.origin and inner is self.inner else Repeat(origin, inner, self.remaining)


class CycleForever(msgspec.Struct, frozen=True):
    """`origin` run to its end, then from its start again."""

    origin: Generator
    inner: Generator
    remaining: int | None

    def step(self, context: Context) -> Step:
        if self.remaining == 0:
            return DONE
        op, after = self.inner.step(context)
        if op is None:
            return DONE if self.inner is self.origin else self._next_round().step(context)
        if after is None:
            following = self._next_round()
            return op, None if following.remaining == 0 else following
        return op, self if after is self.inner else replace(self, inner=after)

    def _next_round(self) -> CycleForever:
        remaining = None if self.remaining is None else self.remaining - 1
        return CycleForever(self.origin, self.origin, remaining)

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


class Filter(msgspec.Struct, frozen=True):
    """Only the operations that pass."""

    inner: Generator
    passes: Callable[[Op], bool]

    def step(self, context: Context) -> Step:
        inner = self.inner
        while True:
            op, after = inner.step(context)
            if op is None or after is None:
                return (op, None) if op is not None and self.passes(_op(op)) else DONE
            if isinstance(op, Pending) or self.passes(op):
                return op, self if after is self.inner else Filter(after, self.passes)
            inner = after

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else Filter(inner, self.passes)


class Map(msgspec.Struct, frozen=True):
    """Every operation changed by a function."""

    inner: Generator
    change: Callable[[Op], Op]

    def step(self, context: Context) -> Step:
        op, after = self.inner.step(context)
        if op is None:
            return DONE
        if not isinstance(op, Pending):
            op = self.change(op)
        if after is None:
            return op, None
        return op, self if after is self.inner else Map(after, self.change)

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else Map(inner, self.change)


def _succeeded(event: Op) -> bool:
    return event.type == "ok"


class Until(msgspec.Struct, frozen=True):
    """Until one of its own operations is `met` as it completes; `active` are the processes that carry them out."""

    inner: Generator
    met: Callable[[Op], bool]
    active: frozenset[int] = frozenset()
    done: bool = False

    def step(self, context: Context) -> Step:
        if self.done:
            return DONE
        op, after = self.inner.step(context)
        if op is None:
            return DONE
        if isinstance(op, Pending):
            return op, self if after is self.inner else replace(self, inner=after)
        return op, Until(after or EMPTY, self.met, self.active | {op.process})

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        if event.type != "invoke" and event.process in self.active:
            return Until(inner, self.met, self.active - {event.process}, self.done or self.met(event))
        return self if inner is self.inner else replace(self, inner=inner)


def _op(op: Op | Pending) -> Op:
    assert isinstance(op, Op)
    return op


def limit(count: int, source: Source) -> Generator:
    """At most `count` operations of the source."""
    return Limit(lift(source), count)


def repeat(source: Source, times: int | None = None) -> Generator:
    """The source's next operation, over and over (or `times` times): the source itself never advances."""
    generator = lift(source)
    return Repeat(generator, generator, times)


def cycle(source: Source, times: int | None = None) -> Generator:
    """The whole source, over and over (or `times` times), each round from its start."""
    generator = lift(source)
    return CycleForever(generator, generator, times)


def filter_ops(passes: Callable[[Op], bool], source: Source) -> Generator:
    """Only the source's operations for which `passes` is true."""
    return Filter(lift(source), passes)


def map_ops(change: Callable[[Op], Op], source: Source) -> Generator:
    """The source's operations, each changed by a pure function (which leaves process, type and time alone)."""
    return Map(lift(source), change)


def until_ok(source: Source) -> Generator:
    """The source's operations until one of them is known to have succeeded."""
    return until(_succeeded, source)


def until(met: Callable[[Op], bool], source: Source) -> Generator:
    """The source's operations until one of them completes so that it is `met`."""
    return Until(lift(source), met)
