"""Locks that know their owners, locks that give out fencing tokens, and semaphores, as columns for the search.

The owner is the session, or else the process: one that crashed is another one afterwards, and never gives back what it
held. A fencing token is the value of an acquire's answer, and higher than all that were given out before (Kleppmann,
"How to do distributed locking", 2016); an acquire whose token is not known took some token in between. A semaphore's
operations are of as many permits as their value says, of one by default; whoever gives permits back need not have
taken them, as with Java's `Semaphore`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import INFO, NIL, Ints
from checkers.columns.dense import together
from checkers.columns.mops import Columns
from checkers.linearizability.objects.object_columns import (
    ACQUIRE,
    FENCED,
    LOCK,
    OWNED,
    PERMITS,
    REENTRANT,
    Built,
    LockColumns,
    addresses_of,
    make_ops,
)
from harness.errors import UserError

RULES: Final = {"owner-mutex": OWNED, "reentrant-mutex": REENTRANT, "fenced-mutex": FENCED, "semaphore": PERMITS}
"""Which rule each model of locks has."""

_MOST_STATES: Final = 2**31 - 1


def build_locks(model: str, rows: Columns, permits: int) -> Built:
    """Acquires and releases; raises UserError where a lock may have more states than the search can number."""
    rule = RULES[model]
    first, sessions = _owners(rows["session"])
    owner = np.zeros_like(first) if rule == PERMITS else first
    fence = _fences(rows) if rule == FENCED else np.zeros_like(first)
    amount = np.where(rows["value"] == NIL, 1, rows["value"]) if rule == PERMITS else np.ones_like(first)
    amount = np.minimum(amount, permits + 1)
    owners = 1 + int(owner.max(initial=0))
    _, acquired = np.unique(rows["object"][rows["kind"] == ACQUIRE], return_counts=True)
    most = {PERMITS: permits, REENTRANT: int(acquired.max(initial=1))}.get(rule, 1)
    levels = 1 + int(fence.max(initial=0)) + int((_unfenced(rows).sum()) if rule == FENCED else 0)
    if owners * (most + 1) * levels > _MOST_STATES:
        raise UserError(
            f"The locks have more states than {model} can tell apart: {owners - 1} owners, {levels} tokens."
        )
    alike, _ = together([owner, fence, amount])
    columns = LockColumns(rule, owners, most, owner, fence, amount)
    ops = make_ops(LOCK, rows, rows["kind"], alike)._replace(locks=columns)
    return Built(ops, addresses_of(rows), values=dict(enumerate(sessions.tolist(), 1)))


def _owners(session: Ints) -> tuple[Ints, Ints]:
    """By row the number of its owner, from 1; and the owners' sessions."""
    sessions, owner = np.unique(session, return_inverse=True)
    return owner.astype(np.int64) + 1, sessions


def _unfenced(rows: Columns) -> np.ndarray:
    """Acquires of which nobody knows the token."""
    unknown: np.ndarray = (rows["kind"] == ACQUIRE) & ((rows["value"] == NIL) | (rows["status"] == INFO))
    return unknown


def _fences(rows: Columns) -> Ints:
    """By row the level of its fencing token, 0 where none is known. Levels rise as tokens do, and by as much where that
    matters: the acquires whose tokens are unknown have to fit between those of two others."""
    unknown = _unfenced(rows)
    known = np.flatnonzero((rows["kind"] == ACQUIRE) & ~unknown)
    tokens, place = np.unique(rows["value"][known], return_inverse=True)
    room = int(unknown.sum()) + 1
    gaps = np.minimum(np.diff(tokens), room)
    fence = np.zeros(len(rows["kind"]), np.int64)
    fence[known] = np.concatenate(([room], room + np.cumsum(gaps)))[place] if len(tokens) else 0
    return fence
