"""Leases, clocks and closed timestamps of one group.

At no true moment two replicas may serve by a lease, and lease records follow each other (R2); hybrid clocks stay near
true time (G3); what is closed stays closed, and is closed within the lease (R4, R5); what was read stays true (R3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from cluster.groups.observer import RaftView
from cluster.invariants.findings import BreachLog, Scope
from cluster.invariants.raft import FIRSTS_KEPT, First
from cluster.observer import Readings
from cluster.raft.types import Entry
from cluster.ranges.lease_record import Lease
from cluster.ranges.observer import QuietRange
from cluster.ranges.tablet import WriteBatch
from cluster.store.cells import Key, Span, is_point
from cluster.store.hlc import Timestamp
from cluster.wire.nouns import RequestId

# ---- clocks ----


HLC_IN_BOUNDS = "hlc-in-bounds"
AFTER_TIMES = "answers-after-their-times"


class MachineClock(Protocol):
    """The clocks of the machine that a life runs on, seen from outside."""

    def true_ns(self, monotonic_ns: int) -> int:
        """The true time, ns, at which the monotonic clock shows this, at the rate it has now."""

    def true_wall_ns(self) -> int:
        """What a correct wall clock shows now."""

    def peak_offset_ns(self) -> int:
        """How far ahead of that the machine's own wall clock was at most when it was read."""


class HybridClock:
    """The hybrid clock of one life. Its own wall clock may be ahead by the declared offset and still be in bounds, and
    readings are taken in from clocks that are ahead of it by as much: no reading lies further than twice the offset
    from true time. A machine whose wall clock was out of bounds when it was read is let off."""

    __slots__ = ("_clock", "_findings", "_hlc", "_life", "_max_offset_ns")

    def __init__(self, findings: BreachLog, life: int, clock: MachineClock, hlc: Readings, max_offset_ns: int) -> None:
        self._findings, self._life, self._clock = findings, life, clock
        self._hlc, self._max_offset_ns = hlc, max_offset_ns

    def look(self) -> None:
        """Compare it with true time, now."""
        self._findings.checked[HLC_IN_BOUNDS] += 1
        ahead_ns = self._hlc.last - self._clock.true_wall_ns()
        if ahead_ns > 2 * self._max_offset_ns and self._clock.peak_offset_ns() <= self._max_offset_ns:
            bound = f"and clocks may be {self._max_offset_ns / 1e9:g} s apart"
            message = f"the hybrid clock is {ahead_ns / 1e9:.3f} s ahead of true time, {bound}"
            self._findings.tell(HLC_IN_BOUNDS, message, (self._life,), None)

    def answers(self, timestamp: int, asked_for: bool) -> None:
        """An answer leaves that shows this timestamp: the own clock has come to it (R6). One that was `asked_for` it
        compares with its wall clock, which gives no reading out: that is ahead of true time by the offset at most."""
        self._findings.checked[AFTER_TIMES] += 1
        shown = self._hlc.last
        if asked_for:
            shown = max(shown, self._clock.true_wall_ns() + max(self._max_offset_ns, self._clock.peak_offset_ns()))
        if timestamp > shown:
            ahead_s = (timestamp - shown) / 1e9
            message = f"an answer shows {timestamp}, {ahead_s:.3f} s before this node's clock has come to that"
            self._findings.tell(AFTER_TIMES, message, (self._life,), None)


# ---- leases ----


LEASE_VALID = "served-within-the-lease"
LEASES_DISJOINT = "leases-disjoint"
LEASE_RECORDS = "lease-records"
OWN_TERM_READ = "serves-own-term"


