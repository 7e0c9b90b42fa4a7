"""`assay doctor`: what this machine can do, and the removal of what crashed runs left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote

from rich.console import Console

from assay.reproduce.worktrees import abandoned_trees
from assay.runner import abandoned_in
from cluster.deploy.database import CAPABILITIES
from harness.capabilities import Capability
from harness.env.abilities import capabilities_of
from harness.env.doctor import DoctorFinding, MachineFacts, examine, findings
from harness.env.doctor import clean as clean_up
from harness.env.doctor import leftovers as engine_leftovers
from harness.env.hosts_file import HostSpec, read_hosts
from harness.errors import HarnessError, UserError
from harness.ports.real.ports import RealClock
from nemesis.registry import NEMESES
from nemesis.scripts.catalogs import TABLES_MADE
from nemesis.scripts.quorum import LEADERLESS, LOGGED
from results.words import count


def docker_faults(facts: MachineFacts) -> tuple[DoctorFinding, ...]:
    """The nemeses that work in containers here, and those that do not, with what each lacks; nothing where no node was
    tried."""
    node = facts.engine.node if facts.engine is not None else None
    if node is None:
        return ()
    set_up = {"zones", LEADERLESS, LOGGED, TABLES_MADE, Capability.REPLACEABLE_MASTERS, Capability.REPLACEABLE_VOTERS}
    set_up |= {Capability.READS_ANYWHERE, Capability.POLICIES, Capability.DECOMMISSION}
    offered = CAPABILITIES | capabilities_of(node, volumes=True) | set_up
    works = [name for name, info in NEMESES.items() if info.needs <= offered]
    lacks = {name: sorted(info.needs - offered) for name, info in NEMESES.items() if name not in works}
    lacking = [f"{name} ({', '.join(missing)})" for name, missing in lacks.items()]
    found = (DoctorFinding("faults", True, f"With --on docker: {', '.join(works)}."),)
    if not lacking:
        return found
    return (
        *found,
        DoctorFinding("faults", False, f"In the simulator only, for something lacks here: {', '.join(lacking)}."),
    )


def left_by_killed_runs(store: Path, docker: bool) -> tuple[str, ...]:
    """What runs left whose process is gone, each kind in words: folders in the store, and, of those in `docker`, what
    is in the engine. Raises UserError if no engine answers and HarnessError if it fails."""
    found = list(_folders_left(store, remove=False))
    in_engine = engine_leftovers() if docker else None
    return (*found, *([in_engine] if in_engine is not None else []))


def _folders_left(store: Path, remove: bool) -> Iterator[str]:
    """Folders that killed processes left, each kind in words; removed, if that is wanted."""
    if runs := abandoned_in(store, remove):
        yield f"{count(len(runs), 'folder')} of runs in the making in {store}"
    if trees := abandoned_trees(remove):
        yield f"{count(len(trees), 'folder')} of other commits in {trees[0].parent}"


def warn_of_leftovers(store: Path, docker: bool, tell: Callable[[str], None]) -> None:
    """Tell, before a run, what earlier ones left; what keeps it from being known keeps nobody from running."""
    with suppress(UserError, HarnessError):
        if left := left_by_killed_runs(store, docker):
            tell(f"assay: left by runs that were killed: {'; '.join(left)}. {_removal(store)} removes it.")


def _removal(store: Path) -> str:
    return "`assay doctor --clean" + (f" --store {quote(str(store))}`" if store != Path("store") else "`")


def print_doctor(clean: bool, build: bool, store: Path) -> int:
    """Print a sentence for each finding; lacks are no failure, so the exit code is 0 unless cleaning fails."""
    if clean:
        for left in _folders_left(store, remove=True):
            print(f"Removed {left}.")
        for sentence in clean_up():
            print(sentence)
        return 0
    console = Console(highlight=False)
    facts = asyncio.run(examine(RealClock(), build_image=build))
    for finding in (*findings(facts), *docker_faults(facts), *_leftovers(facts, store)):
        mark = "[green]ok  [/green]" if finding.ok else "[yellow]lack[/yellow]"
        console.print(f"{mark} {finding.subject:<11}", end=" ")
        console.print(finding.sentence, markup=False, soft_wrap=True)
    return 0


def print_hosts(file: Path, clean: bool) -> int:
    """Print a line for each host: what it bears, or with `clean` what was removed there; 1 unless all could be."""
    from harness.env.hosts import SshEnvironment, clean_hosts

    hosts = read_hosts(file)
    if clean:
        told, failed = asyncio.run(clean_hosts(hosts)), False
        for name, came_of_it in told.items():
            failed |= isinstance(came_of_it, HarnessError)
            print(f"{name}: {came_of_it}.")
        return 1 if failed else 0

    async def look(host: HostSpec) -> str:
        environment = SshEnvironment(RealClock(), [host])
        try:
            await environment.prepare()
            return f"{host.name}: can be used; it bears {', '.join(sorted(environment.capabilities)) or 'no faults'}."
        finally:
            await environment.teardown()

    async def look_at_all() -> list[str | BaseException]:
        return await asyncio.gather(*map(look, hosts), return_exceptions=True)

    found = asyncio.run(look_at_all())
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, UserError):
            raise each
        print(each)
    return 1 if any(isinstance(each, UserError) for each in found) else 0


def _leftovers(facts: MachineFacts, store: Path) -> Iterator[DoctorFinding]:
    try:
        left = left_by_killed_runs(store, docker=facts.engine is not None)
    except (UserError, HarnessError) as error:
        yield DoctorFinding("leftovers", False, f"{error}.")
        return
    for each in left:
        yield DoctorFinding("leftovers", False, f"{each}: {_removal(store)} removes them.")
    if not left:
        yield DoctorFinding("leftovers", True, "No run that was killed has left anything.")
