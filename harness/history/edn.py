"""Export of a history as Jepsen EDN: one map an event, `{:index 0, :type :invoke, :process 3, :f :read, …}`.

Operations on one cell have the value `[key value]` (a tuple of `jepsen.independent`), with nil for a read not answered
and `[old new]` for a cas; operations of several micro-operations have Elle's `[[:r key value] …]`. A key is its
partition, or `[partition row column table]` where the other coordinates are not all 0. As in Jepsen, the nemesis has
the process `:nemesis` and both its events have the type `:info`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import HarnessError
from harness.ops import Mop, Op

_EXTRAS = ("error_class", "error", "node", "phase", "mode")


def write_edn(events: Iterable[Op], path: Path) -> int:
    """Write a history as EDN, one event a line, and return the number of events; the file appears whole or not."""
    unfinished = path.with_name(path.name + ".unfinished")
    count = 0
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            for event in events:
                file.write(event_edn(event) + "\n")
                count += 1
        unfinished.replace(path)
    except OSError as error:
        raise HarnessError(f"The history {path} can't be written: {error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def event_edn(event: Op) -> str:
    """One event as an EDN map."""
    nemesis = event.process < 0
    fields = {
        "index": str(event.index),
        "time": str(event.time),
        "type": ":info" if nemesis else f":{event.type}",
        "process": ":nemesis" if nemesis else str(event.process),
        "f": _keyword(event.f),
        "value": _value(event),
    }
    for name in _EXTRAS:
        extra = getattr(event, name)
        if extra is not None:
            fields[name.replace("_", "-")] = _edn(extra)
    return "{" + ", ".join(f":{name} {text}" for name, text in fields.items()) + "}"


def _value(event: Op) -> str:
    if not event.mops:
        return _edn(event.value)
    if len(event.mops) == 1 and event.txn is None:
        mop = event.mops[0]
        return f"[{_key(mop)} {_mop_value(mop)}]"
    return "[" + " ".join(f"[{_keyword(mop.f)} {_key(mop)} {_mop_value(mop)}]" for mop in event.mops) + "]"


def _key(mop: Mop) -> str:
    if not (mop.row or mop.column or mop.table):
        return str(mop.partition)
    return f"[{mop.partition} {mop.row} {mop.column} {mop.table}]"


def _mop_value(mop: Mop) -> str:
    if mop.f == "cas":
        return f"[{_edn(mop.expected)} {_edn(mop.value)}]"
    return _edn(mop.value if mop.values is None else mop.values)


def _edn(value: Any) -> str:
    """Plain data as EDN; map keys that are words become keywords."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_map_key(key)} {_edn(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(_edn(held) for held in value) + "]"
    return msgspec.json.encode(str(value)).decode()


def _map_key(key: Any) -> str:
    return _keyword(key) if isinstance(key, str) and key.replace("-", "").replace("_", "").isalnum() else _edn(key)


def _keyword(word: str) -> str:
    return f":{word}"
