"""What a client may ask of a read besides its cells, and what is fixed of it while it is tried again (R7, R8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Generic, NamedTuple, TypedDict, TypeVar

import msgspec

from cluster.client.attempt import Missed
from cluster.wire.staleness import Bound, HowServed
from harness.errors import DefiniteError

T = TypeVar("T")

_NEWEST_COUNTS = 0.25
"""The share of the newest measurement in a smoothed one."""

_AS_NEAR_NS = 10_000_000
"""So much further away a node is about as near."""

_LACKING_NS = 500_000_000
"""How long a replica is not asked for what is closed ahead of time that had not closed enough."""

_BELIEVED_NS = 10_000_000_000
_AWAY_NS = 2_000_000_000
"""How long a measurement does before it is made again; how long a node that did not answer is left alone."""


class ReadWish(TypedDict, total=False):
    """How a read may be served other than strongly by the leaseholder. Times are HLC timestamps, spans of time ns.

    `as_of`: exactly at this time, or, below 0, so long before the clock of the node that is asked first. One of
    `max_staleness` and `min_timestamp`: as fresh as the nearest replica can tell without waiting, and no older than
    that; with `nearest_only` no other replica is asked. `strong_anywhere`: strong, from the nearest replica (R8).
    """

    as_of: int | None
    max_staleness: int
    min_timestamp: int
    nearest_only: bool
    strong_anywhere: bool


class ReadResult(NamedTuple, Generic[T]):
    """What was read, the time at which, the node that answered, and how it was served."""

    value: T
    timestamp: int
    node: str
    served: HowServed


class WishedRead:
    """The times of one read: a time that a node has fixed is kept over retries, and over the ranges of a scan. So is
    `turn`, by which replicas that are about as near come in an order: who said what is closed there is asked for it.

    Raises DefiniteError (`two-bounds`, `negative-bound`) for a wish that can't be.
    """

    def __init__(self, wish: ReadWish) -> None:
        self.as_of = wish.get("as_of")
        self.bound: Bound | msgspec.UnsetType = msgspec.UNSET
        self.begun: int | msgspec.UnsetType = msgspec.UNSET
        self.nearest_only = False
        self.turn: int | None = None
        if wish:
            self._wish(wish)

    def _wish(self, wish: ReadWish) -> None:
        least, age, anywhere = wish.get("min_timestamp"), wish.get("max_staleness"), wish.get("strong_anywhere", False)
        if sum((self.as_of is not None, least is not None, age is not None, anywhere)) > 1:
            raise DefiniteError("two-bounds", "a read has one time, one bound, or is strong")
        for bound in (least, age):
            if bound is not None and bound < 0:
                raise DefiniteError("negative-bound", f"a bound of {bound} lies below 0")
        self.nearest_only = wish.get("nearest_only", False)
        if self.nearest_only and least is None and age is None:
            raise DefiniteError("invalid", "only a read within a bound can be left to the nearest replica")
        if least is not None or age is not None or anywhere:
            self.bound = Bound(least, age, self.nearest_only, anywhere=anywhere)

    @property
    def bounded(self) -> bool:
        """Whether the time is yet to be chosen within a bound."""
        return self.bound is not msgspec.UNSET and not self.bound.anywhere

    def fixed(self, served: HowServed | msgspec.UnsetType) -> None:
        """A node has said which time it takes this read to ask for: from now on that is what is asked for."""
        if served is msgspec.UNSET or not served.asked:
            return
        if self.as_of is not None:
            self.as_of = served.asked
        elif self.bound is msgspec.UNSET:
            self.begun = served.asked  # of strong reads only those that any replica may serve tell (R6)
        elif self.bound.max_staleness is not None:
            self.bound = msgspec.structs.replace(self.bound, min_timestamp=served.asked, max_staleness=None)

    @property
    def plain(self) -> bool:
        """Whether it is strong, and nobody wished for more: nobody but the leaseholder can serve it, unless the table
        is closed ahead of time."""
        return self.as_of is None and self.bound is msgspec.UNSET

    @property
    def any_will_do(self) -> bool:
        """Whether a replica may be asked whatever it has closed."""
        return self.nearest_only or (self.bound is not msgspec.UNSET and self.bound.anywhere)

    def likely(self, near: Nearby, tablet_id: str, node: str, now: int) -> bool:
        """Whether a node is likely to know enough."""
        if self.plain:
            return near.may_serve_strongly(tablet_id, node)
        return self.any_will_do or near.may_serve(tablet_id, node, self.least(now))

    def least(self, now: int) -> int:
        """The time that is asked for, exact or least; about that, where a node's clock has not fixed it yet."""
        if self.as_of is not None:
            return self.as_of if self.as_of >= 0 else now + self.as_of
        if self.bound is msgspec.UNSET:
            return now
        return (self.bound.min_timestamp or 0) if self.bound.max_staleness is None else now - self.bound.max_staleness

    def refused(self, missed: Missed) -> None:
        """An attempt brought no reply; a refusal may say which time it is."""
        if missed.error_reply is not None:
            self.fixed(missed.error_reply.served)

    def negotiating(self, wanted: bool) -> None:
        """Whether only the time is asked for that could be served."""
        if self.bound is not msgspec.UNSET:
            self.bound = msgspec.structs.replace(self.bound, negotiate=wanted)

    def exactly(self, timestamp: int) -> None:
        """The time is found: it is what is read at, wherever."""
        self.as_of, self.bound = timestamp, msgspec.UNSET


