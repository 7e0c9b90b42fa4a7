"""What lies on the nodes' disks, read from their synced bytes alone, and what nodes say of it (G5, G10).

What a node's log calls durable is there. So is what a replica of a quorum table acknowledges, its fence, its low bound
and the reservation of ids (Q3, Q6); and what a coordinator acknowledges lies on as many disks as its level says (Q1).
Of a disk that others have damaged nothing is expected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol
from zlib import crc32

from cluster.invariants.findings import BreachLog
from cluster.invariants.standstill import Standstill
from cluster.log.envelope import CorruptLog, either
from cluster.log.frames import LogRecord, frame_at
from cluster.log.replay import APPEND, BASE, DESTROY, DIRECTORY, SnapshotRef, decode_append, decode_base
from cluster.log.segments import DIRECTORY_PATH, Segment, parse_path
from cluster.quorum.fence import Fence, decode_fence
from cluster.quorum.ids import IDS_FILE, IDS_KIND, LOWEST_TIME, MutationId
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
from cluster.quorum.sorted.store import MutationRecord, encode_record, mutation_in, note_in
from cluster.raft.types import Entry, HardState, Persist
from harness.levels import demand
from harness.ports.api import node_of

ON_DISK = "durable-is-on-disk"
ANSWERS_DURABLE = "answers-are-durable"
IDS_RESERVED = "ids-are-reserved"
LEVEL_MET = "acknowledged-at-its-level"

RECORDS_KEPT = 1 << 16
"""Records of a replica of a quorum table that are remembered; beyond that nothing is said of one that isn't known."""


class MachineDisk(Protocol):
    """A machine's disk, seen from outside."""

    syncs: int
    """How many durable operations have ended."""
    changes: int
    """How many of these made, moved or removed a file."""
    damaged: bool
    """Whether anything that was synced was ever corrupted by others."""

    def matching(self, prefix: str) -> list[str]:
        """The paths that begin so."""

    def certain(self, path: str) -> tuple[bytearray, int]:
        """The file, not to be changed, and how many bytes of it a crash would certainly leave; none where it is
        gone."""


# ---- what is there ----


class StoredGroup:
    """What a node's log has of one group, as a restart would find it."""

    __slots__ = ("_records", "_whole", "hard_state", "last", "noted", "recent", "snapshot")

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.snapshot: SnapshotRef | None = None
        self.last = 0
        """The index of the last entry."""
        self.recent: list[Entry] = []
        """Entries that were not there when the disk was looked at before."""
        self.noted = Fence()
        """The highest fence and low bound that were ever noted."""
        self._records: dict[int, None] = {}
        """Names of the mutations that a quorum table's replica was ever given, the oldest first."""
        self._whole = True
        """Whether none of these was let go of."""

    def know(self, entries: Sequence[Entry]) -> None:
        """The log ends with these entries."""
        if entries:
            self.last = entries[-1].index
        for entry in entries:
            data = entry.data
            if mutation_in(data) is not None:
                self._records[_name_of(data)] = None
                if len(self._records) > RECORDS_KEPT:
                    del self._records[next(iter(self._records))]
                    self._whole = False
            elif (note := note_in(data)) is not None:
                fence = decode_fence(note)
                low = max(fence.low_bound, self.noted.low_bound)
                self.noted = Fence(max(fence.fence, self.noted.fence), low)

    def has(self, record: bytes) -> bool:
        """Whether a replica's record is there, or may have been let go of here."""
        return _name_of(record) in self._records or not self._whole

    def go_on_from(self, before: StoredGroup) -> None:
        """The node has begun a new life: what its log has forgotten since is in files of the replica's own."""
        self.noted, self._records, self._whole = before.noted, before._records, before._whole


def _name_of(record: bytes) -> int:
    """What a record is remembered by, the same in every process."""
    return len(record) << 32 | crc32(record)


