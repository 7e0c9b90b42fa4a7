"""Generators that depend on time: rates, pauses, deadlines and quiet periods."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from harness.generators.core import DONE, EMPTY, Chance, Context, Generator, Pending, Source, Step, lift, nanos
from harness.history.ops import Op

_UNSET_NS = -1
_CATCH_UP_NS = 50_000_000
"""A late operation makes later ones come sooner by at most so much, so that coarse timers do not lower the rate and a
long stall is not followed by a burst."""


class TimeLimit(msgspec.Struct, frozen=True):
    """Nothing from `deadline_ns` on, which is set when it is first asked."""

    inner: Generator
    span_ns: int
    deadline_ns: int = _UNSET_NS

    def step(self, context: Context) -> Step:
        deadline_ns = self.deadline_ns
        if deadline_ns == _UNSET_NS:
            deadline_ns = context.time_ns + self.span_ns
        if context.time_ns >= deadline_ns:
            return DONE
        op, after = self.inner.step(context)
        if op is None or after is None:
            return op, None
        if isinstance(op, Pending):
            op = op.before(deadline_ns)
        if after is self.inner and deadline_ns == self.deadline_ns:
            return op, self
        return op, TimeLimit(after, self.span_ns, deadline_ns)

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else TimeLimit(inner, self.span_ns, self.deadline_ns)


class Stagger(msgspec.Struct, frozen=True):
    """Operations at random times with a mean gap, over all threads together."""

    inner: Generator
    mean_gap_ns: int
    state: int
    next_ns: int = _UNSET_NS

    def step(self, context: Context) -> Step:
        now_ns = context.time_ns
        next_ns = self.next_ns if self.next_ns != _UNSET_NS else now_ns
        if next_ns > now_ns:
            return Pending(next_ns), self
        op, after = self.inner.step(context)
        if op is None or after is None:
            return op, None
        if isinstance(op, Pending):
            return op, self if after is self.inner else replace(self, inner=after)
        chance = Chance(self.state)
        gap_ns = int(chance.uniform() * 2 * self.mean_gap_ns)
        next_ns = max(next_ns, now_ns - _CATCH_UP_NS) + gap_ns
        return op, Stagger(after, self.mean_gap_ns, chance.state, next_ns)

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else Stagger(inner, self.mean_gap_ns, self.state, self.next_ns)


class Delay(msgspec.Struct, frozen=True):
    """Operations at least a fixed gap apart."""

    inner: Generator
    gap_ns: int
    next_ns: int = _UNSET_NS

    def step(self, context: Context) -> Step:
        if self.next_ns > context.time_ns:
            return Pending(self.next_ns), self
        op, after = self.inner.step(context)
        if op is None or after is None:
            return op, None
        if isinstance(op, Pending):
            return op, self if after is self.inner else Delay(after, self.gap_ns, self.next_ns)
        return op, Delay(after, self.gap_ns, context.time_ns + self.gap_ns)

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        return self if inner is self.inner else Delay(inner, self.gap_ns, self.next_ns)


class Sleep(msgspec.Struct, frozen=True):
    """Nothing until a time from when it is first asked, then exhausted."""

    span_ns: int
    until_ns: int = _UNSET_NS

    def step(self, context: Context) -> Step:
        if self.until_ns == _UNSET_NS:
            until_ns = context.time_ns + self.span_ns
            return (Pending(until_ns), Sleep(self.span_ns, until_ns)) if self.span_ns > 0 else DONE
        return DONE if context.time_ns >= self.until_ns else (Pending(self.until_ns), self)

    def update(self, context: Context, event: Op) -> Generator:
        return self


class CycleTimes(msgspec.Struct, frozen=True):
    """Each part in its own period of a repeating schedule; a part keeps its state between its periods.

    `ends_ns[i]` is where part i's period ends, from the start of a round; a part that is None is exhausted.
    """

    parts: tuple[Generator | None, ...]
    quiet: tuple[bool, ...]
    ends_ns: tuple[int, ...]
    start_ns: int = _UNSET_NS

    def step(self, context: Context) -> Step:
        if all(part is None or quiet for part, quiet in zip(self.parts, self.quiet, strict=True)):
            return DONE
        now_ns = context.time_ns
        start_ns = now_ns if self.start_ns == _UNSET_NS else self.start_ns
        index, end_ns = self._period(now_ns, start_ns)
        part = self.parts[index]
        op, after = DONE if part is None or self.quiet[index] else part.step(context)
        if self.quiet[index]:
            after = part
        parts = (*self.parts[:index], after, *self.parts[index + 1 :])
        following = CycleTimes(parts, self.quiet, self.ends_ns, start_ns)
        if op is None:
            return Pending(end_ns), following
        return (op.before(end_ns) if isinstance(op, Pending) else op), following

    def _period(self, now_ns: int, start_ns: int) -> tuple[int, int]:
        """The part whose period it is, and when the period ends."""
        rounds, within_ns = divmod(now_ns - start_ns, self.ends_ns[-1])
        index = next(i for i, end_ns in enumerate(self.ends_ns) if within_ns < end_ns)
        return index, start_ns + rounds * self.ends_ns[-1] + self.ends_ns[index]

    def update(self, context: Context, event: Op) -> Generator:
        parts = tuple([part and part.update(context, event) for part in self.parts])
        if all(new is old for new, old in zip(parts, self.parts, strict=True)):
            return self
        return replace(self, parts=parts)


def time_limit(seconds: float, source: Source) -> Generator:
    """The source for so long, from when it is first asked; what is in flight at the end still completes."""
    return TimeLimit(lift(source), nanos(seconds))


def stagger(seed: int, rate_hz: float, source: Source) -> Generator:
    """The source at a total rate (operations a second over all threads), with gaps uniform in [0, 2 / rate]."""
    if rate_hz <= 0:
        raise ValueError("a rate must be positive")
    return Stagger(lift(source), nanos(1 / rate_hz), seed)


def delay(seconds: float, source: Source) -> Generator:
    """The source's operations, each at least so long after the one before."""
    return Delay(lift(source), nanos(seconds))


def sleep(seconds: float) -> Generator:
    """No operation for so long, for use in a chain."""
    return Sleep(nanos(seconds))


def cycle_times(*periods: tuple[float, Source]) -> Generator:
    """Each (seconds, source) in turn, round and round; None is a quiet period. Ends with the last source."""
    if not periods:
        return EMPTY
    if any(seconds <= 0 for seconds, _ in periods):
        raise ValueError("periods must be positive")
    ends_ns: list[int] = []
    for seconds, _ in periods:
        ends_ns.append((ends_ns[-1] if ends_ns else 0) + nanos(seconds))
    parts = tuple(lift(source) for _, source in periods)
    return CycleTimes(parts, tuple(source is None for _, source in periods), tuple(ends_ns))
