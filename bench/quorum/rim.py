"""What crosses a node's ports, counted there: bytes of files read, bytes of messages sent, records in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace

from cluster.log.frames import scan
from cluster.log.replay import APPEND
from cluster.log.segments import parse_path
from cluster.quorum.hints import HINTS_GROUP
from cluster.quorum.messages import MARK
from cluster.wire.clocked import unclocked
from harness.ports.api import Address, Channel, Disk, Handler, Listener, Network, NotifyHandler, Ports
from harness.ports.sim.disk import SimDisk

FILES = "sorted/"
"""Where replicas keep their rows (`cluster.quorum.sorted`)."""


@dataclass
class NodeCounts:
    """What all nodes together have done: reads of files of rows, and bytes of calls and answers of quorum tables.

    `wire` has these by the kind of the call.
    """

    disk_reads: int = 0
    disk_read_bytes: int = 0
    largest_message: int = 0
    wire: Counter[str] = field(default_factory=Counter)

    @property
    def wire_bytes(self) -> int:
        """Bytes between nodes."""
        return self.wire.total()

    def since(self, before: NodeCounts) -> NodeCounts:
        """What came on top."""
        return NodeCounts(
            self.disk_reads - before.disk_reads,
            self.disk_read_bytes - before.disk_read_bytes,
            self.largest_message,
            self.wire - before.wire,
        )

    def copy(self) -> NodeCounts:
        """As it is now."""
        return replace(self, wire=Counter(self.wire))


class CountedDisk:
    """A node's disk; reads of files of rows are counted. Implements `harness.ports.api.Disk`."""

    def __init__(self, disk: Disk, counts: NodeCounts) -> None:
        self._disk, self._counts = disk, counts

    async def append(self, path: str, data: bytes) -> None:
        await self._disk.append(path, data)

    def fsync(self, path: str) -> Awaitable[None]:
        return self._disk.fsync(path)

    async def read(self, path: str) -> bytes:
        return self._counted(path, await self._disk.read(path))

    async def read_at(self, path: str, offset: int, length: int) -> bytes:
        return self._counted(path, await self._disk.read_at(path, offset, length))

    def _counted(self, path: str, data: bytes) -> bytes:
        if path.startswith(FILES):
            self._counts.disk_reads += 1
            self._counts.disk_read_bytes += len(data)
        return data

    async def truncate(self, path: str, length: int) -> None:
        await self._disk.truncate(path, length)

    async def rename(self, source: str, target: str) -> None:
        await self._disk.rename(source, target)

    async def remove(self, path: str) -> None:
        await self._disk.remove(path)

    async def write_atomic(self, path: str, data: bytes) -> None:
        await self._disk.write_atomic(path, data)

    def list(self, prefix: str) -> list[str]:
        return self._disk.list(prefix)


class CountedNetwork:
    """A node's network; calls of quorum tables and their answers are counted. Implements `Network`."""

    def __init__(self, network: Network, counts: NodeCounts) -> None:
        self._network, self._counts = network, counts

    async def listen(self, address: Address, on_call: Handler, on_notify: NotifyHandler) -> Listener:
        return await self._network.listen(address, on_call, on_notify)

    async def call(self, address: Address, request: bytes, timeout_s: float) -> bytes:
        said = unclocked(request)
        if not said.startswith(MARK):
            return await self._network.call(address, request, timeout_s)
        kind = _kind(said)
        self._count(kind, request)
        answer = await self._network.call(address, request, timeout_s)
        self._count(kind, answer)
        return answer

    def _count(self, kind: str, message: bytes) -> None:
        self._counts.wire[kind] += len(message)
        self._counts.largest_message = max(self._counts.largest_message, len(message))

    def notify(self, address: Address, message: bytes, channel: Channel = Channel.LOG) -> None:
        self._network.notify(address, message, channel)

    async def close(self) -> None:
        await self._network.close()


def counted(ports: Ports, counts: NodeCounts) -> Ports:
    """A node's ports with counters."""
    return replace(ports, disk=CountedDisk(ports.disk, counts), network=CountedNetwork(ports.network, counts))


def hint_bytes(disk: SimDisk) -> int:
    """What of a node's log are records of hints, of all segments that there still are."""
    found = 0
    for path in disk.paths():
        segment = parse_path(path)
        for part in scan(disk.peek(path), segment.salt, sealed=False).parts if segment is not None else ():
            found += sum(len(each.body) for each in part.records if each.group == HINTS_GROUP and each.kind == APPEND)
    return found


def _kind(request: bytes) -> str:
    """The name of a request's type: its tag, which MessagePack writes behind the key `type`."""
    _, _, rest = request.partition(b"\xa4type")
    return rest[1 : 1 + (rest[0] & 0x1F)].decode() if rest else "?"
