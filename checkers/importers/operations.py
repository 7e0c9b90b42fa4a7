"""Turns a block of paired events into rows of the history table, their values into micro-operations: scalars, pairs,
transactions, lists, maps.

A value may belong to one of several independent objects: it is a pair `[key value]` (a tuple of `jepsen.independent`),
or the operation states a `:key`. The key is then the partition; what a transaction or a map inside names is the row.
Elsewhere what transactions and maps name is the partition. A key that is written as four numbers is a whole address:
`[partition row column table]`, as our own export has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.columns.batches import decoded
from checkers.columns.codes import FAIL, INFO, NIL, OK
from checkers.compiled import lean
from checkers.importers.agreement import CHANGES, LOOKS, require_agreement, require_answers
from checkers.importers.pairing import (
    CLOCK,
    ERROR,
    ERROR_CLASS,
    FIELDS,
    ITSELF,
    KEY,
    TIME,
    TYPES,
    VALUE,
    Ints,
    Paired,
    Tokens,
    number_names,
)
from checkers.importers.scalars import Interner, as_json, distinct, globally, intern_scalars, texts
from checkers.importers.tape import INTEGER, KEYWORD, LIST, MAP, NULL, SET, STRING, VECTOR, Tape
from checkers.source import NO_CLOCK
from harness.errors import UserError
from harness.history.columns import MOP, MOST_EVENTS, SCHEMA

OWN_NAME: Final = -1
"""As `name`: the micro-operation is called as the operation's own `f`."""

PLAIN, PAIR, TUPLE = 0, 1, 2
"""What a value is by its looks: no pair of a key and something, such a pair, or one that can be nothing else."""

_MOST_SMALL: Final = 2**31


class MopColumns(NamedTuple):
    """Micro-operations in the making. `of` is the event, `name` the token of its f (or OWN_NAME); partition, row,
    column and table are its address; lists are `items[list_start:list_stop]`, none where list_start is -1; `counts` is
    (micro-operations, items, micro-operations that are within one of several independent objects)."""

    of: Ints
    name: Ints
    partition: Ints
    row: Ints
    column: Ints
    table: Ints
    value: Ints
    expected: Ints
    list_start: Ints
    list_stop: Ints
    items: Ints
    counts: Ints


def make_mops(tokens: int, events: int) -> MopColumns:
    """Room for the micro-operations of that many tokens and events."""
    of, name, partition, value, expected, start, stop = (np.empty(tokens + events, np.int64) for _ in range(7))
    row, column, table = (np.zeros(tokens + events, np.int64) for _ in range(3))
    items, counts = np.empty(tokens, np.int64), np.zeros(3, np.int64)
    return MopColumns(of, name, partition, row, column, table, value, expected, start, stop, items, counts)


@lean
def _is_atom(tape, token):
    return tape.kind[token] < VECTOR


@lean
def _size(tape, token):
    count, child = 0, token + 1
    while child < tape.after[token]:
        count += 1
        child = tape.after[child]
    return count


@lean
def _only_atoms(tape, token):
    child = token + 1
    while child < tape.after[token] and _is_atom(tape, child):
        child += 1
    return child == tape.after[token]


@lean
def _is_address(tape, token):
    """A key `[partition row column table]` of small integers that are not just a partition."""
    if tape.kind[token] != VECTOR or tape.after[token] != token + 5:
        return False
    for child in range(token + 1, token + 5):
        if tape.kind[child] != INTEGER:
            return False
    row, column, table = tape.number[token + 2], tape.number[token + 3], tape.number[token + 4]
    small = -_MOST_SMALL <= column < _MOST_SMALL and -_MOST_SMALL <= table < _MOST_SMALL
    return small and (row != 0 or column != 0 or table != 0)


@lean
def _is_key(tape, token):
    return _is_atom(tape, token) or _is_address(tape, token)


@lean
def _is_name(tape, token):
    return tape.kind[token] == KEYWORD or tape.kind[token] == STRING


@lean
def _is_cas(tape, token):
    """Whether a micro-operation's name is cas."""
    start = tape.start[token] + 1
    size = tape.stop[token] - start - (1 if tape.kind[token] == STRING else 0)
    text = tape.text
    return size == 3 and text[start] == 99 and text[start + 1] == 97 and text[start + 2] == 115


