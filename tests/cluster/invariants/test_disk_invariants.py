"""What nodes call durable, promise and acknowledge is on disks, or an invariant breaks."""

from __future__ import annotations

import pytest
from watched_cluster import GROUP, VOTERS, Cluster, covered, entry, persist

from cluster.invariants.disks import ANSWERS_DURABLE, IDS_RESERVED, LEVEL_MET, ON_DISK
from cluster.invariants.watch import Watch
from cluster.log.envelope import twice
from cluster.log.frames import LogRecord, build
from cluster.log.replay import APPEND, BASE, Append, GroupBase, SnapshotRef, encode_body
from cluster.quorum.fence import Fence, encode_fence
from cluster.quorum.ids import IDS_FILE, IDS_KIND, MutationId
from cluster.quorum.messages import (
    BoundReply,
    DeliverMutations,
    LoggedMutation,
    QuorumReply,
    RaiseFenceTo,
    RaiseLowBound,
    ReplicaRequest,
    Stored,
    StoreLogged,
    StoreMutation,
    TakePartitions,
)
from cluster.quorum.sorted.store import MutationRecord, NoteRecord, StoreRecord, encode_record
from cluster.raft.types import Entry, EntryKind, HardState, Persist

SALT = 7


class Disk:
    """A machine's disk that holds a log of one segment or more, frame by frame."""

    def __init__(self) -> None:
        self.syncs = self.changes = 0
        self.damaged = False
        self.files: dict[str, bytearray] = {}
        self.synced: dict[str, int] = {}
        self.segment = ""
        self.roll(1)

    def matching(self, prefix: str) -> list[str]:
        return [path for path in self.files if path.startswith(prefix)]

    def certain(self, path: str) -> tuple[bytearray, int]:
        return self.files.get(path, bytearray()), self.synced.get(path, 0)

    def roll(self, number: int) -> None:
        self.segment = f"log/segment-{number:016d}-{SALT:08x}"
        self.put(self.segment, b"")

    def put(self, path: str, data: bytes) -> None:
        self.files[path], self.synced[path] = bytearray(data), len(data)
        self.syncs += 1
        self.changes += 1

    def log(self, kind: int, body: bytes, synced: bool = True, group: str = GROUP) -> None:
        """One frame of one record."""
        file = self.files[self.segment]
        file += build([LogRecord(group, 1, kind, body)], len(file), SALT)
        if synced:
            self.synced[self.segment] = len(file)
        self.syncs += 1

    def append(self, *entries: Entry, state: HardState | None = None, synced: bool = True) -> None:
        self.log(APPEND, encode_body(Append(state, entries)), synced)

    def keep(self, *records: StoreRecord) -> None:
        """What a quorum table's replica logs."""
        self.append(*(Entry(1, at, EntryKind.COMMAND, encode_record(each)) for at, each in enumerate(records, 1)))


VOTE = HardState(3, "b")


def test_what_a_log_calls_durable_a_restart_would_find(cluster: Cluster) -> None:
    disk = Disk()
    observer = cluster.life("a", 2, disk=disk)
    disk.append(entry(3, 1), state=VOTE)
    observer.durable(GROUP, [persist(entry(3, 1), state=VOTE)])
    disk.append(entry(3, 2))
    disk.append(entry(3, 3))
    observer.durable(GROUP, [persist(entry(3, 2)), persist(entry(3, 3))])
    disk.append(entry(3, 4))
    disk.roll(2)
    observer.durable(GROUP, [persist(entry(3, 4))])
    disk.append(entry(3, 5))
    observer.durable(GROUP, [persist(entry(3, 5))])
    again = cluster.life("a", 3, entries=tuple(entry(3, at) for at in range(1, 6)), state=VOTE, disk=disk)
    disk.append(entry(3, 6))
    again.durable(GROUP, [persist(entry(3, 6))])
    assert cluster.breaches == []
    assert cluster.watch.record().checked[ON_DISK] == 5


@pytest.mark.parametrize(
    ("written", "synced", "batch"),
    [
        (None, True, persist(entry(3, 1))),
        (persist(entry(3, 1)), False, persist(entry(3, 1))),
        (persist(entry(3, 1)), True, persist(entry(3, 1), entry(3, 2))),
        (persist(entry(3, 1, b"y")), True, persist(entry(3, 1))),
        (persist(entry(3, 1)), True, persist(entry(3, 1), state=VOTE)),
        (persist(state=HardState(3, "c")), True, persist(state=VOTE)),
        (persist(), True, persist(snapshot=covered(4, 2))),
    ],
)
def test_what_is_not_on_disk_is_not_durable(
    cluster: Cluster, written: Persist | None, synced: bool, batch: Persist
) -> None:
    disk = Disk()
    observer = cluster.life("a", 2, disk=disk)
    if written is not None:
        disk.append(*written.entries, state=written.hard_state, synced=synced)
    observer.durable(GROUP, [batch])
    assert cluster.breaches == [(ON_DISK, ("a",))]