class Nearby:
    """How long nodes take to answer a ping, which reads may exceed: they wait; and how far they have closed what they
    hold, as answers have told it."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._now_ns = monotonic_ns
        self._round_trips: dict[str, tuple[float, int]] = {}
        """By node: how long, ns, smoothed; and until when that does."""
        self._closed: dict[tuple[str, str], tuple[int, int]] = {}
        """By tablet and node: how far it was closed, and when that was told."""
        self._lacks: dict[tuple[str, str], int] = {}
        """By tablet and node until when it is taken to have closed too little for strong reads (R6)."""

    def nearest(self, nodes: Iterable[str]) -> list[str]:
        """The nearest first; then those of whom nothing is known, and who did not answer."""
        return sorted(nodes, key=self._round_trip_ns)

    def nearest_in_turn(self, nodes: Iterable[str], turn: int) -> list[str]:
        """The nearest first, but that those that are about as near as the first one come in the order of this turn."""
        ordered = self.nearest(nodes)
        equal = [each for each in ordered if self._round_trip_ns(each) <= self._round_trip_ns(ordered[0]) + _AS_NEAR_NS]
        return Random(turn).sample(sorted(equal), len(equal)) + ordered[len(equal) :]

    def _round_trip_ns(self, node: str) -> float:
        return self._round_trips.get(node, (_AWAY_NS - 1, 0))[0]

    def knows(self, nodes: Iterable[str]) -> bool:
        """Whether any of them was measured, or tried."""
        return any(node in self._round_trips for node in nodes)

    def due(self, nodes: Iterable[str]) -> list[str]:
        """Nodes whose distance nobody knows, or knew a while ago only: they are to be measured now."""
        now_ns, never = self._now_ns(), (0.0, 0)
        return [node for node in nodes if self._round_trips.get(node, never)[1] <= now_ns]

    def answered(self, node: str, took_ns: int) -> None:
        """A node has answered a ping."""
        before, _ = self._round_trips.get(node, (took_ns, 0))
        smoothed = took_ns if before >= _AWAY_NS else before + (took_ns - before) * _NEWEST_COUNTS
        self._round_trips[node] = smoothed, self._now_ns() + _BELIEVED_NS

    def missed(self, node: str) -> None:
        """A node has not: for a while it is asked last."""
        self._round_trips[node] = _AWAY_NS, self._now_ns() + _AWAY_NS

    def note_closed(self, tablet_id: str, node: str, closed: int) -> None:
        """A node has told how far it has closed a tablet."""
        self._closed[tablet_id, node] = closed, self._now_ns()

    def note_lacking(self, tablet_id: str, node: str) -> None:
        """A node could not serve a strong read by what it had closed of a tablet."""
        self._lacks[tablet_id, node] = self._now_ns() + _LACKING_NS

    def may_serve_strongly(self, tablet_id: str, node: str) -> bool:
        """Whether it is likely to have closed enough for a strong read: by its own clock, not the client's."""
        return self._lacks.get((tablet_id, node), 0) <= self._now_ns()

    def may_serve(self, tablet_id: str, node: str, timestamp: int) -> bool:
        """Whether a time is likely to be closed there by now: closed times follow the clock, and who lacked much a
        while ago may have caught up."""
        closed, told_ns = self._closed.get((tablet_id, node), (timestamp, 0))
        since_ns = self._now_ns() - told_ns
        return timestamp <= closed + since_ns or since_ns > _AWAY_NS
