"""Hints: mutations that a replica missed, kept durably by their coordinator until it takes them (Q2).

A hint names the replica, the tablet and the mutation as it was sent, timestamps included, so that replaying it twice or
late changes nothing that it should not. Hints are kept for a replica up to a number, and until deletions of what they
say may be forgotten; beyond that repair has to help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from cluster.log.view import GroupLog
from cluster.nodelog import node_logger
from cluster.quorum.calls import Delivery, ReplicaCalls, Unanswered
from cluster.quorum.fence import NS_PER_MS
from cluster.quorum.journal import Journal, JournalFull
from cluster.quorum.messages import ANY_EPOCH, StoreMutation
from cluster.quorum.mutation import as_new, decode_mutation, encode_mutation
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from harness.ports.api import Ports

MOST_FOR_ONE = 10_000
"""Hints kept for one node; more are dropped, and counted."""

_CUT_RECORDS = 2_000
_PART = 256


class Hint(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A mutation, encoded, that the server `target` may lack; `number` names the hint at this coordinator.

    `address` is where the target listened then, `taken_ms` its coordinator's clock when that took the mutation.
    """

    number: int
    target: str
    address: str
    tablet_id: str
    mutation: bytes
    taken_ms: int


class HintsDelivered(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Hints that are over: the target took them, or never will."""

    numbers: tuple[int, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Hint | HintsDelivered).decode


class Hints:
    """The hints of one coordinator, over a journal of its own in the node's log."""

    def __init__(self) -> None:
        self._by_target: dict[str, dict[int, Hint]] = {}
        """Hints that are not over, by server and number, the oldest first."""
        self._targets: dict[int, str] = {}
        """Whose each of them is."""
        self._next = 1
        """The number of the next hint: above all that were ever restored here."""
        self._records = 0
        """Records in the journal behind its base; when few of them count any more it is cut."""
        self.dropped = 0
        """Hints that found no room."""

    def take(self, number: int, record: bytes) -> None:
        """Take a durable record in (`cluster.quorum.journal.OnRecord`)."""
        self._records += 1
        self.restore(record)

    def restore(self, record: bytes) -> None:
        """Take a record in that stands in a base of the journal."""
        change = _decode(record)
        if isinstance(change, HintsDelivered):
            for each in change.numbers:
                self._by_target.get(self._targets.pop(each, ""), {}).pop(each, None)
            return
        self._by_target.setdefault(change.target, {})[change.number] = change
        self._targets[change.number] = change.target
        self._next = max(self._next, change.number + 1)

    async def store(self, journal: Journal, target: Endpoint, tablet_id: str, mutation: bytes, taken_ms: int) -> bool:
        """Make a hint durable; False if there are too many for this target. Raises JournalFull."""
        if len(self._by_target.get(target.node_id, ())) >= MOST_FOR_ONE:
            self.dropped += 1
            return False
        hint = Hint(self._next, target.node_id, target.address, tablet_id, mutation, taken_ms)
        self._next += 1
        record = _encode(hint)
        await journal.put((record,))
        self._shorten(journal)
        return True

    async def delivered(self, journal: Journal, numbers: tuple[int, ...]) -> None:
        """Note that hints are over. Raises JournalFull: then they are sent once more, which changes nothing."""
        await journal.put((_encode(HintsDelivered(numbers)),))
        self._shorten(journal)

    def pending(self, target: str, most: int) -> list[Hint]:
        """The oldest hints for a server."""
        hints = self._by_target.get(target, {})
        return [hint for hint, _ in zip(hints.values(), range(most), strict=False)]

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many hints wait for each server that any wait for."""
        return {target: len(hints) for target, hints in self._by_target.items() if hints}

    def _shorten(self, journal: Journal) -> None:
        """State what is left anew where most of the journal is over."""
        alive = sum(map(len, self._by_target.values()))
        if self._records > _CUT_RECORDS + 2 * alive:
            self._records = alive
            journal.cut(journal.durable, self._freeze())

    def _freeze(self) -> Iterator[bytes]:
        hints = [hint for each in self._by_target.values() for hint in each.values()]
        return map(_encode, hints)


# ---- on their way ----


HINTS_GROUP = "hints"
"""What the hints' records are called in the node's log."""

REPLAY_INTERVAL_S = 1.0
_AT_ONCE = 32
_CALL_TIMEOUT_S = 1.0


class Hinting:
    """Leaves hints in the node's log and replays them while their targets answer.

    `view` gives the hints' part of the node's log, which begins with the first hint; `address` tells where a server
    listens. A hint is over `grace_ms` after its mutation was taken: what was deleted everywhere since may be forgotten
    by then, and the hint would bring it back.
    """

    def __init__(
        self,
        ports: Ports,
        view: Callable[[], GroupLog],
        address: Callable[[str], str | None],
        calls: ReplicaCalls,
        grace_ms: int,
        flaws: Collection[str] = (),
    ) -> None:
        self._ports, self._view, self._address, self._calls = ports, view, address, calls
        self._grace_ms = grace_ms
        self._as_new = "hints-replayed-as-new" in flaws
        self.hints = Hints()
        self._journal: Journal | None = None
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._log = node_logger(ports.node_id)

    async def recover(self) -> None:
        """Go on with the hints that the log holds; called only where it holds any. Raises Quarantined."""
        await self._opened()

    def close(self) -> None:
        """Replay nothing more."""
        if self._task is not None:
            self._task.cancel()
        if self._journal is not None:
            self._journal.close()

    async def leave(self, replicas: ReplicaSet, targets: Sequence[str], mutation: bytes, taken_ms: int) -> None:
        """Keep the mutation for servers that may lack it; where the disk is full they have to be repaired.

        `taken_ms` is the coordinator's clock when it took the mutation.
        """
        try:
            journal = await self._opened()
            tablet_id, endpoints = replicas.tablet_id, [replicas.named(target) for target in targets]
            storing = [self.hints.store(journal, each, tablet_id, mutation, taken_ms) for each in endpoints]
            await asyncio.gather(*storing)
        except JournalFull:
            self._log.warning("no room for hints for %s", ", ".join(targets))

    async def _opened(self) -> Journal:
        async with self._opening:
            if self._journal is None:
                view = self._view()
                journal = Journal(view, self.hints.take)
                await journal.recover(self.hints.restore)
                self._journal = journal
                self._task = view.spawn(self._replay(journal))
            return self._journal

    async def _replay(self, journal: Journal) -> None:
        while True:
            await self._ports.clock.sleep(REPLAY_INTERVAL_S)
            for target in list(self.hints.waiting):
                try:
                    while await self._replay_some(journal, target):
                        pass
                except JournalFull:
                    self._log.warning("no room to note which hints %s has", target)

    async def _replay_some(self, journal: Journal, target: str) -> bool:
        """Send the oldest hints to a server; False if there are none, or it doesn't take them all."""
        pending = self.hints.pending(target, _AT_ONCE)
        if not pending:
            return False
        endpoint = Endpoint(target, self._address(target) or pending[-1].address)
        over = await asyncio.gather(*(self._send(endpoint, hint) for hint in pending))
        done = tuple(hint.number for hint, each in zip(pending, over, strict=True) if each)
        if done:
            await self.hints.delivered(journal, done)
        return len(done) == len(pending)

    async def _send(self, endpoint: Endpoint, hint: Hint) -> bool:
        """Whether the hint is over: taken, too old, or for a replica that is there no more."""
        if self._ports.clock.wall_ns() // NS_PER_MS - hint.taken_ms >= self._grace_ms:
            return True
        try:
            request = StoreMutation(hint.tablet_id, ANY_EPOCH, self._replayed(hint))
            await self._calls.ask(endpoint, request, _CALL_TIMEOUT_S)
        except Unanswered as error:
            return error.delivery is Delivery.REFUSED and str(error).startswith("NOT_FOUND")
        return True

    def _replayed(self, hint: Hint) -> bytes:
        """What a hint's replica is sent: what it missed, as old as it is."""
        if self._as_new:
            return encode_mutation(as_new(decode_mutation(hint.mutation), self._ports.clock.wall_ns()))
        return hint.mutation
