"""A compiled reader of EDN and JSON text: flattens it into a tape of tokens.

Token i has a kind, the byte range of its text, and `after[i]`, the index behind it and all it contains, so that the
children of a collection are i + 1, after[i + 1], … up to after[i]. Tags (`#inst`, `#jepsen.history.Op`) are ignored,
comments and `#_` forms left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from harness.errors import UserError

NULL: Final = 0
TRUE: Final = 1
FALSE: Final = 2
INTEGER: Final = 3
STRING: Final = 4
KEYWORD: Final = 5
OTHER: Final = 6
"""Floats, ratios, symbols, characters, integers beyond 64 bits."""
VECTOR: Final = 7
LIST: Final = 8
MAP: Final = 9
SET: Final = 10
DISCARD: Final = 11

_MOST_DEPTH: Final = 512

_PROBLEMS: Final = {
    1: "a closing bracket does not match what was opened",
    2: "the text ends inside a string",
    3: "the text ends before every bracket is closed, so it is truncated",
    4: "brackets are nested deeper than 512",
    5: "a map has a key without a value",
    6: "this is not EDN",
    7: "this is not JSON",
}

Bytes = npt.NDArray[np.uint8]


class Tape(NamedTuple):
    """The tokens of `text`; `number` is the value of INTEGER tokens (others: to be filled by who interns them)."""

    text: Bytes
    kind: npt.NDArray[np.int8]
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    after: npt.NDArray[np.int32]
    number: npt.NDArray[np.int64]

    def raw(self, token: int) -> str:
        """The token's own text."""
        return self.text[self.start[token] : self.stop[token]].tobytes().decode("utf-8", "replace")

    def line(self, token: int) -> int:
        """The line on which the token begins, counted from 1."""
        return line_of(self.text, int(self.start[token]))


def line_of(text: Bytes, position: int) -> int:
    """The line of a byte position, counted from 1."""
    return int(np.count_nonzero(text[:position] == 10)) + 1


@njit(cache=True)
def _is_blank(c, json):
    return c == 32 or (c >= 9 and c <= 13) or c == 44 or (json and c == 58)


@njit(cache=True)
def _ends_atom(c, json):
    return _is_blank(c, json) or c in (40, 41, 91, 93, 123, 125, 34, 59)


@njit(cache=True)
def _classify(text, start, stop):
    """The kind of an atom and its number."""
    c = text[start]
    if c == 58:
        return KEYWORD, np.int64(0)
    place = start + 1 if c == 45 or c == 43 else start
    end = stop - 1 if stop - start > 1 and text[stop - 1] == 78 else stop
    digits = end > place
    value, fits = np.int64(0), end - place <= 19
    for i in range(place, end):
        digit = np.int64(text[i]) - 48
        if digit < 0 or digit > 9:
            digits = False
            break
        if (fits and value < -922337203685477580) or (value == -922337203685477580 and digit > 8):
            fits = False
        if fits:
            value = value * 10 - digit
    if digits:
        if c != 45 and value == np.int64(-9223372036854775808):
            fits = False
        return (INTEGER, value if c == 45 else -value) if fits else (OTHER, np.int64(0))
    size = stop - start
    if (size == 3 and c == 110 and text[start + 1] == 105) or (size == 4 and c == 110 and text[start + 1] == 117):
        return NULL, np.int64(0)
    if size == 4 and c == 116 and text[start + 1] == 114:
        return TRUE, np.int64(0)
    if size == 5 and c == 102 and text[start + 1] == 97:
        return FALSE, np.int64(0)
    return OTHER, np.int64(0)


@njit(cache=True)
def _skip(text, place, json):
    """The next byte that matters: behind blanks, comments and tags."""
    size = text.shape[0]
    while place < size:
        c = text[place]
        if _is_blank(c, json):
            place += 1
        elif c == 59 and not json:
            while place < size and text[place] != 10:
                place += 1
        elif c == 35 and not json and place + 1 < size and text[place + 1] not in (123, 95):
            place += 1
            while place < size and not _ends_atom(text[place], json):
                place += 1
        else:
            break
    return place


@njit(cache=True)
def _string_end(text, place):
    """The position behind a string's closing quote, or -1."""
    size = text.shape[0]
    while place < size:
        if text[place] == 92:
            place += 1
        elif text[place] == 34:
            return place + 1
        place += 1
    return -1


