"""Reads and changes that meet an open intent (R9, G6). Nobody lays any yet: these tests lay them in the states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.knobs import Knobs
from cluster.ranges.requests import MARKER
from cluster.ranges.tablet import TabletMachine
from cluster.store.cells import Key, Value
from cluster.store.intents import Intent
from cluster.store.schema import Column, encode_key
from cluster.wire.messages import (
    Cell,
    CompareAndSet,
    Done,
    DoneReply,
    ErrorReply,
    ReadCell,
    ReadReply,
    ReadRows,
    Reply,
    RowRange,
    WriteCell,
    WriteCells,
)
from cluster.wire.rows import ChangeRow, GetRow, ScanRows, TypedRowsReply
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from harness.ports.sim.world import World
from tests.cluster.table_rig import KNOBS, TableRig, play
from tests.cluster.tserver.tserver_rig import NAMES, TserverRig, create_on

KEY: Key = (1, 0, 0)
COLUMNS = (Column(0, "name", "string", key=True, nullable=False), Column(1, "age", "int64"))
ROW = encode_key(COLUMNS, {"name": "ada"})

Scenario = Callable[[TserverRig, str], Coroutine[Any, Any, None]]


class States:
    """Every state machine of the cluster: what a command would do to all of them is done to them by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machines: list[TabletMachine] = []
        begin = TabletMachine.__init__

        def begun(machine: TabletMachine, *arguments: Any) -> None:
            begin(machine, *arguments)
            self.machines.append(machine)

        monkeypatch.setattr(TabletMachine, "__init__", begun)

    async def lay(self, key: Key, timestamp: int, value: Value) -> None:
        """Once all have applied all that was written before."""
        while len({machine.digest for machine in self.machines}) > 1:
            await asyncio.sleep(0.01)
        for machine in self.machines:
            machine._store.lay(key, Intent("t", timestamp, value, timestamp))

    def resolve(self, key: Key, committed: int | None) -> None:
        for machine in self.machines:
            assert machine._store.resolve(key, "t", committed)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> States:
    return States(monkeypatch)


def simulate(scenario: Scenario, columns: tuple[Column, ...] = ()) -> None:
    async def led(servers: TserverRig) -> None:
        servers.start()
        await servers.clock.sleep(0.1)
        for name in NAMES:
            created = replace(create_on(name), columns=columns, schema_version=1)
            assert await servers.call(name, created) == DoneReply(True)
        await servers.registered()
        for name in NAMES:
            ask = GetRow("tab", "table", 1, ROW, (), 1) if columns else ReadCell("tab", 1, 0, 0)
            if not isinstance(await servers.call(name, ask), ErrorReply):
                await scenario(servers, name)
                return
        raise AssertionError("nobody leads")

    with World(3) as world:
        world.run(led(TserverRig(world, (), Knobs(session_silence_ms=10_000_000, push_after_ms=0))))
        assert world.errors == []


def met(reply: Reply) -> bool:
    """Whether an intent stood in the way, for certain without effect."""
    return isinstance(reply, ErrorReply) and reply.kind == "INTENT_OPEN" and reply.definite


def written(reply: Reply) -> int:
    assert isinstance(reply, Done) and reply.applied, reply
    return reply.timestamp


@pytest.mark.parametrize("commits", [True, False])
def test_what_meets_an_intent_is_refused_for_certain_and_works_once_it_is_resolved(
    states: States, commits: bool
) -> None:
    async def scenario(servers: TserverRig, leader: str) -> None:
        first = written(await servers.call(leader, WriteCell(servers.rid(1), "tab", 1, 0, 0, 5)))
        await states.lay(KEY, first + 1, 6)
        change = CompareAndSet(servers.rid(2), "tab", 1, 0, 0, 6 if commits else 5, 7)
        for request in (
            ReadCell("tab", 1, 0, 0),
            ReadCell("tab", 1, 0, 0, first + 1),
            ReadRows("tab", 1, (RowRange(4, 5), RowRange(0, 2))),
            change,
            WriteCell(servers.rid(3), "tab", 1, 0, 0, 8),
            WriteCells(servers.rid(4), "tab", 1, (Cell(3, 0, 8), Cell(0, 0, 8))),
        ):
            assert met(await servers.call(leader, request)), request
        reply = await servers.call(leader, ReadCell("tab", 1, 0, 0, first))
        assert isinstance(reply, ReadReply) and (reply.value, reply.timestamp) == (5, first)
        written(await servers.call(leader, WriteCell(servers.rid(5), "tab", 1, 3, 0, 8)))
        states.resolve(KEY, first + 2 if commits else None)
        written(await servers.call(leader, change))
        reply = await servers.call(leader, ReadCell("tab", 1, 0, 0))
        assert isinstance(reply, ReadReply) and reply.value == 7

    simulate(scenario)


def test_an_intent_on_a_rows_marker_stands_in_the_way_of_all_that_touches_the_row(states: States) -> None:
    def change(servers: TserverRig, sequence: int, kind: Any = "upsert") -> ChangeRow:
        return ChangeRow(servers.rid(sequence), "tab", "table", 1, ROW, kind, ((1, sequence),), 1)

    async def scenario(servers: TserverRig, leader: str) -> None:
        first = written(await servers.call(leader, change(servers, 1)))
        await states.lay((1, ROW, MARKER), first + 1, True)
        read, scan = GetRow("tab", "table", 1, ROW, (1,), 1), ScanRows("tab", "table", 1, b"", None, (1,), 10, 1)
        for request in (read, scan, change(servers, 2, "insert"), change(servers, 3, "update"), change(servers, 4)):
            assert met(await servers.call(leader, request)), request
        states.resolve((1, ROW, MARKER), None)
        reply = await servers.call(leader, read)
        assert isinstance(reply, TypedRowsReply) and reply.rows[0].values == (1,)
        # Where one is on a cell alone, a change is refused too, rather than brought to the states.
        await states.lay((1, ROW, 1), first + 1, 9)
        assert met(await servers.call(leader, read))
        assert met(await servers.call(leader, change(servers, 5)))
        states.resolve((1, ROW, 1), first + 1)
        reply = await servers.call(leader, read)
        assert isinstance(reply, TypedRowsReply) and reply.rows[0].values == (9,)

    simulate(scenario, COLUMNS)


def test_clients_try_again_until_the_intent_is_resolved_or_their_time_is_over(states: States) -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        client = rig.database.admin_client(2.0)
        await client.write("registers", CellAddress(0), 1)
        await asyncio.sleep(0.2)  # followers have carried it out, too
        (key,) = states.machines[0]._store._cells
        far = 1 + states.machines[0].last_write
        await states.lay(key, far, 5)
        with pytest.raises(DefiniteError) as refused:
            await client.read("registers", CellAddress(0))
        assert refused.value.kind == "intent-open"
        pending = asyncio.ensure_future(client.write("registers", CellAddress(0), 2))
        await asyncio.sleep(0.5)
        assert not pending.done()
        states.resolve(key, None)
        await pending
        assert (await client.read("registers", CellAddress(0))).reply.value == 2

    play(scenario, knobs=replace(KNOBS, push_after_ms=0))
