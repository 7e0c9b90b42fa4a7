"""Pairs the events of a foreign history: each completion with its process's open invocation, in one total order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

from checkers.importers.maps import INDEX, PROCESS, TYPE, F, Tokens
from checkers.importers.scalars import name_of
from checkers.importers.tape import INTEGER, NULL, Tape
from harness.errors import UserError
from harness.ops import NEMESIS_PROCESS

Ints = npt.NDArray[np.int64]

TYPES: Final = ("invoke", "ok", "fail", "info")
INVOKE, OK, FAIL, INFO = range(4)

_MOST_NAMES: Final = 4096

NO_F: Final = "txn"
"""The `f` of operations that state none (Elle's own histories)."""


@dataclass(frozen=True, slots=True)
class Paired:
    """Operations in order of invocation: event numbers of invocation and completion (-1: none), and per event its index
    in the total order, process, type code and `f` (a number into `names`)."""

    invocation: Ints
    completion: Ints
    index: Ints
    process: Ints
    type: Ints
    f: Ints
    names: tuple[str, ...]


@njit(cache=True)
def _number(tape, tokens, firsts, codes):
    """Number tokens by their text; `firsts` are the first tokens of each. Returns how many, or -1 for too many."""
    count = 0
    for i in range(tokens.shape[0]):
        token = tokens[i]
        start, size = tape.start[token], tape.stop[token] - tape.start[token]
        codes[i] = -1
        for known in range(count):
            other = tape.start[firsts[known]]
            if tape.stop[firsts[known]] - other != size:
                continue
            same = True
            for k in range(size):
                if tape.text[start + k] != tape.text[other + k]:
                    same = False
                    break
            if same:
                codes[i] = known
                break
        if codes[i] < 0:
            if count == firsts.shape[0]:
                return -1
            firsts[count], codes[i] = token, count
            count += 1
    return count


def number_names(path: Path, tape: Tape, tokens: Tokens) -> tuple[Ints, tuple[str, ...]]:
    """Codes of the tokens' names and the names; tokens of -1 get code -1."""
    present = tokens >= 0
    codes, firsts = np.full(len(tokens), -1), np.empty(_MOST_NAMES, np.int64)
    inner = np.empty(int(present.sum()), np.int64)
    count = _number(tape, tokens[present], firsts, inner)
    if count < 0:
        raise UserError(f"{path} has more than {_MOST_NAMES} different operation names, so this is not a history.")
    names = [name_of(tape, int(token)) for token in firsts[:count]]
    distinct = tuple(dict.fromkeys(names))
    codes[present] = np.array([distinct.index(name) for name in names] + [0])[inner]
    return codes, distinct


@njit(cache=True)
def _pair(process, kind, f, dense, opened, completion):
    """Set `completion` of invocations. Returns (problem, event): 1 no invocation, 2 still open, 3 another f."""
    for event in range(process.shape[0]):
        if process[event] < 0:
            continue
        here = dense[event]
        if kind[event] == 0:
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


def pair(path: Path, tape: Tape, events: Tokens) -> tuple[Paired, Tokens]:
    """The operations of a history and its events in their total order; raises UserError naming the line at fault."""
    index, events = _in_order(path, tape, events)
    types = _types(path, tape, events)
    process = _processes(tape, events)
    f, names = number_names(path, tape, events[:, F])
    distinct, dense = np.unique(process, return_inverse=True)
    completion = np.full(len(events), -1)
    problem, event = _pair(process, types, f, dense, np.full(len(distinct) + 1, -1), completion)
    if problem:
        line, reason = tape.line(int(events[event, -1])), _PROBLEMS[problem].format(process[event])
        raise UserError(f"{path}, line {line}: {reason}, so this is not a whole history.")
    begun = np.flatnonzero((types == INVOKE) | (process < 0))
    missing = f < 0
    if missing.any():
        names = names if NO_F in names else (*names, NO_F)
        f = np.where(missing, names.index(NO_F), f)
    return Paired(begun, completion[begun], index, process, types, f, names), events


def _types(path: Path, tape: Tape, events: Tokens) -> Ints:
    codes, names = number_names(path, tape, events[:, TYPE])
    for code, name in enumerate(names):
        if name not in TYPES:
            token = int(events[codes == code][0, -1])
            raise UserError(f"{path}, line {tape.line(token)}: {name!r} is not a type; it is invoke, ok, fail or info.")
    table: Ints = np.array([TYPES.index(name) for name in names] + [0])
    return table[codes]


def _processes(tape: Tape, events: Tokens) -> Ints:
    """Process numbers; named processes are nemeses, and a history without processes has just one."""
    tokens = events[:, PROCESS]
    kinds = np.where(tokens >= 0, tape.kind[np.maximum(tokens, 0)], NULL) if len(tokens) else tokens
    numbers = np.where(kinds == INTEGER, tape.number[np.maximum(tokens, 0)], NEMESIS_PROCESS) if len(tokens) else tokens
    return np.where(kinds == NULL, 0, numbers)


def _in_order(path: Path, tape: Tape, events: Tokens) -> tuple[Ints, Tokens]:
    """Events by their `index` where all state one, else in the order of the file."""
    tokens = events[:, INDEX]
    stated = (tokens >= 0) & (tape.kind[np.maximum(tokens, 0)] == INTEGER) if len(tokens) else np.empty(0, bool)
    if not len(tokens) or not stated.all():
        return np.arange(len(events)), events
    index = tape.number[tokens]
    order = np.argsort(index, kind="stable")
    twice = np.flatnonzero(index[order][1:] == index[order][:-1])
    if len(twice):
        token = int(events[order[twice[0] + 1], -1])
        raise UserError(f"{path}, line {tape.line(token)}: index {index[order[twice[0]]]} is used twice.")
    if index.min() < 0:
        raise UserError(f"{path}, line {tape.line(int(events[order[0], -1]))}: an index is negative.")
    return index[order], events[order]
