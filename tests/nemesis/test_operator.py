"""What a node lost is replaced, by masters or an operator's calls, and nobody takes the loss for a broken promise."""

from __future__ import annotations

import asyncio

from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.wire.messages import WIRE_VERSION
from harness.cell_address import CellAddress
from harness.env.sim import SimEnvironment
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.world import World
from harness.protocols import GroupStatus, Node, NodeStatus
from nemesis.observe import DatabaseObserver, View
from nemesis.operator import (
    Duty,
    MemberNodes,
    duty_of,
    lacking,
    missing_change,
    replace_lost,
    spareable,
    unlike,
)

USUAL = Knobs()


async def serving(world: World, layout: Layout, knobs: Knobs = USUAL) -> tuple[SimDatabase, DatabaseObserver]:
    """A cluster with a table of registers in one tablet, and who looks at it."""
    environment = SimEnvironment(world)
    database = SimDatabase(world, layout, knobs=knobs)
    await environment.setup(database.nodes)
    await database.install()
    for node in database.nodes:
        await database.start(node.name)
    await database.await_ready(30)
    await database.setup_workload("register", {"buckets": 1})
    return database, DatabaseObserver(database, environment)


def test_quarantined_replicas_begin_anew_and_break_no_invariant() -> None:
    log = b""

    async def scenario(world: World) -> None:
        nonlocal log
        knobs = Knobs(snapshot_entries=30, retained_entries=0, log_segment_bytes=2_000)
        database, observer = await serving(world, Layout(3, 3), knobs)
        for seed in range(4):
            client = database.admin_client(20.0)
            for key in range(40):
                await client.write("registers", CellAddress(key), seed)
            view = await observer.view()
            assert spareable(view, "t1")
            duty = duty_of(view, "t1")
            await database.kill("t1")
            assert not spareable(await observer.view(), "t2"), "its groups lack a voter already"
            assert await database.damage("t1", "truncate", seed) is not None
            await database.start("t1")
            await asyncio.sleep(1)
            await replace_lost(observer, duty, 30)
            assert lacking(await observer.view(), duty) == {}
        assert (await database.invariants()).broken == {}
        log = (await database.collect_logs())["t1/node.log"]

    with World(3, version=WIRE_VERSION) as world:
        world.run(scenario(world))
    assert b": quarantined: " in log, "masters remove such a replica as soon as they hear of it; the log tells"


def test_a_learner_is_waited_for_while_it_comes_nearer_and_no_longer() -> None:
    """A run was invalid: over slow links, an entry at a time, a new server took longer than patience was; it came."""

    async def scenario(world: World) -> None:
        knobs = Knobs(max_batch_entries=1, max_inflight=1, snapshot_entries=10_000)
        database, observer = await serving(world, Layout(1, 3), knobs)
        client = database.admin_client(20.0)
        for key in range(100):
            await client.write("registers", CellAddress(key), key)
        duty = duty_of(await observer.view(), "t1")
        await database.kill("t1")
        await database.wipe("t1")
        await database.start("t1")
        began_ns = observer.environment.clock.monotonic_ns()
        await replace_lost(observer, duty, 4)
        assert lacking(await observer.view(), duty) == {}
        assert 4 < (observer.environment.clock.monotonic_ns() - began_ns) / 1e9 < 16, "longer than patience is"
        await database.kill("t1")
        began_ns = observer.environment.clock.monotonic_ns()
        await replace_lost(observer, duty, 4)
        assert 4 <= (observer.environment.clock.monotonic_ns() - began_ns) / 1e9 < 7, "nothing comes nearer"
        assert set(lacking(await observer.view(), duty)) == set(duty.groups)

    with World(3, network=LinkOptions(delay_ns=(30_000_000, 40_000_000)), version=WIRE_VERSION) as world:
        world.run(scenario(world))


def test_nothing_is_lacking_in_a_group_that_was_dropped() -> None:
    """A run of catalog was invalid: its workload had dropped a table while a node of it was wiped."""
    nodes = tuple(Node(name, "tserver") for name in ("t1", "t2", "t3"))
    holding = GroupStatus("tablet", "follower", 1, ("t1", "t2", "t3"), None, 1, 1, 1, 1, False)

    def view(**held: tuple[GroupStatus, ...]) -> View:
        return View(nodes, {name: NodeStatus(name, "tserver", 1, groups) for name, groups in held.items()})

    duty, everywhere = Duty("t1", ("tablet",), (3,)), {"t1": (holding,), "t2": (holding,), "t3": (holding,)}
    assert lacking(view(t1=(), t2=(), t3=()), duty) == {}
    assert unlike(view(t1=(), t2=(), t3=()), "tablet", MemberNodes(("t1", "t2", "t3"))) is None
    for there in (everywhere, everywhere | {"t1": ()}, {"t1": (), "t2": ()}):
        assert lacking(view(**there), duty) == {"tablet": "tablet has no leader"}, "a node may have it"
        assert unlike(view(**there), "tablet", MemberNodes(("t1", "t2", "t3"))) == "tablet has no leader"


