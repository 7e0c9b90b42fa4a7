"""Operations of evidence as people know them: foreign keys and values by the text that the history has for them, and
without what would fill pages."""

from __future__ import annotations

from operator import is_
from typing import Any, Final

import msgspec

from checkers.columns.codes import NIL
from checkers.source import Source
from checkers.verdict import Anomaly, Verdict
from harness.columns import FOREIGN_BASE

_NUMBERS: Final = ("partition", "row", "column", "value", "expected")

_MOST_SHOWN: Final = 64
"""Evidence shows at most so many micro-operations of an operation and elements of a list."""


def readable(verdict: Verdict, source: Source) -> Verdict:
    """The same verdict, its operations without interned numbers and shortened: `left_out` counts the micro-operations
    and elements gone."""
    if not verdict.anomalies:
        return verdict
    anomalies = {name: tuple(_anomaly(found, source) for found in all) for name, all in verdict.anomalies.items()}
    return msgspec.structs.replace(verdict, anomalies=anomalies)


def _anomaly(anomaly: Anomaly, source: Source) -> Anomaly:
    return msgspec.structs.replace(anomaly, ops=tuple(_operation(op, source) for op in anomaly.ops))


def _operation(op: dict[str, Any], source: Source) -> dict[str, Any]:
    """The operation itself where it is readable as it is: evidence is not held twice."""
    mops = op.get("mops") or []
    lengths = [len(mop.get("values") or ()) for mop in mops[:_MOST_SHOWN]]
    left_out = sum(max(0, length - _MOST_SHOWN) for length in (len(mops), *lengths))
    told = [_mop(mop, source) for mop in mops[:_MOST_SHOWN]]
    if left_out:
        return op | {"mops": told, "left_out": left_out}
    return op if all(map(is_, told, mops)) else op | {"mops": told}


def _mop(mop: dict[str, Any], source: Source) -> dict[str, Any]:
    told: dict[str, Any] = {name: _shown(mop[name], source) for name in _NUMBERS if name in mop}
    values = mop.get("values")
    if values is not None:
        elements = [_shown(value, source) for value in values[:_MOST_SHOWN]]
        told["values"] = values if len(elements) == len(values) and all(map(is_, elements, values)) else elements
    return mop if all(value is mop[name] for name, value in told.items()) else mop | told


def _shown(value: Any, source: Source) -> Any:
    if value == NIL:  # an element of a list that is nil
        return None
    return source.shown(value) if isinstance(value, int) and value < FOREIGN_BASE else value
