"""Whether a fault is in effect, or gone, as probes from inside the nodes say; polled until a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.protocols import Database, Environment, NodeStatus, ProcessState
from nemesis.grudges import Link
from nemesis.view import View


@dataclass(frozen=True, slots=True)
class Observation:
    """Whether it was seen (None: nobody looked), when (the environment's monotonic clock, ns), and what was seen."""

    observed: bool | None
    at_ns: int | None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observer:
    """Probes a database on an environment; `poll_s` apart, for at most `timeout_s`.

    `incarnations` are those that the nodes last told.
    """

    database: Database
    environment: Environment
    timeout_s: float
    poll_s: float
    incarnations: dict[str, int] = field(default_factory=dict)

    async def view(self, skip: Iterable[str] = ()) -> View:
        """Ask every node (but those to skip) for its status, all at once."""
        asked = [node.name for node in self.database.nodes if node.name not in set(skip)]
        answers: list[NodeStatus | None] = await asyncio.gather(*(self.database.status(name) for name in asked))
        statuses = {name: status for name, status in zip(asked, answers, strict=True) if status is not None}
        self.incarnations.update((name, status.incarnation) for name, status in statuses.items())
        return View(self.database.nodes, statuses)

    async def network(self, cut: frozenset[Link]) -> Observation:
        """The reachability matrix is exactly as asked; probes don't need the database's process to be up.

        A link that must work counts once one probe got through; a link that is cut must never let one through.
        """
        heard: set[Link] = set()

        async def probe() -> tuple[bool, dict[str, Any]]:
            matrix = await self.environment.reachability()
            leaking = sorted(pair for pair in matrix if pair in cut and matrix[pair])
            heard.update(pair for pair in matrix if pair not in cut and matrix[pair])
            silent = sorted(pair for pair in matrix if pair not in cut and pair not in heard)
            return not leaking and not silent, _matrix_evidence(list(matrix), cut, leaking, silent)

        return await self._until(probe)

    async def in_effect(self, cut: frozenset[Link], down: Mapping[str, ProcessState]) -> Observation:
        """One look: nothing gets through the links that are cut, and these processes are as they were made."""
        matrix = await self.environment.reachability() if cut else {}
        states = await asyncio.gather(*(self.database.process_state(name) for name in down))
        leaking = sorted(pair for pair in matrix if pair in cut and matrix[pair])
        met = not leaking and list(states) == list(down.values())
        evidence = _matrix_evidence(list(matrix), cut, leaking, []) if cut else {}
        evidence |= {"states": {name: str(state) for name, state in zip(down, states, strict=True)}} if down else {}
        return Observation(met, self.environment.clock.monotonic_ns() if met else None, evidence)

    async def processes(self, wanted: Mapping[str, ProcessState]) -> Observation:
        """Every node's process is in the wanted state."""

        async def probe() -> tuple[bool, dict[str, Any]]:
            states = await asyncio.gather(*(self.database.process_state(name) for name in wanted))
            seen = dict(zip(wanted, states, strict=True))
            return seen == dict(wanted), {"states": {name: str(state) for name, state in seen.items()}}

        return await self._until(probe)

    async def newer(self, before: Mapping[str, int]) -> Observation:
        """Every node answers its status with a higher incarnation than before."""

        async def probe() -> tuple[bool, dict[str, Any]]:
            answers = await asyncio.gather(*(self.database.status(name) for name in before))
            after = {n: s.incarnation for n, s in zip(before, answers, strict=True) if s is not None}
            met = all(after.get(name, -1) > incarnation for name, incarnation in before.items())
            return met, {"incarnations": {name: [before[name], after.get(name)] for name in before}}

        return await self._until(probe)

    async def _until(self, probe: Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]) -> Observation:
        clock = self.environment.clock
        deadline_ns = clock.monotonic_ns() + int(self.timeout_s * 1e9)
        while True:
            met, evidence = await probe()
            now_ns = clock.monotonic_ns()
            if met or now_ns >= deadline_ns:
                return Observation(met, now_ns if met else None, evidence)
            await clock.sleep(self.poll_s)


def both(first: Observation, second: Observation) -> Observation:
    """Seen only if both were; the later time and all the evidence."""
    seen = bool(first.observed and second.observed)
    times = [o.at_ns for o in (first, second) if o.at_ns is not None]
    return Observation(seen, max(times) if seen and times else None, {**first.evidence, **second.evidence})


def _matrix_evidence(
    pairs: list[Link], cut: frozenset[Link], leaking: list[Link], silent: list[Link]
) -> dict[str, Any]:
    evidence: dict[str, Any] = {"probed": len(pairs), "cut": sum(1 for pair in pairs if pair in cut)}
    if leaking:
        evidence["leaking"] = [f"{a}->{b}" for a, b in leaking]
    if silent:
        evidence["silent"] = [f"{a}->{b}" for a, b in silent]
    return evidence
