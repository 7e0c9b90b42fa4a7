"""Reads that need not be of now (R7): what a client may wish for, and what it is told."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cluster.client.client import ClusterClient
from cluster.client.reading import ReadWish
from cluster.wire.messages import ErrorReply, ReadCell, ReadReply, decode_reply, encode
from cluster.wire.staleness import Bound, HowServed
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from harness.ports.api import node_of
from tests.cluster.table_rig import KNOBS, TableRig, play

CELL = CellAddress(0)
S = 1_000_000_000


async def begun(rig: TableRig) -> tuple[ClusterClient, int]:
    """A client, and when it wrote 1 to the cell."""
    await rig.begin()
    client = rig.database.admin_client(5)
    return client, (await client.write("registers", CELL, 1)).reply.timestamp


def test_a_read_is_served_at_the_time_or_within_the_bound_that_is_wished() -> None:
    async def scenario(rig: TableRig) -> None:
        client, first = await begun(rig)
        second = (await client.write("registers", CELL, 2)).reply.timestamp
        assert (await client.read("registers", CELL, as_of=first)).reply.value == 1
        assert (await client.read("registers", CELL, as_of=first - 1)).reply.value is None
        for wish in (ReadWish(max_staleness=0), ReadWish(min_timestamp=second)):
            read = await client.read("registers", CELL, **wish)
            assert read.reply.value == 2 and read.reply.timestamp >= second
        now = (await client.read("registers", CELL)).reply.timestamp
        ago = (await client.read("registers", CELL, as_of=-5 * S)).reply
        assert ago.value is None and now - 5 * S <= ago.timestamp < now - 4 * S

    play(scenario)


@pytest.mark.parametrize(
    ("kind", "wish"),
    [
        ("two-bounds", ReadWish(as_of=1, min_timestamp=1)),
        ("two-bounds", ReadWish(max_staleness=1, min_timestamp=1)),
        ("two-bounds", ReadWish(as_of=1, strong_anywhere=True)),
        ("negative-bound", ReadWish(max_staleness=-1)),
        ("negative-bound", ReadWish(min_timestamp=-1)),
        ("invalid", ReadWish(nearest_only=True)),
        ("future-time", ReadWish(as_of=1 << 62)),
        ("future-time", ReadWish(min_timestamp=1 << 62)),
        ("too-old", ReadWish(as_of=0)),
    ],
)
def test_a_wish_that_cannot_be_is_refused_by_its_name(kind: str, wish: ReadWish) -> None:
    async def scenario(rig: TableRig) -> None:
        client, _ = await begun(rig)
        await asyncio.sleep(1)  # all replicas have applied the write
        with pytest.raises(DefiniteError) as refused:
            await client.read("registers", CELL, **wish)
        assert refused.value.kind == kind

    play(scenario)


CLOSING = msgspec.structs.replace(KNOBS, side_transport_ms=200, closed_lag_ms=300)


async def holder_and_others(rig: TableRig) -> tuple[str, list[str]]:
    """The tablet's leaseholder, and the other nodes that have a replica."""
    name, group = await rig.leader()
    status = await rig.database.status(name)
    assert status is not None
    voters = next(each for each in status.groups if each.group == group).voters
    return name, [each for each in map(node_of, voters) if each != name]


async def read_of(rig: TableRig, name: str, as_of: int) -> tuple[ReadReply | ErrorReply, HowServed]:
    """What one node answers to a read as of a time."""
    _, group = await rig.leader()
    ports = rig.world.harness_ports("reader")
    answer = await ports.network.call(f"{name}:7050", encode(ReadCell(group, *CELL, as_of)), 2.0)
    reply = decode_reply(answer)
    assert isinstance(reply, ReadReply | ErrorReply) and reply.served is not msgspec.UNSET
    return reply, reply.served


