"""The replicated state machine of one tablet: lease record, cells with versions, client sessions.

Deterministic: everything is decided by the commands and their order in the log. A command carries the sequence of the
lease it was proposed under and is refused at apply under another (R2); a request that took effect gets its first
answer again (R1, G8), also when the double is found here only. Results are encoded replies of `cluster.wire.messages`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from cluster.ranges.lease import AcquireLease, HandOverLease, Lease, RenewLease, acquired, binds, extended, handed_over
from cluster.store.cells import Key, Value, same_value
from cluster.store.digest import MASK, fingerprint
from cluster.store.hlc import ClockReading
from cluster.store.mvcc import MvccStore, StoreRows, Version
from cluster.store.sessions import RegisterClient, SessionRows, Sessions
from cluster.wire.messages import Done, Fault, RequestId, SessionReply, encode

SNAPSHOT_VERSION = 2


class WriteCell(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A write at `timestamp`, which also extends the lease by `duration_ns` from there."""

    request_id: RequestId
    lease_sequence: int
    timestamp: ClockReading
    duration_ns: int
    key: Key
    value: Value


class CompareAndSetCell(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Like `WriteCell`, if the cell holds `expected` when the command is applied."""

    request_id: RequestId
    lease_sequence: int
    timestamp: ClockReading
    duration_ns: int
    key: Key
    expected: Value
    value: Value


Change: TypeAlias = WriteCell | CompareAndSetCell
TabletCommand: TypeAlias = AcquireLease | RenewLease | HandOverLease | WriteCell | CompareAndSetCell | RegisterClient


class _State(msgspec.Struct, frozen=True, array_like=True):
    version: int
    lease: Lease | None
    last_write: int
    threshold: int
    cells: StoreRows
    sessions: SessionRows


_decode_command = msgspec.msgpack.Decoder(TabletCommand).decode
_decode_state = msgspec.msgpack.Decoder(_State).decode

_NO_ANSWER = b""
_NOT_RISING = encode(Fault("INVALID", "write timestamps must rise along the log", definite=True))


def _refused(holder: str | None) -> bytes:
    return encode(Fault("NOT_THE_LEADER", "proposed under another lease", definite=True, leader=holder))


OnLease: TypeAlias = Callable[[Lease | None, Lease], None]
"""Called with the lease before, as it is by then, and the one that follows it."""


def _ignore(before: Lease | None, lease: Lease) -> None:
    return None


class TabletMachine:
    """State of one tablet's replica; read by its server, changed by `apply` alone.

    `last_write` is the timestamp of the last change applied, whether it wrote or (a compare-and-set) only looked.
    `on_lease` is told of every lease record that is applied.
    """

    def __init__(self, retention_ns: int, flaws: frozenset[str] = frozenset()) -> None:
        self._retention_ns = retention_ns
        self._flaws = flaws
        self._store = MvccStore()
        self._sessions = Sessions(flaws)
        self.on_lease: OnLease = _ignore
        self.lease: Lease | None = None
        self.last_write = 0

    @property
    def digest(self) -> int:
        """64 bits of everything that a snapshot holds (G10)."""
        head = fingerprint((self.lease, self.last_write, self._store.threshold))
        return head + self._store.digest + self._sessions.digest & MASK

    def read(self, key: Key, as_of: int) -> Version | None:
        """The version in force at `as_of`."""
        return self._store.read(key, as_of)

    def answered(self, request_id: RequestId) -> bytes | None:
        """The answer to a request that needs no command: it took effect, or its session has ended."""
        return self._sessions.answered(request_id)

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one committed command; the result is an encoded reply (empty for lease commands)."""
        change = _decode_command(command)
        if isinstance(change, RegisterClient):
            self._sessions.register(index, change)
            return encode(SessionReply(index))
        if isinstance(change, AcquireLease):
            lease = acquired(self.lease, change)
            if lease is not None:
                self.on_lease(self.lease, lease)
                self.lease = lease
            return _NO_ANSWER
        if self.lease is None or not binds(self.lease, change.lease_sequence):
            return _refused(self.lease.holder if self.lease else None)
        if isinstance(change, RenewLease):
            self.lease = extended(self.lease, change.reading, change.duration_ns)
            self._sessions.advance(change.reading)
            return _NO_ANSWER
        if isinstance(change, HandOverLease):
            self.lease = handed_over(self.lease, change)
            return _NO_ANSWER
        self._sessions.advance(change.timestamp)
        answer = self.answered(change.request_id)
        return self._change(self.lease, change) if answer is None else answer

    def _change(self, lease: Lease, change: Change) -> bytes:
        if change.timestamp <= self.last_write:
            return _NOT_RISING
        self.last_write = change.timestamp
        self.lease = extended(lease, change.timestamp, change.duration_ns)
        reply = encode(self._carry_out(change))
        self._sessions.record(change.request_id, reply)
        return reply

    def _carry_out(self, change: Change) -> Done:
        if isinstance(change, CompareAndSetCell):
            version = self._store.read(change.key)
            found = version.value if version else None
            if not same_value(found, change.expected):
                return Done(applied=False, found=found, timestamp=change.timestamp)
        self._store.write(change.key, change.timestamp, change.value)
        self._store.raise_threshold(change.timestamp - self._retention_ns)
        return Done(applied=True, found=None, timestamp=change.timestamp)

    def snapshot(self) -> bytes:
        """Everything, client sessions included."""
        store = self._store
        rows = self._sessions.rows()
        return encode(_State(SNAPSHOT_VERSION, self.lease, self.last_write, store.threshold, store.rows(), rows))

    def restore(self, data: bytes) -> None:
        """Replace everything; raises ValueError for another format version."""
        state = _decode_state(data)
        if state.version != SNAPSHOT_VERSION:
            raise ValueError(
                f"tablet snapshot of format version {state.version}; this program reads {SNAPSHOT_VERSION}"
            )
        self._store = MvccStore.from_rows(state.cells, state.threshold)
        self._sessions = Sessions.from_rows(state.sessions, self._flaws)
        self.lease, self.last_write = state.lease, state.last_write