@lean
def _is_transaction(tape, token):
    """A vector of [f key value] vectors."""
    if (tape.kind[token] != VECTOR and tape.kind[token] != LIST) or token + 1 >= tape.after[token]:
        return False
    child = token + 1
    while child < tape.after[token]:
        if tape.kind[child] != VECTOR or _size(tape, child) != 3 or not _is_name(tape, child + 1):
            return False
        if not _is_key(tape, child + 2):
            return False
        child = tape.after[child]
    return True


@lean
def _shape(tape, token, is_cas):
    """PLAIN, PAIR or TUPLE; see there."""
    if tape.kind[token] != VECTOR or token + 1 >= tape.after[token] or not _is_key(tape, token + 1):
        return PLAIN
    second = tape.after[token + 1]
    if second >= tape.after[token] or tape.after[second] != tape.after[token]:
        return PLAIN
    kind = tape.kind[second]
    if is_cas:
        return TUPLE if kind in (VECTOR, LIST) else PLAIN
    if kind in (MAP, NULL) or not _is_atom(tape, token + 1) or _is_transaction(tape, second):
        return TUPLE
    return PAIR


@lean
def shapes(tape, values, is_cas, found):
    """What each value is by its looks."""
    for i in range(values.shape[0]):
        found[i] = PLAIN if values[i] < 0 else _shape(tape, values[i], is_cas[i])


@lean
def _emit(out, event, name, value, expected):
    place = out.counts[0]
    out.of[place], out.name[place] = event, name
    out.value[place], out.expected[place] = value, expected
    out.list_start[place], out.list_stop[place] = -1, -1
    out.counts[0] += 1


@lean
def _address(tape, out, first, key, outer):
    """Give the micro-operations from `first` on the key (a token, -1: none), within the outer one if there is one."""
    for place in range(first, out.counts[0]):
        out.partition[place] = 0
        if key >= 0 and not _is_atom(tape, key):
            out.partition[place], out.row[place] = tape.number[key + 1], tape.number[key + 2]
            out.column[place], out.table[place] = tape.number[key + 3], tape.number[key + 4]
        elif outer >= 0:
            out.partition[place], out.row[place] = tape.number[outer], tape.number[key]
            out.counts[2] += 1
        elif key >= 0:
            out.partition[place] = tape.number[key]


@lean
def _emit_value(tape, out, event, name, token, is_cas):
    """One micro-operation with a scalar, a flat list or, for a cas, what it replaces by what; False for others."""
    if is_cas:
        if _is_atom(tape, token) or not _only_atoms(tape, token) or tape.after[token] != token + 3:
            return False
        _emit(out, event, name, tape.number[token + 2], tape.number[token + 1])
        return True
    if _is_atom(tape, token):
        _emit(out, event, name, tape.number[token], NIL)
        return True
    if tape.kind[token] == MAP or not _only_atoms(tape, token):
        return False
    _emit(out, event, name, NIL, NIL)
    place = out.counts[0] - 1
    out.list_start[place] = out.counts[1]
    for child in range(token + 1, tape.after[token]):
        out.items[out.counts[1]] = tape.number[child]
        out.counts[1] += 1
    out.list_stop[place] = out.counts[1]
    return True


@lean
def _emit_map(tape, out, event, token, outer):
    """One micro-operation an entry."""
    if not _only_atoms(tape, token):
        return False
    child = token + 1
    while child < tape.after[token]:
        first = out.counts[0]
        _emit(out, event, OWN_NAME, tape.number[child + 1], NIL)
        _address(tape, out, first, child, outer)
        child += 2
    return True


@lean
def _emit_transaction(tape, out, event, token, outer):
    child = token + 1
    while child < tape.after[token]:
        key, first = child + 2, out.counts[0]
        is_cas = _is_cas(tape, child + 1)
        if outer >= 0 and not (_is_atom(tape, key) and _is_atom(tape, outer)):
            return False
        if not _emit_value(tape, out, event, child + 1, tape.after[key], is_cas):
            return False
        _address(tape, out, first, key, outer)
        child = tape.after[child]
    return True


