"""The session guarantees (Terry et al. 1994) on cells, and monotonic reads across sessions in real time.

An operation precedes another of its session if it completed before the other was invoked; those that overlap come in no
order. One pass over each cell's operations in order of invocation takes in what had completed by then: the newest that
a session has read and written, and the newest that strong reads of anyone have shown, are kept by their `since`;
whatever is `settled` before that is certainly older (see `versions`).
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
    the version read or written; what is not `judged` (an unclear version) is skipped. `by_completion` has what later
    operations are compared with, each cell's judged reads and acknowledged writes, as rows in order of completion: cell
    c's at `finished[c]:finished[c + 1]`."""

    begin: Ints
    invoke: Ints
    complete: Ints
    session: npt.NDArray[np.int32]
    version: npt.NDArray[np.int32]
    since: Ints
    settled: Ints
    read: npt.NDArray[np.bool_]
    strong: npt.NDArray[np.bool_]
    judged: npt.NDArray[np.bool_]
    by_completion: Ints
    finished: Ints


class _Sessions(NamedTuple):
    """By session: the cell that the rest is about, and the rows of the newest read and write that completed."""

    cell: npt.NDArray[np.int64]
    read: npt.NDArray[np.int64]
    write: npt.NDArray[np.int64]


@lean_inline
def _newer(events, candidate, newest):
    return newest < 0 or events.since[candidate] > events.since[newest]


@lean_inline
def _misses(events, row, earlier):
    """Whether a row's version is certainly older than that of an earlier row, which had completed (-1: of none)."""
    return earlier >= 0 and events.settled[row] < events.since[earlier]


@lean_inline
def _undecided(events, row, earlier):
    if earlier < 0 or events.version[earlier] == events.version[row]:
        return False
    forth, back = events.settled[earlier] < events.since[row], events.settled[row] < events.since[earlier]
    return not forth and not back


@lean_inline
def _enter(sessions, session, cell):
    """What a session did is kept by session, and counts only for the cell at hand."""
    if sessions.cell[session] != cell:
        sessions.cell[session], sessions.read[session], sessions.write[session] = cell, -1, -1


@lean_inline
def _take_in(events, sessions, done):
    """An operation that has completed. The newest stays, not the last: else a read that went back would excuse the
    next one."""
    newest = sessions.read if events.read[done] else sessions.write
    session = events.session[done]
    if _newer(events, done, newest[session]):
        newest[session] = done


@kernel
def _judge(events, sessions, wanted, out, stale):
    """Counts violations in `out` (kept as row, earlier row, scope) and marks stale reads (`judge_sessions`); returns
    how many reads were compared with the read before, and how many comparisons could not be decided."""
    compared, undecided = 0, 0
    for cell in range(events.begin.shape[0] - 1):
        pointer, newest, last = events.finished[cell], -1, -1
        for row in range(events.begin[cell], events.begin[cell + 1]):
            # What had completed when this row began. Of strong reads `newest` is the newest, by what is known of
            # versions, `last` the one that completed last.
            while pointer < events.finished[cell + 1]:
                done = events.by_completion[pointer]
                if events.complete[done] >= events.invoke[row]:
                    break
                _enter(sessions, events.session[done], cell)
                _take_in(events, sessions, done)
                if events.strong[done]:
                    if _newer(events, done, newest):
                        newest = done
                    last = done
                pointer += 1
            if not events.judged[row]:
                undecided += events.read[row]
                compared += events.read[row]
                continue
            mine = events.session[row]
            _enter(sessions, mine, cell)
            my_read, my_write = sessions.read[mine], sessions.write[mine]
            order = events.invoke[row]
            if events.read[row]:
                # What counts as a comparison: of strong reads with whatever completed before, of others with their
                # session's newest.
                before = last if events.strong[row] and last >= 0 else my_read
                compared += before >= 0
                undecided += _undecided(events, row, before)
                if _misses(events, row, my_read):
                    stale[row] |= 1
                    if wanted[0]:
                        record(out, 0, order, cell, (row, my_read, 1, -1))
                elif events.strong[row] and _misses(events, row, newest):
                    stale[row] |= 1
                    if wanted[0]:
                        record(out, 0, order, cell, (row, newest, 0, -1))
                if wanted[1] and _misses(events, row, my_write):
                    stale[row] |= 2
                    record(out, 1, order, cell, (row, my_write, 1, -1))
            else:
                if wanted[2] and _misses(events, row, my_write):
                    record(out, 2, order, cell, (row, my_write, 1, -1))
                if wanted[3] and _misses(events, row, my_read):
                    record(out, 3, order, cell, (row, my_read, 1, -1))
    return compared, undecided


def judge_sessions(
    events: Events, session_count: int, wanted: npt.NDArray[np.bool_], out: Instances
) -> tuple[npt.NDArray[np.int8], int, int]:
    """Judge the wanted guarantees (flags by code); returns by row 1 for reads that are certainly not monotonic, 2 for
    those that miss an own write, if that is wanted, 3 for both and else 0; then how many comparisons of a read with the
    read before there were, and how many of them the history does not decide."""
    sessions = _Sessions(np.full(session_count, -1), np.full(session_count, -1), np.full(session_count, -1))
    stale = np.zeros(len(events.read), np.int8)
    compared, undecided = _judge(events, sessions, wanted, out, stale)
    return stale, int(compared), int(undecided)
