"""What large catalogs cost masters: a table of 1 000 tablets made, 10 000 tablets taken up by a leader, full reports.

`--docker` makes the table in containers, timed from the call to its last tablet RUNNING. The rest is one master's own
work on a group that is only itself, so that nothing else is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import uvloop

from bench._measure import machine
from bench.docker_throughput import node_cpu_s
from cluster.deploy.database_ssh import SshDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.master.background import scan
from cluster.master.catalog import Catalog, encode_batch
from cluster.master.heartbeats import heartbeat
from cluster.master.manager import CatalogManager
from cluster.master.queries import answer
from cluster.master.records import TableRecord, TabletConfig, TabletRecord, TabletState, new_table, new_tablet
from cluster.master.tservers import ServerMap
from cluster.raft.types import Configuration, Member
from cluster.wire.messages import (
    Column,
    CreateTableReply,
    GetTableLocations,
    Heartbeat,
    Partition,
    Replica,
    RequestId,
    TabletReport,
    encode,
    encode_reports,
)
from harness.env.docker.environment import DockerEnvironment
from harness.ports.api import Ports
from harness.ports.real.ports import RealClock
from harness.ports.sim.world import World

COLUMNS = (Column(-1, "k", "int64", nullable=False, key=True), Column(-1, "name", "string"), Column(-1, "age", "int32"))
SERVERS = tuple(Replica(f"t{number}", f"server{number}.example.org:7050") for number in range(1, 6))
TABLETS_OF_A_TABLE = 1_000
READY_S = 60.0
CALL_S = 30.0
LOOK_EVERY_S = 0.1
RUNNING_S = 120.0
_SNAPSHOT_PART_BYTES = 262_144


# ---- records as they are after a while ----


def table_of(tablets: int, entropy: Random, name: str = "people") -> tuple[TableRecord, list[TabletRecord]]:
    """A table that runs, three replicas of each tablet spread over the servers."""
    table = new_table(f"{entropy.getrandbits(128):032x}", name, COLUMNS, 3)
    return table, [_running(table, bucket, tablets, entropy) for bucket in range(tablets)]


def _running(table: TableRecord, bucket: int, buckets: int, entropy: Random) -> TabletRecord:
    made = new_tablet(f"{entropy.getrandbits(128):032x}", table.table_id, Partition(bucket, buckets))
    voters = tuple(SERVERS[(bucket + place) % len(SERVERS)] for place in range(3))
    ids = tuple(voter.node_id for voter in voters)
    return msgspec.structs.replace(made, state=TabletState.RUNNING, config=TabletConfig(1, voters), confirmed=ids)


def created_bytes(tablets: int) -> int:
    """The batch that a CreateTable replicates."""
    entropy = Random(1)
    table = new_table(f"{entropy.getrandbits(128):032x}", "people", COLUMNS, 3)
    made = [
        new_tablet(f"{entropy.getrandbits(128):032x}", table.table_id, Partition(bucket, tablets))
        for bucket in range(tablets)
    ]
    reply = encode(CreateTableReply(table.table_id))
    return len(encode_batch([table], made, RequestId(1 << 40, 1, 1), reply, time.time_ns()))


# ---- one master's own work ----


class Alone:
    """A catalog group of one master (`cluster.master.manager.CatalogGroup`): what is proposed is applied at once."""

    def __init__(self, catalog: Catalog, leads: bool) -> None:
        self._catalog, self.is_leader = catalog, leads
        self.term, self.installing, self._index = 7, False, 0
        self.leader = "m1" if leads else "m2"
        self.configuration = self.committed_configuration = Configuration((Member("m1", "m1:7051"),), (), 1, 1)

    async def propose(self, command: bytes, timeout_s: float) -> bytes:
        self._index += 1
        return self._catalog.apply(self._index, command)

    async def read_barrier(self, timeout_s: float) -> bool:
        return True

    def committed_as_of(self) -> tuple[int, int] | None:
        return (self._index, 0)

    async def applied(self, index: int, timeout_s: float) -> None:
        return None


def manager_of(ports: Ports, catalog: Catalog, leads: bool) -> CatalogManager:
    """The catalog manager of a master that has this catalog, and leads or follows."""
    return CatalogManager(ports, catalog, Alone(catalog, leads), ServerMap(10**13), Knobs())


def reports_of(server: Replica, tablets: Sequence[TabletRecord]) -> tuple[TabletReport, ...]:
    """What a tablet server that was there all the time reports of the tablets that it has."""
    return tuple(
        TabletReport(
            tablet.tablet_id,
            tablet.table_id,
            "RUNNING",
            2,
            tablet.config.voters[0].node_id,
            tablet.config.voters,
            (),
            tablet.config.op_index,
            0,
        )
        for tablet in tablets
        if tablet.config is not None and server.node_id in tablet.config.node_ids
    )


def beat(server: Replica, reports: tuple[TabletReport, ...]) -> Heartbeat:
    """A full report."""
    return Heartbeat(server.node_id, 1, server.address, "z1", 1, True, encode_reports(reports))


def whole(tablets: int) -> tuple[Catalog, list[TabletRecord]]:
    """A catalog of so many tablets, in tables of a thousand."""
    catalog, entropy, all_tablets = Catalog(), Random(1), []
    for number in range(max(1, tablets // TABLETS_OF_A_TABLE)):
        table, made = table_of(min(tablets, TABLETS_OF_A_TABLE), entropy, f"people{number}")
        table = msgspec.structs.replace(table, revision=1)
        catalog.apply(number + 1, encode_batch([table], [msgspec.structs.replace(each, revision=1) for each in made]))
        all_tablets += made
    return catalog, all_tablets


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = work()
    return round(1e3 * (time.process_time() - began), 2), result


def restart(tablets: int) -> dict[str, float]:
    """Milliseconds of one master's own work, from its disk to a leader that has heard of every server."""
    catalog, records = whole(tablets)
    parts = list(catalog.freeze(_SNAPSHOT_PART_BYTES))
    with World(1) as world:
        ports = world.harness_ports("m1")

        def do(work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[float, Any]:
            return _timed(lambda: world.run(work()))

        read_ms, restored = _timed(lambda: _restored(parts))
        manager = manager_of(ports, restored, leads=True)
        lead_ms, leadership = do(manager.lead)
        first_ms, _ = do(lambda: answer(manager, GetTableLocations("people0")))
        beats = [beat(server, reports_of(server, records)) for server in SERVERS]
        reports_ms, _ = do(lambda: _all_heard(manager, beats))
        scan_ms, _ = do(lambda: scan(manager, leadership))
        manager.close()
    serving = read_ms + lead_ms + first_ms
    return {
        "snapshot_mb": round(sum(map(len, parts)) / 1e6, 2),
        "read_ms": read_ms,
        "caches_ms": lead_ms,
        "first_answer_ms": first_ms,
        "full_reports_ms": reports_ms,
        "background_scan_ms": scan_ms,
        "until_it_serves_ms": round(serving, 2),
        "a_follower_that_leads_ms": round(lead_ms + first_ms, 2),
        "in_all_ms": round(serving + reports_ms + scan_ms, 2),
    }


async def _all_heard(manager: CatalogManager, beats: Sequence[Heartbeat]) -> None:
    for each in beats:
        await heartbeat(manager, each)


def _restored(parts: Sequence[bytes]) -> Catalog:
    catalog = Catalog()
    take = catalog.restoring()
    for part in parts:
        take(part)
    return catalog


def heartbeats(tablets: int, rounds: int = 200) -> dict[str, float]:
    """Microseconds of a master for one heartbeat with a full report of so many tablets, and for one with none."""
    catalog, records = whole(tablets)
    reports = reports_of(SERVERS[0], [_at(record, SERVERS[0]) for record in records])
    with World(1) as world:
        return dict(_heartbeat_costs(world, catalog, reports, rounds))


def _at(record: TabletRecord, server: Replica) -> TabletRecord:
    assert record.config is not None
    others = tuple(voter for voter in record.config.voters if voter != server)[:2]
    return msgspec.structs.replace(record, config=TabletConfig(1, (server, *others)))


def _heartbeat_costs(
    world: World, catalog: Catalog, reports: tuple[TabletReport, ...], rounds: int
) -> Iterator[tuple[str, float]]:
    ports = world.harness_ports("m1")
    for name, leads, told in (("follower", False, reports), ("follower, none", False, ()), ("leader", True, reports)):
        manager, request = manager_of(ports, catalog, leads), beat(SERVERS[0], told)
        took_ms, _ = _timed(lambda: world.run(_all_heard(manager, [request] * rounds)))  # noqa: B023
        manager.close()
        yield name, round(1e3 * took_ms / rounds, 1)


# ---- in containers ----


async def create_in_containers(tablets: int, masters: int, tservers: int) -> dict[str, float]:
    """Seconds from CreateTable to the table's last tablet RUNNING, and what the nodes' processors did for it."""
    environment = DockerEnvironment(RealClock(), report=lambda text: print(text, file=sys.stderr))
    database = SshDatabase(environment, Layout(masters, tservers))
    try:
        await environment.prepare()
        await environment.setup(database.nodes)
        await database.install()
        await asyncio.gather(*(database.start(node.name) for node in database.nodes))
        await database.await_ready(READY_S)
        await asyncio.sleep(3.0)
        return await _create(environment, database, tablets)
    finally:
        await database.teardown()
        await environment.teardown()


async def _create(environment: DockerEnvironment, database: SshDatabase, tablets: int) -> dict[str, float]:
    client = database.admin_client(CALL_S)
    cpu_before_s, began = await node_cpu_s(environment, database), time.perf_counter()
    await client.create_table("people", COLUMNS, tablets, 3)
    answered_s = time.perf_counter() - began
    async with asyncio.timeout(RUNNING_S):
        while not await client.is_create_done("people"):
            await asyncio.sleep(LOOK_EVERY_S)
    running_s = time.perf_counter() - began
    cpu_s = await node_cpu_s(environment, database) - cpu_before_s
    return {"answered_s": round(answered_s, 2), "running_s": round(running_s, 2), "nodes_cpu_s": round(cpu_s, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tablets", type=int, default=TABLETS_OF_A_TABLE, help="of the table that is made")
    parser.add_argument("--catalog", type=int, default=10_000, help="tablets of the catalog that a leader takes up")
    parser.add_argument("--docker", action="store_true", help="make the table in containers too")
    parser.add_argument("--masters", type=int, default=3, help="in containers")
    parser.add_argument("--nodes", type=int, default=5, help="tablet servers in containers")
    options = parser.parse_args()
    figures: dict[str, object] = {
        "benchmark": "masters",
        "created_bytes": created_bytes(options.tablets),
        "restart": restart(options.catalog),
        "heartbeat_us": heartbeats(options.tablets),
    }
    if options.docker:
        figures["docker"] = uvloop.run(create_in_containers(options.tablets, options.masters, options.nodes))
    print(json.dumps({**figures, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
