"""Reduction by passes, each by delta debugging (Zeller and Hildebrandt 2002), until none of them helps any more.

    def ddmin(items):                      while some pass made it smaller:
        pieces = 2                             for each pass, from coarse to fine:
        while one piece breaks alone,              parts = what the pass can leave out
              or all but one do:                   kept = ddmin(parts)
            go on with that                        candidate = that with the kept parts
        more pieces, until each is one item

What a candidate is (a history, the inputs of a run), what can be left out of it, and what *breaks* means is for others
to say. Whatever stops the search, the best candidate so far is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
C = TypeVar("C")


def ddmin(items: Sequence[T], breaks: Callable[[Sequence[T]], bool]) -> list[T]:
    """Items of which none can be left out alone, in their order, such that they break.

    `breaks` holds of all items and not of none, and is asked at most `n * n + 3 * n` times for n items; if one of them
    alone is enough whatever is with it, `2 * log2(n) + 2` times. The last items are tried to be left out first.
    """
    kept, pieces = list(items), 2
    while len(kept) > 1:
        parts = _cut(kept, pieces)
        alone = next((part for part in reversed(parts) if breaks(part)), None) if len(parts) > 1 else None
        if alone is not None:
            kept, pieces = alone, 2
            continue
        # Of two parts the complements are the parts themselves, which were tried.
        without = (_all_but(parts, place) for place in reversed(range(len(parts)))) if len(parts) > 2 else iter(())
        rest = next((rest for rest in without if breaks(rest)), None)
        if rest is not None:
            kept, pieces = rest, max(2, pieces - 1)
        elif pieces >= len(kept):
            break
        else:
            pieces = min(2 * pieces, len(kept))
    return kept


def _cut(items: list[T], pieces: int) -> list[list[T]]:
    """The items in a number of pieces, as even as can be."""
    bounds = [len(items) * place // pieces for place in range(pieces + 1)]
    return [items[begin:end] for begin, end in pairwise(bounds) if begin < end]


def _all_but(parts: list[list[T]], place: int) -> list[T]:
    return [item for number, part in enumerate(parts) if number != place for item in part]


class OutOfTime(Exception):
    """The budget is spent, or somebody asked to stop."""


@dataclass
class Trials(Generic[C]):
    """Asks of candidates whether they break, each once, by `name`; `best` is the last one that did. Raises OutOfTime at
    a question when `budget_s` seconds have passed."""

    breaks: Callable[[C], bool]
    name: Callable[[C], Hashable]
    budget_s: float
    best: C | None = None
    asked: int = 0
    _answers: dict[Hashable, bool] = field(default_factory=dict)
    _begun: float = field(default_factory=time.perf_counter)

    def __call__(self, candidate: C) -> bool:
        name = self.name(candidate)
        if name not in self._answers:
            if self.seconds >= self.budget_s:
                raise OutOfTime
            self.asked += 1
            self._answers[name] = self.breaks(candidate)
        if self._answers[name]:
            self.best = candidate
        return self._answers[name]

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._begun


Pass: TypeAlias = Callable[[C, Callable[[C], bool]], C]
"""Makes a candidate smaller as long as it breaks, in one way."""


def reduced(candidate: C, passes: Sequence[Pass[C]], trials: Trials[C]) -> C:
    """The candidate, which breaks, when no pass makes it smaller any more; raises what the trials raise."""
    before: Hashable = None
    while before != trials.name(candidate):
        before = trials.name(candidate)
        for each in passes:
            candidate = each(candidate, trials)
    return candidate
