"""What change feeds told beside what clients wrote, and where the two do not fit (the model `change-feed`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, NEVER, NIL, OK, WRITE, Ints
from checkers.columns.dense import spread, together
from checkers.columns.mops import ADDRESS, Columns, selected

ROW: Final = 2
MARK: Final = 3
APPENDED: Final = 7
NAMING: Final = 6
"""What rows of a feed say of it as a whole: a table that it covers, or none, and where it begins."""

Pairs = list[tuple[int, int]]
"""Rows that show an anomaly, each with another row that proves it (-1: none)."""


@dataclass(frozen=True, slots=True)
class FeedTable:
    """Rows in order of events, of which `is_mine` are judged here; of others this task is only told.

    `feed` numbers the sessions of feeds (-1 elsewhere), `cell` and `version` cells and their values; `write` is by row
    of a feed the row of the client's write of that value (-1 none, -2 several). `element` is the version where that was
    appended, else -1: at one time a cell gets one value, but any number of elements. `commits` are acknowledged writes
    with a timestamp. What has one commit time has one number in `one_time`; `untimed` are the first rows of writes
    whose time no client states, in order of that number."""

    rows: Columns
    feed: Ints
    feeds: int
    cell: Ints
    cells: int
    version: Ints
    is_row: np.ndarray
    is_mark: np.ndarray
    is_mine: np.ndarray
    write: Ints
    element: Ints
    commits: Ints
    one_time: Ints
    untimed: Ints

    @staticmethod
    def of(rows: Columns) -> FeedTable:
        order = np.lexsort((rows["place"], rows["invoke"]))
        rows = selected(rows, order)
        cell, cells = together([rows[name] for name in ADDRESS])
        rows["status"] = np.where(_replaced(rows, cell), FAIL, rows["status"])
        appended = np.flatnonzero((rows["kind"] == APPENDED) & (rows["status"] != FAIL))
        rows["kind"] = np.where(rows["kind"] == APPENDED, WRITE, rows["kind"])
        is_row, is_mark = rows["kind"] == ROW, rows["kind"] == MARK
        of_feed = is_row | is_mark | (rows["kind"] == NAMING)
        names, numbers = np.unique(rows["session"][of_feed], return_inverse=True)
        feed = np.full(len(order), -1)
        feed[of_feed] = numbers
        version, count = together([cell, rows["value"]])
        writer = np.full(count, -1)
        writes = np.flatnonzero((rows["kind"] == WRITE) & (rows["status"] != FAIL))
        writer[version[writes]] = writes
        several = np.bincount(version[writes], minlength=count) > 1
        writer[several] = -2
        write = np.where(is_row, writer[version], -1)
        element = np.where(np.isin(version, version[appended]), version, -1)
        commits = writes[(rows["status"][writes] == OK) & (rows["served_ts"][writes] != NIL)]
        alone = np.flatnonzero((element >= 0) & (writer[version] >= 0))
        of_list, _ = together((rows["invoke"][writer[version[alone]]], cell[alone]))
        one_time = version.copy()
        one_time[alone] = count + of_list
        untimed = np.setdiff1d(writes, commits)
        untimed = untimed[_firsts((one_time, rows["invoke"]), untimed, untimed) == untimed]
        untimed = untimed[np.argsort(one_time[untimed], kind="stable")]
        told = (is_row, is_mark, rows["copy"] == 0)
        return FeedTable(
            rows, feed, len(names), cell, cells, version, *told, write, element, commits, one_time, untimed
        )

    def _highest_before(self) -> Ints:
        """By event of a feed: the row of the highest mark of the feed before it, -1 if there is none."""
        row = np.flatnonzero(self.feed >= 0)
        row = row[np.argsort(self.feed[row], kind="stable")]
        feed, marks = self.feed[row], row[self.is_mark[row]]
        # Marks in order of their timestamps, of equal ones the first last: none before it is above it.
        rising = marks[np.lexsort((-marks, self.rows["served_ts"][marks]))]
        rank = np.zeros(len(self.feed), np.int64)
        rank[rising] = np.arange(1, len(rising) + 1)
        width = len(rising) + 1
        best = np.maximum.accumulate(feed * width + rank[row])
        before = np.concatenate(([-1], best[:-1]))
        known = (before // width == feed) & (before % width > 0)
        highest = np.full(len(self.feed), -1)
        highest[row[known]] = rising[before[known] % width - 1]
        return highest

    def _against_marks(self, chosen: np.ndarray, equal: bool) -> Pairs:
        highest, stamp = self._highest_before(), self.rows["served_ts"]
        row = np.flatnonzero(chosen & (highest >= 0) & (stamp != NIL))
        mark = stamp[highest[row]]
        wrong = row[(stamp[row] < mark) | (equal & (stamp[row] == mark))]
        return [(int(r), int(highest[r])) for r in wrong]

    def marks_back(self) -> Pairs:
        return self._against_marks(self.is_mark & self.is_mine, equal=False)

    def rows_below(self) -> Pairs:
        return self._against_marks(self.is_row, equal=True)

    def duplicates(self) -> Pairs:
        """Rows that repeat an earlier row of the feed: the same cell and timestamp (and element, if it is a list), or
        value where one of them has no timestamp and one operation alone wrote it."""
        stamp = self.rows["served_ts"]
        timed, alone = (np.flatnonzero(self.is_row & chosen) for chosen in (stamp != NIL, self.write != -2))
        by_time = _firsts((self.feed, self.cell, stamp, self.element), timed, timed)
        by_value = _firsts((self.feed, self.version), alone, alone)
        untimed = (stamp[alone] == NIL) | (stamp[by_value] == NIL)
        row, of = np.concatenate((timed, alone[untimed])), np.concatenate((by_time, by_value[untimed]))
        row, of = row[row != of], of[row != of]
        _, once = np.unique(row, return_index=True)
        return list(zip(row[once].tolist(), of[once].tolist(), strict=True))

    def unwritten(self) -> Pairs:
        """Rows of values that nobody wrote, or had begun to write when they were told."""
        write = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] != FAIL))
        begun = np.full(int(self.version.max(initial=-1)) + 1, NEVER)
        np.minimum.at(begun, self.version[write], self.rows["invoke"][write])
        early = self.rows["invoke"] < begun[self.version]
        row = np.flatnonzero(self.is_row & (self.rows["served_ts"] != NIL))
        early[row] |= row < _firsts((self.version, self.rows["served_ts"]), self.commits, row)
        return [(int(row), -1) for row in np.flatnonzero(self.is_row & early)]

    def mistimed(self) -> Pairs:
        """Rows with timestamps at which nothing can have given the cell that value: the cell has another commit of that
        time, or got another value then by another row, or the value was told at more times than writes of it had
        begun."""
        stamp = self.rows["served_ts"]
        row = np.flatnonzero(self.is_row & (self.write != -1) & (stamp != NIL))
        row = row[_firsts((self.version, stamp), self.commits, row) < 0]
        if not len(row):
            return []
        at_time = _firsts((self.cell, stamp), self.commits, row)
        earlier = _firsts((self.cell, stamp), row, row)
        at_time = np.where((at_time < 0) & self._differs(earlier, row), earlier, at_time)
        wrong = [(int(r), int(w)) for r, w in zip(row[at_time >= 0], at_time[at_time >= 0], strict=True)]
        row = row[at_time < 0]
        surplus = row[_ranks(self.one_time[row], stamp[row]) >= self._spare(row)]
        known = _firsts((self.one_time,), self.commits, surplus)
        first = _firsts((self.one_time,), row, surplus)
        return sorted([*wrong, *zip(surplus.tolist(), np.where(known < 0, first, known).tolist(), strict=True)])

    def _spare(self, row: Ints) -> Ints:
        """By row how many writes of its value had begun by then that state no time."""
        number, count = self.one_time[row], len(self.cell)
        keys = self.one_time[self.untimed] * count + self.untimed
        spare: Ints = np.searchsorted(keys, number * count + row) - np.searchsorted(keys, number * count)
        return spare

    def _differs(self, earlier: Ints, row: Ints) -> np.ndarray:
        """Which rows tell another value than the earlier ones, and not an element of the same commit, nor one of which
        nobody knows that (see `undecided`)."""
        elements = (self.element[earlier] >= 0) & (self.element[row] >= 0)
        unclear = (self.write[earlier] == -2) | (self.write[row] == -2)
        one_commit = elements & (unclear | (self.one_time[earlier] == self.one_time[row]))
        differs: np.ndarray = (self.version[earlier] != self.version[row]) & ~one_commit
        return differs

    def _commits_by_feeds(self) -> tuple[Ints, Ints]:
        """Commits that only feeds tell the time of, as rows and timestamps: the first row of each, and what else its
        operation appended to the list, told or not."""
        stamp = self.rows["served_ts"]
        row = np.flatnonzero(self.is_row & (self.write != -1) & (stamp != NIL))
        row = row[self._spare(row) > 0]
        row = row[_firsts((self.cell, stamp), self.commits, row) < 0]
        row = row[_firsts((self.cell, stamp, self.element), row, row) == row]
        at_once = row[(self.one_time[row] != self.version[row])]
        at_once = at_once[_firsts((self.one_time, stamp), at_once, at_once) == at_once]
        write = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] != FAIL))
        write = write[np.argsort(self.one_time[write], kind="stable")]
        begin, end = (np.searchsorted(self.one_time[write], self.one_time[at_once], side) for side in ("left", "right"))
        beside, of = spread(begin, end)
        both, at = np.concatenate((row, write[beside])), np.concatenate((stamp[row], stamp[at_once[of]]))
        _, once = np.unique(together((self.cell[both], at, self.element[both]))[0], return_index=True)
        return both[once], at[once]

    def missing(self) -> Pairs:
        """Acknowledged writes, and what another feed told, that a feed ought to have told by its last mark."""
        last = self._last_marks()
        feed, write, at = self._due(last)
        lacking = ~self._has_row(feed, write, at)
        return sorted(zip(write[lacking].tolist(), last[feed[lacking]].tolist(), strict=True))

    def untold(self) -> int:
        """How many acknowledged writes state no timestamp, so that a feed with a mark which does not tell them, or
        tells one of several of their value, may have had to."""
        write = np.flatnonzero(
            (self.rows["kind"] == WRITE) & (self.rows["status"] == OK) & (self.rows["served_ts"] == NIL)
        )
        if not len(write):
            return 0
        table = self.rows["table"]
        write = write[np.argsort(table[write], kind="stable")]
        feed, named = self._covered(np.unique(table[write]))
        marked = self._last_marks()[feed] >= 0
        feed, named = feed[marked], named[marked]
        begin, end = (np.searchsorted(table[write], named, side) for side in ("left", "right"))
        due, of = spread(begin, end)
        told = self._among(feed[of], np.flatnonzero(self.is_row), (self.version[write[due]], self.version))
        tried = (self.rows["kind"] == WRITE) & (self.rows["status"] != FAIL)
        alone = np.bincount(self.version[tried])[self.version[write[due]]] == 1
        return len(np.unique(due[~(told & alone)]))

    def tied(self) -> int:
        """How many acknowledged writes of a cell state the timestamp of another: a row may be of either."""
        ids, count = together((self.cell[self.commits], self.rows["served_ts"][self.commits]))
        of_op, _ = together((ids, self.rows["invoke"][self.commits]))
        _, once = np.unique(of_op, return_index=True)
        return int((np.bincount(ids[once], minlength=count)[ids] > 1).sum())

    def _last_marks(self) -> Ints:
        """By feed the row of its highest mark, the first of equal ones; -1 if there is none."""
        stamp = self.rows["served_ts"]
        marks = np.flatnonzero(self.is_mark & (stamp != NIL))
        rising = marks[np.lexsort((-marks, stamp[marks]))]
        last = np.full(self.feeds, -1)
        last[self.feed[rising]] = rising
        return last

    def _due(self, last: Ints) -> tuple[Ints, Ints, Ints]:
        """Feeds, and commits with their timestamps that each ought to have told by its last mark: those to tables that
        the feed's events name (all, if none does) above its beginning. It takes time by what is due, not by feeds times
        writes."""
        stamp, table = self.rows["served_ts"], self.rows["table"]
        told, told_at = self._commits_by_feeds()
        write, at = np.concatenate((self.commits, told)), np.concatenate((stamp[self.commits], told_at))
        order = np.lexsort((at, table[write]))
        write, at = write[order], at[order]
        feed, named = self._covered(np.unique(table[write]))
        marked = last[feed] >= 0
        feed, named = feed[marked], named[marked]
        begin = np.full(self.feeds, NIL)
        of_feed = np.flatnonzero(self.feed >= 0)
        np.maximum.at(begin, self.feed[of_feed], self.rows["requested_ts"][of_feed])
        after = _Sorted.of(table[write], at)
        low, high = after.place(named, begin[feed]), after.place(named, stamp[last[feed]])
        due, of = spread(low, np.maximum(low, high))
        return feed[of], write[due], at[due]

    def _covered(self, written: Ints) -> tuple[Ints, Ints]:
        """Feeds and the tables that each covers, of those that are `written`."""
        naming = np.flatnonzero((self.feed >= 0) & (self.rows["size"] > 0))
        _, once = np.unique(together((self.feed[naming], self.rows["table"][naming]))[0], return_index=True)
        feed, table = self.feed[naming[once]], self.rows["table"][naming[once]]
        there = np.isin(table, written)
        unnamed = np.setdiff1d(np.arange(self.feeds), feed)
        of_all, all_tables = np.repeat(unnamed, len(written)), np.tile(written, len(unnamed))
        return np.concatenate((feed[there], of_all)), np.concatenate((table[there], all_tables))

    def _has_row(self, feed: Ints, write: Ints, at: Ints) -> np.ndarray:
        """Which of the writes have a row of that feed: by cell and timestamp, or else by a value that nobody else wrote
        or that is told without a timestamp."""
        told, stamp = np.flatnonzero(self.is_row), self.rows["served_ts"]
        cell, element = (self.cell[write], self.cell), (self.element[write], self.element)
        found = self._among(feed, told, cell, (at, stamp), element)
        left = np.flatnonzero(~found)
        by_value = (self.write[told] != -2) | (stamp[told] == NIL)
        told = told[by_value & np.isin(self.version[told], self.version[write[left]])]
        found[left] = self._among(feed[left], told, (self.version[write[left]], self.version))
        return found

    def undecided(self) -> np.ndarray:
        """Rows without a timestamp of which nobody knows whose they are, or whether they come too late for a mark; and
        elements that several operations appended, if one of these appended more to that list."""
        untimed = self.is_row & (self.rows["served_ts"] == NIL)
        of_any = np.flatnonzero(self.is_row & (self.write == -2) & (self.element >= 0))
        several = np.zeros(len(self.cell), np.bool_)
        if len(of_any):
            write = np.flatnonzero((self.rows["kind"] == WRITE) & (self.rows["status"] != FAIL))
            of_list, _ = together((self.rows["invoke"][write], self.cell[write]))
            more = np.bincount(of_list)[of_list] > 1
            several[of_any] = np.isin(self.version[of_any], self.version[write[more]])
        return several | (untimed & ((self.write == -2) | (self._highest_before() >= 0)))

    def _among(self, feed: Ints, rows: Ints, *names: tuple[Ints, Ints]) -> np.ndarray:
        """Which of some writes' names, each beside those of all rows, are those of a row that their feed told."""
        ids, count = together(
            [np.concatenate((feed, self.feed[rows]))] + [np.concatenate((mine, every[rows])) for mine, every in names]
        )
        there = np.zeros(count, np.bool_)
        there[ids[len(feed) :]] = True
        return there[ids[: len(feed)]]


