"""Operators' calls: who the masters are (M12), tablet servers that are to leave (M11), who is to lead a group."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cluster.raft.types import Member
from cluster.wire.nouns import Seconds


class ChangeMasters(msgspec.Struct, frozen=True, tag=True):
    """Make `add` a voter of the masters' group, then remove the server `remove`; both of them replace one (M12).

    It says what is to be, so asking again is harmless. Answered by a `ConfigurationReply` once all of it is committed;
    CHANGE_REFUSED where it makes no sense or would lose the quorum, TIMED_OUT where `timeout_s` was too short (a part
    may be done).
    """

    add: Member | None = None
    remove: str | None = None
    timeout_s: Seconds = 10.0


class DecommissionServer(msgspec.Struct, frozen=True, tag=True):
    """Have every replica moved away from a tablet server, which gets no new ones; or (not `leaving`) let it stay (M11).

    It says what is to be, so asking again is harmless. Answered by a `DecommissionReply` at once: replicas move
    afterwards (`GetDecommission`).
    """

    server_id: str
    leaving: bool = True


class GetDecommission(msgspec.Struct, frozen=True, tag=True):
    """How far a tablet server is emptied. Answered by a `DecommissionReply`."""

    server_id: str


class DecommissionReply(msgspec.Struct, frozen=True, tag=True):
    """`replicas` are those that committed configurations still have on the server: 0 and `leaving`, it may go."""

    server_id: str
    leaving: bool
    replicas: int


class TransferLeadership(msgspec.Struct, frozen=True, tag=True):
    """To the leader of a group (a tablet's id or `catalog`): give the lease up and let the voter `target` lead (§3.10).

    Answered by a `LeadershipReply` once another term has a leader. Refused, for good, by who doesn't lead
    (NOT_THE_LEADER) or has no such group (NOT_FOUND), where `target` is no other voter (INVALID), does not answer or
    lacks too much (NOT_CAUGHT_UP), and while leadership is on its way already (TRY_AGAIN). TIMED_OUT: it was begun, and
    the same leader leads on, or nobody is known to lead by then.
    """

    group: str
    target: str
    timeout_s: Seconds = 5.0


class LeadershipReply(msgspec.Struct, frozen=True, tag=True):
    """The node led in the term `led`, and `leader` leads in `term`: another one than was asked for, or the node itself
    again, where `target` did not take over.

    `lease_given_up`: the record of that was committed before, so that the successor need not wait the lease out (G3).
    """

    led: int
    leader: str
    term: int
    lease_given_up: bool


class GetRanges(msgspec.Struct, frozen=True, tag=True):
    """To a tablet server: what it knows of its ranges' closed timestamps (R4). Answered by a `RangesReply`."""


class RangeState(msgspec.Struct, frozen=True, array_like=True):
    """A range as one replica knows it; times are HLC timestamps, 0 where there is none.

    A `holder` of the lease says where C is, `assigned`, and how many writes it has `pushed` above C, which is to lie
    `lag_ns` behind the clock. `closed` is what is closed at what this replica has applied, `resolved` as far as that
    lies below every open intent; `answered` counts reads by who knew that their time was closed. `voters` and
    `learners` are node ids of the committed configuration.
    """

    range_id: str
    holder: bool
    lag_ns: int
    assigned: int
    pushed: int
    closed: int
    resolved: int
    answered: dict[str, int]
    voters: tuple[str, ...]
    learners: tuple[str, ...]


class RangesReply(msgspec.Struct, frozen=True, tag=True):
    """The ranges of a node that has been asked for them, and the time that its clock showed then, as a timestamp."""

    node_id: str
    shown: int
    ranges: tuple[RangeState, ...]


OperatorRequest: TypeAlias = ChangeMasters | DecommissionServer | GetDecommission | TransferLeadership
OperatorReply: TypeAlias = DecommissionReply | LeadershipReply
