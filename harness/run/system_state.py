"""Is everything up again? Links, machines, processes and statuses of the whole system, looked at until they are.

Faults are healed one by one and seen to be gone one by one; this looks at the whole, before the final reads and after
them, so that what somebody left behind, or the database never came back from, is not passed over in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from harness.errors import HarnessError
from harness.ports.machines import ProcessState
from harness.protocols import Database, Environment, Inspected

T = TypeVar("T")

ATTEMPTS = 4
"""So often silence is asked again. Where 3 % of the messages are lost, one request in 17 stays unanswered, and of a
million times four in a row twelve."""

LOOK_GAP_S = 0.1
NAMED = 6
"""Links that are named, at most; of more their number is given."""


async def insist(ask: Callable[[], Awaitable[T | None]]) -> T | None:
    """The first answer; None where none of the attempts had one."""
    for _ in range(ATTEMPTS):
        answer = await ask()
        if answer is not None:
            return answer
    return None


@dataclass(frozen=True, slots=True)
class SystemState:
    """What is not as it should be: links over which nothing arrived, machines that somebody else disturbed (a sentence
    each), nodes whose process is paused, dead, or runs and does not answer its status."""

    links: tuple[tuple[str, str], ...] = ()
    disturbed: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        return self == SystemState()

    def ours(self) -> str | None:
        """What the harness, or somebody behind its back, is to blame for: None if nothing."""
        words = list(self.disturbed)
        if self.links:
            named = ", ".join(f"{source} -> {target}" for source, target in self.links[:NAMED])
            more = f" and {len(self.links) - NAMED} more" if len(self.links) > NAMED else ""
            words.append(f"nothing arrives over {named}{more}")
        if self.paused:
            words.append(f"the process of {' '.join(self.paused)} is stopped (SIGSTOP)")
        return "; ".join(words) or None

    def theirs(self) -> str | None:
        """What the database is to blame for: a process that was started and is gone, or says nothing of itself."""
        if self.disturbed:
            return None
        words = [f"the process of {' '.join(self.dead)} is not running"] if self.dead else []
        words += [f"{' '.join(self.silent)} runs and does not answer its status"] if self.silent else []
        return "; ".join(words) or None


async def system_state(
    database: Database, environment: Environment, timeout_s: float, statuses: bool = True
) -> SystemState:
    """What is still not as it should be when time is over; whole as soon as it is.

    A link counts once a probe arrived over it: a network may lose some. Raises HarnessError where nobody can look.
    """
    clock = environment.clock
    deadline_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    heard: set[tuple[str, str]] = set()
    names = [node.name for node in database.nodes]
    while True:
        found = await _look(database, environment, names, heard, statuses)
        if found.whole or clock.monotonic_ns() >= deadline_ns:
            return found
        await clock.sleep(LOOK_GAP_S)


async def disturbances(environment: Environment) -> tuple[str, ...]:
    """See `harness.protocols.Inspected`; none where nobody could tell."""
    return await environment.disturbed() if isinstance(environment, Inspected) else ()


async def _look(
    database: Database, environment: Environment, names: Sequence[str], heard: set[tuple[str, str]], statuses: bool
) -> SystemState:
    disturbed = await disturbances(environment)
    if disturbed:
        return SystemState(disturbed=disturbed)
    matrix = await environment.reachability()
    heard.update(link for link, arrives in matrix.items() if arrives)
    states = await _states(database, names)
    running = [name for name in names if states[name] is ProcessState.RUNNING] if statuses else []
    answers = await asyncio.gather(*(insist(partial(database.status, name)) for name in running))
    return SystemState(
        links=tuple(sorted(link for link in matrix if link not in heard)),
        paused=tuple(name for name in names if states[name] is ProcessState.PAUSED),
        dead=tuple(name for name in names if states[name] is ProcessState.DEAD),
        silent=tuple(name for name, answer in zip(running, answers, strict=True) if answer is None),
    )


async def _states(database: Database, names: Sequence[str]) -> dict[str, ProcessState]:
    found = await asyncio.gather(*(database.process_state(name) for name in names), return_exceptions=True)
    failures = [str(each) for each in found if isinstance(each, BaseException)]
    if failures:
        raise HarnessError("; ".join(dict.fromkeys(failures)))
    return {name: state for name, state in zip(names, found, strict=True) if isinstance(state, ProcessState)}
