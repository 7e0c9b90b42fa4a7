"""Operators' changes of a group, as a node answers them: of its configuration (G1), and of who leads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from cluster.groups.group import ChangeRefused, Group, NotLeader, OutcomeUnknown
from cluster.raft.types import Configuration, Member, OpId, Reason
from cluster.wire.messages import ChangeReplicas, ConfigurationReply, ErrorReply, Replica
from cluster.wire.operating import LeadershipReply, TransferLeadership
from harness.ports.api import Clock

LOOK_S = 0.01
"""How far apart a node looks whether its successor leads."""

NO_TRANSFER = {
    Reason.NOT_THE_LEADER: "NOT_THE_LEADER",
    Reason.BUSY: "TRY_AGAIN",
    Reason.NOT_CAUGHT_UP: "NOT_CAUGHT_UP",
}
"""Kinds of errors that refuse a transfer; INVALID for others."""


def replicas_of(members: Iterable[Member]) -> tuple[Replica, ...]:
    """Members of a configuration in the wire's words."""
    return tuple(Replica(member.server_id, member.address) for member in members)


def configuration_reply(configuration: Configuration) -> ConfigurationReply:
    voters, learners = replicas_of(configuration.voters), replicas_of(configuration.learners)
    return ConfigurationReply(voters, learners, configuration.term, configuration.index)


async def change_replicas(group: Group, request: ChangeReplicas) -> ConfigurationReply | ErrorReply:
    """Carry a change out at the leader; a refusal is definite, and one sentence."""
    member = Member(request.server_id, request.address)
    expected = OpId(request.config_term, request.config_index)
    try:
        after = await group.change_membership(request.change, member, expected, request.timeout_s)
    except ChangeRefused as refused:
        kind = "NOT_THE_LEADER" if refused.reason is Reason.NOT_THE_LEADER else "CHANGE_REFUSED"
        return ErrorReply(kind, str(refused), definite=True, leader=group.leader)
    except NotLeader as error:
        return ErrorReply("NOT_THE_LEADER", str(error), definite=True, leader=error.leader)
    except OutcomeUnknown as error:
        return ErrorReply("TIMED_OUT", str(error), definite=False)
    return configuration_reply(after)


async def transfer_leadership(
    group: Group, clock: Clock, request: TransferLeadership, give_up: Callable[[str], Awaitable[bool]]
) -> LeadershipReply | ErrorReply:
    """Have the leader hand over, by `give_up`, and wait until the group is led in a later term."""
    refused = group.transfer_refusal(request.target)
    if refused is not None:
        reason, message = refused
        return ErrorReply(NO_TRANSFER.get(reason, "INVALID"), message, definite=True, leader=group.leader)
    led, deadline_ns = group.term, clock.monotonic_ns() + int(request.timeout_s * 1e9)
    given_up = await give_up(request.target)
    while clock.monotonic_ns() < deadline_ns:
        if group.term > led and group.leader is not None:
            return LeadershipReply(led, group.leader, group.term, given_up)
        await clock.sleep(LOOK_S)
    if group.is_leader:
        return ErrorReply(
            "TIMED_OUT", f"{request.target} did not take over in time: the leader leads on", definite=False
        )
    return ErrorReply("TIMED_OUT", f"nobody is known to lead after the term {led}", definite=False)