@njit(cache=True)
def _opens(text, place, json):
    """Which collection opens here (0: none) and how many bytes that takes."""
    c = text[place]
    if c == 91:
        return VECTOR, 1
    if c == 123:
        return MAP, 1
    if not json and c == 40:
        return LIST, 1
    if not json and c == 35 and place + 1 < text.shape[0]:
        return (SET, 2) if text[place + 1] == 123 else (DISCARD, 2)
    return 0, 0


@njit(cache=True)
def _closes(kind, c):
    return (c == 93 and kind == VECTOR) or (c == 41 and kind == LIST) or (c == 125 and kind in (MAP, SET))


@njit(cache=True)
def _settle(tape, stack, children, depth, count):
    """A form has ended: drop it if it was to be discarded, else count it in its collection."""
    if depth > 0 and tape.kind[stack[depth - 1]] == DISCARD:
        return depth - 1, stack[depth - 1]
    if depth > 0:
        children[depth - 1] += 1
    return depth, count


@njit(cache=True)
def _close(text, tape, place, stack, children, depth, count):
    """A closing bracket. Returns (problem, depth, count)."""
    if depth == 0 or not _closes(tape.kind[stack[depth - 1]], text[place]):
        return 1, depth, count
    depth -= 1
    token = stack[depth]
    if tape.kind[token] == MAP and children[depth] % 2 == 1:
        return 5, depth, count
    tape.after[token] = count
    tape.stop[token] = place + 1
    return 0, depth, count


@njit(cache=True)
def _scan(text, json, tape):
    """Fill the tape. Returns (problem, position, tokens); problem -1 is a full tape."""
    stack, children = np.empty(_MOST_DEPTH, np.int64), np.zeros(_MOST_DEPTH, np.int64)
    depth, count, size = 0, 0, text.shape[0]
    place = _skip(text, 0, json)
    while place < size:
        if count >= tape.kind.shape[0]:
            return -1, place, count
        c = text[place]
        kind, width = _opens(text, place, json)
        if kind > 0:
            if depth >= _MOST_DEPTH:
                return 4, place, count
            tape.kind[count], tape.start[count] = kind, place
            stack[depth], children[depth] = count, 0
            depth, count, place = depth + 1, count + 1, place + width
        elif c in (41, 93, 125):
            problem, depth, count = _close(text, tape, place, stack, children, depth, count)
            if problem:
                return problem, place, count
            depth, count = _settle(tape, stack, children, depth, count)
            place += 1
        else:
            stop = _string_end(text, place + 1) if c == 34 else place + 1
            if stop < 0:
                return 2, place, count
            while c != 34 and stop < size and not _ends_atom(text[stop], json):
                stop += 1
            tape.start[count], tape.stop[count] = place, stop
            tape.kind[count], tape.number[count] = (STRING, np.int64(0)) if c == 34 else _classify(text, place, stop)
            tape.after[count] = count + 1
            depth, count = _settle(tape, stack, children, depth, count + 1)
            place = stop
        place = _skip(text, place, json)
    return (3 if depth > 0 else 0), place, count


def _room(text: Bytes, tokens: int) -> Tape:
    kinds, starts, stops = np.empty(tokens, np.int8), np.empty(tokens, np.int64), np.empty(tokens, np.int64)
    return Tape(text, kinds, starts, stops, np.empty(tokens, np.int32), np.zeros(tokens, np.int64))


def read_tape(path: Path, data: bytes, json: bool) -> Tape:
    """Flatten a whole text; raises UserError naming file, line and reason where it is not well-formed."""
    text = np.frombuffer(data, np.uint8)
    tape = _room(text, len(text) // 4 + 16)
    problem, position, count = _scan(text, json, tape)
    if problem == -1:
        tape = _room(text, len(text) + 16)
        problem, position, count = _scan(text, json, tape)
    if problem:
        raise UserError(f"{path}, line {line_of(text, position)}: {_PROBLEMS[problem]}.")
    kind, start, stop = tape.kind[:count], tape.start[:count], tape.stop[:count]
    return Tape(text, kind, start, stop, tape.after[:count], tape.number[:count])
