"""Valid histories of stores with commit timestamps: reads of snapshots, and feeds of what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from harness.history.ops import Mop, Op

_CELLS: Final = 3
_CLIENTS: Final = 4
_READ: Final = 0.5
_BACK: Final = 20
"""Commits that a snapshot lies back, at most."""

_FEED: Final = -2
"""The process of a feed's events; negative ones are no clients."""


@dataclass(slots=True)
class _Commits:
    """What was committed: by cell its versions, each with its timestamp; `untold` are commits no feed has told yet."""

    now: int = 0
    versions: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    untold: list[tuple[int, Mop]] = field(default_factory=list)

    def commit(self, mop: Mop) -> int:
        self.now += 1
        self.versions.setdefault(mop.partition, []).append((self.now, mop.value or 0))
        self.untold.append((self.now, mop))
        return self.now

    def at(self, cell: int, time: int) -> int | None:
        """The cell's value in the snapshot of that time."""
        return next((value for stamp, value in reversed(self.versions.get(cell, ())) if stamp <= time), None)


def snapshot_events(key: int, operations: int, info: float, random: Random) -> Iterator[Op]:
    """Writes that say when they were committed, and reads at a timestamp, of three cells that belong to `key`."""
    commits, values = _Commits(), iter(range(1, operations + 1))

    def following() -> Op:
        cell = key * _CELLS + random.randrange(_CELLS)
        if random.random() < _READ:
            asked = random.randint(max(0, commits.now - _BACK), commits.now)
            return Op("invoke", 0, "read", (Mop("r", cell),), requested_ts=asked)
        return Op("invoke", 0, "write", (Mop("w", cell, next(values)),))

    def effect(op: Op) -> Op:
        if op.requested_ts is None:
            return op.complete("ok", served_ts=commits.commit(op.mops[0]))
        cell = op.mops[0].partition
        return op.complete("ok", mops=(Mop("r", cell, commits.at(cell, op.requested_ts)),))

    return _overlapping(operations, info, random, following, effect)


def feed_events(table: int, operations: int, info: float, random: Random) -> Iterator[Op]:
    """Writes to three cells of a table and, now and then, what its feed tells of them."""
    commits, values = _Commits(), iter(range(1, operations + 1))

    def following() -> Op:
        return Op("invoke", 0, "write", (Mop("w", random.randrange(_CELLS), next(values), table=table),))

    def effect(op: Op) -> Op:
        return op.complete("ok", served_ts=commits.commit(op.mops[0]))

    def feed() -> Iterator[Op]:
        random.shuffle(commits.untold)
        for stamp, mop in commits.untold:
            yield Op("info", _FEED, "feed-row", (mop,), session=table, served_ts=stamp)
        commits.untold.clear()
        yield Op("info", _FEED, "feed-resolved", (Mop("w", 0, table=table),), session=table, served_ts=commits.now)

    for event in _overlapping(operations, info, random, following, effect):
        yield event
        if random.random() < 0.1:
            yield from feed()
    yield from feed()


def etcd_events(keys: int, operations: int, info: float, random: Random) -> Iterator[Op]:
    """Writes and reads of an etcd's keys, which say the store's revision and that of what they wrote or read."""
    commits, values = _Commits(now=1), iter(range(1, operations + 1))

    def following() -> Op:
        key = random.randrange(keys)
        if random.random() < _READ:
            return Op("invoke", 0, "read", (Mop("r", key),))
        return Op("invoke", 0, "write", (Mop("w", key, next(values)),))

    def effect(op: Op) -> Op:
        (mop,) = op.mops
        if mop.f == "w":
            revision = commits.commit(mop)
            return op.complete("ok", served_ts=revision, write_ts=revision)
        stamp, value = commits.versions.get(mop.partition, [(None, None)])[-1]
        return op.complete("ok", mops=(Mop("r", mop.partition, value),), served_ts=commits.now, write_ts=stamp)

    return _overlapping(operations, info, random, following, effect)


def _overlapping(
    operations: int, info: float, random: Random, following: Callable[[], Op], effect: Callable[[Op], Op]
) -> Iterator[Op]:
    """Clients at work at once; each operation takes effect at one moment between its events, those of unknown outcome
    do or don't."""
    free, begun = list(range(_CLIENTS)), 0
    running: list[tuple[Op, Op | None]] = []
    while begun < operations or running:
        if free and begun < operations and (not running or random.random() < 0.5):
            op = following().complete("invoke", process=free.pop(random.randrange(len(free))))
            running.append((op, None))
            begun += 1
            yield op
            continue
        place = random.randrange(len(running))
        op, done = running[place]
        lost = done is None and op.requested_ts is None and random.random() < info
        if done is None and not lost:
            running[place] = (op, effect(op))
            continue
        if lost and random.random() < 0.5:
            effect(op)
        running.pop(place)
        free.append(op.process + _CLIENTS * lost)
        yield op.complete("info") if done is None else done
