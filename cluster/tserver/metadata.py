"""Which tablets a server hosts, on its disk: one small file each, written whole before anything is acknowledged.

A deleted tablet leaves a tombstone: its id is never used again here, so a late CreateTablet cannot bring back an empty
replica that has forgotten its votes.
"""

from __future__ import annotations

import msgspec

from cluster.log.storage import frame, unframe
from cluster.wire.messages import CreateTablet, encode
from harness.ports import Disk

IDENTITY_FILE = "identity"
TABLETS_DIRECTORY = "tablets"

_META_KIND = 16
_IDENTITY_KIND = 17
_SUFFIX = ".meta"


class ForeignDisk(Exception):
    """The disk belongs to another node or cluster: starting on it could vote twice or serve foreign data."""


class TabletMeta(msgspec.Struct, frozen=True, array_like=True):
    """One tablet of this server; `created` is None once it is deleted."""

    tablet_id: str
    created: CreateTablet | None


class _Identity(msgspec.Struct, frozen=True, array_like=True):
    cluster_id: str
    node_id: str


_decode_meta = msgspec.msgpack.Decoder(TabletMeta).decode
_decode_identity = msgspec.msgpack.Decoder(_Identity).decode


def tablet_directory(tablet_id: str) -> str:
    """Where a tablet's Raft group keeps its files."""
    return f"{TABLETS_DIRECTORY}/{tablet_id}"


async def check_identity(disk: Disk, cluster_id: str, node_id: str) -> None:
    """Claim a new disk for this node; raises ForeignDisk where it is another's, CorruptLog where it is damaged."""
    own = _Identity(cluster_id, node_id)
    if IDENTITY_FILE not in disk.list(IDENTITY_FILE):
        await disk.write_atomic(IDENTITY_FILE, frame(_IDENTITY_KIND, encode(own)))
        return
    found = _decode_identity(unframe(_IDENTITY_KIND, await disk.read(IDENTITY_FILE)))
    if found != own:
        raise ForeignDisk(f"the disk belongs to node {found.node_id} of cluster {found.cluster_id}")


async def save(disk: Disk, meta: TabletMeta) -> None:
    """Make a tablet's record durable."""
    await disk.write_atomic(f"{tablet_directory(meta.tablet_id)}{_SUFFIX}", frame(_META_KIND, encode(meta)))


async def load_all(disk: Disk) -> list[TabletMeta]:
    """Every tablet's record, in the order of their ids; raises CorruptLog."""
    paths = [path for path in disk.list(f"{TABLETS_DIRECTORY}/") if path.endswith(_SUFFIX)]
    return [_decode_meta(unframe(_META_KIND, await disk.read(path))) for path in paths]
