"""AWDIT's text histories: `w KEY VALUE` and `r KEY VALUE` lines; `-----` ends a transaction, `=====` a session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import kernel
from checkers.importers.blocks import BYTE_ORDER_MARK, Data
from checkers.importers.transactions import Ints, Transactions, require_known, too_large, transactions_source
from checkers.source import Source
from harness.errors import UserError

LINE: Final = re.compile(rb"[ \t]*(?:[rw][ \t]+-?\d+[ \t]+-?\d+|-{5,}|={5,})?[ \t]*\r?")
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
def _read(text, told):
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
                told.key[count], place = _integer(text, place + 1, end)
                if place >= 0:
                    told.value[count], place = _integer(text, place, end)
                told.write[count] = head == _W
                told.transaction[count], told.session[count] = transaction, session
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
    told = _Operations(write[: end.operations], *(column[: end.operations] for column in numbers))
    first = np.flatnonzero(np.diff(told.transaction, prepend=-1))
    sizes = np.diff(np.append(first, end.operations))
    failed = np.zeros(len(first), np.bool_)
    for column in (told.key, told.value):
        require_known(path, column)
    return transactions_source(
        path, "awdit-text", Transactions(sizes, told.session[first], failed, told.write, told.key, told.value)
    )
