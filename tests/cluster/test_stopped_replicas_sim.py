"""What a whole simulated cluster tells of replicas that stop, and how much of its statuses can be compared (G10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cluster.deploy.database_sim import SimDatabase
from cluster.invariants.watch import NO_PANIC, Reports
from cluster.ranges.tablet import TabletMachine
from harness.ports.sim.world import World
from harness.protocols import Breach
from tests.cluster.cluster_rig import ClusterRig


def play(scenario: Callable[[ClusterRig], Awaitable[None]]) -> None:
    with World(1) as world:
        rig = ClusterRig(world, SimDatabase(world))

        async def main() -> None:
            await rig.start(buckets=1)
            await asyncio.wait_for(scenario(rig), 60)
            await rig.database.teardown()

        world.run(main())


async def stopped(rig: ClusterRig, word: str) -> tuple[Breach, ...]:
    """What was found, once a node has said so of a replica: masters replace it as soon as they hear of it."""
    logs = await rig.database.collect_logs()
    assert any(word in log.decode() for log in logs.values())
    return (await rig.database.invariants()).breaches


def test_the_statuses_of_a_quiet_cluster_are_really_compared() -> None:
    async def scenario(rig: ClusterRig) -> None:
        await rig.load(clients=3, seconds=2)
        await rig.clock.sleep(1)
        reports = Reports()
        for _ in range(2):
            for status in (await rig.database.statuses()).values():
                reports.take(status)
        assert reports.record().breaches == ()
        assert reports.record().checked["state-digest"] >= 8  # two of three replicas of two groups, twice

    play(scenario)


def test_a_replica_whose_program_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: ClusterRig) -> None:
        original, machines = TabletMachine.apply, dict[TabletMachine, None]()

        def apply(machine: TabletMachine, index: int, command: bytes) -> bytes:
            machines[machine] = None
            if machine is next(iter(machines)):
                raise RuntimeError("poisoned")
            return original(machine, index, command)

        monkeypatch.setattr(TabletMachine, "apply", apply)
        await rig.load(clients=3, seconds=2)
        (breach,) = await stopped(rig, "stopped: MachineFailed")
        assert breach.invariant == NO_PANIC and "poisoned" in breach.message

    play(scenario)


def test_a_quarantined_replica_is_found_unless_its_disk_was_damaged() -> None:
    async def scenario(rig: ClusterRig) -> None:
        await rig.load(clients=3, seconds=2)
        leader = next(node for group, node in (await rig.leaders()).items() if group != "catalog")
        machine = rig.world.node(leader)
        await rig.database.kill(leader)
        path = max(path for path in machine.disk.paths() if path.startswith("log/"))
        for byte in range(len(machine.disk.peek(path)) - 1_000, len(machine.disk.peek(path)) - 300):
            machine.disk.flip_bit(path, 8 * byte)
        await rig.database.start(leader)
        await rig.clock.sleep(1)
        assert await stopped(rig, "quarantined") == ()
        await rig.database.kill(leader)
        machine.disk.damaged = False
        await rig.database.start(leader)
        await rig.clock.sleep(1)
        (breach,) = await stopped(rig, "quarantined")
        assert (breach.invariant, breach.nodes[0].split()[0]) == (NO_PANIC, leader)

    play(scenario)
