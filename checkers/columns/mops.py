"""Micro-operations of any operations as flat columns: one row each, with what a model needs of its operation.

Evaluated on Arrow batches of the history table, by both engines with the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.batches import (
    BatchLists,
    BatchMops,
    Bools,
    coded,
    completions,
    ints,
    outcomes,
    read_elements,
    spans,
    text_codes,
    valid,
)
from checkers.columns.chains import batch_lists
from checkers.columns.codes import FAIL, NEVER, NIL, OK, UNSUPPORTED, Ints, began_as, unsupported
from checkers.columns.dense import end_to_end, shortened, spread, taken, together
from checkers.findings import Key
from checkers.source import KEY_COLUMNS
from harness.history.columns import LATER_COLUMNS

ADDRESS: Final = KEY_COLUMNS

STRONG_MODES: Final = frozenset({"strong", "linearizable", "serial", "quorum", "all", "each_quorum"})
"""Modes whose reads promise the latest acknowledged data, in lower case; no mode at all is one of them. LOCAL_QUORUM is
not: it promises nothing across data centres."""

Columns: TypeAlias = dict[str, npt.NDArray[np.int64]]
"""Rows by column name: ADDRESS, `invoke`, `complete` (NEVER where the outcome is unknown), `place` (of the
micro-operation in its operation), `size` (how many the operation has), `kind`, `status` (OK, INFO, FAIL), `value` (NIL
for nil) and the extras asked for."""

_PLACES: Final = 1 << 12
"""Lists of one operation that names of chains tell from each other; an operation that reads more is refused, for lists
of equal names would be taken for one."""

_BASE: Final = (*ADDRESS, "invoke", "complete", "place", "size", "kind", "status", "value")


def key_of(rows: Columns, row: int) -> Key:
    """The object that a row is about."""
    return Key.of(rows[name][row] for name in ADDRESS)


FEED_EVENTS: Final = frozenset({"feed-row", "feed-resolved"})
"""What change feeds told (`change_feed`): nobody's reads and writes."""

HELD: Final = frozenset({"hold"})
"""What transactions lay, and nobody reads; what they commit is written by another operation."""


TextCodes: TypeAlias = tuple[tuple[str, ...], Mapping[tuple[str | None, ...], int]]
"""Columns of texts, and a number for each combination of them."""


@dataclass(frozen=True, slots=True)
class MopProjection:
    """Which micro-operations a model knows (`kinds`, by name), which extras it reads, which operations' `f` it is about
    (None: all of clients) or not about (`skipped_fs`), and whether writes of failed operations matter.

    Extras are columns of the history table, with NIL for null, and `session` (-1 - process where the history names
    none), `strong` (1 for reads of STRONG_MODES), `first` and `last` (of `bound_kinds`: the rows they are about, NIL
    and NEVER where open; where a page's limit ended it, its end is the last).

    All rows of operations whose `f` is in `op_kinds` get that kind, whoever's they are; one without micro-operations
    gives one row all the same.

    With `list_kinds` reads of lists are understood: they get the first kind, their length as `value` and the name of
    their chain (`columns.chains`) as `chain`; rows of the second kind are the chains' elements (`value`, in order of
    `place`), for the same address.

    Of `bound_kinds` (`delete` and `page`, `history.ops`) the list is the bounds. `codes` are extras that number texts:
    by name the columns and the number of each combination of their texts, -1 for others. `initial` is what registers
    begin as (`columns.codes.began_as`). Where operations are `single`, on one object each, one that succeeded without
    any micro-operation, as an answer `{}` comes to, is none that the model knows.
    """

    kinds: Mapping[str, int]
    extras: tuple[str, ...] = ()
    fs: frozenset[str] | None = None
    list_kinds: tuple[int, int] | None = None
    keep_failed: bool = True
    skipped_fs: frozenset[str] = FEED_EVENTS
    op_kinds: Mapping[str, int] = field(default_factory=dict)
    bound_kinds: frozenset[int] = frozenset()
    codes: Mapping[str, TextCodes] = field(default_factory=dict)
    initial: int | None = None
    single: bool = False

    @property
    def columns(self) -> list[str]:
        """The Parquet columns that are read."""
        leaves = [f"mops.list.element.{name}" for name in ("f", *ADDRESS, "value", "expected")]
        leaves.append("mops.list.element.values.list.element")
        sources = {"strong": "mode", "expected": "f"}
        extra = [sources.get(name, name) for name in self.extras if name not in ("first", "last")]
        extra += [column for columns, _ in self.codes.values() for column in columns]
        return list(dict.fromkeys(["invoke_index", "complete_index", "type", "process", "f", "value", *leaves, *extra]))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the rows."""
        return (*_BASE, *self.extras, *self.codes, *(("chain",) if self.list_kinds else ()))


def _combined(batch: pa.RecordBatch, wanted: TextCodes) -> Ints:
    """The number of each row's combination of texts, -1 for others."""
    names, codes = wanted
    ids = np.zeros(batch.num_rows, np.int64)
    texts: list[tuple[str | None, ...]] = [()]
    for name in names:
        known = name in batch.schema.names
        column = batch.column(name) if known else pa.nulls(batch.num_rows, pa.string())
        mine, known_words = text_codes(column)
        words: list[str | None] = [*known_words, None]
        ids = ids * len(words) + np.where(mine < 0, len(known_words), mine)
        texts = [(*before, word) for before in texts for word in words]
    return np.array([codes.get(text, -1) for text in texts], np.int64)[ids]


