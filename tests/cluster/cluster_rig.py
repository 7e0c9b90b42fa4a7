"""The whole cluster on a simulated world with clients that count up registers; for end-to-end tests of the cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.deploy.readiness import leaders
from harness.errors import DefiniteError, IndefiniteError
from harness.history.ops import Mop, Op, cas, read, write
from harness.ports.sim.disk import DiskOptions
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.world import World
from harness.ports.sim.worlds import PHYSICAL_KEYS, draw_values, physical_world
from harness.protocols import Client
from tests.support.knobs import draw_knobs

FLAKY = LinkOptions(duplication=0.05, reorder=0.05, slow=0.02)
"""What every network may do to one-way messages, and slow replies; calls are never lost without a fault."""


@dataclass
class Tally:
    """What clients saw. `taken` has, for each key, every value that a successful cas replaced."""

    outcomes: dict[tuple[str, str], int] = field(default_factory=dict)
    taken: dict[int, list[int | None]] = field(default_factory=dict)
    unknown: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    nodes: dict[str, None] = field(default_factory=dict)

    def count(self, f: str, outcome: str) -> None:
        self.outcomes[f, outcome] = self.outcomes.get((f, outcome), 0) + 1

    def ok(self, f: str) -> int:
        return self.outcomes.get((f, "ok"), 0)


class ClusterRig:
    """A database under test and its clients; `faults` run beside the clients."""

    def __init__(self, world: World, database: SimDatabase) -> None:
        self.world = world
        self.database = database
        self.clock = world.harness_ports("bench").clock
        self.tally = Tally()

    async def start(self, buckets: int = 3) -> None:
        await self.database.install()
        for node in self.database.nodes:
            await self.database.start(node.name)
        await self.database.await_ready(20)
        await self.database.setup_workload("register", {"buckets": buckets})

    async def leaders(self) -> dict[str, str]:
        return leaders((await self.database.statuses()).values())

    def isolate(self, name: str) -> None:
        """Cut a node off from every other node, both ways; clients still reach it."""
        for node in self.database.nodes:
            if node.name != name:
                self.world.network.cut(name, node.name)
                self.world.network.cut(node.name, name)

    async def load(self, clients: int, seconds: float, keys: int = 6, pause_s: float = 0.01) -> None:
        """Let clients work for a while: each reads a register, then counts it up by compare-and-set."""
        until_ns = self.clock.monotonic_ns() + int(seconds * 1e9)
        await asyncio.gather(*(self._work(number, until_ns, keys, pause_s) for number in range(clients)))

    async def _work(self, process: int, until_ns: int, keys: int, pause_s: float) -> None:
        entropy = random.Random(f"{self.world.seed}/{process}")
        client = await self.database.open_client(process, 3.0)
        while self.clock.monotonic_ns() < until_ns:
            await self.clock.sleep(pause_s * (0.5 + entropy.random()))
            key = entropy.randrange(keys)
            seen = await self.invoke(client, process, read(key))
            if seen is None:
                continue
            if await self.invoke(client, process, cas(key, seen.value, (seen.value or 0) + 1)) is not None:
                self.tally.taken.setdefault(key, []).append(seen.value)
            await self.invoke(client, process, write(keys + process, entropy.randrange(100)))

    async def invoke(self, client: Client, process: int, mop: Mop) -> Mop | None:
        """One operation; None unless it was ok."""
        try:
            done = await client.invoke(Op("invoke", process, mop.f, (mop,)))
        except DefiniteError as error:
            self._note(mop, "fail", error)
        except IndefiniteError as error:
            self._note(mop, "info", error)
            self.tally.unknown[mop.partition] = self.tally.unknown.get(mop.partition, 0) + 1
        else:
            self.tally.count(mop.f, done.type)
            self.tally.nodes[done.node or "?"] = None
            assert done.served_ts is not None
            return done.mops[0]
        return None

    def _note(self, mop: Mop, outcome: str, error: DefiniteError | IndefiniteError) -> None:
        self.tally.count(mop.f, outcome)
        self.tally.errors.append(f"{mop.f} {outcome} {error.kind}: {error}")

    async def check_counters(self, keys: int = 6) -> None:
        """No value was replaced twice, and every register counts its successes, and at most the unknown ones beside."""
        client = await self.database.open_client(1_000, 5.0)
        for key in range(keys):
            taken = self.tally.taken.get(key, [])
            assert len(dict.fromkeys(taken)) == len(taken), f"a value of register {key} was replaced twice"
            final = await self.invoke(client, 1_000, read(key))
            assert final is not None
            assert len(taken) <= (final.value or 0) <= len(taken) + self.tally.unknown.get(key, 0)


def drawn_disk(seed: int) -> DiskOptions:
    return physical_world(draw_values(PHYSICAL_KEYS, seed, "harsh", {})).disk_options()


def play_cluster(
    scenario: Callable[[ClusterRig], Awaitable[None]], seed: int = 1, sampled: bool = True, masters: int = 3
) -> str:
    """Run a scenario on a fresh cluster of the seed's own knobs; nothing in it may panic. The trace digest."""
    knobs, disk = (draw_knobs(seed), drawn_disk(seed)) if sampled else (None, None)
    with World(seed, network=FLAKY, disk=disk) as world:
        database = SimDatabase(world, Layout(masters), knobs=knobs)
        rig = ClusterRig(world, database)

        async def main() -> None:
            await asyncio.wait_for(scenario(rig), 300)
            assert (await database.invariants()).breaches == ()
            await database.teardown()

        world.run(main())
        assert [(node.name, error) for node in world.nodes for error in node.errors] == []
        assert world.errors == []
        return world.trace_digest()
