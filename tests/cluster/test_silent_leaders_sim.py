"""A leader without a lease falls silent like any other, and must not wait for what it is promised itself meanwhile."""

from __future__ import annotations

import asyncio

import msgspec

from harness.cell_address import CellAddress
from tests.cluster.table_rig import KNOBS, TableRig, play

LASTING = msgspec.structs.replace(KNOBS, quiesce_after_ms=20, tablet_lease_ms=4_000, support_ms=4_000)


def test_a_leader_that_falls_silent_while_it_waits_gets_its_lease_all_the_same() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        client = rig.database.admin_client(20)
        await client.write("registers", CellAddress(0), 1)
        await asyncio.sleep(2)
        name, _ = await rig.leader()
        await rig.database.kill(name)
        await asyncio.sleep(0.5)
        await rig.database.start(name)
        began_ns = rig.world.loop.now_ns
        write = asyncio.create_task(client.write("registers", CellAddress(0), 2))
        while not write.done():
            await rig.database.statuses()
            await asyncio.sleep(0.2)
        assert write.result().reply.applied and rig.world.loop.now_ns - began_ns < 8_000_000_000

    play(scenario, knobs=LASTING)
