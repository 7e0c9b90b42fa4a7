"""What a node's log says of each group: records, replayed in order into images; and whom a hole has harmed (G5, G7).

A group's records are numbered without a gap. `BASE` states the whole group; `APPEND` changes it; `QUARANTINE` says that
this replica lost something and must be rebuilt; `DESTROY` ends the group. A `BASE`, `QUARANTINE` or `DESTROY` makes
everything before it void, damage included. `DIRECTORY` lists each group's last number, so that a hole which swallowed a
group's *last* records is noticed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from cluster.log.frames import Hole, LogRecord, Scan
from cluster.raft.types import Entry, HardState, SnapshotMeta

BASE, APPEND, QUARANTINE, DESTROY, DIRECTORY = 1, 2, 3, 4, 5

_ENTRY_OVERHEAD = 16
_GROUP_OVERHEAD = 128


class SnapshotRef(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot file that a group stands on; `size` is in bytes."""

    path: str
    meta: SnapshotMeta
    size: int


class GroupBase(msgspec.Struct, frozen=True, array_like=True):
    """Everything that is stored of a group: `entries` follow the snapshot."""

    hard_state: HardState
    snapshot: SnapshotRef | None
    entries: tuple[Entry, ...]


class Append(msgspec.Struct, frozen=True, array_like=True):
    """One `Persist`: entries replace everything from the first one's index on."""

    hard_state: HardState | None
    entries: tuple[Entry, ...]


encode_body = msgspec.msgpack.Encoder().encode
decode_base = msgspec.msgpack.Decoder(GroupBase).decode
decode_append = msgspec.msgpack.Decoder(Append).decode
_decode_directory = msgspec.msgpack.Decoder(dict[str, int]).decode


