"""GLOBAL tables (R6): strong reads at every replica, answers that wait for their time, policies that change."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cluster.client.client import ClusterClient
from cluster.deploy.adapter import REGISTER_COLUMNS
from cluster.wire.messages import (
    Cell,
    Done,
    ErrorReply,
    ReadCell,
    ReadReply,
    RegisterSession,
    RequestId,
    SessionReply,
    WriteCell,
    decode_reply,
    encode,
)
from cluster.wire.staleness import HowServed
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from harness.ports.api import node_of
from tests.cluster.table_rig import KNOBS, TableRig, play

CELL = CellAddress(0)
MS = 1_000_000
LEADING = msgspec.structs.replace(KNOBS, side_transport_ms=200, tablet_lease_ms=4_000, support_ms=4_000)


async def begun(rig: TableRig, policy: str = "global") -> ClusterClient:
    """A client of a table with this policy, which it wrote 1 to."""
    await rig.begin()
    client = rig.database.admin_client(5)
    await client.catalog.alter_table("registers", policy=policy)
    while not (await client.catalog.is_alter_done("registers")).done:
        await asyncio.sleep(0.05)
    await client.write("registers", CELL, 1)
    await asyncio.sleep(1)
    return client


async def members(rig: TableRig) -> tuple[str, str, list[str]]:
    """The tablet, its leaseholder, and the other nodes that have a replica."""
    name, group = await rig.leader()
    status = await rig.database.status(name)
    assert status is not None
    voters = next(each for each in status.groups if each.group == group).voters
    return group, name, [each for each in map(node_of, voters) if each != name]


async def ask(rig: TableRig, name: str, read: ReadCell) -> tuple[ReadReply | ErrorReply, HowServed]:
    """What one node answers."""
    answer = await rig.world.harness_ports("reader").network.call(f"{name}:7050", encode(read), 5.0)
    reply = decode_reply(answer)
    assert isinstance(reply, ReadReply | ErrorReply) and reply.served is not msgspec.UNSET, reply
    return reply, reply.served


@pytest.mark.parametrize("quiesce_after_ms", [0, 200])
def test_every_replica_serves_strong_reads_and_writes_wait_for_their_time(quiesce_after_ms: int) -> None:
    async def scenario(rig: TableRig) -> None:
        client = await begun(rig)
        group, holder, others = await members(rig)
        for value in (2, 3, 4):
            began_ns = rig.world.loop.now_ns
            done = (await client.write("registers", CELL, value)).reply
            took_ns = rig.world.loop.now_ns - began_ns
            assert isinstance(done.waited_ns, int) and 500 * MS < done.waited_ns < took_ns < 1_500 * MS
            for name in (holder, *others):
                reply, served = await ask(rig, name, ReadCell(group, *CELL))
                assert isinstance(reply, ReadReply) and reply.value == value and reply.timestamp >= served.asked
                assert served.path == ("global-at-leaseholder" if name == holder else "global") and served.known_by
            await asyncio.sleep(value)
        read = await client.read("registers", CELL)
        assert read.reply.value == 4 and read.served.path.startswith("global")

    play(scenario, knobs=msgspec.structs.replace(LEADING, quiesce_after_ms=quiesce_after_ms))


def test_a_version_above_the_begin_and_no_higher_than_the_limit_moves_the_read_which_waits_for_it() -> None:
    async def scenario(rig: TableRig) -> None:
        await begun(rig)
        group, holder, others = await members(rig)
        network, address = rig.world.harness_ports("writer").network, f"{holder}:7050"
        session = decode_reply(await network.call(address, encode(RegisterSession(group)), 5.0))
        assert isinstance(session, SessionReply)
        writing = WriteCell(RequestId(session.session, 1, 1), group, *CELL, 2)
        write = asyncio.create_task(network.call(address, encode(writing), 5.0))
        reply, served = await ask(rig, others[0], ReadCell(group, *CELL))
        while not (isinstance(reply, ReadReply) and reply.value == 2):  # until it is uncertain, not yet acknowledged
            reply, served = await ask(rig, others[0], ReadCell(group, *CELL))
        written = decode_reply(await write)
        assert isinstance(written, Done) and reply.timestamp == written.timestamp > served.asked
        assert served.blocked_ns > 0
        now = reply.timestamp
        for begin, value in ((now - 500 * MS, 2), (now - 501 * MS, 1)):
            reply, served = await ask(rig, others[0], ReadCell(group, *CELL, begun=begin))
            assert isinstance(reply, ReadReply) and (reply.value, served.asked) == (value, begin)

    play(scenario, knobs=LEADING)


def test_who_lacks_what_is_closed_refuses_and_the_leaseholder_serves_the_same_begin() -> None:
    """So does who has collected what was there at the begin, as where a read was tried for long."""

    async def scenario(rig: TableRig) -> None:
        client = await begun(rig)
        group, holder, others = await members(rig)
        now = (await client.read("registers", CELL)).reply.timestamp
        for begin in (now + 10_000 * MS, now - 10_000 * MS):
            read = ReadCell(group, *CELL, begun=begin)
            reply, served = await ask(rig, others[0], read)
            assert isinstance(reply, ErrorReply) and reply.kind == "NOT_CLOSED" and served.asked == begin
            reply, at_holder = await ask(rig, holder, read)
            assert isinstance(reply, ReadReply) and reply.value == 1 and at_holder.path == "leaseholder"
        reply, _ = await ask(rig, others[0], ReadCell(group, *CELL, begun=served.closed - 500 * MS))
        assert isinstance(reply, ReadReply) and reply.value == 1

    play(scenario, knobs=msgspec.structs.replace(LEADING, version_retention_ms=1_000))


def test_what_was_written_ahead_is_waited_for_under_the_next_policy_too() -> None:
    async def scenario(rig: TableRig) -> None:
        client = await begun(rig)
        write = asyncio.create_task(client.write("registers", CELL, 2))
        await asyncio.sleep(0.1)
        await client.catalog.alter_table("registers", policy="lag:100")
        done = (await write).reply
        assert isinstance(done.waited_ns, int) and done.waited_ns > 500 * MS
        told = (await rig.database.policies_in_force()).values()
        assert {each for policies in told for each in policies} == {"lag:100"}
        while isinstance((await client.write("registers", CELL, 3)).reply.waited_ns, int):
            await asyncio.sleep(0.1)
        read = await client.read("registers", CELL)
        assert read.reply.value == 3 and read.served == HowServed(), "strong reads are the leaseholder's again"

    play(scenario, knobs=LEADING)


def test_a_held_write_is_pushed_above_the_limit_of_a_read_that_meets_it() -> None:
    async def scenario(rig: TableRig) -> None:
        client = await begun(rig)
        group, _, others = await members(rig)
        laid = (await client.hold("registers", 0, "t", (Cell(0, 0, 5),))).reply.timestamp
        read = ReadCell(group, *CELL, begun=laid - 100 * MS)
        reply, served = await ask(rig, others[0], read)
        assert isinstance(reply, ReadReply) and reply.value == 1 and served.blocked_ns > 0
        settled = (await client.settle("registers", 0, "t", commits=True)).reply
        assert settled.applied and settled.timestamp > laid - 100 * MS + 500 * MS
        assert (await client.read("registers", CELL)).reply.value == 5

    play(scenario, knobs=msgspec.structs.replace(LEADING, push_after_ms=300))


@pytest.mark.parametrize(
    ("kind", "policy"), [("policy-unmet", "global"), ("invalid", "lag:x"), ("invalid", "lag:9999999")]
)
def test_a_policy_that_cannot_be_kept_or_read_is_refused(kind: str, policy: str) -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        client = rig.database.admin_client(5)
        with pytest.raises(DefiniteError) as refused:
            await client.catalog.alter_table("registers", policy=policy)
        assert refused.value.kind == kind
        with pytest.raises(DefiniteError) as refused:
            await client.create_table("other", REGISTER_COLUMNS, 1, 3, policy=policy)
        assert refused.value.kind == kind

    play(scenario, knobs=msgspec.structs.replace(KNOBS, side_transport_ms=200))


def test_clients_that_have_heard_nothing_of_a_tablet_wait_for_their_first_write() -> None:
    """They gave it up after a second, asked all the others, and found it done when they came back."""

    async def scenario(rig: TableRig) -> None:
        await begun(rig)
        for value in (2, 3):
            done = (await rig.database.admin_client(5).write("registers", CELL, value)).reply
            assert isinstance(done.waited_ns, int), "an answer of which there is a copy waits for nothing"

    play(
        scenario,
        knobs=msgspec.structs.replace(LEADING, max_clock_offset_ms=2_000, tablet_lease_ms=10_000, support_ms=10_000),
    )
