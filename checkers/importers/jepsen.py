"""Jepsen histories as EDN, JSON or log lines, turned into our table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from checkers.importers.maps import ERROR, KEY, NODE, TIME, VALUE, Tokens, find_operations
from checkers.importers.mops import ITSELF, MopColumns, emit_mops
from checkers.importers.pairing import FAIL, INFO, OK, TYPES, Ints, Paired, number_names, pair
from checkers.importers.scalars import Interner, as_json, intern_scalars, text_of
from checkers.importers.tape import INTEGER, KEYWORD, NULL, VECTOR, Tape, read_tape
from checkers.kernels.columns import NIL
from checkers.source import NO_CLOCK, FailedCas, Source
from harness.columns import DICTIONARY_KEY, MOP, SCHEMA, SCHEMA_VERSION, VERSION_KEY
from harness.errors import UserError

_SHORT: Final = {"read": "r", "get": "r", "write": "w", "put": "w", "compare-and-set": "cas"}
_CAS: Final = frozenset({"cas", "compare-and-set"})
_MUTATIONS: Final = _CAS | {"write", "put", "append", "add", "enqueue"}

_LOG_LINE: Final = re.compile(
    rb"^[^\n]*?jepsen\.util\s+-\s+(\S+)[ \t]+:(invoke|ok|fail|info)[ \t]+:(\S+)(?:[ \t]+([^\n]*?))?[ \t]*\r?$",
    re.MULTILINE,
)


def open_edn(path: Path, data: bytes) -> Source:
    """A Jepsen history as EDN: operations as maps, in one list or one after the other."""
    return _source(path, "edn", read_tape(path, data, json=False), "absent")


def open_json(path: Path, data: bytes) -> Source:
    """A Jepsen history as a JSON array of objects."""
    try:
        msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        position = re.search(r"byte (\d+)", str(error))
        line = data[: int(position[1])].count(b"\n") + 1 if position else data.count(b"\n") + 1
        raise UserError(f"{path}, line {line}: this is not a JSON array of operations ({error}).") from error
    return _source(path, "json", read_tape(path, data, json=True), "absent")


def open_jepsen_log(path: Path, data: bytes) -> Source:
    """The lines `jepsen.util - PROCESS :TYPE :F VALUE` of a log; a failed compare-and-set found another value."""
    lines_whole = data.count(b"\n")
    if data and not data.endswith(b"\n"):
        raise UserError(f"{path}, line {lines_whole + 1}: the last line has no end, so the log is truncated.")
    lines: list[bytes] = []
    for line in data.split(b"\n"):
        found = _LOG_LINE.match(line)
        lines.append(_log_event(found) if found else b"")
    return _source(path, "jepsen-log", read_tape(path, b"\n".join(lines), json=False), "observed")


def _log_event(found: re.Match[bytes]) -> bytes:
    process, kind, f, value = found.groups()
    return b"{:process %s :type :%s :f :%s :value %s}" % (process, kind, f, value or b"nil")


def _source(path: Path, format: str, tape: Tape, failed_cas: FailedCas) -> Source:
    events = find_operations(path, tape)
    paired, events = pair(path, tape, events)
    interner = Interner()
    _intern(tape, events, interner)
    table = _table(path, tape, events, paired, interner)
    return Source(path, format, table.num_rows, table=table, failed_cas=failed_cas, dictionary=interner.values)


def _intern(tape: Tape, events: Tokens, interner: Interner) -> None:
    """Number the atoms inside values and keys."""
    roots = np.concatenate((events[:, VALUE], events[:, KEY]))
    roots = roots[roots >= 0]
    if not len(roots):
        return
    depth = np.zeros(len(tape.kind) + 1, np.int64)
    np.add.at(depth, roots, 1)
    np.add.at(depth, tape.after[roots], -1)
    inside = np.flatnonzero((np.cumsum(depth[:-1]) > 0) & (tape.kind < VECTOR))
    intern_scalars(tape, inside, interner)


def _chosen_values(tape: Tape, events: Tokens, paired: Paired) -> Tokens:
    """Whose value tells what happened: the completion's for what succeeded and looked, else the invocation's."""
    values = events[:, VALUE]
    nil = (values < 0) | (tape.kind[np.maximum(values, 0)] == NULL) if len(tape.kind) else values < 0
    before, after = paired.invocation, np.maximum(paired.completion, 0)
    succeeded = (paired.completion >= 0) & (paired.type[after] == OK) if len(events) else np.empty(0, bool)
    mutates = np.array([name in _MUTATIONS for name in paired.names] + [False])[paired.f[before]]
    use_completion = succeeded & ~nil[after] & ~(mutates & ~nil[before])
    return np.where(use_completion, values[after], values[before])


def _keyed(tape: Tape, values: Tokens, is_cas: npt.NDArray[np.bool_]) -> bool:
    """Whether every operation's value is a pair of a key and the value proper (Jepsen's independent keys)."""
    if not len(values) or (values < 0).any() or (tape.kind[values] != VECTOR).any():
        return False
    first, behind = values + 1, tape.after[values]
    if (first >= behind).any() or (tape.kind[first] >= VECTOR).any():
        return False
    second = first + 1
    if (second >= behind).any() or (tape.after[np.minimum(second, len(tape.kind) - 1)] != behind).any():
        return False
    return bool((tape.kind[second[is_cas]] == VECTOR).all())


def _table(path: Path, tape: Tape, events: Tokens, paired: Paired, interner: Interner) -> pa.Table:
    begun, ended = paired.invocation, paired.completion
    clients = paired.process[begun] >= 0
    values = _chosen_values(tape, events, paired)
    is_cas = np.array([name in _CAS for name in paired.names] + [False])[paired.f[begun]]
    keyed = _keyed(tape, events[begun[clients], VALUE], is_cas[clients])
    keys = events[begun, KEY]
    rows = np.flatnonzero(clients)
    mops, fits = emit_mops(tape, values[rows], keys[rows], is_cas[rows], keyed)
    mops = mops._replace(of=rows[mops.of])
    fitting = np.zeros(len(begun), bool)
    fitting[rows] = fits
    done = ended >= 0
    last = np.where(done, ended, begun)
    types = np.where(done & clients, paired.type[last], INFO)
    times, clocked = _times(tape, events)
    error_class, error = _errors(tape, events, values, last, types)
    known: dict[str, Any] = {
        "op": pa.array(np.arange(len(begun))),
        "invoke_index": pa.array(paired.index[begun]),
        "complete_index": pa.array(paired.index[last], mask=~done),
        "invoke_time": pa.array(times[begun]),
        "complete_time": pa.array(times[last], mask=~(done & clocked[last])),
        "type": _names(types, TYPES),
        "process": pa.array(paired.process[begun]),
        "f": _names(paired.f[begun], paired.names),
        "mops": _mops_array(path, tape, paired, mops, fitting, len(begun)),
        "node": _texts(tape, events[last, NODE]),
        "clock": _names(np.where(clocked[begun], -1, 0), (NO_CLOCK,)),
        "error_class": error_class,
        "error": error,
        "value": _json_values(tape, np.where(fitting, -1, values)),
    }
    arrays = [known.get(field.name, pa.nulls(len(begun), field.type)) for field in SCHEMA]
    dictionary = msgspec.json.encode(interner.values)
    metadata = {VERSION_KEY: str(SCHEMA_VERSION).encode(), DICTIONARY_KEY: dictionary}
    return pa.Table.from_arrays(arrays, schema=SCHEMA.with_metadata(metadata))


def _names(codes: Ints, names: tuple[str, ...]) -> pa.Array:
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names or ("",), pa.string())).cast(pa.string())


def _times(tape: Tape, events: Tokens) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Times in ns, and which events state one."""
    tokens = events[:, TIME]
    if not len(tokens):
        return tokens, tokens >= 0
    stated = (tokens >= 0) & (tape.kind[np.maximum(tokens, 0)] == INTEGER)
    return np.where(stated, tape.number[np.maximum(tokens, 0)], 0), stated


