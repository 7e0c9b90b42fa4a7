"""The log of one group: what is committed is the same everywhere, durable on a quorum, and never lost by a disk."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from cluster.groups.observer import RaftView
from cluster.invariants.durable import DurableLog
from cluster.invariants.facts import KEPT, Positions
from cluster.invariants.findings import Scope
from cluster.raft.types import Configuration, Entry, NodeId, Persist, Role, SnapshotMeta
from harness.ports.api import node_of

COMMITTED_PREFIX = "committed-prefix"
DURABLE_QUORUM = "committed-on-a-quorum"
DURABLE_KEPT = "durable-log-kept"
OWN_TERM = "commits-own-term"

_TERMS_KEPT = 4096


def fact_of(entry: Entry) -> int:
    """What identifies an entry at its index: 32 bits of its term, 32 of its contents."""
    return entry.term << 32 | crc32(entry.data, entry.kind)


class LogInvariants:
    """Fed with what replicas find on their disks, make durable, and know to be committed."""

    def __init__(self, scope: Scope, kept: int = KEPT) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._entries = Positions(kept)
        self._committed_in: dict[int, int] = {}
        self._durable: dict[NodeId, DurableLog] = {}
        self._configuration: Configuration | None = None
        self._voters: tuple[NodeId, ...] = ()
        self._ended = False

    def opened(self, life: int, server: NodeId, snapshot: SnapshotMeta | None, entries: Sequence[Entry]) -> None:
        """A disk gives back every committed entry that was durable on it (§3.8)."""
        found = DurableLog()
        found.recover(snapshot, entries)
        before, self._durable[server] = self._durable.get(server), found
        if before is None:
            return
        self._checked[DURABLE_KEPT] += 1
        index = min(before.last, self._entries.last)
        term = self._entries.get(index) >> 32
        if term and before.has(index, term) and not found.has(index, term):
            message = f"after a restart {server} lacks the committed entry {index} of term {term}, which was durable"
            self._scope.tell(DURABLE_KEPT, message, life)

    def damaged(self, node: str) -> None:
        """The node's replica is quarantined: it runs no more, and one that begins anew may lack what this one had."""
        for server in [server for server in self._durable if node_of(server) == node]:
            del self._durable[server]

    def forget(self, server: NodeId, for_good: bool) -> None:
        """The replica was deleted: one that begins here anew may lack what this one had.

        If that was for good the tablet is gone, and what its last replicas still commit need not last.
        """
        self._durable.pop(server, None)
        self._ended = self._ended or for_good

    def durable(self, server: NodeId, batch: Sequence[Persist]) -> None:
        """Follow what a server has on its disk."""
        log = self._durable[server]
        for persist in batch:
            if persist.entries or persist.snapshot is not None:
                log.persist(persist)

    def committed(self, life: int, raft: RaftView, entries: Sequence[Entry]) -> None:
        """All replicas commit the same entry at an index, at every time (state machine safety, figure 3.2)."""
        self._checked[COMMITTED_PREFIX] += len(entries)
        known = self._entries
        last = entries[-1]
        if last.index > known.last:
            self._advance(life, raft, entries)
        for entry in entries:
            fact = entry.term << 32 | crc32(entry.data, entry.kind)
            if known.claim(entry.index, fact, life)[0] != fact:
                self._differ(entry, life)

    def committed_before(self, term: int) -> tuple[int, int]:
        """The last entry known to be committed in a term before this one, as (index, fact); (0, 0) for none."""
        index = max((last for earlier, last in self._committed_in.items() if earlier < term), default=0)
        return index, self._entries.get(index)

    def _advance(self, life: int, raft: RaftView, entries: Sequence[Entry]) -> None:
        """Entries are committed that nobody knew to be: they follow the last one, and a quorum has them on disk."""
        known, last = self._entries, entries[-1]
        if entries[0].index > known.last + 1:
            message = f"entry {entries[0].index} is committed and nobody has committed entry {known.last + 1}"
            self._scope.tell(COMMITTED_PREFIX, message, life)
        self._committed_in[raft.term] = last.index
        if len(self._committed_in) > _TERMS_KEPT:
            del self._committed_in[min(self._committed_in)]
        if raft.role is Role.LEADER:
            self._on_quorum(life, raft, last)

    def _on_quorum(self, life: int, raft: RaftView, last: Entry) -> None:
        """A leader counts replicas for entries of its own term only, and those have it on disk (§3.6.2, §3.8).

        So what is committed outlives the loss of any minority: the log up to it does too, by log matching.
        """
        if last.term != raft.term:
            message = f"the leader of term {raft.term} commits entry {last.index} of term {last.term} by counting it"
            self._scope.tell(OWN_TERM, message, life)
        self._checked[OWN_TERM] += 1
        if self._ended:
            return
        self._checked[DURABLE_QUORUM] += 1
        durable = self._durable
        if raft.configuration is not self._configuration:
            self._configuration, self._voters = raft.configuration, raft.configuration.voter_ids
        voters = self._voters
        having = [voter for voter in voters if voter in durable and durable[voter].has(last.index, last.term)]
        if 2 * len(having) <= len(voters):
            where = ", ".join(having) or "no voter"
            message = f"entry {last.index} of term {last.term} is committed, but durable on {where} only"
            self._scope.tell(DURABLE_QUORUM, message, life)

    def _differ(self, entry: Entry, life: int) -> None:
        first = self._entries.get(entry.index)
        what = f"of terms {first >> 32} and {entry.term}" if first >> 32 != entry.term else f"of term {entry.term}"
        message = f"two different entries {what} are committed at index {entry.index}"
        self._scope.tell(COMMITTED_PREFIX, message, self._entries.teller(entry.index), life)
