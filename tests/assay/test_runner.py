"""What becomes of runs whose children hang, die, are killed, or write what is no result."""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from command_line import assay

from assay import compose, runner
from assay.options import RunOptions
from assay.runner import Keep, Lost, RunResult, abandoned_in, run_all, scratch_in
from harness.errors import HarnessError, UserError
from harness.history.rundir import create, open_run
from harness.run.stopping import AskedToEnd
from tests import honest_runs as honest

SHORT = ("--time-limit", "3", "--rate", "40", "--concurrency", "4", "--nodes", "3")
LIMIT_S = 2.5
"""All of them begin within this time."""
LONG_S = 9.0
"""Longer than any of these waits for a child."""


def command() -> int:
    """The process that a run's keeper was forked from."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    return parent.pid


def hang(number: int = 0) -> None:
    if number:
        os.kill(os.getpid(), number)
    while True:
        time.sleep(LONG_S)


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang()


def garbage() -> None:
    """Into every file for results that is open."""
    for each in Path("/proc/self/fd").iterdir():
        if each.is_symlink() and "memfd:result" in str(each.readlink()):
            os.write(int(each.name), b"\xffgarbage")
    os._exit(0)


FATES: dict[str, tuple[Callable[[], object], Lost]] = {
    "hangs": (hang, Lost("timed-out", LIMIT_S)),
    "hangs and hears nothing": (deaf, Lost("timed-out", LIMIT_S)),
    "is stopped": (lambda: hang(signal.SIGSTOP), Lost("timed-out", LIMIT_S)),
    "is killed": (lambda: hang(signal.SIGKILL), Lost("killed", signal.SIGKILL)),
    "crashes": (lambda: (faulthandler.disable(), ctypes.string_at(0)), Lost("killed", signal.SIGSEGV)),
    "exits": (lambda: os._exit(0), Lost("exited", 0)),
    "exits with a code": (lambda: os._exit(3), Lost("exited", 3)),
    "writes garbage": (garbage, Lost("exited", 0)),
    "is told to end": (lambda: hang(signal.SIGTERM), Lost("stopped")),
    "is interrupted": (lambda: hang(signal.SIGINT), Lost("stopped")),
}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE_S", {"sim": 0.2})


def test_a_child_that_is_lost_costs_its_own_run_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """One that hangs holds nobody up: what came of the others comes before it, and nothing is left of any."""
    good, fates = 3, list(FATES.values())

    def meet(scratch: Path, options: RunOptions, *_: object) -> RunResult:
        (scratch / "left").touch()
        if options.seed >= good:
            fates[options.seed - good][0]()
        time.sleep(0.3)  # the others have met theirs by then
        return RunResult(options, "valid")

    monkeypatch.setattr(runner, "_run_in", meet)
    runs = [RunOptions("register", seed=seed, store=tmp_path) for seed in range(good + len(fates))]
    results = list(run_all(runs, jobs=len(runs), limit_s=LIMIT_S))
    found = {result.options.seed: result for result in results}
    assert [found[seed].lost for seed in sorted(found)] == [None] * good + [lost for _, lost in fates]
    for result in results:
        expected = "valid" if result.lost is None else "unknown"
        assert result.overall == expected and (result.reasons != ()) == (result.lost is not None)
        assert result.why == ({"stopped": "interrupted"}.get(result.lost.how, "harness") if result.lost else None)
    late = [result.options.seed for result in results[-3:]]
    assert sorted(late) == [good, good + 1, good + 2], "what hangs comes last"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["valid", "invalid"])
def test_of_a_child_that_dies_once_it_has_told_its_result_only_what_it_refuted_stands(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_seed", lambda options, *_: RunResult(options, word))
    monkeypatch.setattr(runner.atexit, "_run_exitfuncs", lambda: os.kill(os.getpid(), signal.SIGKILL))
    (result,) = run_all([RunOptions("register", store=tmp_path)], jobs=1)
    assert result.overall == {"valid": "unknown", "invalid": "invalid"}[word]
    assert result.lost == {"valid": Lost("killed", 9), "invalid": None}[word]


def test_what_a_child_prints_is_not_what_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def noisy(options: RunOptions, *_: object) -> RunResult:
        print("VALID: 1 of 1 seeds")
        os.write(1, b"{}")
        return RunResult(options, "valid")

    monkeypatch.setattr(runner, "run_seed", noisy)
    assert next(run_all([RunOptions("register", store=tmp_path)], jobs=1)).overall == "valid"
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("asked_again", [False, True])
def test_a_second_wish_to_end_is_not_kept_waiting(
    asked_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is heard by those that hear; whoever is asked once more waits for nobody."""
    wishes = 2 if asked_again else 1
    monkeypatch.setattr(runner, "GRACE_S", {"sim": 600.0 if asked_again else 0.2})
    monkeypatch.setattr(runner, "run_seed", lambda *_: ask())

    def ask() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(wishes):
            os.kill(command(), signal.SIGTERM)
            time.sleep(0.3)
        hang()

    said: list[int] = []
    asked = AskedToEnd(said.append)
    with asked.in_charge(), pytest.raises(KeyboardInterrupt):
        list(run_all([RunOptions("register", store=tmp_path)], jobs=1, asked=asked))
    assert said == list(range(1, wishes + 1)) and list(tmp_path.iterdir()) == []


