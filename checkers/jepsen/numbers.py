"""Integers of any size: what importers intern because 64 bits or the reserved range do not hold it, and safe sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from checkers.columns.codes import Ints
from checkers.source import Source
from harness.history.columns import FOREIGN_BASE

_SAFE: Final = 2.0**62


def large_integers(source: Source) -> dict[int, int]:
    """The interned values of a source that are integers beyond the range of plain ones, by id."""
    found: dict[int, int] = {}
    for place, text in enumerate(source.dictionary):
        digits = text.removesuffix("N")
        if digits.removeprefix("-").removeprefix("+").isdecimal() and digits.isascii():
            number = int(digits)
            if number <= FOREIGN_BASE or number >= 2**63:
                found[FOREIGN_BASE - 1 - place] = number
    return found


def is_foreign(values: Ints, dictionary_size: int) -> Any:
    """Which values stand for texts, keywords and the like."""
    return (values < FOREIGN_BASE) & (values >= FOREIGN_BASE - dictionary_size)


def exact(values: Ints, large: Mapping[int, int]) -> Any:
    """The integers that the values stand for: 64-bit ones, or an object array where they need more."""
    if not large or not len(values) or int(values.min()) >= FOREIGN_BASE:
        return values
    return np.array([large.get(value, value) for value in values.tolist()], object)


def summable(values: Any) -> Any:
    """The values in a type in which no partial sum of them can overflow."""
    if not len(values) or values.dtype == object:
        return values
    largest = max(abs(float(values.min())), abs(float(values.max())))
    return values if largest * len(values) < _SAFE else values.astype(object)


def json_able(number: int) -> int | str:
    """An integer as JSON holds it: as text beyond 64 bits."""
    return int(number) if -(2**63) <= number < 2**63 else str(number)
