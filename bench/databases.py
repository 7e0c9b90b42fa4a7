"""Databases that people use, in containers: how soon they serve, and what our clients cost against their libraries."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import uvloop

from assay.compose import made_of, own_database
from assay.discovery import find_database
from assay.options import RunOptions
from bench.clusters import OPERATION_S, READY_S, Laps
from bench.measure import Row, chosen, kept_in, report, spent
from harness.env.docker.environment import DockerEnvironment
from harness.env.docker.images import image_spec
from harness.generators import Chance, Context, clients, draw, invoke, time_limit
from harness.history.journal import JournalWriter
from harness.history.ops import Op, read, write
from harness.ports.real.ports import RealClock
from harness.run.interpreter import ProcessIds, Recorder, interpret
from harness.run.workers import DatabaseClients
from harness.verdict.failures import FailureLog

Ask: TypeAlias = Callable[[int, int | None], Awaitable[Any]]
"""Reads a key, or writes a value to it."""


class LoopPace(NamedTuple):
    """Operations a second, and milliseconds of this process for each."""

    hz: float
    cpu_ms: float


PROCESSES: Final = (1, 10)
KEYS: Final = 1_000
LEVEL: Final = {"isolation": "read-committed"}
"""Of SQL, so that no transaction is refused."""


# ---- bare loops: what each library's own example would do, with the statements of our clients ----


async def _etcd(database: Any, process: int) -> Ask:
    from assay.databases.etcd import PREFIX, coded

    http = database.http(database.nodes[process % len(database.nodes)].name, OPERATION_S)

    async def ask(key: int, value: int | None) -> Any:
        body = {"key": coded(f"{PREFIX}{key}")}
        if value is None:
            return (await http.post("/v3/kv/range", json=body)).json()
        return (await http.post("/v3/kv/put", json={**body, "value": coded(str(value))})).json()

    return ask


async def _redis(database: Any, process: int) -> Ask:
    from assay.databases.redis import PORT, connection

    found = connection(database.address(database.nodes[0].name), PORT, OPERATION_S)

    async def ask(key: int, value: int | None) -> Any:
        return await (found.get(f"k{key}") if value is None else found.set(f"k{key}", value))

    return ask


async def _sql(database: Any, process: int, upsert: str, rows: Callable[..., Awaitable[Any]]) -> Ask:
    """One transaction each, on a connection of its own."""
    client: Any = await database.open_client(process, OPERATION_S)
    connection = await client.connect()

    async def ask(key: int, value: int | None) -> Any:
        await rows(connection, client.begin, None)
        if value is None:
            found = await rows(connection, "SELECT v FROM t0 WHERE k = %s", (key,))
        else:
            found = await rows(connection, upsert, (key, value))
        await rows(connection, "COMMIT", None)
        return found

    return ask


async def _rows_of_psycopg(connection: Any, statement: str, values: Any) -> Any:
    cursor = await connection.execute(statement, values)
    return await cursor.fetchall() if cursor.description else None


async def _rows_of_asyncmy(connection: Any, statement: str, values: Any) -> Any:
    async with connection.cursor() as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchall() if cursor.description else None


_UPSERT: Final = "INSERT INTO t0 (k, v) VALUES (%s, %s) ON"
BARE: Final[Mapping[str, Callable[[Any, int], Awaitable[Ask]]]] = {
    "etcd": _etcd,
    "redis": _redis,
    "postgresql": partial(_sql, upsert=f"{_UPSERT} CONFLICT (k) DO UPDATE SET v = EXCLUDED.v", rows=_rows_of_psycopg),
    "mariadb": partial(_sql, upsert=f"{_UPSERT} DUPLICATE KEY UPDATE v = VALUES(v)", rows=_rows_of_asyncmy),
}


async def _bare(database: Any, name: str, count: int, seconds: float) -> LoopPace:
    """In a closed loop, half of them reads, over keys that no two ask for at once, most likely."""
    asks = await asyncio.gather(*(BARE[name](database, process) for process in range(count)))
    until = time.perf_counter() + seconds

    async def work(ask: Ask, key: int) -> int:
        done = 0
        while time.perf_counter() < until:
            await ask((done * count + key) % KEYS, done if done % 2 else None)
            done += 1
        return done

    with spent() as took:
        done = sum(await asyncio.gather(*(work(ask, key) for key, ask in enumerate(asks))))
    return LoopPace(done / seconds, 1e3 * took.cpu_s / done)


async def _ours(database: Any, count: int, seconds: float, folder: Path) -> LoopPace:
    """The same by the interpreter and our clients, journal included."""

    def next_one(context: Context, chance: Chance, number: int) -> Op:
        key = number % KEYS
        return invoke("write", write(key, number)) if number // count % 2 else invoke("read", read(key))

    journal = JournalWriter(folder / f"journal-{time.monotonic_ns()}")
    done = 0

    def seen(op: Op) -> None:
        nonlocal done
        done += op.type == "ok"

    recorder = Recorder(journal, RealClock(), seen)
    pool, failures = DatabaseClients(database, OPERATION_S), FailureLog()
    with spent() as took:
        await interpret(
            time_limit(seconds, clients(draw(1, next_one))),
            clients=pool,
            nemesis=None,
            recorder=recorder,
            failures=failures,
            processes=ProcessIds(count),
        )
    journal.close()
    assert not failures.failures(), failures.failures()
    return LoopPace(done / seconds, 1e3 * took.cpu_s / done)


def own_databases(*databases: str, seconds: Annotated[float, "of each loop"] = 3.0, pairs: int = 5) -> Iterator[Row]:
    """Medians of pairs: a bare loop of the client library, then ours, on a cluster without faults.

    `ready_s` is from no containers to a database that serves, its image being there.
    """
    for name in chosen(databases, BARE):
        yield uvloop.run(_measured(name, seconds, pairs))


async def _measured(name: str, seconds: float, pairs: int) -> Row:
    plugin = find_database(name).value
    level = LEVEL if any(option.name == "isolation" for option in plugin.options) else {}
    options = RunOptions("register", on="docker", database=name, nodes=plugin.default_nodes, database_options=level)
    environment, laps = DockerEnvironment(RealClock(), image_spec(*made_of(options)), report), Laps()
    database = own_database(options, environment, {})
    try:
        await environment.prepare()
        laps.end("image")
        await environment.setup(database.nodes)
        await database.install()
        await database.first_start()
        await database.await_ready(READY_S)
        await database.setup_workload("register", {})
        laps.end("ready")
        row: Row = {"database": name, "nodes": len(database.nodes), "ready_s": laps.seconds["ready"]}
        with kept_in() as folder:
            for count in PROCESSES:
                await _bare(database, name, count, 1.0)
                found = [
                    (await _bare(database, name, count, seconds), await _ours(database, count, seconds, folder))
                    for _ in range(pairs)
                ]
                report(
                    f"{name}, {count}: {', '.join(f'{bare.hz:.0f} and {ours.hz:.0f}' for bare, ours in found)} a second"
                )
                row |= _compared(found, count)
    finally:
        await database.teardown()
        await environment.teardown()
    return {**row, "load": round(os.getloadavg()[0], 1)}


def _compared(found: list[tuple[LoopPace, LoopPace]], count: int) -> Row:
    """Processor time says more where others load the machine."""
    alone = count == 1
    cpu_ms = round(statistics.median(bare.cpu_ms for bare, _ in found), 2)
    more_cpu_ms = round(statistics.median(ours.cpu_ms - bare.cpu_ms for bare, ours in found), 2)
    cpu = {f"CPU_ms_at_{count}": cpu_ms, f"more_CPU_ms_at_{count}": more_cpu_ms}
    if alone:
        more_ms = statistics.median(1e3 / ours.hz - 1e3 / bare.hz for bare, ours in found)
        bare_ms = statistics.median(1e3 / bare.hz for bare, _ in found)
        return {"bare_ms_at_1": round(bare_ms, 2), "more_ms_at_1": round(more_ms, 2), **cpu}
    bare_hz = round(statistics.median(bare.hz for bare, _ in found))
    share = statistics.median(ours.hz / bare.hz for bare, ours in found)
    return {f"bare_ops_per_s_at_{count}": bare_hz, f"ours_%_at_{count}": round(100 * share), **cpu}
