"""One reconciliation of a logged tablet, as events in and instructions out: CEP-45's five steps (Q6). Pure.

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from cluster.quorum.ids import MutationId


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
    """Have the replica list those ids, or the first of them."""

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
    """It is over: `bound` is what was raised (None without a fence), `delivered` counts mutations sent."""

    bound: int | None
    delivered: int


@dataclass(frozen=True, slots=True)
class Abandoned:
    """It is over, and no bound was raised: why."""

    reason: str


Step: TypeAlias = RaiseFence | AskBound | Compare | Collect | SendMissing | RaiseBound
Instruction: TypeAlias = Step | Reconciled | Abandoned

MOST_AT_ONCE = 512
"""Mutations of one delivery."""


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

    def __init__(self, replicas: Sequence[str], time: int, fenced: bool = True) -> None:
        self._replicas, self._time, self._fenced = list(replicas), time, fenced
        self._stage = _ReconcileStage.FENCING
        self._awaited = dict.fromkeys(self._replicas)
        self._bounds: dict[str, int] = {}
        self._hashes: dict[str, bytes] = {}
        self._low = 0
        self._ids: dict[str, dict[MutationId, None]] = {node: {} for node in self._replicas}
        self._due: dict[SendMissing, None] = {}
        self._delivered = 0

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
        for target in self._replicas:
            lacking: dict[str, list[MutationId]] = {}
            for each, source in holder.items():
                if each not in self._ids[target]:
                    lacking.setdefault(source, []).append(each)
            for source, ids in lacking.items():
                ids.sort()
                some = (tuple(ids[at : at + MOST_AT_ONCE]) for at in range(0, len(ids), MOST_AT_ONCE))
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
