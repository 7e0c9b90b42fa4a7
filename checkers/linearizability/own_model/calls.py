"""The operations of clients as code of the user's own is handed them: plain values, no numbers for texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from checkers.columns.codes import NIL
from checkers.importers.operations import SHORT
from checkers.source import Source

_COLUMNS: Final = ("invoke_index", "complete_index", "type", "process", "f", "mops", "value")


@dataclass(frozen=True, slots=True)
class OwnCall:
    """An operation: `type` is `ok`, or `info` where nobody knows whether it took effect. `key` is the object that it is
    on, 0 where the history names none, and None of operations on several. `value` is what it asked for, or found: nil
    is None, a list a tuple, a map a mapping, a transaction a tuple of (f, key, value); what is neither a number nor one
    of these is text."""

    index: int
    process: int
    type: str
    f: str
    key: Any
    value: Any


class RawCall(NamedTuple):
    """Picklable: a call whose values are as JSON has them, and the event of its completion (None: there is none)."""

    invoke: int
    complete: int | None
    type: str
    process: int
    f: str
    key: Any
    value: Any

    @property
    def alike(self) -> bytes:
        """Equal for calls that differ in nothing but when they were."""
        return msgspec.json.encode((self.type, self.process, self.f, self.key, self.value))

    def call(self) -> OwnCall:
        """The call as code sees it; nothing in it can be changed."""
        return OwnCall(self.invoke, self.process, self.type, self.f, _frozen(self.key), _frozen(self.value))


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(part) for key, part in value.items()})
    return value


def calls_of(source: Source, failed: bool = False) -> list[RawCall]:
    """The operations of clients in order of invocation; those that failed only if asked for."""
    return [
        _call(source, row)
        for batch in source.batches(_COLUMNS)
        for row in batch.select(list(_COLUMNS)).to_pylist()
        if row["process"] >= 0 and (failed or row["type"] != "fail")
    ]


def _call(source: Source, row: Mapping[str, Any]) -> RawCall:
    known = row["type"] != "info"
    key, value = _what(source, row)
    return RawCall(
        row["invoke_index"], row["complete_index"] if known else None, row["type"], row["process"], row["f"], key, value
    )


def _what(source: Source, row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Key and value of an operation."""
    if row["value"] is not None:
        return None, _plain(msgspec.json.decode(row["value"]))
    mops = row["mops"] or []
    own = SHORT.get(row["f"], row["f"])
    if len(mops) == 1 and mops[0]["f"] == own:
        return _key(source, mops[0]), _value(source, mops[0])
    if mops and all(mop["f"] == own for mop in mops):  # what a map says of each of its keys
        return None, {str(_key(source, mop)): _value(source, mop) for mop in mops}
    return None, [[mop["f"], _key(source, mop), _value(source, mop)] for mop in mops]


def _key(source: Source, mop: Mapping[str, Any]) -> Any:
    address = [mop["partition"] or 0, mop["row"] or 0, mop["column"] or 0, mop["table"] or 0]
    shown = [_shown(source, part) for part in address]
    return shown if any(address[1:]) else shown[0]


def _value(source: Source, mop: Mapping[str, Any]) -> Any:
    if mop["values"] is not None:
        return [_shown(source, element) for element in mop["values"]]
    value = _shown(source, mop["value"])
    return value if mop["expected"] is None else [_shown(source, mop["expected"]), value]


def _shown(source: Source, number: int | None) -> Any:
    if number is None or number == NIL:
        return None
    text = source.shown(number)
    return number if text == str(number) else _plain(text)


def _plain(value: Any) -> Any:
    """Keywords as the texts that they are, wherever they stand."""
    if isinstance(value, str):
        return value.removeprefix(":")
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return {_plain(key): _plain(part) for key, part in value.items()} if isinstance(value, dict) else value
