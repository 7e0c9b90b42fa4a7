"""The values of operations as Jepsen writes them, in EDN: the other direction of `checkers.importers.operations`.

Operations on one object each have the plain value (`3`, `[old new]` for a compare-and-set, `[1 2]`), or `[key value]`
where a history has several objects (`jepsen.independent`). Operations of several micro-operations are transactions,
`[[:r key [1 2]] [:append key 3]]`, or maps `{key value}` where nothing in the history writes (as bank has them). Of
several independent objects that are taken apart further, both: `[outer [[:w inner 1]]]`. A key is its partition, or
`[partition row column table]` where the others are not all 0. A list of two that
is asked for and no pair of key and value is written in round brackets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.codes import NIL
from checkers.importers.operations import SHORT
from checkers.importers.tape import COMPLETE, EDN_CLASSES, MOST_DEPTH, VECTOR, empty_tape, scan
from checkers.source import KEY_COLUMNS, Source
from harness.errors import UserError
from harness.history.columns import FOREIGN_BASE

_READS: Final = frozenset({"r", "read", "get", "dequeue", "drain", "generate", "poll", "peek", "scan", "page"})
"""What is asked without a value; all else is asked with the value that it has in the end."""

_WRITES: Final = frozenset({"w", "append", "cas"})

_SHAPE_COLUMNS: Final = ("process", "f", *(f"mops.list.element.{name}" for name in ("f", *KEY_COLUMNS)))


class MopRow(NamedTuple):
    """One micro-operation of the table."""

    f: str
    table: int
    partition: int
    row: int
    column: int
    value: int | None
    expected: int | None
    values: list[int | None] | None


@dataclass(frozen=True, slots=True)
class Form:
    """How the values of a whole history are written: as pairs of an object's key and the value proper; naming within
    the value what each micro-operation is about; as maps where that can be."""

    keyed: bool
    within: bool
    maps: bool


def form_of(source: Source) -> Form:
    """The form in which all client operations of a history can be said."""
    named, addressed, names = source.independent, False, set[str]()
    for batch in source.batches(_SHAPE_COLUMNS):
        rows = batch.filter(pc.greater_equal(batch.column("process"), 0))
        mops = rows.column("mops")
        parents, flat = pc.list_parent_indices(mops), pa.Table.from_struct_array(pc.list_flatten(mops))
        fs = rows.column("f").cast(pa.string()).take(parents)
        pairs = pa.table({"f": fs, "mop": flat.column("f")}).group_by(["f", "mop"]).aggregate([]).to_pylist()
        names |= {pair["mop"] for pair in pairs}
        named |= any(pair["mop"] != SHORT.get(pair["f"], pair["f"]) for pair in pairs)
        named |= bool(len(parents)) and pc.max(pc.list_value_length(mops)).as_py() > 1
        addressed |= any(pc.any(pc.not_equal(flat.column(part), 0)).as_py() for part in KEY_COLUMNS)
    return Form(source.independent or (addressed and not named), named, not names & _WRITES)


class Values:
    """Writes the values of one history's operations."""

    def __init__(self, form: Form, scalars: Scalars, independent: bool) -> None:
        self._form, self._scalar, self._vector = form, scalars.text, scalars.vector
        self._independent = independent

    def has_key(self, mops: Sequence[MopRow] | None, plain: str | None) -> bool:
        """Whether an operation has a key, if all must have one."""
        if mops is not None or not self._form.keyed:
            return True
        value = None if plain is None else msgspec.json.decode(plain)
        return isinstance(value, list) and len(value) == 2

    def found(self, f: str, mops: Sequence[MopRow] | None, plain: str | None) -> str | None:
        """The value of an operation, None for none; `plain` is JSON for what has no micro-operations."""
        if mops is None:
            return None if plain is None else data(msgspec.json.decode(plain))
        return self._keyed(mops, self._content(mops, SHORT.get(f, f), None))

    def asked(self, f: str, mops: Sequence[MopRow] | None, plain: str | None, answered: bool) -> str | None:
        """The value of its invocation: reads that were `answered` are nil in it."""
        if mops is None:
            return None if plain is None else self._plain(msgspec.json.decode(plain), answered and f in _READS)
        own = SHORT.get(f, f)
        text = self._content(mops, own, f if answered else None)
        values = mops[0].values if self._is_alone(mops, own) else None
        is_two = values is not None and len(values) == 2 and text != "nil"
        return f"({text[1:-1]})" if is_two and not self._form.keyed else self._keyed(mops, text)

    def _plain(self, value: Any, nil: bool) -> str:
        """Of a value that fits no micro-operations."""
        is_two = isinstance(value, list) and len(value) == 2
        if nil:
            return f"[{data(value[0])} nil]" if self._form.keyed and is_two else "nil"
        text = data(value)
        return f"({text[1:-1]})" if is_two and not self._form.keyed else text

    def _keyed(self, mops: Sequence[MopRow], content: str) -> str:
        if not self._form.keyed:
            return content
        key = "nil" if not mops else self._scalar(mops[0].partition) if self._independent else self._address(mops[0])
        return f"[{key} {content}]"

    def _content(self, mops: Sequence[MopRow], own: str, asked: str | None) -> str:
        """The value proper; `asked` is the name of an operation that is yet to be answered."""
        nil = asked in _READS
        if self._is_alone(mops, own):
            return "nil" if nil else self._bare(mops[0])
        if self._is_map(mops, own):
            return "nil" if nil else self._map(mops)
        return self._transaction(mops, asked is not None)

    def _is_alone(self, mops: Sequence[MopRow], own: str) -> bool:
        """Whether an operation's one micro-operation is said without its name and, in the value proper, its key."""
        if len(mops) != 1 or mops[0].f != own:
            return False
        mop = mops[0]
        unanswered = mop.value is None and mop.values is None and mop.expected is None
        return not self._form.within or (unanswered and self._inner(mop) == "0")

    def _inner(self, mop: MopRow) -> str:
        return self._scalar(mop.row) if self._independent else self._address(mop)

    def _address(self, mop: MopRow) -> str:
        partition = self._scalar(mop.partition)
        if mop.row or mop.column or mop.table:
            return f"[{partition} {mop.row} {mop.column} {mop.table}]"
        return partition

    def _bare(self, mop: MopRow) -> str:
        if mop.f == "cas":
            return self._vector((mop.expected, mop.value))
        return self._scalar(mop.value) if mop.values is None else self._vector(mop.values)

    def _is_map(self, mops: Sequence[MopRow], own: str) -> bool:
        if not mops:
            return True
        keys = {self._inner(mop) for mop in mops}
        plain = all(mop.f == own and mop.values is None for mop in mops) and not any(key[0] == "[" for key in keys)
        return self._form.maps and plain and len(keys) == len(mops)

    def _map(self, mops: Iterable[MopRow]) -> str:
        return "{" + ", ".join(f"{self._inner(mop)} {self._scalar(mop.value)}" for mop in mops) + "}"

    def _transaction(self, mops: Iterable[MopRow], asked: bool) -> str:
        parts = (
            f"[{name(mop.f)} {self._inner(mop)} {'nil' if asked and mop.f in _READS else self._bare(mop)}]"
            for mop in mops
        )
        return "[" + " ".join(parts) + "]"


_WORD: Final = re.compile(r"[A-Za-z*!_?$%&=<>+-][\w*!_?$%&=<>+.#-]*(?:/[A-Za-z*!_?$%&=<>+-][\w*!_?$%&=<>+.#-]*)?", re.A)
_INTEGER: Final = re.compile(r"([+-]?(?:0|[1-9]\d*))N?", re.A)
_NUMBER: Final = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?[MN]?", re.A)
_SYMBOLS: Final = ("nil", "true", "false")


def name(text: str) -> str:
    """The name of an operation as a keyword; as a string where no keyword is called so."""
    return f":{text}" if _WORD.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """A text as a string of EDN."""
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
        """One value as EDN."""
        if value is None:
            return "nil"
        return str(value) if value > FOREIGN_BASE else self._forms.get(value, str(value))

    def vector(self, values: Sequence[int | None]) -> str:
        """Several values as a vector of EDN."""
        return "[" + " ".join(map(self.text, values)) + "]"
