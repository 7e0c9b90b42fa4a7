"""Reconciliation of logged tablets: replicas exchange mutations that they missed, by CEP-45's five steps (Q6).

What one reconciliation decides is pure: events in, instructions out (`Reconciliation`). It is carried out in the
background, tablet by tablet (`Reconciling`).

1. A time is picked, backdated by the write timeout and a margin, so that no write under way is hit (`backdated`).
2. *All* replicas of one epoch fence what is older: each makes that durable, waits for what it had let in before, and
   answers. From then on no mutation below the time comes to be anywhere, but for those that some replica has already.
3. They tell which ids below it they have; where hashes of these agree nothing is listed.
4. What some lack is delivered by others that have it, and is durable there.
5. Now every replica has everything below the time: it becomes their low bound, below which no id is kept or compared.

Whatever goes wrong in the first four steps abandons it: fences stay, and only ever rise, and no bound was raised. In
the last step a replica may well be missed, for the bound holds already; it learns of it from the next reconciliation.

Without a fence the same exchange keeps replicas close to each other (continuous reconciliation). It needs no replica in
particular, and promises nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from cluster.knobs import Knobs
from cluster.log.node import Spawn
from cluster.nodelog import node_logger
from cluster.quorum.calls import Delivery, Performance, ReplicaCalls, Unanswered
from cluster.quorum.ids import MutationId
from cluster.quorum.messages import (
    AskLowBound,
    BoundReply,
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
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.wire.messages import Replica
from harness.ports.api import Failpoints, Ports
from harness.ports.failpoints import InjectedFailure, pass_by


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """Have the replica refuse new mutations below `time`, durably; it tells its low bound."""

    node: str
    time: int


@dataclass(frozen=True, slots=True)
class AskBound:
    """Have the replica tell its low bound."""

    node: str


@dataclass(frozen=True, slots=True)
class Compare:
    """Have the replica hash its ids with times from `low` on and below `high`."""

    node: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Have the replica list its ids with times from `low` on and below `high`, or the first of them."""

    node: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class SendMissing:
    """Have one replica send mutations to another that lacks them, and wait until they are durable there."""

    source: str
    target: str
    ids: tuple[MutationId, ...]


@dataclass(frozen=True, slots=True)
class RaiseBound:
    """Tell the replica that all have everything below `bound`."""

    node: str
    bound: int


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A reconciliation ended well: `bound` was raised (None without a fence), `delivered` mutations were sent."""

    bound: int | None
    delivered: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A reconciliation ended, and no bound was raised: why."""

    reason: str


Step: TypeAlias = RaiseFence | AskBound | Compare | Collect | SendMissing | RaiseBound
Instruction: TypeAlias = Step | Reconciled | Abandoned


def backdated(now: int, write_timeout_ns: int, margin_ns: int) -> int:
    """A reconciliation time that writes which began lately are above of."""
    return max(now - write_timeout_ns - margin_ns, 0)


class _ReconcileStage(Enum):
    FENCING = "fences, or bounds"
    COMPARING = "hashes"
    COLLECTING = "ids"
    DELIVERING = "acknowledgements of deliveries"
    RAISING = "acknowledgements of the bound"
    OVER = "nothing"