def test_of_a_run_in_real_time_that_is_ended_at_once_the_history_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def begun(scratch: Path, options: RunOptions, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (create(scratch, options.workload, datetime(2026, 1, 1)).path / "run.json").touch()
        for _ in range(2):
            os.kill(command(), signal.SIGTERM)
            time.sleep(0.3)
        hang()

    monkeypatch.setattr(runner, "_run_in", begun)
    asked = AskedToEnd()
    with asked.in_charge(), pytest.raises(KeyboardInterrupt):
        list(run_all([RunOptions("register", on="docker", store=tmp_path)], jobs=1, asked=asked))
    kept = open_run(tmp_path / "latest").path
    assert kept.parent == tmp_path / "register" and not list(tmp_path.glob(".*"))
    assert f"`assay check {tmp_path}/register/{kept.name}` judges it" in capfd.readouterr().err


def test_where_no_process_can_be_started_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(HarnessError, match="no process can be started: Resource temporarily unavailable"):
        list(run_all([RunOptions("register", store=tmp_path)], jobs=1))


def test_a_run_that_nobody_can_be_made_of_hides_no_other_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused_at_one(options: RunOptions, *_: object) -> RunResult:
        if options.seed == 1:
            raise UserError("There is no room.")
        return RunResult(options, "invalid")

    monkeypatch.setattr(runner, "run_seed", refused_at_one)
    monkeypatch.setattr(
        runner._Children, "await_any", lambda children, *_: [child.process.join() for child in children.all]
    )
    results = run_all([RunOptions("register", seed=seed, store=tmp_path) for seed in (1, 2)], jobs=2)
    assert next(results).options.seed == 2
    with pytest.raises(UserError, match="no room"):
        next(results)


def test_folders_of_runs_in_the_making_are_taken_away_when_their_process_is_gone_and_not_before(tmp_path: Path) -> None:
    with scratch_in(tmp_path) as living:
        assert abandoned_in(tmp_path, remove=True) == () and living.exists()
        pid = os.fork()
        if not pid:
            making = scratch_in(tmp_path)
            making.__enter__()
            os._exit(0)
        os.waitpid(pid, 0)
        (tmp_path / ".seed-file").touch()
        (tmp_path / ".seed-link").symlink_to(living)
        (gone,) = abandoned_in(tmp_path)
        assert gone != living and gone.exists()
        assert abandoned_in(tmp_path, remove=True) == (gone,) and not gone.exists()
        assert living.exists() and (tmp_path / ".seed-link").is_symlink()
    assert not living.exists()


@pytest.mark.parametrize(("jobs", "cores"), [(1, None), (2, 2), (3, 1), (6, 1)])
def test_processes_share_the_cores_on_which_runs_are_judged(
    jobs: int, cores: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_seed", lambda options, keep, cores, *_: RunResult(options, "valid", (str(cores),)))
    monkeypatch.setattr(runner, "usable_cores", lambda: 5)
    results = list(run_all([RunOptions("register", seed=seed) for seed in range(1, 4)], jobs))
    assert {result.reasons for result in results} == {(str(cores),)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_are_taken_as_they_are_needed(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "run_seed", lambda options, *_: RunResult(options, "valid"))
    taken: list[int] = []

    def asked() -> Iterator[RunOptions]:
        for seed in range(10**8):
            taken.append(seed)
            yield RunOptions("register", seed=seed)

    with closing(run_all(asked(), jobs=jobs)) as results:
        assert len({result.options.seed for result in islice(results, 3)}) == 3
    assert len(taken) <= 3 + 2 * jobs


def test_a_seed_is_the_same_run_alone_and_among_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = assay(capsys, "run", "register", *SHORT, "--seed", "5", "--json", "--store", tmp_path).objects[0]
    options = RunOptions("register", time_limit=3, rate=40, concurrency=4, nodes=3, store=tmp_path / "many")
    runs = [replace(options, seed=seed) for seed in (4, 5)]
    results = list(run_all(runs, jobs=2, keep=Keep.NOTHING))
    traces = {result.options.seed: result.trace for result in results}
    assert traces.keys() == {4, 5} and traces[5] == alone["trace"] != traces[4]


def test_a_failure_of_the_harness_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("assay.compose.carry_out", broken)
    (result,) = run_all([RunOptions("register", store=tmp_path)], jobs=1)
    assert (result.overall, result.why) == ("unknown", "harness") and "out of order" in result.reasons[0]
    assert list(tmp_path.iterdir()) == []


def test_what_was_found_stands_where_the_run_can_not_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It became a failure of the harness, and the run no longer invalid."""

    def full(*_: object) -> None:
        raise HarnessError("no space left on device")

    monkeypatch.setattr(runner, "adopt", full)
    honest.with_clients(monkeypatch, honest.Liar)
    result = runner.run_seed(RunOptions("register", time_limit=6.0, seed=3, masters=1, nodes=3, store=tmp_path))
    assert result.overall == "invalid" and result.run is None
    assert result.reasons[-1] == "the run could not be kept: no space left on device"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("refuted", [False, True])
def test_what_a_run_has_refuted_that_somebody_stopped_is_kept(
    refuted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers a run ends in peace when it is told to, and is judged."""
    make = compose.carry_out

    def stopped(*arguments: Any) -> compose.Finished:
        finished = make(*arguments)
        return replace(finished, outcome=replace(finished.outcome, interrupted=True))

    if refuted:
        honest.with_clients(monkeypatch, honest.Liar)
    monkeypatch.setattr(compose, "carry_out", stopped)
    (result,) = run_all([RunOptions("register", time_limit=6, seed=3, masters=1, nodes=3, store=tmp_path)], jobs=1)
    assert result.stopped and result.overall == ("invalid" if refuted else "unknown")
    assert (result.run is not None and result.run.exists()) == refuted


def test_a_store_that_can_not_be_written_costs_no_other_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (result,) = run_all([RunOptions("register", store=tmp_path / "file" / "store")], jobs=1)
    assert (result.overall, result.why) == ("unknown", "harness")
