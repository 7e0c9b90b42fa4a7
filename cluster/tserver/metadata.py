"""Which tablets a server hosts, on its disk: one small file each, written whole before anything is acknowledged.

A tablet that is deleted for good leaves its id, which is never used again here. A replica that its group has removed
leaves a tombstone (M9): it may come back as a learner, with its vote, so that no late CreateTablet brings back an empty
replica that has forgotten whom it voted for.
"""

from __future__ import annotations

import re

import msgspec

from cluster.log.envelope import CorruptLog, read_twice, twice
from cluster.raft.types import Configuration, HardState, OpId
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


# ---- removed replicas (M9) ----
# Masters decide on the configuration that the catalog holds (Kudu, appendix A, cases 3 and 4). By the time their
# request arrives the group may have added the replica again: so it is a compare-and-set, and the replica has the last
# word.


def keeps(
    server_id: str, committed: Configuration, in_force: Configuration, awaits_index: int, removed_at: OpId
) -> str | None:
    """Why a replica is not deleted by a configuration without it, which was committed at `removed_at`; None if it is.

    Of two entries that set configurations the one of the later term comes later, and in one term that of the higher
    index: an entry of an earlier term behind a committed one of a later term is on a branch that was given up.
    """
    if awaits_index >= removed_at.index:
        return f"{server_id} is about to be added to the configuration at {awaits_index}"
    for configuration in (committed, in_force):
        later = (configuration.term, configuration.index) >= (removed_at.term, removed_at.index)
        if later and server_id in [member.server_id for member in configuration.members]:
            return f"{server_id} is a member by the configuration at {configuration.index}"
    return None


def stays_away(tombstone: Tombstone, request: CreateTablet) -> str | None:
    """Why a removed replica does not come back: only a change of a configuration that is not older may bring it."""
    removed_at = tombstone.removed_at.index
    if request.founding or request.awaits_index < removed_at:
        return f"tablet {request.tablet_id} was removed from here by the configuration at {removed_at}"
    return None
