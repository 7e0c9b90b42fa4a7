"""AlterTable, DeleteTable and the other calls of M5, by three masters in the simulator with scripted tablet servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from cluster.client.client import ClusterClient
from cluster.master import contract
from cluster.store.schema import AddColumn, AlterStep, Column, DropColumn, RenameColumn
from cluster.wire.messages import (
    AlterTable,
    AlterTableReply,
    DeleteTable,
    DeleteTableReply,
    ErrorReply,
    ListTables,
    ListTablesReply,
    PlaceTable,
    Regional,
    Replicas,
    RequestId,
)
from harness.errors import DefiniteError
from harness.ports.failpoints import Arming
from harness.ports.sim.world import World
from tests.cluster.master.catalog_records import COLUMNS
from tests.cluster.master.master_rig import KNOBS, MASTERS, MasterRig, create, play_masters
from tests.support.played import played


async def made(rig: MasterRig, client: ClusterClient, name: str = "a", buckets: int = 2) -> str:
    table_id = (await client.create_table(name, COLUMNS, buckets, 3)).table_id
    await rig.created(client, name)
    return table_id


async def settled(rig: MasterRig, client: ClusterClient, name: str = "a") -> None:
    while not (await client.catalog.is_alter_done(name)).done:
        await rig.sleep(0.05)


ADD = AddColumn(Column(-1, "note", "string"))


@played(play_masters)
async def test_an_altered_table_settles_once_every_tablet_has_its_schema(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    table_id = await made(rig, client)
    for server in rig.servers:
        server.deaf_to_alters = True
    assert await client.catalog.alter_table("a", [ADD]) == AlterTableReply(table_id, 1)
    await rig.sleep(3)
    schema = await client.catalog.table_schema("a")
    assert (schema.state, schema.version, [each.name for each in schema.columns]) == (
        "ALTERING",
        1,
        ["value", "note"],
    )
    assert (schema.fully_applied, schema.fully_applied_version) == (COLUMNS, 0)
    assert not (await client.catalog.is_alter_done("a")).done
    for server in rig.servers:
        server.deaf_to_alters = False
    await settled(rig, client)
    schema = await client.catalog.table_schema("a")
    assert (schema.state, schema.version, schema.fully_applied) == ("RUNNING", 1, None)
    assert [each.id for each in schema.columns] == [0, 1]


@played(play_masters)
async def test_a_new_leader_goes_on_with_an_alteration(rig: MasterRig, client: ClusterClient, /) -> None:
    """KUDU-1353, KUDU-1374: it has the tablets' leaders and schemas from full reports, and sends the alter again."""
    await made(rig, client)
    for server in rig.servers:
        server.deaf_to_alters = True
    await client.catalog.alter_table("a", [ADD])
    rig.world.node(await rig.leader()).kill()
    for server in rig.servers:
        server.deaf_to_alters = False
    await settled(rig, client)
    assert (await client.catalog.table_schema("a")).version == 1


@played(play_masters)
async def test_a_column_dropped_and_added_again_has_another_id(rig: MasterRig, client: ClusterClient, /) -> None:
    await made(rig, client)
    await client.catalog.alter_table("a", [ADD])
    await client.catalog.alter_table("a", [DropColumn("note"), ADD, RenameColumn("value", "old")])
    await settled(rig, client)
    schema = await client.catalog.table_schema("a")
    assert [(each.id, each.name) for each in schema.columns] == [(0, "old"), (2, "note")]
    assert schema.version == 2


@played(play_masters)
async def test_a_table_is_renamed_and_its_old_name_is_free(rig: MasterRig, client: ClusterClient, /) -> None:
    table_id = await made(rig, client)
    await client.catalog.alter_table("a", new_name="b")
    await settled(rig, client, "b")
    assert [(info.name, info.table_id) for info in await client.list_tables()] == [("b", table_id)]
    assert await made(rig, client, "a") != table_id
    with pytest.raises(DefiniteError, match="a table named 'a' exists"):
        await client.catalog.alter_table("b", new_name="a")


