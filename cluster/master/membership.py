"""Masters that join and leave their own group while it serves (M12), as its leader carries it out for an operator."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.groups.group import ChangeRefused, Group, NotLeader, OutcomeUnknown
from cluster.groups.membership import configuration_reply
from cluster.raft.types import ChangeKind, Configuration, Member, Reason
from cluster.wire.messages import ConfigurationReply, ErrorReply, GetStatus, StatusReply, decode_reply, encode
from cluster.wire.nouns import is_address
from cluster.wire.operating import ChangeMasters
from harness.errors import UNDECODABLE
from harness.ports.api import CallLost, Clock, Ports, Refused, Unreachable

RETRY_S = 0.05
CONTACT_S = 1.0
"""How long a newcomer is given to say who it is."""
REMOVAL_SHARE = 0.2
"""Of a request's time, what is kept for taking a newcomer back."""
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


async def change_masters(group: Group, ports: Ports, request: ChangeMasters) -> ConfigurationReply | ErrorReply:
    """Carry the steps out one by one, each a compare-and-set on the configuration it was decided on (G1).

    A definite refusal says that this request changed nothing, or that the newcomer which it added, and which never came
    into contact, was removed again.
    """
    refusal = await _nonsense(group, ports, request)
    if refusal is not None:
        return refusal
    changing = _Changing(group, ports.clock, request)
    deadline_ns = ports.clock.monotonic_ns() + int(request.timeout_s * (1 - REMOVAL_SHARE) * 1e9)
    refused = "there was no time for a change"
    while (left_s := (deadline_ns - ports.clock.monotonic_ns()) / 1e9) > 0:
        if not group.is_leader:
            return changing.failed("NOT_THE_LEADER", "this master does not lead", group.leader)
        try:
            reached = await changing.advance(left_s)
        except ChangeRefused as error:
            if error.reason is Reason.NOT_THE_LEADER:
                return changing.failed("NOT_THE_LEADER", str(error), group.leader)
            if error.reason not in PASSING and not changing.waits_for_contact(error.reason):
                return changing.failed("CHANGE_REFUSED", str(error))
            reached, refused = None, str(error)
        except NotLeader as error:
            return changing.failed("NOT_THE_LEADER", str(error), error.leader)
        except OutcomeUnknown:
            break
        if reached is not None:
            return configuration_reply(reached)
        await ports.clock.sleep(RETRY_S)
    if await changing.takes_back(request.timeout_s * REMOVAL_SHARE):
        return ErrorReply("CHANGE_REFUSED", f"{refused}; the newcomer was removed again", definite=True)
    return ErrorReply("TIMED_OUT", f"the masters were not changed in time: {refused}", definite=False)


async def _nonsense(group: Group, ports: Ports, request: ChangeMasters) -> ErrorReply | None:
    """Why the request can't be meant, before anything is done."""
    add, remove = request.add, request.remove
    if add is None and remove is None:
        return ErrorReply("INVALID", "name a server to add, one to remove, or both", definite=True)
    if add is not None and not is_address(add.address):
        return ErrorReply("INVALID", f"{add.address!r} is no address of a server: HOST:PORT", definite=True)
    if not group.is_leader:
        return ErrorReply("NOT_THE_LEADER", "this master does not lead", definite=True, leader=group.leader)
    members = {each.server_id for each in (*group.configuration.members, *group.committed_configuration.members)}
    if remove is not None and remove not in members and (add is None or add.server_id not in members):
        return ErrorReply("NOT_FOUND", f"{remove} is none of the masters: {', '.join(sorted(members))}", definite=True)
    if add is None or add.server_id in members:
        return None
    found = await _server_at(ports, add.address, min(CONTACT_S, request.timeout_s))
    if found == add.server_id:
        return None
    there = "nobody answers" if found is None else f"{found} answers, not {add.server_id}"
    return ErrorReply("CHANGE_REFUSED", f"at {add.address} {there}", definite=True)


async def _server_at(ports: Ports, address: str, timeout_s: float) -> str | None:
    """The id of the server that answers there."""
    try:
        reply = decode_reply(await ports.network.call(address, encode(GetStatus()), timeout_s))
    except (Unreachable, CallLost, Refused, *UNDECODABLE):
        return None
    return reply.node_id if isinstance(reply, StatusReply) else None


class _Changing:
    """One request on its way, and what it has changed so far."""

    def __init__(self, group: Group, clock: Clock, request: ChangeMasters) -> None:
        self._group, self._clock, self._request = group, clock, request
        self._changed = False
        """Whether a step of this request took effect, or may have."""
        self._lonely = False
        """Whether the newcomer, added by this request, was out of contact when it was to vote."""

    async def advance(self, timeout_s: float) -> Configuration | None:
        """Take the next step; the configuration if it is committed and all that was wanted. A leader may remove itself.

        Raises ChangeRefused, NotLeader, OutcomeUnknown.
        """
        group, request = self._group, self._request
        configuration = group.configuration
        step = next_step(configuration, request)
        if step is not None:
            configuration = await self._take(step, timeout_s)
        elif configuration != group.committed_configuration:
            return None
        return configuration if next_step(configuration, request) is None else None

    async def _take(self, step: Step, timeout_s: float) -> Configuration:
        before = self._changed
        self._changed = True
        try:
            expected = self._group.configuration.op_id
            configuration = await self._group.change_membership(step.kind, step.member, expected, timeout_s)
        except ChangeRefused as error:
            self._changed = before
            self._lonely = step.kind is ChangeKind.PROMOTE and error.reason is Reason.LOSES_QUORUM
            raise
        self._lonely = False
        return configuration

    def waits_for_contact(self, reason: Reason) -> bool:
        """Whether the leader may hear of the newcomer any moment: its connection is still to stand."""
        return reason is Reason.LOSES_QUORUM and self._lonely

    async def takes_back(self, timeout_s: float) -> bool:
        """Remove a newcomer again that this request added and that never came into contact; whether that was done."""
        add = self._request.add
        if not (self._changed and self._lonely) or add is None:
            return False
        try:
            await self._group.change_membership(ChangeKind.REMOVE, add, self._group.configuration.op_id, timeout_s)
        except (ChangeRefused, NotLeader, OutcomeUnknown):
            return False
        return True

    def failed(self, kind: str, message: str, leader: str | None = None) -> ErrorReply:
        """The refusal: a definite one only where nothing was changed."""
        if not self._changed:
            return ErrorReply(kind, message, definite=True, leader=leader)
        return ErrorReply(kind, f"{message}; a part of the change was made", definite=False, leader=leader)
