"""Which faults nemeses can make where: exactly those that a run would not refuse."""

from __future__ import annotations

from cluster.deploy.database import CAPABILITIES
from harness.env.docker.environment import capabilities
from harness.env.doctor import DoctorFinding, MachineFacts
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