@played(play_masters)
async def test_a_table_can_be_named_by_its_id_whatever_it_is_called(rig: MasterRig, client: ClusterClient, /) -> None:
    table_id, catalog = await made(rig, client), client.catalog
    await catalog.alter_table("a", new_name="b")
    await made(rig, client, "a")
    for ask in (catalog.is_create_done, catalog.is_alter_done, catalog.table_schema, catalog.table_locations):
        assert (await ask(table_id=table_id)).table_id == table_id
        with pytest.raises(DefiniteError, match=f"the table {table_id} is not named 'a'"):
            await ask("a", table_id)
    assert await catalog.alter_table(steps=[ADD], new_name="c", table_id=table_id) == AlterTableReply(table_id, 2)
    assert await catalog.delete_table("c", table_id) == DeleteTableReply(table_id)
    for ask in (catalog.is_alter_done, catalog.delete_table):
        with pytest.raises(DefiniteError, match=f"there is no table {table_id}"):
            await ask(table_id=table_id)
    assert [info.name for info in await client.list_tables()] == ["a"]


@pytest.mark.parametrize(
    ("steps", "new_name", "kind", "reason"),
    [
        ((), None, "INVALID", "has to change something"),
        ((), "a", "INVALID", "called that already"),
        ((), "", "INVALID", "needs a name"),
        ((DropColumn("paper"),), None, "INVALID", "'a': there is no column 'paper'"),
        ((DropColumn("value"),), None, "INVALID", "needs columns"),
        ((AddColumn(Column(-1, "value", "bool")),), None, "INVALID", "there is a column 'value' already"),
        ((AddColumn(Column(-1, "k", "int64", False, None, True)),), None, "INVALID", "can't be added to the key"),
        ((AddColumn(Column(-1, "n", "int64", False)),), None, "INVALID", "needs a default"),
        ((AddColumn(Column(-1, "n", "paper")),), None, "INVALID", "has the type 'paper'"),
        ((AddColumn(Column(-1, "n", "int32", False, 1 << 40)),), None, "INVALID", "is no int32"),
    ],
)
@played(play_masters)
async def test_an_alteration_that_cannot_be_is_refused_with_its_reason(
    rig: MasterRig, client: ClusterClient, /, steps: tuple[AlterStep, ...], new_name: str | None, kind: str, reason: str
) -> None:
    await made(rig, client)
    session, leader = await rig.session(), await rig.leader()
    refused = await rig.ask(leader, AlterTable(RequestId(session, 1, 1), "a", steps, new_name))
    assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == (kind, True)
    assert reason in refused.message
    schema = await client.catalog.table_schema("a")
    assert (schema.columns, schema.version, schema.state) == (COLUMNS, 0, "RUNNING")


@pytest.mark.parametrize(
    ("replicas", "kind", "reason"),
    [
        (Regional("z1", {"z1": 2}), "INVALID", "odd and positive, not 2"),
        (Regional("z1", {"z1": 3}, {"z1": 0}), "INVALID", "has one replica at least"),
        (
            Regional("z2", {"z1": 2, "z2": 1}),
            "INVALID",
            "a majority of the 3 voters has to stand in the home zone 'z2'",
        ),
        (Regional("", {"z1": 5}), "INVALID", "has 3 voters, wherever they stand"),
        (1, "INVALID", "has 3 voters"),
        (Regional("z1", {"z1": 2, "z9": 1}), "UNKNOWN_ZONE", "no live tablet server is in 'z9'; there are z1"),
        (Regional("z1", {"z1": 3}, {"z1": 1}), "TOO_FEW_NODES", "4 replicas are to stand in 'z1', and 3"),
    ],
)
@played(play_masters)
async def test_a_placement_that_cannot_be_is_refused_with_its_reason(
    rig: MasterRig, client: ClusterClient, /, replicas: Replicas, kind: str, reason: str
) -> None:
    await made(rig, client)
    session, leader = await rig.session(), await rig.leader()
    refused = await rig.ask(leader, PlaceTable(RequestId(session, 1, 1), replicas, "a"))
    assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == (kind, True)
    assert reason in refused.message
    assert (await client.catalog.table_schema("a")).replicas == 3


