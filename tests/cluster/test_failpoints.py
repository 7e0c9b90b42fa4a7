"""Failpoints of the node program: every one can be armed and is reached; what is armed happens, and ends."""

from __future__ import annotations

import asyncio

import pytest

from cluster.alarm import Alarm
from cluster.deploy.adapter import REGISTER_COLUMNS
from cluster.failpoints import (
    FAILPOINTS,
    GROUP_POINTS,
    LOG_POINTS,
    MASTER,
    MASTER_POINTS,
    QUORUM_POINTS,
    TSERVER,
    TSERVER_POINTS,
    slow_waits,
)
from cluster.inspection import Inspection
from cluster.wire.messages import ArmedReply, ArmFailpoint, DeleteTablet, encode
from harness.cell_address import CellAddress
from harness.ports.failpoints import ANY, READING, Arming, InjectedFailure, ProcessFailpoints, pass_by
from harness.ports.machines import ProcessState
from harness.ports.real.ports import RealClock, real_failpoints
from tests.cluster.table_rig import TableRig, play

SYNC = "disk.before_sync"


def test_names_are_made_once_for_each_kind_of_group() -> None:
    both = 2 * (len(LOG_POINTS) + len(GROUP_POINTS)) + len(MASTER_POINTS) + len(TSERVER_POINTS) + len(QUORUM_POINTS) + 1
    assert len(FAILPOINTS) == both
    assert all(point.meaning and point.role in (MASTER, TSERVER, "") for point in FAILPOINTS.values())


def test_every_failpoint_can_be_armed_and_is_reached() -> None:
    """Everything that a node does once in its life happens here: each point must be passed by somebody.

    Those of quorum tables are passed in `tests/cluster/quorum/test_legacy_sim.py`, that of masters which replace a dead
    replica in `test_replication_sim.py`.
    """

    async def scenario(cluster: TableRig) -> None:
        database = cluster.database
        await cluster.begin(table=False)
        for point in FAILPOINTS.values():
            for node in cluster.nodes(point.role):
                assert await database.arm(node, point.name, "delay", seconds=0.001)
        await database.setup_workload("register", {"buckets": 1})
        for role in (MASTER, TSERVER):
            leader, group = await cluster.leader(role)
            status = await database.status(leader)
            assert status is not None
            voters = next(each.voters for each in status.groups if each.group == group)
            behind = next(each for each in voters if each != leader)
            others = [name for name in cluster.nodes("") if name != behind]
            links = frozenset((a, b) for name in others for a, b in ((name, behind), (behind, name)))
            await cluster.environment.cut(links)
            for number in range(6):
                if role == TSERVER:
                    await cluster.write(20)
                else:
                    await database.admin_client(5).create_table(f"table{number}", REGISTER_COLUMNS, 1, 3)
            await cluster.environment.heal_network()
            await database.await_ready(30)
            if role == TSERVER:
                spare = next(name for name in cluster.nodes(role) if name not in voters)
                await cluster.change(role, "add-learner", spare)
                await cluster.change(role, "promote", spare)
            else:
                await cluster.change(role, "remove", behind)
                await cluster.change(role, "add-learner", behind)
            leader, group = await cluster.leader(role)
            await database.kill(leader)
            await asyncio.sleep(3)
            await database.start(leader)
            await database.await_ready(30)
        _, group = await cluster.leader()
        for point in ("before_tombstone", "after_tombstone"):
            assert await database.arm("t1", f"tserver.{point}", "delay", seconds=0.001)
        ports = cluster.world.harness_ports("admin")
        await ports.network.call(database.address("t1"), encode(DeleteTablet(group)), 5.0)
        elsewhere = {*QUORUM_POINTS, "master.before_change"}
        missed = [name for name in FAILPOINTS if name not in elsewhere and not cluster.acted(name)]
        assert missed == []

    play(scenario)