class StoredLogs:
    """The log on one machine's disk, followed frame by frame as it is synced, for one life of its node."""

    def __init__(self, disk: MachineDisk, before: StoredLogs | None = None) -> None:
        self.disk = disk
        self._syncs = self._changes = -1
        self._segment: Segment | None = None
        self._at = 0
        self._groups: dict[str, StoredGroup] = {}
        self._fresh: list[StoredGroup] = []
        segments = [each.path for each in self._segments()]
        if before is not None and before._segment is not None and before._segment.path in segments:
            for name, group in before._groups.items():
                self._group(name).go_on_from(group)
        self._look()

    def group(self, group: str) -> StoredGroup | None:
        """What is there of a group now."""
        self._look()
        return self._groups.get(group)

    def has_file(self, ref: SnapshotRef) -> bool:
        """Whether a snapshot's file is there, all of it synced."""
        data, synced = self.disk.certain(ref.path)
        return len(data) == synced == ref.size

    def _segments(self) -> Iterator[Segment]:
        paths = self.disk.matching(f"{DIRECTORY_PATH}/")
        return iter(sorted(filter(None, map(parse_path, paths)), key=lambda each: each.number))

    def _look(self) -> None:
        """Read on, and in segments that were begun since."""
        if self._syncs == self.disk.syncs:
            return
        self._syncs = self.disk.syncs
        for group in self._fresh:
            group.recent.clear()
        self._fresh.clear()
        self._read_on()
        if self._changes != self.disk.changes:
            self._changes = self.disk.changes
            last = -1 if self._segment is None else self._segment.number
            for later in [each for each in self._segments() if each.number > last]:
                self._segment, self._at = later, 0
                self._read_on()

    def _read_on(self) -> None:
        """Take in what has come to the segment."""
        segment = self._segment
        if segment is None:
            return
        data, synced = self.disk.certain(segment.path)
        while self._at < synced:
            frame = frame_at(data, self._at, segment.salt)
            if frame is None or frame.end > synced:
                break
            for record in frame.records:
                self._take(record)
            self._at = frame.end

    def _take(self, record: LogRecord) -> None:
        if record.kind == APPEND:
            group, added = self._group(record.group), decode_append(record.body)
            if added.hard_state is not None:
                group.hard_state = added.hard_state
            group.know(added.entries)
            group.recent += added.entries
            self._fresh.append(group)
        elif record.kind == BASE:
            group, base = self._group(record.group), decode_base(record.body)
            group.hard_state, group.snapshot = base.hard_state, base.snapshot
            group.know(base.entries)
        elif record.kind == DESTROY:
            self._groups.pop(record.group, None)
        elif record.kind != DIRECTORY:
            self._groups[record.group] = StoredGroup()

    def _group(self, group: str) -> StoredGroup:
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = StoredGroup()
        return found


# ---- what is said of it ----


