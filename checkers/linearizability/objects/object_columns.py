"""The kinds of objects, their operations, and the columns in which the search reads these: some that all kinds share,
and for each kind its own. A column never means one thing for one kind and something else for another. Then what all
models share on the way from micro-operations to these columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER, Bools, Codes, Ids, Ints
from checkers.columns.dense import together
from checkers.columns.mops import ADDRESS, Columns
from checkers.columns.projection import KeyedOps

MUTEX, FIFO, BAG, SET, STRING, ROW, LOCK = range(7)
"""Kinds of objects."""

ACQUIRE, RELEASE, ENQUEUE, DEQUEUE, TAKE, IS_EMPTY, ADD, REMOVE, MEMBERS, PUT, APPEND, GET, TXN, LOOK, REFUSED = range(
    15
)
"""Kinds of operations. TAKE is a dequeue of nobody knows what; LOOK a transaction of reads only; REFUSED a transaction
whose compare-and-set found another value."""

OBSERVERS: Final = (IS_EMPTY, MEMBERS, GET, LOOK, REFUSED)

R, W, C = range(3)
"""What a transaction does to a register: its items are (register, one of these, value, expected)."""

ITEM: Final = 4

UNSEEN: Final = 0
"""The node of all strings that are no prefix of a read one."""

FADED: Final = 1
"""The symbol of whatever nobody looks at any more in a register."""

ABSENT: Final[Any] = None
"""Instead of the columns of another kind."""


OWNED, REENTRANT, FENCED, PERMITS = range(4)
"""Rules of a LOCK: who holds it alone releases it; may acquire it again; gets a higher token each time; or it has
permits, and no owner."""


class LockColumns(NamedTuple):
    """Of locks with a `rule`. A state is (token * (`most` + 1) + count) * `owners` + owner: nobody (0) or a number
    below `owners`, how often it is held or how many permits are taken, at most `most`, and the level of the last token.
    By row the `owner`, the level of the token given (`fence`, 0: not known) and how many permits (`amount`)."""

    rule: int
    owners: int
    most: int
    owner: Ints
    fence: Ints
    amount: Ints


class QueueColumns(NamedTuple):
    """Of queues and bags, by element.

    `first_out` is the first invocation of a dequeue that may return it; `out_by` the event by which known dequeues must
    have taken all there is of it, NEVER if they need not; `last_before` the last invocation of what has to be over
    before it can be dequeued: of an enqueue of what must have been dequeued by then, or of a look that finds nothing.
    """

    first_out: Ints
    out_by: Ints
    last_before: Ints


class SetColumns(NamedTuple):
    """Of sets. By row: `members[first:last]` are the elements that it shows, sorted, if it is a read; what it shows
    twice is there twice. By element: `removed` is 1 if it is ever removed, `last_lacking` the last invocation of a read
    without it, or -1."""

    first: Ints
    last: Ints
    members: Ids
    removed: Ints
    last_lacking: Ints


class StringColumns(NamedTuple):
    """Of strings. By object: `root` is the node of the empty string. By node: `rank` is its place among the object's,
    sorted by their strings, and `last` that of the last one that begins with its string; appending the piece
    `edge_piece[e]`, for e in `edge_first[n]:edge_first[n + 1]`, leads to `edge_target[e]`. By row: `next_put` is the
    first invocation of a put after it completes, `next_get` the first completion of a get that begins after that, and
    `next_first:next_last` are the gets that do so before that completion, of which `get_begin` is the invocation and
    `get_node` what they saw."""

    root: Ints
    rank: Ints
    last: Ints
    edge_first: Ints
    edge_piece: Ids
    edge_target: Ids
    next_put: Ints
    next_get: Ints
    next_first: Ints
    next_last: Ints
    get_begin: Ints
    get_node: Ids


class RowColumns(NamedTuple):
    """Of rows of registers. By object: `width` is how many registers there are. By row: `items[first:last]` is what a
    transaction does, ITEM numbers an item. By symbol, which is a value of one register (0 nil, FADED whatever nobody
    looks at any more): `last_needed` and `last_written` are the last invocations of a definite transaction that has to
    find it and of one that writes it, or -1; `first_needed` is the first completion of one that has to find it if only
    one writes it, else NEVER; `gone` the last completion of what depends on it."""

    width: Ints
    first: Ints
    last: Ints
    items: Ids
    last_needed: Ints
    last_written: Ints
    first_needed: Ints
    gone: Ints


class ObjectOps(NamedTuple):
    """Operations of many objects of the kind `model`; object k owns the rows `offsets[k]:offsets[k + 1]`, in order of
    `invoke`.

    What all kinds share: `kind` and `complete` (NEVER where it is unknown) of a row; its `value`, the element of a
    queue or set, the node that a put leads to or a get saw, the piece appended; `order` lists each object's rows by
    completion; rows of an object that are `alike` do the same. The rest is ABSENT but for the kind at hand. numba
    compiles the search for each combination of these, and leaves out what follows in a function that begins with
    `if columns is None: return …`: so each kind has a search of its own, in which nothing of the others is compiled.
    """

    model: int
    offsets: Ints
    kind: Codes
    value: Ids
    invoke: Ints
    complete: Ints
    order: Ints
    alike: Ints
    queues: QueueColumns = ABSENT
    sets: SetColumns = ABSENT
    strings: StringColumns = ABSENT
    rows: RowColumns = ABSENT
    locks: LockColumns = ABSENT


def plainly(ops: ObjectOps) -> ObjectOps:
    """The operations for a search that knows nothing of what comes later, so that it gets stuck where the objects
    themselves do."""
    queues, sets, strings, rows = ops.queues, ops.sets, ops.strings, ops.rows
    if ops.model in (FIFO, BAG):
        queues = QueueColumns(_all(queues.first_out, 1), _all(queues.out_by, NEVER), _all(queues.last_before, -1))
    if ops.model == SET:
        sets = sets._replace(removed=_all(sets.removed, 1), last_lacking=_all(sets.last_lacking, NEVER))
    if ops.model == STRING:
        strings = strings._replace(
            next_put=_all(strings.next_put, -1),
            next_get=_all(strings.next_get, -1),
        )
    if ops.model == ROW:
        rows = rows._replace(
            last_needed=_all(rows.last_needed, -1),
            last_written=_all(rows.last_written, NEVER),
            first_needed=_all(rows.first_needed, NEVER),
            gone=_all(rows.gone, NEVER),
        )
    return ops._replace(queues=queues, sets=sets, strings=strings, rows=rows)


def _all(column: Ints, value: int) -> Ints:
    return np.full(len(column), value)


def longest_word(ops: ObjectOps) -> int:
    """How long words may become."""
    if ops.model == ROW:
        return int(ops.rows.width.max(initial=0))
    grows = np.isin(ops.kind, (ENQUEUE, ADD))
    return int(np.diff(np.concatenate(([0], np.cumsum(grows)))[ops.offsets]).max(initial=0))


@dataclass(frozen=True, slots=True)
class Built:
    """`ops` for the search; `addresses[k]` names object k; `values` says what a symbol of a state stands for (None:
    nothing in particular) and `nodes` which string a node is; `cells` are the addresses of registers, row by row."""

    ops: ObjectOps
    addresses: Ints
    values: dict[int, int | None] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    cells: Ints = field(default_factory=lambda: np.empty((0, 4), np.int64))


class RegisterProjections(NamedTuple):
    """Registers that are linearizable if their objects are: their operations, of which object each is, and the objects
    that are linearizable if their only register is; and whether it pays to search them."""

    keyed: KeyedOps
    of: Ints
    decided: Ints
    searched: bool = True


def sorted_rows(rows: Columns) -> Columns:
    """The rows with their `object` (a number an address), in order of object, invocation and place."""
    address, _ = together([rows[name] for name in ADDRESS])
    order = np.lexsort((rows["place"], rows["invoke"], address))
    return {name: column[order] for name, column in rows.items()} | {"object": address[order]}


def taken(rows: Columns, chosen: npt.NDArray[Any]) -> Columns:
    """Some of the rows."""
    return {name: column[chosen] for name, column in rows.items()}


def addresses_of(rows: Columns) -> Ints:
    """The address of each object, from its first row."""
    _, first = np.unique(rows["object"], return_index=True)
    found: Ints = np.stack([rows[name][first] for name in ADDRESS], axis=1)
    return found


class Slices(NamedTuple):
    """By row `items[first:last]`."""

    first: Ints
    last: Ints
    items: Ids


def make_ops(model: int, rows: Columns, kind: Ints, value: Ints, items: Slices | None = None) -> ObjectOps:
    """What all kinds of objects share, from one row an operation, sorted; `items` is what else an operation says."""
    objects, key = np.unique(rows["object"], return_inverse=True)
    return ObjectOps(
        model=model,
        offsets=np.searchsorted(key, np.arange(len(objects) + 1)).astype(np.int64),
        kind=kind.astype(np.uint8),
        value=value.astype(np.int32),
        invoke=rows["invoke"],
        complete=rows["complete"],
        order=np.lexsort((rows["complete"], key)),
        alike=_alike(kind, value, items),
    )


def _alike(kind: Ints, value: Ints, items: Slices | None) -> Ints:
    """A number for each operation, equal for those that do the same; what changes nothing need not be told apart."""
    words, content = {b"": 0}, np.zeros(len(kind), np.int64)
    if items is not None:
        for row in np.flatnonzero((items.last > items.first) & ~np.isin(kind, OBSERVERS)).tolist():
            word = items.items[items.first[row] : items.last[row]].tobytes()
            content[row] = words.setdefault(word, len(words))
    ids, _ = together([kind, value, content])
    return ids


def without(ops: ObjectOps, useless: Bools) -> ObjectOps:
    """The operations but the useless ones; objects keep their places, even if nothing is left of them."""
    offsets = np.concatenate(([0], np.cumsum(~useless)))[ops.offsets]
    return _chosen(ops, np.flatnonzero(~useless), offsets)


def only(ops: ObjectOps, keys: Ints) -> tuple[ObjectOps, Ints]:
    """The operations of some objects, and which rows of the given ones they were."""
    sizes = np.diff(ops.offsets)[keys]
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    rows = np.repeat(ops.offsets[keys] - offsets[:-1], sizes) + np.arange(offsets[-1])
    found = _chosen(ops, rows, offsets)
    if ops.model == STRING:
        found = found._replace(strings=found.strings._replace(root=ops.strings.root[keys]))
    if ops.model == ROW:
        found = found._replace(rows=found.rows._replace(width=ops.rows.width[keys]))
    return found, rows


def _chosen(ops: ObjectOps, rows: Ints, offsets: Ints) -> ObjectOps:
    """Some of the rows, of which each object has those between its offsets. What is not by row stays as it is."""
    complete = ops.complete[rows]
    sets, strings, registers, locks = ops.sets, ops.strings, ops.rows, ops.locks
    if ops.model == LOCK:
        locks = locks._replace(owner=locks.owner[rows], fence=locks.fence[rows], amount=locks.amount[rows])
    if ops.model == SET:
        sets = sets._replace(first=sets.first[rows], last=sets.last[rows])
    if ops.model == STRING:
        by_row = ("next_put", "next_get", "next_first", "next_last")
        strings = strings._replace(**{name: getattr(strings, name)[rows] for name in by_row})
    if ops.model == ROW:
        registers = registers._replace(first=registers.first[rows], last=registers.last[rows])
    return ops._replace(
        offsets=offsets,
        kind=ops.kind[rows],
        value=ops.value[rows],
        invoke=ops.invoke[rows],
        complete=complete,
        order=np.lexsort((complete, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))),
        alike=ops.alike[rows],
        sets=sets,
        strings=strings,
        rows=registers,
        locks=locks,
    )


def highest(ids: Ints, values: Ints, count: int, default: int) -> Ints:
    """The highest value of each id."""
    found = np.full(count, default, np.int64)
    np.maximum.at(found, ids, values)
    return found


def lowest(ids: Ints, values: Ints, count: int) -> Ints:
    """The lowest value of each id, NEVER where it has none."""
    found = np.full(count, NEVER, np.int64)
    np.minimum.at(found, ids, values)
    return found
