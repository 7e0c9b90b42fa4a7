"""What an operator does for a node that lost its disk, or a part of it: the lost replicas are replaced (G1, G7).

A replica is removed from its group's configuration and another one of the node added as a learner and promoted. Masters
do the same for replicas that they hear are broken, or on a server that is lost (M11), on any server that has room: what
they have replaced the operator leaves alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from harness.errors import IndefiniteError
from harness.ports.api import node_of
from harness.ports.machines import ProcessState
from harness.protocols import GroupStatus, Reconfigurable
from harness.run.allowances import RepairProgress, entries_lacked
from nemesis.observe import DatabaseObserver, Leader, View, names

CHANGE_S = 3.0
POLL_S = 0.1
BROKEN = ("quarantined", "failed")
"""Roles of replicas that take part in nothing."""


@dataclass(frozen=True, slots=True)
class Duty:
    """The groups in which a node is to be a voter, and how many each is to have; with as many others it may stay out:
    masters have replaced it elsewhere."""

    node: str
    groups: tuple[str, ...]
    sizes: tuple[int, ...]


def duty_of(view: View, node: str) -> Duty:
    """What the node has to do now, as the groups' configurations have it."""
    groups = tuple(group for group in view.groups() if node in view.voters(group))
    return Duty(node, groups, tuple(len(view.voters(group)) for group in groups))


def spareable(view: View, node: str) -> bool:
    """Whether every group of the node has all its other voters, and they work: then its loss can be repaired."""
    for group in duty_of(view, node).groups:
        replicas = view.replicas(group)
        others = [name for name in view.voters(group) if name != node]
        if len(others) < 2 or any(name not in replicas or replicas[name].role in BROKEN for name in others):
            return False
    return node in view.statuses


def behind(view: View, group: str) -> int:
    """How many entries the group's learners lack, all together."""
    leader, replicas = view.leader(group), view.replicas(group)
    if leader is None:
        return 0
    led_by = replicas[leader.node]
    return entries_lacked(led_by, led_by.learners, replicas)


def lacking(view: View, duty: Duty) -> dict[str, str]:
    """The groups in which the node is not the voter that it was, each with why."""
    return {group: step[0] for group, step in _next_steps(view, duty).items()}


async def replace_lost(observer: DatabaseObserver, duty: Duty, patience_s: float) -> None:
    """Do what is lacking, group by group, until nothing is or it comes no nearer; statuses tell what was done."""
    nearing = RepairProgress(clock := observer.environment.clock, patience_s)
    while not nearing.over():
        view = await observer.view()
        left = _next_steps(view, duty)
        if not left:
            return
        nearing.note({(group, what): behind(view, group) for group, (what, _, _) in left.items()})
        for group, (_, change, server) in left.items():
            if change is not None:
                await _ask(observer, view, group, (change, server))
        await clock.sleep(POLL_S)


def _next_steps(view: View, duty: Duty) -> dict[str, tuple[str, str | None, str]]:
    sized = zip(duty.groups, duty.sizes, strict=True)
    return {group: step for group, size in sized if (step := _next_step(view, duty.node, group, size)) is not None}


def _next_step(view: View, node: str, group: str, size: int) -> tuple[str, str | None, str] | None:
    """(What is wrong, the change that helps, of which server); None where all is well."""
    status, leader = view.statuses.get(node), view.leader(group)
    if status is None:
        return f"{node} does not answer", None, ""
    if view.dropped(group):
        return None
    if leader is None:
        return f"{group} has no leader", None, ""
    server = str(status.details.get("server_id", node))
    replicas: Mapping[str, GroupStatus] = view.replicas(group)
    voters, learners = replicas[leader.node].voters, replicas[leader.node].learners
    mine = replicas.get(node)
    if gone := _lost(view, node, leader):
        return f"{gone[0]} is lost", "remove", gone[0]
    if server in (*voters, *learners) and mine is not None and mine.role in BROKEN:
        return f"{server} is {mine.role}", "remove", server
    if server not in (*voters, *learners) and len(voters) + len(learners) >= size:
        return (f"{group} has a learner in the place of {server}", None, "") if len(voters) < size else None
    if server not in (*voters, *learners) or mine is None:
        return f"{server} has no replica", "add-learner", server
    return (f"{server} is a learner", "promote", server) if server in learners else None


def _lost(view: View, node: str, leader: Leader) -> list[str]:
    """The members of the leader's group that are servers which the node is no more."""
    if (status := view.statuses.get(node)) is None:
        return []
    server, configured = status.details.get("server_id", node), view.replicas(leader.group)[leader.node]
    members = (*configured.voters, *configured.learners)
    return [each for each in members if node_of(each) == node and each != server]


