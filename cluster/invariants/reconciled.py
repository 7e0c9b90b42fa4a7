"""Mutations of logged tablets, their ids, what all have below the low bound, and what is forgotten (Q3 to Q8)."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from cluster.invariants.findings import BreachLog
from cluster.quorum.ids import LOWEST_TIME, MutationId
from cluster.quorum.keys import EVERYTHING, KeyBytes
from cluster.quorum.slices import Page, Slice, visible_rows
from cluster.quorum.summaries import Summary

IDS = "ids-rise"
RECONCILED = "reconciled-everywhere"
COLLECTED = "unreconciled-is-kept"
PURGED = "purged-below-bound"
SUMMARIES = "equal-summaries-equal-rows"

KEPT_SUMMARIES = 1 << 14
"""How many summaries of a tablet are remembered; beyond that the older half is let go of."""

_encode = msgspec.msgpack.Encoder().encode

_Said: TypeAlias = tuple[KeyBytes, int, int, bytes]


class _TabletLogs:
    """Who has had each mutation durably, and what rows went with a summary. What a life has told binds later ones of
    its node."""

    __slots__ = ("everywhere", "highest", "partly", "said")

    def __init__(self) -> None:
        self.everywhere: dict[MutationId, None] = {}
        """Mutations that every replica has."""
        self.partly: dict[MutationId, dict[str, None]] = {}
        """The others, each with the nodes that have it."""
        self.highest = LOWEST_TIME
        """The highest low bound of any replica: nothing in `partly` may be below it."""
        self.said: dict[_Said, tuple[int, bytes]] = {}
        """By partition and summary who told it first, and a hash of the rows that went with it."""


class _ReplicaLog:
    """What the log of one replica holds, in one life: ids by place, those aside that are kept elsewhere too."""

    __slots__ = ("aside", "bound", "places")

    def __init__(self) -> None:
        self.places: dict[int, MutationId] = {}
        """By number what the log holds and nothing else does."""
        self.aside: dict[int, None] = {}
        """Numbers of what is kept beside the log as well."""
        self.bound = LOWEST_TIME
        """The replica's low bound."""


class ReconciledWatch:
    """Watches all logged tablets; replicas are nodes by their names."""

    def __init__(self, findings: BreachLog) -> None:
        self._findings = findings
        self._tablets: dict[str, _TabletLogs] = {}
        self._logs: dict[tuple[int, str], _ReplicaLog] = {}
        self._made: dict[str, tuple[int, int]] = {}

    def made(self, life: int, each: MutationId) -> None:
        """A coordinator has made an id."""
        self._findings.checked[IDS] += 1
        last, maker = self._made.get(each.node, (LOWEST_TIME, life))
        if each.time <= last:
            message = f"{each.node} made an id of time {each.time} after one of time {last}: ids are used twice so"
            self._findings.tell(IDS, message, (maker, life), None)
        self._made[each.node] = (max(each.time, last), life)

    def stored(self, life: int, group: str, replicas: Collection[str], each: MutationId, number: int) -> None:
        """A mutation is durable at a replica, at this place of its log; `replicas` are all that there are."""
        log = self._logs.setdefault((life, group), _ReplicaLog())
        if number not in log.aside:
            log.places[number] = each
        tablet = self._tablets.setdefault(group, _TabletLogs())
        if each in tablet.everywhere:
            return
        self._findings.checked[RECONCILED] += 1
        having = tablet.partly.setdefault(each, {})
        having[self._findings.lives.node(life)] = None
        if all(name in having for name in replicas):
            tablet.everywhere[each] = None
            del tablet.partly[each]
        elif each.time < tablet.highest:
            message = f"a mutation of time {each.time} came to be below the low bound {tablet.highest}"
            self._findings.tell(RECONCILED, message, (life,), group)

    def set_aside(self, life: int, group: str, numbers: Collection[int]) -> None:
        """The mutations of these places are kept elsewhere too."""
        log = self._logs.setdefault((life, group), _ReplicaLog())
        for number in numbers:
            log.aside[number] = None
            log.places.pop(number, None)

    def collected(self, life: int, group: str, number: int) -> None:
        """A log keeps nothing up to this place any more."""
        self._findings.checked[COLLECTED] += 1
        log = self._logs.setdefault((life, group), _ReplicaLog())
        gone = [place for place in log.places if place <= number]
        lost = [each for place in gone if (each := log.places.pop(place)).time >= log.bound]
        if lost:
            message = f"the log forgot {len(lost)} mutations, one of time {lost[0].time}, above the bound {log.bound}"
            self._findings.tell(COLLECTED, message, (life,), group)

    def bound_raised(self, life: int, group: str, bound: int) -> None:
        """A low bound is durable at a replica: all have everything below it."""
        log = self._logs.setdefault((life, group), _ReplicaLog())
        log.bound = max(log.bound, bound)
        tablet = self._tablets.setdefault(group, _TabletLogs())
        self._findings.checked[RECONCILED] += 1
        if bound <= tablet.highest:
            return
        tablet.highest = bound
        lacking = [each for each in tablet.partly if each.time < bound]
        if lacking:
            having = ", ".join(tablet.partly[lacking[0]])
            message = f"the low bound {bound} is above {len(lacking)} mutations that not all have, one only {having}"
            self._findings.tell(RECONCILED, message, (life,), group)

    def purged(self, life: int, group: str, taken_ns: int) -> None:
        """A replica forgets a deletion, which lies below the bound that it was seen to have."""
        self._findings.checked[PURGED] += 1
        bound = self._logs.setdefault((life, group), _ReplicaLog()).bound
        if taken_ns >= bound:
            message = f"a deletion of time {taken_ns} is forgotten above the low bound {bound}"
            self._findings.tell(PURGED, message, (life,), group)

    def read(self, life: int, group: str, asked: Slice, summary: Summary, page: Page) -> None:
        """A replica has read a slice, and summarized what it has applied, at one moment.

        Of whole partitions: the summary, with its bound, tells what was applied, and so which rows readers see. Of
        deletions it tells nothing: below the bound one replica may have forgotten them and another not.
        """
        if asked.spans != (EVERYTHING,) or asked.limit is not None or asked.columns or page.end is not None:
            return
        self._findings.checked[SUMMARIES] += 1
        said = self._tablets.setdefault(group, _TabletLogs()).said
        rows = blake2b(_encode(visible_rows(page.contents)), digest_size=16).digest()
        other, before = said.setdefault((asked.partition, summary.bound, summary.count, summary.set_hash), (life, rows))
        if before != rows:
            message = f"two replicas agree on {summary.count} mutations from the bound {summary.bound} on, and differ"
            self._findings.tell(SUMMARIES, message, (other, life), group)
        if len(said) > KEPT_SUMMARIES:
            for key in list(said)[: KEPT_SUMMARIES // 2]:
                del said[key]
