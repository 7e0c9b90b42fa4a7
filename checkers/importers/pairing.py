"""The events of a foreign history: found on its tape, one map each with the fields that matter, and paired, each
completion with its process's open invocation, in one total order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import FAIL, INFO, OK
from checkers.compiled import kernel, lean, lean_inline
from checkers.importers.scalars import distinct, name_of
from checkers.importers.tape import INTEGER, KEYWORD, MAP, NULL, STRING, Tape
from harness.errors import UserError
from harness.history.columns import MOST_EVENTS
from harness.history.ops import NEMESIS_PROCESS

FIELDS: Final = (
    *("type", "process", "f", "value", "time", "index", "key", "error", "node"),
    *("error-class", "clock", "phase", "mode", "request-id"),
    *("session", "txn", "bound", "page", "requested-ts", "served-ts"),
    *("write-ts", "data-centre", "replication", "replicas", "region", "route"),
    *("min-ts", "latest-ts", "closed-ts", "unblocked-ts", "blocked-ns"),
)
TYPE, PROCESS, F, VALUE, TIME, INDEX, KEY, ERROR, NODE, ERROR_CLASS, CLOCK = range(11)
STATED: Final = "served-ts"
"""What a database states of an operation's place among others."""

ITSELF: Final = len(FIELDS)
"""Column of the operation's own token."""

Ints = npt.NDArray[np.int64]
Tokens = Ints

_WIDTH: Final = max(len(name) for name in FIELDS)
_NAMES: Final = np.zeros((len(FIELDS), _WIDTH), np.uint8)
for _i, _name in enumerate(FIELDS):
    _NAMES[_i, : len(_name)] = np.frombuffer(_name.encode(), np.uint8)
_LENGTHS: Final = np.array([len(name) for name in FIELDS])


@lean
def _slot(length, first, second):
    """Different for the names of all fields."""
    return (length + 21 * first + 34 * second) & 63


_FIELD_AT: Final = np.full(64, -1)
for _i, _name in enumerate(FIELDS):
    _place = _slot.py_func(len(_name), ord(_name[0]), ord(_name[min(1, len(_name) - 1)]))
    assert _FIELD_AT[_place] < 0
    _FIELD_AT[_place] = _i

_NO_MAP, _TWICE = 1, 2


@lean_inline
def _is_called(tape, start, size, names, lengths, place):
    """Whether the text of that many bytes from `start` on is a field's name."""
    same = 0
    while same < size and lengths[place] == size and tape.text[start + same] == names[place, same]:
        same += 1
    return same == size


@lean
def _field(tape, token, names, lengths, field_at, other):
    """Which field a key token names (a keyword or a string), or -1; `other` is one that `field_at` doesn't know (-1:
    none)."""
    start, stop = tape.start[token] + 1, tape.stop[token]
    if tape.kind[token] == STRING:
        stop -= 1
    elif tape.kind[token] != KEYWORD:
        return -1
    size = stop - start
    if size < 1:
        return -1
    if other >= 0 and _is_called(tape, start, size, names, lengths, other):
        return other
    place = field_at[_slot(size, tape.text[start], tape.text[start + min(1, size - 1)])]
    return place if place >= 0 and _is_called(tape, start, size, names, lengths, place) else -1


@lean
def _find(tape, names, lengths, field_at, other, found):
    """Fill `found[i]` with the value tokens of map i (-1: absent). Returns (maps, problem, its token)."""
    count, token = 0, 0
    while token < tape.kind.shape[0]:
        if tape.kind[token] != MAP:
            return count, _NO_MAP, token
        found[count, : lengths.shape[0]] = -1
        child = token + 1
        while child < tape.after[token]:
            place = _field(tape, child, names, lengths, field_at, other)
            value = tape.after[child]
            if place >= 0:
                if found[count, place] >= 0:
                    return count, _TWICE, child
                found[count, place] = value
            child = tape.after[value]
        found[count, lengths.shape[0]] = token
        count += 1
        token = tape.after[token]
    return count, 0, 0


@lean
def _count(tape):
    count, token = 0, 0
    while token < tape.kind.shape[0]:
        count += 1
        token = tape.after[token]
    return count


def find_operations(path: Path, tape: Tape, stated: str | None = None) -> Tokens:
    """For each event its field values' tokens, in FIELDS order, and its own token behind them; -1 where absent. The
    field `stated` is taken in the place of STATED.

    Raises UserError for what is no map, a field that is there twice, and an event without a type.
    """
    found = np.empty((_count(tape), len(FIELDS) + 1), np.int64)
    names, lengths, other = _NAMES, _LENGTHS, -1
    if stated is not None and stated not in FIELDS:
        name, other = np.frombuffer(stated.encode(), np.uint8), FIELDS.index(STATED)
        names = np.pad(_NAMES, ((0, 0), (0, max(0, len(name) - _WIDTH))))
        names[other, : len(name)], lengths = name, _LENGTHS.copy()
        lengths[other] = len(name)
    _, problem, token = _find(tape, names, lengths, _FIELD_AT, other, found)
    if problem == _NO_MAP:
        raise UserError(f"{path}, line {tape.line(token)}: {tape.raw(token)[:40]!r} is not an operation (a map).")
    if problem == _TWICE:
        raise UserError(f"{path}, line {tape.line(token)}: an operation has {tape.raw(token)} twice.")
    untyped = np.flatnonzero(found[:, TYPE] < 0)
    if len(untyped):
        raise UserError(f"{path}, line {tape.line(int(found[untyped[0], ITSELF]))}: an operation has no :type.")
    return found


