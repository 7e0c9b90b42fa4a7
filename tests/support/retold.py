"""The same history told otherwise: other times, gaps between events, names of processes, sessions, keys and values.

No verdict may change by it. Each way takes the rows of a history table and gives others; which ways a model allows is
said by `ways_of`. `beside` puts a second history next to the first, on keys and by processes of its own: the verdict is
the worse of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa

from harness.history.columns import SCHEMA

Row: TypeAlias = dict[str, Any]
Way: TypeAlias = Callable[[list[Row]], list[Row]]

_FAR: Final = 2**53 + 1
"""Beyond the integers that a float tells apart."""

_HIGH: Final = 2**62
_BOUNDS: Final = ("delete", "page")
"""Micro-operations whose lists are rows of a partition, not values."""


def later(rows: list[Row]) -> list[Row]:
    """Everything happens a year later; of what states no time nothing does."""
    year_ns = 365 * 86_400 * 10**9
    return [
        row | {name: row[name] + year_ns for name in ("invoke_time", "complete_time") if row[name] is not None}
        for row in rows
        if row["clock"] != "none"
    ] or rows


def spread(rows: list[Row]) -> list[Row]:
    """Events are far apart, as if others had been left out."""
    return [
        row | {name: 1000 * row[name] + 77 for name in ("invoke_index", "complete_index") if row[name] is not None}
        for row in rows
    ]


def other_processes(rows: list[Row]) -> list[Row]:
    """Processes and sessions have other names, in another order."""
    return [
        row
        | {
            "process": 10**6 - 3 * row["process"] if row["process"] >= 0 else row["process"],
            "session": None if row["session"] is None else 2**40 - 7 * row["session"],
        }
        for row in rows
    ]


def _of_mops(rows: list[Row], change: Callable[[Row], Row]) -> list[Row]:
    return [row | {"mops": None if row["mops"] is None else [mop | change(mop) for mop in row["mops"]]} for row in rows]


def other_keys(rows: list[Row]) -> list[Row]:
    """Partitions have other numbers, in another order: negative ones, and some that a float can't tell apart."""
    return _of_mops(
        rows, lambda mop: {"partition": _FAR - mop["partition"] if mop["partition"] % 2 else -mop["partition"]}
    )


def other_values(rows: list[Row]) -> list[Row]:
    """Values have other names: close to the ends of 64 bits, and in another order."""

    def renamed(value: int | None) -> int | None:
        return value if value is None else _HIGH - value if value % 2 else -(_HIGH // 2) - value

    def change(mop: Row) -> Row:
        if mop["f"] in _BOUNDS:
            return {}
        listed = mop["values"]
        told = {"value": renamed(mop["value"]), "expected": renamed(mop["expected"])}
        return told | {"values": None if listed is None else [renamed(value) for value in listed]}

    return _of_mops(rows, change)


def beside(rows: list[Row], others: Iterable[Row]) -> list[Row]:
    """A second history that goes on at the same time, an event after each of the first, on keys of its own."""
    moved = _of_mops(
        [
            row
            | {name: 2 * row[name] + 1 for name in ("invoke_index", "complete_index") if row[name] is not None}
            | {"process": row["process"] + 10**6 if row["process"] >= 0 else row["process"]}
            | {"session": None if row["session"] is None else row["session"] + 10**6}
            for row in others
        ],
        lambda mop: {"partition": mop["partition"] + 10**6},
    )
    first = [
        row | {name: 2 * row[name] for name in ("invoke_index", "complete_index") if row[name] is not None}
        for row in rows
    ]
    return sorted([*first, *moved], key=lambda row: row["invoke_index"])


def table_of(rows: list[Row]) -> pa.Table:
    """The rows as a history table."""
    return pa.Table.from_pylist([row | {"op": place} for place, row in enumerate(rows)], SCHEMA)


ALWAYS: Final[tuple[Way, ...]] = (later, spread, other_processes)

FIXED_KEYS: Final = ("catalog", "catalog-rows")
"""Models in which the columns of a micro-operation mean something else than a cell and its value."""

FIXED_VALUES: Final = (*FIXED_KEYS, "counter", "bank", "kv-append")
"""Models that calculate with values, or read them as texts."""

ONE_OBJECT: Final = (
    *("bank", "unique-ids", "catalog", "stats", "isolation", "long-fork", "convergence", "counter", "set-full"),
    *("kv-append", "etcd-kv"),
)
"""Models of which two histories side by side are not judged each by itself, or are unknown where one is; strings have a
dictionary in each history."""


def ways_of(model: str) -> tuple[Way, ...]:
    """How a history of a model can be told otherwise."""
    keys: tuple[Way, ...] = () if model in FIXED_KEYS else (other_keys,)
    values: tuple[Way, ...] = () if model in FIXED_VALUES else (other_values,)
    return (*ALWAYS, *keys, *values)
