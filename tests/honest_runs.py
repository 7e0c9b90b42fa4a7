"""Runs with something wrong that the verdict must not pass over; the same in the simulator and in containers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from cluster.deploy.database import ReferenceDatabase
from harness.errors import DefiniteError, HarnessError, UserError
from harness.history.ops import Op
from harness.history.rundir import open_run
from harness.protocols import Client
from harness.run.spec import RunListener, RunOutcome, Silent
from harness.verdict.facts import load_facts
from harness.verdict.run_verdict import conclude
from nemesis.nemesis import Injectors


def run(
    on: str,
    store: Path,
    nemesis: str = "kill",
    progress: RunListener | None = None,
    time_limit: float = 12.0,
    **others: Any,
) -> RunOutcome:
    """A short run of a small cluster; `others` are options of the run too."""
    options = RunOptions(
        "register",
        on=on,
        nemesis=tuple(nemesis.split(",")),
        time_limit=time_limit,
        seed=3,
        masters=1,
        nodes=3,
        store=store,
        **others,
    )
    return carry_out(options, judge_saved_run, progress or Silent(), datetime.now(), lambda sentence: None).outcome


class Wrapped:
    """A client around another one, whose answers it may change."""

    def __init__(self, inner: Client) -> None:
        self.inner = inner

    async def invoke(self, op: Op) -> Op:
        return await self.inner.invoke(op)

    async def close(self) -> None:
        await self.inner.close()


class Hopeless(Wrapped):
    """A client whose every operation fails."""

    async def invoke(self, op: Op) -> Op:
        raise DefiniteError("refused", "nobody is at home")


class Liar(Wrapped):
    """Says of some writes, which time out after they took effect, that they failed."""

    count = 0

    async def invoke(self, op: Op) -> Op:
        done = await self.inner.invoke(op)
        Liar.count += op.f == "write"
        if op.f == "write" and Liar.count % 5 == 0:
            raise DefiniteError("timeout", "no answer in time")
        return done


class FillsUp(Silent):
    """Takes what room is left under a store once a fault has begun: how much a run writes by then is up to chance."""

    def __init__(self, store: Path) -> None:
        self.store, self.filled = store, False

    def event(self, op: Op) -> None:
        if op.process < 0 and op.type == "info" and not self.filled:
            self.filled = True
            with suppress(OSError), (self.store / "filler").open("wb", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass


def with_clients(patch: pytest.MonkeyPatch, wrapper: type[Wrapped]) -> None:
    """All clients of the workload are wrapped."""
    make = ReferenceDatabase.op_client
    patch.setattr(ReferenceDatabase, "op_client", lambda self, *told: wrapper(make(self, *told)))


def without_hands(patch: pytest.MonkeyPatch, *actions: type) -> None:
    """The nemesis does nothing of what it says, or nothing of these classes of actions."""
    able = Injectors.carry_out

    async def carry_out(injectors: Injectors, instance: int, action: Any) -> None:
        await asyncio.sleep(0)
        if actions and not isinstance(action, actions):
            await able(injectors, instance, action)

    patch.setattr(Injectors, "carry_out", carry_out)


def with_a_failing_teardown(patch: pytest.MonkeyPatch, database: type) -> None:
    """Tearing the database down raises, before it has done anything."""

    async def teardown(self: Any) -> None:
        raise HarnessError("the way to the nodes is lost")

    patch.setattr(database, "teardown", teardown)


def is_vacuous(outcome: RunOutcome) -> None:
    verdict = outcome.verdict
    assert verdict.overall == "unknown", verdict.reasons
    assert verdict.adequacy.answer is False
    assert any("never observed in effect" in reason for reason in verdict.reasons), verdict.reasons


def unseen(kind: str) -> Callable[[str], bool]:
    """Whether a reason says that a kind was never seen, whatever it adds of instances that were skipped."""
    return lambda reason: reason.startswith(f"the fault {kind} was never observed in effect")


def never_saw(outcome: RunOutcome, kind: str) -> None:
    """It was tried, and what the verdict says of it stands beside whatever else the run is found to be."""
    verdict = outcome.verdict
    assert verdict.adequacy.details["faults"][kind]["requested"] >= 1
    assert verdict.adequacy.answer is False
    assert any(map(unseen(kind), verdict.reasons)), verdict.reasons


def is_unknown_only_for(outcome: RunOutcome, kind: str) -> None:
    """Of this run's own facts: had nothing else gone wrong, what was never seen would still make it unknown. Nothing
    else: no failure of ours, and none that kept recovery from being observed."""
    found = load_facts(outcome.rundir)
    recovered = found.recovery.recovered is not False
    recovery = msgspec.structs.replace(found.recovery, recovered=recovered, reason=None)
    facts = msgspec.structs.replace(found, failures=(), recovery=recovery)
    verdict = conclude(facts, {"register": {"valid": True}})
    assert verdict.overall == "unknown"
    assert [*map(unseen(kind), verdict.reasons)] == [True], verdict.reasons


def is_refused_without_clocks(on: str, store: Path) -> None:
    """Where clocks can't be set a fault of clocks is refused before anything starts."""
    with pytest.raises(UserError, match="The nemesis 'clock-jump' can't be used here: no clock fault is offered"):
        run(on, store, "clock-jump")
    assert not store.exists()


def ran_out_of_room(outcome: RunOutcome) -> None:
    verdict = outcome.verdict
    assert verdict.overall == "unknown", verdict.reasons
    assert verdict.harness.answer is False
    assert any("No space left on device" in reason for reason in verdict.reasons), verdict.reasons
    assert open_run(outcome.rundir.path).journal.exists()


def serves_nobody(outcome: RunOutcome) -> None:
    verdict = outcome.verdict
    assert verdict.overall == "invalid", verdict.reasons
    assert verdict.adequacy.answer is False and verdict.liveness.answer is False
    assert any("no operation succeeded" in reason for reason in verdict.reasons), verdict.reasons


def is_refuted(outcome: RunOutcome) -> None:
    verdict = outcome.verdict
    assert verdict.overall == "invalid", verdict.reasons
    assert verdict.safety.answer is False and verdict.checkers["register"]["valid"] is False


def lost_only_the_teardown(outcome: RunOutcome, overall: str = "valid") -> None:
    """It is told, and changes nothing of what was to be said without."""
    verdict = outcome.verdict
    assert verdict.overall == overall, verdict.reasons
    assert [(failure.stage, failure.error) for failure in verdict.aftermath] == [
        ("tear down", "HarnessError: the way to the nodes is lost")
    ]
