"""Transactions of plain reads and writes, session by session, as other checkers keep them: dbcop's JSON, its `.hist`
text, its history.bincode (PolySI's too), and the folders of logs of Cobra.

- JSON: sessions of `{"events": [{"Read": {"variable": V, "version": N}}, …], "committed": true}`, or events as
  `["r", V, N]`; alone, or as `data` of an object. A version of null is the initial one.
- `.hist`: `[x:=1 y==2 z==?]` is a transaction, behind which `!` says that it was aborted; `---` ends a session.
- bincode: little-endian numbers of 64 bits and bytes for booleans; a read of 0 that nobody wrote is the initial one.
- Cobra: a file a session, big-endian: S and C with a transaction, W with write, key and value, R with the transaction
  and the write that were read, key and value. Writes are unique, so they stand for the values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import numpy as np

from checkers.columns.codes import NIL
from checkers.importers.blocks import BYTE_ORDER_MARK, Data
from checkers.importers.transactions import Transactions, integers, transactions_source
from checkers.source import Source
from harness.errors import UNDECODABLE, UserError
from harness.history.columns import FOREIGN_BASE

Event = tuple[bool, Any, int | None]
"""Whether it writes, the variable, and the value (None: the initial one)."""


class SessionReading:
    """Transactions as they are read, of one session after the other; variables that are no small integers get the
    numbers of texts."""

    def __init__(self, path: Path, format: str) -> None:
        self._path, self._format = path, format
        self._sizes: list[int] = []
        self._sessions: list[int] = []
        self._failed: list[bool] = []
        self._events: list[Event] = []
        self._texts: dict[str, int] = {}

    def add(self, session: int, committed: bool, events: Sequence[Event]) -> None:
        """The next transaction; one without events is none."""
        if events:
            self._sizes.append(len(events))
            self._sessions.append(session)
            self._failed.append(not committed)
            self._events += events

    def _key(self, variable: Any) -> int:
        if isinstance(variable, int) and not isinstance(variable, bool) and FOREIGN_BASE < variable < 2**63:
            return variable
        return self._texts.setdefault(str(variable), FOREIGN_BASE - 1 - len(self._texts))

    def source(self, zero_is_initial: bool = False) -> Source:
        """All of them as a history; raises UserError for values that do not fit."""
        values = [value for _, _, value in self._events if value is not None]
        integers(self._path, [str(value).encode() for value in values])
        if zero_is_initial and not any(write and value == 0 for write, _, value in self._events):
            self._events = [(write, key, value or None) for write, key, value in self._events]
        read = Transactions(
            np.array(self._sizes, np.int64),
            np.array(self._sessions, np.int64),
            np.array(self._failed, np.bool_),
            np.array([write for write, _, _ in self._events], np.bool_),
            np.array([self._key(key) for _, key, _ in self._events], np.int64),
            np.array([NIL if value is None else value for _, _, value in self._events], np.int64),
        )
        found = transactions_source(self._path, self._format, read)
        return replace(found, dictionary=tuple(self._texts), strings=(True,) * len(self._texts))


def open_dbcop_json(path: Path, data: Data) -> Source:
    """A history as dbcop generates it; raises UserError for JSON of another shape."""
    try:
        found = msgspec.json.decode(data[:].removeprefix(BYTE_ORDER_MARK))
        sessions = found["data"] if isinstance(found, dict) else found
        reading = SessionReading(path, "dbcop-json")
        for number, session in enumerate(sessions):
            for transaction in session:
                events = [_json_event(event) for event in transaction["events"]]
                reading.add(number, _is(bool, transaction["committed"]), events)
    except UNDECODABLE as error:
        raise UserError(f"{path} is not JSON ({error}).") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is JSON, but not of dbcop's sessions of transactions of events.") from error
    return reading.source()


def _is(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _json_event(event: Any) -> Event:
    if isinstance(event, dict):
        ((name, fields),) = event.items()
        name, variable, version = {"Read": "r", "Write": "w"}[name], fields["variable"], fields["version"]
    else:
        name, variable, version = event
        _is(str, {"r": "r", "w": "w"}[name])
    if version is not None or name == "w":
        _is(int, version)
    return name == "w", _is(str if isinstance(variable, str) else int, variable), version


_HIST_LINE: Final = re.compile(r"\s*(?:\[[^\[\]]*\]!?\s*)+")
_HIST_RULE: Final = re.compile(r"\s*-+\s*")
_HIST_EVENT: Final = re.compile(r"(\w+)(:=|==)(\d+|\?)")
HIST_HEAD: Final = re.compile(rb"(?:[ \t]*(?://[^\n]*|-+)?\r?\n)*[ \t]*\[\w+(?::=|==)[\d?]", re.ASCII)
"""How a text of this kind begins."""


def open_hist(path: Path, data: Data) -> Source:
    """A history as dbcop's text; raises UserError naming the first line that is none of its lines."""
    reading, session = SessionReading(path, "hist"), 0
    try:
        lines = data[:].removeprefix(BYTE_ORDER_MARK).decode().split("\n")
    except UnicodeDecodeError as error:
        at = data[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {at}: this is not UTF-8 text.") from error
    for number, line in enumerate(lines, 1):
        if _HIST_RULE.fullmatch(line):
            session += 1
        elif line.strip() and not line.lstrip().startswith("//"):
            for committed, events in _hist_transactions(path, number, line):
                reading.add(session, committed, events)
    return reading.source()


def _hist_transactions(path: Path, number: int, line: str) -> Iterator[tuple[bool, list[Event]]]:
    events = [_HIST_EVENT.fullmatch(word) for words in re.findall(r"\[([^\]]*)\]", line) for word in words.split()]
    if not _HIST_LINE.fullmatch(line) or not all(e and not (e[2] == ":=" and e[3] == "?") for e in events):
        raise UserError(f"{path}, line {number}: {line.strip()[:40]!r} is no line of [x:=1 y==2] transactions.")
    for words, bang in re.findall(r"\[([^\]]*)\](!?)", line):
        found = [_HIST_EVENT.fullmatch(word) for word in words.split()]
        yield not bang, [(e[2] == ":=", e[1], None if e[3] == "?" else int(e[3])) for e in found if e]


class _Bytes:
    """Numbers one after the other; raises UserError where the file ends within one."""

    def __init__(self, path: Path, data: bytes, order: str) -> None:
        self._path, self._data, self._order, self.place = path, data, order, 0

    @property
    def ended(self) -> bool:
        return self.place >= len(self._data)

    def take(self, what: str) -> tuple[Any, ...]:
        """Fields, in the words of `struct`."""
        size = struct.calcsize(self._order + what)
        if self.place + size > len(self._data):
            self.refuse("it ends too soon, so it is truncated")
        self.place += size
        return struct.unpack_from(self._order + what, self._data, self.place - size)

    def count(self) -> int:
        """How many there are of what follows, each of a byte at least."""
        (number,) = self.take("q")
        if not 0 <= number <= len(self._data) - self.place:
            self.refuse(f"{number} is no number of things that it has room for")
        return int(number)

    def refuse(self, why: str) -> NoReturn:
        raise UserError(f"{self._path}, byte {self.place}: {why}.")


def open_bincode(path: Path, data: Data) -> Source:
    """A history.bincode of dbcop or PolySI; raises UserError for bytes that are none."""
    read, reading = _Bytes(path, data[:], "<"), SessionReading(path, "bincode")
    read.take("5q")
    for _ in range(3):
        read.take(f"{read.count()}s")
    for session in range(read.count()):
        for _ in range(read.count()):
            events = [_flagged(read, "?qq?") for _ in range(read.count())]
            (committed,) = _flagged(read, "?")
            reading.add(session, committed, [(write, key, value) for write, key, value, done in events if done])
    if not read.ended:
        read.refuse("something follows the last session")
    return reading.source(zero_is_initial=True)


def _flagged(read: _Bytes, what: str) -> tuple[Any, ...]:
    found = read.take(what.replace("?", "B"))
    if any(flag == "?" and byte > 1 for flag, byte in zip(what, found, strict=True)):
        read.refuse("a byte is neither true nor false")
    return tuple(bool(byte) if flag == "?" else byte for flag, byte in zip(what, found, strict=True))


_INITIAL_TRANSACTIONS: Final = (0xBEBEEBEE, 0xDEADBEEF)


def is_cobra(path: Path) -> bool:
    """Whether a folder has logs of Cobra's: each begins with the start of a transaction."""
    logs = _logs(path)
    return bool(logs) and all(log.stat().st_size == 0 or log.open("rb").read(1) == b"S" for log in logs)


def _logs(path: Path) -> list[Path]:
    return sorted(each for each in path.glob("*.log") if each.is_file())


def open_cobra(path: Path) -> Source:
    """A folder of Cobra's logs, a session each; raises UserError for one that is none, or is cut off."""
    reading = SessionReading(path, "cobra")
    for session, log in enumerate(_logs(path)):
        read = _Bytes(log, log.read_bytes(), ">")
        while not read.ended:
            reading.add(session, True, _cobra_transaction(read))
    return reading.source()


def _cobra_transaction(read: _Bytes) -> list[Event]:
    kind, begun = read.take("cq")
    if kind != b"S":
        read.refuse("no transaction starts here")
    events: list[Event] = []
    while True:
        (kind,) = read.take("c")
        if kind == b"C":
            if read.take("q")[0] != begun:
                read.refuse("another transaction commits than the one that started")
            return events
        if kind == b"W":
            write, key, _ = read.take("3q")
            events.append((True, key, write))
        elif kind == b"R":
            transaction, write, key, _ = read.take("4q")
            events.append((False, key, None if transaction in _INITIAL_TRANSACTIONS else write))
        else:
            read.refuse("this is neither a read nor a write nor a commit")