@pytest.mark.parametrize(("size", "fine"), [(5, True), (4, False)])
def test_a_snapshot_is_durable_with_its_whole_file(cluster: Cluster, size: int, fine: bool) -> None:
    disk = Disk()
    observer = cluster.life("a", 2, disk=disk)
    disk.put("snapshots/x", b"12345"[:size])
    ref = SnapshotRef("snapshots/x", covered(4, 2), 5)
    disk.log(BASE, encode_body(GroupBase(VOTE, ref, ())))
    observer.durable(GROUP, [persist(snapshot=covered(4, 2), state=VOTE)])
    assert [name for name, _ in cluster.breaches] == ([] if fine else [ON_DISK])


def test_nothing_is_expected_of_a_disk_that_others_have_damaged(cluster: Cluster) -> None:
    disk = Disk()
    observer = cluster.life("a", 2, disk=disk)
    disk.damaged = True
    observer.durable(GROUP, [persist(entry(3, 1))])
    observer.replica_answers(StoreMutation(GROUP, 0, b"\x01m"), Stored())
    assert cluster.breaches == []


PLAIN = b"\x01m"
NAMED = LoggedMutation(MutationId(50, "t1"), PLAIN)
KEPT: tuple[StoreRecord, ...] = (
    MutationRecord(None, PLAIN),
    MutationRecord(NAMED.id, PLAIN),
    NoteRecord(encode_fence(Fence(40, 30))),
)
LATER = LoggedMutation(MutationId(51, "t1"), PLAIN)
BELOW = LoggedMutation(MutationId(29, "t1"), PLAIN)
ANSWERS: list[tuple[ReplicaRequest, QuorumReply, bool]] = [
    (StoreMutation(GROUP, 0, PLAIN), Stored(), True),
    (StoreMutation(GROUP, 0, b"\x01n"), Stored(), False),
    (TakePartitions(GROUP, 0, (PLAIN, b"\x01n")), Stored(), False),
    (StoreLogged(GROUP, 0, NAMED), Stored(), True),
    (StoreLogged(GROUP, 0, LATER), Stored(), False),
    (DeliverMutations(GROUP, 0, (NAMED, BELOW)), Stored(), True),
    (DeliverMutations(GROUP, 0, (NAMED, LATER)), Stored(), False),
    (RaiseFenceTo(GROUP, 0, 40), BoundReply(30, 0), True),
    (RaiseFenceTo(GROUP, 0, 41), BoundReply(30, 0), False),
    (RaiseLowBound(GROUP, 0, 30), Stored(), True),
    (RaiseLowBound(GROUP, 0, 31), Stored(), False),
]


@pytest.mark.parametrize(("request_", "reply", "fine"), ANSWERS)
def test_what_a_replica_acknowledges_is_on_its_disk(
    cluster: Cluster, request_: ReplicaRequest, reply: QuorumReply, fine: bool
) -> None:
    disk = Disk()
    cluster.life("a", 2, disk=disk)
    disk.keep(*KEPT)
    cluster.life("a", 3, disk=disk).replica_answers(request_, reply)
    assert [name for name, _ in cluster.breaches] == ([] if fine else [ANSWERS_DURABLE])


@pytest.mark.parametrize(("level", "disks", "fine"), [("QUORUM", 2, True), ("QUORUM", 1, False), ("ONE", 0, False)])
def test_a_write_lies_on_as_many_disks_as_its_level_says(level: str, disks: int, fine: bool) -> None:
    cluster = Cluster()
    cluster.watch = Watch(lambda: (0, 0), data_centres=dict.fromkeys(VOTERS, "dc1"))
    every = {name: Disk() for name in VOTERS}
    observers = [cluster.life(name, disk=disk) for name, disk in every.items()]
    for disk in list(every.values())[:disks]:
        disk.keep(MutationRecord(None, PLAIN))
    observers[0].write_acknowledged(level, VOTERS, StoreMutation(GROUP, 0, PLAIN))
    assert [name for name, _ in cluster.breaches] == ([] if fine else [LEVEL_MET])


def test_an_id_is_reserved_on_disk_before_it_is_given_out(cluster: Cluster) -> None:
    disk = Disk()
    observer = cluster.life("a", 2, disk=disk)
    disk.put(IDS_FILE, twice(IDS_KIND, (9).to_bytes(8, "big")))
    for time in (7, 8):
        observer.id_made(MutationId(time, "a"))
    assert cluster.breaches == []
    observer.id_made(MutationId(9, "a"))
    assert [name for name, _ in cluster.breaches] == [IDS_RESERVED]
