"""The write index in a whole cluster (G6): it follows what is written, and an invariant finds what goes past it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cluster.client.client import ClusterClient
from cluster.invariants.raft import WRITTEN_STATE
from cluster.ranges.lease import RenewLease
from cluster.ranges.tablet import TabletMachine, decode_command
from cluster.wire.operating import LeadershipReply, TransferLeadership
from harness.cell_address import CellAddress
from harness.protocols import GroupStatus
from tests.cluster.table_rig import KNOBS, TableRig, play

RENEWED = msgspec.structs.replace(KNOBS, quiesce_after_ms=0)
"""Leases of silent groups are not renewed in the log; here no group falls silent."""


async def replicas(rig: TableRig, group: str) -> list[GroupStatus]:
    """The replicas of the group, once all three have applied the same log."""
    for _ in range(100):
        found = [
            each
            for status in (await rig.database.statuses()).values()
            if status is not None
            for each in status.groups
            if each.group == group
        ]
        if len(found) == 3 and len({each.applied_index for each in found}) == 1:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("a replica stays behind")


async def positions(rig: TableRig, group: str) -> tuple[int, int]:
    """(Applied index, write index): the same at all replicas."""
    (found,) = {(each.applied_index, each.write_index) for each in await replicas(rig, group)}
    return found


async def read_after_a_while(client: ClusterClient) -> None:
    """A read that renews a lease."""
    await asyncio.sleep(10)
    await client.read("registers", CellAddress(0))


def test_leases_sessions_and_new_terms_leave_the_write_index_alone_at_every_replica() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        await rig.write(15)
        leader, group = await rig.leader()
        applied, written = await positions(rig, group)
        assert 0 < written <= applied
        client = rig.database.admin_client(5.0)
        await read_after_a_while(client)
        renewed, after = await positions(rig, group)
        assert (renewed > applied, after) == (True, written)
        target = next(node for node in (await replicas(rig, group))[0].voters if node != leader)
        await client.ask_once(rig.database.address(leader), TransferLeadership(group, target), LeadershipReply)
        await read_after_a_while(client)
        led, after = await positions(rig, group)
        assert (led > renewed, after) == (True, written)
        await rig.write(1)
        last, after = await positions(rig, group)
        assert led < after <= last
        record = await rig.database.invariants()
        assert record.breaches == () and record.checked[WRITTEN_STATE] >= 15

    play(scenario, knobs=RENEWED)


def test_a_renewal_that_changes_data_at_all_replicas_alike_breaks_the_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """States stay equal at every index, so that nothing else sees it: followers would serve by a promise too early."""
    apply = TabletMachine.apply

    def planted(machine: TabletMachine, index: int, command: bytes) -> bytes:
        if isinstance(decode_command(command), RenewLease):
            machine.last_write += 1
        return apply(machine, index, command)

    monkeypatch.setattr(TabletMachine, "apply", planted)

    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        await rig.write(1)
        assert (await rig.database.invariants()).breaches == ()
        await read_after_a_while(rig.database.admin_client(5.0))
        assert set((await rig.database.invariants()).broken) == {WRITTEN_STATE}

    play(scenario, knobs=RENEWED)
