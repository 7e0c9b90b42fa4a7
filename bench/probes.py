"""What the probes of faults cost clients in containers: laps of load with and without them, in alternation.

One cluster without a fault, clients in a closed loop (`bench.docker_throughput`). In every other lap the looks go on
that nemeses make at faults while they last, half a second after the last round: at the network (as for partitions), at
all processes (kills, pauses), at all statuses (clocks, membership), and at the packets of some links. A run has at most
two faults at a time, so that `--looks 4` is more than any run does. Each lap with probes is compared with the mean of
those before and after it. Waiting hides what is costly where the machine has room, so processor time is told as well.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import uvloop

from assay.options import PROBE_PERIOD_S
from bench._measure import machine
from bench.docker_throughput import Laps, bring_up, load, node_cpu_s
from cluster.deploy.database_ssh import SshDatabase
from cluster.deploy.layout import Layout
from harness.env.docker.environment import DockerEnvironment
from harness.errors import UserError
from harness.ports.real.clock import RealClock
from nemesis.kinds.packets import DATAGRAM_BYTES, DATAGRAMS, DATAGRAMS_OVER_S, LINKS_PROBED

Look = Callable[[], Awaitable[Any]]


def looks(environment: DockerEnvironment, database: SshDatabase) -> tuple[Look, ...]:
    """What nemeses look at, the most frequent first."""
    names = [node.name for node in database.nodes]
    links = list(itertools.permutations(names, 2))[:LINKS_PROBED]
    return (
        environment.reachability,
        lambda: asyncio.gather(*(database.process_state(name) for name in names)),
        database.statuses,
        lambda: environment.flows(links, DATAGRAMS, DATAGRAM_BYTES, DATAGRAMS_OVER_S),
    )


async def _probe(chosen: Sequence[Look], rounds: list[float]) -> None:
    """As `nemesis.observe.FaultWatch` does: one look after the other, a period after the last round."""
    while True:
        await asyncio.sleep(PROBE_PERIOD_S)
        began = time.perf_counter()
        for look in chosen:
            await look()
        rounds.append(time.perf_counter() - began)


async def _measure(options: argparse.Namespace) -> dict[str, object]:
    environment = DockerEnvironment(RealClock(), report=lambda text: print(text, file=sys.stderr))
    database = SshDatabase(environment, Layout(options.masters, options.nodes))
    laps: list[tuple[float, float]] = []
    rounds: list[float] = []
    try:
        await bring_up(environment, database, setting_up := Laps())
        await load(database, options.concurrency, options.seconds)
        for lap in range(2 * options.pairs + 1):
            probing = (
                asyncio.create_task(_probe(looks(environment, database)[: options.looks], rounds)) if lap % 2 else None
            )
            before_s = await node_cpu_s(environment, database) + time.process_time()
            done = len(await load(database, options.concurrency, options.seconds))
            used_s = await node_cpu_s(environment, database) + time.process_time() - before_s
            if probing is not None:
                probing.cancel()
                with suppress(asyncio.CancelledError):
                    await probing
            laps.append((done / options.seconds, 1e6 * used_s / done))
            print(
                f"lap {lap}: {laps[-1][0]:.0f} operations a second, {laps[-1][1]:.0f} us of processor", file=sys.stderr
            )
    finally:
        await database.teardown()
        await environment.teardown()
    return {
        "throughput_ratio": _ratio([rate for rate, _ in laps]),
        "processor_ratio": _ratio([cost for _, cost in laps]),
        "operations_per_second": round(statistics.median(rate for rate, _ in laps[::2])),
        "setting_up_s": setting_up.seconds,
        "rounds": len(rounds),
        "round_ms_median": round(1e3 * statistics.median(rounds)),
    }


def _ratio(laps: Sequence[float]) -> dict[str, float]:
    """Laps with probes (every other) against the mean of both neighbours."""
    found = [2 * laps[i] / (laps[i - 1] + laps[i + 1]) for i in range(1, len(laps), 2)]
    return {name: round(take(found), 3) for name, take in (("median", statistics.median), ("min", min), ("max", max))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--masters", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=5, help="tablet servers")
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each lap")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--looks", type=int, default=4, choices=(1, 2, 3, 4))
    options = parser.parse_args()
    try:
        measured = uvloop.run(_measure(options))
    except UserError as error:
        print(error, file=sys.stderr)
        return 254
    print(json.dumps({"benchmark": "probes", "looks": options.looks, **measured, "machine": machine()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