def test_every_wait_that_may_be_slow_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: set[tuple[str, str]] = set()
    monkeypatch.setattr(ProcessFailpoints, "longer", lambda self, wait: passed.add((roles[self], wait)))
    roles: dict[object, str] = {}

    async def scenario(cluster: TableRig) -> None:
        await cluster.begin(table=False)
        for node in cluster.database.nodes:
            roles[cluster.world.node(node.name).failpoints] = node.role
            assert await cluster.database.arm(node.name, SYNC, "delay", times=0, seconds=0.001)
        await cluster.database.setup_workload("register", {"buckets": 1})
        await cluster.write(6)
        for role in (MASTER, TSERVER):
            leader, _ = await cluster.leader(role)
            await cluster.database.kill(leader)
            await asyncio.sleep(3)
            await cluster.database.start(leader)
            assert await cluster.database.arm(leader, SYNC, "delay", times=0, seconds=0.001)
            await cluster.database.await_ready(30)
        assert (await cluster.database.admin_client(5.0).read("registers", CellAddress(1))).reply.value == 1

    play(scenario)
    waits = {wait for _, wait in passed} | {READING}  # which processes mostly pass as they start, with nothing armed
    assert waits == {*slow_waits(MASTER), *slow_waits(TSERVER)}
    assert all(wait in slow_waits(role) for role, wait in passed)


@pytest.mark.parametrize("point", ["before_fsync", "before_apply", "tserver.before_serve", SYNC])
def test_an_armed_node_crashes_where_it_is_armed(point: str) -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        leader, _ = await cluster.leader()
        assert await cluster.database.arm(leader, point, "crash")
        await cluster.write(3)
        assert await cluster.database.process_state(leader) is ProcessState.DEAD
        assert sum((await cluster.database.acted(leader)).values()) == 1
        await cluster.database.start(leader)
        await cluster.database.await_ready(30)
        await cluster.write(20)
        assert await cluster.database.process_state(leader) is ProcessState.RUNNING, "it ends with the process"

    play(scenario)


@pytest.mark.parametrize("point", ["before_fsync", "before_apply", SYNC])
def test_an_armed_node_fails_there_as_by_its_disk_and_stops_by_itself(point: str) -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        leader, _ = await cluster.leader()
        assert await cluster.database.arm(leader, point, "fail")
        await cluster.write(3)
        await cluster.until(lambda: cluster.world.node(leader).state is ProcessState.DEAD, "the node stops")
        assert (await cluster.database.invariants()).broken == {}
        await cluster.database.start(leader)
        await cluster.database.await_ready(30)

    play(scenario)


def test_what_hangs_at_a_point_lets_others_go_on_until_it_is_disarmed() -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        leader, group = await cluster.leader()
        assert await cluster.database.arm(leader, SYNC, "hang", times=0)
        await cluster.write(3, seconds=20)
        assert (await cluster.leader())[0] != leader, "its lease is gone, another one leads"
        status = await cluster.database.status(leader)
        assert status is not None, "the node itself answers"
        await cluster.database.disarm(leader, SYNC)
        mine = next(each for each in status.groups if each.group == group)
        await cluster.write(5)
        await asyncio.sleep(1)
        later = await cluster.database.status(leader)
        assert later is not None
        assert next(each for each in later.groups if each.group == group).commit_index > mine.commit_index

    play(scenario)


def test_a_held_process_stops_and_goes_on() -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        leader, group = await cluster.leader()
        status = await cluster.database.status(leader)
        assert status is not None
        follower = next(v for each in status.groups if each.group == group for v in each.voters if v != leader)
        assert await cluster.database.arm(follower, "before_accept", "stop", group)
        await cluster.write(3)
        assert await cluster.database.process_state(follower) is ProcessState.PAUSED
        await cluster.database.disarm(follower, "before_accept")
        assert await cluster.database.process_state(follower) is ProcessState.RUNNING

    play(scenario)


