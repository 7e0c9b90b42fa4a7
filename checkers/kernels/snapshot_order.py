"""Reads at a timestamp against the commits of their cell.

A read at T must return the newest commit at or below T, whoever answers and whenever it is asked, and nothing may be
committed at or below T once it was answered. Commit timestamps are known of acknowledged writes only. Of a version
whose commit's timestamp is unknown, `until` says when it was there at the latest: at the least T at which it was read.
Any other version seen, or committed, above that time is newer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.kernels.columns import NIL, Ints
from checkers.kernels.compiled import kernel
from checkers.kernels.instances import Instances, record

UNEQUAL: Final = 0
MISSED: Final = 1
PREMATURE: Final = 2
WENT_BACK: Final = 3
LATE_COMMIT: Final = 4
STALE: Final = 5

ANOMALIES: Final = (
    "unequal-snapshots",
    "missed-commit",
    "commit-from-the-future",
    "snapshot-went-back",
    "late-commit",
    "stale-beyond-bound",
)
"""By code: two reads of one T differ; a commit at or below T is missing; one above T is there; a snapshot lacks what an
earlier one had; a commit at or below T began after a read at T was answered; a bounded read is older than its bound."""


class Snapshots(NamedTuple):
    """Reads at a timestamp and acknowledged commits, as rows: cell c owns reads `by_time[read_begin[c]:…]`, in order of
    `time` (their T), and commits `by_stamp[commit_begin[c]:…]`, in order of `stamp`. `until` is by version."""

    by_time: Ints
    read_begin: Ints
    time: Ints
    by_stamp: Ints
    commit_begin: Ints
    stamp: Ints
    version: Ints
    until: Ints
    invoke: Ints
    complete: Ints
    judged: npt.NDArray[np.bool_]


@kernel
def _judge_read(snapshots, cell, row, newest, same, other, out):
    """`newest` is the last commit at or below the read's T, `same` the first read of that T, `other` the last read of a
    lower T that showed another version (rows or -1)."""
    version, until = snapshots.version[row], snapshots.until[snapshots.version[row]]
    if same >= 0 and snapshots.version[same] != version:
        record(out, UNEQUAL, snapshots.invoke[row], cell, row, same, -1, -1)
        return
    newer = newest >= 0 and snapshots.version[newest] != version and snapshots.stamp[newest] > until
    if newer and snapshots.invoke[newest] < snapshots.complete[row]:
        record(out, MISSED, snapshots.invoke[row], cell, row, newest, -1, -1)
        return
    known = other >= 0 and snapshots.stamp[row] != NIL and snapshots.stamp[other] != NIL
    if other >= 0 and not known and snapshots.time[other] >= until:
        record(out, WENT_BACK, snapshots.invoke[row], cell, row, other, -1, -1)


@kernel
def _judge_cell(snapshots, cell, out):
    commit, end = snapshots.commit_begin[cell], snapshots.commit_begin[cell + 1]
    newest, same, last = -1, -1, -1
    for place in range(snapshots.read_begin[cell], snapshots.read_begin[cell + 1]):
        row = snapshots.by_time[place]
        while commit < end and snapshots.stamp[snapshots.by_stamp[commit]] <= snapshots.time[row]:
            newest = snapshots.by_stamp[commit]
            commit += 1
        if same >= 0 and snapshots.time[same] != snapshots.time[row]:
            last, same = same, -1
        if not snapshots.judged[row]:
            continue
        if snapshots.stamp[row] > snapshots.time[row]:
            record(out, PREMATURE, snapshots.invoke[row], cell, row, -1, -1, -1)
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


@kernel
def _late_commits(commits, commit_begin, reads, read_begin, invoke, complete, stamp, time, out):
    for cell in range(commit_begin.shape[0] - 1):
        pointer, highest = read_begin[cell], -1
        for place in range(commit_begin[cell], commit_begin[cell + 1]):
            row = commits[place]
            while pointer < read_begin[cell + 1] and complete[reads[pointer]] < invoke[row]:
                done = reads[pointer]
                if highest < 0 or time[done] > time[highest]:
                    highest = done
                pointer += 1
            if highest >= 0 and time[highest] >= stamp[row]:
                record(out, LATE_COMMIT, invoke[row], cell, row, highest, -1, -1)


def late_commits(
    commits: Ints,
    commit_begin: Ints,
    reads: Ints,
    read_begin: Ints,
    invoke: Ints,
    complete: Ints,
    stamp: Ints,
    time: Ints,
    out: Instances,
) -> None:
    """Record commits (in order of invocation a cell) at or below the T of a read that had been answered when they began
    (reads in order of completion)."""
    _late_commits(commits, commit_begin, reads, read_begin, invoke, complete, stamp, time, out)


@kernel
def _stale_reads(reads, read_begin, writes, write_begin, version, horizon, write_time, since, settled, invoke, out):
    for cell in range(read_begin.shape[0] - 1):
        pointer, newest = write_begin[cell], -1
        for place in range(read_begin[cell], read_begin[cell + 1]):
            row = reads[place]
            while pointer < write_begin[cell + 1] and write_time[writes[pointer]] <= horizon[row]:
                done = writes[pointer]
                if newest < 0 or since[version[done]] > since[version[newest]]:
                    newest = done
                pointer += 1
            if newest >= 0 and settled[version[row]] < since[version[newest]]:
                record(out, STALE, invoke[row], cell, row, newest, -1, -1)


def stale_reads(
    reads: Ints,
    read_begin: Ints,
    writes: Ints,
    write_begin: Ints,
    version: Ints,
    horizon: Ints,
    write_time: Ints,
    since: Ints,
    settled: Ints,
    invoke: Ints,
    out: Instances,
) -> None:
    """Record reads (in order of `horizon`, their begin less their bound) that certainly lack a write which completed by
    then (writes in order of `write_time`)."""
    _stale_reads(reads, read_begin, writes, write_begin, version, horizon, write_time, since, settled, invoke, out)
