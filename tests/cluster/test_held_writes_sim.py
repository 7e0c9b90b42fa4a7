"""Held writes: laid like any write, settled later; readers wait, push, and find them decided (R5, R7, R9)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cluster.client.client import ClusterClient
from cluster.wire.messages import Cell, ReadCell, ReadReply, decode_reply, encode
from cluster.wire.staleness import Bound, HowServed
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from tests.cluster.table_rig import KNOBS, TableRig, play

CELL, OTHER = CellAddress(0), CellAddress(0, 1)
HELD = msgspec.structs.replace(KNOBS, closed_lag_ms=200, side_transport_ms=100, push_after_ms=300, hold_ms=3_000)


async def unbroken(rig: TableRig) -> None:
    """The invariants saw nothing wrong: of what is laid, committed, read and closed."""
    assert (await rig.database.invariants()).broken == {}


async def holding(rig: TableRig) -> tuple[ClusterClient, int]:
    """A client, and the timestamp at which its transaction `a` holds 2 in a cell that was 1."""
    await rig.begin()
    client = rig.database.admin_client(5)
    await client.write("registers", CELL, 1)
    return client, (await client.hold("registers", 0, "a", (Cell(0, 0, 2), Cell(1, 0, 2)))).reply.timestamp


async def read_of(rig: TableRig, client: ClusterClient, at_holder: bool, bound: Bound) -> ReadReply:
    """What the leaseholder answers, or another replica."""
    holder, group = await rig.leader()
    (tablet,) = (await client.table_locations("registers")).tablets
    address = next(each.address for each in tablet.replicas if each.address.startswith(holder) == at_holder)
    network = rig.world.harness_ports("reader").network
    reply = decode_reply(await network.call(address, encode(ReadCell(group, *CELL, bound=bound)), 2.0))
    assert isinstance(reply, ReadReply), reply
    return reply


@pytest.mark.parametrize("commits", [True, False])
def test_what_is_held_is_committed_below_what_is_closed_by_then_or_let_go(commits: bool) -> None:
    async def scenario(rig: TableRig) -> None:
        client, laid = await holding(rig)
        await asyncio.sleep(1)
        bounded = await client.read("registers", CELL, max_staleness=20_000_000_000)
        assert bounded.reply.value == 1 and bounded.reply.timestamp < laid <= bounded.served.closed, "not waited for"
        settled = (await client.settle("registers", 0, "a", commits)).reply
        assert settled.applied and settled.timestamp >= laid
        for cell, before in ((CELL, 1), (OTHER, None)):
            assert (await client.read("registers", cell)).reply.value == (2 if commits else before)
            assert (await client.read("registers", cell, as_of=settled.timestamp - 1)).reply.value == before
        assert not (await client.settle("registers", 0, "a", commits)).reply.applied
        await unbroken(rig)

    play(scenario, knobs=HELD)


def test_a_read_waits_for_what_is_held_and_finds_it_settled() -> None:
    async def scenario(rig: TableRig) -> None:
        client, laid = await holding(rig)
        await asyncio.sleep(0.5)
        reading = asyncio.create_task(client.read("registers", CELL, as_of=laid + 1))
        await asyncio.sleep(0.15)
        assert not reading.done()
        await client.settle("registers", 0, "a", True)
        read = await reading
        assert read.reply.value == 2 and read.served.blocked_ns > 0
        await unbroken(rig)

    play(scenario, knobs=HELD)


def test_a_read_that_has_waited_pushes_what_is_held_above_itself() -> None:
    async def scenario(rig: TableRig) -> None:
        client, laid = await holding(rig)
        await asyncio.sleep(0.5)
        read = await client.read("registers", CELL, as_of=laid + 1)
        assert read.reply.value == 1 and read.served.blocked_ns >= 300_000_000
        settled = (await client.settle("registers", 0, "a", True)).reply
        assert settled.applied and settled.timestamp > laid + 1
        assert (await client.read("registers", CELL, as_of=laid + 1)).reply.value == 1, "what was read stays true"
        assert (await client.read("registers", CELL)).reply.value == 2
        await unbroken(rig)

    play(scenario, knobs=HELD)


def test_a_bounded_read_that_had_to_wait_says_what_it_could_have_had_without() -> None:
    async def scenario(rig: TableRig) -> None:
        client, laid = await holding(rig)
        await asyncio.sleep(0.5)
        read = await read_of(rig, client, True, Bound(laid + 1))
        assert read.value == 1 and read.timestamp > laid and isinstance(read.served, HowServed)
        assert read.served.blocked_ns > 0 and read.served.resolved < laid

    play(scenario, knobs=HELD)


def test_what_was_held_for_too_long_ends_when_somebody_meets_it() -> None:
    async def scenario(rig: TableRig) -> None:
        client, _ = await holding(rig)
        with pytest.raises(DefiniteError) as refused:
            await rig.database.admin_client(1).write("registers", CELL, 3)
        assert refused.value.kind == "intent-open"
        await asyncio.sleep(3)
        assert (await client.write("registers", CELL, 3)).reply.applied
        assert not (await client.settle("registers", 0, "a", True)).reply.applied
        assert (await client.read("registers", OTHER)).reply.value is None
        await unbroken(rig)

    play(scenario, knobs=HELD)


@pytest.mark.parametrize("commits", [True, False])
def test_a_row_with_a_key_is_held_and_settled_like_any_cell(commits: bool) -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin(table=False)
        await rig.database.setup_workload("catalog", {"buckets": 1})
        client = rig.database.admin_client(5)
        table, key = await client.open_table("registers"), {"row": 1, "salt": 0}
        before = (await table.upsert({**key, "value": 1})).reply.timestamp
        laid = (await table.hold("a", {**key, "value": 2}, before - 1)).reply.timestamp
        assert laid > before
        await asyncio.sleep(0.5)
        bounded = await table.get(key, max_staleness=20_000_000_000)
        assert bounded.value is not None and bounded.value["value"] == 1
        assert bounded.timestamp < laid <= bounded.served.closed, "not waited for"
        with pytest.raises(DefiniteError) as refused:
            await (await rig.database.admin_client(1).open_table("registers")).delete(key)
        assert refused.value.kind == "intent-open"
        settled = (await client.settle("registers", 0, "a", commits)).reply
        assert settled.applied
        for read in (await table.get(key), await table.get(key, as_of=settled.timestamp)):
            assert read.value is not None and read.value["value"] == (2 if commits else 1)
        assert [row["value"] for row in (await table.scan()).value] == [2 if commits else 1]
        await unbroken(rig)

    play(scenario, knobs=HELD)


def test_a_change_gets_the_time_that_it_asks_for_or_a_later_one_where_that_is_closed() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        client = rig.database.admin_client(5)
        first = (await client.write("registers", CELL, 1)).reply.timestamp
        earlier = await client.write("registers", OTHER, 1, first - 1_000)
        assert earlier.requested == earlier.reply.timestamp == first - 1_000
        closed = (await client.read("registers", CELL, max_staleness=20_000_000_000)).served.closed
        pushed = await client.write("registers", OTHER, 2, closed)
        assert pushed.reply.timestamp > closed
        await unbroken(rig)

    play(scenario, knobs=HELD)


@pytest.mark.parametrize("path", ["leaseholder", "strong-anywhere"])
def test_a_strong_read_pushes_what_is_held_above_its_own_time(path: str) -> None:
    """Whoever serves it: what is pushed above one time is met again at a later one."""

    async def scenario(rig: TableRig) -> None:
        client, laid = await holding(rig)
        read = await read_of(rig, client, path == "leaseholder", Bound(anywhere=True))
        assert read.value == 1 and read.timestamp > laid
        settled = (await client.settle("registers", 0, "a", True)).reply
        assert settled.applied and settled.timestamp > read.timestamp
        assert (await client.read("registers", CELL, as_of=read.timestamp)).reply.value == 1, "what was read stays true"
        await unbroken(rig)

    play(scenario, knobs=HELD)