class Reconciliation:
    """One of `replicas` below `time`; `fenced` raises the bound, otherwise they only exchange what they miss."""

    def __init__(self, replicas: Sequence[str], time: int, fenced: bool = True, most_sent: int = 512) -> None:
        self._most_sent = most_sent
        """The most mutations of one delivery."""
        self._replicas, self._time, self._fenced = list(replicas), time, fenced
        """Who takes part: with a fence all replicas of the epoch, at any time; without one whoever answers."""
        self._stage = _ReconcileStage.FENCING
        """What is waited for."""
        self._awaited = dict.fromkeys(self._replicas)
        """Whose answers of this stage are due; deliveries are in `_due` instead."""
        self._bounds: dict[str, int] = {}
        """The low bound of each replica, as it told it in the first stage."""
        self._hashes: dict[str, bytes] = {}
        """A hash of each replica's ids from `_low` up to the time."""
        self._low = 0
        """The highest of the bounds: below it all replicas are equal, and some have forgotten the ids."""
        self._ids: dict[str, dict[MutationId, None]] = {node: {} for node in self._replicas}
        """The ids of each replica from `_low` up to the time, as far as it has listed them."""
        self._due: dict[SendMissing, None] = {}
        """Deliveries that are not acknowledged."""
        self._delivered = 0
        """How many mutations are durable where they were missing."""

    def begin(self) -> list[Instruction]:
        """Steps 1 and 2."""
        return [RaiseFence(node, self._time) if self._fenced else AskBound(node) for node in self._replicas]

    # ---- events ----

    def on_bound(self, node: str, low_bound: int) -> list[Instruction]:
        """A replica has told its low bound, and (with a fence) its fence is durable and nothing below it under way."""
        if not self._expected(node, _ReconcileStage.FENCING):
            return []
        self._bounds[node] = low_bound
        return self._go_on()

    def on_compared(self, node: str, hashed: bytes) -> list[Instruction]:
        """A replica has hashed its ids."""
        if not self._expected(node, _ReconcileStage.COMPARING):
            return []
        self._hashes[node] = hashed
        return self._go_on()

    def on_collected(self, node: str, ids: Iterable[MutationId], complete_below: int) -> list[Instruction]:
        """A replica has listed its ids below `complete_below`; if that is not all, it is asked on."""
        if self._stage is not _ReconcileStage.COLLECTING or node not in self._awaited:
            return []
        self._ids[node].update(dict.fromkeys(ids))
        if complete_below < self._time:
            return [Collect(node, complete_below, self._time)]
        del self._awaited[node]
        return self._go_on()

    def on_delivered(self, delivery: SendMissing) -> list[Instruction]:
        """Mutations are durable where they were missing."""
        if self._stage is not _ReconcileStage.DELIVERING or delivery not in self._due:
            return []
        del self._due[delivery]
        self._delivered += len(delivery.ids)
        return self._go_on()

    def on_raised(self, node: str) -> list[Instruction]:
        """A replica has made the bound durable."""
        return self._go_on() if self._expected(node, _ReconcileStage.RAISING) else []

    def on_missed(self, step: Step, reason: str) -> list[Instruction]:
        """A step was not carried out, or nobody knows."""
        if self._stage is _ReconcileStage.OVER:
            return []
        node = step.target if isinstance(step, SendMissing) else step.node
        # With a fence all must take part, until the bound holds; without one, whoever is missing is left out.
        if self._stage is not _ReconcileStage.RAISING and self._fenced:
            return self.abandon(f"{node}: {reason}")
        if isinstance(step, SendMissing):
            self._due.pop(step, None)
        else:
            self._awaited.pop(node, None)
            if self._stage is not _ReconcileStage.RAISING and node in self._replicas:
                self._replicas.remove(node)
        return self._go_on()

    def abandon(self, reason: str) -> list[Instruction]:
        """End it, as where the epoch has changed."""
        self._stage = _ReconcileStage.OVER
        return [Abandoned(reason)]

    # ---- decisions ----

    def _expected(self, node: str, stage: _ReconcileStage) -> bool:
        """Whether this answer of the replica is due; from now on it is not."""
        if self._stage is not stage or node not in self._awaited:
            return False
        del self._awaited[node]
        return True

    def _go_on(self) -> list[Instruction]:
        if self._awaited or self._due:
            return []
        if not self._fenced and len(self._replicas) < 2:
            return self._end(None)
        match self._stage:
            case _ReconcileStage.FENCING:
                return self._compare()
            case _ReconcileStage.COMPARING:
                return self._raise() if len(set(self._hashes.values())) == 1 else self._collect()
            case _ReconcileStage.COLLECTING:
                return self._deliver()
            case _ReconcileStage.DELIVERING:
                return self._raise()
            case _:
                return self._end(self._time if self._fenced else None)

    def _compare(self) -> list[Instruction]:
        # A bound of one replica holds for all: below it they are equal, and some have forgotten the ids.
        low = max(self._bounds[node] for node in self._replicas)
        if low >= self._time:
            self._time = low
            return self._raise()
        self._low = low
        return self._enter(_ReconcileStage.COMPARING, [Compare(node, low, self._time) for node in self._replicas])

    def _collect(self) -> list[Instruction]:
        return self._enter(
            _ReconcileStage.COLLECTING, [Collect(node, self._low, self._time) for node in self._replicas]
        )

    def _deliver(self) -> list[Instruction]:
        """Each mutation comes from the first replica that has it; whoever lacks it gets it."""
        holder: dict[MutationId, str] = {}
        for node in self._replicas:
            for each in self._ids[node]:
                holder.setdefault(each, node)
        # A listing that is complete below the time is what makes "not listed" mean "lacks": see `on_collected`.
        for target in self._replicas:
            lacking: dict[str, list[MutationId]] = {}
            for each, source in holder.items():
                if each not in self._ids[target]:
                    lacking.setdefault(source, []).append(each)
            for source, ids in lacking.items():
                ids.sort()
                some = (tuple(ids[at : at + self._most_sent]) for at in range(0, len(ids), self._most_sent))
                self._due.update((SendMissing(source, target, each), None) for each in some)
        self._stage = _ReconcileStage.DELIVERING
        return list(self._due) if self._due else self._go_on()

    def _raise(self) -> list[Instruction]:
        if not self._fenced:
            return self._end(None)
        return self._enter(_ReconcileStage.RAISING, [RaiseBound(node, self._time) for node in self._replicas])

    def _enter(self, stage: _ReconcileStage, steps: list[Instruction]) -> list[Instruction]:
        self._stage, self._awaited = stage, dict.fromkeys(self._replicas)
        return steps

    def _end(self, bound: int | None) -> list[Instruction]:
        self._stage = _ReconcileStage.OVER
        return [Reconciled(bound, self._delivered)]


