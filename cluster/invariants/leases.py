"""Leases of one group: at no true moment two replicas may serve by one, and their records follow each other (R2)."""

from __future__ import annotations

from cluster.groups.observer import RaftView
from cluster.invariants.clocks import MachineClock
from cluster.invariants.elections import KEPT, First
from cluster.invariants.findings import Scope
from cluster.ranges.lease_record import Lease

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
        self._began: dict[int, int] = {}
        self._records: First[int, tuple[Lease, int]] = First()
        self._extended: dict[int, tuple[int, int]] = {}
        """By sequence, for the latest: up to where members' promises let the lease last, and the life that told."""

    def began(self, life: int, raft: RaftView) -> None:
        """A replica leads: from then on it knows what is committed once the last entry of its log is (§6.4)."""
        self._began[life] = raft.last_index

    def served(self, life: int, raft: RaftView, now_ns: int, clock: MachineClock) -> None:
        """Who serves by a lease holds one that is not over, and nobody else does at that moment (§6.4.1)."""
        until_ns = raft.lease_until_ns
        self._checked[LEASE_VALID] += 1
        if until_ns <= now_ns:
            ended = f"ended {(now_ns - until_ns) / 1e9:.3f} s ago" if until_ns else "does not hold"
            message = f"a read is served in term {raft.term} by a lease that {ended}"
            self._scope.tell(LEASE_VALID, message, life)
        if raft.commit_index < self._began.get(life, 0):
            self._scope.tell(
                OWN_TERM_READ, f"a read is served before the leader of term {raft.term} has committed", life
            )
        self._checked[OWN_TERM_READ] += 1
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
        if len(self._extended) > KEPT:
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
