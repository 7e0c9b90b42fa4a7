"""Turns tokens into numbers: texts are interned, integers that could be mistaken for interned ones too."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from checkers.importers.tape import FALSE, INTEGER, KEYWORD, LIST, MAP, NULL, OTHER, SET, STRING, TRUE, VECTOR, Tape
from checkers.kernels.columns import NIL
from harness.columns import FOREIGN_BASE

Ints = npt.NDArray[np.int64]


class Interner:
    """Gives foreign values their ids; `values` are theirs, in order, as the schema's metadata keeps them.

    Strings stay as they are, keywords keep their colon, so that the two differ.
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id(self, text: str) -> int:
        """The id of a foreign value."""
        return self._ids.setdefault(text, FOREIGN_BASE - 1 - len(self._ids))

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(self._ids)


def text_of(tape: Tape, token: int) -> str:
    """A token as text: strings unquoted, keywords with their colon, the rest as written."""
    raw = tape.raw(token)
    if tape.kind[token] == STRING:
        try:
            return str(msgspec.json.decode(raw))
        except msgspec.DecodeError:
            return raw[1:-1]
    return raw


def name_of(tape: Tape, token: int) -> str:
    """A name such as an operation's `f`: the same for a keyword and a string."""
    text = text_of(tape, token)
    return text[1:] if tape.kind[token] == KEYWORD else text


def intern_scalars(tape: Tape, tokens: Ints, interner: Interner) -> None:
    """Set `tape.number` of these atoms: integers are themselves, nil is NIL, all else is interned."""
    kinds = tape.kind[tokens]
    tape.number[tokens[kinds == NULL]] = NIL
    large = (kinds == INTEGER) & (tape.number[tokens] <= FOREIGN_BASE)
    foreign = tokens[large | np.isin(kinds, (STRING, KEYWORD, OTHER, TRUE, FALSE))]
    for token in foreign.tolist():
        tape.number[token] = interner.id(text_of(tape, token))


def as_json(tape: Tape, token: int) -> Any:
    """A form as plain data: for values that fit no column."""
    kind = int(tape.kind[token])
    if kind in (VECTOR, LIST, SET):
        return [as_json(tape, child) for child in children(tape, token)]
    if kind == MAP:
        items = children(tape, token)
        return {str(as_json(tape, k)): as_json(tape, v) for k, v in zip(items[::2], items[1::2], strict=True)}
    if kind == INTEGER:
        return int(tape.number[token]) if tape.number[token] > FOREIGN_BASE else int(tape.raw(token).rstrip("N"))
    return {NULL: None, TRUE: True, FALSE: False}[kind] if kind <= FALSE else text_of(tape, token)


def children(tape: Tape, token: int) -> list[int]:
    """The tokens directly inside a collection."""
    found, child = [], token + 1
    while child < tape.after[token]:
        found.append(child)
        child = int(tape.after[child])
    return found