@lean
def _emit_event(tape, out, event, token, outer, is_cas):
    """The micro-operations of one value within the object of that key (a token, -1: none); False if it fits none of
    the shapes."""
    first = out.counts[0]
    if token < 0:
        _emit(out, event, OWN_NAME, NIL, NIL)
        _address(tape, out, first, outer, -1)
        return not is_cas
    if tape.kind[token] == MAP:
        return (outer < 0 or _is_atom(tape, outer)) and _emit_map(tape, out, event, token, outer)
    if not is_cas and _is_transaction(tape, token):
        return _emit_transaction(tape, out, event, token, outer)
    if not _emit_value(tape, out, event, OWN_NAME, token, is_cas):
        return False
    _address(tape, out, first, outer, -1)
    return True


@lean
def _emit_all(tape, out, values, keys, is_cas, keyed, fits):
    for event in range(values.shape[0]):
        token, outer = values[event], keys[event]
        if keyed:
            if token < 0 or _shape(tape, token, is_cas[event]) == PLAIN:
                fits[event] = False
                continue
            outer = token + 1
            token = tape.after[outer]
        before, items, within = out.counts[0], out.counts[1], out.counts[2]
        fits[event] = _emit_event(tape, out, event, token, outer, is_cas[event])
        if not fits[event]:
            out.row[before : out.counts[0]], out.column[before : out.counts[0]] = 0, 0
            out.table[before : out.counts[0]] = 0
            out.counts[0], out.counts[1], out.counts[2] = before, items, within


def emit_mops(
    tape: Tape, values: Ints, keys: Ints, is_cas: npt.NDArray[np.bool_], keyed: bool
) -> tuple[MopColumns, npt.NDArray[np.bool_]]:
    """The micro-operations of events by the tokens of their values and keys (-1: none), and which values fitted.

    `keyed` says that every value is a pair of a key and the value proper (Jepsen's independent keys).
    """
    out, fits = make_mops(len(tape.kind), len(values)), np.ones(len(values), np.bool_)
    _emit_all(tape, out, values, keys, is_cas, keyed, fits)
    count, items = int(out.counts[0]), int(out.counts[1])
    columns = {name: column[:count] for name, column in zip(out._fields[:10], out[:10], strict=True)}
    return MopColumns(**columns, items=out.items[:items], counts=out.counts), fits


SHORT: Final = {"read": "r", "get": "r", "write": "w", "put": "w", "compare-and-set": "cas"}
"""Micro-operations that are called otherwise than their operation, or than Knossos calls them in its transactions."""

_CAS: Final = frozenset({"cas", "compare-and-set"})
_MUTATIONS: Final = _CAS | {"write", "put", "append", "add", "enqueue"}
_ID_MAKERS: Final = frozenset({"generate"})
_TEXTS: Final = ("node", "phase", "mode", "request-id", "data-centre", "replication", "replicas", "region", "route")
_NUMBERS: Final = (
    *("session", "txn", "bound", "page", "requested-ts", "served-ts", "write-ts"),
    *("min-ts", "latest-ts", "closed-ts", "unblocked-ts", "blocked-ns"),
)

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Meaning:
    """How the values of a history are to be understood, as far as it was read: `keyed` says whether each is a pair of a
    key and the value proper (Jepsen's independent keys), `with_key` whether operations state a `:key`; None is unknown
    as yet. `plain` and `tuple` are lines of operations that only one or the other explains (0: none so far), `within`
    is how many micro-operations are on parts of independent objects."""

    keyed: bool | None = None
    with_key: bool | None = None
    plain: int = 0
    tuple: int = 0
    within: int = 0
    interner: Interner = field(default_factory=Interner)


@dataclass(frozen=True, slots=True)
class BlockOperations:
    """The operations of a block that become rows: event numbers of invocation and completion (-1: none)."""

    path: Path
    tape: Tape
    events: Tokens
    paired: Paired
    begun: Ints
    ended: Ints

    @property
    def clients(self) -> Bools:
        return self.paired.process[self.begun] >= 0

    def calls(self, names: frozenset[str], invocations: Ints) -> Bools:
        """Which invocations are called by one of the names."""
        known = np.array([name in names for name in self.paired.names] + [False])
        found: Bools = known[self.paired.f[invocations]]
        return found


