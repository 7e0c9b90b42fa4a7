"""Changes of one group's configuration: one voter at a time, by a leader that knows what is committed (G1); and no
replica is deleted that the committed configuration has (M9)."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.groups.observer import RaftView
from cluster.invariants.findings import Scope
from cluster.raft.log import configuration_of
from cluster.raft.types import Configuration, Entry, EntryKind, NodeId, Role

ONE_CHANGE = "one-change-at-a-time"
MEMBERS_STAY = "members-are-not-deleted"

_CONFIG = int(EntryKind.CONFIG)


class Membership:
    """Fed with each configuration as it comes into force at a replica, with what is committed, and with deletions."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._committed = Configuration()

    def committed(self, entries: Sequence[Entry]) -> Configuration | None:
        """Follow the latest configuration that is committed; it, if there is a new one."""
        before = self._committed
        for entry in entries:
            if entry.kind == _CONFIG and entry.index > self._committed.index:
                self._committed = configuration_of(entry)
        return None if self._committed is before else self._committed

    def deleted(self, life: int, server: NodeId) -> None:
        """A replica goes because its group has removed it: the group's committed configuration is without it."""
        self._checked[MEMBERS_STAY] += 1
        if server in [member.server_id for member in self._committed.members]:
            message = f"{server} is deleted, and a member by the configuration committed at {self._committed.index}"
            self._scope.tell(MEMBERS_STAY, message, life)

    def configured(self, life: int, raft: RaftView) -> None:
        """The voters that a leader has appended differ from the committed ones by one at most, so that every majority
        of the one meets every majority of the other (§4.1)."""
        configuration = raft.configuration
        if raft.role is not Role.LEADER or configuration.term != raft.term:
            return
        self._checked[ONE_CHANGE] += 1
        committed, appended = raft.committed_configuration.voter_ids, configuration.voter_ids
        added = [voter for voter in appended if voter not in committed]
        removed = [voter for voter in committed if voter not in appended]
        if committed and len(added) + len(removed) > 1:
            message = f"voters {' '.join(committed)} are to become {' '.join(appended)} before a change is committed"
            self._scope.tell(ONE_CHANGE, message, life)