class Leases:
    """Fed with reads that are served by a lease, and with lease records as they are applied.

    The replica that served last is the holder. Its Raft state is asked again when another one serves: a lease that was
    given up or whose holder has stepped down binds nobody. Nor does one of an earlier life bind the same node: who has
    ended serves no more, and as its group's only voter it had that lease for ever.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._holder: tuple[int, RaftView, MachineClock] | None = None
        self._leads: dict[int, int] = {}
        """By life the term in which it was seen to begin to lead last."""
        self._newest = 0, 0
        """The highest of these, and whose life that is."""
        self._committed_in: dict[int, int] = {}
        """By life the term of the last entry that it was seen to know to be committed."""
        self._records: First[int, tuple[Lease, int]] = First()
        self._extended: dict[int, tuple[int, int]] = {}
        """By sequence, for the latest: up to where members' promises let the lease last, and the life that told."""

    def began(self, life: int, raft: RaftView) -> None:
        """A replica leads: it knows what is committed once an entry of its term is (§6.4)."""
        self._leads[life] = raft.term
        self._newest = max(self._newest, (raft.term, life))

    def committed(self, life: int, entries: Sequence[Entry]) -> None:
        """A replica knows these to be committed."""
        self._committed_in[life] = entries[-1].term

    def served(self, life: int, raft: RaftView, now_ns: int, clock: MachineClock) -> None:
        """Who serves by a lease holds one that is not over, and nobody else does at that moment (§6.4.1)."""
        until_ns = raft.lease_until_ns
        self._checked[LEASE_VALID] += 1
        if until_ns <= now_ns:
            ended = f"ended {(now_ns - until_ns) / 1e9:.3f} s ago" if until_ns else "does not hold"
            message = f"a read is served in term {raft.term} by a lease that {ended}"
            self._scope.tell(LEASE_VALID, message, life)
        led = self._leads.get(life, raft.term)
        if life in self._leads and self._committed_in.get(life, 0) < led:
            self._scope.tell(OWN_TERM_READ, f"a read is served before the leader of term {led} has committed", life)
        self._checked[OWN_TERM_READ] += 1
        newest, leader = self._newest
        if led < newest and not self._scope.same_node(leader, life):
            message = f"a read is served by the lease of term {led}, and another leads in term {newest} already"
            self._scope.tell(LEASES_DISJOINT, message, leader, life)
        holder = self._holder
        if holder is None or holder[0] != life:
            self._holder = (life, raft, clock)
            if holder is not None and not self._scope.same_node(holder[0], life):
                self._compare(holder, life, raft, clock.true_ns(now_ns))

    def recorded(self, life: int, before: Lease | None, lease: Lease) -> None:
        """Every replica applies the same records; each follows the one before in sequence and in time."""
        self._checked[LEASE_RECORDS] += 1
        first, first_life = self._records.of(lease.sequence, (lease, life))
        if first != lease:
            message = f"two records of lease {lease.sequence}: of {first.holder} and of {lease.holder}"
            self._scope.tell(LEASE_RECORDS, message, first_life, life)
        if before is not None and not before.over:
            self._follows(before.sequence, lease, life)
        if before is not None and (lease.sequence != before.sequence + 1 or lease.start < before.expiration):
            spans = f"from {lease.start}, lease {before.sequence} until {before.expiration}"
            self._scope.tell(LEASE_RECORDS, f"lease {lease.sequence} begins {spans}", life)

    def extended(self, life: int, sequence: int, until: int) -> None:
        """A holder serves or closes beyond its record, by promises that let its lease last until then (G3)."""
        self._checked[LEASE_RECORDS] += 1
        if until <= self._extended.get(sequence, (0, 0))[0]:
            return
        self._extended[sequence] = (until, life)
        if len(self._extended) > FIRSTS_KEPT:
            del self._extended[next(iter(self._extended))]
        later = self._records.get(sequence + 1)
        if later is not None:  # a lease that was handed over is never told of afterwards: its holder has given it up
            self._follows(sequence, *later)

    def lasts(self, sequence: int) -> int:
        """Up to where a lease was told to last beyond its record; 0 for no further."""
        return self._extended.get(sequence, (0, 0))[0]

    def _follows(self, sequence: int, later: Lease, life: int) -> None:
        """A lease that wasn't handed over ends where its holder could still use it."""
        until, holder = self._extended.get(sequence, (0, 0))
        if later.start < until:
            message = (
                f"lease {later.sequence} begins at {later.start}, lease {sequence} lasts until {until} by promises"
            )
            self._scope.tell(LEASE_RECORDS, message, holder, life)

    def _compare(self, holder: tuple[int, RaftView, MachineClock], life: int, raft: RaftView, now_ns: int) -> None:
        first, held, clock = holder
        self._checked[LEASES_DISJOINT] += 1
        until_ns = clock.true_ns(held.lease_until_ns) if held.lease_until_ns else 0
        if until_ns > now_ns:
            more_s = (until_ns - now_ns) / 1e9
            message = (
                f"a read is served by the lease of term {raft.term}, and that of term {held.term} has {more_s:.6f} s"
            )
            self._scope.tell(LEASES_DISJOINT, f"{message} left", first, life)


