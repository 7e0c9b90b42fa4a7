"""Changes and reads of one range, evaluated again by the watch on cells of its own (G2, G10).

What a change comes to, and its answer, are what its request comes to at its place of the log; a read finds what was
written by then; the client is told the answer of the log. While a change is under way nobody else evaluates or reads
its cells, and nothing is closed that it may still write (R5).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from cluster.invariants.findings import Scope
from cluster.invariants.leases import BATCHES_KEPT
from cluster.ranges.requests import MARKER, Change, Read, ReadAnswer, laid_for, marker_of, scanned
from cluster.ranges.tablet import WriteBatch
from cluster.store.cells import Key, Span, Value, is_point, same_value
from cluster.wire.messages import (
    Cell,
    CompareAndSet,
    Done,
    HoldCells,
    ReadCell,
    ReadReply,
    ReadRows,
    RowsReply,
    SettleHold,
    WriteCells,
    decode_reply,
    encode,
)
from cluster.wire.nouns import RequestId
from cluster.wire.rows import ChangeRow, GetRow, ScanRows, TypedRowsReply

RECOMPUTED = "changes-are-recomputed"
READS_FOUND = "reads-are-recomputed"
ANSWERED = "answers-are-logged"
EXCLUSIVE = "latches-exclude"
CLOSED_BELOW = "closed-below-what-is-under-way"

VERSIONS_KEPT = 256
"""Versions of a cell that are remembered, the latest; of what was there before nothing is said."""

_Found: TypeAlias = tuple[bool, Value]
"""Whether anything is known of it, and the value, None for none."""


class ShadowCells:
    """Cells as the batches have written them, in the order of the log."""

    def __init__(self) -> None:
        self._versions: dict[Key, list[tuple[int, Value]]] = {}
        """By cell its versions by rising time."""
        self._sorted: list[Key] = []

    def write(self, key: Key, timestamp: int, value: Value) -> None:
        """A batch writes a cell."""
        versions = self._versions.get(key)
        if versions is None:
            versions = self._versions[key] = []
            insort(self._sorted, key)
        versions.append((timestamp, value))
        if len(versions) > 2 * VERSIONS_KEPT:
            del versions[:VERSIONS_KEPT]

    def read(self, key: Key, as_of: int) -> _Found:
        """The value in force then."""
        versions = self._versions.get(key, ())
        for timestamp, value in reversed(versions):
            if timestamp <= as_of:
                return True, value
        return len(versions) < VERSIONS_KEPT, None

    def written(self, key: Key, as_of: int) -> bool:
        """Whether anything was written there by then, a deletion counts too."""
        return any(timestamp <= as_of for timestamp, _ in self._versions.get(key, ()))

    def within(self, span: Span) -> Iterator[Key]:
        """The cells of a span that were ever written, in order."""
        keys = self._sorted
        return iter(keys[bisect_left(keys, span[0]) : bisect_left(keys, span[1])])


class Answers:
    """Fed with changes as they begin, are carried out and end, and with what is answered."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._checked = scope, scope.checked
        self._cells = ShadowCells()
        self._asked: dict[RequestId, Change] = {}
        """Changes that were evaluated and not seen to be carried out, the oldest first."""
        self._given: dict[RequestId, bytes] = {}
        """The answers of the log, the oldest first."""
        self._under_way: dict[int, dict[Key, RequestId]] = {}
        """By life whose cells are under evaluation, or wait to be applied there."""
        self._open: dict[int, dict[RequestId, int]] = {}
        """By life the changes whose place in the log is open, with the lowest timestamp that each may write at."""

    # ---- who may run at once, and what may be closed ----

    def opened(self, life: int) -> None:
        """A replica begins, maybe not the first of this life."""
        self._under_way[life] = {}
        self._open[life] = {}

    def begun(self, life: int, change: Change, spans: Sequence[Span], lowest: int) -> None:
        """The latches of a change were granted."""
        self._checked[EXCLUSIVE] += 1
        held, name = self._under_way[life], change.request_id
        for key, _ in spans:
            if (other := held.setdefault(key, name)) != name:
                self._scope.tell(EXCLUSIVE, f"two changes of {key} are under way: {other} and {name}", life)
        self._open[life][name] = lowest
        self._asked[name] = change
        if len(self._asked) > BATCHES_KEPT:
            del self._asked[next(iter(self._asked))]

    def leased(self, life: int) -> None:
        """Another lease is recorded there: no change that was begun before may be carried out any more."""
        self._open[life].clear()

    def placed(self, life: int, request: RequestId, closed: int) -> None:
        """A change has its place in the log, with a closed timestamp: all that are still open lie above that."""
        still = self._open[life]
        still.pop(request, None)
        self._checked[CLOSED_BELOW] += 1
        for name, lowest in still.items():
            if lowest <= closed:
                message = f"{closed} is closed, and the change {name}, which is under way, may write from {lowest} on"
                self._scope.tell(CLOSED_BELOW, message, life)

    def ended(self, life: int, request: RequestId) -> None:
        """A change is under way no more."""
        self._open[life].pop(request, None)
        held = self._under_way[life]
        for key in [key for key, name in held.items() if name == request]:
            del held[key]

    # ---- the log ----

    def applied(self, life: int, batch: WriteBatch) -> None:
        """A batch is carried out, which nobody has before."""
        name = batch.request_id
        change = self._asked.pop(name, None)
        if change is not None and not isinstance(change, SettleHold) and laid_for(change) is None:
            self._checked[RECOMPUTED] += 1
            done, puts = self._outcome(change, batch.timestamp)
            written = {put.key: put.value for put in batch.puts}
            if batch.answer != encode(done) or not _same(change, puts if done.applied else {}, written):
                came = decode_reply(batch.answer)
                message = f"{change} comes to {done}; it was decided that it writes {written} and is told {came}"
                self._scope.tell(RECOMPUTED, message, life)
        for put in batch.puts:
            self._cells.write(put.key, batch.timestamp, put.value)
        self._given.setdefault(name, batch.answer)
        if len(self._given) > BATCHES_KEPT:
            del self._given[next(iter(self._given))]

    def answered(self, life: int, request: RequestId, answer: bytes) -> None:
        """A client is told this of its change; an error says nothing of what another attempt of it has come to."""
        self._checked[ANSWERED] += 1
        given = self._given.get(request)
        if answer != given and (given is not None or len(self._given) < BATCHES_KEPT):
            said = decode_reply(answer)
            if isinstance(said, Done):
                came = "was never carried out" if given is None else f"was told {decode_reply(given)} by the log"
                self._scope.tell(ANSWERED, f"{request} is told {said}, and {came}", life)

    def found(self, life: int, read: Read, spans: Sequence[Span], timestamp: int, answer: ReadAnswer) -> None:
        """A read is answered."""
        held = self._under_way[life]
        self._checked[EXCLUSIVE] += 1
        for start, end in spans if held else ():
            busy = [key for key in ((start,) if is_point((start, end)) else held) if key in held and start <= key < end]
            if busy:
                message = f"a read of {busy[0]} is answered while the change {held[busy[0]]} of it is under way"
                self._scope.tell(EXCLUSIVE, message, life)
        self.recomputed(life, read, spans, timestamp, answer)

    def recomputed(self, life: int, read: Read, spans: Sequence[Span], timestamp: int, answer: ReadAnswer) -> None:
        """A read is answered, with latches or without."""
        self._checked[READS_FOUND] += 1
        wrong = self._wrong(read, spans, timestamp, answer)
        if wrong is not None:
            self._scope.tell(READS_FOUND, f"{read} as of {timestamp} is answered {answer}: {wrong}", life)

    # ---- evaluated again ----

    def _outcome(self, change: Change, timestamp: int) -> tuple[Done, dict[Key, Value]]:
        """The answer to a change, and what it names that is written where it applies."""
        partition = change.partition
        if isinstance(change, ChangeRow):
            present = self._cells.read(marker_of(change), timestamp)[1] is not None
            applies = change.kind == "upsert" or present != (change.kind == "insert")
            deletes = change.kind == "delete"
            named = {} if deletes else {(partition, change.row, column): value for column, value in change.cells}
            return Done(applies, None, timestamp), {marker_of(change): None if deletes else True} | named
        assert not isinstance(change, HoldCells | SettleHold), "what is held is no version yet"
        if isinstance(change, WriteCells):
            return Done(True, None, timestamp), {(partition, c.row, c.column): c.value for c in change.cells}
        key = partition, change.row, change.column
        there = self._cells.read(key, timestamp)[1] if isinstance(change, CompareAndSet) else None
        if isinstance(change, CompareAndSet) and not same_value(there, change.expected):
            return Done(False, there, timestamp), {}
        return Done(True, None, timestamp), {key: change.value}

    def _wrong(self, read: Read, spans: Sequence[Span], timestamp: int, answer: ReadAnswer) -> str | None:
        """What is wrong with an answer, in words."""
        if isinstance(read, ReadCell) and isinstance(answer, ReadReply):
            known, value = self._cells.read(spans[0][0], timestamp)
            same = encode(answer) == encode(ReadReply(value, timestamp))
            return None if same or not known else f"the log says {value!r}"
        if isinstance(read, ReadRows) and isinstance(answer, RowsReply):
            cells = self._present(spans, timestamp)
            if cells is None:
                return None
            expected = RowsReply(tuple(Cell(key[1], key[2], value) for key, value in cells), timestamp)  # type: ignore[arg-type]
            return None if encode(answer) == encode(expected) else f"the log says {expected.cells}"
        if isinstance(read, GetRow | ScanRows) and isinstance(answer, TypedRowsReply):
            return self._wrong_rows(read, timestamp, answer)
        return None

    def _wrong_rows(self, read: GetRow | ScanRows, timestamp: int, answer: TypedRowsReply) -> str | None:
        span = scanned(read) if isinstance(read, ScanRows) else (marker_of(read), (*marker_of(read)[:2], MARKER + 1))
        cells = self._present((span,), timestamp)
        if cells is None:
            return None
        rows = [key[1] for key, _ in cells if key[2] == MARKER]
        limit = read.limit if isinstance(read, ScanRows) else 1
        if [row.row for row in answer.rows] != rows[:limit] or answer.more != (len(rows) > limit):
            return f"the rows {rows} are there"
        for row in answer.rows:
            for column, value in zip(read.columns, row.values, strict=True):
                key = read.partition, row.row, column
                known, there = self._cells.read(key, timestamp)
                if known and self._cells.written(key, timestamp) and encode(value) != encode(there):
                    return f"{key} is {there!r}"
        return None

    def _present(self, spans: Sequence[Span], timestamp: int) -> list[tuple[Key, Value]] | None:
        """The cells of spans that hold a value then, in order; None where not all is known."""
        found = [(key, self._cells.read(key, timestamp)) for span in spans for key in self._cells.within(span)]
        if not all(known for _, (known, _) in found):
            return None
        return [(key, value) for key, (_, value) in found if value is not None]


def _same(change: Change, named: dict[Key, Value], written: dict[Key, Value]) -> bool:
    """Whether a change writes what it names; a row that is inserted or deleted gets more cells than were named."""
    if not isinstance(change, ChangeRow):
        return encode(list(named.items())) == encode(list(written.items()))
    there = all(encode(written.get(key)) == encode(value) for key, value in named.items())
    return there and (bool(written) == bool(named))