class DiskInvariants:
    """Fed with what nodes call durable and with what they answer; `data_centres` says where each node stands."""

    def __init__(self, findings: BreachLog, standstill: Standstill, data_centres: Mapping[str, str]) -> None:
        self._findings, self._standstill, self._data_centres = findings, standstill, data_centres
        self._logs: dict[str, StoredLogs] = {}
        self._reserved: dict[str, int] = {}

    def begin(self, node: str, disk: MachineDisk) -> None:
        """A life of the node begins with this disk."""
        self._logs[node] = StoredLogs(disk, self._logs.get(node))
        self._reserved.pop(node, None)

    def durable(self, life: int, node: str, group: str, batch: Sequence[Persist]) -> None:
        """The log of a group calls these durable, all that one fsync made so: a restart would find them."""
        logs = self._trusted(node)
        if logs is None:
            return
        self._findings.checked[ON_DISK] += 1
        stored = logs.group(group) or StoredGroup()
        self._standstill.logged(life, node, group, stored.last, _covered(stored))
        lacking = _lacking(logs, stored, batch)
        if lacking is not None:
            self._findings.tell(ON_DISK, f"{lacking} is called durable, and not on the disk of {node}", (life,), group)

    def answered(self, life: int, node: str, request: ReplicaRequest, reply: QuorumReply) -> None:
        """A replica answers a coordinator: what it says that it has, a restart would find."""
        logs = self._trusted(node)
        if logs is None or not isinstance(reply, Stored | BoundReply):
            return
        said = _said(request)
        if said is None:
            return
        self._findings.checked[ANSWERS_DURABLE] += 1
        found = logs.group(request.tablet_id) or StoredGroup()
        mutations, noted = said
        lost = [each for each in mutations if each[1] >= found.noted.low_bound and not found.has(each[0])]
        if lost or noted.fence > found.noted.fence or noted.low_bound > found.noted.low_bound:
            message = f"{type(request).__name__} is answered by {node}, whose disk has nothing of it"
            self._findings.tell(ANSWERS_DURABLE, message, (life,), request.tablet_id)

    def acknowledged(
        self, life: int, node: str, level: str, replicas: Collection[str], message: StoreMutation | StoreLogged
    ) -> None:
        """A coordinator tells its client that a write is durable at this level, which counts from where it stands."""
        nodes = [node_of(each) for each in replicas]
        if not all(each in self._logs and each in self._data_centres for each in (node, *nodes)):
            return
        self._findings.checked[LEVEL_MET] += 1
        factors: dict[str, int] = {}
        for each in nodes:
            factors[self._data_centres[each]] = factors.get(self._data_centres[each], 0) + 1
        record, group = _records((message.mutation,))[0][0], message.tablet_id
        having = [each for each in nodes if self._has(each, group, record)]
        if not demand(level, self._data_centres[node], factors).met_by(self._data_centres[each] for each in having):
            where = ", ".join(having) or "no disk"
            self._findings.tell(LEVEL_MET, f"a write is acknowledged at {level}, and is on {where}", (life,), group)

    def id_made(self, life: int, node: str, each: MutationId) -> None:
        """An id is given out: it lies below what is reserved on the disk, so that no later life gives it out again."""
        logs = self._trusted(node)
        if logs is None:
            return
        self._findings.checked[IDS_RESERVED] += 1
        if each.time < self._reserved.get(node, LOWEST_TIME):
            return
        reserved = self._reserved[node] = _reservation(logs.disk)
        if each.time >= reserved:
            message = f"{node} makes an id of time {each.time}, and its disk has reserved those below {reserved}"
            self._findings.tell(IDS_RESERVED, message, (life,), None)

    def _trusted(self, node: str) -> StoredLogs | None:
        logs = self._logs.get(node)
        return None if logs is None or logs.disk.damaged else logs

    def _has(self, node: str, group: str, record: bytes) -> bool:
        logs = self._logs[node]
        found = logs.group(group)
        return logs.disk.damaged or (found is not None and found.has(record))


def _covered(stored: StoredGroup) -> int:
    """Up to which entry a snapshot stands for the log."""
    return 0 if stored.snapshot is None else stored.snapshot.meta.index


def _lacking(logs: StoredLogs, found: StoredGroup, batch: Sequence[Persist]) -> str | None:
    """What of a batch a restart would not find, in words."""
    states = [persist.hard_state for persist in batch if persist.hard_state is not None]
    if states and found.hard_state != states[-1]:
        return f"term {states[-1].term} with the vote for {states[-1].vote}"
    snapshots = [persist.snapshot for persist in batch if persist.snapshot is not None]
    if snapshots:
        there = found.snapshot is not None and found.snapshot.meta == snapshots[-1] and logs.has_file(found.snapshot)
        return None if there else f"the snapshot up to entry {snapshots[-1].index}"
    entries = [entry for persist in batch for entry in persist.entries]
    if entries and found.recent != entries:
        return f"what follows entry {entries[0].index - 1}, up to {entries[-1].index},"
    return None


def _said(request: ReplicaRequest) -> tuple[list[tuple[bytes, int]], Fence] | None:
    """What a replica says that it has where it carries this out: records, each with the time of its id, and a fence."""
    match request:
        case StoreMutation() | StoreLogged():
            return _records((request.mutation,)), Fence()
        case TakePartitions() | DeliverMutations():
            return _records(request.mutations), Fence()
        case RaiseFenceTo():
            return [], Fence(request.time)
        case RaiseLowBound():
            return [], Fence(request.bound, request.bound)
        case _:
            return None


def _records(mutations: Sequence[bytes | LoggedMutation]) -> list[tuple[bytes, int]]:
    """As the log has them, each with the time of its id; a mutation without one is never below a bound."""
    return [
        (encode_record(MutationRecord(each.id, each.mutation)), each.id.time)
        if isinstance(each, LoggedMutation)
        else (encode_record(MutationRecord(None, each)), 1 << 63)
        for each in mutations
    ]


def _reservation(disk: MachineDisk) -> int:
    """Up to which time ids are reserved on a disk."""
    data, synced = disk.certain(IDS_FILE)
    try:
        return int.from_bytes(either(IDS_KIND, bytes(data[:synced])), "big")
    except CorruptLog:
        return LOWEST_TIME
