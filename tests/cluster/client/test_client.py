"""The client library against scripted masters and tablet servers (M14): whom it asks, what it repeats, how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from cluster.client.client import ClusterClient
from cluster.wire.known_masters import KnownMasters, telling
from cluster.wire.messages import (
    CompareAndSet,
    Done,
    ErrorReply,
    GetTableLocations,
    ListTables,
    ListTablesReply,
    Partition,
    ReadCell,
    ReadReply,
    RegisterSession,
    Replica,
    Reply,
    Request,
    RequestId,
    SessionReply,
    TableLocationsReply,
    TabletLocation,
    WriteCell,
    decode_request,
    encode,
)
from harness.cell_address import CellAddress
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.api import Peer, Ports
from harness.ports.sim.world import World

Answer: TypeAlias = Callable[[Request], Reply]

SERVERS = tuple(Replica(f"t{number}", f"t{number}:1") for number in (1, 2, 3))
DONE = Done(True, None, 7)
ENDED = ErrorReply("SESSION_ENDED", "no such session", False)
TIMEOUT_S = 4.0


def not_the_leader(leader: str | None = None, address: str | None = None) -> ErrorReply:
    return ErrorReply("NOT_THE_LEADER", "no", True, leader, address)


@dataclass
class Scripted:
    """A node that answers as it is told and remembers what it was asked."""

    answer: Answer
    asked: list[Request] = field(default_factory=list)
    masters: KnownMasters = field(default_factory=lambda: KnownMasters(0, ()))

    def start(self, world: World, name: str) -> None:
        async def main(ports: Ports) -> None:
            on_call = telling(self._on_call, lambda: self.masters)
            await ports.network.listen(f"{name}:1", on_call, lambda peer, message: None)
            await asyncio.Event().wait()

        world.node(name).start(main)

    async def _on_call(self, peer: Peer, payload: bytes) -> bytes:
        request = decode_request(payload)
        self.asked.append(request)
        return encode(self.answer(request))


class ClientRig:
    """Masters m1, m2, m3 of which m2 leads, tservers t1, t2, t3 of which `leader` leads the only tablet."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leader = "t2"
        self.hint: str | None = None
        self.tablet_id = "tablet"
        self.sessions: list[int] = []
        follower = not_the_leader("m2", "m2:1")
        self.masters = {name: Scripted(lambda request: follower) for name in ("m1", "m3")}
        self.masters["m2"] = Scripted(self._locate)
        self.servers = {replica.node_id: Scripted(self._serve(replica.node_id)) for replica in SERVERS}
        for name, node in (*self.masters.items(), *self.servers.items()):
            node.start(world, name)
        self.client = ClusterClient(world.harness_ports("c"), ("m1:1", "m3:1", "m2:1"), TIMEOUT_S)

    def _locate(self, request: Request) -> Reply:
        if isinstance(request, ListTables):
            return ListTablesReply(())
        if isinstance(request, GetTableLocations) and request.name == "a":
            location = TabletLocation(self.tablet_id, Partition(0, 1), SERVERS, "RUNNING", self.hint)
            return TableLocationsReply("table", (location,))
        return ErrorReply("NOT_FOUND", "no such table", True)

    def _serve(self, name: str) -> Answer:
        def answer(request: Request) -> Reply:
            assert isinstance(request, (ReadCell, WriteCell, CompareAndSet, RegisterSession))
            asked = request.group if isinstance(request, RegisterSession) else request.tablet_id
            if asked != self.tablet_id:
                return ErrorReply("NOT_FOUND", "no such tablet", True)
            if name != self.leader:
                return not_the_leader(self.leader)
            if isinstance(request, RegisterSession):
                self.sessions.append(100 + len(self.sessions))
                return SessionReply(self.sessions[-1])
            if isinstance(request, ReadCell):
                return ReadReply(42, 7)
            return DONE if request.request_id.session in self.sessions else ENDED

        return answer

    def asked(self, name: str) -> list[Request]:
        return (self.masters | self.servers)[name].asked

    def request_ids(self) -> list[RequestId]:
        requests = [request for node in self.servers.values() for request in node.asked]
        return [request.request_id for request in requests if isinstance(request, (WriteCell, CompareAndSet))]


def play(scenario: Callable[[ClientRig], Awaitable[None]]) -> None:
    with World(1) as world:
        rig = ClientRig(world)

        async def main() -> None:
            await asyncio.sleep(0.01)
            await scenario(rig)

        world.run(main())
        assert world.errors == []
        assert [error for node in world.nodes for error in node.errors] == []


def test_it_follows_hints_and_then_sticks_with_the_leaders_it_knows() -> None:
    async def scenario(rig: ClientRig) -> None:
        reply, node = await rig.client.read("a", CellAddress(5))
        assert (reply.value, reply.timestamp, node) == (42, 7, "t2")
        assert [len(rig.asked(name)) for name in ("m1", "m3", "m2", "t1", "t2", "t3")] == [1, 0, 1, 1, 1, 0]
        for _ in range(3):
            assert (await rig.client.write("a", CellAddress(5), 1)).node == "t2"
        assert [len(rig.asked(name)) for name in ("m1", "m3", "m2", "t1", "t2", "t3")] == [1, 0, 1, 1, 5, 0]
        assert await rig.client.list_tables() == ()
        assert len(rig.asked("m1")) == 1, "it went to the leader master straight"

    play(scenario)


