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
from checkers.columns.dense import numbered, spread, together
from checkers.compiled import kernel, lean
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
PLUME_LINE: Final = re.compile(rb"[ \t]*(?:[rw]\([ \t]*-?\d+(?:[ \t]*,[ \t]*-?\d+){3}[ \t]*\)[ \t]*)?\r?")
"""What `_read` takes for a line, by which a file is known as AWDIT's or Plume's."""

_NEWLINE, _RETURN, _TAB, _SPACE = 10, 13, 9, 32
_MINUS, _EQUALS, _ZERO, _NINE, _R, _W, _OPENS, _COMMA, _CLOSES = (ord(letter) for letter in "-=09rw(,)")
_RULE: Final = 5
"""Characters that a separating line has at least."""

_SHORTEST: Final = len("r 0 0\n")
"""Characters that an operation has at least, in either text."""

_LEAST_BUT_ITS_LAST_DIGIT: Final = -((1 << 63) // 10)
_LAST_DIGIT: Final = 8

_NONE: Final = -1
_ABORTED: Final = -1


class _Operations(NamedTuple):
    """`write`, `key` and `value` have one entry an operation. Lines of one transaction that follow each other are a
    run: `begin` is its first operation, `session` and `transaction` its lines' last numbers, which in AWDIT's text are
    those of the separating lines before them."""

    write: npt.NDArray[np.bool_]
    key: Ints
    value: Ints
    begin: Ints
    session: Ints
    transaction: Ints


class _End(NamedTuple):
    """How far reading came: operations, runs, lines, where the line begins that is none (_NONE: all are), and a bit for
    each of an operation's numbers if one did not fit 64 bits."""

    operations: int
    runs: int
    lines: int
    wrong_at: int
    too_large: int


@lean
def _behind_blanks(text, place, end):
    while place < end and (text[place] == _SPACE or text[place] == _TAB):
        place += 1
    return place


@lean
def _behind_mark(text, place, end, mark):
    """Behind a mark (_SPACE: any blank) and blanks; _NONE if it is not there."""
    if place == end or (text[place] != mark and (mark != _SPACE or text[place] != _TAB)):
        return _NONE
    return _behind_blanks(text, place + 1, end)


@lean
def _integer(text, place, end):
    """The number that begins here, where it ends (_NONE: it is none), and whether it fits 64 bits."""
    negative = place < end and text[place] == _MINUS
    first = place + 1 if negative else place
    place, number, fits = first, np.int64(0), True  # which counts down, for the least has no counterpart
    while place < end and text[place] >= _ZERO and text[place] <= _NINE:
        digit = np.int64(text[place]) - _ZERO
        if number < _LEAST_BUT_ITS_LAST_DIGIT or (number == _LEAST_BUT_ITS_LAST_DIGIT and digit > _LAST_DIGIT):
            fits = False
        number = 10 * number - digit
        place += 1
    if place == first:
        return number, _NONE, True
    if negative:
        return number, place, fits
    return -number, place, fits and -number >= 0


@lean
def _operands(text, place, end, plume, numbers):
    """The numbers of an operation, from behind its letter on: where it ends (_NONE: it is none), and a bit for each
    number that does not fit 64 bits (the first bit for all of AWDIT's, whose text is read no further)."""
    too_large = 0
    for which in range(4 if plume else 2):
        place = _behind_mark(text, place, end, (_COMMA if which else _OPENS) if plume else _SPACE)
        if place < 0:
            return _NONE, too_large
        numbers[which], place, fits = _integer(text, place, end)
        if not fits:
            too_large |= 1 << which if plume else 1
        if place < 0 or (too_large and not plume):
            return place, too_large
        if plume:
            place = _behind_blanks(text, place, end)
    return _behind_mark(text, place, end, _CLOSES) if plume else place, too_large


@lean
def _behind_rule(text, place, end):
    """Behind a separating line's characters (_NONE: it has too few)."""
    begin = place
    while place < end and text[place] == text[begin]:
        place += 1
    return place if place - begin >= _RULE else _NONE


@kernel
def _read(text, plume, read):
    count, runs, lines, too_large, at = 0, 0, 0, 0, 0
    numbers = np.zeros(4, np.int64)  # key, value, session, transaction: AWDIT's lines leave the last two as they are
    # At the head: text[:at] is whole lines, `lines` of them, which held `count` operations in `runs`. A text without a
    # newline at its end has one more line, which may be empty.
    while at <= text.shape[0]:
        stop = at
        while stop < text.shape[0] and text[stop] != _NEWLINE:
            stop += 1
        end = stop - 1 if stop > at and text[stop - 1] == _RETURN else stop
        place = _behind_blanks(text, at, end)
        if place < end:
            head = text[place]
            if head in (_R, _W):
                place, unfit = _operands(text, place + 1, end, plume, numbers)
                too_large |= unfit
                if unfit and not plume:
                    break
                if runs == 0 or read.session[runs - 1] != numbers[2] or read.transaction[runs - 1] != numbers[3]:
                    read.begin[runs], read.session[runs], read.transaction[runs] = count, numbers[2], numbers[3]
                    runs += 1
                read.write[count], read.key[count], read.value[count] = head == _W, numbers[0], numbers[1]
                count += 1
            elif head in (_MINUS, _EQUALS) and not plume:
                place = _behind_rule(text, place, end)
                numbers[2] += head == _EQUALS
                numbers[3] += 1
            # Nothing but blanks may follow. `place` is negative where a number, a mark or a rule was none.
            if place < 0 or _behind_blanks(text, place, end) < end:
                return count, runs, lines, at, too_large
        lines, at = lines + 1, stop + 1
    return count, runs, lines, _NONE, too_large


def _operations(path: Path, data: Data, plume: bool, lines: str) -> _Operations:
    """What a text says; raises UserError naming the first line that is none of the `lines` that may be."""
    text = np.frombuffer(data, np.uint8)[len(BYTE_ORDER_MARK) if data[:3] == BYTE_ORDER_MARK else 0 :]
    text.flags.writeable = False
    room = len(text) // _SHORTEST + 1  # of which what stays empty takes no memory
    read = _Operations(np.empty(room, np.bool_), *(np.empty(room, np.int64) for _ in range(5)))
    end = _End(*_read(text, plume, read))
    if end.wrong_at != _NONE:
        shown = text[end.wrong_at :][:40].tobytes().split(b"\n", 1)[0].decode(errors="replace")
        raise UserError(f"{path}, line {end.lines + 1}: {shown!r} is not {lines}.")
    write, key, value = read.write[: end.operations], read.key[: end.operations], read.value[: end.operations]
    begin, session, transaction = (column[: end.runs] for column in (read.begin, read.session, read.transaction))
    for which, column in enumerate((key, value, session, transaction)):
        if end.too_large >> which & 1:
            raise too_large(path)
        require_known(path, column)
    return _Operations(write, key, value, begin, session, transaction)


def _sizes(read: _Operations) -> Ints:
    """How many operations each run has."""
    return np.diff(np.append(read.begin, len(read.key)))


def open_awdit(path: Path, data: Data) -> Source:
    """A history as AWDIT writes it; raises UserError naming the first line that is none of its lines."""
    read = _operations(path, data, False, "an operation, ----- or =====")
    failed = np.zeros(len(read.begin), np.bool_)
    found = Transactions(_sizes(read), read.session, failed, read.write, read.key, read.value)
    return transactions_source(path, "awdit-text", found)


def open_plume(path: Path, data: Data) -> Source:
    """A history as Plume writes it; raises UserError naming the first line that is no operation."""
    read = _operations(path, data, True, "r(KEY,VALUE,SESSION,TRANSACTION) or w(…)")
    return transactions_source(path, "plume-text", _grouped(read))


def _grouped(read: _Operations) -> Transactions:
    """A transaction is its session's operations of one number; each run of aborted ones in a session is its own."""
    transaction, count = numbered(_transactions(read.session, read.transaction))
    sizes, aborted = _sizes(read), read.transaction == _ABORTED
    if count == len(sizes):
        return Transactions(sizes, read.session, aborted, read.write, read.key, read.value)
    order = np.argsort(transaction, kind="stable")
    rows, _ = spread(read.begin[order], (read.begin + sizes)[order])
    begins = np.flatnonzero(np.diff(transaction[order], prepend=-1))
    firsts, whole = order[begins], np.add.reduceat(sizes[order], begins)
    return Transactions(
        whole, read.session[firsts], aborted[firsts], read.write[rows], read.key[rows], read.value[rows]
    )


def _transactions(session: Ints, transaction: Ints) -> Ints:
    """Numbers of the transactions that runs of lines belong to."""
    by_session = np.argsort(session, kind="stable")
    of_session = np.empty(len(session), np.int64)
    of_session[by_session] = np.cumsum(np.diff(transaction[by_session], prepend=0) != 0)
    aborted = transaction == _ABORTED
    ids, _ = together([session, np.where(aborted, of_session, transaction), aborted.astype(np.int64)])
    return ids
