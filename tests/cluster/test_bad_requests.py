"""Bad input of every kind to a whole cluster: what comes back is typed and says why, and nothing else happens.

The catalog stays as it was and no process ends (Kudu: "If the replication fails, the overall operation fails").
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from cluster.client.client import ClusterClient
from cluster.config import NodeConfig
from cluster.deploy.database_sim import format_machine
from cluster.node import run_node
from cluster.raft.types import Member
from cluster.store.schema import AddColumn, AlterStep, Column, DropColumn, RenameColumn
from cluster.wire.messages import (
    CATALOG_GROUP,
    AlterTable,
    CreateTable,
    CreateTableReply,
    CreateTablet,
    DeleteTable,
    DeleteTablet,
    ErrorReply,
    GetTableLocations,
    GetTableSchema,
    IsAlterTableDone,
    IsCreateTableDone,
    ListTables,
    Partition,
    ReadCell,
    RegisterSession,
    Replica,
    Reply,
    Request,
    RequestId,
    SessionReply,
    decode_reply,
    encode,
)
from cluster.wire.operating import ChangeMasters, DecommissionServer, TransferLeadership
from harness.ports.api import CallLost, Refused, Unreachable
from tests.cluster.table_rig import TableRig, play

KEY = Column(0, "k", "int64", nullable=False, key=True)
NAME = Column(1, "name", "string")
NO_IDS = (replace(KEY, id=-1), replace(NAME, id=-1))
MANY = tuple(Column(-1, f"c{number}", "int64") for number in range(301))
LONG = Column(-1, "n" * 257, "int64")
HUGE = Column(-1, "huge", "binary", True, b"\x00" * (1 << 16))
ANOTHER_CLUSTER = "elsewhere"
CREATE_TABLET = CreateTablet("t1", True, "n", "n", "n", Partition(0, 1), (), 0, ())

Make = Callable[[RequestId], Request]


def alter(*steps: AlterStep, name: str = "people", new_name: str | None = None) -> Make:
    return lambda request_id: AlterTable(request_id, name, steps, new_name)


def create(name: str = "x", columns: tuple[Column, ...] = NO_IDS, buckets: int = 1, replicas: int = 3) -> Make:
    return lambda request_id: CreateTable(request_id, name, columns, buckets, replicas)


def asks(request: Request) -> Make:
    return lambda request_id: request


BAD: tuple[tuple[str, str, Make], ...] = (
    # duplicate names
    ("ALREADY_PRESENT", "a table named 'people' exists", create("people")),
    ("ALREADY_PRESENT", "a table named 'registers' exists", alter(new_name="registers")),
    ("INVALID", "called that already", alter(new_name="people")),
    ("INVALID", "two columns have the name 'k'", create(columns=(replace(KEY, id=-1), replace(NAME, id=-1, name="k")))),
    ("INVALID", "there is a column 'name' already", alter(AddColumn(Column(-1, "name", "bool")))),
    ("INVALID", "two columns have the name 'k'", alter(RenameColumn("name", "k"))),
    # what there is not
    ("INVALID", "'people': there is no column 'paper'", alter(DropColumn("paper"))),
    ("INVALID", "'people': there is no column 'paper'", alter(RenameColumn("paper", "pen"))),
    ("NOT_FOUND", "there is no table named 'paper'", alter(DropColumn("k"), name="paper")),
    ("NOT_FOUND", "there is no table named 'paper'", lambda request_id: DeleteTable(request_id, "paper")),
    ("NOT_FOUND", "there is no table named 'paper'", asks(GetTableSchema("paper"))),
    ("NOT_FOUND", "there is no table named 'paper'", asks(GetTableLocations("paper"))),
    ("NOT_FOUND", "there is no table named 'paper'", asks(IsCreateTableDone("paper"))),
    ("NOT_FOUND", "there is no table named 'paper'", asks(IsAlterTableDone("paper"))),
    # keys, types, shapes
    ("INVALID", "'people': the key column 'k' can't be dropped", alter(DropColumn("k"))),
    ("INVALID", "can't be added to the key", alter(AddColumn(Column(-1, "z", "int64", False, None, True)))),
    ("INVALID", "needs a default", alter(AddColumn(Column(-1, "z", "int64", False)))),
    ("INVALID", "is no int32", alter(AddColumn(Column(-1, "z", "int32", False, 1 << 40)))),
    ("INVALID", "has the type 'paper'", create(columns=(Column(-1, "z", "paper"),))),
    ("INVALID", "needs columns", create(columns=())),
    ("INVALID", "has to change something", alter()),
    ("INVALID", "a table needs a name", create("")),
    ("INVALID", "at most 256 characters", create("x" * 257)),
    # sizes
    ("INVALID", "at most 300 columns, not 301", create(columns=MANY)),
    ("INVALID", "'people': a table has at most 300 columns", alter(*map(AddColumn, MANY))),
    ("INVALID", "'people': an alteration has at most 1000 steps", alter(*[RenameColumn("name", "name")] * 1_001)),
    ("INVALID", "a column's name has at most 256 characters, not 257", create(columns=(LONG,))),
    ("INVALID", "a column's name has at most 256 characters", alter(RenameColumn("name", LONG.name))),
    ("INVALID", "names and defaults of the columns take", create(columns=(*NO_IDS, HUGE))),
    ("INVALID", "'people': the names and defaults of the columns take", alter(AddColumn(HUGE))),
    ("INVALID", "from 0 to 2147483647", create(columns=(KEY, replace(NAME, id=(1 << 64) - 1)))),
    ("INVALID", "use fewer buckets", create(buckets=1_000_000_000)),
    ("INVALID", "use fewer buckets", create(buckets=20_000)),
    ("INVALID", "at least one bucket", create(buckets=0)),
    ("INVALID", "must be odd and positive", create(replicas=2)),
    ("INVALID", "must be odd and positive", create(replicas=-1)),
    ("TRY_AGAIN", "5 replicas were asked for and 4 tablet servers are live", create(replicas=5)),
    # identities and addresses that are wrong
    ("INVALID", "masters do not answer", asks(ReadCell("tablet", 0, 0, 0))),
    ("INVALID", "must not be negative", asks(ListTables(max_staleness_ms=-1))),
    ("INVALID", "'nowhere' is no address", asks(ChangeMasters(Member("m9", "nowhere"), "m1"))),
    ("INVALID", "to add, one to remove", asks(ChangeMasters())),
    ("NOT_FOUND", "no tablet server t9", asks(DecommissionServer("t9"))),
    ("NOT_FOUND", "masters have no group paper", asks(TransferLeadership("paper", "m1"))),
    ("INVALID", "m9 is no voter of the group", asks(TransferLeadership(CATALOG_GROUP, "m9"))),
)
"""What is asked of the leader master, and the kind and some words of its answer."""

NESTED = b"\x82" + encode({"type": "ListTables"})[1:] + b"\xa4more" + b"\x91" * 100_000 + b"\x00"
NO_SUCH_REQUEST = encode({"type": "DropEverything"})
NO_REQUESTS = (b"", b"\xc1", b"paper", b"\x00" * 64, NO_SUCH_REQUEST, encode(["CreateTable"]), NESTED)
"""Bytes that are no request."""


@dataclass
class Table:
    """A whole cluster with a table of people, and what has to stay as it was."""

    rig: TableRig
    client: ClusterClient = field(init=False)
    session: int = 0
    sequence: int = 0

    async def begin(self) -> None:
        await self.rig.begin()
        self.client = self.rig.database.admin_client(8.0)
        await self.client.create_table("people", (KEY, NAME), 2, 3)
        while not await self.client.is_create_done("people"):
            await asyncio.sleep(0.1)

    async def ask(self, address: str, request: Request | bytes) -> Reply:
        payload = request if isinstance(request, bytes) else encode(request)
        reply: Reply = decode_reply(await self.rig.world.harness_ports("h").network.call(address, payload, 3.0))
        return reply

    async def ask_leader(self, make: Make) -> Reply:
        node, _ = await self.rig.leader("master")
        address = self.rig.database.address(node)
        if not self.session:
            reply = await self.ask(address, RegisterSession(CATALOG_GROUP))
            assert isinstance(reply, SessionReply)
            self.session = reply.session
        self.sequence += 1
        return await self.ask(address, make(RequestId(self.session, self.sequence, self.sequence)))

    async def catalog(self) -> list[Any]:
        tables = await self.client.list_tables()
        schemas = [await self.client.catalog.table_schema(table.name) for table in tables]
        located = [(await self.client.table_locations(table.name)).tablets for table in tables]
        tablets = [[replace(tablet, leader_hint=None) for tablet in tablets] for tablets in located]
        servers = await self.client.tablet_servers()
        return [tables, schemas, tablets, servers.servers]

    async def lives(self) -> dict[str, int | None]:
        """The incarnation of every node that answers."""
        found = await self.rig.database.statuses()
        return {name: None if status is None else status.incarnation for name, status in found.items()}


def with_people(scenario: Callable[[Table], Any]) -> None:
    async def run(rig: TableRig) -> None:
        table = Table(rig)
        await table.begin()
        await scenario(table)

    play(run)


def test_what_cannot_be_is_refused_for_good_and_changes_nothing() -> None:
    async def scenario(table: Table) -> None:
        catalog, lives = await table.catalog(), await table.lives()
        wrong = []
        for kind, words, make in BAD:
            reply = await table.ask_leader(make)
            answer = (reply.kind, reply.definite, words in reply.message) if isinstance(reply, ErrorReply) else reply
            if answer != (kind, True, True):
                wrong.append((kind, words, reply))
            assert await table.catalog() == catalog, words
        assert wrong == [], "\n".join(map(str, wrong))
        assert await table.lives() == lives

    with_people(scenario)


def test_bytes_that_are_no_request_are_answered_so_by_every_node() -> None:
    async def scenario(table: Table) -> None:
        catalog, lives = await table.catalog(), await table.lives()
        for node in table.rig.database.nodes:
            for payload in NO_REQUESTS[node.role != "master" :]:  # Tablet servers take nothing for a probe of clocks.
                reply = await table.ask(table.rig.database.address(node.name), payload)
                assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("INVALID", True), (
                    node,
                    payload,
                )
            table.rig.world.harness_ports("h").network.notify(table.rig.database.address(node.name), b"\xc1paper")
        await asyncio.sleep(1)
        assert await table.catalog() == catalog and await table.lives() == lives

    with_people(scenario)


def test_no_tablet_is_made_or_deleted_under_an_id_that_can_name_no_file() -> None:
    """A deletion of the tablet '' left the tables of its server without a leader to be written through."""

    async def scenario(table: Table) -> None:
        catalog = await table.catalog()
        for node in (node for node in table.rig.database.nodes if node.role != "master"):
            for tablet_id in ("", ".", "..", "../log", "a/b", "a\x00", "\u00e4", "x" * 129):
                create = replace(CREATE_TABLET, tablet_id=tablet_id, server_id=node.name)
                for request in (DeleteTablet(tablet_id), create):
                    reply = await table.ask(table.rig.database.address(node.name), request)
                    assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("INVALID", True), reply
                    assert "is no tablet's id" in reply.message
        await asyncio.sleep(3)
        assert await table.catalog() == catalog

    with_people(scenario)


def test_requests_during_a_fail_over_are_refused_carried_out_or_unknown_and_never_lost() -> None:
    """Whoever is asked says that he does not lead, or carries it out; a retry under the same id is answered alike."""

    async def scenario(table: Table) -> None:
        assert isinstance(await table.ask_leader(asks(ListTables())), Reply.__args__)
        old, _ = await table.rig.leader("master")
        await table.rig.database.kill(old)
        request = CreateTable(RequestId(table.session, table.sequence + 1, 1), "late", NO_IDS, 1, 3)
        others = [name for name in table.rig.nodes("master") if name != old]
        made, kinds = set(), set()
        for turn in range(60):
            reply = await table.ask(table.rig.database.address(others[turn % 2]), request)
            if isinstance(reply, ErrorReply):
                assert reply.message
                kinds.add(reply.kind)
            else:
                assert isinstance(reply, CreateTableReply)
                made.add(reply.table_id)
            await asyncio.sleep(0.05)
        assert len(made) == 1 and kinds == {"NOT_THE_LEADER"}
        assert [info.table_id for info in await table.client.list_tables() if info.name == "late"] == list(made)

    with_people(scenario)


def test_a_tablet_server_of_another_cluster_is_heard_by_nobody_and_can_do_nothing() -> None:
    async def scenario(table: Table) -> None:
        catalog, lives = await table.catalog(), await table.lives()
        world, database = table.rig.world, table.rig.database
        masters = tuple(Replica(name, database.address(name)) for name in table.rig.nodes("master"))
        stranger = NodeConfig(
            node_id="x1", role="tserver", listen="x1:7050", masters=masters, cluster_id=ANOTHER_CLUSTER
        )
        format_machine(world.node("x1"), ANOTHER_CLUSTER)
        world.node("x1").cluster_id = ANOTHER_CLUSTER
        world.node("x1").start(lambda ports: run_node(ports, stranger))
        tablet = catalog[2][0][0].tablet_id
        outside = world.harness_ports("outside", ANOTHER_CLUSTER)
        for node in database.nodes:
            for request in (ListTables(), DeleteTablet(tablet), CREATE_TABLET):
                try:
                    reply = await outside.network.call(database.address(node.name), encode(request), 2.0)
                except (Refused, CallLost, Unreachable) as error:
                    assert isinstance(error, Refused), error
                else:
                    raise AssertionError(f"{node.name} answered {decode_reply(reply)}")
        await asyncio.sleep(3)
        assert world.node("x1").errors == []
        assert await table.catalog() == catalog and await table.lives() == lives

    with_people(scenario)
