"""Whole runs of a database in memory, in the simulator: what each kind of failure costs, and what it does not."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from harness.env.sim import SimEnvironment
from harness.errors import HarnessError, IndefiniteError, UserError
from harness.generators import Chance, Context, cycle, draw, invoke, sleep
from harness.history import rundir as rundirs
from harness.history.journal import read_journal
from harness.history.ops import Mop, Op, write
from harness.history.rundir import RunDir, create, open_run
from harness.ports.machines import ProcessState
from harness.protocols import Examination, InvariantsRecord, NodeStatus
from harness.run.allowances import in_words
from harness.run.life_cycle import run
from harness.run.spec import RunOutcome, Silent
from harness.verdict.facts import FaultKinds, conclude_run, load_facts, read_record
from tests.harness.run.memory_runs import KEYS, NOW, KillNemesis, Setup, judge_values, kill
from tests.support.memory_database import MemoryDatabase, NoNemesis, apply_mop


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def saved(rundir: RunDir) -> dict[str, Any]:
    verdict = rundir.read_json(rundir.verdict_json)
    assert isinstance(verdict, dict)
    return verdict


def test_a_good_run_is_valid_and_all_of_it_is_saved(setup: Setup) -> None:
    outcome = setup.run()
    rundir = outcome.rundir
    assert (outcome.verdict.overall, outcome.verdict.reasons, outcome.failures) == ("valid", (), ())
    assert saved(rundir)["valid"] is True
    assert saved(rundir)["checkers"]["values"]["reads"] > 100
    record = read_record(rundir)
    assert (record.options, record.rate_hz, record.environment) == ({"seed": 7, "flaw": None}, 100.0, "sim")
    assert record.provenance["versions"]["python"]
    first, second = rundir.read_json(rundir.faults_json)
    assert first["requested_ns"] == 2 * 10**9
    assert first["requested_ns"] <= first["observed_ns"] < first["healed_ns"] <= first["recovered_ns"]
    assert second["recovered_ns"] >= 10 * 10**9, "the fault still in effect at the end was healed then"
    reader = read_journal(rundir.journal)
    events = list(reader)
    assert reader.complete
    phases = list(dict.fromkeys(event.phase for event in events))
    assert phases == ["main", "heal", "recover", "final"]
    assert pq.read_metadata(rundir.history_parquet).num_rows == sum(event.type == "invoke" for event in events)
    assert (rundir.nodes / "n1" / "server.log").exists()
    assert (setup.store / "latest").resolve() == rundir.path.resolve()
    assert all(state is ProcessState.DEAD for state in setup.database._states.values()), "torn down"


def test_a_saved_run_can_be_judged_again(setup: Setup) -> None:
    outcome = setup.run()
    again = conclude_run(open_run(outcome.rundir.path), judge_values(outcome.rundir))
    assert again == msgspec.structs.replace(outcome.verdict)


def test_equal_seeds_make_equal_journals(tmp_path: Path) -> None:
    def journal(seed: int, folder: str) -> bytes:
        return Setup(tmp_path / folder, seed).run().rundir.journal.read_bytes()

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert journal(3, "a") == journal(3, "b")
    assert journal(4, "a") != journal(3, "b")


def test_a_database_that_lies_is_invalid(tmp_path: Path) -> None:
    def lying(cells: dict[int, int | None], mop: Mop) -> Mop:
        answer = apply_mop(cells, mop)
        return msgspec.structs.replace(answer, value=10**9) if mop.f == "r" and mop.partition == 2 else answer

    outcome = Setup(tmp_path, apply=lying).run()
    assert (outcome.verdict.overall, outcome.verdict.why, outcome.verdict.exit_code) == ("invalid", "refuted", 1)
    assert saved(outcome.rundir)["why"] == "refuted"
    assert outcome.verdict.reasons == ("values found the history invalid",)


def test_a_fault_that_was_not_observed_makes_the_run_vacuous(setup: Setup) -> None:
    outcome = setup.run(nemesis=KillNemesis(setup.database, blind=True))
    assert (outcome.verdict.overall, outcome.verdict.why) == ("unknown", "vacuous")
    assert outcome.account.faults == FaultKinds(asked=("kill",), seen=())
    assert outcome.verdict.reasons == ("the fault kill was never observed in effect",)
    assert [one["instance"] for one in saved(outcome.rundir)["adequacy"]["details"]["missed"]] == [1, 2]


def test_a_run_in_which_nothing_ran_is_unknown(setup: Setup) -> None:
    outcome = setup.run(generator=None, nemesis_generator=None, heal_generator=None)
    assert outcome.verdict.overall == "unknown"
    assert "no load was put on the database" in outcome.verdict.reasons


def test_a_bug_in_the_client_is_ours_and_the_run_goes_on(tmp_path: Path) -> None:
    def buggy(cells: dict[int, int | None], mop: Mop) -> Mop:
        if mop.value == 50:
            raise ZeroDivisionError("in the client")
        return apply_mop(cells, mop)

    outcome = Setup(tmp_path, apply=buggy).run()
    assert outcome.verdict.overall == "unknown"
    assert outcome.verdict.safety.answer is True, "what was found is judged"
    assert outcome.verdict.harness.reasons == ("the harness failed (client): ZeroDivisionError: in the client",)
    log = outcome.rundir.harness_log.read_text()
    assert "Traceback" in log and re.match(r"---- [\w ]+ at 20\d\d-\S+\+00:00\n", log), log
    types = {event.type for event in read_journal(outcome.rundir.journal) if event.mops and event.mops[0].value == 50}
    assert types == {"invoke", "info"}


class Failing:
    """A database whose named method raises."""

    def __init__(self, inner: MemoryDatabase, method: str, error: Exception) -> None:
        self._inner, self._method, self._error = inner, method, error

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            return self._raise
        return getattr(self._inner, name)

    async def _raise(self, *arguments: Any) -> None:
        raise self._error


@pytest.mark.parametrize("method", ["install", "first_start", "await_ready", "setup_workload"])
def test_a_failure_in_set_up_is_ours_and_is_saved(setup: Setup, method: str) -> None:
    outcome = setup.run(database=Failing(setup.database, method, HarnessError("no container")))
    assert (outcome.verdict.overall, outcome.verdict.why, outcome.verdict.exit_code) == ("unknown", "harness", 2)
    assert "the harness failed (set up): HarnessError: no container" in outcome.verdict.reasons
    assert saved(outcome.rundir)["liveness"]["answer"] == "unknown", "nothing is said of the system"
    assert outcome.rundir.run_json.exists()


def test_a_user_mistake_found_in_set_up_leaves_nothing(setup: Setup) -> None:
    torn_down = []

    class Watched(SimEnvironment):
        async def teardown(self) -> None:
            torn_down.append(True)

    with pytest.raises(UserError, match="no Docker"):
        setup.run(
            database=Failing(setup.database, "install", UserError("There is no Docker here.")),
            environment=Watched(setup.world),
        )
    assert torn_down == [True]
    assert not setup.store.exists()


@pytest.mark.parametrize(("method", "stage"), [("teardown", "tear down"), ("collect_logs", "logs")])
def test_a_crash_after_the_run_costs_no_verdict(setup: Setup, method: str, stage: str) -> None:
    outcome = setup.run(database=Failing(setup.database, method, RuntimeError("gone")))
    assert outcome.verdict.overall == "valid"
    assert [failure.stage for failure in outcome.failures] == [stage]
    (aftermath,) = saved(outcome.rundir)["aftermath"]
    assert aftermath.pop("where").startswith("harness.run.life_cycle.RunStages.")
    assert aftermath == {"stage": stage, "error": "RuntimeError: gone", "times": 1}


def test_a_judge_that_crashes_gives_unknown(setup: Setup) -> None:
    def crash(rundir: RunDir) -> Mapping[str, Any]:
        raise MemoryError("too much")

    outcome = setup.run(judge=crash)
    assert outcome.verdict.overall == "unknown"
    assert outcome.verdict.safety.answer == "unknown"
    assert any("judge" in reason for reason in outcome.verdict.reasons)


@pytest.mark.parametrize("stage", ["look again", "examine", "invariants"])
def test_a_stage_that_was_cancelled_by_nobody_is_our_failure(setup: Setup, stage: str) -> None:
    """It was passed over like one that the user stopped, and the run was valid without it."""

    class Cancelled(MemoryDatabase):
        capabilities = MemoryDatabase.capabilities | {"examine", "invariants"}

        async def examine(self, timeout_s: float) -> Examination:
            if stage == "examine":
                raise asyncio.CancelledError
            return Examination((), {})

        async def invariants(self) -> InvariantsRecord:
            if stage == "invariants":
                raise asyncio.CancelledError
            return InvariantsRecord({"something": 1})

        async def status(self, node: str) -> NodeStatus | None:
            if stage == "look again":
                raise asyncio.CancelledError
            return await super().status(node)

    database = Cancelled(setup.environment.clock)
    verdict = setup.run(database=database, nemesis=KillNemesis(database)).verdict
    assert verdict.overall == "unknown"
    told = f"the harness failed ({stage}): HarnessError: it was cancelled from inside, by nobody's wish"
    assert told in verdict.harness.reasons


def test_a_cluster_that_does_not_come_back_is_invalid(setup: Setup) -> None:
    class NeverReady(MemoryDatabase):
        healed = False

        async def await_ready(self, timeout_s: float) -> None:
            if self.clock.monotonic_ns() > 5 * 10**9:
                await self.clock.sleep(timeout_s)
                raise TimeoutError("no leader")

    database = NeverReady(setup.environment.clock)
    outcome = setup.run(database=database, nemesis=KillNemesis(database), recovery_budget_s=4.0)
    assert outcome.verdict.overall == "invalid"
    assert outcome.verdict.reasons == ("the cluster did not recover within 4 s of the last heal: no leader",)
    assert outcome.verdict.safety.answer is True


def test_on_an_overloaded_machine_what_takes_too_long_is_not_the_database_s_failure(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers beside much else a cluster took more than its budget, and was called invalid."""

    class NeverReady(MemoryDatabase):
        async def await_ready(self, timeout_s: float) -> None:
            if self.clock.monotonic_ns() > 5 * 10**9:
                await self.clock.sleep(timeout_s)
                raise TimeoutError("no leader")

    words = in_words(17.2, 2)
    assert words == "this machine is overloaded: 17 processes wait for its 2 cores" and in_words(7.9, 2) is None
    monkeypatch.setattr(
        setup.environment, "overload", lambda: words, raising=False
    )  # of the class it would be remembered
    database = NeverReady(setup.environment.clock)
    verdict = setup.run(database=database, nemesis=KillNemesis(database), recovery_budget_s=4.0).verdict
    assert verdict.overall == "unknown"
    assert verdict.liveness.reasons == (f"recovery was not observed: {words}",)


