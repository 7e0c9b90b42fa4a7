"""The commands of a tablet's log: lease records, and write batches, which say what changes, not what was asked (G2)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cluster.groups.sessions import RegisterClient
from cluster.ranges.lease import AcquireLease, HandOverLease, RenewLease
from cluster.store.cells import Key, Value
from cluster.store.hlc import ClockReading
from cluster.store.schema import Column
from cluster.wire.messages import RequestId


class Put(msgspec.Struct, frozen=True, array_like=True):
    """A new version of one cell; None deletes."""

    key: Key
    value: Value


class WriteBatch(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """What one request changes, all of it at `timestamp`; carried out whole or refused whole.

    `lease_sequence` was fixed at evaluation, `closed` (nothing at or below it is written by later commands) where the
    position in the log was. `answer` is the request's encoded reply, remembered under `request_id`; a request that
    only looked, such as a compare-and-set that failed, has no `puts`. `reading` is what the leaseholder's clock showed
    where the position was fixed: the lease is extended by `duration_ns` from there, and sessions age by it.
    """

    request_id: RequestId
    lease_sequence: int
    timestamp: int
    closed: int
    reading: ClockReading
    duration_ns: int
    puts: tuple[Put, ...]
    answer: bytes


class AlterSchema(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """The tablet's schema from here on, unless it has a later version already.

    It needs no lease: cells are stored by column id, so what was decided under another schema stays right.
    """

    version: int
    columns: tuple[Column, ...]


TabletCommand: TypeAlias = AcquireLease | RenewLease | HandOverLease | WriteBatch | RegisterClient | AlterSchema

decode_command = msgspec.msgpack.Decoder(TabletCommand).decode
