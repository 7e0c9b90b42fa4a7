"""Operations of evidence as people know them: foreign keys and values by the text that the history has for them, and
without what would fill pages."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, Final

import msgspec

from checkers.columns.codes import NIL
from checkers.explain.speaker import key_in
from checkers.source import Source
from checkers.verdict import Anomaly, Verdict
from harness.history.columns import FOREIGN_BASE

_NUMBERS: Final = ("partition", "row", "column", "value", "expected")

_OF_MANY_ROWS: Final = ("page", "delete")
"""Micro-operations that state bounds of rows, which may be what the anomaly is about, whichever row that is."""

_MOST_SHOWN: Final = 64
"""Evidence shows at most so many micro-operations of an operation, those that the anomaly is about before others, and
elements of a list, its first and last ones."""


def readable(verdict: Verdict, source: Source) -> Verdict:
    """The same verdict, its operations without interned numbers and shortened: `left_out` of an operation counts the
    micro-operations besides those shown, `left_out` of a micro-operation the elements in the middle."""
    if not verdict.anomalies:
        return verdict
    anomalies = {name: tuple(_anomaly(found, source) for found in all) for name, all in verdict.anomalies.items()}
    return msgspec.structs.replace(verdict, anomalies=anomalies)


def _anomaly(anomaly: Anomaly, source: Source) -> Anomaly:
    keys = [anomaly.key, *(step[name] for step in anomaly.steps for name in ("key", "seen_key") if name in step)]
    return msgspec.structs.replace(anomaly, ops=tuple(_operation(op, keys, source) for op in anomaly.ops))


def _operation(op: dict[str, Any], keys: Sequence[Any], source: Source) -> dict[str, Any]:
    """The operation itself where it is readable as it is: evidence is not held twice."""
    mops = op.get("mops") or []
    if len(mops) > _MOST_SHOWN:
        told = [_mop(mop, source) for mop in _telling(mops, keys, source)]
        return op | {"mops": told, "left_out": len(mops) - _MOST_SHOWN}
    told = [_mop(mop, source) for mop in mops]
    return op if all(map(is_, told, mops)) else op | {"mops": told}


def _telling(mops: Sequence[dict[str, Any]], keys: Sequence[Any], source: Source) -> list[dict[str, Any]]:
    """As many as are shown, in their order: those of the keys and bounds before others, the first ones of each."""
    about = [mop["f"] in _OF_MANY_ROWS or source.told_key(key_in(mop)) in keys for mop in mops]
    chosen = sorted(range(len(mops)), key=lambda place: not about[place])[:_MOST_SHOWN]
    return [mops[place] for place in sorted(chosen)]


def _mop(mop: dict[str, Any], source: Source) -> dict[str, Any]:
    told: dict[str, Any] = {name: _shown(mop[name], source) for name in _NUMBERS if name in mop}
    values = kept = mop.get("values") or []
    if len(values) > _MOST_SHOWN:
        kept = [*values[: _MOST_SHOWN // 2], *values[-_MOST_SHOWN // 2 :]]
        told["left_out"] = len(values) - _MOST_SHOWN
    elements = [_shown(value, source) for value in kept]
    if kept is not values or not all(map(is_, elements, values)):
        told["values"] = elements
    return mop if all(name in mop and value is mop[name] for name, value in told.items()) else mop | told


def _shown(value: Any, source: Source) -> Any:
    if value == NIL:  # an element of a list that is nil
        return None
    return source.shown(value) if isinstance(value, int) and value < FOREIGN_BASE else value
