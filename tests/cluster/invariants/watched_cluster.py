"""Three lives of nodes under a watch, and Raft states as they tell of themselves."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.groups.observer import NO_STATE
from cluster.invariants.disks import MachineDisk
from cluster.invariants.watch import Watch
from cluster.observer import Observer
from cluster.raft.types import Configuration, Entry, EntryKind, HardState, Member, Persist, Role, SnapshotMeta

GROUP = "tablet"
VOTERS = ("a", "b", "c")
SECOND = 1_000_000_000


class State:
    """A state machine of which only the digest matters."""

    def __init__(self, digest: int) -> None:
        self.digest = digest


@dataclass
class View:
    """A replica's state as `cluster.observer.RaftView` shows it."""

    term: int
    log: tuple[Entry, ...] = ()
    role: Role = Role.LEADER
    voters: tuple[str, ...] = VOTERS
    committed: tuple[str, ...] = VOTERS
    first_index: int = 1
    lease_until_ns: int = 0

    @property
    def configuration(self) -> Configuration:
        return configuration(*self.voters, term=self.term)

    @property
    def committed_configuration(self) -> Configuration:
        return configuration(*self.committed)

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.log) - 1

    def entries(self, first: int, last: int) -> tuple[Entry, ...]:
        return self.log[first - self.first_index : last - self.first_index + 1]


class TestClock:
    """A machine's clocks: the monotonic one is ahead of true time, the wall clock was so when it was read."""

    __test__ = False

    def __init__(self, ahead_ns: int = 0, peak_ns: int = 0) -> None:
        self._ahead_ns, self._peak_ns = ahead_ns, peak_ns

    def true_ns(self, monotonic_ns: int) -> int:
        return monotonic_ns - self._ahead_ns

    def true_wall_ns(self) -> int:
        return 1_000 * SECOND

    def peak_offset_ns(self) -> int:
        return self._peak_ns


class Cluster:
    """A watch, and the observers of a few nodes' lives; a clock may be ahead of true time."""

    def __init__(self) -> None:
        self.step = 0
        self.watch = Watch(lambda: (self.step * 10, self.step))
        self.a, self.b, self.c = (self.life(name) for name in VOTERS)

    def life(
        self,
        node: str,
        incarnation: int = 1,
        snapshot: SnapshotMeta | None = None,
        entries: tuple[Entry, ...] = (),
        ahead_ns: int = 0,
        state: HardState = NO_STATE,
        disk: MachineDisk | None = None,
    ) -> Observer:
        observer = self.watch.observer(node, incarnation, TestClock(ahead_ns), disk)
        observer.opened(GROUP, node, snapshot, entries, state)
        return observer

    def on_disks(self, *entries: Entry, snapshot: SnapshotMeta | None = None) -> None:
        """All three have made these durable."""
        for observer in (self.a, self.b, self.c):
            observer.durable(GROUP, [persist(*entries, snapshot=snapshot)])

    @property
    def breaches(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(breach.invariant, breach.nodes) for breach in self.watch.record().breaches]


def entry(term: int, index: int, data: bytes = b"x") -> Entry:
    return Entry(term, index, EntryKind.COMMAND, data)


def persist(*entries: Entry, snapshot: SnapshotMeta | None = None, state: HardState | None = None) -> Persist:
    return Persist(1, state, tuple(entries), snapshot, ())


def configuration(*voters: str, term: int = 1) -> Configuration:
    return Configuration(tuple(Member(voter, f"{voter}:1") for voter in voters), (), 1, term)


def covered(index: int, term: int) -> SnapshotMeta:
    return SnapshotMeta(index, term, configuration(*VOTERS))
