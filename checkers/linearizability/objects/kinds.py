"""The kinds of objects, their operations, and the columns in which the search reads these: some that all kinds share,
and for each kind its own. A column never means one thing for one kind and something else for another.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NEVER

MUTEX, FIFO, BAG, SET, STRING, ROW = range(6)
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

Ints = npt.NDArray[np.int64]
Symbols = npt.NDArray[np.int32]

ABSENT: Final[Any] = None
"""Instead of the columns of another kind."""


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
    members: Symbols
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
    edge_piece: Symbols
    edge_target: Symbols
    next_put: Ints
    next_get: Ints
    next_first: Ints
    next_last: Ints
    get_begin: Ints
    get_node: Symbols


class RowColumns(NamedTuple):
    """Of rows of registers. By object: `width` is how many registers there are. By row: `items[first:last]` is what a
    transaction does, ITEM numbers an item. By symbol, which is a value of one register (0 nil, FADED whatever nobody
    looks at any more): `last_needed` and `last_written` are the last invocations of a definite transaction that has to
    find it and of one that writes it, or -1; `first_needed` is the first completion of one that has to find it if only
    one writes it, else NEVER; `gone` the last completion of what depends on it."""

    width: Ints
    first: Ints
    last: Ints
    items: Symbols
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
    kind: npt.NDArray[np.uint8]
    value: Symbols
    invoke: Ints
    complete: Ints
    order: Ints
    alike: Ints
    queues: QueueColumns = ABSENT
    sets: SetColumns = ABSENT
    strings: StringColumns = ABSENT
    rows: RowColumns = ABSENT


def plainly(ops: ObjectOps) -> ObjectOps:
    """The same operations for a search that knows nothing of what comes later, so that it gets stuck where the objects
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
