"""What large catalogs cost masters: their own work on one, a table of 1 000 tablets made, all masters started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from random import Random
from typing import Annotated, Any, Final

import msgspec
import uvloop

from bench.clusters import (
    Cluster,
    Masters,
    TabletServers,
    containers,
    in_containers,
    in_simulator,
    node_cpu_s,
    started,
)
from bench.measure import Row, report, spent
from cluster.client.client import ClusterClient
from cluster.deploy.layout import MASTER_ROLE
from cluster.deploy.readiness import leaders
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
    CATALOG_GROUP,
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
from harness.errors import DefiniteError
from harness.ports.api import Clock, Ports
from harness.ports.real.ports import RealClock
from harness.ports.sim.world import World

COLUMNS: Final = (
    Column(-1, "k", "int64", nullable=False, key=True),
    Column(-1, "name", "string"),
    Column(-1, "age", "int32"),
)
SERVERS: Final = tuple(Replica(f"t{number}", f"server{number}.example.org:7050") for number in range(1, 6))
TABLETS_OF_A_TABLE: Final = 1_000
CALL_S: Final = 30.0
LOOK_EVERY_S: Final = 0.1
RUNNING_S: Final = 240.0
SETTLING_S: Final = 3.0
_SNAPSHOT_PART_BYTES: Final = 262_144


def masters(
    tablets: Annotated[int, "of the table that is made"] = TABLETS_OF_A_TABLE,
    catalog: Annotated[int, "tablets of the catalog that a leader takes up"] = 10_000,
    docker: Annotated[bool, "make the table in containers too"] = False,
    masters: Masters = 3,
    nodes: TabletServers = 5,
) -> Iterator[Row]:
    """A table made, a catalog taken up by a leader, full reports: one master's own work, on a group of only itself.

    With `docker` the table is made in containers, timed from the call to its last tablet RUNNING.
    """
    yield {"what": f"a table of {tablets} tablets in one batch, B", "figure": created_bytes(tablets)}
    for what, figure in (restart(catalog) | heartbeats(tablets)).items():
        yield {"what": what, "figure": figure}
    if docker:
        for what, figure in uvloop.run(_created_in_containers(tablets, masters, nodes)).items():
            yield {"what": f"{tablets} tablets in containers: {what}", "figure": figure}


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
    """A catalog of that size, in tables of a thousand tablets."""
    catalog, entropy, all_tablets = Catalog(), Random(1), []
    for number in range(max(1, tablets // TABLETS_OF_A_TABLE)):
        table, made = table_of(min(tablets, TABLETS_OF_A_TABLE), entropy, f"people{number}")
        table = msgspec.structs.replace(table, revision=1)
        catalog.apply(number + 1, encode_batch([table], [msgspec.structs.replace(each, revision=1) for each in made]))
        all_tablets += made
    return catalog, all_tablets


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of CPU time, and what it returns."""
    with spent() as took:
        result = work()
    return round(1e3 * took.cpu_s, 2), result


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
        f"a snapshot of {tablets} tablets, MB": round(sum(map(len, parts)) / 1e6, 2),
        "the snapshot is read, ms": read_ms,
        "caches are made, the first time it leads, ms": lead_ms,
        f"the first GetTableLocations, {min(tablets, TABLETS_OF_A_TABLE)} tablets, ms": first_ms,
        "from a restart until it serves, ms": round(serving, 2),
        "a follower becomes leader and answers, ms": round(lead_ms + first_ms, 2),
        f"full reports of all servers, {3 * tablets} replicas, ms": reports_ms,
        "one background scan, ms": scan_ms,
        "all of it, ms": round(serving + reports_ms + scan_ms, 2),
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
    """Microseconds of a master for one heartbeat with a full report, and for one with none."""
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
    full, none = f"a heartbeat with a full report of {len(reports)} tablets", "a heartbeat with none"
    for name, leads, some in (
        (f"{full}, a follower, us", False, reports),
        (f"{none}, a follower, us", False, ()),
        (f"{full}, the leader, us", True, reports),
    ):
        manager, request = manager_of(ports, catalog, leads), beat(SERVERS[0], some)
        took_ms, _ = _timed(lambda: world.run(_all_heard(manager, [request] * rounds)))  # noqa: B023
        manager.close()
        yield name, round(1e3 * took_ms / rounds, 1)


