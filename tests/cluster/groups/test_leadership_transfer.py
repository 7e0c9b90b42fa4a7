"""Operators have a leader hand over to a voter, and its lease goes with it: of tablets, and of the catalog (§3.10)."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from cluster.client.client import ClusterClient
from cluster.wire.messages import CATALOG_GROUP, ErrorReply
from cluster.wire.operating import LeadershipReply, TransferLeadership
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from harness.protocols import GroupStatus
from tests.cluster.table_rig import KNOBS, TableRig, play
from workloads.api import resolve_options
from workloads.registry import WORKLOADS


async def replica(rig: TableRig, node: str, group: str) -> GroupStatus:
    status = await rig.database.status(node)
    assert status is not None
    return next(each for each in status.groups if each.group == group)


def client_of(rig: TableRig, timeout_s: float = 5.0) -> ClusterClient:
    return rig.database.admin_client(timeout_s)


async def ask(rig: TableRig, node: str, group: str, target: str) -> LeadershipReply:
    request = TransferLeadership(group, target)
    return await client_of(rig, 8.0).ask_once(rig.database.address(node), request, LeadershipReply)


@pytest.mark.parametrize("role", ["tserver", "master"])
def test_the_voter_that_was_chosen_leads_in_the_next_term_and_serves_at_once(role: str) -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        await rig.write(5)
        for _ in range(4):
            leader, group = await rig.leader(role)
            before = await replica(rig, leader, group)
            target = sorted(set(before.voters) - {leader})[-1]
            reply = await ask(rig, leader, group, target)
            assert (reply.led, reply.leader, reply.term) == (before.term, target, before.term + 1)
            assert reply.lease_given_up is (role == "tserver"), "masters keep no record of leases"
            began_ns = rig.database.admin_clock().monotonic_ns()
            while not (await replica(rig, target, group)).lease_valid:
                await asyncio.sleep(0.01)
            await rig.write(5)
            await client_of(rig).list_tables()
            assert rig.database.admin_clock().monotonic_ns() - began_ns < 5e8, "nobody waited for a lease to be over"

    play(scenario)


def test_nothing_that_was_written_is_lost_while_leaders_hand_over_again_and_again() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        written: dict[int, int] = {}

        async def writes() -> None:
            client = client_of(rig)
            for value in range(120):
                await client.write("registers", CellAddress(value % 5), value)
                written[value % 5] = value
                await asyncio.sleep(0.02)

        load = asyncio.create_task(writes())
        moved = 0
        while not load.done():
            leader, group = await rig.leader()
            target = next(each for each in (await replica(rig, leader, group)).voters if each != leader)
            moved += await rig.database.transfer_leadership(leader, group, target, 2.0) is None
            await asyncio.sleep(0.2)
        await load
        assert moved > 5
        for key, value in written.items():
            assert (await client_of(rig).read("registers", CellAddress(key))).reply.value == value
        assert (await rig.database.invariants()).breaches == ()

    play(scenario)


def test_nothing_is_closed_under_a_lease_that_is_given_up() -> None:
    """A change that was evaluated before comes to its log position while the record of it waits for a quorum."""

    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        leader, group = await rig.leader()
        voters = (await replica(rig, leader, group)).voters
        for voter in voters:
            rig.world.node(voter).disk.extra_sync_ns = 50_000_000 if voter != leader else 0
        await rig.database.arm(leader, "tablet.before_propose", "delay", times=1, seconds=0.1)
        change = asyncio.create_task(client_of(rig).write("registers", CellAddress(1), 1))
        await asyncio.sleep(0.08)
        target = next(each for each in voters if each != leader)
        assert await rig.database.transfer_leadership(leader, group, target, 2.0) is None
        await change
        record = await rig.database.invariants()
        assert record.checked["closed-within-the-lease"] >= 3, "the change was stamped by both holders"
        assert record.breaches == ()

    play(scenario, knobs=replace(KNOBS, closed_lag_ms=0))


def test_what_cannot_be_is_refused_with_a_type_and_a_sentence_and_changes_nothing() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        leader, group = await rig.leader()
        before = await replica(rig, leader, group)
        follower, silent = (each for each in before.voters if each != leader)
        stranger = next(each for each in rig.nodes("tserver") if each not in before.voters)
        master, _ = await rig.leader("master")
        asked = {
            ("not-the-leader", "this replica does not lead the group"): (follower, group, leader),
            ("invalid", f"{stranger} is no voter of the group"): (leader, group, stranger),
            ("invalid", f"{leader} leads the group already"): (leader, group, leader),
            ("not-found", "no tablet nothing here"): (leader, "nothing", follower),
            ("not-found", f"masters have no group {group}"): (master, group, follower),
            ("invalid", f"{leader} is no voter of the group"): (master, CATALOG_GROUP, leader),
        }
        for (kind, words), request in asked.items():
            with pytest.raises(DefiniteError) as refused:
                await ask(rig, *request)
            assert (refused.value.kind, str(refused.value)) == (kind, words)
            said = await rig.database.transfer_leadership(*request, timeout_s=2.0)
            assert said == f"{kind}: {words}"
        await rig.database.pause(silent)
        await asyncio.sleep(3.0)
        with pytest.raises(DefiniteError) as refused:
            await ask(rig, leader, group, silent)
        assert (refused.value.kind, str(refused.value)) == (
            "not-caught-up",
            f"{silent} has not answered for an election timeout",
        )
        after = await replica(rig, leader, group)
        assert (after.role, after.term) == ("leader", before.term)
        await rig.write(3)

    play(scenario)


def test_a_leader_that_nobody_took_over_from_leads_on_and_acquires_the_lease_anew() -> None:
    """The voter falls silent right before it is asked for: the record that gave the lease up is committed by then."""

    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        leader, group = await rig.leader()
        before = await replica(rig, leader, group)
        target = next(each for each in before.voters if each != leader)
        await rig.database.pause(target)
        said = await rig.database.transfer_leadership(leader, group, target, 4.0)
        assert said == f"timed-out: {target} did not take over in time: the leader leads on"
        assert (await replica(rig, leader, group)).role == "leader"
        await rig.write(3)

    play(scenario)


def test_replicas_that_know_no_leader_refuse() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin(table=False)
        await rig.database.setup_workload("write-atomicity", resolve_options(WORKLOADS["write-atomicity"], {}))
        client = client_of(rig)
        (table,) = await client.list_tables()
        tablet = (await client.table_locations(table.name)).tablets[0]
        request = TransferLeadership(tablet.tablet_id, "t1")
        with pytest.raises(DefiniteError, match="its replicas are equals"):
            await client.ask_once(tablet.replicas[0].address, request, ErrorReply)

    play(scenario)
