"""Ids of mutations: who coordinated one, and a time that strictly rises at that node, over restarts too (Q3).

The time is a hybrid logical clock's: nanoseconds since the epoch in ticks of about a millisecond, the rest counts on
within a tick, and where the wall clock stands still or goes back the count goes on from the last id. So ids order and
bound mutations roughly as they were made, and a restarted node must not trust its clock: it goes on above a bound that
was durable before any id below it was given out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import lru_cache

import msgspec

from cluster.log.envelope import CorruptLog, read_twice, twice
from harness.ports.api import Clock, Disk

IDS_FILE = "mutation-ids"

TICK_BITS = 20
"""Times of ids made in one tick of the wall clock, 1.05 ms, follow each other without a gap."""

RESERVED_NS = 2_000_000_000
"""A reservation reaches so far ahead of the wall clock: a node writes one in this time at most, and a restart skips as
much."""

NODE_BYTES = 16
ID_BYTES = 8 + NODE_BYTES

IDS_KIND = 20
_MOST_TIME = (1 << 63) - 1


class MutationId(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The name of one mutation for ever: ids order by time, then by the server whose coordinator made them.

    `node` is the server id, so that a node with a new disk makes ids of its own. A *bound* is a time: below it are all
    ids with a lower time.
    """

    time: int
    node: str


LOWEST_TIME = 0
"""No id has it: a bound of which nothing lies below."""


def encode_id(each: MutationId) -> bytes:
    """ID_BYTES that sort as ids do; raises ValueError where the server's name is longer than NODE_BYTES."""
    return each.time.to_bytes(8, "big") + _padded(each.node)


@lru_cache(maxsize=1024)
def _padded(server_id: str) -> bytes:
    node = server_id.encode()
    if len(node) > NODE_BYTES:
        raise ValueError(f"the server id {server_id!r} has more than {NODE_BYTES} bytes")
    return node.ljust(NODE_BYTES, b"\0")


def decode_id(data: bytes) -> MutationId:
    """What `encode_id` made bytes of; raises ValueError."""
    if len(data) != ID_BYTES:
        raise ValueError(f"an id has {ID_BYTES} bytes, not {len(data)}")
    return MutationId(int.from_bytes(data[:8], "big"), _server_id(data[8:]))


@lru_cache(maxsize=1024)
def _server_id(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode()


class IdTimes:
    """Times that rise, all of them below `reserved`; pure. `above` is the bound that an earlier life reserved."""

    def __init__(self, above: int = LOWEST_TIME) -> None:
        self._last = above
        self.reserved = above

    def take(self, wall_ns: int) -> int | None:
        """The next time; None where more has to be reserved first."""
        if self.used_up(wall_ns):
            return None
        self._last = self._next(wall_ns)
        return self._last

    def used_up(self, wall_ns: int) -> bool:
        """Whether `take` would give nothing."""
        return self._next(wall_ns) >= self.reserved

    def wanted(self, wall_ns: int) -> int:
        """What to reserve next; where times run ahead of the clock as it is, a tick more.

        So they never do so by more than RESERVED_NS and a tick, but where the clock goes back or others have risen: a
        restart takes longer than the tick that it skips then.
        """
        following = self._next(wall_ns)
        return max(following + (1 << TICK_BITS), min(following, wall_ns) + RESERVED_NS)

    def rise_above(self, time: int) -> None:
        """Give out nothing at or below this time any more: others refuse it."""
        self._last = max(self._last, time)

    def _next(self, wall_ns: int) -> int:
        tick = wall_ns >> TICK_BITS << TICK_BITS
        return max(tick, self._last + 1)


class MutationIds:
    """Makes the ids of one server; `recover` comes first. Its reservation is a small file of its own.

    `on_made` is told of each id before anybody else is.
    """

    def __init__(
        self,
        server_id: str,
        clock: Clock,
        disk: Disk,
        flaws: Collection[str] = (),
        on_made: Callable[[MutationId], None] = lambda each: None,
    ) -> None:
        encode_id(MutationId(LOWEST_TIME, server_id))
        self._server_id, self._clock, self._disk, self._flaws = server_id, clock, disk, flaws
        self._on_made = on_made
        self._times = IdTimes()
        self._reserving = asyncio.Lock()

    async def recover(self) -> None:
        """Go on above what any earlier life of this server may have given out; raises CorruptLog."""
        reserved = await _read(self._disk)
        if reserved is not None and "mutation-id-reuse" not in self._flaws:
            self._times = IdTimes(reserved)

    async def next(self) -> MutationId:
        """An id that was never given out before; raises DiskFull where none can be reserved now."""
        while (time := self._times.take(self._clock.wall_ns())) is None:
            async with self._reserving:
                if self._times.used_up(self._clock.wall_ns()):
                    await self._reserve()
        made = MutationId(time, self._server_id)
        self._on_made(made)
        return made

    def rise_above(self, time: int) -> None:
        """Make no id at or below this time any more."""
        self._times.rise_above(time)

    async def _reserve(self) -> None:
        """Durable first, and then in use."""
        wanted = self._times.wanted(self._clock.wall_ns())
        if wanted > _MOST_TIME:
            raise OverflowError("the times of ids are used up")
        await self._disk.write_atomic(IDS_FILE, twice(IDS_KIND, wanted.to_bytes(8, "big")))
        self._times.reserved = wanted


async def _read(disk: Disk) -> int | None:
    """The bound that was reserved last; None where nothing ever was."""
    if IDS_FILE not in disk.list(IDS_FILE):
        return None
    found = await read_twice(disk, IDS_FILE, IDS_KIND)
    if len(found) != 8:
        raise CorruptLog(f"{IDS_FILE}: the reservation of mutation ids is no number")
    return int.from_bytes(found, "big")