# ---- closed timestamps ----


CLOSED_KEPT = "closed-is-kept"
CLOSED_IN_LEASE = "closed-within-the-lease"
SERVED_CLOSED = "served-when-closed"
NAMED_KEPT = 4_096


class Closing:
    """Fed with closed timestamps as a holder assigns them, and with batches and lease records as replicas apply them.

    A holder assigns nothing under a lease before its record is applied there. So it is enough to keep the latest record
    that anybody has applied, and what was assigned under that one.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._closed: dict[int, int] = {}
        """By life: how far the state of its replica was closed when it was looked at last."""
        self._latest: Lease | None = None
        self._assigned, self._assigner = 0, 0
        self._named, self._namer = 0, 0
        """The highest time that was told to be closed by the side transport, and by which life."""
        self._told: dict[int, int] = {}
        """What was told so: by write index the highest time, whoever holds; those that were told first come first."""
        self._forgotten = 0
        """The highest of those times that were let go of."""

    def opened(self, life: int) -> None:
        """A replica begins, maybe not the first of this life, with an empty state."""
        self._closed[life] = 0

    def applied(self, life: int, batch: WriteBatch, closed: int) -> None:
        """A batch comes to a state that is `closed` as far: it writes above that, and closes no less."""
        self._checked[CLOSED_KEPT] += 1
        if closed < self._closed[life]:
            self._fell(life, closed)
        if batch.timestamp <= closed and batch.puts:
            self._scope.tell(CLOSED_KEPT, f"a batch writes at {batch.timestamp}, and {closed} is closed", life)
        if batch.closed < closed:
            self._scope.tell(CLOSED_KEPT, f"a batch closes {batch.closed}, and {closed} is closed already", life)
            self._closed[life] = closed
        else:
            self._closed[life] = batch.closed

    def restored(self, life: int, closed: int) -> None:
        """A snapshot has taken the state's place."""
        self._checked[CLOSED_KEPT] += 1
        if closed < self._closed[life]:
            self._fell(life, closed)
        self._closed[life] = closed

    def assigned(self, life: int, sequence: int, closed: int, applied: Lease | None, lasts: int = 0) -> None:
        """Under the lease of this sequence `closed` binds from now on; `applied` is the record as its holder has it,
        and `lasts` how far promises let it last beyond."""
        self._checked[CLOSED_IN_LEASE] += 1
        latest = self._latest
        begun = latest.low_water if latest is not None and latest.sequence == sequence else 0
        ends = 0 if applied is None else max(applied.expiration, lasts)
        if applied is not None and applied.sequence == sequence and closed >= ends and closed > begun:
            message = f"{closed} is closed under lease {sequence}, which ends at {max(applied.expiration, lasts)}"
            self._scope.tell(CLOSED_IN_LEASE, message, life)
        if latest is None or sequence > latest.sequence:
            return
        if sequence < latest.sequence:
            self._compare(sequence, closed, latest, life)
            return
        if closed < self._assigned:
            message = f"{closed} is closed under lease {sequence}, and {self._assigned} was"
            self._scope.tell(CLOSED_KEPT, message, self._assigner, life)
        self._assigned, self._assigner = closed, life

    def named(self, life: int, closed: int, quiet: QuietRange) -> None:
        """The holder of this lease is about to tell that this is closed at its write index, by the side transport.

        It has applied all that was proposed, so whatever nobody has carried out by now has to lie above.
        """
        if closed > self._assigned:
            ends = None if quiet.end is None else Lease("", quiet.sequence, 0, Timestamp(0), Timestamp(quiet.end))
            self.assigned(life, quiet.sequence, closed, ends)
        if closed > self._named:
            self._named, self._namer = closed, life
        self._told[quiet.write_index] = max(closed, self._told.get(quiet.write_index, 0))
        if len(self._told) > NAMED_KEPT:
            self._forgotten = max(self._forgotten, self._told.pop(next(iter(self._told))))

    def carried_out(self, life: int, batch: WriteBatch) -> None:
        """A batch is carried out that nobody has carried out before."""
        if batch.puts and batch.timestamp <= self._named:
            message = f"a batch writes at {batch.timestamp}, and {self._named} was told to be closed"
            self._scope.tell(CLOSED_KEPT, message, self._namer, life)

    def served(self, life: int, timestamp: int, write_index: int) -> None:
        """A replica serves a read by what is closed at what it has applied: by its log, or by what holders told."""
        self._checked[SERVED_CLOSED] += 1
        if timestamp <= max(self._closed.get(life, 0), self._forgotten):
            return
        if not any(timestamp <= closed and index <= write_index for index, closed in reversed(self._told.items())):
            message = f"a read is served as of {timestamp} at write index {write_index}, where that is not closed"
            self._scope.tell(SERVED_CLOSED, message, life)

    def recorded(self, life: int, lease: Lease) -> None:
        """A new lease: all that is written under it lies above its low water, so nothing may be closed above that.

        And it closes no less than any before it.
        """
        latest = self._latest
        if latest is None or lease.sequence > latest.sequence:
            if latest is not None:
                self._checked[CLOSED_IN_LEASE] += 1
                self._compare(latest.sequence, self._assigned, lease, self._assigner)
            self._latest = lease

    def _compare(self, sequence: int, closed: int, later: Lease, life: int) -> None:
        if closed > later.low_water:
            message = f"{closed} is closed under lease {sequence}, and lease {later.sequence} may write from"
            self._scope.tell(CLOSED_IN_LEASE, f"{message} {later.low_water + 1} on", life)

    def _fell(self, life: int, closed: int) -> None:
        message = f"a state is closed to {closed}, and was to {self._closed[life]}"
        self._scope.tell(CLOSED_KEPT, message, life)


