"""Tiny transactional histories, each of which shows one anomaly: injected into made ones, or worked examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from harness.history.columns import SCHEMA
from harness.history.parts import schema


class InjectedTxn(NamedTuple):
    """One transaction: a session, `type`, event places of invocation and completion, and micro-operations as words:
    `a:x:1` appends 1 to x, `w:x:1` writes it, `r:x:1,2` reads a list, `r:x:1` a value and `r:x:` nothing."""

    session: int
    type: str
    invoke: int
    complete: int
    mops: str


def _overlapping(*mops: str, types: tuple[str, ...] = ()) -> tuple[InjectedTxn, ...]:
    """Transactions of different sessions, all open at once."""
    count = len(mops)
    kinds = (*types, *("ok",) * count)
    return tuple(InjectedTxn(i, kinds[i], i, count + i, mop) for i, mop in enumerate(mops))


def _successive(*mops: str, sessions: tuple[int, ...] = ()) -> tuple[InjectedTxn, ...]:
    """One after the other, of different sessions unless told."""
    who = sessions or tuple(range(len(mops)))
    return tuple(InjectedTxn(who[i], "ok", 2 * i, 2 * i + 1, mop) for i, mop in enumerate(mops))


_APPEND: Final[Mapping[str, tuple[InjectedTxn, ...]]] = {
    "G0": _overlapping("a:x:1 a:y:1", "a:x:2 a:y:2", "r:x:1,2 r:y:2,1"),
    "G0-realtime": _successive("a:x:1", "a:x:2", "r:x:2,1"),
    "G1a": _overlapping("a:x:1", "r:x:1", types=("fail",)),
    "G1b": _overlapping("a:x:1 a:x:2", "r:x:1", "r:x:1,2"),
    "G1c": _overlapping("a:x:1 r:y:1", "a:y:1 r:x:1"),
    "G1c-realtime": _successive("r:x:1", "a:x:1"),
    "G-single-item": _overlapping("a:x:1 a:y:1", "r:x: r:y:1", "r:x:1 r:y:1"),
    "G-single-item-realtime": _successive("a:x:1", "r:x:", "r:x:1"),
    "G-nonadjacent-item": _overlapping("a:x:1", "r:x: r:y:1", "a:y:1", "r:y: r:x:1"),
    "G2-item": _overlapping("r:x: a:y:1", "r:y: a:x:1", "r:x:1 r:y:1"),
    "internal": _overlapping("a:x:1 r:x:"),
    "future-read": _overlapping("r:x:1 a:x:1"),
    "dirty-update": _overlapping("a:x:1", "a:x:2", "r:x:1,2", types=("fail",)),
    "lost-update": _overlapping("r:x: a:x:1", "r:x: a:x:2", "r:x:1,2"),
    "incompatible-order": _overlapping("a:x:1 a:x:2", "r:x:1,2", "r:x:2"),
    "duplicate-elements": _overlapping("a:x:1", "r:x:1,1"),
    "garbage-read": _overlapping("r:x:9"),
}

_REGISTER: Final[Mapping[str, tuple[InjectedTxn, ...]]] = {
    "G1a": _overlapping("w:x:1", "r:x:1", types=("fail",)),
    "G1b": _overlapping("w:x:1 w:x:2", "r:x:1"),
    "G1c": _overlapping("w:x:1 r:y:1", "w:y:1 r:x:1"),
    "G-single-item": _overlapping("w:x:1 w:y:1", "r:x: r:y:1"),
    "G-single-item-realtime": _successive("w:x:1", "r:x:"),
    "G-nonadjacent-item": _overlapping("w:x:1", "r:x: r:y:1", "w:y:1", "r:y: r:x:1"),
    "G2-item": _overlapping("r:x: w:y:1", "r:y: w:x:1"),
    "internal": _overlapping("w:x:1 r:x:2", "w:x:2"),
    "future-read": _overlapping("r:x:1 w:x:1"),
    "lost-update": _overlapping("w:x:1", "r:x:1 w:x:2", "r:x:1 w:x:3"),
    "cyclic-versions": _successive("w:x:1", "w:x:2", "r:x:1", "r:x:2", "r:x:1"),
}

INJECTED: Final[Mapping[str, Mapping[str, tuple[InjectedTxn, ...]]]] = {
    "list-append": _APPEND,
    "rw-register": _REGISTER,
}
"""By model and anomaly; more may show too. `cyclic-versions` and realtime forms need real time or linearizable keys."""

_FS: Final = {"a": "append", "w": "w", "r": "r"}


def _mop(word: str, first_key: int, lists: bool) -> dict[str, Any]:
    f, key, shown = word.split(":")
    numbers = [int(number) for number in shown.split(",") if number]
    is_list = f == "r" and lists
    mop = {"f": _FS[f], "table": 0, "partition": first_key + ord(key) - ord("x"), "row": 0, "column": 0}
    return mop | {"value": numbers[0] if numbers and not is_list else None, "values": numbers if is_list else None}


def injected_rows(
    template: tuple[InjectedTxn, ...], op: int, event: int, first_key: int, first_process: int, tick_ns: int
) -> pa.RecordBatch:
    """The rows of an injected anomaly, by invocation: ops from `op`, events from `event`, keys from `first_key`."""
    lists = not any(word.startswith("w:") for txn in template for word in txn.mops.split())
    rows = []
    for i, txn in enumerate(sorted(template, key=lambda txn: txn.invoke)):
        begin, end = event + txn.invoke, event + txn.complete
        mops = [_mop(word, first_key, lists) for word in txn.mops.split()]
        row = {"op": op + i, "invoke_index": begin, "complete_index": end, "type": txn.type, "f": "txn", "mops": mops}
        times = {"invoke_time": begin * tick_ns, "complete_time": end * tick_ns}
        rows.append(row | times | {"process": first_process + txn.session})
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def history_of(template: tuple[InjectedTxn, ...]) -> pa.Table:
    """An injected anomaly as a history of its own."""
    return pa.Table.from_batches([injected_rows(template, 0, 0, 0, 0, 1_000_000)])
