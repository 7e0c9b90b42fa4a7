"""What is said of transactions: their names in one anomaly, and what they read and wrote of a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from checkers.columns.codes import NIL
from checkers.explain.speaker import Speaker, key_in
from checkers.findings import Key
from checkers.source import Source

_SHOWN: Final = 6
"""Lists longer than this are shown by their ends."""


@dataclass(frozen=True, slots=True)
class TxnSpeaker:
    """Names the transactions of one anomaly T7, T12, … by number; `rows` are history rows by invocation index."""

    speaker: Speaker
    rows: dict[int, dict[str, Any]]
    names: dict[int, str]

    @classmethod
    def of(cls, source: Source, rows: dict[int, dict[str, Any]], ops: Sequence[int]) -> TxnSpeaker:
        names = {index: f"T{rows[index]['op']}" for index in dict.fromkeys(ops)}
        return cls(Speaker(source, rows), rows, names)

    def name(self, index: int) -> str:
        return self.names[index]

    def introduced(self, index: int) -> str:
        """`T1 is process 3's transaction of 0.012 s`."""
        when = self.speaker.when(index, "invoke")
        return f"{self.names[index]} is process {self.rows[index]['process']}'s transaction of {when}"

    def began(self, index: int, upper: bool = True) -> str:
        """`Process 3's transaction of 0.012 s`."""
        noun = f"rocess {self.rows[index]['process']}'s transaction of {self.speaker.when(index, 'invoke')}"
        return ("P" if upper else "p") + noun

    def plain_key(self, key: Key) -> Any:
        """A key for the verdict: as the history wrote it, with its whole address if it has more than a partition."""
        return self.speaker.source.shown_key(key)

    def shown(self, value: Any) -> str:
        """A value, or an element of a list, which may be nil."""
        return self.speaker.source.shown(None if value == NIL else value)

    def listed(self, values: Sequence[int] | None) -> str:
        """`[1 2 3]`, long ones as `[1 2 … 255 256]`."""
        items = [self.shown(value) for value in values or ()]
        if len(items) > _SHOWN:
            items = [*items[:2], "…", *items[-3:]]
        return f"[{' '.join(items)}]"

    def mops(self, index: int, key: Key) -> list[dict[str, Any]]:
        return [mop for mop in self.rows[index]["mops"] or () if key_in(mop) == key]

    def written(self, index: int, key: Key) -> list[str]:
        """The values that a transaction wrote or appended to a key, in order."""
        return [self.shown(mop["value"]) for mop in self.mops(index, key) if mop["f"] != "r"]

    def reads(self, index: int, key: Key) -> list[dict[str, Any]]:
        return [mop for mop in self.mops(index, key) if mop["f"] == "r"]

    def read_shown(self, mop: dict[str, Any]) -> str:
        if mop["values"] is None and mop["value"] is not None:
            return self.shown(mop["value"])
        return "nil" if mop["values"] is None else self.listed(mop["values"])

    def first_read(self, index: int, key: Key) -> str:
        reads = self.reads(index, key)
        return self.read_shown(reads[0]) if reads else "nil"

    def found_at(self, index: int, key: Key) -> str:
        """The version of a register at which a transaction found it: what it read first, else what it wrote."""
        mops = self.mops(index, key)
        if mops and mops[0]["f"] == "r":
            return self.read_shown(mops[0])
        return self.left_at(index, key)

    def left_at(self, index: int, key: Key) -> str:
        """The version of a register at which a transaction left it: what it wrote last, else what it read."""
        written = self.written(index, key)
        return written[-1] if written else self.first_read(index, key)

    def is_register(self, source: int, target: int, key: Key) -> bool:
        """Whether either transaction writes the key instead of appending."""
        return any(mop["f"] == "w" for index in (source, target) for mop in self.mops(index, key))

    def read_of(self, reader: int, writer: int, key: Key) -> tuple[str, str]:
        """A list that ends with what another transaction appended, and that element."""
        theirs = {mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"}
        for mop in self.reads(reader, key):
            if mop["values"] and mop["values"][-1] in theirs:
                return self.listed(mop["values"]), self.shown(mop["values"][-1])
        return self.first_read(reader, key), "?"

    def read_without(self, reader: int, writer: int, key: Key) -> tuple[str, str | None, str]:
        """A list that lacks what another transaction appended, its last element, and the first append that it lacks."""
        theirs = [mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"]
        for mop in self.reads(reader, key):
            values = mop["values"] or []
            missed = [value for value in theirs if value not in set(values)]
            if missed:
                last = self.shown(values[-1]) if values else None
                return self.listed(values), last, self.shown(missed[0])
        return self.first_read(reader, key), "it", self.shown(theirs[0]) if theirs else "?"

    def seen_from(self, reader: int, writer: int, key: Key) -> list[str]:
        """The values of one transaction that another one read, in order."""
        theirs = [mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"]
        seen = {value for mop in self.reads(reader, key) for value in (*(mop["values"] or ()), mop["value"])}
        return [self.shown(value) for value in theirs if value in seen]

    def last_seen(self, reader: int, writer: int, key: Key) -> str:
        """The value of `writer` that a read of `reader` ends with, and that is not its final one."""
        theirs = [mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"][:-1]
        for mop in self.reads(reader, key):
            last = mop["values"][-1] if mop["values"] else mop["value"]
            if last in theirs:
                return self.shown(last)
        return self.shown(theirs[0]) if theirs else "?"

    def mop_value(self, index: int, place: int) -> str:
        return self.shown(self.rows[index]["mops"][place]["value"])

    def history_in(self, index: int, key: Key, place: int) -> tuple[str, str]:
        """What a transaction did with a key before the micro-operation at `place`, and what it read there."""
        before = [mop for mop in self.rows[index]["mops"][:place] if key_in(mop) == key]
        verbs = {"r": "read", "w": "wrote", "append": "appended"}
        told = [
            f"{verbs[mop['f']]} {self.read_shown(mop) if mop['f'] == 'r' else self.shown(mop['value'])}"
            for mop in before
        ]
        return ", ".join(told), self.read_shown(self.rows[index]["mops"][place])

    def duplicate(self, index: int, key: Key) -> tuple[str, str]:
        """An element that a read list holds twice, and the list."""
        for mop in self.reads(index, key):
            seen: set[int] = set()
            for value in mop["values"] or ():
                if value in seen:
                    return self.shown(value), self.listed(mop["values"])
                seen.add(value)
        return "an element", self.first_read(index, key)

    def clash(self, index: int, other: int, key: Key) -> tuple[str, str]:
        """Two lists of which neither is a prefix of the other, cut to what shows it."""
        longest = max((mop["values"] or [] for mop in self.reads(other, key)), key=len, default=[])
        for mop in self.reads(index, key):
            values = mop["values"] or []
            for place, (mine, theirs) in enumerate(zip(values, longest, strict=False)):
                if mine != theirs:
                    return self._around(values, place), self._around(longest, place)
        return self.first_read(index, key), self.listed(longest)

    def _around(self, values: Sequence[int], place: int) -> str:
        if len(values) <= _SHOWN:
            return self.listed(values)
        low = max(0, place - 2)
        items = [self.shown(value) for value in values[low : place + 2]]
        return f"[{'… ' if low else ''}{' '.join(items)}{' …' if place + 2 < len(values) else ''}]"
