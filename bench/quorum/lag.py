"""Replication lag: from a write's acknowledgement to the moment at which its last replica has it; bytes of hints.

Messages between nodes are lost, and tablet servers die while they coordinate. Whether a replica has a write is asked of
that replica, by a machine whose own messages are never lost.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass, field
from typing import Any

from bench.quorum.cluster import DESIGNS, BenchCluster, chance, simulated, wrote
from harness.errors import DefiniteError, IndefiniteError
from harness.ports.api import CallLost, Unreachable
from harness.ports.sim.link import LinkOptions

LOSS = 0.01
_WRITERS = 10
_PAUSE_S = 0.2
_DEAD_S, _ALIVE_S = 1.5, 2.5
_FIRST_LOOK_S, _SLOWER, _LONGEST_S = 0.005, 1.1, 0.5
"""Each next look at a replica comes a tenth later than the one before, at most half a second."""
_BACKGROUND: dict[str, dict[str, int]] = {
    "legacy": {"poll_period_ms": 0, "reconcile_period_ms": 0},
    "logged": {},
}
"""What runs by default; hints are replayed every second, logs polled every half."""


@dataclass
class Lags:
    """Seconds from acknowledgement to the last replica; `missing` are writes that some replica lacked at the end."""

    design: str
    seconds: list[float] = field(default_factory=list)
    missing: int = 0
    hint_bytes: int = 0
    kills: int = 0

    def figures(self) -> dict[str, Any]:
        """In a line."""
        ordered = sorted(self.seconds)
        return {
            "design": self.design,
            "acknowledged": len(ordered) + self.missing,
            "kills": self.kills,
            "median_s": round(statistics.median(ordered), 3),
            "p99_s": round(ordered[int(len(ordered) * 0.99)], 2),
            "longest_s": round(ordered[-1], 2),
            "missing_after_a_minute": self.missing,
            "hint_bytes": self.hint_bytes,
        }


def measure(seconds: float, seed: int = 1, designs: tuple[str, ...] = DESIGNS) -> list[Lags]:
    """Both designs under the same writes and kills, for so much virtual time and a minute more."""
    return [
        simulated(_Lag(design, seconds, seed).run, design, seed=seed, network=_lossy, **_BACKGROUND[design])
        for design in designs
    ]


def _lossy(source: str, target: str) -> LinkOptions:
    """Only what nodes say to each other is lost."""
    between = all(name[:1] in "mt" and name[1:].isdecimal() for name in (source, target))
    return LinkOptions(loss=LOSS if between else 0.0)


class _Lag:
    """Writers beside a killer; each acknowledged write has a watcher of its own."""

    def __init__(self, design: str, seconds: float, seed: int) -> None:
        self._found, self._seconds, self._seed = Lags(design), seconds, seed
        self._watchers: list[asyncio.Task[None]] = []

    async def run(self, cluster: BenchCluster) -> Lags:
        clock = cluster.ports.clock
        until_ns = clock.monotonic_ns() + int(self._seconds * 1e9)
        killer = asyncio.create_task(self._kill(cluster, until_ns))
        await asyncio.gather(*(self._write(cluster, number, until_ns) for number in range(_WRITERS)))
        await killer
        _, left = await asyncio.wait(self._watchers, timeout=60.0)
        self._found.missing = len(left)
        for watcher in left:
            watcher.cancel()
        self._found.hint_bytes = cluster.hint_bytes()
        return self._found

    async def _kill(self, cluster: BenchCluster, until_ns: int) -> None:
        draws = chance(self._seed)
        servers = sorted([*cluster.replicas, *cluster.others])
        while cluster.ports.clock.monotonic_ns() < until_ns:
            await asyncio.sleep(_ALIVE_S)
            victim = draws.choice(servers)
            await cluster.database.kill(victim)
            self._found.kills += 1
            await asyncio.sleep(_DEAD_S)
            await cluster.database.start(victim)

    async def _write(self, cluster: BenchCluster, number: int, until_ns: int) -> None:
        client, clock, draws = cluster.client(), cluster.ports.clock, chance(1000 + number)
        partition = number
        while clock.monotonic_ns() < until_ns:
            await asyncio.sleep(_PAUSE_S * (0.5 + draws.random()))
            partition += _WRITERS
            mutation = wrote(partition, (0,), "x", partition)
            try:
                await client.write(mutation, "QUORUM", "dc1")
            except (DefiniteError, IndefiniteError):
                continue
            self._watchers.append(asyncio.create_task(self._watch(cluster, partition, clock.monotonic_ns())))

    async def _watch(self, cluster: BenchCluster, partition: int, acknowledged_ns: int) -> None:
        lacking, pause_s = list(cluster.replicas), _FIRST_LOOK_S
        while True:
            for node in list(lacking):
                try:
                    if await cluster.held(node, partition):
                        lacking.remove(node)
                except (Unreachable, CallLost, AssertionError):
                    pass  # it is dead, or not open yet
            if not lacking:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * _SLOWER, _LONGEST_S)
        self._found.seconds.append((cluster.ports.clock.monotonic_ns() - acknowledged_ns) / 1e9)
