"""`assay verify NAME|FILE`: one cluster in containers, every check on it, and a sentence for each that failed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from assay.compose import layout_of, made_of, own_database, tell_workload
from assay.discovery import REFERENCE, find_database
from assay.options import RunOptions
from assay.verify.checks import ORDER, Checks, Sentences, Untried
from assay.verify.machines import processes
from assay.verify.subject import Subject
from harness.errors import DefiniteError, HarnessError, IndefiniteError, UserError
from harness.history.cores import usable_cores
from harness.protocols import Database, Environment
from harness.verdict.failures import place_in_plugin
from workloads.api import resolve_options
from workloads.registry import workload

Tell = Callable[[str], None]

CHECK_S = 45.0
"""A check that takes longer (seconds) hangs in the plugin; on a busy machine it has as many times that as it is
overloaded."""


async def verify(subject: Subject, tell: Tell) -> tuple[str, ...]:
    """Set the database up on machines that are there not yet, check it, and remove all; what is wrong, in sentences."""
    environment = subject.environment
    try:
        await environment.setup(subject.database.nodes)
        checks = await _begun(subject)
        if isinstance(checks, str):
            tell(f"fail {checks}")
            return (checks,)
        return tuple([sentence for check in ORDER for sentence in await _tried(check, checks, tell)])
    finally:
        await environment.teardown()


async def _begun(subject: Subject) -> Checks | str:
    """The checks of the database, once it serves; a sentence where it does not come to that."""
    database, fleet = subject.database, subject.environment.fleet
    step = "install"
    try:
        await database.install()
        before = {name: await processes(fleet, name) for name in subject.names}
        step = "first_start"
        await database.first_start()
        step = "await_ready"
        await database.await_ready(subject.waits.ready)
        step = "setup_workload"
        values = resolve_options(workload(subject.workload), {})
        await database.setup_workload(subject.workload, values)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        return f"{step}: {_words(error)}"
    return Checks(subject, before)


async def _tried(check: Callable[[Checks], Sentences], checks: Checks, tell: Tell) -> list[str]:
    """What a check finds; it is told as it ends."""
    found: list[str] = []
    name, untried = check.__name__.replace("_", " "), ""
    limit_s = CHECK_S * max(1.0, os.getloadavg()[0] / usable_cores())
    try:
        async with asyncio.timeout(limit_s):
            async for sentence in check(checks):
                found.append(sentence)
    except TimeoutError:
        found.append(f"{name}: it did not end within {limit_s:.0f} s.")
    except Untried as error:
        untried = str(error)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        found.append(f"{name}: {_words(error)}")
    tell(f"{'fail' if found else 'skip' if untried else 'ok  '} {name}{f': {untried}' * bool(untried)}")
    for sentence in found:
        tell(f"     {sentence}")
    return found


def _words(error: Exception) -> str:
    kind = "" if isinstance(error, HarnessError | DefiniteError | IndefiniteError) else f"{type(error).__name__}: "
    return f"{kind}{error}{place_in_plugin(error)}."


def verify_command(word: str, database_options: dict[str, str], tell: Tell) -> int:
    """Verify the database that a word names; 0 if nothing was found, 1 if something was."""
    import uvloop

    from harness.env.docker.environment import DockerEnvironment
    from harness.env.docker.images import image_spec
    from harness.ports.real.ports import RealClock

    if word == REFERENCE:
        options = RunOptions("register", on="docker", masters=3, nodes=3)
    else:
        plugin = find_database(word).value
        options = RunOptions(
            next(iter(plugin.workloads), "register"),
            on="docker",
            database=word,
            nodes=plugin.default_nodes,
            database_options=database_options,
        )

    async def main() -> tuple[str, ...]:
        environment = DockerEnvironment(RealClock(), image_spec(*made_of(options)), tell)
        await environment.prepare(try_out=True)
        return await verify(subject_of(options, environment), tell)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(main())
    tell(f"{word}: {'nothing was found' if not found else f'{len(found)} found'}")
    return 1 if found else 0


def subject_of(options: RunOptions, environment: Any) -> Subject:
    """The database of these options on an environment; the reference cluster's clients find masters by themselves, so
    that no proxy can stand before them."""
    variables = environment.program_environment if "clock" in environment.capabilities else {}
    if not options.database:
        from cluster.deploy.database_ssh import SshDatabase
        from cluster.knobs import Knobs

        reference = SshDatabase(environment, layout_of(options, 1), (), Knobs(), environment=variables)
        tell_workload(reference, options)
        return Subject(environment, reference, options.workload)

    def behind(view: Environment) -> Database:
        return own_database(replace(options, seed=1), view, variables)

    return Subject(environment, own_database(options, environment, variables), options.workload, behind)
