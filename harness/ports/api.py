"""The four ports node code runs on, and the bundle a node is handed: real in containers, simulated in the simulator.

Node code never touches time, sockets, files or randomness except through these (`ARCHITECTURE.md`, "One node program,
two worlds"). Both twins pass the same conformance suite.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeAlias

from harness.ports.failpoints import Arming

Address: TypeAlias = str
"""Where a node listens: `host:port` in the real twin, `node-name:port` in the simulator."""

Handler: TypeAlias = Callable[["Peer", bytes], Coroutine[Any, Any, bytes]]
"""Answers one request; what it raises is not sent: the caller sees a lost connection.

It runs up to its first wait where the request arrives, in no task (`harness.ports.eager`)."""

NotifyHandler: TypeAlias = Callable[["Peer", bytes], None]
"""Takes one one-way message, in the order of arrival; must not block."""


class Channel(IntEnum):
    """What a notification waits behind: its own channel's and more urgent ones', never less urgent ones' bytes.

    Order is kept within a channel. Calls travel with `LOG`.
    """

    CONTROL = 0
    LOG = 1
    BULK = 2


class Unreachable(Exception):
    """The request was never sent (no connection): a definite failure."""


class CallLost(Exception):
    """The request may have been carried out: the deadline passed or the connection broke after sending."""


class Refused(Exception):
    """The handshake was refused (other cluster, other wire version): a definite failure."""


class DiskFull(OSError):
    """No space left; nothing of the append was kept."""


class Crashed(BaseException):
    """Raised by a failpoint that kills the node; node code never catches it."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What each side of a connection states first; strangers (other cluster id or wire version) are refused.

    Whoever names no cluster leaves that unchecked: nothing of ours does, but for a flaw.
    """

    cluster_id: str
    node_id: str
    incarnation: int
    version: int


def is_stranger(ours: Hello, theirs: Hello) -> bool:
    """Another cluster, or another wire version."""
    named = bool(ours.cluster_id and theirs.cluster_id)
    return ours.version != theirs.version or (named and ours.cluster_id != theirs.cluster_id)


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end: its node id and incarnation, as its Hello stated them."""

    node_id: str
    incarnation: int


class Timer(Protocol):
    """A call that is due."""

    def cancel(self) -> None:
        """Have it never made, if it is still due."""


class Clock(Protocol):
    """Time as one node sees it: the wall clock may be skewed by faults, the monotonic one drifts within its bound."""

    def wall_ns(self) -> int:
        """Wall-clock time, ns since the epoch; may jump either way."""

    def monotonic_ns(self) -> int:
        """Monotonic time, ns since an arbitrary point; never goes back."""

    def times_ns(self) -> tuple[int, int]:
        """Wall-clock and monotonic time of one moment, as the other two say."""

    async def sleep(self, seconds: float) -> None:
        """Wait that long by the monotonic clock."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back after that long by the monotonic clock, in no task."""


class Listener(Protocol):
    """A listening endpoint."""

    @property
    def address(self) -> Address:
        """Where it listens (with the port that was chosen, if 0 was asked)."""

    async def close(self) -> None:
        """Stop listening and drop open connections."""


class Network(Protocol):
    """Framed messages between nodes: calls with a deadline, and one-way notifications."""

    async def listen(self, address: Address, on_call: Handler, on_notify: NotifyHandler) -> Listener:
        """Serve calls and notifications at `address` until closed; raises OSError when the address is taken."""

    async def call(self, address: Address, request: bytes, timeout_s: float) -> bytes:
        """Send a request and await its answer; raises Unreachable, Refused or CallLost (see there)."""

    def notify(self, address: Address, message: bytes, channel: Channel = Channel.LOG) -> None:
        """Send one message with no answer and no promise; never blocks, drops when there is no way through or too
        much waits on its channel."""

    async def close(self) -> None:
        """Drop every connection."""


class Disk(Protocol):
    """A flat directory of files with explicit durability. Paths are relative, `/` separated.

    What was appended is readable at once but survives a crash only after `fsync`; an unsynced tail may be lost or torn.
    `rename`, `remove` and `write_atomic` are atomic and durable when they return.
    """

    async def append(self, path: str, data: bytes) -> None:
        """Append to a file, creating it; raises DiskFull."""

    def fsync(self, path: str) -> Awaitable[None]:
        """Make everything appended to the file so far durable."""

    async def read(self, path: str) -> bytes:
        """The whole file; raises FileNotFoundError."""

    async def read_at(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on, fewer where the file ends; raises FileNotFoundError."""

    async def truncate(self, path: str, length: int) -> None:
        """Cut the file to `length` bytes, durably."""

    async def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`, atomically and durably."""

    async def remove(self, path: str) -> None:
        """Remove a file, durably; missing files are no error."""

    async def write_atomic(self, path: str, data: bytes) -> None:
        """Replace the whole file, all or nothing, durably."""

    def list(self, prefix: str) -> list[str]:
        """Paths that start with `prefix`, sorted."""


class Failpoints(Protocol):
    """Named points in node code where it can be made to crash, stop, wait or fail; free when none is armed.

    Names are those of the program's registry; `group` is the Raft group that passes. See `harness.ports.failpoints`.
    """

    @property
    def armed(self) -> Mapping[str, object]:
        """What is armed, by point: empty most of the time."""

    @property
    def hits(self) -> Mapping[str, int]:
        """How often each was passed while it was armed."""

    def hit(self, name: str, group: str = "") -> None:
        """Pass a point at which nothing may wait; raises Crashed or InjectedFailure if it is armed so."""

    def rest(self, name: str, group: str = "") -> Awaitable[None] | None:
        """Pass a point where others may go on meanwhile: what has to be awaited before the caller does, or None."""

    def longer(self, wait: str) -> Awaitable[None] | None:
        """What a process that is slow at this wait has to await besides, or None: no point, so nothing else happens."""

    def arm(self, arming: Arming) -> None:
        """Act at a point from now on, as long as the process lives."""

    def disarm(self, point: str = "") -> None:
        """Forget one point, or all; what waits there goes on."""


Entropy: TypeAlias = random.Random
"""A seeded generator; children are made with `Random(entropy.getrandbits(64))`, one per subsystem."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything a node program is given."""

    node_id: str
    incarnation: int
    clock: Clock
    network: Network
    disk: Disk
    entropy: Entropy
    failpoints: Failpoints


def node_of(server_id: str) -> str:
    """The node that a server runs on: one that has lost its disk comes back as another server, `t1.5e0c…` on `t1`."""
    return server_id.partition(".")[0]