def test_ready_but_without_a_successful_operation_is_no_recovery(tmp_path: Path) -> None:
    setup = Setup(tmp_path)

    def refusing(cells: dict[int, int | None], mop: Mop) -> Mop:
        if setup.environment.clock.monotonic_ns() > 10 * 10**9:
            raise IndefiniteError("timeout")
        return apply_mop(cells, mop)

    setup.database.apply = refusing
    outcome = setup.run(recovery_budget_s=2.0)
    assert outcome.verdict.overall == "invalid"
    assert "no operation succeeded" in outcome.verdict.reasons[0]
    assert load_facts(outcome.rundir).done.final_counts == {"info": KEYS}


def test_a_recovery_after_the_budget_is_none(setup: Setup) -> None:
    class Sluggish(MemoryDatabase):
        async def await_ready(self, timeout_s: float) -> None:
            if self.clock.monotonic_ns() > 5 * 10**9:
                self.latency_s = 1.5

    database = Sluggish(setup.environment.clock)
    outcome = setup.run(database=database, nemesis=KillNemesis(database), recovery_budget_s=2.0)
    recovery = load_facts(outcome.rundir).recovery
    assert (recovery.recovered, recovery.seconds) == (False, 3.0)
    assert outcome.verdict.overall == "invalid"


class WearingNemesis(KillNemesis):
    """Leaves something behind, for so long after the healing."""

    worn_off_ns = 0

    def __init__(self, database: MemoryDatabase, seconds: float) -> None:
        super().__init__(database)
        self._clock, self._seconds = database.clock, seconds

    async def teardown(self) -> None:
        await super().teardown()
        self.worn_off_ns = self._clock.monotonic_ns() + int(self._seconds * 1e9)


