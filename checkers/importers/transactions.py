"""Transactions of plain reads and writes, session by session, as our table: the text formats of AWDIT and Plume.

- AWDIT: `w KEY VALUE` and `r KEY VALUE` lines; `-----` ends a transaction, `=====` a session.
- Plume: `r(KEY,VALUE,SESSION,TRANSACTION)` and `w(…)`, one a line; transaction -1 is aborted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.batches import decoded, history_batch, mops_array
from checkers.columns.codes import NIL
from checkers.compiled import kernel
from checkers.importers.blocks import BYTE_ORDER_MARK, Data
from checkers.source import SESSIONS_CLOCK, Source
from harness.errors import UserError
from harness.history.columns import FOREIGN_BASE

Ints = npt.NDArray[np.int64]

NOTE: Final = "The format states no times: nothing is known of the order of transactions but that of each session."


class Transactions(NamedTuple):
    """Micro-operations in the order of their transactions: `sizes`, `session` and `failed` have one entry a
    transaction; `write`, `key` and `value` (NIL: the initial one) one a micro-operation."""

    sizes: Ints
    session: Ints
    failed: npt.NDArray[np.bool_]
    write: npt.NDArray[np.bool_]
    key: Ints
    value: Ints


def integers(path: Path, words: list[bytes]) -> Ints:
    """64-bit integers that can't be mistaken for interned values; UserError for others."""
    try:
        numbers = np.array(words, dtype="S").astype(np.int64) if words else np.empty(0, np.int64)
    except (OverflowError, ValueError) as error:
        raise too_large(path) from error
    require_known(path, numbers)
    return numbers


def too_large(path: Path) -> UserError:
    return UserError(f"{path} has a number that does not fit 64 bits.")


def require_known(path: Path, numbers: Ints) -> None:
    """Raise UserError for integers that could be mistaken for interned values."""
    if len(numbers) and int(numbers.min()) <= FOREIGN_BASE:
        raise UserError(f"{path} has the number {numbers.min()}; the least that can be judged is {FOREIGN_BASE + 1}.")


def transactions_source(path: Path, format: str, read: Transactions) -> Source:
    """A source over transactions, one operation each; sessions are processes."""
    count = len(read.sizes)
    fields = {
        "f": decoded(read.write.astype(np.int8), ("r", "w")),
        "partition": pa.array(read.key),
        "value": pa.array(read.value, mask=read.value == NIL),
    }
    op = np.arange(count)
    known: dict[str, Any] = {
        "op": pa.array(op),
        "invoke_index": pa.array(2 * op),
        "complete_index": pa.array(2 * op + 1),
        "invoke_time": pa.array(np.zeros(count, np.int64)),
        "type": decoded(read.failed.astype(np.int8), ("ok", "fail")),
        "process": pa.array(_processes(read.session)),
        "session": pa.array(read.session),
        "f": decoded(np.zeros(count, np.int8), ("txn",)),
        "mops": mops_array(np.concatenate(([0], np.cumsum(read.sizes))), fields),
        "clock": decoded(np.zeros(count, np.int8), (SESSIONS_CLOCK,)),
    }
    table = pa.Table.from_batches([history_batch(count, known)])
    return Source(path, format, count, table=table, note=NOTE)


def _processes(session: Ints) -> Ints:
    """Sessions as processes: negative ones would be taken for the nemesis."""
    if not len(session) or session.min() >= 0:
        return session
    return np.unique(session, return_inverse=True)[1].astype(np.int64)


AWDIT_LINE: Final = re.compile(rb"[ \t]*(?:[rw][ \t]+-?\d+[ \t]+-?\d+|-{5,}|={5,})?[ \t]*\r?")
"""What `_read` takes for a line, by which a file is known as AWDIT's."""

_NEWLINE, _RETURN, _TAB, _SPACE = 10, 13, 9, 32
_MINUS, _EQUALS, _ZERO, _NINE, _R, _W = (ord(letter) for letter in "-=09rw")
_RULE: Final = 5
"""Characters that a separating line has at least."""

