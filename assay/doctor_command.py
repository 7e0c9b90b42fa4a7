"""`assay doctor`: what this machine can do, and the removal of what crashed runs left behind."""

from __future__ import annotations

import asyncio

from rich.console import Console

from assay.faults_here import docker_faults
from harness.env.doctor import clean as clean_up
from harness.env.doctor import examine, findings
from harness.ports.real.ports import RealClock


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
