"""Who the masters were when they last said so, on a tablet server's disk (G1, M12).

The configuration that the node is started with may be older: masters come and go while the cluster runs.
"""

from __future__ import annotations

import msgspec

from cluster.log.envelope import CorruptLog, read_twice, twice
from cluster.wire.messages import Replica, encode
from harness.ports.api import Disk

MASTERS_FILE = "masters"

_MASTERS_KIND = 19


class KnownMasters(msgspec.Struct, frozen=True, array_like=True):
    """The members of the masters' group in the configuration that was set at `index`, 0 for the file's."""

    index: int
    masters: tuple[Replica, ...]


_decode = msgspec.msgpack.Decoder(KnownMasters).decode


async def save(disk: Disk, known: KnownMasters) -> None:
    """Make them durable; raises DiskFull."""
    await disk.write_atomic(MASTERS_FILE, twice(_MASTERS_KIND, encode(known)))


async def load(disk: Disk) -> KnownMasters | None:
    """What was saved last; None if nothing was, or it is damaged: then those that the node was started with must do.

    Raises OtherVersion.
    """
    if MASTERS_FILE not in disk.list(MASTERS_FILE):
        return None
    try:
        return _decode(await read_twice(disk, MASTERS_FILE, _MASTERS_KIND))
    except CorruptLog:
        return None