# ---- a table of a thousand tablets ----


async def _made(client: ClusterClient, clock: Clock, name: str, tablets: int) -> dict[str, float]:
    """Seconds from CreateTable to its answer, and to the table's last tablet RUNNING.

    Raises TimeoutError where they don't run in time: there would be nothing to measure.
    """
    began_ns = clock.monotonic_ns()
    await client.create_table(name, COLUMNS, tablets, 3)
    answered_s = (clock.monotonic_ns() - began_ns) / 1e9
    while not await client.is_create_done(name):
        if clock.monotonic_ns() - began_ns > RUNNING_S * 1e9:
            raise TimeoutError(f"{name} was not running {RUNNING_S:.0f} s after its creation was asked for")
        await clock.sleep(LOOK_EVERY_S)
    running_s = (clock.monotonic_ns() - began_ns) / 1e9
    report(f"{name} ran after {running_s:.1f} s")
    return {"answered, s": round(answered_s, 2), "running, s": round(running_s, 2)}


async def _created_in_containers(tablets: int, masters: int, tservers: int) -> dict[str, float]:
    """The seconds of a table, and what the nodes' processors did for it."""
    async with containers(masters, tservers) as running:
        await started(running[1])
        await asyncio.sleep(SETTLING_S)
        before_s = await node_cpu_s(running)
        seconds = await _made(running[1].admin_client(CALL_S), RealClock(), "people", tablets)
        return seconds | {"CPU of all nodes, s": round(await node_cpu_s(running) - before_s, 2)}


# ---- all masters at once ----


def masters_restart(
    tables: Annotated[int, "of a thousand tablets each"] = 10,
    docker: Annotated[bool, "in containers instead; their processors are not counted"] = False,
) -> Iterator[Row]:
    """All masters are killed and started: when the catalog serves, and what that cost; then their leader is killed.

    Tables are made first, by the cluster itself; it serves when all tablets of one are located. In the simulator the
    processor's time is that of the whole simulation meanwhile, all masters and tablet servers with their full reports
    included: what one master does is less.
    """
    work = partial(_restarted, tables=tables)
    found = in_containers(work, 3, 5) if docker else in_simulator(work)
    for what, (seconds, cpu_s) in found.items():
        figures = {"s": round(seconds, 3)} | ({} if docker else {"CPU_s": round(cpu_s, 3)})
        yield {"what": what, "where": "containers" if docker else "simulator", **figures, "tables": tables}


async def _restarted(database: Cluster, clock: Clock, tables: int) -> dict[str, tuple[float, float]]:
    client = database.admin_client(CALL_S)
    await started(database)
    for number in range(tables):
        await _made(client, clock, f"people{number}", TABLETS_OF_A_TABLE)
    await clock.sleep(SETTLING_S)
    masters = [node.name for node in database.nodes if node.role == MASTER_ROLE]
    await asyncio.gather(*(database.kill(name) for name in masters))
    restart = await _until_located(client, clock, database, masters)
    await clock.sleep(SETTLING_S)
    await database.kill(leaders((await database.statuses()).values())[CATALOG_GROUP])
    return {"all masters start": restart, "their leader is killed": await _until_located(client, clock, database, ())}


async def _until_located(
    client: ClusterClient, clock: Clock, database: Cluster, masters: Sequence[str]
) -> tuple[float, float]:
    """Seconds and this process's CPU-seconds, from the start of these until all tablets of a table are located."""
    began_ns, cpu_s = clock.monotonic_ns(), time.process_time()
    await asyncio.gather(*(database.start(name) for name in masters))
    while True:
        try:
            found = await client.table_locations("people0")
        except DefiniteError:
            continue
        if len(found.tablets) == TABLETS_OF_A_TABLE and all(tablet.replicas for tablet in found.tablets):
            return (clock.monotonic_ns() - began_ns) / 1e9, time.process_time() - cpu_s
