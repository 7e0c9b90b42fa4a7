"""Masters that join and leave their own group while it serves (M12), as its leader carries it out for an operator."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.groups.group import ChangeRefused, Group, NotLeader, OutcomeUnknown
from cluster.groups.membership import configuration_reply
from cluster.raft.types import ChangeKind, Configuration, Member, Reason
from cluster.wire.messages import ConfigurationReply, ErrorReply
from cluster.wire.nouns import is_address
from cluster.wire.operating import ChangeMasters
from harness.ports.api import Clock

RETRY_S = 0.05
PASSING = (Reason.BUSY, Reason.STALE, Reason.NO_OWN_COMMIT, Reason.NOT_CAUGHT_UP)
"""Why a change is refused that may well be taken a moment later."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the configuration."""

    kind: ChangeKind
    member: Member


def next_step(configuration: Configuration, wanted: ChangeMasters) -> Step | None:
    """What brings the masters nearer to what is wanted, None where that is reached.

    The newcomer learns, votes, and only then the other one goes: a replacement never leaves fewer voters than before,
    and every pair of configurations that follow each other differ by one voter (thesis 4.1).
    """
    add, remove = wanted.add, wanted.remove
    if add is not None and add.server_id not in configuration.voter_ids:
        learns = add.server_id in configuration.learner_ids
        return Step(ChangeKind.PROMOTE if learns else ChangeKind.ADD_LEARNER, add)
    if remove is not None:
        leaving = next((member for member in configuration.members if member.server_id == remove), None)
        if leaving is not None:
            return Step(ChangeKind.REMOVE, leaving)
    return None


async def change_masters(group: Group, clock: Clock, request: ChangeMasters) -> ConfigurationReply | ErrorReply:
    """Carry the steps out one by one, each a compare-and-set on the configuration it was decided on (G1)."""
    if request.add is None and request.remove is None:
        return ErrorReply("INVALID", "name a server to add, one to remove, or both", definite=True)
    if request.add is not None and not is_address(request.add.address):
        return ErrorReply("INVALID", f"{request.add.address!r} is no address of a server: HOST:PORT", definite=True)
    deadline_ns = clock.monotonic_ns() + int(request.timeout_s * 1e9)
    refused = "there was no time for a change"
    while (left_s := (deadline_ns - clock.monotonic_ns()) / 1e9) > 0:
        if not group.is_leader:
            return _not_the_leader("this master does not lead", group.leader)
        try:
            reached = await _advance(group, request, left_s)
        except ChangeRefused as error:
            if error.reason is Reason.NOT_THE_LEADER:
                return _not_the_leader(str(error), group.leader)
            if error.reason not in PASSING:
                return ErrorReply("CHANGE_REFUSED", str(error), definite=True)
            reached, refused = None, str(error)
        except NotLeader as error:
            return _not_the_leader(str(error), error.leader)
        except OutcomeUnknown:
            break
        if reached is not None:
            return configuration_reply(reached)
        await clock.sleep(RETRY_S)
    return ErrorReply("TIMED_OUT", f"the masters were not changed in time: {refused}", definite=False)


async def _advance(group: Group, request: ChangeMasters, timeout_s: float) -> Configuration | None:
    """Take the next step; the configuration if it is committed and all that was wanted. A leader may remove itself."""
    configuration = group.configuration
    step = next_step(configuration, request)
    if step is not None:
        configuration = await group.change_membership(step.kind, step.member, configuration.op_id, timeout_s)
    elif configuration != group.committed_configuration:
        return None
    return configuration if next_step(configuration, request) is None else None


def _not_the_leader(message: str, leader: str | None) -> ErrorReply:
    return ErrorReply("NOT_THE_LEADER", message, definite=True, leader=leader)