@dataclass(slots=True)
class Image:
    """One group as its records leave it."""

    group: str
    # Of its last record; a group's records are numbered from 1 without gaps.
    number: int = 0
    # The oldest segment that it needs.
    base_segment: int = 0
    hard_state: HardState = field(default_factory=HardState)
    snapshot: SnapshotRef | None = None
    # They follow the snapshot without gaps, and `entry_bytes` is about what they take.
    entries: list[Entry] = field(default_factory=list)
    entry_bytes: int = 0
    # Why the replica is quarantined, in a sentence.
    damage: str | None = None

    @property
    def snapshot_index(self) -> int:
        return self.snapshot.meta.index if self.snapshot is not None else 0

    @property
    def live_bytes(self) -> int:
        """About what a new base would take."""
        return _GROUP_OVERHEAD + self.entry_bytes

    def record(self, kind: int, body: bytes) -> LogRecord:
        """The group's next record."""
        self.number += 1
        return LogRecord(self.group, self.number, kind, body)

    def restated(self) -> LogRecord:
        """The next record, which states all this again and makes everything before it void."""
        if self.damage is not None:
            return self.record(QUARANTINE, self.damage.encode())
        return self.record(BASE, encode_body(GroupBase(self.hard_state, self.snapshot, tuple(self.entries))))

    def quarantine(self, reason: str) -> None:
        """Nothing that is stored counts any more."""
        self.reset(GroupBase(HardState(), None, ()))
        self.damage = reason

    def reset(self, base: GroupBase) -> None:
        """A new base takes the place of everything."""
        self.hard_state, self.snapshot, self.entries = base.hard_state, base.snapshot, list(base.entries)
        self.entry_bytes = sum(map(entry_bytes, base.entries))
        self.damage = None

    def append(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Take a `Persist` in; raises ValueError where entries would leave a gap."""
        if hard_state is not None:
            self.hard_state = hard_state
        if not entries:
            return
        base = self.snapshot.meta.index if self.snapshot is not None else 0
        keep, length = entries[0].index - base - 1, len(self.entries)
        if keep > length:
            raise ValueError(f"the log of {self.group} misses entries before index {entries[0].index}")
        if keep < length:
            self._cut(max(keep, 0))
        if keep < 0:
            entries = [entry for entry in entries if entry.index > base]
        self.entries.extend(entries)
        for entry in entries:
            self.entry_bytes += len(entry.data) + _ENTRY_OVERHEAD

    def after(self, index: int) -> tuple[Entry, ...]:
        """The entries behind an index that a snapshot covers."""
        return tuple(self.entries[max(index - self.snapshot_index, 0) :])

    def _cut(self, length: int) -> None:
        self.entry_bytes -= sum(map(entry_bytes, self.entries[length:]))
        del self.entries[length:]


def entry_bytes(entry: Entry) -> int:
    """About how much of a log an entry takes."""
    return len(entry.data) + _ENTRY_OVERHEAD


class Replay:
    """Images of all groups, fed with the scans of the segments in their order.

    Behind a hole of which nothing is known (`_blind`) every group is suspected until a later record of it, whose number
    follows or doesn't, or a directory says how it stands. `_expected` are numbers that are known to have been written.
    """

    def __init__(self) -> None:
        self.images: dict[str, Image] = {}
        self.repaired_segments: list[int] = []
        self.damaged_segments: list[int] = []
        self._expected: dict[str, int] = {}
        self._suspects: dict[str, None] = {}
        self._harmed: dict[str, None] = {}
        self._blind = False
        self._last_segment = 0

    def take(self, segment: int, found: Scan) -> None:
        """Replay one segment; segments are removed from the front only, so that a missing number is a hole."""
        if self._last_segment not in (0, segment - 1):
            self._take_hole(segment, Hole(0, 0, None))
        self._last_segment = segment
        for part in found.parts:
            if isinstance(part, Hole):
                self._take_hole(segment, part)
            elif part.repaired:
                self.repaired_segments.append(segment)
            for record in part.records:
                self._take_record(segment, record)

    def finish(self, groups: Sequence[str]) -> tuple[str, ...]:
        """Find the groups that a hole harmed and no record has told of; all that are newly damaged, by name.

        `groups` have begun here, as far as others know: after a hole, one without any record can have lost them all.
        """
        for group, number in self._expected.items():
            image = self.images.get(group)
            if image is None or image.number < number:
                self._harm(group, f"of its {number} records in the node's log the last are damaged")
        unknown = [group for group in groups if group not in self.images] if self._blind else []
        for group in (*(each for each in self._suspects if each in self.images), *unknown):
            self._harm(group, "the node's log is damaged, and nothing proves that this group lost nothing")
        return tuple(sorted(self._harmed))

    def _take_hole(self, segment: int, hole: Hole) -> None:
        self.damaged_segments.append(segment)
        if hole.lost is None:
            self._blind = True
            self._suspects = dict.fromkeys(self.images)
            return
        for group, number in hole.lost:
            self._expected[group] = max(number, self._expected.get(group, 0))

    def _take_record(self, segment: int, record: LogRecord) -> None:
        if record.kind == DIRECTORY:
            self._take_directory(_decode_directory(record.body))
            return
        self._suspects.pop(record.group, None)
        if record.kind == APPEND:
            self._take_append(record)
        else:
            self._take_reset(segment, record)

    def _take_reset(self, segment: int, record: LogRecord) -> None:
        """What came before is void."""
        self._expected.pop(record.group, None)
        self._harmed.pop(record.group, None)
        if record.kind == DESTROY:
            self.images.pop(record.group, None)
            return
        image = self.images[record.group] = Image(record.group, record.number, segment)
        if record.kind == BASE:
            image.reset(decode_base(record.body))
        else:
            image.damage = record.body.decode()

    def _take_append(self, record: LogRecord) -> None:
        image = self.images.get(record.group)
        if image is None:
            self._harm(record.group, "the record that states its base is damaged")
            image = self.images[record.group]
        elif image.damage is None and record.number != image.number + 1:
            self._harm(record.group, f"records {image.number + 1} to {record.number - 1} are damaged")
        image.number = record.number
        if image.damage is None:
            item = decode_append(record.body)
            image.append(item.hard_state, item.entries)

    def _take_directory(self, numbers: dict[str, int]) -> None:
        """The groups there are, with the numbers of their last records: nothing is in doubt any more."""
        for group in [group for group in self.images if group not in numbers]:
            del self.images[group]
        self._expected.update(numbers)
        self._suspects.clear()
        self._blind = False

    def _harm(self, group: str, reason: str) -> None:
        image = self.images.setdefault(group, Image(group))
        if image.damage is None:
            image.damage = reason
            self._harmed[group] = None
