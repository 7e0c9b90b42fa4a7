"""The log, the elections, the membership and the states of one Raft group, as its replicas tell of them (G10).

What is committed is the same everywhere, durable on a quorum, and never lost by a disk; a server votes once in a term,
one replica leads in it, and every leader has what was committed; voters change one at a time, by a leader that knows
what is committed (G1), and no replica is deleted that the committed configuration has (M9); states are equal at equal
applied index, and their data at equal write index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, TypeVar
from zlib import crc32

from cluster.groups.observer import RaftView
from cluster.invariants.findings import Scope
from cluster.raft.log import configuration_of
from cluster.raft.types import (
    AppendEntries,
    AppendReply,
    Configuration,
    Entry,
    EntryKind,
    HardState,
    Message,
    NodeId,
    Persist,
    RequestVote,
    RequestVoteReply,
    Role,
    SnapshotMeta,
    TimeoutNow,
)
from cluster.ranges.tablet import WrittenState
from harness.ports.api import node_of

# ---- facts by index ----


KEPT = 1 << 16
"""Positions kept at least: well above what a replica can be behind and still replay from its own log."""


class Positions:
    """A 64-bit fact for each log index with the number of who stated it: the first to state one is believed.

    `last` is the highest index that has a place, 0 for none. The oldest are let go of once there are more than twice
    `kept`. 0 stands for "not stated" and is never a fact.
    """

    __slots__ = ("_facts", "_kept", "_tellers", "base", "last")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._facts = array("Q")
        self._tellers = array("H")
        self.base = 1
        self.last = 0

    def get(self, index: int) -> int:
        """The fact at `index`, or 0."""
        at = index - self.base
        return self._facts[at] if 0 <= at < len(self._facts) else 0

    def teller(self, index: int) -> int:
        """Who stated the fact at `index`, where there is one."""
        return self._tellers[index - self.base]

    def claim(self, index: int, fact: int, teller: int) -> tuple[int, int]:
        """State a fact, and learn which stands at `index` and who stated it: unless another came first and is still
        kept, it is this one."""
        facts, at = self._facts, index - self.base
        length = len(facts)
        if 0 <= at < length:
            known = facts[at]
            if known != 0:
                return known, self._tellers[at]
            facts[at], self._tellers[at] = fact, teller
            return fact, teller
        if at == length:
            facts.append(fact)
            self._tellers.append(teller)
            self.last = index
            if at >= 2 * self._kept:
                self._forget(self._kept)
            return fact, teller
        return (fact, teller) if at < 0 else self._claim_ahead(index, fact, teller)

    def _claim_ahead(self, index: int, fact: int, teller: int) -> tuple[int, int]:
        missing = index - self.base - len(self._facts)
        if missing > self._kept:
            self._forget(len(self._facts))
            self.base = index
        else:
            self._facts.extend([0] * missing)
            self._tellers.extend([0] * missing)
        return self.claim(index, fact, teller)

    def _forget(self, count: int) -> None:
        del self._facts[:count], self._tellers[:count]
        self.base += count


# ---- durable logs ----


class DurableLog:
    """Term and vote, and the terms of a stored log; what a snapshot covers counts as being there. Terms rarely change,
    so runs are few."""

    __slots__ = ("_base", "_firsts", "_terms", "last", "state")

    def __init__(self, state: HardState) -> None:
        self.state = state
        self.last = 0
        self._base = 0
        self._firsts: list[int] = []
        self._terms: list[int] = []

    def recover(self, snapshot: SnapshotMeta | None, entries: Sequence[Entry]) -> None:
        """What a restart finds."""
        if snapshot is not None:
            self._replace(snapshot)
        self._append([entry for entry in entries if entry.index > self._base])

    def persist(self, persist: Persist) -> None:
        """One write is durable."""
        if persist.hard_state is not None:
            self.state = persist.hard_state
        if persist.snapshot is not None:
            self._replace(persist.snapshot)
        self._append(persist.entries)

    def has(self, index: int, term: int) -> bool:
        """Whether the entry (index, term) is there, or a snapshot that covers it."""
        if index <= self._base:
            return True
        at = bisect_right(self._firsts, index) - 1
        return index <= self.last and at >= 0 and self._terms[at] == term

    def _replace(self, meta: SnapshotMeta) -> None:
        self._base = self.last = meta.index
        self._firsts.clear()
        self._terms.clear()

    def _append(self, entries: Sequence[Entry]) -> None:
        """Entries replace everything from the first one's index on."""
        if not entries:
            return
        first, last = entries[0], entries[-1]
        if first.index == self.last + 1 and self._terms and self._terms[-1] == first.term == last.term:
            self.last = last.index  # what nearly every write does
            return
        if first.index <= self.last:
            keep = bisect_right(self._firsts, first.index - 1)
            del self._firsts[keep:], self._terms[keep:]
        for entry in (first, last) if first.term == last.term else entries:
            if not self._terms or self._terms[-1] != entry.term:
                self._firsts.append(entry.index)
                self._terms.append(entry.term)
        self.last = last.index


