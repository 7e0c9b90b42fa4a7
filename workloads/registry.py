"""The one literal registry of workloads."""

from __future__ import annotations

from harness.errors import UserError
from workloads import catalog, global_reads, objects, quorum, register, replica_reads, snapshots, transactions
from workloads.api import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        register.WORKLOAD,
        snapshots.WORKLOAD,
        *replica_reads.WORKLOADS,
        global_reads.WORKLOAD,
        catalog.WORKLOAD,
        *quorum.WORKLOADS,
        *transactions.WORKLOADS,
        *objects.WORKLOADS,
    )
}


def workload(name: str) -> Workload:
    """The workload of this name; raises UserError."""
    if name not in WORKLOADS:
        raise UserError(f"There is no workload {name!r}; known are {', '.join(WORKLOADS)}.")
    return WORKLOADS[name]
