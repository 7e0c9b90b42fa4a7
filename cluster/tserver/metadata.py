"""Which tablets a server hosts, on its disk: one small file each, written whole before anything is acknowledged.

A deleted tablet leaves a tombstone: its id is never used again here, so a late CreateTablet cannot bring back an empty
replica that has forgotten its votes.
"""

from __future__ import annotations

import msgspec

from cluster.log.envelope import CorruptLog, either, twice
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
    await disk.write_atomic(f"{TABLETS_DIRECTORY}/{meta.tablet_id}{_SUFFIX}", twice(_META_KIND, encode(meta)))


async def load_all(disk: Disk) -> tuple[list[TabletMeta], dict[str, str]]:
    """Every tablet's record, in the order of their ids; and the ids of those that are damaged, with what is wrong."""
    found: list[TabletMeta] = []
    damaged: dict[str, str] = {}
    for path in [path for path in disk.list(f"{TABLETS_DIRECTORY}/") if path.endswith(_SUFFIX)]:
        try:
            found.append(_decode_meta(either(_META_KIND, await disk.read(path))))
        except CorruptLog as error:
            damaged[path.removeprefix(f"{TABLETS_DIRECTORY}/").removesuffix(_SUFFIX)] = f"{path}: {error}"
    return found, damaged