def test_a_process_that_stops_before_an_fsync_does_not_begin_it() -> None:
    async def scenario(cluster: TableRig) -> None:
        await cluster.begin()
        leader, _ = await cluster.leader()
        disk = cluster.world.node(leader).disk
        assert await cluster.database.arm(leader, "before_fsync", "stop")
        writing = asyncio.create_task(cluster.write(3))
        await cluster.until(lambda: cluster.world.node(leader).state is ProcessState.PAUSED, "the node stops")
        await asyncio.sleep(0.2)
        last = max(path for path in disk.paths() if path.startswith("log/"))
        assert disk.synced_length(last) < len(disk.peek(last))
        await cluster.database.disarm(leader, "before_fsync")
        await writing
        assert disk.synced_length(last) > 0

    play(scenario)


@pytest.mark.parametrize(
    ("node", "point"), [("t1", "no_such_point"), ("t1", "catalog.before_vote"), ("m1", "tserver.x")]
)
def test_points_that_a_node_does_not_pass_are_refused(node: str, point: str) -> None:
    async def scenario(cluster: TableRig) -> None:
        with pytest.raises(ValueError, match=f"{node} passes no failpoint"):
            await cluster.database.arm(node, point, "crash")

    play(scenario)


async def test_an_alarm_that_is_cancelled_while_it_wakes_is_over() -> None:
    """A group that stopped in its own tick woke for ever, in one step of the loop: the whole node hung."""
    woken: list[int] = []
    alarm = Alarm(RealClock(), lambda: wake())

    def wake() -> None:
        woken.append(1)
        assert len(woken) < 3, "it goes on"
        alarm.cancel()

    alarm.set(0)
    await asyncio.sleep(0.05)
    assert woken == [1]


def test_a_node_counts_what_it_passes_and_acts_at_none_of_it() -> None:
    async def scenario(cluster: TableRig) -> None:
        ports = cluster.world.harness_ports("admin")
        inspection, failpoints = Inspection(ports), ports.failpoints

        async def inspected(*request: str, number: int) -> ArmedReply:
            reply = await inspection.answer(ArmFailpoint(*request, times=0, number=number))
            assert isinstance(reply, ArmedReply)
            return reply

        assert (await inspected(ANY, "record", number=1)).passed == {}
        failpoints.hit("tablet.before_commit", "g")
        await pass_by(failpoints, "tserver.before_serve")
        failpoints.hit("tablet.before_commit", "h")
        last = await inspected(ANY, "", number=2)
        assert last.passed == {"tablet.before_commit": 2, "tserver.before_serve": 1}
        assert last.armed == ()
        failpoints.hit("tablet.before_commit", "g")
        assert (await inspected("", "", number=3)).passed == last.passed

    play(scenario)


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_armed_at_any_point_acts_as_often_as_it_is_to(times: int) -> None:
    failpoints = real_failpoints({})
    failpoints.arm(Arming(ANY, "fail", times=times, skip=1))
    failpoints.hit("a")
    for point in ("b", "c")[:times]:
        with pytest.raises(InjectedFailure):
            failpoints.hit(point)
    failpoints.hit("d")
    assert not failpoints.armed


def test_a_late_request_to_arm_does_not_undo_a_later_one_to_disarm() -> None:
    """Seed 52 of a swarm: on a network that reorders, a point was armed after all had been told to forget theirs, and
    the node stopped itself when the faults were over."""

    async def scenario(cluster: TableRig) -> None:
        inspection = Inspection(cluster.world.harness_ports("admin"))

        async def armed(*request: str, number: int) -> tuple[str, ...]:
            reply = await inspection.answer(ArmFailpoint(*request, number=number))
            assert isinstance(reply, ArmedReply)
            return reply.armed

        assert await armed("", "", number=2) == ()
        assert await armed("tserver.before_serve", "stop", number=1) == ()
        assert await armed("tserver.before_serve", "delay", number=3) == ("tserver.before_serve",)
        assert await armed("", "", number=4) == ()

    play(scenario)