def test_the_masters_hint_is_tried_first() -> None:
    async def scenario(rig: ClientRig) -> None:
        rig.hint = "t2"
        await rig.client.read("a", CellAddress(5))
        assert rig.asked("t1") == [] and len(rig.asked("t2")) == 1

    play(scenario)


def test_a_lost_answer_is_asked_for_again_under_the_same_request_id() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.write("a", CellAddress(5), 1)
        rig.world.network.cut("t2", "c")
        waiting = asyncio.create_task(rig.client.write("a", CellAddress(5), 2))
        await asyncio.sleep(TIMEOUT_S / 2)
        rig.world.network.heal()
        assert (await waiting).reply == DONE
        ids = rig.request_ids()
        assert {each.sequence for each in ids} == {1, 2}
        assert [each.sequence for each in ids].count(2) > 1
        assert len({each for each in ids if each.sequence == 2}) == 1

    play(scenario)


def test_what_may_have_taken_effect_ends_unknown_and_what_cannot_have_ends_definite() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.write("a", CellAddress(5), 1)
        for server in SERVERS:
            rig.world.network.cut(server.node_id, "c")
        with pytest.raises(IndefiniteError) as unknown:
            await rig.client.compare_and_set("a", CellAddress(5), 1, 2)
        assert unknown.value.kind == "timeout"
        with pytest.raises(DefiniteError):
            await rig.client.read("a", CellAddress(5))
        for server in SERVERS:
            rig.world.node(server.node_id).kill()
        rig.world.network.heal()
        with pytest.raises(DefiniteError) as refused:
            await rig.client.write("a", CellAddress(5), 2)
        assert refused.value.kind == "unreachable"

    play(scenario)


def test_a_refusal_after_a_lost_attempt_does_not_make_it_definite() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.write("a", CellAddress(5), 1)
        answers = iter([ErrorReply("TIMED_OUT", "no quorum", False), ErrorReply("INVALID", "bad value", True)])
        for server in rig.servers.values():
            server.answer = lambda request: next(answers)
        with pytest.raises(IndefiniteError):
            await rig.client.write("a", CellAddress(5), 2)
        for server in rig.servers.values():
            server.answer = lambda request: ErrorReply("INVALID", "bad value", True)
        with pytest.raises(DefiniteError, match="bad value") as caught:
            await rig.client.write("a", CellAddress(5), 2)
        assert caught.value.kind == "invalid"

    play(scenario)


def test_it_ends_at_its_deadline_also_while_nodes_are_paused() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.write("a", CellAddress(5), 1)
        for name in ("m1", "m2", "m3", "t1", "t2", "t3"):
            rig.world.node(name).pause()
        began_ns = rig.world.loop.now_ns
        with pytest.raises(IndefiniteError):
            await rig.client.write("a", CellAddress(5), 2)
        took_s = (rig.world.loop.now_ns - began_ns) / 1e9
        assert TIMEOUT_S * 0.99 <= took_s <= TIMEOUT_S * 1.01

    play(scenario)


def test_it_gets_past_a_dead_leader_to_the_next_one() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.read("a", CellAddress(5))
        rig.world.network.cut("c", "t2")
        waiting = asyncio.create_task(rig.client.read("a", CellAddress(5)))
        await asyncio.sleep(TIMEOUT_S * 0.3)
        rig.leader = "t1"
        assert (await waiting).node == "t1"

    play(scenario)


async def reads_a_row(client: ClusterClient) -> None:
    assert (await client.read("a", CellAddress(5))).reply.value == 42


async def lists_tables(client: ClusterClient) -> None:
    assert await client.list_tables() == ()


@pytest.mark.parametrize("work", [reads_a_row, lists_tables])
def test_a_client_that_works_all_the_time_learns_the_masters_from_answers(
    work: Callable[[ClusterClient], Awaitable[None]],
) -> None:
    """All are replaced, and none of its requests fails meanwhile (G1)."""

    async def scenario(rig: ClientRig) -> None:
        new = Scripted(rig.masters["m2"].answer)
        new.start(rig.world, "m4")
        await work(rig.client)
        for node in (*rig.masters.values(), *rig.servers.values()):
            node.masters = KnownMasters(9, (Replica("m4", "m4:1"),))
        for _ in range(20):
            await work(rig.client)
            await asyncio.sleep(0.1)
        for name in rig.masters:
            rig.world.node(name).kill()
        asked = len(new.asked)
        await rig.client.table_locations("a")
        assert await rig.client.ask_any_master(ListTables(max_staleness_ms=9), ListTablesReply) == ListTablesReply(())
        assert len(new.asked) == asked + 2

    play(scenario)