# ---- the log ----


COMMITTED_PREFIX = "committed-prefix"
DURABLE_QUORUM = "committed-on-a-quorum"
DURABLE_KEPT = "durable-log-kept"
OWN_TERM = "commits-own-term"
PROMISES_DURABLE = "promises-are-durable"

_PROMISES = (RequestVote, RequestVoteReply, AppendEntries, AppendReply, TimeoutNow)
"""The messages that name the term that their sender is in."""

_TERMS_KEPT = 4096


def _voted_for(message: Message) -> NodeId | None:
    """Whom its sender has voted for, if it says so; a candidate's own vote counts with its request for others'."""
    if type(message) is RequestVote:
        return message.source
    return message.target if type(message) is RequestVoteReply and message.granted else None


def fact_of(entry: Entry) -> int:
    """What identifies an entry at its index: 32 bits of its term, 32 of its contents."""
    return entry.term << 32 | crc32(entry.data, entry.kind)


class LogInvariants:
    """Fed with what replicas find on their disks, make durable, and know to be committed."""

    def __init__(self, scope: Scope, kept: int = KEPT) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._entries = Positions(kept)
        """By index the entry that is committed, and the life that told first."""
        self._committed_in: dict[int, int] = {}
        """By term the last entry that was committed in it."""
        self._durable: dict[NodeId, DurableLog] = {}
        """By server what it has on its disk; of a deleted or damaged replica nothing is expected."""
        self._configuration: Configuration | None = None
        self._voters: tuple[NodeId, ...] = ()
        """The voters of `_configuration`, the last that was looked at."""
        self._ended = False
        """Whether the tablet was deleted for good."""

    def opened(
        self, life: int, server: NodeId, snapshot: SnapshotMeta | None, entries: Sequence[Entry], state: HardState
    ) -> None:
        """A disk gives back term and vote, and every committed entry, that was durable on it (§3.8)."""
        found = DurableLog(state)
        found.recover(snapshot, entries)
        before, self._durable[server] = self._durable.get(server), found
        if before is None:
            return
        self._checked[DURABLE_KEPT] += 1
        had = before.state
        if state.term < had.term or (state.term == had.term and had.vote not in (None, state.vote)):
            message = f"after a restart {server} is in term {state.term} with the vote for {state.vote}; durable were"
            self._scope.tell(DURABLE_KEPT, f"{message} term {had.term} and the vote for {had.vote}", life)
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
            log.persist(persist)

    def leaves(self, life: int, server: NodeId, message: Message) -> None:
        """A message leaves: the term that it names its sender's, its vote, and what it says to have are durable (§3.8).

        What is durable may be of a later term already: then no later life is in the message's term any more. A leader
        may send entries that are not durable on its own disk yet (§10.2.1). A vote that is asked for ahead (§9.6) names
        a term that the sender is not in.
        """
        kind = type(message)
        log = self._durable.get(server)
        if log is None or kind not in _PROMISES:
            return
        self._checked[PROMISES_DURABLE] += 1
        state, term = log.state, message.term
        if state.term > term:
            return
        candidate = _voted_for(message) if kind is RequestVote or kind is RequestVoteReply else None
        if state.term < term or candidate not in (None, state.vote):
            what = f"of term {term}" if candidate is None else f"with the vote for {candidate} in term {term}"
            durable = f"durable are term {state.term} and the vote for {state.vote}"
            self._scope.tell(PROMISES_DURABLE, f"{kind.__name__} {what} leaves {server}; {durable}", life)
        elif type(message) is AppendReply and message.success and message.match > log.last:
            said = f"{server} says that it has the entry {message.match}; its durable log ends with {log.last}"
            self._scope.tell(PROMISES_DURABLE, said, life)

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


# ---- elections ----


ONE_VOTE = "one-vote-per-term"
ONE_LEADER = "one-leader-per-term"
LEADER_COMPLETENESS = "leader-completeness"

FIRSTS_KEPT = 4096

K = TypeVar("K")
V = TypeVar("V")