@pytest.mark.parametrize(("wears_s", "budget_s", "recovered"), [(0.0, 2.0, False), (2.5, 4.5, True), (900, 62, True)])
def test_the_budget_begins_when_what_the_faults_left_behind_has_worn_off(
    setup: Setup, wears_s: float, budget_s: float, recovered: bool
) -> None:
    class Later(MemoryDatabase):
        async def await_ready(self, timeout_s: float) -> None:
            if self.clock.monotonic_ns() > 5 * 10**9:
                await self.clock.sleep(min(3.0, timeout_s))
                if timeout_s < 3.0:
                    raise TimeoutError("no leader")

    database = Later(setup.environment.clock)
    outcome = setup.run(database=database, nemesis=WearingNemesis(database, wears_s), recovery_budget_s=2.0)
    recovery = load_facts(outcome.rundir).recovery
    assert (recovery.recovered, recovery.budget_s) == (recovered, budget_s)
    assert outcome.verdict.overall == ("valid" if recovered else "invalid")


class Late(MemoryDatabase):
    """Ready three seconds after the faults, and slow from then on."""

    then_s = 0.5

    async def await_ready(self, timeout_s: float) -> None:
        if self.clock.monotonic_ns() > 5 * 10**9:
            await self.clock.sleep(3.0)
            self.latency_s = self.then_s