def _replaced(rows: Columns, cell: Ints) -> np.ndarray:
    """By row whether it is a write of a cell that the same operation writes once more later."""
    found = np.zeros(len(cell), np.bool_)
    write = np.flatnonzero((rows["kind"] == WRITE) & (rows["size"] > 1))
    if len(write):
        ids, count = together((rows["invoke"][write], cell[write]))
        last = np.full(count, -1)
        np.maximum.at(last, ids, write)
        found[write] = write != last[ids]
    return found


def _firsts(names: tuple[Ints, ...], among: Ints, rows: Ints) -> Ints:
    """By row the first of some others that has the same names, -1 if there is none."""
    ids, count = together([np.concatenate((name[among], name[rows])) for name in names])
    first = np.full(count, -1)
    first[ids[: len(among)][::-1]] = among[::-1]
    return first[ids[len(among) :]]


def _ranks(version: Ints, stamp: Ints) -> Ints:
    """By row how many other timestamps its version has in the rows before that timestamp first comes."""
    ids, _ = together([version, stamp])
    _, first = np.unique(ids, return_index=True)
    of = version[first]
    order = np.lexsort((first, of))
    begins = np.flatnonzero(np.diff(of[order], prepend=-1))
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first)) - np.repeat(begins, np.diff(np.append(begins, len(first))))
    return rank[ids]


class _Sorted(NamedTuple):
    """Pairs of a group and a number, sorted, as one number each: groups have numbers, and so have their numbers."""

    groups: Ints
    numbers: Ints
    keys: Ints

    @staticmethod
    def of(group: Ints, number: Ints) -> _Sorted:
        groups, numbers = np.unique(group), np.unique(number)
        keys = np.searchsorted(groups, group) * (len(numbers) + 1) + np.searchsorted(numbers, number, "right")
        return _Sorted(groups, numbers, keys)

    def place(self, group: Ints, number: Ints) -> Ints:
        """How many pairs are in groups before, or in the same one (which there is) at or below that number."""
        key = np.searchsorted(self.groups, group) * (len(self.numbers) + 1)
        return np.searchsorted(self.keys, key + np.searchsorted(self.numbers, number, "right"), "right")
