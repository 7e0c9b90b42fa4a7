"""Operators' calls to the leader master: who the masters are (M12), and tablet servers that are to leave (M11)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cluster.raft.types import Member


class ChangeMasters(msgspec.Struct, frozen=True, tag="ChangeMasters"):
    """Make `add` a voter of the masters' group, then remove the server `remove`; both of them replace one (M12).

    It says what is to be, so asking again is harmless. Answered by a `ConfigurationReply` once all of it is committed;
    CHANGE_REFUSED where it makes no sense or would lose the quorum, TIMED_OUT where `timeout_s` was too short (a part
    may be done).
    """

    add: Member | None = None
    remove: str | None = None
    timeout_s: float = 10.0


class DecommissionServer(msgspec.Struct, frozen=True, tag="DecommissionServer"):
    """Have every replica moved away from a tablet server, which gets no new ones; or (not `leaving`) let it stay (M11).

    It says what is to be, so asking again is harmless. Answered by a `DecommissionReply` at once: replicas move
    afterwards (`GetDecommission`).
    """

    server_id: str
    leaving: bool = True


class GetDecommission(msgspec.Struct, frozen=True, tag="GetDecommission"):
    """How far a tablet server is emptied. Answered by a `DecommissionReply`."""

    server_id: str


class DecommissionReply(msgspec.Struct, frozen=True, tag="DecommissionReply"):
    """`replicas` are those that committed configurations still have on the server: 0 and `leaving`, it may go."""

    server_id: str
    leaving: bool
    replicas: int


OperatorRequest: TypeAlias = ChangeMasters | DecommissionServer | GetDecommission
OperatorReply: TypeAlias = DecommissionReply