class Nearer(Late):
    capabilities = MemoryDatabase.capabilities | {"catches-up"}

    async def await_recovered(self, patience_s: float) -> None:
        await self.await_ready(patience_s)


@pytest.mark.parametrize(
    ("kind", "then_s", "budget_s", "recovered"),
    [
        (Nearer, 0.5, 2.0, True),
        (Nearer, 3.0, 2.0, False),
        (Nearer, 0.5, 0.5, False),
        (Late, 0.5, 2.0, False),
    ],
)
def test_who_is_ready_late_because_it_comes_nearer_serves_within_another_budget(
    setup: Setup, kind: type[Late], then_s: float, budget_s: float, recovered: bool
) -> None:
    """Who can't tell that it comes nearer has one budget, whenever it says that it is ready, and nobody has five."""
    database = kind(setup.environment.clock)
    database.then_s = then_s
    outcome = setup.run(database=database, nemesis=KillNemesis(database), recovery_budget_s=budget_s)
    recovery = load_facts(outcome.rundir).recovery
    assert recovery.recovered is recovered
    assert outcome.verdict.overall == ("valid" if recovered else "invalid")


def test_recovery_is_not_judged_when_healing_failed(setup: Setup) -> None:
    outcome = setup.run(nemesis=KillNemesis(setup.database, clumsy=True))
    assert outcome.verdict.overall == "unknown"
    assert outcome.verdict.liveness.reasons == ("recovery was not observed: healing failed",)
    assert {failure.stage for failure in outcome.failures} == {"nemesis", "heal for certain"}


def test_the_network_is_healed_even_if_the_nemesis_cannot(setup: Setup) -> None:
    class Cutting(KillNemesis):
        async def invoke(self, op: Op) -> Op:
            await setup.environment.cut(frozenset([("n1", "n2")]))
            return await super().invoke(op)

    seen: list[bool] = []

    def look(rundir: RunDir) -> Mapping[str, Any]:
        seen.append(setup.world.network.link("n1", "n2").cut)
        return judge_values(rundir)

    setup.run(judge=look, nemesis=Cutting(setup.database, clumsy=True))
    assert seen == [False]


def test_a_retired_process_never_comes_back_in_a_later_stage(tmp_path: Path) -> None:
    def forgetful(cells: dict[int, int | None], mop: Mop) -> Mop:
        if mop.value is not None and mop.value % 5 == 0:
            raise IndefiniteError("timeout")
        return apply_mop(cells, mop)

    outcome = Setup(tmp_path, apply=forgetful).run()
    ended: set[int] = set()
    for event in read_journal(outcome.rundir.journal):
        assert event.process not in ended
        if event.type == "info" and event.process >= 0:
            ended.add(event.process)
    assert len(ended) > 20


