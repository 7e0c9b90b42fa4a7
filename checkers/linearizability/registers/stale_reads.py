"""Reads of registers that no order allows, whatever else is open: for values that repeat, before any search.

A read, or a compare-and-set of its expected value, that found v needs a write of v that began before it completed and
that comes last before it. Say x found or left another value and completed before the read began. Then that write comes
behind x, so it did not complete before x began. Of all such x the one that began last asks for most, and of all writes
of v that had begun the one that completes last offers most (one of unknown outcome never ends): where these two fail
all fail, and the history is refuted. The unset register is a write of nil before everything.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.columns.codes import CAS, FAILED_CAS, NEVER, READ, WRITE, Bools, Int, Ints
from checkers.columns.instances import Instances, record
from checkers.compiled import lean, make_record
from checkers.linearizability.registers.prepared_registers import Prepared, SearchOps
from checkers.linearizability.registers.register_zones import READ_BEFORE_WRITE, READ_OF_UNWRITTEN, STALE_READ

LAST_BEGUN: Final = ("newest", "other")
"""Among completed operations the one that began last, and the one of another value that began last; -1: none."""


@lean
def _note(ops: SearchOps, row: Int, last: np.record) -> None:
    """An operation that found or left a value completes."""
    newest = last.newest
    if newest < 0 or ops.value[row] == ops.value[newest]:
        if newest < 0 or ops.invoke[row] > ops.invoke[newest]:
            last.newest = row
    elif ops.invoke[row] > ops.invoke[newest]:
        last.newest, last.other = row, newest
    elif last.other < 0 or ops.invoke[row] > ops.invoke[last.other]:
        last.other = row


@lean
def _found(ops: SearchOps, row: Int) -> Int:
    """The value that an operation found, or -1."""
    kind = ops.kind[row]
    return ops.value[row] if kind == READ else ops.expected[row] if kind == CAS else np.int32(-1)


@lean
def _report(ops: SearchOps, key: Int, row: Int, bar: Int, write: Int, value: Int, out: Instances) -> None:
    """Say why a read is impossible: by rows of the prepared operations."""
    if write >= 0 or value == 0:
        record(out, STALE_READ, ops.invoke[row], key, (row, bar, write, bar))
        return
    for later in range(row + 1, ops.offsets[key + 1]):
        if ops.kind[later] in (WRITE, CAS) and ops.value[later] == value:
            record(out, READ_BEFORE_WRITE, ops.invoke[later], key, (row, later, -1, -1))
            return
    record(out, READ_OF_UNWRITTEN, ops.invoke[row], key, (row, -1, -1, -1))


@lean
def _judge_key(ops: SearchOps, key: Int, bars: Ints, latest: Ints, last: np.record, out: Instances) -> bool:
    """Events in order: at its invocation a read learns what completed before, at its completion what was written."""
    # `begun` is the next row to begin; `last` is of what completed so far;
    # `latest[v]` completes last of the writes of v that have begun.
    start, stop = ops.offsets[key], ops.offsets[key + 1]
    last.newest, last.other = -1, -1
    latest[: ops.values[key]] = -1
    begun, wrong = start, False
    for place in range(start, stop):
        row = ops.order[place]
        if ops.complete[row] == NEVER:
            break
        while begun < stop and ops.invoke[begun] < ops.complete[row]:
            # Of what found or left another value and completed before a read began, the one that began last.
            found, kind = _found(ops, begun), ops.kind[begun]
            bars[begun] = last.other if last.newest >= 0 and ops.value[last.newest] == found else last.newest
            if kind in (WRITE, CAS):
                before = latest[ops.value[begun]]
                if before < 0 or ops.complete[begun] > ops.complete[before]:
                    latest[ops.value[begun]] = begun
            begun += 1
        value = _found(ops, row)
        if value >= 0:
            bar, write = bars[row], latest[value]
            # No write of the value had begun (nil, which is 0, was there before everything), or all were over before
            # the bar began.
            never = write < 0 and (bar >= 0 or value > 0)
            if never or (write >= 0 and bar >= 0 and ops.complete[write] <= ops.invoke[bar]):
                wrong = True
                _report(ops, key, row, bar, write, value, out)
        if ops.kind[row] != FAILED_CAS:
            _note(ops, row, last)
    return wrong


@lean
def _judge_keys(ops: SearchOps, bars: Ints, latest: Ints, last: np.record, out: Instances, refuted: Bools) -> None:
    for key in range(refuted.shape[0]):
        refuted[key] = _judge_key(ops, key, bars, latest, last, out)


def judge_stale(prepared: Prepared, out: Instances) -> Bools:
    """Which keys are refuted by such reads; these go to `out`, as zones report them."""
    ops = prepared.ops
    refuted = np.zeros(len(ops.offsets) - 1, np.bool_)
    bars, latest = np.empty(len(ops.kind), np.int64), np.empty(int(ops.values.max(initial=1)), np.int64)
    _judge_keys(ops, bars, latest, make_record(LAST_BEGUN), out, refuted)
    rows = out.kept[:, :, 2:]
    rows[rows >= 0] = prepared.rows[rows[rows >= 0]]
    return refuted
