"""What is not up after the last heal, or after the final reads, and whose failure that is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.env.sim import SimEnvironment
from harness.ports.machines import ProcessState
from harness.protocols import Examination, InvariantsRecord
from harness.run.spec import Silent
from tests.harness.run.memory_runs import KillNemesis, Setup
from tests.support.memory_database import MemoryDatabase


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


class DuringFinalReads(Silent):
    """Something happens when the final reads begin."""

    def __init__(self, happen: Callable[[], object]) -> None:
        self.happen = happen

    def stage(self, name: str) -> None:
        if name == "final reads":
            self.happen()


def test_a_link_that_somebody_cut_by_hand_is_our_failure(setup: Setup) -> None:
    verdict = setup.run(progress=DuringFinalReads(lambda: setup.world.network.cut("n1", "n2"))).verdict
    assert (verdict.overall, verdict.harness.answer, verdict.liveness.answer) == ("unknown", False, True)
    assert verdict.reasons == (
        "the harness failed (heal): HarnessError: after the final reads nothing arrives over n1 -> n2",
    )


def test_a_link_that_is_dead_when_all_is_healed_is_our_failure(setup: Setup) -> None:
    class Careless(KillNemesis):
        async def teardown(self) -> None:
            await super().teardown()
            setup.world.network.cut("n3", "n1")

    verdict = setup.run(nemesis=Careless(setup.database)).verdict
    assert (verdict.overall, verdict.harness.answer) == ("unknown", False)
    assert "after the last heal nothing arrives over n3 -> n1" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("happens", "word", "reason"),
    [
        (lambda database: database._states.update(n2=ProcessState.PAUSED), "unknown", "n2 is stopped (SIGSTOP)"),
        (lambda database: database._states.update(n2=ProcessState.DEAD), "invalid", "the process of n2 is not running"),
        (lambda database: database.mute.add("n2"), "invalid", "n2 runs and does not answer its status"),
    ],
)
def test_a_node_that_is_not_up_after_the_final_reads(setup: Setup, happens: Any, word: str, reason: str) -> None:
    class Mute(MemoryDatabase):
        mute: set[str] = set()

        async def status(self, node: str) -> Any:
            return None if node in self.mute else await super().status(node)

    database = Mute(setup.environment.clock)
    progress = DuringFinalReads(lambda: happens(database))
    verdict = setup.run(progress=progress, database=database, nemesis=KillNemesis(database)).verdict
    assert verdict.overall == word
    assert any(reason in each for each in verdict.reasons), verdict.reasons
    assert verdict.liveness.answer is (word == "unknown")


def test_an_answer_that_was_lost_is_no_silence(setup: Setup) -> None:
    """Asked once each, three nodes of which every second answer is lost would never all have answered."""

    class Lossy(MemoryDatabase):
        asked = 0

        async def status(self, node: str) -> Any:
            self.asked += 1
            return None if self.asked % 2 else await super().status(node)

    database = Lossy(setup.environment.clock)
    verdict = setup.run(database=database, nemesis=KillNemesis(database)).verdict
    assert (verdict.overall, verdict.reasons) == ("valid", ())


def test_machines_that_somebody_else_disturbed_are_our_failure(setup: Setup) -> None:
    class Disturbed(SimEnvironment):
        async def disturbed(self) -> tuple[str, ...]:
            return ("n3 is gone: its container was removed",)

    environment = Disturbed(setup.world)
    verdict = setup.run(environment=environment).verdict
    assert (verdict.overall, verdict.harness.answer) == ("unknown", False)
    assert "n3 is gone: its container was removed" in verdict.reasons[0]


@pytest.mark.parametrize("disturbed", [False, True])
def test_what_is_wrong_in_the_end_is_not_the_database_s_where_a_machine_was_taken_away_while_it_was_looked_at(
    setup: Setup, disturbed: bool
) -> None:
    class Disturbed(SimEnvironment):
        gone: tuple[str, ...] = ()

        async def disturbed(self) -> tuple[str, ...]:
            return self.gone

    class Examined(MemoryDatabase):
        capabilities = MemoryDatabase.capabilities | {"examine", "invariants"}

        async def invariants(self) -> InvariantsRecord:
            return InvariantsRecord({"something": 1}, {}, ())

        async def examine(self, timeout_s: float) -> Examination:
            if disturbed:
                environment.gone = ("n3 is gone: its container is paused",)
            return Examination(("node: n3 does not answer",), {})

    environment, database = Disturbed(setup.world), Examined(setup.environment.clock)
    verdict = setup.run(environment=environment, database=database, nemesis=KillNemesis(database)).verdict
    assert verdict.overall == ("unknown" if disturbed else "invalid")
    assert verdict.harness.answer is not disturbed
    wanted = "n3 is gone: its container is paused" if disturbed else "end-state"
    assert any(wanted in reason for reason in verdict.reasons), verdict.reasons
