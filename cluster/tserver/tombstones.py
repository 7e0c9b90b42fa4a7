"""Whether a replica may be deleted because its group has removed it, and come back later (M9), as pure decisions.

Masters decide on the configuration that the catalog holds (Kudu, appendix A, cases 3 and 4). By the time their request
arrives the group may have added the replica again: so it is a compare-and-set, and the replica has the last word.
"""

from __future__ import annotations

from cluster.raft.types import Configuration, OpId
from cluster.tserver.metadata import Tombstone
from cluster.wire.messages import CreateTablet


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