def _texts(tape: Tape, tokens: Tokens) -> pa.Array:
    """The tokens' texts, null for none and nil."""
    texts: list[str | None] = [None] * len(tokens)
    for i in np.flatnonzero(tokens >= 0).tolist():
        if tape.kind[tokens[i]] != NULL:
            texts[i] = text_of(tape, int(tokens[i]))
    return pa.array(texts, pa.string())


def _errors(tape: Tape, events: Tokens, values: Tokens, last: Ints, types: Ints) -> tuple[pa.Array, pa.Array]:
    """What failed operations and unknown ones say: their `:error`, or a keyword in the place of a value."""
    tokens = np.where(types != OK, events[last, ERROR], -1) if len(last) else last
    said = events[last, VALUE]
    if len(last):
        is_word = (said >= 0) & (tape.kind[np.maximum(said, 0)] == KEYWORD) & (said != values)
        tokens = np.where((tokens < 0) & is_word & ((types == FAIL) | (types == INFO)), said, tokens)
    heads = tokens.copy()
    for i in np.flatnonzero(tokens >= 0).tolist():
        if tape.kind[tokens[i]] == VECTOR and tape.after[tokens[i]] > tokens[i] + 1:
            heads[i] = tokens[i] + 1
    classes = [None if text is None else text.removeprefix(":") for text in _texts(tape, heads).to_pylist()]
    return pa.array(classes, pa.string()), _texts(tape, tokens)


def _json_values(tape: Tape, tokens: Tokens) -> pa.Array:
    texts: list[str | None] = [None] * len(tokens)
    for i in np.flatnonzero(tokens >= 0).tolist():
        texts[i] = msgspec.json.encode(as_json(tape, int(tokens[i]))).decode()
    return pa.array(texts, pa.string())


def _mops_array(
    path: Path, tape: Tape, paired: Paired, mops: MopColumns, fitting: npt.NDArray[np.bool_], rows: int
) -> pa.Array:
    counts = np.bincount(mops.of, minlength=rows)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    own = tuple(_SHORT.get(name, name) for name in paired.names)
    codes, inner = number_names(path, tape, np.where(mops.name >= 0, mops.name, -1))
    every = (*own, *inner)
    names = np.where(mops.name == ITSELF, paired.f[paired.invocation[mops.of]], codes + len(own))
    zeros = pa.array(np.zeros(len(mops.of), np.int32))
    listed = mops.list_start >= 0
    list_offsets = np.concatenate((np.where(listed, mops.list_start, 0), [len(mops.items)])).astype(np.int32)
    list_offsets[:-1] = np.minimum.accumulate(np.where(listed, list_offsets[:-1], len(mops.items))[::-1])[::-1]
    lists = pa.ListArray.from_arrays(
        pa.array(list_offsets, mask=np.concatenate((~listed, [False]))), pa.array(mops.items), type=pa.list_(pa.int64())
    )
    fields = [
        _names(names, every),
        zeros,
        pa.array(np.where(mops.partition == NIL, 0, mops.partition)),
        pa.array(np.zeros(len(mops.of), np.int64)),
        zeros,
        pa.array(mops.value, mask=(mops.value == NIL) | listed),
        pa.array(mops.expected, mask=mops.expected == NIL),
        lists,
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(MOP))
    starts = pa.array(offsets, mask=np.concatenate((~fitting, [False])))
    return pa.ListArray.from_arrays(starts, structs, type=pa.list_(MOP))
