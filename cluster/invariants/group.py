"""The invariants of one Raft group: pure checks, fed with what its replicas tell.

Replicas are numbered by life: a node and its incarnation. What an earlier life of a node has told binds its later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from cluster.invariants.facts import KEPT, Positions
from cluster.invariants.findings import Findings
from cluster.invariants.lives import Lives
from cluster.raft.types import Entry

ONE_LEADER = "one-leader-per-term"
COMMITTED_PREFIX = "committed-prefix"
STATE_DIGEST = "state-digest"

_TERMS_KEPT = 4096


class GroupInvariants:
    """What the replicas of one group have told, and what of it can't be true together."""

    def __init__(self, group: str, findings: Findings, lives: Lives, kept: int = KEPT) -> None:
        self.checked = dict.fromkeys((ONE_LEADER, COMMITTED_PREFIX, STATE_DIGEST), 0)
        self._group, self._findings, self._lives = group, findings, lives
        self._leaders: dict[int, int] = {}
        self._entries = Positions(kept)
        self._states = Positions(kept)

    def became_leader(self, life: int, term: int) -> None:
        """At most one life leads in a term, for ever (election safety, Raft figure 3.2)."""
        self.checked[ONE_LEADER] += 1
        first = self._leaders.setdefault(term, life)
        if first != life:
            self._tell(ONE_LEADER, f"two replicas lead in term {term}", first, life)
        if len(self._leaders) > _TERMS_KEPT:
            del self._leaders[next(iter(self._leaders))]

    def committed(self, life: int, entries: Sequence[Entry]) -> None:
        """All replicas commit the same entry at an index, at every time (state machine safety, Raft figure 3.2)."""
        self.checked[COMMITTED_PREFIX] += len(entries)
        known = self._entries
        if entries[0].index > known.last + 1:
            message = f"entry {entries[0].index} is committed and nobody has committed entry {known.last + 1}"
            self._tell(COMMITTED_PREFIX, message, life)
        for entry in entries:
            fact = entry.term << 32 | crc32(entry.data, entry.kind)
            if known.claim(entry.index, fact, life) != fact:
                self._differ(entry, life)

    def applied(self, life: int, index: int, digest: int) -> None:
        """Replicas that have applied the same prefix are in the same state."""
        self.checked[STATE_DIGEST] += 1
        fact = digest or 1
        if self._states.claim(index, fact, life) != fact:
            message = f"the states after entry {index} differ"
            self._tell(STATE_DIGEST, message, self._states.teller(index), life)

    def _differ(self, entry: Entry, life: int) -> None:
        first = self._entries.get(entry.index)
        what = f"of terms {first >> 32} and {entry.term}" if first >> 32 != entry.term else f"of term {entry.term}"
        message = f"two different entries {what} are committed at index {entry.index}"
        self._tell(COMMITTED_PREFIX, message, self._entries.teller(entry.index), life)

    def _tell(self, invariant: str, message: str, *lives: int) -> None:
        self._findings.tell(invariant, message, self._lives.names(lives), self._group)
