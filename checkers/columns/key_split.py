"""Operations of keys that many tasks judge together, on their way between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from checkers.columns.codes import Ints
from checkers.findings import Finding, Findings


class Rows(NamedTuple):
    """Operations on registers: `key` is the register's place among those that are split, the rest as in `Flat`."""

    key: Ints
    invoke: Ints
    complete: Ints
    kind: Ints
    value: Ints
    expected: Ints

    def chosen(self, places: Ints) -> Rows:
        """Some rows, in the given order."""
        return Rows(*(column[places] for column in self))


class Zones(NamedTuple):
    """Rows that stand for blocks, all of a block with its first value: where they are compared, and 1 for those that
    an earlier range hands on."""

    rows: Rows
    range: Ints
    handed: Ints


class SplitFindings(msgspec.Struct, frozen=True):
    """What was found in registers that are split: `crossing` are conflicts of zones that were handed on, by the zone's
    register and value. `doubts` say why nothing confirms the history."""

    findings: Findings = Findings()
    crossing: dict[tuple[int, int], Finding] = {}
    doubts: frozenset[str] = frozenset()


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one after the other."""
    if not parts:
        return Rows(*(np.empty(0, np.int64),) * len(Rows._fields))
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
