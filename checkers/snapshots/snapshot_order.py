"""Reads at a timestamp against the commits of their cell.

A read at T must return the newest commit at or below T, whoever answers and whenever it is asked, and nothing may be
committed at or below T once it was answered. No two commits of a cell have one timestamp; it is known of acknowledged
writes only. Of a version whose commit's timestamp is unknown, `until` says when it was there at the latest: at the
least T at which it was read. Any other version seen, or committed, at or above that time is newer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from checkers.columns.codes import NIL, Bools, Ints
from checkers.columns.instances import Instances, record
from checkers.compiled import kernel, lean

UNEQUAL: Final = 0
MISSED: Final = 1
PREMATURE: Final = 2
WENT_BACK: Final = 3
LATE_COMMIT: Final = 4
STALE: Final = 5
BELOW_MINIMUM: Final = 6
AHEAD: Final = 7
IN_VAIN: Final = 8
BEHIND: Final = 9

ANOMALIES: Final = (
    "unequal-snapshots",
    "missed-commit",
    "commit-from-the-future",
    "snapshot-went-back",
    "late-commit",
    "stale-beyond-bound",
    "below-minimum",
    "ahead-of-clocks",
    "blocked-in-vain",
    "session-behind",
)
"""By code: two reads of one T differ; a commit at or below T is missing; one above T is there; a snapshot lacks what an
earlier one had; a commit at or below T began after a read at T was answered; a bounded read is older than its bound; it
was served at a time before the least that would do; an operation was acknowledged with a time that no clock within the
bounds can have shown by then; a bounded read waited where it could have been served without; an
operation is at an earlier time than one of its session before it."""


class Snapshots(NamedTuple):
    """Reads at a timestamp and acknowledged commits, as rows: cell c owns reads `by_time[read_begin[c]:…]`, in order of
    `time` (their T), and commits `by_stamp[commit_begin[c]:…]`, in order of `stamp`. By version are `until` and
    `nobodys`, whether nothing committed it."""

    by_time: Ints
    read_begin: Ints
    time: Ints
    by_stamp: Ints
    commit_begin: Ints
    stamp: Ints
    version: Ints
    until: Ints
    nobodys: Bools
    invoke: Ints
    complete: Ints
    judged: Bools


@lean
def _judge_read(snapshots, cell, row, newest, same, other, out):
    """`newest` is the last commit at or below the read's T, `same` the first read of that T, `other` the last read of a
    lower T that showed another version (rows or -1)."""
    version, until = snapshots.version[row], snapshots.until[snapshots.version[row]]
    # One T is one snapshot. Either read may be the wrong one, so nothing more is concluded from this one.
    if same >= 0 and snapshots.version[same] != version:
        record(out, UNEQUAL, snapshots.invoke[row], cell, (row, same, -1, -1))
        return
    # A commit at or below T whose version is not the one returned, and is newer than it: the returned one was there by
    # `until` at the latest, and not at the commit's very time unless that is what both of them state. A commit that
    # began after the answer is no business of the read's (LATE_COMMIT tells it).
    another = newest >= 0 and snapshots.version[newest] != version
    newer = another and snapshots.stamp[newest] >= until and snapshots.stamp[newest] != snapshots.stamp[row]
    # What nobody committed is not the newest commit, whenever it was read.
    newer |= another and snapshots.nobodys[version]
    if newer and snapshots.invoke[newest] < snapshots.complete[row]:
        record(out, MISSED, snapshots.invoke[row], cell, (row, newest, -1, -1))
        return
    # Where both stamps are known, `newest` has said all there is to say. Else: a lower T showed another version, at a
    # time when this one was there, so that one is newer, and it is gone at a higher T.
    known = other >= 0 and snapshots.stamp[row] != NIL and snapshots.stamp[other] != NIL
    if other >= 0 and not known and snapshots.time[other] >= until:
        record(out, WENT_BACK, snapshots.invoke[row], cell, (row, other, -1, -1))


@lean
def _judge_cell(snapshots, cell, out):
    commit, end = snapshots.commit_begin[cell], snapshots.commit_begin[cell + 1]
    # Two sorted lists are merged: reads in order of T, commits in order of their stamp. When a read is judged, `newest`
    # is the last commit at or below its T, `same` the first read of its T, `last` that of the T before.
    newest, same, last = -1, -1, -1
    for place in range(snapshots.read_begin[cell], snapshots.read_begin[cell + 1]):
        row = snapshots.by_time[place]
        while commit < end and snapshots.stamp[snapshots.by_stamp[commit]] <= snapshots.time[row]:
            newest = snapshots.by_stamp[commit]
            commit += 1
        if same >= 0 and snapshots.time[same] != snapshots.time[row]:
            last, same = same, -1
        # Which of several writes it shows nobody knows, but it is one value at this T that it shows.
        if not snapshots.judged[row]:
            if same >= 0 and snapshots.version[same] != snapshots.version[row]:
                record(out, UNEQUAL, snapshots.invoke[row], cell, (row, same, -1, -1))
            same = row if same < 0 else same
            continue
        if snapshots.stamp[row] > snapshots.time[row]:
            record(out, PREMATURE, snapshots.invoke[row], cell, (row, -1, -1, -1))
        other = last if last >= 0 and snapshots.version[last] != snapshots.version[row] else -1
        _judge_read(snapshots, cell, row, newest, same, other, out)
        if same < 0:
            same = row


@kernel
def _judge_all(snapshots, out):
    for cell in range(snapshots.read_begin.shape[0] - 1):
        if snapshots.read_begin[cell] < snapshots.read_begin[cell + 1]:
            _judge_cell(snapshots, cell, out)


def judge_snapshots(snapshots: Snapshots, out: Instances) -> None:
    """Record UNEQUAL, MISSED, PREMATURE and WENT_BACK; `stamp` of a read is that of the version it returned, the least
    integer where that is unknown."""
    _judge_all(snapshots, out)


class InCells(NamedTuple):
    """Rows by cell, in an order of their own: cell c owns `rows[begin[c]:begin[c + 1]]`."""

    rows: Ints
    begin: Ints


class SnapshotPromises(NamedTuple):
    """By row what an operation promises to those that begin when it is over, and what it must not fall short of."""

    invoke: Ints  # the event of its invocation
    begin: Ints  # when it begins, in events or on the clock
    end: Ints  # when it is over, likewise
    promised: Ints  # what later ones must exceed
    least: Ints  # a promise above this is broken by the operation


@kernel
def _broken_promises(late, early, promises, code, out):
    for cell in range(late.begin.shape[0] - 1):
        # early.rows[:pointer] were over before the operation at hand began; `highest` is the one of them that promises
        # most: if that promise is kept, all are.
        pointer, highest = early.begin[cell], -1
        for place in range(late.begin[cell], late.begin[cell + 1]):
            row = late.rows[place]
            while pointer < early.begin[cell + 1] and promises.end[early.rows[pointer]] < promises.begin[row]:
                done = early.rows[pointer]
                if highest < 0 or promises.promised[done] > promises.promised[highest]:
                    highest = done
                pointer += 1
            if highest >= 0 and promises.promised[highest] > promises.least[row]:
                record(out, code, promises.invoke[row], cell, (row, highest, -1, -1))


def broken_promises(late: InCells, early: InCells, promises: SnapshotPromises, code: int, out: Instances) -> None:
    """Record by a code the operations `late` (in order of `begin` a cell) that fall short of what one of `early` (in
    order of `end`) promised which was over when they began: commits at or below the T of a read that had been answered
    (LATE_COMMIT), reads that certainly lack a write which completed by then (STALE)."""
    _broken_promises(late, early, promises, code, out)


@kernel
def _record_each(rows, others, invoke, cell, code, out):
    for place in range(rows.shape[0]):
        row = rows[place]
        record(out, code, invoke[row], cell[row], (row, others[place], -1, -1))


class Accused(NamedTuple):
    """Rows that are wrong, and for each the one that proves it (-1: itself)."""

    rows: Ints
    others: Ints


def record_each(accused: Accused, invoke: Ints, cell: Ints, code: int, out: Instances) -> None:
    """Record by a code operations that are wrong by what is stated."""
    _record_each(*accused, invoke, cell, code, out)
