"""What a generator is: a pure value that, asked in a context, says what to do now, and what it is afterwards.

After Jepsen's `jepsen.generator`, with two simplifications: an operation always means *now* (what has to wait answers
`Pending`, with the time from which asking again makes sense), and sets of threads are bit masks.

Randomness is a value too: a 64-bit state that generators carry. By SplitMix64 (Steele, Lea and Flood 2014) each draw is
a bijective mix of a counter, so a state can be derived for any (seed, count) at the cost of a few integer operations;
`random.Random` takes microseconds to seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from harness.history.ops import NEMESIS_PROCESS, Mop, Op

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def scramble(value: int) -> int:
    """A 64-bit value that looks unrelated to its argument; the same every time."""
    z = (value + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def child(seed: int, number: int) -> int:
    """The seed of the `number`-th child of `seed`."""
    return scramble(seed ^ scramble(number))


class Chance:
    """A stream of draws from a 64-bit state; two with equal states draw the same."""

    __slots__ = ("state",)

    def __init__(self, state: int) -> None:
        self.state = state & _MASK

    def bits(self) -> int:
        """A 64-bit integer."""
        drawn = scramble(self.state)
        self.state = (self.state + _GAMMA) & _MASK
        return drawn

    def uniform(self) -> float:
        """A float in [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        """An integer in [0, bound); `bound` must be positive."""
        return self.bits() * bound >> 64

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, which must not be empty."""
        return options[self.below(len(options))]


NANOS_PER_SECOND = 1_000_000_000

NEMESIS_MASK = 1
"""Bit 0 stands for the nemesis' thread, bit t + 1 for client thread t."""

CLIENTS_MASK = ~NEMESIS_MASK

UNASSIGNED = -(2**31)
"""Process id of an operation that no context has filled in yet."""


class Pending(msgspec.Struct, frozen=True, gc=False):
    """Nothing to do now. Ask again after the next event, or at `until_ns` (ns since start) if that comes first."""

    until_ns: int | None = None

    def before(self, other_ns: int | None) -> Pending:
        """The pending of whichever comes first."""
        if other_ns is None or (self.until_ns is not None and self.until_ns <= other_ns):
            return self
        return Pending(other_ns)


PENDING = Pending()


class Context(msgspec.Struct, frozen=True, gc=False):
    """What a generator may know: the time (ns since start), who is there, and who is free.

    `processes[t]` is the process id that thread t runs now; `threads` and `free` are masks of those in scope; `turn` is
    the bit from which a free thread is looked for, so that work goes round.
    """

    time_ns: int
    processes: tuple[int, ...]
    threads: int
    free: int
    turn: int = 0

    @staticmethod
    def initial(concurrency: int, nemesis: bool = False) -> Context:
        """Time 0, everyone free."""
        mask = ((1 << concurrency) - 1) << 1 | (NEMESIS_MASK if nemesis else 0)
        return Context(0, tuple(range(concurrency)), mask, mask)

    def bit_of(self, process: int) -> int:
        """The bit (not the mask) of the thread that runs a process."""
        return process % len(self.processes) + 1 if process >= 0 else 0

    def process_at(self, bit: int) -> int:
        """The process that the thread of a bit runs now."""
        return self.processes[bit - 1] if bit else NEMESIS_PROCESS

    def free_bit(self) -> int | None:
        """The bit of the next free thread in scope, going round."""
        free = self.free
        if not free:
            return None
        chosen = (free >> self.turn << self.turn) or free
        return (chosen & -chosen).bit_length() - 1

    def free_process(self) -> int | None:
        """The process of the next free thread in scope."""
        bit = self.free_bit()
        return None if bit is None else self.process_at(bit)

    def restrict(self, mask: int) -> Context:
        """This context with only these threads in scope."""
        return Context(self.time_ns, self.processes, self.threads & mask, self.free & mask, self.turn)


class Generator(Protocol):
    """A pure value: the same generator asked in the same context always answers the same."""

    def step(self, context: Context) -> Step:
        """What to do now: an invocation for a free process, Pending, or None (exhausted); and the generator after it.

        The generator after an operation is None if there will be no more; after Pending it is never None.
        """

    def update(self, context: Context, event: Op) -> Generator:
        """The generator that has seen an invocation or a completion."""


Step: TypeAlias = tuple[Op | Pending | None, Generator | None]

Source: TypeAlias = Generator | Op | Sequence["Source"] | None
"""What combinators take: a generator, one operation, a sequence of sources one after another, or nothing."""

Make: TypeAlias = Callable[[Context, Chance, int], Op | None]
"""Makes the n-th operation of a stream (counted from 0) with draws of its own; None ends the stream. Must be pure."""

DONE: Step = (None, None)


def invoke(f: str, *mops: Mop, value: object = None, mode: str | None = None) -> Op:
    """An invocation that any process may take."""
    return Op("invoke", UNASSIGNED, f, mops, value, mode=mode)


def fill(op: Op, context: Context) -> Op | None:
    """The operation for a free process at this time, or None when nobody is free."""
    process = context.free_process()
    if process is None:
        return None
    return replace(op, type="invoke", process=process, time=context.time_ns)


def nanos(seconds: float) -> int:
    return round(seconds * NANOS_PER_SECOND)


class Empty(msgspec.Struct, frozen=True):
    """Exhausted from the start."""

    def step(self, context: Context) -> Step:
        return DONE

    def update(self, context: Context, event: Op) -> Generator:
        return self


EMPTY = Empty()


class Once(msgspec.Struct, frozen=True):
    """A generator of one operation and no more."""

    op: Op

    def step(self, context: Context) -> Step:
        op = fill(self.op, context)
        return (PENDING, self) if op is None else (op, None)

    def update(self, context: Context, event: Op) -> Generator:
        return self


class Draw(msgspec.Struct, frozen=True):
    """A stream of operations made by a function."""

    make: Make
    seed: int
    count: int = 0

    def step(self, context: Context) -> Step:
        process = context.free_process()
        if process is None:
            return PENDING, self
        op = self.make(context, Chance(child(self.seed, self.count)), self.count)
        if op is None:
            return DONE
        op = replace(op, type="invoke", process=process, time=context.time_ns)
        return op, Draw(self.make, self.seed, self.count + 1)

    def update(self, context: Context, event: Op) -> Generator:
        return self


class Chain(msgspec.Struct, frozen=True):
    """One generator after another."""

    inner: Generator
    rest: tuple[Generator, ...]

    def step(self, context: Context) -> Step:
        inner, rest = self.inner, self.rest
        while True:
            op, after = inner.step(context)
            if op is not None:
                break
            if not rest:
                return DONE
            inner, rest = rest[0], rest[1:]
        if after is None:
            return op, chain(*rest) if rest else None
        return op, self if after is self.inner else Chain(after, rest)

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else Chain(inner, self.rest)


def lift(source: Source) -> Generator:
    """The generator that a source stands for."""
    if source is None:
        return EMPTY
    if isinstance(source, Op):
        return Once(source)
    if isinstance(source, (tuple, list)):
        return chain(*source)
    return source  # type: ignore[return-value]  # a Sequence of another kind is not a Source we make


def once(op: Op) -> Generator:
    """One operation, then nothing."""
    return Once(op)


def draw(seed: int, make: Make) -> Generator:
    """The stream of `make(context, chance, n)` for n = 0, 1, …, with draws that depend on seed and n only."""
    return Draw(make, seed)


def chain(*sources: Source) -> Generator:
    """Each source until it is exhausted, then the next; operations in flight are not waited for."""
    generators = tuple(lift(source) for source in sources)
    if not generators:
        return EMPTY
    return generators[0] if len(generators) == 1 else Chain(generators[0], generators[1:])