def understand(operations: BlockOperations, fresh: Ints, meaning: Meaning) -> bool:
    """Take note of how the values of fresh invocations look; False if that contradicts what was found before.

    Raises UserError where some values can only be pairs of independent keys and others are none.
    """
    path, tape = operations.path, operations.tape
    clients = fresh[operations.paired.process[fresh] >= 0]
    if not len(clients):
        return True
    _check_keys(operations, clients, meaning)
    found = np.empty(len(clients), np.int64)
    shapes(tape, operations.events[clients, VALUE], operations.calls(_CAS, clients), found)
    if meaning.with_key:
        found[:] = PLAIN
    for shape in (PLAIN, TUPLE):
        first = np.flatnonzero(found == shape)
        if len(first):
            line = tape.line(int(operations.events[clients[first[0]], ITSELF]))
            meaning.plain, meaning.tuple = (
                (meaning.plain or line, meaning.tuple) if shape == PLAIN else (meaning.plain, meaning.tuple or line)
            )
    if meaning.plain and meaning.tuple:
        raise UserError(
            f"{path}, line {meaning.tuple}: this value is a [key value] pair of independent keys, "
            f"but that of line {meaning.plain} is not, so keys can't be told from values."
        )
    keyed = meaning.plain == 0
    if meaning.keyed is None:
        meaning.keyed = keyed
    return meaning.keyed == keyed or not meaning.keyed


def _check_keys(operations: BlockOperations, clients: Ints, meaning: Meaning) -> None:
    stated = operations.events[clients, KEY] >= 0
    if meaning.with_key is None:
        meaning.with_key = bool(stated[0])
    differing = np.flatnonzero(stated != meaning.with_key)
    if len(differing):
        line = operations.tape.line(int(operations.events[clients[differing[0]], ITSELF]))
        says = "has no :key, while others have one" if meaning.with_key else "has a :key, others have none"
        raise UserError(f"{operations.path}, line {line}: this operation {says}.")


def _is_nil(tape: Tape, tokens: Tokens) -> Bools:
    if not len(tape.kind):
        return tokens < 0
    nil: Bools = (tokens < 0) | (tape.kind[np.maximum(tokens, 0)] == NULL)
    return nil


def _chosen_values(operations: BlockOperations) -> Tokens:
    """Whose value tells what happened: the completion's for what succeeded and looked, else the invocation's."""
    paired = operations.paired
    values = operations.events[:, VALUE]
    nil = _is_nil(operations.tape, values)
    before, after = operations.begun, np.maximum(operations.ended, 0)
    succeeded = (operations.ended >= 0) & (paired.type[after] == OK) if len(values) else np.empty(0, bool)
    clients = np.flatnonzero(succeeded & operations.clients)
    asked, found = before[clients], after[clients]
    is_change = operations.calls(CHANGES, asked)
    require_agreement(operations.path, operations.tape, values[asked], values[found], is_change)
    silent = operations.calls(LOOKS, asked) & nil[found]
    require_answers(operations.path, operations.tape, values[asked[silent]])
    use_completion = succeeded & ~nil[after] & ~(operations.calls(_MUTATIONS, before) & ~nil[before])
    return np.where(use_completion, values[after], values[before])


def _check_same_keys(operations: BlockOperations, chosen: Tokens, rows: Ints, meaning: Meaning) -> None:
    """Raise UserError where an operation completes on another independent key than it was invoked on."""
    if not meaning.keyed:
        return
    tape = operations.tape
    asked = operations.events[operations.begun[rows], VALUE]
    found = chosen[rows]
    other = np.flatnonzero((found != asked) & (tape.kind[found] == VECTOR) & (tape.after[found] > found + 1))
    first, second = asked[other] + 1, found[other] + 1
    atoms = (tape.kind[first] < VECTOR) & (tape.kind[second] < VECTOR)
    wrong = other[atoms & (tape.number[first] != tape.number[second])]
    if len(wrong):
        line = tape.line(int(found[wrong[0]]))
        raise UserError(
            f"{operations.path}, line {line}: an operation completes on another key than it was invoked on."
        )


