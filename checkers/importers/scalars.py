"""Turns tokens into numbers and texts: equal texts are numbered alike, values that are no integers interned."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.codes import NIL
from checkers.compiled import lean
from checkers.importers.tape import FALSE, INTEGER, KEYWORD, LIST, MAP, NULL, SET, STRING, TRUE, VECTOR, Tape
from harness.errors import UNDECODABLE
from harness.history.columns import FOREIGN_BASE

Ints = npt.NDArray[np.int64]

_FIRST_SLOTS: Final = 1 << 12
_TOO_MANY: Final = -1


class Interner:
    """Gives foreign values their ids, for a whole history; `values` are their texts in order, as the schema's metadata
    keeps them: strings as they are, keywords with their colon. Values of different kinds differ, whatever their text.
    """

    def __init__(self) -> None:
        self._ids: dict[tuple[bool, str], int] = {}

    def id(self, tape: Tape, token: int) -> int:
        """The id of a token's value."""
        key = (bool(tape.kind[token] == STRING), text_of(tape, token))
        return self._ids.setdefault(key, FOREIGN_BASE - 1 - len(self._ids))

    def nil(self) -> int:
        """The id of nil where it is a key."""
        return self._ids.setdefault((False, "nil"), FOREIGN_BASE - 1 - len(self._ids))

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(text for _, text in self._ids)

    @property
    def strings(self) -> tuple[bool, ...]:
        """Which of the values are strings."""
        return tuple(string for string, _ in self._ids)


def text_of(tape: Tape, token: int) -> str:
    """A token as text: strings unquoted, keywords with their colon, the rest as written."""
    raw = tape.raw(token)
    if tape.kind[token] == STRING:
        try:
            return str(msgspec.json.decode(raw))
        except UNDECODABLE:
            return raw[1:-1]
    return raw


def name_of(tape: Tape, token: int) -> str:
    """A name such as an operation's `f`: the same for a keyword and a string."""
    text = text_of(tape, token)
    return text[1:] if tape.kind[token] == KEYWORD else text


@lean
def _code(tape, token, slots, firsts, count):
    """The number of a token's text; count itself if it is new, for which room is taken in `slots` and `firsts`."""
    start, size = tape.start[token], tape.stop[token] - tape.start[token]
    digest = np.uint64(14695981039346656037)
    for i in range(start, start + size):
        digest = (digest ^ np.uint64(tape.text[i])) * np.uint64(1099511628211)
    mask = np.uint64(slots.shape[0] - 1)
    slot = (digest ^ (digest >> np.uint64(29))) & mask
    while slots[slot] >= 0:
        other = tape.start[firsts[slots[slot]]]
        if tape.stop[firsts[slots[slot]]] - other == size:
            same = True
            for k in range(size):
                if tape.text[start + k] != tape.text[other + k]:
                    same = False
                    break
            if same:
                return slots[slot]
        slot = (slot + np.uint64(1)) & mask
    if count < firsts.shape[0]:
        slots[slot], firsts[count] = count, token
    return count


@lean
def _number(tape, tokens, codes, slots, firsts):
    count = 0
    for i in range(tokens.shape[0]):
        codes[i] = -1
        if tokens[i] >= 0:
            codes[i] = _code(tape, tokens[i], slots, firsts, count)
            if codes[i] == count:
                if count == firsts.shape[0]:
                    return _TOO_MANY
                count += 1
    return count


@lean
def _intern(tape, roots, base, nil, codes, slots, firsts):
    """Number the texts of all atoms below the roots that are no plain integers, each in `codes`; how many there are."""
    count = 0
    for root in roots:
        if root < 0:
            continue
        for token in range(root, tape.after[root]):
            kind = tape.kind[token]
            if kind >= VECTOR or (kind == INTEGER and tape.number[token] > base):
                continue
            if kind == NULL:
                tape.number[token] = nil
                continue
            code = _code(tape, token, slots, firsts, count)
            if code == count:
                if count == firsts.shape[0]:
                    return _TOO_MANY
                count += 1
            codes[token] = code
    return count


