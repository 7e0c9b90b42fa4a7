"""A simulated cluster in five regions of a public cloud, a tablet server in each, and the ways to read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from bench.clusters import started
from cluster.client import operating
from cluster.client.client import ClusterClient
from cluster.client.reading import ReadWish
from cluster.deploy.adapter import REGISTER_COLUMNS, everywhere
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.wire.messages import WIRE_VERSION
from harness.ports.api import Ports
from harness.ports.sim.world import World
from harness.ports.sim.worlds import WAN_REGIONS, PhysicalWorld

T = TypeVar("T")

TABLE: Final = "registers"
HOME: Final = 0
"""The region of the leaseholder."""
FAR: Final = {"election_timeout_ms": 1_800, "max_clock_offset_ms": 1_500, "check_quorum_ms": 7_200}
"""Where a round trip takes a quarter of a second."""
MS: Final = 1_000_000
S: Final = 1_000_000_000

WRITE: Final = "write"
MODES: Final[dict[str, ReadWish]] = {
    WRITE: ReadWish(),
    "strong": ReadWish(),
    "strong, anywhere": ReadWish(strong_anywhere=True),
    "exact, 5 s ago": ReadWish(as_of=-5 * S),
    "bounded, 10 s": ReadWish(max_staleness=10 * S),
}
GLOBAL_MODES: Final = {f"{WRITE}, GLOBAL": ReadWish(), "strong, GLOBAL": ReadWish()}
LEASES: Final = {"max_clock_offset_ms": 500, "tablet_lease_ms": 10_000, "support_ms": 10_000}
"""Clocks as a public cloud has them, and leases that are longer than a GLOBAL table is closed ahead."""


def far(
    work: Callable[[World, SimDatabase], Awaitable[T]],
    policy: str = "",
    kind: type[SimDatabase] = SimDatabase,
    through: Callable[[Ports], Ports] = lambda ports: ports,
    /,
    **knobs: int,
) -> T:
    """What it returns on a cluster in five regions whose table has its lease and most voters at home, and is closed by
    this policy."""
    plan = PhysicalWorld(latency="wan5").link_options
    with World(1, network=plan, version=WIRE_VERSION) as world:

        async def main() -> T:
            database = kind(world, Layout(zones=5), knobs=Knobs(**{**FAR, **knobs}), through=through)
            await started(database)
            client = database.admin_client(10.0)
            zones = (await client.tablet_servers()).zones
            await client.create_table(TABLE, REGISTER_COLUMNS, 1, everywhere(zones, ""), policy=policy)
            await database.await_ready(60)
            await at_home(database, client)
            found = await work(world, database)
            await database.teardown()
            return found

        return world.run(main())


async def at_home(database: SimDatabase, client: ClusterClient) -> None:
    """Until each server has a replica and the first region has the lease."""
    while True:
        (tablet,) = (await client.table_locations(TABLE)).tablets
        if len(tablet.replicas) == len(WAN_REGIONS) and tablet.leader_hint is not None:
            home = f"t{HOME + 1}"
            if tablet.leader_hint.startswith(home):
                break
            leader = next(each for each in tablet.replicas if each.node_id == tablet.leader_hint)
            target = next(each for each in tablet.replicas if each.node_id.startswith(home))
            await operating.transfer_leadership(client, leader.address, tablet.tablet_id, target.node_id, 5.0)
        await asyncio.sleep(0.5)
    await asyncio.sleep(15)  # its side transport has closed it, and clients would know so


def client_in(world: World, database: SimDatabase, region: int, timeout_s: float = 10.0) -> tuple[ClusterClient, Ports]:
    """A client on a machine in that region."""
    ports = world.harness_ports(f"c{(region + 1) % len(WAN_REGIONS)}")
    return ClusterClient(ports, [database.address(f"m{number}") for number in (1, 2, 3)], timeout_s), ports