# ---- reads ----


READS_KEPT = "reads-are-kept"
BATCHES_KEPT = 1 << 16
SPANS_KEPT = 4_096


class AnsweredReads:
    """Fed with what reads were answered from, and with batches as replicas carry them out: none writes at or below a
    read of its cell that was answered before any replica has carried it out.

    The watch goes by what it saw itself, not by the holder's timestamp cache. Spans of several cells are kept for a
    while only, the latest.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._cells: dict[Key, int] = {}
        """By cell the highest time of a read of it alone."""
        self._spans: deque[tuple[Span, int]] = deque(maxlen=SPANS_KEPT)
        self._highest = 0
        """At least the highest time of any of these."""
        self._carried_out: dict[tuple[RequestId, int, int], None] = {}
        """Batches that some replica has carried out, oldest first."""

    def answered(self, spans: Iterable[Span], timestamp: int) -> None:
        """These spans were read as of this time."""
        for span in spans:
            if is_point(span):
                self._cells[span[0]] = max(timestamp, self._cells.get(span[0], 0))
            else:
                self._spans.append((span, timestamp))
                self._highest = max(timestamp, self._highest)

    def applied(self, life: int, batch: WriteBatch) -> bool:
        """A replica is about to carry this batch out; whether it is the first to do so."""
        name = batch.request_id, batch.lease_sequence, batch.timestamp
        if name in self._carried_out:
            return False
        self._carried_out[name] = None
        if len(self._carried_out) > BATCHES_KEPT:
            del self._carried_out[next(iter(self._carried_out))]
        self._scope.checked[READS_KEPT] += len(batch.puts)
        for put in batch.puts:
            read = self._read_at(put.key, batch.timestamp)
            if batch.timestamp <= read:
                message = f"a write at {batch.timestamp} comes to {put.key}, which was read as of {read}"
                self._scope.tell(READS_KEPT, message, life)
        return True

    def _read_at(self, key: Key, timestamp: int) -> int:
        """The highest time of a read of the cell, if it is at or above this one."""
        alone = self._cells.get(key, 0)
        if timestamp > self._highest:
            return alone
        return max(alone, *(at for (start, end), at in self._spans if start <= key < end), 0)
