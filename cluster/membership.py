"""Operators' changes of a group's configuration, as a node answers them (G1)."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.group import ChangeRefused, Group, NotLeader, OutcomeUnknown
from cluster.raft.types import Configuration, Member, OpId, Reason
from cluster.wire.messages import ChangeReplicas, ConfigurationReply, Fault, Replica


def replicas_of(members: Iterable[Member]) -> tuple[Replica, ...]:
    """Members of a configuration in the wire's words."""
    return tuple(Replica(member.server_id, member.address) for member in members)


def configuration_reply(configuration: Configuration) -> ConfigurationReply:
    voters, learners = replicas_of(configuration.voters), replicas_of(configuration.learners)
    return ConfigurationReply(voters, learners, configuration.term, configuration.index)


async def change_replicas(group: Group, request: ChangeReplicas) -> ConfigurationReply | Fault:
    """Carry a change out at the leader; a refusal is definite, and one sentence."""
    member = Member(request.server_id, request.address)
    expected = OpId(request.config_term, request.config_index)
    try:
        after = await group.change_membership(request.change, member, expected, request.timeout_s)
    except ChangeRefused as refused:
        kind = "NOT_THE_LEADER" if refused.reason is Reason.NOT_THE_LEADER else "CHANGE_REFUSED"
        return Fault(kind, str(refused), definite=True, leader=group.leader)
    except NotLeader as error:
        return Fault("NOT_THE_LEADER", str(error), definite=True, leader=error.leader)
    except OutcomeUnknown as error:
        return Fault("TIMED_OUT", str(error), definite=False)
    return configuration_reply(after)
