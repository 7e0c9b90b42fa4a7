"""Operations in words: how verdicts name what happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from checkers.findings import PRESENCE, Key
from checkers.source import AGAINST_ORDER, KEY_COLUMNS, NO_CLOCK, SESSIONS_CLOCK, Source, in_seconds
from harness.errors import shortened


def key_in(mop: Mapping[str, Any]) -> Key:
    """What a micro-operation of a history row is about."""
    return Key.of(mop[name] or 0 for name in KEY_COLUMNS)


def about_key(row: dict[str, Any], key: Key) -> dict[str, Any]:
    """An operation on several objects with only what it did to this one."""
    mine = [mop for mop in row["mops"] if key_in(mop) == key]
    return {**row, "mops": mine} if mine and len(row["mops"]) > 1 else row


Narrow: TypeAlias = Callable[[dict[str, Any], Key], dict[str, Any]]
"""A history row as it is told of one object."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Names operations of one source; `rows` are history rows by invocation index."""

    source: Source
    rows: dict[int, dict[str, Any]]

    def when(self, index: int, edge: str) -> str:
        """When an operation's edge (`invoke` or `complete`) was: seconds since the start, or the event's index where
        the history states no times, or such as contradict the order of events."""
        row = self.rows[index]
        time_ns = row[f"{edge}_time"]
        if row["clock"] in (NO_CLOCK, SESSIONS_CLOCK, AGAINST_ORDER) or time_ns is None:
            return f"event {row[f'{edge}_index']}"
        return in_seconds(time_ns)

    def about(self, key: Key, narrowed: Narrow = about_key) -> Speaker:
        """A speaker that tells of operations on several cells only what they did to this one."""
        return Speaker(self.source, {index: narrowed(row, key) for index, row in self.rows.items()})

    def key(self, key: Key) -> str:
        """`key 5`, with table, row and column where they are not the first; `key :x of 5` within independent keys."""
        if key.column == PRESENCE:
            return f"the presence of {self.key(key._replace(column=0))}"
        row, partition = self.source.shown(key.row), self.source.shown(key.partition)
        if self.source.independent:
            return f"key {row} of {partition}"
        name = f"key {partition}"
        if key.row or key.column:
            name += f" (row {row}, column {key.column})"
        return name if key.table == 0 else f"{name} of table {key.table}"

    def process(self, index: int) -> str:
        """Whose an operation is: `process 3`."""
        return f"process {self.rows[index]['process']}"

    def ended(self, index: int) -> str:
        """`had completed at 11.950 s`."""
        return f"had completed at {self.when(index, 'complete')}"

    def began(self, index: int) -> str:
        """`began at 11.900 s`."""
        return f"began at {self.when(index, 'invoke')}"

    def failed(self, index: int) -> str:
        """`failed`, or `failed (timed out)`, with what it was told: clients also call failed what may not have."""
        told = self.rows[index].get("error")
        return f"failed ({shortened(told)})" if told else "failed"

    def initially(self, value: int | None) -> str:
        """What to try where a register shows this value, 0, which nobody had written: ` If it begins as 0 …`."""
        if value != 0 or self.source.initial is not None:
            return ""
        return " If registers of this history begin as 0, not unset, say so: -o initial=0."

    def value(self, index: int) -> str:
        """What the operation read or wrote."""
        return self.source.shown(self.rows[index]["mops"][0]["value"])

    def expected(self, index: int) -> str:
        return self.source.shown(self.rows[index]["mops"][0]["expected"])

    def noun(self, index: int) -> str:
        """`process 1's write of 18`."""
        row = self.rows[index]
        mop = row["mops"][0]
        value = self.source.shown(mop["value"])
        if mop["f"] == "cas":
            return f"process {row['process']}'s compare-and-set from {self.source.shown(mop['expected'])} to {value}"
        return f"process {row['process']}'s {'read' if mop['f'] == 'r' else 'write'} of {value}"

    def did(self, index: int, key: Key) -> str:
        """`Process 3 read 17 from key 5 at 12.031 s on node t2`."""
        row = self.rows[index]
        mop = row["mops"][0]
        value, where = self.source.shown(mop["value"]), self.key(key)
        what = {
            "r": f"read {value} from {where}",
            "w": f"wrote {value} to {where}",
            "cas": f"changed {where} from {self.source.shown(mop['expected'])} to {value}",
        }[mop["f"]]
        node = f" on node {row['node']}" if row["node"] else ""
        return f"Process {row['process']} {what} at {self.when(index, 'invoke')}{node}"


def opening(text: str) -> str:
    """Words as a sentence begins with them: nouns such as `process 1's write of 18` stand within sentences too."""
    return text[:1].upper() + text[1:]


def listed(items: list[str], more: int = 0) -> str:
    """`a, b and c`, or with `more` unnamed ones `a, b, c and 4 others`."""
    items = [*items, *([f"{more} other{'s' if more > 1 else ''}"] if more > 0 else [])]
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
