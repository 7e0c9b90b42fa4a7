"""A database as it has just been set up: what it says of itself, whether its plugin tells the truth, and what its logs
end with where it did not come to that."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from harness.capabilities import Capability
from harness.errors import HarnessError
from harness.ports.machines import ProcessState
from harness.protocols import Database, start_all
from harness.run.spec import Test
from harness.run.system_state import insist

LAST_LINES = 3
"""Of each log, that are told."""


async def facts_of(test: Test) -> Mapping[str, Any]:
    """What the database says of itself, and which versions the packages have that its nodes are made of."""
    facts = dict(test.database.facts())
    if test.packages:
        command = f"dpkg-query --show --showformat='${{Package}} ${{Version}}\\n' {shlex.join(test.packages)}"
        lines = await test.environment.fleet.check(test.database.nodes[0].name, command)
        facts["packages"] = dict(line.split(" ", 1) for line in lines.splitlines())
    return facts


async def check_plugin(database: Database) -> None:
    """The cheap half of `assay verify`: what serves is said to run, answers, and lives on where it is started again.

    Raises HarnessError that names the method which does not tell the truth.
    """
    names = [node.name for node in database.nodes]
    asks = (insist(partial(database.status, name)) for name in names)
    before = dict(zip(names, await asyncio.gather(*asks), strict=True))
    await start_all(database.start, database.nodes)
    for name in names:
        if (state := await database.process_state(name)) is not ProcessState.RUNNING:
            raise HarnessError(f"process_state: {name} is called {state} while it serves")
        status, known = await insist(partial(database.status, name)), before[name]
        if Capability.STATUS in database.capabilities and status is None:
            raise HarnessError(f"status: {name} serves, and does not answer")
        if status is not None and known is not None and status.incarnation != known.incarnation:
            raise HarnessError(f"start: a second one began another life of {name}, though it ran")


def last_words(logs: Mapping[str, bytes]) -> Iterator[str]:
    """A sentence for each log, with its last lines."""
    for name, log in sorted(logs.items()):
        lines = [line.strip() for line in log.decode(errors="replace").splitlines() if line.strip()]
        yield f"{name} ends with: {' / '.join(lines[-LAST_LINES:]) or 'nothing'}"