@played(play_masters)
async def test_a_deleted_table_goes_with_its_tablets_and_its_name_is_free(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    table_id = await made(rig, client)
    tablets = [each.tablet_id for each in (await client.table_locations("a")).tablets]
    assert (await client.catalog.delete_table("a")).table_id == table_id
    assert await client.list_tables() == ()
    reply = await client.catalog.tablet_locations([*tablets, "paper"])
    assert [(each.state, each.replicas) for each in reply.tablets] == [("DELETED", ())] * 2
    assert reply.unknown == ("paper",)
    await rig.sleep(1)
    assert all(server.tablets == {} for server in rig.servers)
    assert await made(rig, client) != table_id


@played(play_masters)
async def test_the_deletion_of_a_replica_is_repeated_until_it_is_acknowledged(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    """It is repeated even while the tablet server's heartbeats arrive and have nothing new to say."""
    await made(rig, client)
    lost = rig.servers[0]
    lost.mute = True
    for master in MASTERS:
        rig.world.network.cut(master.node_id, lost.name)
    await client.catalog.delete_table("a")
    await rig.sleep(3)
    assert lost.deletes == []
    rig.world.network.heal()
    await rig.sleep(4)
    assert len(dict.fromkeys(lost.deletes)) == 2


@played(play_masters, knobs=replace(KNOBS, election_timeout_ms=8_000))
async def test_a_deletion_that_is_replicated_too_late_for_who_asked_is_carried_out_all_the_same(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    """The leader stays one, so that no tablet server reports what it has anew (`catalog` in far regions, seed 106)."""
    await made(rig, client)
    leader, session = await rig.leader(), await rig.session()
    term = (await rig.status(leader)).groups[0].term
    for server in rig.servers:
        server.mute = True
    rig.isolate(leader)
    reply = await rig.ask(leader, DeleteTable(RequestId(session, 1, 1), "a"), 4.0)
    assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("TIMED_OUT", False)
    assert [len(dict.fromkeys(server.deletes)) for server in rig.servers] == [0, 0, 0]
    rig.world.network.heal()
    await rig.sleep(3)
    assert (await rig.status(await rig.leader())).groups[0].term == term
    assert [len(dict.fromkeys(server.deletes)) for server in rig.servers] == [2, 2, 2]


@played(play_masters)
async def test_a_master_that_hears_too_late_that_its_change_was_replicated_tells_tablet_servers_nothing(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    """It was deposed meanwhile, and had tablets founded that its successor had deleted (`catalog --nemesis all
    --swarm`, seed 9)."""
    await made(rig, client)
    old, session = await rig.leader(), await rig.session()
    called: list[str] = []
    rig.world.node(old).failpoints.arm(Arming("master.before_call", called.append))
    for master in MASTERS:
        if master.node_id != old:
            rig.world.network.cut(master.node_id, old)  # What it sends arrives, and it hears of nothing.
    asked = asyncio.create_task(rig.ask(old, DeleteTable(RequestId(session, 1, 1), "a"), 4.0))
    await rig.sleep(0.1)
    rig.isolate(old)
    await rig.leader(old)
    await rig.sleep(0.3)
    assert not asked.done() and [len(dict.fromkeys(server.deletes)) for server in rig.servers] == [2, 2, 2]
    rig.world.network.heal()
    assert not isinstance(await asked, ErrorReply)
    await rig.sleep(1)
    assert called == []


@played(play_masters)
async def test_deletions_that_are_owed_to_a_dead_server_wait_until_it_lives(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    await made(rig, client)
    leader, dead = await rig.leader(), rig.servers[0]
    rig.world.node(dead.name).kill()
    await rig.sleep(3)
    passed: list[str] = []
    rig.world.node(leader).failpoints.arm(Arming("master.before_call", passed.append))
    await client.catalog.delete_table("a")
    await rig.sleep(20)
    assert len(passed) == 6, "two tablets on three servers, each once"
    dead.start()
    await rig.sleep(2)
    assert len(dict.fromkeys(dead.deletes)) == 2


@played(play_masters)
async def test_a_tablet_that_replaced_another_one_is_altered_though_its_table_is_not(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    """It was created under the latest schema, which is not in its log."""
    await made(rig, client, buckets=1)
    await client.catalog.alter_table("a", [ADD])
    await settled(rig, client)
    for server in rig.servers:
        server.schemas.clear()
        server.alters.clear()
        server.deaf_to_alters = True
    rig.world.node(await rig.leader()).kill()
    await rig.sleep(2)
    for server in rig.servers:
        server.mute, server.deaf_to_alters = True, False
    await rig.sleep(2)
    assert any(server.schemas for server in rig.servers), "it is told again without another report"


@played(play_masters)
async def test_retried_ddl_takes_effect_once_and_is_answered_alike(rig: MasterRig, client: ClusterClient, /) -> None:
    await made(rig, client)
    session, old = await rig.session(), await rig.leader()
    alter = AlterTable(RequestId(session, 1, 1), "a", (ADD,))
    delete = DeleteTable(RequestId(session, 2, 1), "a")
    altered = await rig.ask(old, alter)
    deleted = await rig.ask(old, delete)
    rig.world.node(old).kill()
    new = await rig.leader(old)
    assert isinstance(altered, AlterTableReply) and altered == await rig.ask(new, alter)
    assert deleted == await rig.ask(new, delete)
    again = await rig.ask(new, DeleteTable(RequestId(session, 3, 1), "a"))
    assert isinstance(again, ErrorReply) and (again.kind, again.definite) == ("NOT_FOUND", True)


@played(play_masters)
async def test_ddl_of_one_table_all_at_once_is_carried_out_one_after_the_other(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    await made(rig, client)
    names = [f"column{number}" for number in range(8)]
    clients = [rig.client() for _ in names]
    replies = await asyncio.gather(
        *(
            each.catalog.alter_table("a", [AddColumn(Column(-1, name, "bool"))])
            for each, name in zip(clients, names, strict=True)
        )
    )
    assert sorted(reply.version for reply in replies) == list(range(1, 9))
    await settled(rig, client)
    columns = (await client.catalog.table_schema("a")).columns
    assert sorted(each.name for each in columns[1:]) == names
    assert [each.id for each in columns] == list(range(9))


@played(play_masters)
async def test_a_create_that_comes_too_early_tries_again_until_enough_tablet_servers_are_known(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    creating = asyncio.create_task(client.create_table("a", COLUMNS, 1, 5))
    session, leader = await rig.session(), await rig.leader()
    refused = await rig.ask(leader, create(session, "b", 1, replication_factor=5))
    assert isinstance(refused, ErrorReply) and (refused.kind, refused.definite) == ("TRY_AGAIN", True)
    assert "5 replicas were asked for and 3 tablet servers are live" in refused.message
    rig.add_server("t4")
    rig.add_server("t5")
    table_id = (await creating).table_id
    assert [info.table_id for info in await client.list_tables()] == [table_id]


@played(play_masters)
async def test_masters_tell_who_they_are(rig: MasterRig, client: ClusterClient, /) -> None:
    reply = await client.catalog.masters()
    assert reply.voters == MASTERS and reply.learners == () and reply.leader == await rig.leader()


@played(play_masters)
async def test_ids_of_columns_are_given_for_all_or_for_none(rig: MasterRig, client: ClusterClient, /) -> None:
    with pytest.raises(DefiniteError, match="for all columns, from 0 to 2147483647, or for none"):
        await client.create_table("a", (*COLUMNS, Column(-1, "more", "int64")), 1, 3)
    assert await client.list_tables() == ()


@pytest.mark.parametrize("name", ["", "x" * 300])
@played(play_masters)
async def test_a_table_needs_a_name_of_bounded_length(rig: MasterRig, client: ClusterClient, /, name: str) -> None:
    with pytest.raises(DefiniteError, match="name"):
        await client.create_table(name, COLUMNS, 1, 3)
    assert await client.list_tables() == ()


def test_nothing_but_the_contract_replicates_changes_of_the_catalog() -> None:
    """M6: one order for all of them, in one place."""
    package = Path(contract.__file__).parent
    replicating = [path.name for path in sorted(package.glob("*.py")) if ".replicate(" in path.read_text()]
    assert replicating == ["contract.py"]


def test_a_deletion_under_an_ended_session_deletes_no_replica() -> None:
    with World(1) as world:
        rig = MasterRig(world, knobs=KNOBS)

        async def main() -> None:
            rig.start()
            await rig.sleep(1)
            client = rig.client()
            await client.create_table("a", COLUMNS, 2, 3)
            await rig.created(client, "a")
            session, leader = await rig.session(), await rig.leader()
            await rig.sleep(KNOBS.session_silence_ms / 1000 + 5)
            reply = await rig.ask(leader, DeleteTable(RequestId(session, 1, 1), "a"), 5)
            assert isinstance(reply, ErrorReply) and reply.kind == "SESSION_ENDED", reply
            await rig.sleep(2)
            tables = await rig.ask(leader, ListTables())
            assert isinstance(tables, ListTablesReply) and [table.name for table in tables.tables] == ["a"]
            assert not any(server.deletes for server in rig.servers)

        world.run(asyncio.wait_for(main(), 300))