_LEAST_BUT_ITS_LAST_DIGIT: Final = -((1 << 63) // 10)
_LAST_DIGIT: Final = 8

_NONE: Final = -1
_TOO_LARGE: Final = -2


class _Operations(NamedTuple):
    """One entry an operation; transactions and sessions are numbered by the separating lines before them."""

    write: npt.NDArray[np.bool_]
    key: Ints
    value: Ints
    transaction: Ints
    session: Ints


class _End(NamedTuple):
    """How far reading came: operations, lines, and where the line begins that is none (_NONE: all are) and what is
    wrong with it (_NONE: it is no operation)."""

    operations: int
    lines: int
    wrong_at: int
    wrong: int


@kernel
def _behind_blanks(text, place, end):
    while place < end and (text[place] == _SPACE or text[place] == _TAB):
        place += 1
    return place


@kernel
def _integer(text, place, end):
    """The number behind blanks, and where it ends (_NONE: there is none, _TOO_LARGE: it does not fit 64 bits)."""
    begin = _behind_blanks(text, place, end)
    if begin == place:
        return np.int64(0), _NONE
    negative = begin < end and text[begin] == _MINUS
    first = begin + 1 if negative else begin
    place, number = first, np.int64(0)  # which counts down, for the least has no counterpart
    while place < end and text[place] >= _ZERO and text[place] <= _NINE:
        digit = np.int64(text[place]) - _ZERO
        if number < _LEAST_BUT_ITS_LAST_DIGIT or (number == _LEAST_BUT_ITS_LAST_DIGIT and digit > _LAST_DIGIT):
            return number, _TOO_LARGE
        number = 10 * number - digit
        place += 1
    if place == first:
        return number, _NONE
    if negative:
        return number, place
    return (-number, place) if -number >= 0 else (number, _TOO_LARGE)


@kernel
def _behind_rule(text, place, end):
    """Behind a separating line's characters (_NONE: it has too few)."""
    begin = place
    while place < end and text[place] == text[begin]:
        place += 1
    return place if place - begin >= _RULE else _NONE


@kernel
def _read(text, read):
    count, lines, transaction, session, at = 0, 0, 0, 0, 0
    # At the head: text[:at] is whole lines, `lines` of them, which held `count` operations and the separating lines
    # that `transaction` and `session` count. A text without a newline at its end has one more line, which may be
    # empty.
    while at <= text.shape[0]:
        stop = at
        while stop < text.shape[0] and text[stop] != _NEWLINE:
            stop += 1
        end = stop - 1 if stop > at and text[stop - 1] == _RETURN else stop
        place = _behind_blanks(text, at, end)
        if place < end:
            head = text[place]
            if head in (_R, _W):
                read.key[count], place = _integer(text, place + 1, end)
                if place >= 0:
                    read.value[count], place = _integer(text, place, end)
                read.write[count] = head == _W
                read.transaction[count], read.session[count] = transaction, session
                count += 1
            elif head in (_MINUS, _EQUALS):
                place = _behind_rule(text, place, end)
                transaction += 1
                session += head == _EQUALS
            # Nothing but blanks may follow. `place` is negative where a number or a rule was none.
            if place < 0 or _behind_blanks(text, place, end) < end:
                return count, lines, at, _TOO_LARGE if place == _TOO_LARGE else _NONE
        lines, at = lines + 1, stop + 1
    return count, lines, _NONE, _NONE


def open_awdit(path: Path, data: Data) -> Source:
    """A history as AWDIT writes it; raises UserError naming the first line that is none of its lines."""
    text = data[:].removeprefix(BYTE_ORDER_MARK)
    room = text.count(b"\n") + 1
    write, numbers = np.empty(room, np.bool_), [np.empty(room, np.int64) for _ in range(4)]
    end = _End(*_read(np.frombuffer(text, np.uint8), _Operations(write, *numbers)))
    if end.wrong == _TOO_LARGE:
        raise too_large(path)
    if end.wrong_at != _NONE:
        shown = text[end.wrong_at :].split(b"\n", 1)[0][:40].decode(errors="replace")
        raise UserError(f"{path}, line {end.lines + 1}: {shown!r} is not an operation, ----- or =====.")
    read = _Operations(write[: end.operations], *(column[: end.operations] for column in numbers))
    first = np.flatnonzero(np.diff(read.transaction, prepend=-1))
    sizes = np.diff(np.append(first, end.operations))
    failed = np.zeros(len(first), np.bool_)
    for column in (read.key, read.value):
        require_known(path, column)
    return transactions_source(
        path, "awdit-text", Transactions(sizes, read.session[first], failed, read.write, read.key, read.value)
    )


PLUME_LINE: Final = re.compile(rb"[ \t]*(?:[rw]\([ \t]*-?\d+(?:[ \t]*,[ \t]*-?\d+){3}[ \t]*\)[ \t]*)?\r?")

_ABORTED: Final = -1
_SEPARATORS: Final = bytes.maketrans(b"(),", b"   ")


def open_plume(path: Path, data: Data) -> Source:
    """A history as Plume writes it; raises UserError naming the first line that is no operation."""
    data = data[:].removeprefix(BYTE_ORDER_MARK)
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if PLUME_LINE.fullmatch(line) is None:
            shown = line[:40].decode(errors="replace")
            raise UserError(f"{path}, line {number}: {shown!r} is not r(KEY,VALUE,SESSION,TRANSACTION) or w(…).")
    words = data.translate(_SEPARATORS).split()
    write = np.array([word == b"w" for word in words[::5]], np.bool_)
    columns = [integers(path, words[place::5]) for place in range(1, 5)]
    return transactions_source(path, "plume-text", _grouped(write, *columns))


def _grouped(write: np.ndarray, key: Ints, value: Ints, session: Ints, transaction: Ints) -> Transactions:
    """A transaction is its session's operations of one number; each run of aborted ones in a session is its own."""
    places = np.arange(len(key))
    by_session = np.argsort(session, kind="stable")
    run_begins = np.ones(len(key), bool)
    ordered_session, ordered_transaction = session[by_session], transaction[by_session]
    run_begins[1:] = (ordered_session[1:] != ordered_session[:-1]) | (
        ordered_transaction[1:] != ordered_transaction[:-1]
    )
    run = np.empty(len(key), np.int64)
    run[by_session] = np.cumsum(run_begins)
    aborted = transaction == _ABORTED
    keys = np.stack((session, np.where(aborted, 0, transaction), np.where(aborted, run, 0), aborted), axis=1)
    _, first, ids = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    transaction_of = rank[ids.reshape(-1)]
    order = np.lexsort((places, transaction_of))
    firsts = np.sort(first)
    sizes = np.bincount(transaction_of, minlength=len(first))
    return Transactions(sizes, session[firsts], aborted[firsts], write[order], key[order], value[order])
