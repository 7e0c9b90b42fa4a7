"""The points at which a voter's or follower's promise is about to become durable, and nobody has been told of it."""

from __future__ import annotations

from cluster.group_spec import GroupSpec
from cluster.raft.types import Message, Ready, RequestVoteReply, Role
from harness.ports import Failpoints

PROMISES = ("before_vote", "before_accept", "before_install")
"""A vote is granted; a follower takes in a leader's entries; it takes in a leader's snapshot."""


class Promises:
    """Passes these points for one group, whatever way the promise takes from there (a flaw may tell it at once)."""

    __slots__ = ("_accept", "_group", "_hit", "_install", "_vote")

    def __init__(self, spec: GroupSpec, failpoints: Failpoints) -> None:
        self._hit, self._group = failpoints.hit, spec.group_id
        self._vote, self._accept, self._install = (f"{spec.kind}.{point}" for point in PROMISES)

    def pass_by(self, ready: Ready, role: Role) -> None:
        """Called before what the Ready wants to be durable is written."""
        persist = ready.persist
        if persist is None:
            return
        if persist.hard_state is not None and any(map(_grants, (*persist.then_send, *ready.send_now))):
            self._hit(self._vote, self._group)
        if persist.entries and role is Role.FOLLOWER:
            self._hit(self._accept, self._group)
        if ready.install is not None:
            self._hit(self._install, self._group)


def _grants(message: Message) -> bool:
    return isinstance(message, RequestVoteReply) and message.granted
