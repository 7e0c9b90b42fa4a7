"""Which tablets a server hosts, on its disk: one small file each, written whole before anything is acknowledged.

A tablet that is deleted for good leaves its id, which is never used again here. A replica that its group has removed
leaves a tombstone (M9): it may come back as a learner, with its vote, so that no late CreateTablet brings back an empty
replica that has forgotten whom it voted for.
"""

from __future__ import annotations

import re

import msgspec

from cluster.log.envelope import CorruptLog, read_twice, twice
from cluster.raft.types import HardState, OpId
from cluster.wire.messages import CreateTablet, encode
from harness.ports.api import Disk

TABLETS_DIRECTORY = "tablets"

_META_KIND = 16
_SUFFIX = ".meta"
_TABLET_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """What is left of a replica that the configuration set at `removed_at` has no more: its term and vote, and the end
    of its log."""

    removed_at: OpId
    hard_state: HardState
    last: OpId


class TabletMeta(msgspec.Struct, frozen=True, array_like=True):
    """One tablet of this server; `created` is None once it is deleted, for good if there is no tombstone either.

    A replica that came back keeps the tombstone of the one before it.
    """

    tablet_id: str
    created: CreateTablet | None
    tombstone: Tombstone | None = None


_decode_meta = msgspec.msgpack.Decoder(TabletMeta).decode


def is_tablet_id(text: str) -> bool:
    """Whether files can be named by it, and what is kept below one id can't be mistaken for another's."""
    return _TABLET_ID.fullmatch(text) is not None


async def save(disk: Disk, meta: TabletMeta) -> None:
    """Make a tablet's record durable."""
    await disk.write_atomic(f"{TABLETS_DIRECTORY}/{meta.tablet_id}{_SUFFIX}", twice(_META_KIND, encode(meta)))


async def load_all(disk: Disk) -> tuple[list[TabletMeta], dict[str, str]]:
    """Every tablet's record, in the order of their ids; and the ids of those that are damaged, with what is wrong.

    Raises OtherVersion.
    """
    found: list[TabletMeta] = []
    damaged: dict[str, str] = {}
    for path in [path for path in disk.list(f"{TABLETS_DIRECTORY}/") if path.endswith(_SUFFIX)]:
        try:
            found.append(_decode_meta(await read_twice(disk, path, _META_KIND)))
        except CorruptLog as error:
            damaged[path.removeprefix(f"{TABLETS_DIRECTORY}/").removesuffix(_SUFFIX)] = str(error)
    return found, damaged