@pytest.mark.parametrize("quiesce_after_ms", [0, 200])
def test_an_idle_range_is_closed_and_served_by_every_replica(quiesce_after_ms: int) -> None:
    """Silent by promises, or awake: nothing is written, and a time after the last write is closed everywhere."""

    async def scenario(rig: TableRig) -> None:
        client, written = await begun(rig)
        holder, others = await holder_and_others(rig)
        for _ in range(4):
            await asyncio.sleep(5)
            later = (await client.read("registers", CELL)).reply.timestamp
            reply, served = await read_of(rig, others[0], later)
            assert isinstance(reply, ErrorReply) and reply.kind == "NOT_CLOSED"
            await asyncio.sleep(0.3 + 2 * 0.2 + 0.1)
            for name in (holder, *others):
                for as_of, value in ((later, 1), (written - 1, None)):
                    reply, served = await read_of(rig, name, as_of)
                    assert isinstance(reply, ReadReply) and (reply.value, reply.timestamp) == (value, as_of)
                    assert served.path == ("closed-at-leaseholder" if name == holder else "follower")
                    assert served.known_by

    play(scenario, knobs=msgspec.structs.replace(CLOSING, quiesce_after_ms=quiesce_after_ms))


@pytest.mark.parametrize("flaw", [None, "idle-never-closes"])
def test_an_idle_range_is_closed_while_a_member_is_down(flaw: str | None) -> None:
    """It can't fall silent, so its record is renewed though nobody writes; the watch sees where it is not."""

    async def scenario(rig: TableRig) -> None:
        await begun(rig)
        _, others = await holder_and_others(rig)
        await rig.database.kill(others[0])
        await asyncio.sleep(10)
        later = rig.world.harness_ports("reader").clock.wall_ns()
        await asyncio.sleep(20)
        reply, _ = await read_of(rig, others[1], later)
        assert isinstance(reply, ErrorReply if flaw else ReadReply)
        assert list((await rig.database.invariants()).broken) == (["nothing-stands-still"] if flaw else [])

    knobs = msgspec.structs.replace(CLOSING, closed_lag_ms=1_500)
    play(scenario, knobs=knobs, flaws=[flaw] if flaw else [])


@pytest.mark.parametrize("away", ["holder", "all but one"])
def test_what_was_closed_is_served_whoever_is_away(away: str) -> None:
    async def scenario(rig: TableRig) -> None:
        client, written = await begun(rig)
        holder, others = await holder_and_others(rig)
        await asyncio.sleep(2)
        for name in [holder] if away == "holder" else [holder, others[1]]:
            await rig.database.kill(name)
        for wish in (ReadWish(as_of=written), ReadWish(max_staleness=20 * S), ReadWish(min_timestamp=written)):
            read = await client.read("registers", CELL, **wish)
            assert read.reply.value == 1 and read.served.path == "follower"
            assert read.reply.timestamp >= written
        if away == "all but one":
            with pytest.raises(DefiniteError) as refused:
                await client.read("registers", CELL, max_staleness=0, nearest_only=True)
            assert refused.value.kind == "not-closed"

    play(scenario, knobs=CLOSING)


def test_reads_within_a_bound_are_monotonic_by_the_time_that_the_last_one_told() -> None:
    async def scenario(rig: TableRig) -> None:
        client, last = await begun(rig)
        for value in range(2, 30):
            wrote = (await client.write("registers", CELL, value)).reply.timestamp
            read = await client.read("registers", CELL, min_timestamp=last)
            assert read.reply.timestamp >= last and read.served.asked == last
            last = max(read.reply.timestamp, wrote if value % 3 == 0 else 0)
            await asyncio.sleep(0.1)

    play(scenario, knobs=CLOSING)


def test_a_strong_read_elsewhere_tells_what_is_closed_there_by_streams_too() -> None:
    """Else whoever goes by it takes an idle range for one that nobody closes, and asks the leaseholder from then on."""

    async def scenario(rig: TableRig) -> None:
        _, written = await begun(rig)
        _, others = await holder_and_others(rig)
        await asyncio.sleep(5)
        _, group = await rig.leader()
        network = rig.world.harness_ports("reader").network
        strong = ReadCell(group, *CELL, bound=Bound(anywhere=True))
        reply = decode_reply(await network.call(f"{others[0]}:7050", encode(strong), 2.0))
        assert isinstance(reply, ReadReply) and isinstance(reply.served, HowServed)
        assert reply.served.path == "strong-anywhere" and reply.served.closed > written + 4 * S

    play(scenario, knobs=CLOSING)