def test_a_generator_that_breaks_in_mid_run_still_ends_healed_and_judged(setup: Setup) -> None:
    def broken(context: Context, chance: Chance, n: int) -> Op:
        if n == 200:
            raise IndexError("in the workload")
        return invoke("write", write(1, n))

    outcome = setup.run(generator=draw(1, broken))
    assert any(failure.stage == "load" for failure in outcome.failures)
    assert outcome.verdict.safety.answer is True
    assert outcome.verdict.liveness.answer is True, "the nodes were healed and came back"
    assert outcome.verdict.overall == "unknown"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_heals_saves_judges_and_tears_down(setup: Setup, number: int) -> None:
    def interrupting(context: Context, chance: Chance, n: int) -> Op:
        if n == 300:
            os.kill(os.getpid(), number)
        return invoke("write", write(1, n))

    class Watching(Silent):
        def stopping(self, stage: str, longest_s: float | None) -> None:
            told.append(stage)

    before, told = signal.getsignal(number), list[str]()
    outcome = setup.run(generator=draw(1, interrupting), progress=Watching())
    assert outcome.interrupted and told == ["load"]
    assert (outcome.verdict.overall, outcome.verdict.why) == ("unknown", "interrupted")
    assert "the run was stopped before its end" in outcome.verdict.reasons
    facts = load_facts(outcome.rundir)
    assert 100 < facts.done.counts["write"]["ok"] < 400
    assert facts.faults[0].healed_ns is None, "it was healed, but out of the history"
    assert setup.nemesis.killed == []
    assert read_journal(outcome.rundir.journal).path.exists()
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("clumsy", [KillNemesis.invoke, KillNemesis.teardown])
def test_a_load_ends_when_the_nemesis_is_wedged(
    setup: Setup, clumsy: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether each step fails or one of two; it went on for a minute that could show nothing."""

    async def no_way(*_: object) -> None:
        raise HarnessError("no way to the node")

    monkeypatch.setattr(KillNemesis, clumsy.__name__, no_way)
    steps = cycle([sleep(1), kill("begin"), sleep(1), kill("end")])
    outcome = setup.run(time_limit_s=60, nemesis_generator=steps)
    assert (outcome.verdict.overall, outcome.verdict.why) == ("unknown", "harness")
    words = r"the harness failed \(load\): .*the nemesis failed 3 times alike, at last in \w+: .*no way to the node"
    assert any(re.fullmatch(words, reason) for reason in outcome.verdict.reasons)
    assert 3 <= outcome.verdict.adequacy.details["load_s"]["lasted"] < 7
    assert outcome.rundir.history_parquet.exists()


def test_a_recovery_that_can_not_be_looked_at_does_not_go_on_into_the_final_reads(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its probes went on beside them, by the same processes: the history could neither be saved nor judged."""

    async def no_answer(*_: object, **__: object) -> None:
        raise HarnessError("no way to the node")

    monkeypatch.setattr("harness.run.life_cycle.system_state", no_answer)
    outcome = setup.run()
    assert [failure.stage for failure in outcome.failures] == ["recover"]
    assert saved(outcome.rundir)["checkers"]["values"]["valid"] is True


def full_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store's disk be full from the journal's write of this number on, and for every file of the run."""
    real, left = os.write, [writes]

    def write_some(file: int, data: bytes) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    def write_file(path: Path, content: bytes) -> None:
        if left[0] < 0:
            raise HarnessError(f"{path} can't be written: No space left on device.")
        write_atomic(path, content)

    write_atomic = rundirs.write_atomic
    monkeypatch.setattr(os, "write", write_some)
    monkeypatch.setattr(rundirs, "write_atomic", write_file)


def test_a_store_that_is_full_at_the_start_is_told_and_left_empty(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_after(0, monkeypatch)
    with pytest.raises(UserError, match=r"No space left on device.* --store"):
        setup.run()
    assert not setup.store.exists()


def test_a_store_that_fills_up_in_mid_run_is_told_in_the_verdict(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    full_after(6, monkeypatch)
    outcome = setup.run(judge=lambda rundir: {"values": {"valid": True}})
    assert outcome.verdict.overall == "unknown"
    assert any("No space left on device" in reason for reason in outcome.verdict.harness.reasons)
    assert not outcome.rundir.verdict_json.exists()


def test_a_signal_during_set_up_tears_down(setup: Setup) -> None:
    class Slow(MemoryDatabase):
        async def install(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            await self.clock.sleep(500)
            raise AssertionError("set-up went on")

    outcome = setup.run(database=Slow(setup.environment.clock))
    assert outcome.interrupted
    assert outcome.failures == ()
    assert outcome.verdict.overall == "unknown"
    assert [name for name, _, _ in outcome.rundir.read_json(outcome.rundir.outcome_json)["stages"]] == [
        "set up",
        "logs",
    ]


def test_whoever_watches_cannot_break_the_run(setup: Setup) -> None:
    class Closed:
        def stage(self, name: str) -> None: ...

        def waits(self, what: str) -> None: ...

        def event(self, op: Op) -> None:
            raise BrokenPipeError("nobody reads")

    rundir = create(setup.store, "register", NOW)
    outcome = setup.world.run(run(setup.test, rundir, judge_values, Closed()))
    assert outcome.verdict.overall == "valid"
    assert [(failure.stage, failure.times) for failure in outcome.failures] == [("progress", 1)]


def test_cancelling_the_caller_is_a_wish_to_stop(setup: Setup) -> None:
    async def impatient() -> RunOutcome:
        rundir = create(setup.store, "register", NOW)
        task = asyncio.create_task(run(setup.test, rundir, judge_values))
        await setup.environment.clock.sleep(3)
        task.cancel()
        return await task

    outcome = setup.world.run(impatient())
    assert outcome.interrupted
    assert setup.nemesis.killed == []
    assert saved(outcome.rundir)["overall"] == "unknown"


def test_a_nemesis_that_does_nothing_and_no_faults_asked(setup: Setup) -> None:
    outcome = setup.run(nemesis=NoNemesis(), nemesis_generator=None, heal_generator=None, requested_faults=())
    assert outcome.verdict.overall == "valid"
    assert outcome.rundir.read_json(outcome.rundir.faults_json) == []