def _strong(column: pa.Array) -> Ints:
    codes, names = text_codes(column)
    return np.array([int(str(name).lower() in STRONG_MODES) for name in names] + [1])[codes]


def _extra(batch: pa.RecordBatch, name: str) -> Ints:
    if name == "strong":
        return _strong(batch.column("mode"))
    if name == "session":
        session = batch.column("session")
        return np.where(valid(session), ints(session), -1 - ints(batch.column("process")))
    if name in LATER_COLUMNS and name not in batch.schema.names:
        return np.full(batch.num_rows, NIL)
    return ints(batch.column(name), NIL)


def _chosen(batch: pa.RecordBatch, projection: MopProjection) -> Bools:
    """The operations that the model is about."""
    fs = batch.column("f")
    if projection.fs is not None:
        return coded(fs, dict.fromkeys(projection.fs, 1), 0) == 1
    clients = (ints(batch.column("process")) >= 0) | (_op_kinds(batch, projection) >= 0)
    return clients & (coded(fs, dict.fromkeys(projection.skipped_fs, 1), 0) == 0)


def _op_kinds(batch: pa.RecordBatch, projection: MopProjection) -> Ints:
    """The kind that an operation's `f` gives to its rows, or -1."""
    if not projection.op_kinds:
        return np.full(batch.num_rows, -1)
    return coded(batch.column("f"), projection.op_kinds, -1)


def flatten_mops(batch: pa.RecordBatch, projection: MopProjection) -> Columns:
    """The rows of a batch, in order of invocation and place; reads that did not complete are left out.

    An operation without micro-operations whose value did not fit gives one row of kind UNSUPPORTED.
    """
    elements, chosen, op_kind = read_elements(batch, least=1), _chosen(batch, projection), _op_kinds(batch, projection)
    status, lists = outcomes(batch), spans(elements.columns["values"])
    empty = valid(batch.column("value")) | (op_kind >= 0) | ((status == OK) & projection.single)
    unfit = chosen & (elements.size == 0) & empty
    sizes = np.where(unfit, 1, np.where(chosen, elements.size, 0))
    place, op = spread(np.zeros(len(sizes), np.int64), sizes)
    at = np.minimum(elements.start[op] + place, len(elements.columns["f"]) - 1)
    rows: Columns = dict(zip(ADDRESS, (part[at] for part in elements.address()), strict=True))
    rows |= {"invoke": ints(batch.column("invoke_index"))[op], "complete": completions(batch, status)[op]}
    rows |= {"place": place, "size": elements.size[op], "kind": _kinds(elements, lists, projection)[at]}
    rows["status"] = status.astype(np.int64)[op]
    rows["value"] = began_as(elements.ints("value"), projection.initial)[at]
    rows["kind"][unfit[op]] = UNSUPPORTED
    rows["kind"] = np.where(op_kind[op] >= 0, op_kind[op], rows["kind"])
    for name in (*ADDRESS, "value"):
        rows[name][unfit[op]] = NIL if name == "value" else 0
    for name in projection.extras:
        if name in ("first", "last"):
            rows[name] = _bounds(lists, name == "last")[at]
        elif name == "expected":
            rows[name] = began_as(elements.ints(name), projection.initial)[at]
        else:
            rows[name] = _extra(batch, name)[op]
    rows |= {name: _combined(batch, codes)[op] for name, codes in projection.codes.items()}
    rows = _without_noise(rows, projection, at)
    at = rows.pop("at")
    if projection.list_kinds is not None:
        rows = _with_lists(rows, lists, at, projection.list_kinds)
    return {name: shortened(column) for name, column in rows.items()}