class First(Generic[K, V]):
    """The first value of each key; the oldest keys are forgotten beyond `FIRSTS_KEPT`."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[K, V] = {}

    def of(self, key: K, value: V) -> V:
        """The value that stands for a key from now on: this one, unless another came first."""
        first = self._values.setdefault(key, value)
        if len(self._values) > FIRSTS_KEPT:
            del self._values[next(iter(self._values))]
        return first

    def get(self, key: K) -> V | None:
        """The value that stands for a key, if it is known."""
        return self._values.get(key)


class Elections:
    """Fed with votes as they leave their voters, and with replicas that begin to lead."""

    def __init__(self, scope: Scope, log: LogInvariants) -> None:
        self._scope, self._log = scope, log
        self._checked = scope.checked
        self._votes: First[tuple[NodeId, int], tuple[NodeId, int]] = First()
        self._leaders: First[int, int] = First()

    def leaves(self, life: int, server: NodeId, message: Message) -> None:
        """A server votes for one candidate in a term, also across its restarts (§3.4, §3.8)."""
        candidate, term = _voted_for(message), message.term
        if candidate is None:
            return
        self._checked[ONE_VOTE] += 1
        first, first_life = self._votes.of((server, term), (candidate, life))
        if first != candidate:
            words = f"{server} voted for {first} and for {candidate} in term {term}"
            self._scope.tell(ONE_VOTE, words, first_life, life)

    def became_leader(self, life: int, raft: RaftView) -> None:
        """One life leads in a term (election safety), with every entry that was committed in an earlier one (§3.6)."""
        self._checked[ONE_LEADER] += 1
        first = self._leaders.of(raft.term, life)
        if first != life:
            self._scope.tell(ONE_LEADER, f"two replicas lead in term {raft.term}", first, life)
        self._checked[LEADER_COMPLETENESS] += 1
        index, fact = self._log.committed_before(raft.term)
        if raft.last_index < index:
            message = f"the leader of term {raft.term} lacks the committed entry {index}: its log ends at"
            self._scope.tell(LEADER_COMPLETENESS, f"{message} {raft.last_index}", life)
        elif fact and index >= raft.first_index and fact_of(raft.entries(index, index)[0]) != fact:
            message = f"the leader of term {raft.term} has another entry at {index} than was committed"
            self._scope.tell(LEADER_COMPLETENESS, message, life)


# ---- membership ----


ONE_CHANGE = "one-change-at-a-time"
MEMBERS_STAY = "members-are-not-deleted"

_CONFIG = int(EntryKind.CONFIG)


class Membership:
    """Fed with each configuration as it comes into force at a replica, with what is committed, and with deletions."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._committed = Configuration()

    def committed(self, entries: Sequence[Entry]) -> Configuration | None:
        """Follow the latest configuration that is committed; it, if there is a new one."""
        before = self._committed
        for entry in entries:
            if entry.kind == _CONFIG and entry.index > self._committed.index:
                self._committed = configuration_of(entry)
        return None if self._committed is before else self._committed

    def deleted(self, life: int, server: NodeId) -> None:
        """A replica goes because its group has removed it: the group's committed configuration is without it."""
        self._checked[MEMBERS_STAY] += 1
        if server in [member.server_id for member in self._committed.members]:
            message = f"{server} is deleted, and a member by the configuration committed at {self._committed.index}"
            self._scope.tell(MEMBERS_STAY, message, life)

    def configured(self, life: int, raft: RaftView) -> None:
        """The voters that a leader has appended differ from the committed ones by one at most, so that every majority
        of the one meets every majority of the other (§4.1)."""
        configuration = raft.configuration
        if raft.role is not Role.LEADER or configuration.term != raft.term:
            return
        self._checked[ONE_CHANGE] += 1
        committed, appended = raft.committed_configuration.voter_ids, configuration.voter_ids
        added = [voter for voter in appended if voter not in committed]
        removed = [voter for voter in committed if voter not in appended]
        if committed and len(added) + len(removed) > 1:
            message = f"voters {' '.join(committed)} are to become {' '.join(appended)} before a change is committed"
            self._scope.tell(ONE_CHANGE, message, life)


# ---- states ----


STATE_DIGEST = "state-digest"
WRITTEN_STATE = "data-at-write-index"

_NOTHING: WrittenState = (-1, 0, 0, 0, 0, 0)


class States:
    """Fed with the digest of each replica's state after each entry, and after each snapshot it was restored from."""

    def __init__(self, scope: Scope, kept: int = KEPT) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._digests = Positions(kept)

    def applied(self, life: int, index: int, digest: int) -> None:
        """Replicas that have applied the same prefix are in the same state, however they came to it.

        What one life says first, or again, is compared with nothing and isn't counted.
        """
        fact = digest or 1
        stands, first = self._digests.claim(index, fact, life)
        if first != life:
            self._checked[STATE_DIGEST] += 1
        if stands != fact:
            self._scope.tell(STATE_DIGEST, f"the states after entry {index} differ", first, life)


class WrittenStates:
    """Fed with each replica's `written_state` when `States` is."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._last: dict[int, WrittenState] = {}
        """By life: what it has told last."""

    def opened(self, life: int) -> None:
        """A replica begins, maybe not the first of this life."""
        self._last[life] = _NOTHING

    def applied(self, life: int, written: WrittenState) -> None:
        """What has not moved the write index has changed no data; nor has a snapshot that stands at the same one (G6).

        As states are equal at equal applied index, all replicas at one write index hold the same data then.
        """
        last = self._last[life]
        self._last[life] = written
        if last[0] == written[0]:
            self._checked[WRITTEN_STATE] += 1
            if last != written:
                self._scope.tell(WRITTEN_STATE, f"the data at write index {written[0]} have changed", life)
