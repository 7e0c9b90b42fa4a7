"""Operations of evidence as people know them: foreign keys and values by the text that the history has for them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkers.columns.codes import NIL
from checkers.source import Source
from checkers.verdict import Anomaly, Verdict
from harness.columns import FOREIGN_BASE

_NUMBERS: Final = ("partition", "row", "column", "value", "expected")


def readable(verdict: Verdict, source: Source) -> Verdict:
    """The same verdict, its operations without interned numbers."""
    if not verdict.anomalies:
        return verdict
    anomalies = {name: tuple(_anomaly(found, source) for found in all) for name, all in verdict.anomalies.items()}
    return msgspec.structs.replace(verdict, anomalies=anomalies)


def _anomaly(anomaly: Anomaly, source: Source) -> Anomaly:
    return msgspec.structs.replace(anomaly, ops=tuple(_operation(op, source) for op in anomaly.ops))


def _operation(op: dict[str, Any], source: Source) -> dict[str, Any]:
    mops = op.get("mops")
    return op | {"mops": [_mop(mop, source) for mop in mops]} if mops else op


def _mop(mop: dict[str, Any], source: Source) -> dict[str, Any]:
    told = mop | {name: _shown(mop[name], source) for name in _NUMBERS if name in mop}
    values = mop.get("values")
    return told if values is None else told | {"values": [_shown(value, source) for value in values]}


def _shown(value: Any, source: Source) -> Any:
    if value == NIL:  # an element of a list that is nil
        return None
    return source.shown(value) if isinstance(value, int) and value < FOREIGN_BASE else value