def test_what_masters_have_replaced_elsewhere_is_not_added_a_second_time() -> None:
    """An operator and masters each added a voter for the one on a wiped node: there were four."""
    nodes = tuple(Node(name, "tserver") for name in ("t1", "t2", "t3", "t4"))

    def left(voters: str, learners: str = "") -> str | None:
        names = tuple(voters.split())
        led = GroupStatus("tablet", "leader", 1, names, "t2", 1, 1, 1, 1, True, tuple(learners.split()))
        held = {"t1": (), "t2": (led,), "t3": (), "t4": ()}
        statuses = {name: NodeStatus(name, "tserver", 1, held[name], 0, {"server_id": f"{name}.new"}) for name in held}
        return lacking(View(nodes, statuses), Duty("t1", ("tablet",), (3,))).get("tablet")

    assert left("t2 t3") == "t1.new has no replica"
    assert left("t1 t2 t3") == left("t1 t2 t3", "t4") == "t1 is lost"
    assert left("t2 t3", "t4") == "tablet has a learner in the place of t1.new"
    assert left("t2 t3 t4") is None


def test_masters_replace_a_replica_whose_own_record_is_damaged() -> None:
    async def scenario(world: World) -> None:
        database, _ = await serving(world, Layout(1, 3))
        await database.kill("t1")
        disk = world.node("t1").disk
        (path,) = [path for path in disk.paths() if path.startswith("tablets/")]
        for byte in range(len(disk.peek(path))):
            disk.flip_bit(path, 8 * byte)
        await database.start("t1")
        await asyncio.sleep(0.2)
        status = await database.status("t1")
        assert status is not None and status.groups == (), "it is not served"
        await asyncio.sleep(20)
        status = await database.status("t1")
        assert status is not None
        (replica,) = status.groups
        assert (replica.voters.count("t1"), len(replica.voters), replica.applied_index > 0) == (1, 3, True)
        assert (await database.invariants()).broken == {}

    with World(5, version=WIRE_VERSION) as world:
        world.run(scenario(world))


def test_a_group_that_masters_went_on_repairing_is_as_whole_as_the_others() -> None:
    """A run was invalid: masters were replacing a voter as a script came; they brought back the third, and it was
    removed again and again, for there had been two."""
    nodes = tuple(Node(name, "tserver") for name in ("t1", "t2", "t3", "t4"))

    def view(voters: tuple[str, ...], learners: tuple[str, ...] = (), others: tuple[str, ...] = ()) -> View:
        led = GroupStatus("tablet", "leader", 1, voters, "t1", 1, 1, 1, 1, True, learners)
        other = GroupStatus("other", "follower", 1, others, None, 1, 1, 1, 1, False)
        groups = (led, other) if others else (led,)
        return View(nodes, {node.name: NodeStatus(node.name, "tserver", 1, groups) for node in nodes})

    before, others = MemberNodes(("t1", "t2")), ("t1", "t2", "t4")
    repaired = view(("t1", "t2", "t3"), others=others)
    assert unlike(repaired, "tablet", before) is None and missing_change(repaired, "tablet", before) is None
    learning = view(before.voters, ("t3",), others)
    assert missing_change(learning, "tablet", before) == ("promote", "t3")
    assert "the learners t3" in str(unlike(learning, "tablet", before))
    short = view(("t1",), others=others)
    assert unlike(short, "tablet", before) and missing_change(short, "tablet", before) == ("add-learner", "t2")
    alone = view(("t1", "t2", "t3"))
    assert unlike(alone, "tablet", before) and missing_change(alone, "tablet", before) == ("remove", "t3")
    crowded = view(("t1", "t2", "t3", "t4"), others=others)
    assert unlike(crowded, "tablet", before) and missing_change(crowded, "tablet", before) == ("remove", "t3")
    kept = MemberNodes(("t1", "t2"), ("t3",))
    assert unlike(view(before.voters, ("t4",)), "tablet", kept) is None, "a learner in place of another that there was"
    two = view(before.voters, ("t3", "t4"))
    assert unlike(two, "tablet", kept) and missing_change(two, "tablet", kept) == ("remove", "t4")
    assert missing_change(view(("t1",), ("t3",)), "tablet", kept) == ("promote", "t3")
