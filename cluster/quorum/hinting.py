"""Hints on their way from the coordinator that leaves them to the replicas that they are for (Q2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from cluster.log.view import GroupLog
from cluster.nodelog import node_logger
from cluster.quorum.calls import ReplicaCalls, Unanswered
from cluster.quorum.fence import NS_PER_MS
from cluster.quorum.hints import Hint, Hints
from cluster.quorum.journal import Journal, JournalFull
from cluster.quorum.messages import ANY_EPOCH, StoreMutation
from cluster.quorum.mutation import as_new, decode_mutation, encode_mutation
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.writing import Delivery
from harness.ports.api import Ports

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
                journal = Journal(self._view(), self.hints.take)
                await journal.recover(self.hints.restore)
                self._journal = journal
                self._task = asyncio.create_task(self._replay(journal), name="hints.replay")
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
