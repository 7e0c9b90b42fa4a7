"""A change that is refused at apply, because its session has ended by then, tells tablet servers nothing."""

from __future__ import annotations

import asyncio

from cluster.wire.messages import DeleteTable, ErrorReply, ListTables, ListTablesReply, RequestId
from harness.ports.sim.world import World
from tests.cluster.master.catalog_records import COLUMNS
from tests.cluster.master.master_rig import KNOBS, MasterRig


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
