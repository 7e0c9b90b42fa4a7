"""What a leader master answers to heartbeats, by what came of replicating their reports (M3, M4, M6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.groups.waiters import OutcomeUnknown
from cluster.knobs import Knobs
from cluster.master.catalog import Catalog, encode_batch
from cluster.master.heartbeats import heartbeat
from cluster.master.manager import CatalogManager, Refusal
from cluster.master.records import TabletState
from cluster.master.tservers import ServerMap
from cluster.raft.types import Configuration, Member
from cluster.wire.messages import Heartbeat, HeartbeatReply, TabletReport, encode_reports
from tests.cluster.master.catalog_records import TABLE, VOTERS, tablet_record
from tests.support.played import played

REPORT = TabletReport("tablet", "table", "RUNNING", 1, "t1", VOTERS, (), 0, 0)


class Leader:
    """The group of a master that leads alone; `late` holds what is replicated only with the next batch."""

    def __init__(self, catalog: Catalog) -> None:
        self.configuration = self.committed_configuration = Configuration((Member("m1", "m1:7051"),))
        self.is_leader, self.leader, self.term, self.installing = True, "m1", 3, False
        self.in_time = True
        self._catalog, self._index, self._late = catalog, 1, list[bytes]()

    async def read_barrier(self, timeout_s: float) -> bool:
        return True

    async def propose(self, command: bytes, timeout_s: float) -> bytes:
        self._late.append(command)
        if not self.in_time:
            raise OutcomeUnknown
        outcome = b""
        while self._late:
            self._index += 1
            outcome = self._catalog.apply(self._index, self._late.pop(0))
        return outcome


Scenario = Callable[[CatalogManager, Leader], Awaitable[None]]


def play(scenario: Scenario) -> None:
    """The leader of one table, whose only tablet was given to three servers and has not been heard of."""

    async def main() -> None:
        catalog = Catalog()
        catalog.apply(1, encode_batch([TABLE], [tablet_record()]))
        clock = SimpleNamespace(monotonic_ns=lambda: 0, wall_ns=lambda: 0)
        ports: Any = SimpleNamespace(node_id="m1", clock=clock, failpoints=SimpleNamespace(armed={}))
        leader = Leader(catalog)
        group: Any = leader
        await scenario(CatalogManager(ports, catalog, group, ServerMap(1), Knobs()), leader)

    asyncio.run(main())


def beat(*reports: TabletReport, incarnation: int = 1, full: bool = False) -> Heartbeat:
    return Heartbeat("t1", incarnation, "t1:7050", "z1", 1, full, encode_reports(reports))


async def needs_full(manager: CatalogManager, request: Heartbeat) -> bool:
    reply = await heartbeat(manager, request)
    assert isinstance(reply, HeartbeatReply) and reply.leader_term == 3
    return reply.need_full_report


@played(play)
async def test_a_report_is_taken_and_its_tablet_runs(manager: CatalogManager, leader: Leader, /) -> None:
    assert not await needs_full(manager, beat(REPORT, full=True))
    record = (await manager.lead()).caches.tablets["tablet"]
    assert (record.state, record.confirmed) == (TabletState.RUNNING, ("t1",))


@played(play)
async def test_a_life_of_a_server_that_gave_no_full_report_is_asked_for_one(
    manager: CatalogManager, leader: Leader, /
) -> None:
    assert await needs_full(manager, beat())
    assert not await needs_full(manager, beat(full=True))
    assert not await needs_full(manager, beat())
    assert await needs_full(manager, beat(incarnation=2))


@played(play)
async def test_what_was_not_replicated_in_time_is_not_answered_so_that_it_is_told_again(
    manager: CatalogManager, leader: Leader, /
) -> None:
    leader.in_time = False
    with pytest.raises(Refusal, match="TIMED_OUT"):
        await heartbeat(manager, beat(REPORT, full=True))


@played(play)
async def test_whoever_reports_what_an_earlier_change_of_unknown_outcome_overtakes_is_asked_for_everything(
    manager: CatalogManager, leader: Leader, /
) -> None:
    leader.in_time = False
    with pytest.raises(Refusal):
        await heartbeat(manager, beat(REPORT, full=True))
    leader.in_time = True
    assert await needs_full(manager, beat(REPORT)), "the one before took effect after all"
    assert not await needs_full(manager, beat(REPORT, full=True))
    assert (await manager.lead()).caches.tablets["tablet"].revision == 2
