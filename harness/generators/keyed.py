"""Generators over many keys (Jepsen's `independent`): one key after another, groups of threads, or Zipf popularity."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from harness.generators.core import DONE, PENDING, Chance, Context, Generator, Pending, Source, Step, lift
from harness.history.ops import Op

MakeForKey = Callable[[int], Source]
"""The operations of one key. Must be pure."""

_ROW = 64


class KeyedSequential(msgspec.Struct, frozen=True):
    """All threads on one key until it is exhausted, then on the next."""

    keys: Sequence[int]
    make: MakeForKey
    position: int = 0
    inner: Generator | None = None

    def step(self, context: Context) -> Step:
        position, inner = self.position, self.inner
        while position < len(self.keys):
            current = inner if inner is not None else lift(self.make(self.keys[position]))
            op, after = current.step(context)
            if op is None:
                position, inner = position + 1, None
                continue
            if after is None:
                return op, KeyedSequential(self.keys, self.make, position + 1)
            return op, self if after is self.inner else KeyedSequential(self.keys, self.make, position, after)
        return DONE

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner and self.inner.update(context, event)
        return self if inner is self.inner else replace(self, inner=inner)


class KeyedConcurrent(msgspec.Struct, frozen=True):
    """Groups of `width` threads, each on a key of its own; a group that has exhausted its key takes the next one."""

    keys: Sequence[int]
    make: MakeForKey
    width: int
    position: int = 0
    groups: tuple[Generator | None, ...] = ()

    def step(self, context: Context) -> Step:
        count = -(-len(context.processes) // self.width)
        groups = list(self.groups) or [None] * count
        position = self.position
        pending: Pending | None = None
        first = max(0, context.turn - 1) // self.width
        for offset in range(count):
            index = (first + offset) % count
            scope = context.restrict(self._mask(index))
            if not scope.free:
                pending = pending or PENDING
                continue
            op, groups[index], position = self._step_group(scope, groups[index], position)
            if isinstance(op, Pending):
                pending = op.before(pending.until_ns if pending else None)
            elif op is not None:
                return op, replace(self, position=position, groups=tuple(groups))
        if pending is None or (position >= len(self.keys) and not any(groups)):
            return DONE
        return pending, replace(self, position=position, groups=tuple(groups))

    def _mask(self, index: int) -> int:
        return ((1 << self.width) - 1) << (index * self.width + 1)

    def _step_group(
        self, scope: Context, group: Generator | None, position: int
    ) -> tuple[Op | Pending | None, Generator | None, int]:
        """A group's next operation, with fresh keys as the old ones are exhausted."""
        while True:
            if group is None:
                if position >= len(self.keys):
                    return None, None, position
                group = lift(self.make(self.keys[position]))
                position += 1
            op, group = group.step(scope)
            if op is not None:
                return op, group, position

    def update(self, context: Context, event: Op) -> Generator:
        bit = context.bit_of(event.process)
        index = (bit - 1) // self.width
        group = self.groups[index] if bit and self.groups else None
        if group is None:
            return self
        inner = group.update(context.restrict(self._mask(index)), event)
        if inner is group:
            return self
        return replace(self, groups=(*self.groups[:index], inner, *self.groups[index + 1 :]))


class Slots(msgspec.Struct, frozen=True):
    """A persistent vector of generators: a change copies one row and the list of rows, not everything."""

    rows: tuple[tuple[Generator | None, ...], ...]

    @staticmethod
    def of_size(size: int) -> Slots:
        row: tuple[Generator | None, ...] = (None,) * _ROW
        return Slots((row,) * -(-size // _ROW))

    def get(self, index: int) -> Generator | None:
        return self.rows[index // _ROW][index % _ROW]

    def put(self, index: int, generator: Generator | None) -> Slots:
        at, column = divmod(index, _ROW)
        row = self.rows[at]
        row = (*row[:column], generator, *row[column + 1 :])
        return Slots((*self.rows[:at], row, *self.rows[at + 1 :]))


class KeyedPopular(msgspec.Struct, frozen=True):
    """Every operation on a key drawn by popularity; `owners[bit]` is the key's place that a thread works on."""

    keys: Sequence[int]
    make: MakeForKey
    cumulative: tuple[float, ...]
    state: int
    slots: Slots
    owners: tuple[int, ...] = ()

    def step(self, context: Context) -> Step:
        if not context.free:
            return PENDING, self
        chance = Chance(self.state)
        cumulative, slots = self.cumulative, self.slots
        while cumulative[-1] > 0:
            place = bisect(cumulative, chance.uniform() * cumulative[-1])
            held = slots.get(place)
            inner = held if held is not None else lift(self.make(self.keys[place]))
            op, after = inner.step(context)
            if op is None or after is None:
                cumulative = _without(cumulative, place)
            if op is None:
                continue
            if after is not held:
                slots = slots.put(place, after)
            owners = self.owners if isinstance(op, Pending) else self._owned(context, op, place)
            return op, KeyedPopular(self.keys, self.make, cumulative, chance.state, slots, owners)
        return DONE

    def _owned(self, context: Context, op: Op, place: int) -> tuple[int, ...]:
        owners = self.owners or (-1,) * (len(context.processes) + 1)
        bit = context.bit_of(op.process)
        return (*owners[:bit], place, *owners[bit + 1 :])

    def update(self, context: Context, event: Op) -> Generator:
        place = self.owners[context.bit_of(event.process)] if self.owners else -1
        held = self.slots.get(place) if place >= 0 else None
        if held is None:
            return self
        inner = held.update(context, event)
        return self if inner is held else replace(self, slots=self.slots.put(place, inner))


def _without(cumulative: tuple[float, ...], place: int) -> tuple[float, ...]:
    """The cumulative weights with one of them set to zero."""
    weights = [b - a for a, b in zip((0.0, *cumulative), cumulative, strict=False)]
    weights[place] = 0.0
    return tuple(accumulate(weights)) if any(weights) else (0.0,)


def keyed_sequential(keys: Sequence[int], make: MakeForKey) -> Generator:
    """`make(key)` for one key after the other, on all threads."""
    return KeyedSequential(keys, make)


def keyed_concurrent(width: int, keys: Sequence[int], make: MakeForKey) -> Generator:
    """`make(key)` on groups of `width` client threads, each group on its own key at any time."""
    if width <= 0:
        raise ValueError("a group needs at least one thread")
    return KeyedConcurrent(keys, make, width)


def keyed_zipf(seed: int, keys: Sequence[int], exponent: float, make: MakeForKey) -> Generator:
    """`make(key)` with the key drawn for every operation: the i-th key has weight 1 / i ** exponent (0 is uniform)."""
    if not keys:
        return lift(None)
    cumulative = tuple(accumulate((rank + 1) ** -exponent for rank in range(len(keys))))
    return KeyedPopular(keys, make, cumulative, seed, Slots.of_size(len(keys)))
