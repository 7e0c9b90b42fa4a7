"""`assay doctor`: what this machine can do, and the removal of what crashed runs left behind."""

from __future__ import annotations

import asyncio

from rich.console import Console

from cluster.deploy.database import CAPABILITIES
from harness.env.docker.environment import capabilities
from harness.env.doctor import DoctorFinding, MachineFacts, examine, findings
from harness.env.doctor import clean as clean_up
from harness.ports.real.ports import RealClock
from nemesis.registry import NEMESES
from nemesis.scripts.catalogs import TABLES_MADE
from nemesis.scripts.quorum import LEADERLESS, LOGGED


def docker_faults(facts: MachineFacts) -> tuple[DoctorFinding, ...]:
    """The nemeses that work in containers here, and those that do not, with what each lacks; nothing where no node was
    tried."""
    node = facts.engine.node if facts.engine is not None else None
    if node is None:
        return ()
    offered = CAPABILITIES | capabilities(node.works, volumes=True) | {"zones", LEADERLESS, LOGGED, TABLES_MADE}
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


def print_doctor(clean: bool, build: bool) -> int:
    """Print a sentence for each finding; lacks are no failure, so the exit code is 0 unless cleaning fails."""
    if clean:
        for sentence in clean_up():
            print(sentence)
        return 0
    console = Console(highlight=False)
    facts = asyncio.run(examine(RealClock(), build_image=build))
    for finding in (*findings(facts), *docker_faults(facts)):
        mark = "[green]ok  [/green]" if finding.ok else "[yellow]lack[/yellow]"
        console.print(f"{mark} {finding.subject:<11}", end=" ")
        console.print(finding.sentence, markup=False, soft_wrap=True)
    return 0
