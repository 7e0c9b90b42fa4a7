"""Reconciliation of logged tablets in the background: polled continuously, and every period the bound is raised (Q6).

Every replica coordinates in its turn, so that one that is away stops nobody from exchanging what they miss. What has
to be decided is pure (`cluster.quorum.reconciliation`), and safe whoever else reconciles at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cluster.knobs import Knobs
from cluster.nodelog import node_logger
from cluster.quorum.calls import ReplicaCalls, Unanswered
from cluster.quorum.messages import (
    AskLowBound,
    BoundTold,
    HashIds,
    IdsHashed,
    IdsListed,
    ListIds,
    QuorumReply,
    RaiseFenceTo,
    RaiseLowBound,
    ReconcileRequest,
    SendMutations,
    Stored,
)
from cluster.quorum.performing import Performance
from cluster.quorum.reconciliation import (
    Abandoned,
    AskBound,
    Collect,
    Compare,
    Instruction,
    RaiseBound,
    RaiseFence,
    Reconciled,
    Reconciliation,
    SendMissing,
    Step,
    backdated,
)
from cluster.quorum.replica_sets import ReplicaSet
from cluster.wire.messages import Replica
from harness.ports.api import Failpoints, Ports
from harness.ports.failpoints import pass_by

STEP_TIMEOUT_S = 5.0
POLL_TIMEOUT_S = 1.0
"""Without a fence, for what is answered from memory: a replica that is away holds the others up for no longer."""
UNDER_WAY_NS = 200_000_000
"""Without a fence nothing is lost by what is compared too early: it costs a delivery of what is on its way anyhow. So
younger mutations are left to their coordinator, and older ones are missed."""
_DELIVERIES_AT_ONCE = 4
_NS_PER_MS = 1_000_000

_POINTS: Mapping[type[Step], str] = MappingProxyType(
    {
        RaiseFence: "quorum.before_fencing",
        Compare: "quorum.before_comparing",
        Collect: "quorum.before_collecting",
        SendMissing: "quorum.before_delivering",
        RaiseBound: "quorum.before_raising",
    }
)
"""The failpoints passed before a step is carried out."""


@dataclass(slots=True)
class ReconcilingStats:
    """What came of the reconciliations that this node coordinated; `exchanges` are those without a fence."""

    reconciled: int = 0
    abandoned: int = 0
    exchanges: int = 0
    delivered: int = 0


class Reconciling:
    """Reconciles the tablets that this node has a replica of; `own` gives their replica sets as of now."""

    def __init__(
        self, ports: Ports, knobs: Knobs, calls: ReplicaCalls, own: Callable[[], Iterable[ReplicaSet]]
    ) -> None:
        self._ports, self._knobs, self._calls, self._own = ports, knobs, calls, own
        self._log = node_logger(ports.node_id)
        self._tasks: list[asyncio.Task[None]] = []
        self.stats = ReconcilingStats()

    def start(self) -> None:
        """Poll and raise bounds in the background, as the knobs say."""
        for period_ms, fenced in ((self._knobs.poll_period_ms, False), (self._knobs.reconcile_period_ms, True)):
            if period_ms:
                work = self._take_turns(period_ms / 1e3, fenced)
                self._tasks.append(asyncio.create_task(work, name="reconciling"))

    def close(self) -> None:
        """Break everything off."""
        for task in self._tasks:
            task.cancel()

    async def reconcile(self, replicas: ReplicaSet, fenced: bool) -> Reconciled | Abandoned:
        """One reconciliation of a tablet; without a fence replicas that don't answer are left out."""
        time = await self._pick_time(replicas, fenced)
        if time is None:
            return Abandoned("not all replicas told their clocks")
        exchange = _Meeting(replicas, time, fenced, self._calls, self._ports.failpoints)
        found = await exchange.run()
        self._count(found)
        return found

    def _count(self, found: Reconciled | Abandoned) -> None:
        if isinstance(found, Abandoned):
            self.stats.abandoned += 1
            return
        self.stats.delivered += found.delivered
        if found.bound is None:
            self.stats.exchanges += 1
        else:
            self.stats.reconciled += 1

    async def _take_turns(self, period_s: float, fenced: bool) -> None:
        """Replicas of a tablet take turns, period by period of the wall clock: restarts don't change whose it is."""
        clock, period_ns = self._ports.clock, int(period_s * 1e9)
        while True:
            left_ns = period_ns - clock.wall_ns() % period_ns
            # A timer may be a little early: what is left of a period then counts with the next one.
            await clock.sleep((left_ns if left_ns > period_ns // 4 else left_ns + period_ns) / 1e9)
            turn = (clock.wall_ns() + period_ns // 2) // period_ns
            own = [each for each in self._own() if _turn_of(each, turn) == self._ports.node_id]
            await asyncio.gather(*(self._reconcile_own(each, fenced) for each in own))

    async def _reconcile_own(self, replicas: ReplicaSet, fenced: bool) -> None:
        found = await self.reconcile(replicas, fenced)
        if isinstance(found, Abandoned):
            self._log.info("no reconciliation of %s: %s", replicas.tablet_id, found.reason)

    async def _pick_time(self, replicas: ReplicaSet, fenced: bool) -> int | None:
        """Step 1. The slowest clock of the replicas counts: a fast one would have everybody's writes refused."""
        if not fenced:
            return max(self._ports.clock.wall_ns() - UNDER_WAY_NS, 0)
        asked = AskLowBound(replicas.tablet_id, replicas.epoch)
        told = await asyncio.gather(*(self._told(replicas, each.node_id, asked) for each in replicas.endpoints))
        clocks = [each.clock_ns for each in told if each is not None]
        if len(clocks) < len(told):
            return None
        knobs = self._knobs
        return backdated(min(clocks), knobs.write_timeout_ms * _NS_PER_MS, knobs.reconcile_margin_ms * _NS_PER_MS)

    async def _told(self, replicas: ReplicaSet, node: str, asked: AskLowBound) -> BoundTold | None:
        try:
            reply = await self._calls.ask(replicas.named(node), asked, STEP_TIMEOUT_S)
        except Unanswered:
            return None
        return reply if isinstance(reply, BoundTold) else None


class _Meeting:
    """Carries the instructions of one reconciliation out, each beside the others, and hands what comes of them back."""

    def __init__(
        self, replicas: ReplicaSet, time: int, fenced: bool, calls: ReplicaCalls, failpoints: Failpoints
    ) -> None:
        self._replicas, self._calls, self._failpoints = replicas, calls, failpoints
        self._timeout_s = STEP_TIMEOUT_S if fenced else POLL_TIMEOUT_S
        self._state = Reconciliation([each.node_id for each in replicas.endpoints], time, fenced)
        self._sending = asyncio.Semaphore(_DELIVERIES_AT_ONCE)

    async def run(self) -> Reconciled | Abandoned:
        """How it ended."""
        performance: Performance[Step, Reconciled | Abandoned] = Performance(
            "reconciliation", self._do, Reconciled, Abandoned
        )
        return await performance.run(self._state.begin())

    async def _do(self, step: Step) -> list[Instruction]:
        if (point := _POINTS.get(type(step))) is not None:
            await pass_by(self._failpoints, point, self._replicas.tablet_id)
        try:
            reply = await self._ask(step)
        except Unanswered as error:
            return self._state.on_missed(step, str(error))
        return self._event(step, reply)

    def _event(self, step: Step, reply: QuorumReply) -> list[Instruction]:
        state = self._state
        if isinstance(step, RaiseFence | AskBound) and isinstance(reply, BoundTold):
            return state.on_bound(step.node, reply.low_bound)
        if isinstance(step, Compare) and isinstance(reply, IdsHashed):
            return state.on_compared(step.node, reply.hashed)
        if isinstance(step, Collect) and isinstance(reply, IdsListed) and reply.complete_below > step.low:
            return state.on_collected(step.node, reply.ids, reply.complete_below)
        if isinstance(step, SendMissing) and isinstance(reply, Stored):
            return state.on_delivered(step)
        if isinstance(step, RaiseBound) and isinstance(reply, Stored):
            return state.on_raised(step.node)
        return state.on_missed(step, "it answered what nobody asked for")

    async def _ask(self, step: Step) -> QuorumReply:
        node = step.source if isinstance(step, SendMissing) else step.node
        endpoint, request = self._replicas.named(node), self._request(step)
        if not isinstance(step, SendMissing):
            return await self._calls.ask(endpoint, request, self._timeout_s)
        async with self._sending:
            return await self._calls.ask(endpoint, request, STEP_TIMEOUT_S)

    def _request(self, step: Step) -> ReconcileRequest:
        tablet = self._replicas.tablet_id, self._replicas.epoch
        if isinstance(step, RaiseFence):
            return RaiseFenceTo(*tablet, step.time)
        if isinstance(step, AskBound):
            return AskLowBound(*tablet)
        if isinstance(step, Compare):
            return HashIds(*tablet, step.low, step.high)
        if isinstance(step, Collect):
            return ListIds(*tablet, step.low, step.high)
        if isinstance(step, RaiseBound):
            return RaiseLowBound(*tablet, step.bound)
        target = self._replicas.named(step.target)
        return SendMutations(*tablet, step.ids, Replica(target.node_id, target.address))


def _turn_of(replicas: ReplicaSet, turn: int) -> str:
    """Whose turn it is."""
    return replicas.endpoints[turn % len(replicas.endpoints)].node_id