class MemberNodes(NamedTuple):
    """The nodes whose servers are a group's voters, and those whose are learners, which some tables have for good."""

    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()


def members_of(view: View, group: str) -> MemberNodes | None:
    """As the group's leader has it; None where nobody leads."""
    leader = view.leader(group)
    if leader is None:
        return None
    return MemberNodes(leader.voters, tuple(map(node_of, view.replicas(group)[leader.node].learners)))


async def make_whole(observer: DatabaseObserver, group: str, before: MemberNodes, patience_s: float) -> None:
    """Ask the group's leader until it has as many voters as `before`, those of old first, and no more learners, or it
    comes no nearer to that."""
    nearing = RepairProgress(clock := observer.environment.clock, patience_s)
    while not nearing.over():
        view = await observer.view()
        wrong = unlike(view, group, before)
        if wrong is None:
            return
        nearing.note({(group, wrong): behind(view, group)})
        await _ask(observer, view, group, missing_change(view, group, before))
        await clock.sleep(POLL_S)


def _most(view: View, leader: Leader, before: MemberNodes) -> int:
    """How many voters a group may have that had those: masters go on repairing one that was short of some, until it
    has as many as the others of its role."""
    role = next(node.role for node in view.nodes if node.name == leader.node)
    others = [len(view.voters(each)) for each in view.groups(role) if each != leader.group]
    return max(len(before.voters), *others, 0)


def unlike(view: View, group: str, before: MemberNodes) -> str | None:
    """How the group differs from one with as many voters and no more learners; None where it does not, or was
    dropped."""
    if view.dropped(group):
        return None
    leader = view.leader(group)
    if leader is None:
        return f"{group} has no leader"
    status = view.replicas(group)[leader.node]
    enough = len(before.voters) <= len(status.voters) <= _most(view, leader, before)
    too_many = len(status.learners) > len(before.learners)
    if too_many or not enough or status.config_index > status.commit_index:
        learners = f" and the learners {' '.join(status.learners)}" if status.learners else ""
        there_were = f"there were {len(before.voters)} voters" + f" and {len(before.learners)}" * bool(before.learners)
        return f"{group} has the voters {' '.join(status.voters)}{learners}; {there_were}"
    return None


def missing_change(view: View, group: str, before: MemberNodes) -> tuple[str, str] | None:
    """The (change, server) that brings the group nearer to what it was; None where none can be told now."""
    leader = view.leader(group)
    if leader is None:
        return None
    status = view.replicas(group)[leader.node]
    most = _most(view, leader, before)
    newcomers = [each for each in status.learners if node_of(each) not in before.learners] or list(status.learners)
    if len(status.learners) > len(before.learners):
        return ("promote" if len(status.voters) < most else "remove"), newcomers[0]
    if newcomers and len(status.voters) < len(before.voters):
        return "promote", newcomers[0]
    if len(status.voters) > most:
        others = [each for each in status.voters if node_of(each) != leader.node]
        strangers = [each for each in others if node_of(each) not in before.voters]
        return "remove", (strangers or others)[0]
    if len(status.voters) >= len(before.voters):
        return None
    role = next(node.role for node in view.nodes if node.name == leader.node)
    free = [name for name in names(view.nodes, role) if name not in leader.voters and name in view.statuses]
    chosen = [name for name in free if name in before.voters] or free
    return ("add-learner", str(view.statuses[chosen[0]].details.get("server_id", chosen[0]))) if chosen else None


async def _ask(observer: DatabaseObserver, view: View, group: str, step: tuple[str, str] | None) -> None:
    database, leader = observer.database, view.leader(group)
    if step is None or leader is None or not isinstance(database, Reconfigurable):
        return
    status = view.replicas(group)[leader.node]
    position = (status.config_term, status.config_index)
    if status.config_index > status.commit_index:
        return
    with suppress(IndefiniteError):  # statuses will tell
        await database.change_replicas(leader.node, group, *step, position, CHANGE_S)


async def ends(observer: DatabaseObserver, node: str, patience_s: float) -> bool:
    """Whether a process that was started ends by itself before it answers."""
    clock = observer.environment.clock
    deadline_ns = clock.monotonic_ns() + int(patience_s * 1e9)
    while clock.monotonic_ns() < deadline_ns:
        if await observer.database.status(node) is not None:
            return False
        if await observer.database.process_state(node) is ProcessState.DEAD:
            return True
        await clock.sleep(POLL_S)
    return False
