"""The reference cluster in the simulator, end to end, through `harness.protocols.Database`."""

from __future__ import annotations

import asyncio
import random

import pytest

from cluster.deploy.adapter import REGISTER_COLUMNS
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.flaws import FLAWS
from cluster.invariants.watch import NO_PANIC
from cluster.tserver.server import TabletServer
from cluster.wire.peers import PeerStreams
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from harness.history.ops import Mop, Op, read, write
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World
from harness.protocols import Client, Database
from tests.cluster.cluster_rig import ClusterRig, play_cluster
from tests.support.few_seeds import few_of
from tests.support.played import played


@played(play_cluster, sampled=False)
async def test_ten_clients_survive_the_kill_of_a_leaseholder_and_of_the_leader_master(rig: ClusterRig, /) -> None:
    await rig.start()

    async def faults() -> None:
        await rig.clock.sleep(5)
        found = await rig.leaders()
        victims = [found["catalog"], next(node for group, node in found.items() if group != "catalog")]
        for victim in victims:
            await rig.database.kill(victim)
        await rig.clock.sleep(5)
        for victim in victims:
            await rig.database.start(victim)

    await asyncio.gather(rig.load(clients=10, seconds=20), faults())
    await rig.database.await_ready(10)
    await rig.check_counters()
    assert min(rig.tally.ok(f) for f in ("r", "w", "cas")) > 1_000
    assert len(rig.tally.nodes) > 2


@pytest.mark.parametrize("seed", few_of(1, 4))
def test_clients_survive_partitions_pauses_and_kills(seed: int) -> None:
    async def scenario(rig: ClusterRig) -> None:
        await rig.start()

        async def faults() -> None:
            chaos = random.Random(seed)
            for _ in range(4):
                await rig.clock.sleep(chaos.uniform(0.5, 2))
                found = await rig.leaders()
                victim = chaos.choice(sorted(dict.fromkeys(found.values())))
                rig.isolate(chaos.choice(rig.database.nodes).name)
                await rig.database.pause(victim)
                await rig.clock.sleep(chaos.uniform(0.5, 3))
                await rig.database.kill(victim)
                rig.world.network.heal()
                await rig.database.start(victim)

        await asyncio.gather(rig.load(clients=6, seconds=15, pause_s=0.03), faults())
        await rig.database.await_ready(10)
        await rig.check_counters()
        assert rig.tally.ok("cas") > 200

    play_cluster(scenario, seed)


@pytest.mark.parametrize("seed", few_of(1, 4))
def test_tables_made_while_masters_die_are_whole_and_none_is_lost(seed: int) -> None:
    """M5, M7, M14 with real tablet servers: each create ends known, and what exists comes up whole."""

    async def scenario(rig: ClusterRig) -> None:
        database = rig.database
        await rig.start(buckets=1)
        made: dict[str, str] = {}

        async def creator() -> None:
            client = database.admin_client(15.0)
            for number in range(12):
                made[f"table{number}"] = (await client.create_table(f"table{number}", REGISTER_COLUMNS, 5, 3)).table_id

        async def faults() -> None:
            chaos = random.Random(seed)
            for _ in range(5):
                await rig.clock.sleep(chaos.uniform(0.02, 0.5))
                victim = (await rig.leaders()).get("catalog", "m1")
                if chaos.random() < 0.5:
                    await database.kill(victim)
                else:
                    rig.isolate(victim)
                await rig.clock.sleep(chaos.uniform(0.5, 3))
                rig.world.network.heal()
                await database.start(victim)

        await asyncio.gather(creator(), faults())
        await database.await_ready(10)
        client = database.admin_client(5.0)
        assert {info.name: info.table_id for info in await client.list_tables() if info.name != "registers"} == made
        for name in made:
            tablets = (await client.table_locations(name)).tablets
            assert [tablet.partition.bucket for tablet in tablets] == list(range(5))
            await client.write(name, CellAddress(3), 1)

    play_cluster(scenario, seed)


@played(play_cluster, seed=5)
async def test_everything_acknowledged_survives_the_kill_of_all_nodes(rig: ClusterRig, /) -> None:
    await rig.start()
    client = await rig.database.open_client(1, 5.0)
    for key in range(20):
        await client.invoke(Op("invoke", 1, "write", (write(key, key * 7),)))
    for node in rig.database.nodes:
        await rig.database.kill(node.name)
    for node in rig.database.nodes:
        await rig.database.start(node.name)
    await rig.database.await_ready(20)
    for key in range(20):
        (mop,) = (await client.invoke(Op("invoke", 1, "read", (read(key),)))).mops
        assert mop.value == key * 7


@played(play_cluster, sampled=False)
async def test_a_deposed_leaseholder_refuses_reads_and_the_client_finds_the_new_one(rig: ClusterRig, /) -> None:
    await rig.start(buckets=1)
    client = await rig.database.open_client(1, 5.0)
    before = await client.invoke(Op("invoke", 1, "write", (write(0, 1),)))
    assert before.node is not None
    rig.isolate(before.node)
    other = await rig.database.open_client(2, 8.0)
    after = await other.invoke(Op("invoke", 2, "write", (write(0, 2),)))
    assert after.node not in (None, before.node)
    read_again = await client.invoke(Op("invoke", 1, "read", (read(0),)))
    assert read_again.node == after.node and read_again.mops[0].value == 2


