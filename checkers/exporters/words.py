"""Plain data, names and foreign values as EDN text (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from checkers.columns.codes import NIL
from checkers.importers.tape import COMPLETE, EDN_CLASSES, MOST_DEPTH, VECTOR, empty_tape, scan
from checkers.source import Source
from harness.errors import UserError
from harness.history.columns import FOREIGN_BASE

_WORD: Final = re.compile(r"[A-Za-z*!_?$%&=<>+-][\w*!_?$%&=<>+.#-]*(?:/[A-Za-z*!_?$%&=<>+-][\w*!_?$%&=<>+.#-]*)?", re.A)
_INTEGER: Final = re.compile(r"([+-]?(?:0|[1-9]\d*))N?", re.A)
_NUMBER: Final = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?[MN]?", re.A)
_SYMBOLS: Final = ("nil", "true", "false")


def name(text: str) -> str:
    """The name of an operation as a keyword; as a string where no keyword is called so."""
    return f":{text}" if _WORD.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """A string."""
    return msgspec.json.encode(text).decode()


def is_keyword(text: str) -> bool:
    """Whether a text is a keyword with its colon."""
    return text[:1] == ":" and _WORD.fullmatch(text, 1) is not None


def is_vector(text: str) -> bool:
    """Whether a text is one whole vector on one line and nothing else."""
    if text[:1] != "[" or "\n" in text or "\r" in text:
        return False
    raw = np.frombuffer(text.encode(), np.uint8)
    tape = empty_tape(raw, len(raw) + 1, 1)
    stack, children = np.empty(MOST_DEPTH, np.int64), np.empty(MOST_DEPTH, np.int64)
    problem, _, _, count = scan(tape, EDN_CLASSES, stack, children, True)
    return bool(problem == COMPLETE and tape.kind[0] == VECTOR and tape.after[0] == count and tape.stop[0] == len(raw))


def data(value: Any) -> str:
    """Plain data; strings that look like keywords are keywords."""
    if isinstance(value, str):
        return value if is_keyword(value) else quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{data(key)} {data(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + " ".join(map(data, value)) + "]"
    return msgspec.json.encode(value).decode() if value is not None else "nil"


def foreign_forms(source: Source) -> tuple[str, ...]:
    """The values of a source's dictionary; where its format does not say which of them were strings, by their looks.

    Raises UserError where two of them can't be told apart then.
    """
    texts, strings = source.dictionary, source.strings
    if strings:
        return tuple(quoted(text) if string else text for text, string in zip(texts, strings, strict=True))
    forms = tuple(text if _looks_bare(text) else quoted(text) for text in texts)
    twice = [form for form, count in Counter(forms).items() if count > 1]
    if twice:
        raise UserError(f"{source.path} can't be exported: its dictionary has {twice[0]} twice, as different values.")
    return forms


def _looks_bare(text: str) -> bool:
    """Whether a foreign value is no string by its looks. A small integer would not be foreign, so it is one."""
    integer = _INTEGER.fullmatch(text)
    if integer and FOREIGN_BASE < int(integer[1]) < 2**63:
        return False
    return is_keyword(text) or text in _SYMBOLS or _NUMBER.fullmatch(text) is not None


class Scalars:
    """Integers of the history table as EDN: foreign ones as their history wrote them, None and NIL as nil."""

    def __init__(self, forms: Sequence[str]) -> None:
        self._forms = {FOREIGN_BASE - 1 - place: form for place, form in enumerate(forms)} | {NIL: "nil"}

    def text(self, value: int | None) -> str:
        """One value."""
        if value is None:
            return "nil"
        return str(value) if value > FOREIGN_BASE else self._forms.get(value, str(value))

    def vector(self, values: Sequence[int | None]) -> str:
        """Several values."""
        return "[" + " ".join(map(self.text, values)) + "]"
