"""Strong reads that another replica than the leaseholder serves (R8)."""

from __future__ import annotations

import asyncio

import pytest

from cluster.wire.messages import ArmedReply, ArmFailpoint, Done, ReadCell, ReadReply, WriteCell
from cluster.wire.staleness import Bound, HowServed
from tests.cluster.tserver.tserver_rig import NAMES, TserverRig, simulate

ANYWHERE = ReadCell("tab", 1, 0, 0, bound=Bound(anywhere=True))


async def read_anywhere(servers: TserverRig, name: str) -> ReadReply:
    reply = await servers.call(name, ANYWHERE)
    assert isinstance(reply, ReadReply)
    return reply


async def begun(servers: TserverRig) -> tuple[str, str]:
    """The leaseholder and another replica, after a write."""
    await servers.created()
    assert isinstance(await servers.write(1, 1), Done)
    holder = await servers.leader()
    return holder, next(name for name in NAMES if name != holder)


@pytest.mark.parametrize("flaw", [None, "index-before-latches"])
def test_any_replica_finds_what_the_leaseholder_would(flaw: str | None) -> None:
    """A change in flight when the read began is found too; with the flaw the position is from before it."""

    async def scenario(servers: TserverRig) -> None:
        holder, other = await begun(servers)
        delay = ArmFailpoint("tablet.before_propose", "delay", seconds=0.3)
        assert isinstance(await servers.call(holder, delay), ArmedReply)
        write = asyncio.create_task(servers.call(holder, WriteCell(servers.rid(2), "tab", 1, 0, 0, 2)))
        await servers.clock.sleep(0.1)
        read = await read_anywhere(servers, other)
        written = await write
        assert isinstance(written, Done) and written.timestamp <= read.timestamp
        assert read.value == (2 if flaw is None else 1)
        assert isinstance(read.served, HowServed) and read.served.path == "strong-anywhere"
        assert (await read_anywhere(servers, holder)).value == 2

    simulate(3, scenario, flaws=() if flaw is None else (flaw,))


@pytest.mark.parametrize("flaw", [None, "strong-unrecorded"])
def test_nothing_is_written_under_what_another_replica_served(flaw: str | None) -> None:
    async def scenario(servers: TserverRig) -> None:
        holder, other = await begun(servers)
        read = await read_anywhere(servers, other)
        written = await servers.call(holder, WriteCell(servers.rid(2), "tab", 1, 0, 0, 2, read.timestamp - 1))
        assert isinstance(written, Done) and (written.timestamp > read.timestamp) == (flaw is None)

    simulate(3, scenario, flaws=() if flaw is None else (flaw,))


def test_who_reaches_no_leaseholder_serves_nothing_strong() -> None:
    async def scenario(servers: TserverRig) -> None:
        _, other = await begun(servers)
        servers.cut_off(other)
        reply = await servers.call(other, ANYWHERE, timeout_s=10.0)
        assert not isinstance(reply, ReadReply)

    simulate(3, scenario)
