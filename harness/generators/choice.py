"""Generators that choose among others: at random, in turn, or whoever is ready."""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from harness.generators.core import DONE, EMPTY, Chance, Context, Generator, Pending, Source, Step, lift
from harness.history.ops import Op


class Mix(msgspec.Struct, frozen=True):
    """A random one of `parts`, by weight; `index` is the part that was drawn for the next operation."""

    parts: tuple[Generator, ...]
    cumulative: tuple[float, ...]
    state: int
    index: int

    def step(self, context: Context) -> Step:
        mix: Mix | None = self
        while mix is not None:
            part = mix.parts[mix.index]
            op, after = part.step(context)
            if op is None:
                mix = mix._without_current()
            elif isinstance(op, Pending):
                return op, mix if after is part else mix._with(after)
            elif after is None:
                return op, mix._without_current()
            else:
                return op, mix._with(after)._redrawn()
        return DONE

    def _with(self, after: Generator | None) -> Mix:
        index = self.index
        assert after is not None
        return Mix((*self.parts[:index], after, *self.parts[index + 1 :]), self.cumulative, self.state, index)

    def _redrawn(self) -> Mix:
        chance = Chance(self.state)
        point = chance.uniform() * self.cumulative[-1]
        return Mix(self.parts, self.cumulative, chance.state, bisect(self.cumulative, point))

    def _without_current(self) -> Mix | None:
        weights = [b - a for a, b in zip((0.0, *self.cumulative), self.cumulative, strict=False)]
        del weights[self.index]
        if not weights:
            return None
        parts = self.parts[: self.index] + self.parts[self.index + 1 :]
        return Mix(parts, tuple(accumulate(weights)), self.state, 0)._redrawn()

    def update(self, context: Context, event: Op) -> Generator:
        parts = update_all(self.parts, context, event)
        return self if parts is self.parts else replace(self, parts=parts)


class AnyOf(msgspec.Struct, frozen=True):
    """Whichever part is ready; `turn` is the part that is asked first, the one after the last that was ready."""

    parts: tuple[Generator, ...]
    turn: int = 0

    def step(self, context: Context) -> Step:
        parts: list[Generator | None] = list(self.parts)
        pending: Pending | None = None
        count, same = len(parts), True
        for offset in range(count):
            index = (self.turn + offset) % count
            part = self.parts[index]
            op, after = part.step(context)
            if after is not part:
                parts[index], same = after, False
            if isinstance(op, Pending):
                pending = op.before(pending.until_ns if pending else None)
            elif op is not None:
                return op, _any_of_rest(parts, index + 1)
        if pending is None:
            return DONE
        return pending, self if same else _any_of_rest(parts, self.turn)

    def update(self, context: Context, event: Op) -> Generator:
        parts = update_all(self.parts, context, event)
        return self if parts is self.parts else AnyOf(parts, self.turn)


def _any_of_rest(parts: list[Generator | None], turn: int) -> Generator | None:
    """Drop the exhausted parts, keeping whose turn it is."""
    alive = tuple(part for part in parts if part is not None)
    if len(alive) < len(parts):
        turn = sum(part is not None for part in parts[:turn])
    return AnyOf(alive, turn % len(alive)) if alive else None


class FlipFlop(msgspec.Struct, frozen=True):
    """One operation of each in turn, until the one whose turn it is is exhausted."""

    inner: Generator
    other: Generator

    def step(self, context: Context) -> Step:
        op, after = self.inner.step(context)
        if op is None:
            return DONE
        if isinstance(op, Pending):
            return op, self if after is self.inner else replace(self, inner=after)
        return op, FlipFlop(self.other, after or EMPTY)

    def update(self, context: Context, event: Op) -> Generator:
        inner, other = update_all((self.inner, self.other), context, event)
        return self if inner is self.inner and other is self.other else FlipFlop(inner, other)


def update_all(parts: tuple[Generator, ...], context: Context, event: Op) -> tuple[Generator, ...]:
    """Every part updated; the same tuple when none changed."""
    updated = tuple([part.update(context, event) for part in parts])
    return parts if all(map(_same, updated, parts)) else updated


def _same(a: object, b: object) -> bool:
    return a is b


def mix(seed: int, *sources: Source) -> Generator:
    """A uniformly random one of the sources for each operation, until all are exhausted."""
    return weighted(seed, *((1.0, source) for source in sources))


def weighted(seed: int, *parts: tuple[float, Source]) -> Generator:
    """A random one of the (weight, source) pairs for each operation; weights are positive, of any sum."""
    if not parts:
        return EMPTY
    if any(weight <= 0 for weight, _ in parts):
        raise ValueError("weights must be positive")
    cumulative = tuple(accumulate(float(weight) for weight, _ in parts))
    return Mix(tuple(lift(source) for _, source in parts), cumulative, seed, 0)._redrawn()


def any_of(*sources: Source) -> Generator:
    """An operation of whichever source has one now, each in its turn; all of them see every event."""
    parts = tuple(lift(source) for source in sources)
    return AnyOf(parts) if parts else EMPTY


def flip_flop(first: Source, second: Source) -> Generator:
    """An operation of the first, then one of the second, and so on."""
    return FlipFlop(lift(first), lift(second))