def make_rows(operations: BlockOperations, meaning: Meaning) -> pa.RecordBatch:
    """The rows of the operations, in their order; `op` is left at zero."""
    path, tape, events, paired = operations.path, operations.tape, operations.events, operations.paired
    begun, ended = operations.begun, operations.ended
    values, count = _chosen_values(operations), len(begun)
    keys = np.where(bool(meaning.with_key), events[begun, KEY], -1)
    rows = np.flatnonzero(operations.clients)
    firsts = intern_scalars(tape, np.concatenate((values, keys, events[begun, VALUE])))
    _check_same_keys(operations, values, rows, meaning)
    mops, fits = emit_mops(tape, values[rows], keys[rows], operations.calls(_CAS, begun[rows]), bool(meaning.keyed))
    mops = mops._replace(of=rows[mops.of])
    _settle_ids(tape, mops, firsts, meaning)
    _sort_sets(tape, mops, values, operations.calls(_ID_MAKERS, begun), bool(meaning.keyed))
    fitting = np.zeros(count, bool)
    fitting[rows] = fits
    done = ended >= 0
    last = np.where(done, ended, begun)
    types = np.where(done & operations.clients, paired.type[last], INFO)
    times, clocked = _integers(tape, events[:, TIME])
    times = np.where(clocked, times, 0)
    error_class, error = _errors(tape, events, values, last, types)
    unclocked = decoded(np.where(clocked[begun], -1, 0), (NO_CLOCK,))
    known: dict[str, Any] = {
        "op": pa.array(np.zeros(count, np.int64)),
        "invoke_index": pa.array(paired.index[begun]),
        "complete_index": pa.array(paired.index[last] + _later(operations), mask=~done),
        "invoke_time": pa.array(times[begun]),
        "complete_time": pa.array(times[last], mask=~(done & clocked[last])),
        "type": decoded(types, TYPES),
        "process": pa.array(paired.process[begun]),
        "f": decoded(paired.f[begun], paired.names),
        "mops": _mops_array(path, tape, operations, mops, fitting),
        "clock": pa.compute.coalesce(texts(tape, events[last, CLOCK]), unclocked),
        "error_class": error_class,
        "error": error,
        "value": _json_values(tape, np.where(fitting, -1, values)),
    }
    known |= {name.replace("-", "_"): texts(tape, _latest(events, begun, last, name)) for name in _TEXTS}
    for name in _NUMBERS:
        numbers, stated = _integers(tape, _latest(events, begun, last, name))
        known[name.replace("-", "_")] = pa.array(numbers, mask=~stated)
    return pa.RecordBatch.from_arrays([known[column.name] for column in SCHEMA], schema=SCHEMA)