INVOKE: Final = 3
_CODES: Final = {"ok": OK, "info": INFO, "fail": FAIL, "invoke": INVOKE}
"""What an event's type is: an outcome, or none yet."""

TYPES: Final = tuple(sorted(_CODES, key=_CODES.__getitem__))
"""Types by code."""

_MOST_NAMES: Final = 4096

NO_F: Final = "txn"
"""The `f` of operations that state none (Elle's own histories)."""

_NEMESIS: Final = re.compile(r"nemesis(?:-(\d{1,9}))?")


@dataclass(slots=True)
class PairingState:
    """What is known of a history's events so far: whether their order is that of their `index` (None: not known yet),
    else of the text; how many there were, the last index, and whether they state their process. `alone`: they are
    completions alone."""

    by_index: bool | None = None
    events: int = 0
    last_index: int = -1
    with_process: bool | None = None
    carried: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Paired:
    """Operations in order of invocation: event numbers of invocation and completion (-1: none), and per event its index
    in the total order, process, type code and `f` (a number into `names`). A nemesis's event is an operation of its own
    that begins and ends there."""

    invocation: Ints
    completion: Ints
    index: Ints
    process: Ints
    type: Ints
    f: Ints
    names: tuple[str, ...]


def number_names(path: Path, tape: Tape, tokens: Tokens) -> tuple[Ints, tuple[str, ...]]:
    """Codes of the tokens' names and the names; tokens of -1 and nil get code -1."""
    stated = np.where(tape.kind[np.maximum(tokens, 0)] == NULL, -1, tokens) if len(tokens) else tokens
    codes, firsts = distinct(tape, stated)
    if len(firsts) > _MOST_NAMES:
        raise UserError(f"{path} has more than {_MOST_NAMES} different operation names, so this is not a history.")
    names = [name_of(tape, int(token)) for token in firsts]
    distinct_names = tuple(dict.fromkeys(names))
    table = np.array([distinct_names.index(name) for name in names] + [-1])
    return table[codes], distinct_names


@kernel
def _pair(process, kind, f, dense, opened, completion):
    """Set `completion` of invocations. Returns (problem, event): 1 no invocation, 2 still open, 3 another f."""
    for event in range(process.shape[0]):
        if process[event] < 0:
            completion[event] = event
            continue
        # opened[here] is the invocation that the process has not completed yet, or -1.
        here = dense[event]
        if kind[event] == INVOKE:
            if opened[here] >= 0:
                return 2, event
            opened[here] = event
        else:
            begun = opened[here]
            if begun < 0:
                return 1, event
            if f[begun] != f[event] and f[event] >= 0 and f[begun] >= 0:
                return 3, event
            completion[begun] = event
            opened[here] = -1
    return 0, 0


_PROBLEMS: Final = {
    1: "process {} completes an operation that it has not invoked",
    2: "process {} invokes an operation while its last one is open",
    3: "process {} completes another operation than it invoked",
}


def pair(path: Path, tape: Tape, events: Tokens, course: PairingState, whole: bool) -> tuple[Paired, Tokens] | None:
    """The operations of the next events of a history, those in their total order; the first ones are those that were
    carried over. Raises UserError naming the line at fault. None: the events have an index but are not in its order, so
    that the history has to be read as a whole."""
    ordered = _in_order(path, tape, events, course, whole)
    if ordered is None:
        return None
    index, events = ordered
    types = _types(path, tape, events)
    process = _processes(path, tape, events, course)
    f, names = number_names(path, tape, events[:, F])
    if course.alone:
        return _alone(path, tape, events, course, Paired(index, index, index, process, types, f, names)), events
    distinct_processes, dense = np.unique(process, return_inverse=True)
    completion = np.full(len(events), -1)
    opened = np.full(len(distinct_processes) + 1, -1)
    problem, event = _pair(process, types, f, dense, opened, completion)
    if problem:
        line, reason = tape.line(int(events[event, ITSELF])), _PROBLEMS[problem].format(process[event])
        raise UserError(f"{path}, line {line}: {reason}, so this is not a whole history.")
    begun = np.flatnonzero((types == INVOKE) | (process < 0))
    return _counted(course, Paired(begun, completion[begun], index, process, types, f, names)), events


