"""What a store writes to the node's log: mutations, with ids where they have any (Q3), and its owner's note. Pure.

The first byte tells them apart. A mutation without an id stands as it is encoded, and begins with its own format.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from cluster.log.envelope import CorruptLog
from cluster.quorum.ids import ID_BYTES, MutationId, decode_id, encode_id
from cluster.quorum.keys import KeyBytes
from cluster.quorum.mutation import QUORUM_FORMAT

_NAMED, _NOTE = b"\x80", b"\x81"
_PLAIN = bytes((QUORUM_FORMAT,))


@dataclass(frozen=True, slots=True)
class MutationRecord:
    """A mutation, encoded, and its id if it has one."""

    id: MutationId | None
    mutation: bytes


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """What the store's owner keeps beside the mutations; it replaces the note before."""

    note: bytes


StoreRecord: TypeAlias = MutationRecord | NoteRecord


def encode_record(record: StoreRecord) -> bytes:
    """For the log; raises ValueError where an id can't be encoded."""
    if isinstance(record, NoteRecord):
        return _NOTE + record.note
    return record.mutation if record.id is None else _NAMED + encode_id(record.id) + record.mutation


def decode_record(data: bytes) -> StoreRecord:
    """What `encode_record` made bytes of; raises CorruptLog."""
    kind = data[:1]
    if kind == _NOTE:
        return NoteRecord(data[1:])
    if kind == _NAMED and len(data) > ID_BYTES:
        return MutationRecord(decode_id(data[1 : 1 + ID_BYTES]), data[1 + ID_BYTES :])
    if kind == _PLAIN:
        return MutationRecord(None, data)
    raise CorruptLog(f"the log holds a record that begins with {kind.hex() or 'nothing'}")


def note_in(data: bytes) -> bytes | None:
    """The note of an encoded record that is one."""
    return data[1:] if data[:1] == _NOTE else None


def mutation_in(data: bytes) -> bytes | None:
    """The mutation of an encoded record that is one."""
    kind = data[:1]
    if kind == _NAMED:
        return data[1 + ID_BYTES :]
    return data if kind == _PLAIN else None


class Ledger(Protocol):
    """Who knows mutations by their ids (Q3), and how much of the log it still needs for that."""

    def stored(self, number: int, each: MutationId, partition: KeyBytes) -> None:
        """A mutation became visible just now, or was found at a restart; `number` is its place in the log."""

    def recovered(self, number: int) -> None:
        """All that was found at a restart was told; the log ends with this place."""

    @property
    def needs_from(self) -> int | None:
        """The lowest place that the log must keep; None for none."""

    @property
    def low_bound(self) -> int:
        """Mutations with ids below this time nobody asks for."""

    def needed(self, last: int) -> list[tuple[int, MutationId, KeyBytes]]:
        """The mutations that the log must keep, of places up to `last`, rising."""

    def set_aside(self, numbers: Iterable[int]) -> None:
        """The log need not keep these places any more: the store has their mutations elsewhere."""

    def collected(self, number: int) -> None:
        """The log keeps nothing up to this place any more."""