@played(play_cluster, sampled=False)
async def test_it_is_ready_only_when_every_node_and_tablet_is(rig: ClusterRig, /) -> None:
    database = rig.database
    await rig.start(buckets=1)
    await database.kill("t1")
    with pytest.raises(TimeoutError, match="no answer from t1"):
        await database.await_ready(0.5)
    await database.start("t1")
    for master in ("m1", "m2"):
        rig.isolate(master)
    await rig.clock.sleep(5)
    with pytest.raises(TimeoutError, match="no leader master answers"):
        await database.await_ready(0.5)
    rig.world.network.heal()
    await database.await_ready(10)


@played(play_cluster, sampled=False)
async def test_processes_start_pause_stop_and_die_as_told(rig: ClusterRig, /) -> None:
    database = rig.database
    await rig.start()
    await database.pause("t2")
    assert await database.process_state("t2") == ProcessState.PAUSED
    assert await database.status("t2") is None
    await database.resume("t2")
    assert await database.process_state("t2") == ProcessState.RUNNING
    status = await database.status("t2")
    assert status is not None and (status.role, status.incarnation) == ("tserver", 1)
    await database.stop("t2")
    assert await database.process_state("t2") == ProcessState.DEAD
    await database.start("t2")
    await database.start("t2")
    await database.await_ready(10)
    status = await database.status("t2")
    assert status is not None and status.incarnation == 2


def test_logs_tell_of_elections_and_panics() -> None:
    with World(1) as world:
        database = SimDatabase(world)

        async def main() -> dict[str, bytes]:
            await database.install()
            for node in database.nodes:
                await database.start(node.name)
            await database.await_ready(10)
            await database.teardown()
            return dict(await database.collect_logs())

        logs = world.run(main())
    assert list(logs) == [f"{node.name}/node.log" for node in database.nodes]
    assert sum(b"leader in term" in log for log in logs.values()) == 1
    assert not any(b"PANIC" in log for log in logs.values())


def test_a_node_that_finds_its_disk_damaged_panics_in_its_log() -> None:
    with World(1) as world:
        database = SimDatabase(world)

        async def main() -> bytes:
            await database.install()
            await database.start("t1")
            await asyncio.sleep(0.5)
            await database.kill("t1")
            disk = world.node("t1").disk
            for bit in range(
                0, 8 * len(disk.peek("identity")), 64
            ):  # it is stored twice: one flipped bit costs nothing
                disk.flip_bit("identity", bit)
            await database.start("t1")
            await asyncio.sleep(0.5)
            assert await database.process_state("t1") == ProcessState.DEAD
            return (await database.collect_logs())["t1/node.log"]

        log = world.run(main())
        assert b"PANIC" in log and b"Traceback" in log and b"CorruptLog" in log


@pytest.mark.parametrize(("taker", "handler"), [(TabletServer, "on_call"), (PeerStreams, "receive")])
def test_an_exception_that_nothing_in_a_node_took_breaks_an_invariant(
    taker: type, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("t9")

    with World(1) as world:
        database = SimDatabase(world, Layout(1, 3))

        async def main() -> None:
            await database.install()
            monkeypatch.setattr(taker, handler, broken)
            await database.start("t1")
            await asyncio.sleep(1)
            assert (await database.invariants()).broken == {}
            await database.status("t1")
            world.harness_ports("peer").network.notify(database.address("t1"), b"")
            await asyncio.sleep(1)
            record = await database.invariants()
            assert record.broken.keys() == {NO_PANIC}
            assert "nothing handled an exception in a node: KeyError: 't9'" in record.breaches[0].message
            await database.teardown()
            assert await database.invariants() == record

        world.run(main())


@played(play_cluster, sampled=False)
async def test_operations_it_can_not_do_are_refused(rig: ClusterRig, /) -> None:
    await rig.start(buckets=1)
    client = await rig.database.open_client(1, 2.0)
    for mops in ((), (read(1), read(2)), (Mop("append", 1, 1),), (Mop("r", 1, table=1),)):
        with pytest.raises(DefiniteError) as caught:
            await client.invoke(Op("invoke", 1, "read", mops))
        assert caught.value.kind == "unsupported"


def test_it_is_a_database_of_the_harness() -> None:
    with World(1) as world:
        database: Database = SimDatabase(world, Layout(1, 4, zones=2), flaws=(next(iter(FLAWS)),))
        assert [(node.name, node.role, node.zone) for node in database.nodes] == [
            ("m1", "master", "z1"),
            ("t1", "tserver", "z1"),
            ("t2", "tserver", "z2"),
            ("t3", "tserver", "z1"),
            ("t4", "tserver", "z2"),
        ]
        assert {"kill", "pause", "status"} <= database.capabilities
        assert {"r", "w", "cas", "create", "delete", "page"} <= database.operations
        client: Client = world.run(database.open_client(0, 1.0))
        world.run(client.close())


@played(play_cluster, sampled=False)
async def test_a_read_of_one_node_is_served_by_the_leaseholder_and_refused_by_the_others(rig: ClusterRig, /) -> None:
    await rig.start()
    client = await rig.database.open_client(0, 5.0)
    answers = []
    for name in rig.database.serving_nodes:
        try:
            answers.append((await client.invoke(Op("invoke", 0, "read", mops=(read(3),), node=name))).type)
        except DefiniteError as error:
            answers.append(error.kind)
    assert sorted(answers) == ["elsewhere"] * 4 + ["ok"]