def _room(size: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    return np.full(size, -1, np.int32), np.empty(size // 2, np.int32)


def distinct(tape: Tape, tokens: Ints) -> tuple[Ints, Ints]:
    """Numbers of the tokens by their text (-1 for tokens of -1), and the first token of each number."""
    codes, size = np.empty(len(tokens), np.int64), _FIRST_SLOTS
    while True:
        slots, firsts = _room(size)
        count = _number(tape, tokens, codes, slots, firsts)
        if count != _TOO_MANY:
            return codes, firsts[:count].astype(np.int64)
        size *= 4


def intern_scalars(tape: Tape, roots: Ints) -> Ints:
    """Set `tape.number` of all atoms below the roots, for this tape alone: integers are themselves, nil is NIL, all
    else is FOREIGN_BASE - 1 - its place among the first tokens of each text, which are returned."""
    size = _FIRST_SLOTS
    codes = np.full(len(tape.kind), -1, np.int32)
    while True:
        slots, firsts = _room(size)
        count = _intern(tape, roots, FOREIGN_BASE, NIL, codes, slots, firsts)
        if count != _TOO_MANY:
            break
        size *= 4
    if count:
        foreign = np.flatnonzero(codes >= 0)
        tape.number[foreign] = FOREIGN_BASE - 1 - codes[foreign].astype(np.int64)
    return firsts[:count].astype(np.int64)


def globally(tape: Tape, firsts: Ints, interner: Interner, columns: tuple[Ints, ...]) -> None:
    """Replace the ids that `intern_scalars` gave on a tape by those of the whole history, in order of the text."""
    foreign = [np.flatnonzero((column <= FOREIGN_BASE) & (column != NIL)) for column in columns]
    codes = [FOREIGN_BASE - 1 - column[rows] for column, rows in zip(columns, foreign, strict=True)]
    ids = np.zeros(len(firsts), np.int64)
    for code in np.unique(np.concatenate(codes)).tolist():
        ids[code] = interner.id(tape, int(firsts[code]))
    for column, rows, code in zip(columns, foreign, codes, strict=True):
        column[rows] = ids[code]


def texts(tape: Tape, tokens: Ints, name: bool = False) -> pa.Array:
    """The tokens' texts (or names), null for none and nil."""
    stated = np.where((tokens >= 0) & (tape.kind[np.maximum(tokens, 0)] != NULL), tokens, -1) if len(tokens) else tokens
    if (stated < 0).all():
        return pa.nulls(len(tokens), pa.string())
    codes, firsts = distinct(tape, stated)
    say = name_of if name else text_of
    words = pa.array([say(tape, int(token)) for token in firsts], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=codes < 0), words).cast(pa.string())


def as_json(tape: Tape, token: int) -> Any:
    """A form as plain data: for values that fit no column."""
    kind = int(tape.kind[token])
    if kind in (VECTOR, LIST):
        return [as_json(tape, child) for child in children(tape, token)]
    if kind == SET:  # in one order, so that equal sets are told alike
        return sorted((as_json(tape, child) for child in children(tape, token)), key=msgspec.json.encode)
    if kind == MAP:
        items = children(tape, token)
        return {str(as_json(tape, k)): as_json(tape, v) for k, v in zip(items[::2], items[1::2], strict=True)}
    if kind == INTEGER:
        return int(tape.raw(token).rstrip("N"))
    return {NULL: None, TRUE: True, FALSE: False}[kind] if kind <= FALSE else text_of(tape, token)


def children(tape: Tape, token: int) -> list[int]:
    """The tokens directly inside a collection."""
    found, child = [], token + 1
    while child < tape.after[token]:
        found.append(child)
        child = int(tape.after[child])
    return found
