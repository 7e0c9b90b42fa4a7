"""What has to move in a healthy cluster, and does not: low bounds, closed timestamps, leases, logs (G10).

Nothing that clients see depends on these at once, so that one which stands still is missed by every other check. They
are looked at only where nothing was disturbed for longer than each of them may take. What is closed has to follow the
time also while nodes are down, as long as a majority of a range's voters runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from cluster.invariants.findings import BreachLog, Moment
from cluster.knobs import Knobs
from cluster.raft.types import NodeId
from harness.ports.api import node_of

STANDS_STILL = "nothing-stands-still"

LOOK_NS = 250_000_000
_MS = 1_000_000
_MARGIN_NS = 3_000_000_000
"""What everything may take beyond its own periods: elections, restarts of connections, a slow disk."""

_AROUND_NS = 1_000_000_000
"""What renewals and promises may take to come around. Where lease and lag together last no longer, the lease may always
be over when something could be closed."""

_ENTRIES = 256
"""How many more entries may be in a log than twice those between two snapshots."""


class IdleBounds(NamedTuple):
    """How long, by the knobs, each of these may take in a healthy cluster, ns."""

    bound_ns: int
    """A low bound to rise; 0: never."""
    closed_ns: int
    """How far closed timestamps may lie behind true time where a range is written to."""
    idle_closed_ns: int
    """How far anywhere; 0: as far as you like."""
    lease_ns: int
    """A leader to have its lease."""
    log_entries: int
    """How many entries a log may hold behind its snapshot."""

    @classmethod
    def of(cls, knobs: Knobs) -> IdleBounds:
        """What the knobs allow."""
        offset_ns = 2 * knobs.max_clock_offset_ms * _MS
        tick_ms = knobs.side_transport_ms
        lasts_ns = knobs.closed_lag_ms * _MS + min(knobs.lease_record_ns, knobs.support_ns)
        closes = tick_ms and lasts_ns > tick_ms * _MS + _AROUND_NS
        bound_ns = 2 * knobs.reconcile_period_ms * _MS + offset_ns + _MARGIN_NS if knobs.reconcile_period_ms else 0
        return cls(
            bound_ns,
            knobs.closed_lag_ms * _MS + offset_ns + _MARGIN_NS,
            (knobs.closed_lag_ms + 2 * tick_ms) * _MS + offset_ns + _MARGIN_NS if closes else 0,
            knobs.lease_record_ns + knobs.support_ns + offset_ns + _MARGIN_NS,
            2 * knobs.snapshot_entries + _ENTRIES,
        )


Down: TypeAlias = Collection[str] | None
"""The nodes that are down, where nobody does anything to the others, their disks, clocks and links; else None."""


class Standstill:
    """Fed with what moves; `down` says what is disturbed now."""

    def __init__(self, findings: BreachLog, moment: Moment, down: Callable[[], Down], patience: IdleBounds) -> None:
        self._findings, self._moment, self._look_down, self._patience = findings, moment, down, patience
        self._next_look_ns = 0
        self._down: Down = None
        self._same_since_ns: int | None = None
        """Since when the same nodes are down, and nothing else is disturbed."""
        self._voters: dict[str, Collection[NodeId]] = {}
        """By group its voters, by the latest configuration that is committed."""
        self._there: dict[str, dict[NodeId, None]] = {}
        """By group whose replicas were opened in the life that their node has, and have not failed."""
        self._bounds: dict[str, tuple[int, int]] = {}
        """By tablet the highest low bound, and when it was seen to be so first."""
        self._leads: dict[str, tuple[int, int, int]] = {}
        """By range the term of its newest leader, when that began to lead, and whose life it is."""
        self._leased: dict[str, int] = {}
        """By range the term of the newest lease."""
        self._closed: dict[str, int] = {}
        """By range the moment up to which it is closed, by whichever transport."""
        self._told: dict[tuple[str, str], None] = {}

    def began(self, node: str) -> None:
        """A node's process has begun, with no replica open yet."""
        self._same_since_ns = None
        for there in self._there.values():
            for server in [each for each in there if node_of(each) == node]:
                del there[server]

    def configured(self, group: str, voters: Collection[NodeId]) -> None:
        """Another configuration of a group is committed."""
        self._voters[group] = voters

    def opened(self, group: str, server: NodeId) -> None:
        """A replica begins, as this member of its group."""
        self._there.setdefault(group, {})[server] = None

    def closed_for_good(self, group: str, server: NodeId) -> None:
        """A replica has failed, or is deleted."""
        self._there.get(group, {}).pop(server, None)

    def look(self) -> None:
        """See what has stood still; cheap where it is not time yet."""
        now_ns = self._moment()[0]
        if now_ns < self._next_look_ns:
            return
        self._next_look_ns = now_ns + LOOK_NS
        down, before = self._look_down(), self._down
        self._down = down
        if down is None:
            self._same_since_ns = None
        elif self._same_since_ns is None or down != before:
            self._same_since_ns = now_ns
        if self._same_since_ns is not None:
            self._look_at_bounds(now_ns)
            self._look_at_leases(now_ns)
            self._look_at_closed(now_ns)

    def bound(self, group: str, bound: int) -> None:
        """A low bound was seen."""
        if bound > self._bounds.get(group, (-1, 0))[0]:
            self._bounds[group] = bound, self._moment()[0]

    def leads(self, group: str, term: int, life: int) -> None:
        """A replica of a range begins to lead."""
        if term > self._leads.get(group, (0, 0, 0))[0]:
            self._leads[group] = term, self._moment()[0], life

    def leased(self, group: str, term: int) -> None:
        """A lease was recorded: its group is a range."""
        self._leased[group] = max(term, self._leased.get(group, 0))
        self._closed.setdefault(group, self._moment()[0])

    def ended(self, group: str) -> None:
        """A tablet is gone for good."""
        for known in (self._bounds, self._leads, self._leased, self._closed, self._voters, self._there):
            known.pop(group, None)

    def closed(self, life: int, group: str, closed: int, true_wall_ns: int) -> None:
        """This is closed as the place of a change in the log is fixed: it has followed the time. When the change is
        carried out says nothing: it may have waited for a leader."""
        behind_ns = true_wall_ns - closed
        if self._due(self._moment()[0], self._patience.closed_ns) and behind_ns > self._patience.closed_ns:
            message = f"the closed timestamp lies {behind_ns / 1e9:.1f} s behind in a healthy cluster"
            self._tell("closed", group, message, (life,))

    def closes(self, group: str, closed: int, true_wall_ns: int) -> None:
        """A holder has closed a range up to there, whether anybody writes to it or not."""
        if group in self._closed:
            self._closed[group] = max(self._closed[group], self._moment()[0] - (true_wall_ns - closed))

    def logged(self, life: int, node: str, group: str, last: int, snapshot: int) -> None:
        """A node's log has entries of a group up to `last`, of which a snapshot stands for those up to `snapshot`."""
        if self._due(self._moment()[0], 2 * _MARGIN_NS) and last - snapshot > self._patience.log_entries:
            message = f"{last - snapshot} entries lie in the log of {node} behind its last snapshot"
            self._tell(f"log of {node}", group, message, (life,))

    def _look_at_bounds(self, now_ns: int) -> None:
        patience_ns = self._patience.bound_ns
        for group, (_, since_ns) in self._bounds.items() if patience_ns else ():
            if self._due(now_ns, patience_ns) and now_ns - since_ns > patience_ns:
                message = f"the low bound has not risen for {(now_ns - since_ns) / 1e9:.1f} s in a healthy cluster"
                self._tell("bound", group, message, ())

    def _look_at_leases(self, now_ns: int) -> None:
        patience_ns = self._patience.lease_ns
        for group, leased in self._leased.items():
            term, since_ns, life = self._leads.get(group, (0, 0, 0))
            if self._due(now_ns, patience_ns) and term > leased and now_ns - since_ns > patience_ns:
                message = f"the leader of term {term} has had no lease for {(now_ns - since_ns) / 1e9:.1f} s"
                self._tell("lease", group, f"{message} in a healthy cluster", (life,))

    def _look_at_closed(self, now_ns: int) -> None:
        patience_ns, down = self._patience.idle_closed_ns, self._down
        if down and patience_ns:  # who led may be among them: its lease is waited out
            patience_ns += self._patience.lease_ns
        for group, closed_ns in self._closed.items() if patience_ns else ():
            led = not down or self._most_run(group, down)
            if led and self._due(now_ns, patience_ns, bool(down)) and now_ns - closed_ns > patience_ns:
                behind_s = (now_ns - closed_ns) / 1e9
                away = f" while {' '.join(sorted(down))} is down" if down else ""
                self._tell("idle", group, f"nothing closes a range up to less than {behind_s:.1f} s ago{away}", ())

    def _most_run(self, group: str, down: Collection[str]) -> bool:
        """Whether a majority of a range's voters runs."""
        voters, there = self._voters.get(group, ()), self._there.get(group, {})
        return 2 * sum(each in there and node_of(each) not in down for each in voters) > len(voters)

    def _due(self, now_ns: int, patience_ns: int, down_too: bool = False) -> bool:
        """Whether the cluster was healthy, or with the same nodes down, for so long: what may take that time is put to
        the test."""
        since_ns = self._same_since_ns
        due = since_ns is not None and now_ns - since_ns > patience_ns and (down_too or not self._down)
        self._findings.checked[STANDS_STILL] += due
        return due

    def _tell(self, what: str, group: str, message: str, lives: tuple[int, ...]) -> None:
        """Once for each thing: it goes on to stand still."""
        if (what, group) not in self._told:
            self._told[what, group] = None
            self._findings.tell(STANDS_STILL, message, lives, group)


def always_ill() -> Down:
    """Where nobody says that the cluster is well, nothing is expected of it."""
    return None
