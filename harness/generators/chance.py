"""Randomness as a value: a 64-bit state that pure generators carry, and a small source of draws made from one.

SplitMix64 (Steele, Lea and Flood 2014): each draw is a bijective mix of a counter, so a state can be derived for any
(seed, count) at the cost of a few integer operations; `random.Random` takes microseconds to seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

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
