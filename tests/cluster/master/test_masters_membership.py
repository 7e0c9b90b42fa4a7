"""Masters are added, removed and replaced on a running cluster, by operators' calls to the leader (M12)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.client import operating
from cluster.failpoints import MASTER
from cluster.groups.waiters import ChangeRefused
from cluster.master.membership import Step, change_masters, next_step
from cluster.raft.membership import changed
from cluster.raft.types import ChangeKind, Configuration, Member, OpId, Reason
from cluster.tserver.heartbeats import MASTERS_FILE
from cluster.wire.messages import ConfigurationReply, ErrorReply, StatusReply, encode
from cluster.wire.operating import ChangeMasters
from harness.errors import DefiniteError
from harness.ports.api import Unreachable
from tests.cluster.table_rig import TableRig, play

M1, M2, M3, NEW = (Member(name, f"{name}:7051") for name in ("m1", "m2", "m3", "m2.new"))
THREE = Configuration((M1, M2, M3), (), 1, 1)


@pytest.mark.parametrize(
    ("configuration", "wanted", "step"),
    [
        (THREE, ChangeMasters(add=NEW), Step(ChangeKind.ADD_LEARNER, NEW)),
        (THREE, ChangeMasters(add=NEW, remove="m2"), Step(ChangeKind.ADD_LEARNER, NEW)),
        (Configuration((M1, M2, M3), (NEW,), 5, 1), ChangeMasters(NEW, "m2"), Step(ChangeKind.PROMOTE, NEW)),
        (Configuration((M1, M2, M3, NEW), (), 6, 1), ChangeMasters(NEW, "m2"), Step(ChangeKind.REMOVE, M2)),
        (Configuration((M1, M3, NEW), (), 7, 1), ChangeMasters(NEW, "m2"), None),
        (THREE, ChangeMasters(remove="m3"), Step(ChangeKind.REMOVE, M3)),
        (THREE, ChangeMasters(remove="m9"), None),
        (THREE, ChangeMasters(add=M1), None),
    ],
)
def test_a_newcomer_votes_before_the_old_one_goes(
    configuration: Configuration, wanted: ChangeMasters, step: Step | None
) -> None:
    assert next_step(configuration, wanted) == step


async def replaced(rig: TableRig, node: str) -> str:
    """The id of the new server on a node whose disk is gone, once it is one of the masters."""
    await rig.database.kill(node)
    await rig.database.wipe(node)
    await rig.database.start(node)
    while (server := await rig.database.server_id(node)) is None:
        await asyncio.sleep(0.05)
    client, newcomer = rig.database.admin_client(10.0), Member(server, rig.database.address(node))
    reply = await operating.change_masters(client, newcomer, node)
    assert sorted(voter.node_id for voter in reply.voters) == sorted({"m1", "m2", "m3"} - {node} | {server})
    assert reply.learners == ()
    again = await operating.change_masters(client, newcomer, node)
    assert again == reply, "what is so already is left alone"
    return server


def test_a_change_that_is_under_way_is_answered_once_it_is_committed() -> None:
    """Whoever asks again finds it appended; until it is committed it may yet be taken back."""
    removed = Configuration((M1, M2), (), 5, 1)
    group = SimpleNamespace(is_leader=True, leader="m1", configuration=removed, committed_configuration=THREE)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            group.committed_configuration = removed

    known: Any = group
    ports: Any = SimpleNamespace(clock=SimpleNamespace(monotonic_ns=lambda: 0, sleep=sleep))
    reply = asyncio.run(change_masters(known, ports, ChangeMasters(remove="m3", timeout_s=1.0)))
    assert isinstance(reply, ConfigurationReply) and reply.config_index == 5
    assert len(slept) == 3


class OneStep:
    """A group whose leader takes a learner in and promotes it once `contact` changes were asked for; never for None."""

    def __init__(self, contact: int | None) -> None:
        self.is_leader, self.leader, self.contact = True, "m1", contact
        self.configuration = self.committed_configuration = THREE
        self.asked: list[ChangeKind] = []

    async def change_membership(
        self, kind: ChangeKind, member: Member, expected: OpId, timeout_s: float
    ) -> Configuration:
        self.asked.append(kind)
        if kind is ChangeKind.PROMOTE and (self.contact is None or len(self.asked) <= self.contact):
            raise ChangeRefused(Reason.LOSES_QUORUM, "of the 4 voters that would be left only 2 are in contact")
        after = changed(self.configuration, kind, member)
        self.configuration = Configuration(after.voters, after.learners, len(self.asked) + 1, 1)
        self.committed_configuration = self.configuration
        return self.configuration


def replies(group: OneStep, request: ChangeMasters, there: str | None = "m2.new") -> ConfigurationReply | ErrorReply:
    now_ns = 0

    async def sleep(seconds: float) -> None:
        nonlocal now_ns
        now_ns += int(seconds * 1e9)

    async def call(address: str, request: bytes, timeout_s: float) -> bytes:
        if there is None:
            raise Unreachable(address)
        return encode(StatusReply(there, "master", 1, 0, ()))

    clock = SimpleNamespace(monotonic_ns=lambda: now_ns, sleep=sleep)
    ports: Any = SimpleNamespace(clock=clock, network=SimpleNamespace(call=call))
    known: Any = group
    return asyncio.run(change_masters(known, ports, request))


REPLACES = ChangeMasters(NEW, "m2", timeout_s=1.0)


def test_a_newcomer_whose_connection_is_still_to_stand_is_waited_for() -> None:
    reply = replies(OneStep(contact=5), REPLACES)
    assert isinstance(reply, ConfigurationReply) and [each.node_id for each in reply.voters] == ["m1", "m3", "m2.new"]


def test_a_newcomer_that_never_comes_into_contact_is_removed_again_and_the_change_definitely_refused() -> None:
    group = OneStep(contact=None)
    reply = replies(group, REPLACES)
    assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("CHANGE_REFUSED", True)
    assert "removed again" in reply.message
    assert group.configuration.members == THREE.members and group.asked[-1] is ChangeKind.REMOVE


def test_a_change_that_took_effect_in_part_is_no_definite_refusal() -> None:
    class Stops(OneStep):
        async def change_membership(self, kind: ChangeKind, *arguments: Any) -> Configuration:
            if kind is ChangeKind.REMOVE:
                raise ChangeRefused(Reason.LOSES_QUORUM, "not enough")
            return await super().change_membership(kind, *arguments)

    reply = replies(Stops(contact=0), REPLACES)
    assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("CHANGE_REFUSED", False)


@pytest.mark.parametrize(
    ("request_", "there", "said"),
    [
        (REPLACES, "m9", "at m2.new:7051 m9 answers, not m2.new"),
        (REPLACES, None, "at m2.new:7051 nobody answers"),
        (ChangeMasters(NEW, "m9"), "m2.new", "m9 is none of the masters: m1, m2, m3"),
        (ChangeMasters(remove="m9"), None, "m9 is none of the masters: m1, m2, m3"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    request_: ChangeMasters, there: str | None, said: str
) -> None:
    group = OneStep(contact=0)
    reply = replies(group, request_, there)
    assert isinstance(reply, ErrorReply) and (reply.message, reply.definite, group.asked) == (said, True, [])


def test_a_master_whose_disk_is_gone_is_replaced_by_a_new_server_that_leads_later() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        leader, _ = await rig.leader(MASTER)
        server = await replaced(rig, leader)
        for other in rig.nodes(MASTER):
            if other != leader:
                await rig.database.kill(other)
                await asyncio.sleep(4.0)
                await rig.database.start(other)
        while (await rig.leader(MASTER))[0] != leader:
            (first, _) = await rig.leader(MASTER)
            await rig.database.kill(first)
            await asyncio.sleep(1.5)
            await rig.database.start(first)
            await asyncio.sleep(0.5)
        client = rig.database.admin_client(5.0)
        assert [table.name for table in await client.list_tables()] == ["registers"]
        live = (await client.tablet_servers()).live
        assert live == ("t1", "t2", "t3", "t4"), f"tablet servers heartbeat to {server} too"
        assert (await rig.database.invariants()).breaches == ()

    play(scenario, seed=3)


def test_a_leader_removes_itself_and_what_loses_the_quorum_is_refused() -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin(table=False)
        leader, _ = await rig.leader(MASTER)
        client = rig.database.admin_client(10.0)
        with pytest.raises(DefiniteError, match="name a server"):
            await client.ask_leader(ChangeMasters(), ConfigurationReply)
        others = [name for name in rig.nodes(MASTER) if name != leader]
        await rig.database.kill(others[0])
        await asyncio.sleep(3.0)
        with pytest.raises(DefiniteError, match="only 1 are in contact"):
            await operating.change_masters(client, None, others[1])
        await rig.database.start(others[0])
        await rig.database.await_ready(20)
        left = (await operating.change_masters(client, None, leader)).voters
        assert sorted(voter.node_id for voter in left) == sorted(others)
        assert (await rig.leader(MASTER))[0] in others

    play(scenario, seed=4)


def test_a_tablet_server_remembers_the_masters_that_it_learnt() -> None:
    """Started with a file that names three masters, of which two have been replaced, it still finds the group (G1)."""

    async def scenario(rig: TableRig) -> None:
        await rig.begin(table=False)
        server = await replaced(rig, "m2")
        await asyncio.sleep(1.5)
        disk = rig.world.node("t1").disk
        assert server.encode() in disk.peek(MASTERS_FILE)
        await rig.database.kill("t1")
        await rig.database.start("t1")
        await rig.database.await_ready(20)

    play(scenario, seed=5)
