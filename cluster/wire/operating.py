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


OperatorRequest: TypeAlias = ChangeMasters
