"""Which tablets a server hosts, on its disk: one small file each, written whole before anything is acknowledged.

A deleted tablet leaves a tombstone: its id is never used again here, so a late CreateTablet cannot bring back an empty
replica that has forgotten its votes.
"""

from __future__ import annotations

import msgspec

from cluster.log.envelope import frame, unframe
from cluster.wire.messages import CreateTablet, encode
from harness.ports import Disk

TABLETS_DIRECTORY = "tablets"

_META_KIND = 16
_SUFFIX = ".meta"


class TabletMeta(msgspec.Struct, frozen=True, array_like=True):
    """One tablet of this server; `created` is None once it is deleted."""

    tablet_id: str
    created: CreateTablet | None


_decode_meta = msgspec.msgpack.Decoder(TabletMeta).decode


async def save(disk: Disk, meta: TabletMeta) -> None:
    """Make a tablet's record durable."""
    await disk.write_atomic(f"{TABLETS_DIRECTORY}/{meta.tablet_id}{_SUFFIX}", frame(_META_KIND, encode(meta)))


async def load_all(disk: Disk) -> list[TabletMeta]:
    """Every tablet's record, in the order of their ids; raises CorruptLog."""
    paths = [path for path in disk.list(f"{TABLETS_DIRECTORY}/") if path.endswith(_SUFFIX)]
    return [_decode_meta(unframe(_META_KIND, await disk.read(path))) for path in paths]
