"""A change that is refused at apply, because its session has ended by then, tells tablet servers nothing."""

from __future__ import annotations

import asyncio

from master_bench import COLUMNS, KNOBS, Bench

from cluster.wire.messages import DeleteTable, ErrorReply, ListTables, ListTablesReply, RequestId
from harness.sim.world import World


def test_a_deletion_under_an_ended_session_deletes_no_replica() -> None:
    with World(1) as world:
        bench = Bench(world, knobs=KNOBS)

        async def main() -> None:
            bench.start()
            await bench.sleep(1)
            client = bench.client()
            await client.create_table("a", COLUMNS, 2, 3)
            await bench.created(client, "a")
            session, leader = await bench.session(), await bench.leader()
            await bench.sleep(KNOBS.session_silence_ms / 1000 + 5)
            reply = await bench.ask(leader, DeleteTable(RequestId(session, 1, 1), "a"), 5)
            assert isinstance(reply, ErrorReply) and reply.kind == "SESSION_ENDED", reply
            await bench.sleep(2)
            tables = await bench.ask(leader, ListTables())
            assert isinstance(tables, ListTablesReply) and [table.name for table in tables.tables] == ["a"]
            assert not any(server.deletes for server in bench.servers)

        world.run(asyncio.wait_for(main(), 300))
