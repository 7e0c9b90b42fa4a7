"""DDL and rows while masters and tablet servers die and are cut off; at the end everybody agrees (M6, M7, M14)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from cluster.client.client import ClusterClient
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.store.cells import Value
from cluster.store.schema import AddColumn, AlterStep, Column, DropColumn
from cluster.wire.messages import WIRE_VERSION
from harness.env.sim import SimEnvironment
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World
from tests.support.few_seeds import few_of

KNOBS = Knobs(snapshot_entries=10, retained_entries=0, tserver_heartbeat_ms=200, check_quorum_ms=600)
NAMES = ("a", "b", "c")
COLUMNS = (Column(-1, "k", "int64", False, None, True), Column(-1, "v", "int64"))
SECONDS = 25.0


@dataclass
class Known:
    """What clients know of one table: alterations that were acknowledged, its rows, and those of unknown outcome."""

    acknowledged: int = 0
    deleted: bool = False
    maybe_deleted: bool = False
    rows: dict[int, Value] = field(default_factory=dict)
    unsure: dict[int, None] = field(default_factory=dict)


class Stress:
    """A cluster, clients that change its tables, and somebody who breaks it meanwhile."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, Random(seed)
        self.environment, self.database = SimEnvironment(world), SimDatabase(world, Layout(3, 4), knobs=KNOBS)
        self.tables: dict[str, Known] = {}
        self.unsure_alters = 0
        self.done = 0
        self.over = False

    async def run(self) -> None:
        await self.environment.setup(self.database.nodes)
        await self.database.install()
        for node in self.database.nodes:
            await self.database.start(node.name)
        await self.database.await_ready(30)
        clients = [asyncio.create_task(self.change_tables()) for _ in range(3)]
        breaking = asyncio.create_task(self.break_things())
        await asyncio.sleep(SECONDS)
        self.over = True
        await breaking
        await asyncio.gather(*clients)
        await self.agreed()

    # ---- clients ----

    async def change_tables(self) -> None:
        client = self.database.admin_client(2.0)
        while not self.over:
            name, draw = self.chance.choice(NAMES), self.chance.random()
            try:
                if draw < 0.35:
                    await self.create(client, name)
                elif draw < 0.6:
                    await self.alter(client, name)
                elif draw < 0.7:
                    await self.delete(client, name)
                else:
                    await self.rows(client, name)
                self.done += 1
            except DefiniteError:
                pass
            await asyncio.sleep(self.chance.random() * 0.2)

    async def create(self, client: ClusterClient, name: str) -> None:
        try:
            reply = await client.create_table(name, COLUMNS, self.chance.choice((1, 3)), 3)
        except IndefiniteError:
            return
        assert reply.table_id not in self.tables
        self.tables[reply.table_id] = Known()

    async def alter(self, client: ClusterClient, name: str) -> None:
        columns = (await client.catalog.table_schema(name)).columns
        extra = [column.name for column in columns[2:]]
        step: AlterStep = AddColumn(Column(-1, f"x{self.chance.randrange(5)}", "int64", False, 7))
        if extra and self.chance.random() < 0.5:
            step = DropColumn(self.chance.choice(extra))
        new_name = self.chance.choice(NAMES) if self.chance.random() < 0.3 else None
        try:
            reply = await client.catalog.alter_table(name, [step], None if new_name == name else new_name)
        except IndefiniteError:
            self.unsure_alters += 1
            return
        if reply.table_id in self.tables:
            self.tables[reply.table_id].acknowledged += 1

    async def delete(self, client: ClusterClient, name: str) -> None:
        try:
            reply = await client.catalog.delete_table(name)
        except IndefiniteError:
            for info in self.tables.values():
                info.maybe_deleted = True
            return
        known = self.tables.get(reply.table_id)
        assert known is None or not known.deleted
        if known is not None:
            known.deleted = True

    async def rows(self, client: ClusterClient, name: str) -> None:
        table = await client.open_table(name)
        schema = await table.refresh()
        known, key, value = self.tables.get(schema.table_id), self.chance.randrange(20), self.chance.randrange(1_000)
        if known is None or key in known.unsure:
            return
        known.unsure[key] = None
        try:
            await table.upsert({"k": key, "v": value})
        except DefiniteError:
            del known.unsure[key]
        except IndefiniteError:
            return
        else:
            del known.unsure[key]
            known.rows[key] = value

    # ---- faults ----

    async def break_things(self) -> None:
        masters = [node.name for node in self.database.nodes if node.role == "master"]
        tservers = [node.name for node in self.database.nodes if node.role == "tserver"]
        while not self.over:
            await asyncio.sleep(0.5 + self.chance.random() * 2)
            draw = self.chance.random()
            victim = self.chance.choice(masters)
            if draw < 0.4:
                self.world.node(victim).kill()
            elif draw < 0.6:
                others = [name for name in masters if name != victim]
                for other in others:
                    self.world.network.cut(victim, other)
                    self.world.network.cut(other, victim)
            elif draw < 0.8:
                for server in self.chance.sample(tservers, 2):
                    self.world.network.cut(*self.chance.choice(((victim, server), (server, victim))))
            else:
                self.world.node(self.chance.choice(tservers)).kill()
            await asyncio.sleep(0.5 + self.chance.random() * 2)
            self.world.network.heal()
            for name in (*masters, *tservers):
                if self.world.node(name).state is ProcessState.DEAD:
                    await self.database.start(name)

    # ---- the end ----

    async def agreed(self) -> None:
        """Within a budget after the heal: schemas everywhere, no replica too many, all that was acknowledged."""
        client = self.database.admin_client(8.0)
        async with asyncio.timeout(60):
            for info in await client.list_tables():
                while not (await client.catalog.is_alter_done(info.name)).done:
                    await asyncio.sleep(0.2)
                while not await client.is_create_done(info.name):
                    await asyncio.sleep(0.2)
            while await self.replicas() != await self.expected(client):
                await asyncio.sleep(0.5)
        listed = {info.table_id: info for info in await client.list_tables()}
        for table_id, known in self.tables.items():
            if known.deleted:
                assert table_id not in listed
                continue
            assert table_id in listed or known.maybe_deleted
            if table_id in listed:
                await self.compare(client, listed[table_id].name, known)
        assert (await self.database.invariants()).breaches == ()
        assert self.world.errors == []

    async def compare(self, client: ClusterClient, name: str, known: Known) -> None:
        schema = await client.catalog.table_schema(name)
        assert known.acknowledged <= schema.version <= known.acknowledged + self.unsure_alters
        assert (schema.state, schema.fully_applied) == ("RUNNING", None)
        table = await client.open_table(name)
        rows = {row["k"]: row for row in (await table.scan()).value}
        for key, value in known.rows.items():
            if key not in known.unsure:
                assert rows[key]["v"] == value
        added = [column.name for column in schema.columns[2:]]
        assert all(row[each] == 7 for row in rows.values() for each in added)

    async def expected(self, client: ClusterClient) -> list[tuple[str, str]]:
        """(Server, tablet) of every replica that there should be."""
        found = []
        for info in await client.list_tables():
            for tablet in (await client.table_locations(info.name)).tablets:
                found += [(replica.node_id.split(":")[0], tablet.tablet_id) for replica in tablet.replicas]
        return sorted(found)

    async def replicas(self) -> list[tuple[str, str]]:
        """Every replica that tablet servers have."""
        statuses = [await self.database.status(node.name) for node in self.database.nodes if node.role == "tserver"]
        return sorted((s.node, group.group) for s in statuses if s is not None for group in s.groups)


@pytest.mark.parametrize("seed", few_of(1, 3))
def test_after_faults_everybody_agrees_and_every_change_took_effect_once(seed: int) -> None:
    with World(seed, version=WIRE_VERSION) as world:
        stress = Stress(world, seed)
        world.run(stress.run())
        assert stress.done > 30