# ---- over the network ----
# Tablets are polled continuously, and every period the bound is raised (Q6). Every replica coordinates in its turn, so
# that one that is away stops nobody from exchanging what they miss. It is safe whoever else reconciles at the same
# time, for fences and bounds only rise and deliveries change nothing that is there already.


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


class Reconciling:
    """Reconciles the tablets that this node has a replica of; `own` gives their replica sets as of now."""

    def __init__(
        self, ports: Ports, knobs: Knobs, calls: ReplicaCalls, own: Callable[[], Iterable[ReplicaSet]]
    ) -> None:
        self._ports, self._knobs, self._calls, self._own = ports, knobs, calls, own
        self._log = node_logger(ports.node_id)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, spawn: Spawn) -> None:
        """Poll and raise bounds in the background, as the knobs say, in tasks that the node does not outlive."""
        for period_ms, fenced in ((self._knobs.poll_period_ms, False), (self._knobs.reconcile_period_ms, True)):
            if period_ms:
                self._tasks.append(spawn(self._take_turns(period_ms / 1e3, fenced)))

    def close(self) -> None:
        """Break everything off."""
        for task in self._tasks:
            task.cancel()

    async def reconcile(self, replicas: ReplicaSet, fenced: bool) -> Reconciled | Abandoned:
        """One reconciliation of a tablet; without a fence replicas that don't answer are left out."""
        time = await self._pick_time(replicas, fenced)
        if time is None:
            return Abandoned("not all replicas told their clocks")
        state = Reconciliation([each.node_id for each in replicas.endpoints], time, fenced, self._knobs.sent_mutations)
        return await _Meeting(replicas, state, fenced, self._calls, self._ports.failpoints).run()

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
        replies = await asyncio.gather(*(self._ask_bound(replicas, each.node_id, asked) for each in replicas.endpoints))
        clocks = [each.clock_ns for each in replies if each is not None]
        if len(clocks) < len(replies):
            return None
        knobs = self._knobs
        return backdated(min(clocks), knobs.write_timeout_ms * _NS_PER_MS, knobs.reconcile_margin_ms * _NS_PER_MS)

    async def _ask_bound(self, replicas: ReplicaSet, node: str, asked: AskLowBound) -> BoundReply | None:
        try:
            reply = await _ask_twice(self._calls, replicas.named(node), asked, STEP_TIMEOUT_S)
        except Unanswered:
            return None
        return reply if isinstance(reply, BoundReply) else None


async def _ask_twice(
    calls: ReplicaCalls, endpoint: Endpoint, request: ReconcileRequest, timeout_s: float
) -> QuorumReply:
    """The answer, asked for again where none came in half the time: any message may be lost, one reconciliation takes
    many, and none of them does harm if it comes twice."""
    try:
        return await calls.ask(endpoint, request, timeout_s / 2)
    except Unanswered as missed:
        if missed.delivery is Delivery.REFUSED:
            raise
    return await calls.ask(endpoint, request, timeout_s / 2)


class _Meeting:
    """Carries the instructions of one reconciliation out, each beside the others, and hands what comes of them back."""

    def __init__(
        self,
        replicas: ReplicaSet,
        state: Reconciliation,
        fenced: bool,
        calls: ReplicaCalls,
        failpoints: Failpoints,
    ) -> None:
        self._replicas, self._calls, self._failpoints = replicas, calls, failpoints
        self._fenced = fenced
        self._state = state
        self._sending = asyncio.Semaphore(_DELIVERIES_AT_ONCE)

    async def run(self) -> Reconciled | Abandoned:
        """How it ended."""
        performance: Performance[Step, Reconciled | Abandoned] = Performance(
            "reconciliation", self._do, Reconciled, Abandoned
        )
        return await performance.run(self._state.begin())

    async def _do(self, step: Step) -> list[Instruction]:
        try:
            if (point := _POINTS.get(type(step))) is not None:
                await pass_by(self._failpoints, point, self._replicas.tablet_id)
            reply = await self._ask(step)
        except (Unanswered, InjectedFailure) as error:
            return self._state.on_missed(step, str(error))
        return self._event(step, reply)

    def _event(self, step: Step, reply: QuorumReply) -> list[Instruction]:
        state = self._state
        if isinstance(step, RaiseFence | AskBound) and isinstance(reply, BoundReply):
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
        if isinstance(step, SendMissing):
            async with self._sending:
                return await self._calls.ask(endpoint, request, STEP_TIMEOUT_S)
        if self._fenced:
            return await _ask_twice(self._calls, endpoint, request, STEP_TIMEOUT_S)
        return await self._calls.ask(endpoint, request, POLL_TIMEOUT_S)

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
