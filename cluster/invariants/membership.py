"""Changes of one group's configuration: one voter at a time, by a leader that knows what is committed (G1)."""

from __future__ import annotations

from cluster.invariants.findings import Scope
from cluster.observer import RaftView
from cluster.raft.types import Role

ONE_CHANGE = "one-change-at-a-time"


class Membership:
    """Fed with each configuration as it comes into force at a replica."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked

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
