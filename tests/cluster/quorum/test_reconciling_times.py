"""Below which time a tablet is reconciled: that of the slowest clock of all its replicas, backdated (Q6)."""

from __future__ import annotations

from typing import cast

import pytest

from cluster.config import Knobs
from cluster.quorum.calls import Delivery, ReplicaCalls, Unanswered
from cluster.quorum.messages import AskLowBound, BoundTold, QuorumReply, RaiseFenceTo, ReplicaRequest
from cluster.quorum.mutation_reconciliation import Abandoned, Reconciled, Reconciling
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.wire.messages import ErrorReply
from harness.ports.sim.world import World

SECOND = 1_000_000_000
REPLICAS = ReplicaSet("tablet", tuple(Endpoint(name, f"{name}:1") for name in ("a", "b", "c")), logged=True)
KNOBS = Knobs(write_timeout_ms=2_000, reconcile_margin_ms=1_000)


class Clocks:
    """Replicas that tell these clocks, or nothing; no fence of theirs is raised."""

    def __init__(self, **clocks: int | None) -> None:
        self.clocks = clocks
        self.fences: list[int] = []

    async def ask(self, endpoint: Endpoint, request: ReplicaRequest, timeout_s: float) -> QuorumReply:
        clock = self.clocks[endpoint.node_id]
        if isinstance(request, AskLowBound):
            if clock is None:
                raise Unanswered(Delivery.LOST, "no answer")
            return BoundTold(0, clock)
        assert isinstance(request, RaiseFenceTo)
        self.fences.append(request.time)
        return ErrorReply("DISK_FULL", "the disk is full", definite=True)


def reconciled(clocks: Clocks) -> Reconciled | Abandoned:
    with World(1) as world:
        calls = cast(ReplicaCalls, clocks)
        reconciling = Reconciling(world.harness_ports("r"), KNOBS, calls, lambda: ())
        return world.run(reconciling.reconcile(REPLICAS, fenced=True))


@pytest.mark.parametrize("slowest", ["a", "b", "c"])
def test_the_slowest_clock_counts_less_what_writes_may_take(slowest: str) -> None:
    clocks = Clocks(**{name: (50 if name == slowest else 90) * SECOND for name in "abc"})
    assert isinstance(reconciled(clocks), Abandoned)
    assert clocks.fences and set(clocks.fences) == {47 * SECOND}


@pytest.mark.parametrize("silent", ["a", "b", "c"])
def test_no_fence_is_raised_while_the_clock_of_a_replica_is_unknown(silent: str) -> None:
    clocks = Clocks(**{name: None if name == silent else 90 * SECOND for name in "abc"})
    assert isinstance(reconciled(clocks), Abandoned) and not clocks.fences