def _later(operations: BlockOperations) -> Ints:
    """How much later than its event an operation ends: where completions are alone, after all others have begun."""
    same = (operations.begun == operations.ended) & operations.clients
    return np.where(same, MOST_EVENTS // 2, 0)


def _settle_ids(tape: Tape, mops: MopColumns, firsts: Ints, meaning: Meaning) -> None:
    """Give foreign keys and values their numbers for the whole history; nil as a key is one of them."""
    if len(firsts):
        globally(tape, firsts, meaning.interner, (mops.partition, mops.row, mops.value, mops.expected, mops.items))
    for column in (mops.partition, mops.row):
        nil = column == NIL
        if nil.any():
            column[nil] = meaning.interner.nil()
    meaning.within += int(mops.counts[2])


def _sort_sets(tape: Tape, mops: MopColumns, values: Tokens, asked: Bools, keyed: bool) -> None:
    """Ids that are sets become lists in order, so that equal ids are equal; `asked` are the operations that make ids.
    Elsewhere sets are read as sets, and stay as they were written."""
    for place in np.flatnonzero((mops.list_start >= 0) & asked[mops.of]).tolist():
        token = int(values[mops.of[place]])
        if tape.kind[tape.after[token + 1] if keyed else token] == SET:
            mops.items[mops.list_start[place] : mops.list_stop[place]].sort()


def _latest(events: Tokens, begun: Ints, last: Ints, name: str) -> Tokens:
    """What the completion says, or the invocation where it says nothing."""
    place = FIELDS.index(name)
    said = events[last, place]
    return np.where(said >= 0, said, events[begun, place])


def _integers(tape: Tape, tokens: Tokens) -> tuple[Ints, Bools]:
    """The numbers of tokens that are integers, and which are."""
    if not len(tokens) or (tokens < 0).all():
        return np.zeros(len(tokens), np.int64), np.zeros(len(tokens), np.bool_)
    stated = (tokens >= 0) & (tape.kind[np.maximum(tokens, 0)] == INTEGER)
    return tape.number[np.maximum(tokens, 0)], stated


def _errors(tape: Tape, events: Tokens, values: Tokens, last: Ints, types: Ints) -> tuple[pa.Array, pa.Array]:
    """What failed operations and unknown ones say: their `:error`, or a keyword in the place of a value; the class is
    what they call `:error-class`, or the first word of that."""
    if not len(last):
        return pa.nulls(0, pa.string()), pa.nulls(0, pa.string())
    said = events[last, VALUE]
    tokens = np.where(types != OK, events[last, ERROR], -1)
    is_word = (said >= 0) & (tape.kind[np.maximum(said, 0)] == KEYWORD) & ((types == FAIL) | (types == INFO))
    is_word &= (tokens < 0) & ~_alike(tape, said, values, is_word)
    tokens = np.where(is_word, said, tokens)
    place = np.maximum(tokens, 0)
    inside = (tokens >= 0) & (tape.kind[place] == VECTOR) & (tape.after[place] > place + 1)
    heads = np.where(events[last, ERROR_CLASS] >= 0, events[last, ERROR_CLASS], np.where(inside, tokens + 1, tokens))
    return texts(tape, heads, name=True), texts(tape, tokens)


def _alike(tape: Tape, one: Tokens, other: Tokens, asked: Bools) -> Bools:
    """Which of the pairs asked about have the same text."""
    found = np.zeros(len(asked), np.bool_)
    places = np.flatnonzero(asked)
    codes, _ = distinct(tape, np.concatenate((one[places], other[places])))
    found[places] = codes[: len(places)] == codes[len(places) :]
    return found


def _json_values(tape: Tape, tokens: Tokens) -> pa.Array:
    found: list[str | None] = [None] * len(tokens)
    for i in np.flatnonzero(tokens >= 0).tolist():
        found[i] = msgspec.json.encode(as_json(tape, int(tokens[i]))).decode()
    return pa.array(found, pa.string())


def _mops_array(path: Path, tape: Tape, operations: BlockOperations, mops: MopColumns, fitting: Bools) -> pa.Array:
    paired = operations.paired
    counts = np.bincount(mops.of, minlength=len(fitting))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    own = tuple(SHORT.get(name, name) for name in paired.names)
    codes, inner = number_names(path, tape, np.where(mops.name >= 0, mops.name, -1))
    names = np.where(mops.name == OWN_NAME, paired.f[operations.begun[mops.of]], codes + len(own))
    listed = mops.list_start >= 0
    list_offsets = np.concatenate((np.where(listed, mops.list_start, 0), [len(mops.items)])).astype(np.int32)
    list_offsets[:-1] = np.minimum.accumulate(np.where(listed, list_offsets[:-1], len(mops.items))[::-1])[::-1]
    lists = pa.ListArray.from_arrays(
        pa.array(list_offsets, mask=np.concatenate((~listed, [False]))), pa.array(mops.items), type=pa.list_(pa.int64())
    )
    fields = [
        decoded(names, (*own, *(SHORT.get(name, name) for name in inner))),
        pa.array(mops.table.astype(np.int32)),
        pa.array(mops.partition),
        pa.array(mops.row),
        pa.array(mops.column.astype(np.int32)),
        pa.array(mops.value, mask=(mops.value == NIL) | listed),
        pa.array(mops.expected, mask=mops.expected == NIL),
        lists,
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(MOP))
    starts = pa.array(offsets, mask=np.concatenate((~fitting, [False])))
    return pa.ListArray.from_arrays(starts, structs, type=pa.list_(MOP))