def _kinds(elements: BatchMops, lists: BatchLists, projection: MopProjection) -> Ints:
    kind = coded(elements.columns["f"], projection.kinds, UNSUPPORTED)
    for name in ("value", "expected"):
        kind[elements.ints(name, 0) == NIL] = UNSUPPORTED
    if projection.list_kinds is None:
        bound, sizes = np.isin(kind, list(projection.bound_kinds)), lists.stop - lists.start
        kind[np.where(bound, (sizes != 2) & (sizes != 4), lists.listed)] = UNSUPPORTED
    else:
        kind[lists.listed & (kind == projection.kinds["r"])] = projection.list_kinds[0]
    return kind


def _bounds(lists: BatchLists, last: bool) -> Ints:
    """The first or the last row that the bounds in a list say; see `MopProjection`."""
    if not len(lists.items):
        return np.full(len(lists.start), NEVER if last else NIL)
    at = np.minimum(lists.start + last, len(lists.items) - 1)
    if not last:
        return lists.items[at]
    items = np.where(lists.items == NIL, NEVER, lists.items)
    asked, end = items[at], items[np.minimum(lists.start + 3, len(items) - 1)]
    return np.where((lists.stop - lists.start == 4) & (end != NEVER), end, asked)


def _with_lists(rows: Columns, values: BatchLists, at: Ints, kinds: tuple[int, int]) -> Columns:
    """The rows with list reads by chain and length, and behind them the chains' elements."""
    rows["chain"] = np.full(len(at), -1)
    read = np.flatnonzero(rows["kind"] == kinds[0])
    if not len(read):
        return rows
    keys, count = together([rows[name][read] for name in ADDRESS])
    lists = batch_lists(values, at[read], keys, count)
    rows["kind"][read[rows["place"][read] >= _PLACES]] = UNSUPPORTED
    name = rows["invoke"][read] * _PLACES + np.minimum(rows["place"][read], _PLACES - 1)
    sizes = lists.stop - lists.start
    rows["value"][read], rows["chain"][read] = sizes, name[lists.standing]
    chains = np.unique(lists.standing)
    places, which = spread(lists.start[chains], lists.stop[chains])
    of = chains[which]
    more = {column: array[read[of]] for column, array in rows.items()}
    more |= {"kind": np.full(len(of), kinds[1]), "place": places - lists.start[of], "value": lists.items[places]}
    return {column: np.concatenate((array, more[column])) for column, array in rows.items()}


def _without_noise(rows: Columns, projection: MopProjection, at: Ints) -> Columns:
    rows["at"] = at
    reads = (rows["kind"] == projection.kinds.get("r", -1)) | (rows["kind"] == (projection.list_kinds or (-1,))[0])
    keep = ~reads | (rows["status"] == OK)
    if not projection.keep_failed:
        keep &= rows["status"] != FAIL
    return rows if keep.all() else selected(rows, keep)


def selected(rows: Columns, chosen: npt.NDArray[Any]) -> Columns:
    """The chosen rows (numbers or flags)."""
    return {name: taken(column, chosen) for name, column in rows.items()}


def joined(parts: Iterable[Columns], projection: MopProjection) -> Columns:
    """The parts one after the other."""
    every = list(parts)
    if not every:
        return {name: np.empty(0, np.int64) for name in projection.names}
    return {name: end_to_end([part[name] for part in every]) for name in projection.names}


def unsupported_rows(rows: Columns, problem: str) -> tuple[tuple[int, str], ...]:
    """The first operations that the model does not know, with what is wrong with them."""
    return unsupported(rows["invoke"][rows["kind"] == UNSUPPORTED], problem)
