"""Whether the whole cluster serves its clients, as its nodes and its leader master say; for every environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from cluster.client.client import ClusterClient
from cluster.master.records import TableState, TabletState
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.api import Clock, node_of
from harness.protocols import GroupStatus, Node, NodeStatus
from harness.run.allowances import RepairProgress, lacked_by_all

Statuses: TypeAlias = Mapping[str, NodeStatus | None]

POLL_INTERVAL_S = 0.1
MANY_NODES = 16
"""More are asked less often, for each that has not started yet costs those that are starting beside it."""
READY_S, READY_OF_A_NODE_S = 60.0, 2.0


def ready_timeout_s(nodes: int) -> float:
    """How long a cluster of this many nodes may take to serve: nodes that share a slow machine start one after the
    other."""
    return READY_S + READY_OF_A_NODE_S * nodes


async def await_ready(
    client: ClusterClient,
    nodes: Sequence[Node],
    statuses: Callable[[], Awaitable[Statuses]],
    clock: Clock,
    timeout_s: float,
    nears: bool = False,
) -> None:
    """Wait until nothing is lacking (see `lacking`); raises TimeoutError that says what still was.

    A new leader serves once its followers have the tail of its log, which is as long as a fault lasted: if asked for
    (`nears`) they are waited for while they come nearer to that (`RepairProgress`).
    """
    nearing = RepairProgress(clock, timeout_s)
    while (reason := await lacking(client, nodes, views := await statuses())) is not None:
        if nears:
            nearing.note({"ready": lacked_by_all(views)})
        if nearing.over():
            raise TimeoutError(f"the cluster was not ready within {timeout_s:g} s: {reason}")
        await clock.sleep(POLL_INTERVAL_S * max(1.0, len(nodes) / MANY_NODES))


async def lacking(client: ClusterClient, nodes: Sequence[Node], views: Statuses) -> str | None:
    """What keeps the cluster from serving, or None: every node answers, a leader master knows all tservers as live,
    no table is being altered, every tablet of every table runs and, where its design knows leaders, has one whose lease
    is valid."""
    silent = [node.name for node in nodes if views.get(node.name) is None]
    if silent:
        return f"no answer from {', '.join(silent)}"
    try:
        return await _missing_server(client, nodes) or await _unserved_tablet(client, views)
    except (DefiniteError, IndefiniteError) as error:
        return f"no leader master answers ({error})"


async def _missing_server(client: ClusterClient, nodes: Sequence[Node]) -> str | None:
    live = [node_of(server) for server in (await client.tablet_servers()).live]
    missing = [node.name for node in nodes if node.role == "tserver" and node.name not in live]
    return f"the leader master has not heard from {', '.join(missing)}" if missing else None


async def _unserved_tablet(client: ClusterClient, views: Statuses) -> str | None:
    holders = leaseholders(views.values())
    for table in await client.list_tables():
        if table.state == TableState.ALTERING:
            return f"the table {table.name} is still being altered"
        for tablet in (await client.table_locations(table.name)).tablets:
            if tablet.state != TabletState.RUNNING:
                return f"tablet {tablet.partition.bucket} of {table.name} is {tablet.state}"
            if table.design == "raft" and tablet.tablet_id not in holders:
                return f"tablet {tablet.partition.bucket} of {table.name} has no leader with a lease"
    return None


def leaders(statuses: Iterable[NodeStatus | None]) -> dict[str, str]:
    """For each Raft group the node that leads it in the highest term, as the nodes themselves say; groups by name."""
    return _highest_term(statuses, lambda group: group.role == "leader")


def leaseholders(statuses: Iterable[NodeStatus | None]) -> dict[str, str]:
    """For each Raft group the leader of the highest term whose lease is valid, as the nodes themselves say."""
    return _highest_term(statuses, lambda group: group.role == "leader" and group.lease_valid)


def _highest_term(statuses: Iterable[NodeStatus | None], counts: Callable[[GroupStatus], bool]) -> dict[str, str]:
    best: dict[str, tuple[int, str]] = {}
    for status in [status for status in statuses if status is not None]:
        for group in status.groups:
            if counts(group) and group.term > best.get(group.group, (-1, ""))[0]:
                best[group.group] = (group.term, status.node)
    return {group: best[group][1] for group in sorted(best)}
