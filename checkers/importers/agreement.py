"""Refuses a history in which a completion says that another operation took place than was invoked.

What was asked for stands in the invocation, what was found in the completion of an operation that succeeded. A
transaction completes with its micro-operations, in their order, of which only reads get a value; a change completes
with its own value. A completion of nil says nothing, and of failed and unknown operations the value is an error's. So
a read that was invoked with a value must not complete with nil: it would have found what it was asked with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean
from checkers.importers.tape import INTEGER, LIST, MAP, NULL, VECTOR, Tape
from harness.errors import UserError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHANGES: Final = frozenset(
    {"cas", "compare-and-set", "write", "put", "append", "add", "enqueue", "remove", "delete", "transfer"}
)
"""Operations that find nothing: they complete with the value that they were invoked with."""

LOOKS: Final = frozenset({"read", "r", "get", "dequeue"})
"""Operations that complete with what they found."""

_AGREES, _OTHER_VALUE, _OTHER_SIZE, _OTHER_MOP, _OTHER_WRITE = range(5)

_SAYS: Final = {
    _OTHER_VALUE: "with another value than it was invoked with",
    _OTHER_SIZE: "with more or fewer micro-operations than it was invoked with",
    _OTHER_MOP: "with another micro-operation than it was invoked with",
    _OTHER_WRITE: "with another value of a micro-operation than it was invoked with",
}


@lean
def _same_text(tape, one, other):
    size = tape.stop[one] - tape.start[one]
    if size != tape.stop[other] - tape.start[other]:
        return False
    place = 0
    while place < size and tape.text[tape.start[one] + place] == tape.text[tape.start[other] + place]:
        place += 1
    return place == size


@lean
def _alike(tape, one, other):
    """Whether two forms say the same; a list is a vector."""
    count = tape.after[one] - one
    if count != tape.after[other] - other:
        return False
    for i in range(count):
        kind, there = tape.kind[one + i], tape.kind[other + i]
        lists = kind in (VECTOR, LIST) and there in (VECTOR, LIST)
        if (kind != there and not lists) or tape.after[one + i] - one != tape.after[other + i] - other:
            return False
        if kind < VECTOR and not _same_text(tape, one + i, other + i):
            return False
        if kind == INTEGER and tape.number[one + i] != tape.number[other + i]:
            return False
    return True


@lean
def _parts(tape, token):
    count, child = 0, token + 1
    while child < tape.after[token]:
        count, child = count + 1, tape.after[child]
    return count


@lean
def _is_list(tape, token):
    return tape.kind[token] == VECTOR or tape.kind[token] == LIST


@lean
def _is_mops(tape, token):
    """Whether this is a list of [f key value]."""
    if not _is_list(tape, token) or tape.after[token] == token + 1:
        return False
    child = token + 1
    while child < tape.after[token]:
        if not _is_list(tape, child) or _parts(tape, child) != 3 or tape.kind[child + 1] >= VECTOR:
            return False
        child = tape.after[child]
    return True


@lean
def _starts_with(tape, token, letter, size):
    """Whether a name, behind its colon or quote, has that first letter, and that size (0: any)."""
    start, stop = tape.start[token] + 1, tape.stop[token]
    if tape.text[stop - 1] == 34:  # a closing quote
        stop -= 1
    return stop > start and tape.text[start] == letter and (size == 0 or stop - start == size)


_R, _W, _A, _C, _P = (ord(letter) for letter in "rwacp")


@lean
def _is_write(tape, name):
    """w, write, append, add, cas, put: what finds nothing."""
    return (
        _starts_with(tape, name, _W, 0)
        or _starts_with(tape, name, _A, 0)
        or _starts_with(tape, name, _C, 3)
        or _starts_with(tape, name, _P, 3)
    )


@lean
def _is_page(tape, name):
    return _starts_with(tape, name, _P, 4)


@lean
def _compare_mops(tape, asked, found):
    if not _is_mops(tape, found):
        return _OTHER_VALUE
    one, other = asked + 1, found + 1
    while one < tape.after[asked]:
        if _is_page(tape, one + 1):  # what a page found stands beside it
            return _AGREES
        if other >= tape.after[found]:
            return _OTHER_SIZE
        key, there = one + 2, other + 2
        if not _alike(tape, one + 1, other + 1) or not _alike(tape, key, there):
            return _OTHER_MOP
        if _is_write(tape, one + 1) and not _alike(tape, tape.after[key], tape.after[there]):
            return _OTHER_WRITE
        one, other = tape.after[one], tape.after[other]
    return _AGREES if other >= tape.after[found] else _OTHER_SIZE


@lean
def _compare(tape, asked, found, is_change):
    if is_change:
        return _AGREES if _alike(tape, asked, found) else _OTHER_VALUE
    if _is_mops(tape, asked):
        return _compare_mops(tape, asked, found)
    second = tape.after[asked + 1] if _is_list(tape, asked) and tape.after[asked] > asked + 1 else tape.after[asked]
    # [key transaction], of one of several independent objects
    if second < tape.after[asked] and tape.after[second] == tape.after[asked] and _is_mops(tape, second):
        if not _is_list(tape, found) or _parts(tape, found) != 2 or not _alike(tape, asked + 1, found + 1):
            return _OTHER_VALUE
        return _compare_mops(tape, second, tape.after[found + 1])
    return _AGREES


@lean
def _first_other(tape, asked, found, is_change):
    for i in range(asked.shape[0]):
        if asked[i] >= 0 and found[i] >= 0 and tape.kind[asked[i]] != NULL and tape.kind[found[i]] != NULL:
            problem = _compare(tape, asked[i], found[i], is_change[i])
            if problem != _AGREES:
                return i, problem
    return -1, _AGREES


def require_agreement(path: Path, tape: Tape, asked: Ints, found: Ints, is_change: Bools) -> None:
    """Raise UserError, naming file and line, for the first operation whose completion says another one.

    `asked` and `found` are the tokens of the values of invocations and of successful completions (-1: none);
    `is_change` says which are operations of `CHANGES`.
    """
    place, problem = _first_other(tape, asked, found, is_change)
    if place >= 0:
        line = tape.line(int(found[place]))
        raise UserError(f"{path}, line {line}: an operation completes {_SAYS[problem]}.")


def require_answers(path: Path, tape: Tape, asked: Ints) -> None:
    """Raise UserError for the first read that completed with nil and was invoked with a value that has no nil in it;
    `asked` are the tokens of the values of such reads."""
    asked = asked[asked >= 0]
    asked = asked[np.isin(tape.kind[asked], (MAP, NULL), invert=True)]
    if not len(asked):
        return
    nulls = np.concatenate(([0], np.cumsum(tape.kind == NULL)))
    whole = asked[nulls[tape.after[asked]] == nulls[asked]]
    if len(whole):
        line = tape.line(int(whole[0]))
        raise UserError(f"{path}, line {line}: a read is invoked with a value, and completes with none.")
