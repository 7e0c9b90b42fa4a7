"""The session guarantees (Terry et al. 1994) on cells, and monotonic reads across sessions in real time.

One pass over each cell's operations in order of invocation. The newest that a session has read and written, and the
newest that completed strong reads of anyone have shown, are kept by their `since`; whatever is `settled` before that is
certainly older (see `versions`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import NIL, Ints
from checkers.columns.instances import Instances, record
from checkers.compiled import kernel, lean_inline

MONOTONIC_READS: Final = 0
READ_YOUR_WRITES: Final = 1
MONOTONIC_WRITES: Final = 2
WRITES_FOLLOW_READS: Final = 3

GUARANTEES: Final = ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads")
"""By code."""

REAL_TIME: Final = 0
IN_SESSION: Final = 1

_NOTHING: Final = NIL


class Events(NamedTuple):
    """Operations sorted by cell and invocation: cell c owns `begin[c]:begin[c + 1]`. `since` and `settled` are those of
    the version read or written; `read` and `acknowledged` (a write that is known to have taken effect) are flags; what
    is not `judged` (an unclear version) is skipped. `by_completion` has each cell's strong reads as rows in order of
    completion, cell c's at `finished[c]:finished[c + 1]`."""

    begin: Ints
    invoke: Ints
    complete: Ints
    session: npt.NDArray[np.int32]
    version: npt.NDArray[np.int32]
    since: Ints
    settled: Ints
    read: npt.NDArray[np.bool_]
    strong: npt.NDArray[np.bool_]
    acknowledged: npt.NDArray[np.bool_]
    judged: npt.NDArray[np.bool_]
    by_completion: Ints
    finished: Ints


class _Sessions(NamedTuple):
    """By session: the cell that the rest is about, and the rows of the newest read and write."""

    cell: npt.NDArray[np.int64]
    read: npt.NDArray[np.int64]
    write: npt.NDArray[np.int64]


@lean_inline
def _newer(events, candidate, newest):
    return newest < 0 or events.since[candidate] > events.since[newest]


@lean_inline
def _misses(events, row, earlier):
    """Whether a row's version is certainly older than that of an earlier row, which had completed."""
    if earlier < 0 or events.complete[earlier] >= events.invoke[row]:
        return False
    return events.settled[row] < events.since[earlier]


@lean_inline
def _undecided(events, row, earlier):
    if earlier < 0 or events.version[earlier] == events.version[row]:
        return False
    forth, back = events.settled[earlier] < events.since[row], events.settled[row] < events.since[earlier]
    return not forth and not back


@kernel
def _judge(events, sessions, wanted, out, guilty):
    """Counts violations in `out` (kept as row, earlier row, scope) and flags cells with non-monotonic reads; returns
    how many reads were compared with the read before, and how many comparisons could not be decided."""
    compared, undecided = 0, 0
    for cell in range(events.begin.shape[0] - 1):
        pointer, newest, last = events.finished[cell], -1, -1
        for row in range(events.begin[cell], events.begin[cell + 1]):
            # Real time: what had completed when this row began. `newest` is the newest of it, by what is known of
            # versions, `last` the one that completed last.
            while pointer < events.finished[cell + 1]:
                done = events.by_completion[pointer]
                if events.complete[done] >= events.invoke[row]:
                    break
                if _newer(events, done, newest):
                    newest = done
                last = done
                pointer += 1
            if not events.judged[row]:
                undecided += events.read[row]
                compared += events.read[row]
                continue
            mine = events.session[row]
            # What a session did last is kept by session, and counts only for the cell at hand.
            if sessions.cell[mine] != cell:
                sessions.cell[mine], sessions.read[mine], sessions.write[mine] = cell, -1, -1
            my_read, my_write = sessions.read[mine], sessions.write[mine]
            order = events.invoke[row]
            if events.read[row]:
                # What counts as a comparison: of strong reads with whatever completed before, of others with their
                # session's last.
                before = last if events.strong[row] and last >= 0 else my_read
                compared += before >= 0
                undecided += _undecided(events, row, before)
                if _misses(events, row, my_read):
                    guilty[cell] = True
                    if wanted[0]:
                        record(out, 0, order, cell, (row, my_read, 1, -1))
                elif events.strong[row] and _misses(events, row, newest):
                    guilty[cell] = True
                    if wanted[0]:
                        record(out, 0, order, cell, (row, newest, 0, -1))
                if wanted[1] and _misses(events, row, my_write):
                    record(out, 1, order, cell, (row, my_write, 1, -1))
                # The newest stays, not the last: else a read that went back would excuse the next one.
                if _newer(events, row, my_read):
                    sessions.read[mine] = row
            else:
                if wanted[2] and _misses(events, row, my_write):
                    record(out, 2, order, cell, (row, my_write, 1, -1))
                if wanted[3] and _misses(events, row, my_read):
                    record(out, 3, order, cell, (row, my_read, 1, -1))
                if events.acknowledged[row] and _newer(events, row, my_write):
                    sessions.write[mine] = row
    return compared, undecided


def judge_sessions(
    events: Events, session_count: int, wanted: npt.NDArray[np.bool_], out: Instances
) -> tuple[npt.NDArray[np.bool_], int, int]:
    """Judge the wanted guarantees (flags by code); returns which cells have reads that are certainly not monotonic, how
    many comparisons of a read with the read before there were, and how many of them the history does not decide."""
    sessions = _Sessions(np.full(session_count, -1), np.full(session_count, -1), np.full(session_count, -1))
    guilty = np.zeros(len(events.begin) - 1, np.bool_)
    compared, undecided = _judge(events, sessions, wanted, out, guilty)
    return guilty, int(compared), int(undecided)
