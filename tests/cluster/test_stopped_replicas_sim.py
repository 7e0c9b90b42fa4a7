"""What a whole simulated cluster tells of replicas that stop, and how much of its statuses can be compared (G10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from cluster_bench import ClusterBench

from cluster.deploy.database_sim import SimDatabase
from cluster.invariants.reports import Reports
from cluster.invariants.watch import NO_PANIC
from cluster.ranges.tablet import TabletMachine
from harness.invariants import Breach
from harness.sim.world import World


def play(scenario: Callable[[ClusterBench], Awaitable[None]]) -> None:
    with World(1) as world:
        bench = ClusterBench(world, SimDatabase(world))

        async def main() -> None:
            await bench.start(buckets=1)
            await asyncio.wait_for(scenario(bench), 60)
            await bench.database.teardown()

        world.run(main())


async def stopped(bench: ClusterBench, word: str) -> tuple[Breach, ...]:
    """What was found, once a node has said so of a replica: masters replace it as soon as they hear of it."""
    logs = await bench.database.collect_logs()
    assert any(word in log.decode() for log in logs.values())
    return (await bench.database.invariants()).breaches


def test_the_statuses_of_a_quiet_cluster_are_really_compared() -> None:
    async def scenario(bench: ClusterBench) -> None:
        await bench.load(clients=3, seconds=2)
        await bench.clock.sleep(1)
        reports = Reports()
        for _ in range(2):
            for status in (await bench.database.statuses()).values():
                reports.take(status)
        assert reports.record().breaches == ()
        assert reports.record().checked["state-digest"] >= 8  # two of three replicas of two groups, twice

    play(scenario)


def test_a_replica_whose_program_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: ClusterBench) -> None:
        original, machines = TabletMachine.apply, dict[TabletMachine, None]()

        def apply(machine: TabletMachine, index: int, command: bytes) -> bytes:
            machines[machine] = None
            if machine is next(iter(machines)):
                raise RuntimeError("poisoned")
            return original(machine, index, command)

        monkeypatch.setattr(TabletMachine, "apply", apply)
        await bench.load(clients=3, seconds=2)
        (breach,) = await stopped(bench, "stopped: MachineFailed")
        assert breach.invariant == NO_PANIC and "poisoned" in breach.message

    play(scenario)


def test_a_quarantined_replica_is_found_unless_its_disk_was_damaged() -> None:
    async def scenario(bench: ClusterBench) -> None:
        await bench.load(clients=3, seconds=2)
        leader = next(node for group, node in (await bench.leaders()).items() if group != "catalog")
        machine = bench.world.node(leader)
        await bench.database.kill(leader)
        path = max(path for path in machine.disk.paths() if path.startswith("log/"))
        for byte in range(len(machine.disk.peek(path)) - 1_000, len(machine.disk.peek(path)) - 300):
            machine.disk.flip_bit(path, 8 * byte)
        await bench.database.start(leader)
        await bench.clock.sleep(1)
        assert await stopped(bench, "quarantined") == ()
        await bench.database.kill(leader)
        machine.disk.damaged = False
        await bench.database.start(leader)
        await bench.clock.sleep(1)
        (breach,) = await stopped(bench, "quarantined")
        assert (breach.invariant, breach.nodes[0].split()[0]) == (NO_PANIC, leader)

    play(scenario)