def test_known_locations_do_without_masters() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.read("a", CellAddress(5))
        for name in ("m1", "m2", "m3"):
            rig.world.node(name).kill()
        rig.leader = "nobody"
        waiting = asyncio.create_task(rig.client.read("a", CellAddress(5)))
        await asyncio.sleep(TIMEOUT_S / 2)
        rig.leader = "t3"
        assert (await waiting).node == "t3"

    play(scenario)


def test_moved_tablets_are_located_again() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.read("a", CellAddress(5))
        rig.tablet_id = "replacement"
        assert (await rig.client.read("a", CellAddress(5))).reply.value == 42

    play(scenario)


def test_new_locations_with_an_old_hint_do_not_make_it_forget_the_leader_it_knows() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.read("a", CellAddress(5))
        asked = len(rig.asked("t1"))
        rig.hint = "t1"
        await rig.client.table_locations("a")
        assert (await rig.client.read("a", CellAddress(5))).node == "t2"
        assert len(rig.asked("t1")) == asked

    play(scenario)


def test_an_unknown_table_is_a_definite_error() -> None:
    async def scenario(rig: ClientRig) -> None:
        with pytest.raises(DefiniteError) as caught:
            await rig.client.write("nothing", CellAddress(5), 1)
        assert caught.value.kind == "not-found"

    play(scenario)


def test_request_ids_tell_which_requests_are_answered_for_good() -> None:
    async def scenario(rig: ClientRig) -> None:
        for value in range(3):
            await rig.client.write("a", CellAddress(5), value)
        assert {(each.sequence, each.done_below) for each in rig.request_ids()} == {(1, 1), (2, 2), (3, 3)}
        rig.world.network.cut("t2", "c")
        slow = asyncio.create_task(rig.client.write("a", CellAddress(5), 4))
        await asyncio.sleep(0.1)
        rig.world.network.heal()
        await rig.client.write("a", CellAddress(5), 5)
        assert {each.done_below for each in rig.request_ids() if each.sequence == 5} == {4}, "4 is not answered yet"
        await slow
        await rig.client.write("a", CellAddress(5), 6)
        assert {each.done_below for each in rig.request_ids() if each.sequence == 6} == {6}

    play(scenario)


def test_a_client_registers_one_session_with_each_tablet_that_it_changes() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.read("a", CellAddress(5))
        assert rig.sessions == []
        for value in range(3):
            await rig.client.write("a", CellAddress(5), value)
        assert rig.sessions == [100]
        rig.tablet_id = "replacement"
        await rig.client.write("a", CellAddress(5), 4)
        assert rig.sessions == [100, 101]
        assert (101, 1) in [(each.session, each.sequence) for each in rig.request_ids()]
        assert max(each.sequence for each in rig.request_ids() if each.session == 100) == 4, "it was tried first"

    play(scenario)


def test_a_fresh_request_goes_out_under_a_new_session_when_the_old_one_has_ended() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.write("a", CellAddress(5), 1)
        rig.sessions[:] = [0]
        assert (await rig.client.write("a", CellAddress(5), 2)).reply == DONE
        assert [(each.session, each.sequence) for each in rig.request_ids()] == [(100, 1), (100, 2), (101, 1)]

    play(scenario)


def test_a_request_whose_session_ended_after_a_lost_attempt_ends_unknown_and_is_not_sent_afresh() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.write("a", CellAddress(5), 1)
        rig.world.network.cut("t2", "c")
        waiting = asyncio.create_task(rig.client.write("a", CellAddress(5), 2))
        await asyncio.sleep(TIMEOUT_S / 8)
        rig.sessions[:] = [0]
        rig.world.network.heal()
        with pytest.raises(IndefiniteError):
            await waiting
        assert {each.session for each in rig.request_ids()} == {100}
        assert (await rig.client.write("a", CellAddress(5), 3)).reply == DONE
        assert RequestId(101, 1, 1) in rig.request_ids()

    play(scenario)


def test_a_request_that_may_have_changed_one_tablet_is_not_sent_to_its_replacement() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.write("a", CellAddress(5), 1)
        rig.world.network.cut("t2", "c")
        waiting = asyncio.create_task(rig.client.write("a", CellAddress(5), 2))
        await asyncio.sleep(TIMEOUT_S / 8)
        rig.tablet_id = "replacement"
        rig.world.network.heal()
        with pytest.raises(IndefiniteError):
            await waiting
        assert {each.session for each in rig.request_ids()} == {100}

    play(scenario)


def test_a_registration_that_is_lost_leaves_the_request_definite() -> None:
    async def scenario(rig: ClientRig) -> None:
        await rig.client.read("a", CellAddress(5))
        for server in SERVERS:
            rig.world.network.cut(server.node_id, "c")
        with pytest.raises(DefiniteError):
            await rig.client.write("a", CellAddress(5), 1)
        assert rig.request_ids() == []

    play(scenario)
