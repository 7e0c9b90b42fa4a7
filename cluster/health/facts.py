"""What a cluster says of itself: every node's status, and the catalog as the leader master tells it.

The parts are asked for one after the other, so while the cluster changes they need not fit together: who wants to know
looks again (`cluster.health.check`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cluster.client.client import ClusterClient
from cluster.wire.messages import (
    CATALOG_GROUP,
    MastersReply,
    Replicas,
    TableInfo,
    TabletLocation,
    TabletServersReply,
)
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.api import node_of
from harness.protocols import GroupStatus, Node, NodeStatus
from harness.run.allowances import lacked_by_all
from harness.run.system_state import insist

Statuses = Mapping[str, NodeStatus | None]

SCHEMA_VERSIONS = "schema_versions"
"""Among the details of a node's status: by tablet the version of the schema in its log."""


@dataclass(frozen=True, slots=True)
class CatalogFacts:
    """The catalog: masters, tablet servers, tables with the replicas that they want and tablets, by table id.

    `hosted` says of tablets that servers hold and no table has what the catalog knows of them: their state, or None.
    `heard` has for each member of the masters' group the tablet servers that are live by what itself has heard; None
    where it did not say.
    """

    masters: MastersReply
    servers: TabletServersReply
    tables: tuple[TableInfo, ...] = ()
    wanted: Mapping[str, Replicas] = field(default_factory=dict)
    tablets: Mapping[str, tuple[TabletLocation, ...]] = field(default_factory=dict)
    hosted: Mapping[str, str | None] = field(default_factory=dict)
    heard: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Everything that was asked; `catalog` is None where no leader master answered, which `silence` explains."""

    nodes: tuple[Node, ...]
    statuses: Statuses
    catalog: CatalogFacts | None
    silence: str = ""

    def schema_versions(self, node: str) -> Mapping[str, int]:
        """By tablet the version of the schema that a node has of it (M5)."""
        status = self.statuses.get(node)
        found: Mapping[str, int] = {} if status is None else status.details.get(SCHEMA_VERSIONS, {})
        return found

    def entries_lacked(self) -> int:
        """How many entries replicas lack of what their groups' leaders have, all together."""
        return lacked_by_all(self.statuses)

    def groups(self, role: str) -> dict[str, dict[str, GroupStatus]]:
        """By group what each node of this role that holds a replica says of it."""
        found: dict[str, dict[str, GroupStatus]] = {}
        for node in self.nodes:
            status = self.statuses.get(node.name)
            for group in status.groups if status is not None and node.role == role else ():
                found.setdefault(group.group, {})[node.name] = group
        return found


async def collect(
    client: ClusterClient, nodes: Sequence[Node], status: Callable[[str], Awaitable[NodeStatus | None]]
) -> ClusterFacts:
    """Ask every node and the leader master; whoever does not answer is left out, never an error."""
    answers = await asyncio.gather(*(insist(partial(status, node.name)) for node in nodes))
    views = {node.name: answer for node, answer in zip(nodes, answers, strict=True)}
    held = {group.group for status in views.values() if status is not None for group in status.groups}
    try:
        catalog = await _catalog(client, sorted(held - {CATALOG_GROUP}))
    except (DefiniteError, IndefiniteError) as error:
        return ClusterFacts(tuple(nodes), views, None, str(error))
    return ClusterFacts(tuple(nodes), views, catalog)


async def _catalog(client: ClusterClient, held: Sequence[str]) -> CatalogFacts:
    catalog = client.catalog
    masters, servers, tables = await catalog.masters(), await catalog.tablet_servers(), await catalog.list_tables()
    wanted: dict[str, Replicas] = {}
    tablets: dict[str, tuple[TabletLocation, ...]] = {}
    for table in tables:
        wanted[table.table_id] = (await catalog.table_schema(table.name)).replicas
        tablets[table.table_id] = (await catalog.table_locations(table.name)).tablets
    known = {tablet.tablet_id for each in tablets.values() for tablet in each}
    strays = [tablet_id for tablet_id in held if tablet_id not in known]
    hosted: dict[str, str | None] = {}
    if strays:
        reply = await catalog.tablet_locations(strays)
        hosted = {tablet.tablet_id: tablet.state for tablet in reply.tablets} | dict.fromkeys(reply.unknown)
    heard = {
        node_of(master.node_id): await insist(partial(_heard, client, master.address)) for master in masters.voters
    }
    return CatalogFacts(masters, servers, tables, wanted, tablets, hosted, heard)


async def _heard(client: ClusterClient, address: str) -> tuple[str, ...] | None:
    try:
        return tuple((await client.servers_heard_by(address)).live)
    except DefiniteError:
        return None