def _counted(course: PairingState, paired: Paired) -> Paired:
    """What was paired, of which each operation has an `f`, once its events are counted."""
    index, f, names = paired.index, paired.f, paired.names
    missing = f < 0
    if missing.any():
        names = names if NO_F in names else (*names, NO_F)
        f = np.where(missing, names.index(NO_F), f)
    course.events += len(index) - len(course.carried)
    course.last_index = int(index[-1]) if len(index) else course.last_index
    return replace(paired, f=f, names=names)


def _alone(path: Path, tape: Tape, events: Tokens, course: PairingState, paired: Paired) -> Paired:
    """Completions, each an operation that begins before all of them end."""
    invoked = np.flatnonzero((paired.type == INVOKE) & (paired.process >= 0))
    if len(invoked):
        line = tape.line(int(events[invoked[0], ITSELF]))
        raise UserError(f"{path}, line {line}: this is an invocation, so the history has not completions alone.")
    every = np.arange(len(events))
    return _counted(course, replace(paired, invocation=every, completion=every))


def _types(path: Path, tape: Tape, events: Tokens) -> Ints:
    codes, names = number_names(path, tape, events[:, TYPE])
    for code, name in [*enumerate(names), (-1, "nil")]:
        if name not in _CODES and (codes == code).any():
            token = int(events[codes == code][0, ITSELF])
            raise UserError(f"{path}, line {tape.line(token)}: {name!r} is not a type; it is invoke, ok, fail or info.")
    table: Ints = np.array([_CODES.get(name, INVOKE) for name in names] + [INVOKE])
    return table[codes]


def _processes(path: Path, tape: Tape, events: Tokens, course: PairingState) -> Ints:
    """Process numbers; `nemesis` and `nemesis-N` are nemeses, and a history without processes has just one."""
    tokens = events[:, PROCESS]
    if not len(tokens):
        return tokens
    kinds = np.where(tokens >= 0, tape.kind[np.maximum(tokens, 0)], NULL)
    numbers = np.where(kinds == INTEGER, tape.number[np.maximum(tokens, 0)], 0)
    negative = np.flatnonzero(numbers < 0)
    if len(negative):
        token = int(tokens[negative[0]])
        raise UserError(f"{path}, line {tape.line(token)}: process {tape.raw(token)} is negative.")
    named = np.where((kinds != INTEGER) & (kinds != NULL), tokens, -1)
    codes, firsts = distinct(tape, named)
    nemeses = np.array([_nemesis(path, tape, int(token)) for token in firsts] + [0], np.int64)
    stated = kinds[kinds != NULL]
    without = (kinds == NULL).any()
    if course.with_process is None and len(tokens):
        course.with_process = bool(len(stated))
    if (without and course.with_process) or (len(stated) and not course.with_process):
        token = int(events[np.flatnonzero((kinds == NULL) == bool(course.with_process))[0], ITSELF])
        says = "has no :process, while others have one" if course.with_process else "has a :process, others have none"
        raise UserError(f"{path}, line {tape.line(token)}: this operation {says}.")
    return np.where(codes >= 0, nemeses[codes], numbers)


def _nemesis(path: Path, tape: Tape, token: int) -> int:
    found = _NEMESIS.fullmatch(name_of(tape, token))
    if found is None:
        raise UserError(
            f"{path}, line {tape.line(token)}: process {tape.raw(token)[:40]} is neither an integer nor a nemesis."
        )
    return min(NEMESIS_PROCESS, -int(found[1] or 1))


def _in_order(path: Path, tape: Tape, events: Tokens, course: PairingState, whole: bool) -> tuple[Ints, Tokens] | None:
    """Events by their `index` where all state one, else in the order of the text."""
    tokens = events[:, INDEX]
    stated = (tokens >= 0) & (tape.kind[np.maximum(tokens, 0)] == INTEGER) if len(tokens) else np.ones(0, bool)
    if course.by_index is None and len(tokens):
        course.by_index = bool(stated.all())
    if not course.by_index:
        fresh = course.events + np.arange(len(events) - len(course.carried))
        return np.concatenate((course.carried, fresh)), events
    if not stated.all():
        return None
    index = tape.number[tokens]
    beyond = np.flatnonzero((index < 0) | (index >= MOST_EVENTS))
    if len(beyond):
        line = tape.line(int(events[beyond[0], ITSELF]))
        raise UserError(f"{path}, line {line}: an index is {'negative' if index[beyond[0]] < 0 else 'above 2^48'}.")
    steps = np.diff(index)
    if len(index) and not whole and ((steps <= 0).any() or index[len(course.carried)] <= course.last_index):
        return None
    order = np.argsort(index, kind="stable")
    twice = np.flatnonzero(np.diff(index[order]) == 0)
    if len(twice):
        token = int(events[order[twice[0] + 1], ITSELF])
        raise UserError(f"{path}, line {tape.line(token)}: index {index[order[twice[0]]]} is used twice.")
    return index[order], events[order]
