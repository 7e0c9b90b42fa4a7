"""How the driver of one Raft group passes the group's failpoints (`cluster.failpoints.GROUP_POINTS`)."""

from __future__ import annotations

from cluster.groups.spec import GroupSpec
from cluster.raft.types import Message, Ready, RequestVoteReply, Role
from harness.ports.api import Failpoints


class Passing:
    """One look where none is armed. A point means the same whatever a flaw does there."""

    __slots__ = ("_group", "_kind", "failpoints")

    def __init__(self, spec: GroupSpec, failpoints: Failpoints) -> None:
        self.failpoints, self._group, self._kind = failpoints, spec.group_id, spec.kind

    def at(self, point: str) -> None:
        """Pass a point."""
        if self.failpoints.armed:
            self.failpoints.hit(f"{self._kind}.{point}", self._group)

    def before_persist(self, ready: Ready, role: Role) -> None:
        """What the Ready wants to be durable is about to be written: a vote, a leader's entries or its snapshot."""
        persist = ready.persist
        if persist is None or not self.failpoints.armed:
            return
        if persist.hard_state is not None and any(map(_grants, (*persist.then_send, *ready.send_now))):
            self.at("before_vote")
        if persist.entries and role is Role.FOLLOWER:
            self.at("before_accept")
        if ready.install is not None:
            self.at("before_install")

    def sent(self, messages: tuple[Message, ...]) -> None:
        """These messages have left."""
        if self.failpoints.armed:
            self.at("after_send")
            if any(map(_grants, messages)):
                self.at("after_vote")


def _grants(message: Message) -> bool:
    return isinstance(message, RequestVoteReply) and message.granted
