"""`assay run --seeds`: one line a seed, the worst finding as the exit code, and processes that die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from command_line import assay

from assay import compose, seeds
from assay.options import RunOptions
from assay.seeds import Keep, SeedResult, parse_seeds, run_all, word_of, worst
from harness.errors import HarnessError, UserError
from tests import honest_runs as honest

SHORT = ("--time-limit", "3", "--rate", "40", "--concurrency", "4", "--nodes", "3")


def test_a_range_of_seeds() -> None:
    assert parse_seeds("1..500") == range(1, 501)
    assert parse_seeds("7") == range(7, 8)


@pytest.mark.parametrize("text", ["", "1..", "..5", "a..b", "1-5", "1..2..3"])
def test_a_seed_range_that_is_none(text: str) -> None:
    with pytest.raises(UserError, match=r"FIRST\.\.LAST"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9..3", "first is above the last"),
        ("-1..3", "between 0"),
        ("1..1000000001", "at most"),
        (f"{2**63 - 1}..{2**63}", "between 0"),
    ],
)
def test_a_range_that_can_t_be_is_told_why(text: str, words: str) -> None:
    with pytest.raises(UserError, match=f"--seeds is '{text}'.*{words}"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "5..1"], "--seeds is '5..1': the first is above the last."),
        (["--seeds", "1..2", "--seeds", "3..4"], "--seeds is given more than once; give one range."),
        (["--seeds", "1..2", "--seed", "3"], "exclude each other"),
        (["--jobs", "2"], "go with --seeds"),
        (["--seeds", "1..2", "--jobs", "0"], "--jobs is 0"),
        (["--seeds", "1..2", "--jobs", "2", "--on", "docker"], "--jobs above 1 is for the simulator"),
    ],
)
def test_bad_arguments(arguments: Sequence[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "run", "register", *arguments)
    assert answer.code == 254 and words in answer.err


def test_valid_seeds_leave_nothing_in_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    answer = assay(capsys, "run", "register", *SHORT, "--seeds", "1..3", "--store", store)
    assert answer.code == 0, answer
    lines = answer.out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["seed 1", "seed 2", "seed 3"]
    assert lines[3] == "VALID: 3 of 3 seeds: 3 valid"
    assert list(store.iterdir()) == []


def test_findings_are_kept_with_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A nemesis that has no time to do anything makes every run vacuous."""
    store = tmp_path / "store"
    arguments = ("--time-limit", "1", "--rate", "2", "--nemesis", "lonely-leader", "--seeds", "1..2", "--json")
    answer = assay(capsys, "run", "register", *arguments, "--store", store)
    (found,) = answer.objects
    assert answer.code == 2 and found["valid"] == "unknown" and found["seeds"] == {"asked": 2, "ended": 2, "unknown": 2}
    for result in found["results"]:
        run = Path(result["run"])
        assert run.parent == store / "register" and (run / "report.html").exists() and result["reasons"]
        assert f"--seed {result['seed']} " in result["command"] + " "
        assert assay(capsys, "check", run, "--json").objects[0]["valid"] != False  # noqa: E712  true or "unknown"


def test_a_seed_is_the_same_run_alone_and_among_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = assay(capsys, "run", "register", *SHORT, "--seed", "5", "--json", "--store", tmp_path).objects[0]
    options = RunOptions("register", time_limit=3, rate=40, concurrency=4, nodes=3, store=tmp_path / "many")
    runs = [RunOptions(**{**_fields(options), "seed": seed}) for seed in (4, 5)]
    results = list(run_all(runs, jobs=2, keep=Keep.NOTHING))
    assert [result.options.seed for result in results] == [4, 5]
    assert results[1].trace == alone["trace"] and results[0].trace != alone["trace"]


def _fields(options: RunOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in RunOptions.__dataclass_fields__}


def _die_at_two(options: RunOptions, keep: Keep, cores: int | None = None) -> SeedResult:
    if options.seed == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return SeedResult(options, "valid")


def test_a_process_that_dies_costs_its_own_seed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "run_seed", _die_at_two)
    results = list(run_all([RunOptions("register", seed=seed) for seed in range(1, 6)], jobs=2))
    assert [(result.options.seed, result.overall, result.why) for result in results] == [
        (1, "valid", None),
        (2, "unknown", "harness"),
        (3, "valid", None),
        (4, "valid", None),
        (5, "valid", None),
    ]
    assert "died" in results[1].reasons[0]


def _tell_process(options: RunOptions, keep: Keep, cores: int | None = None) -> SeedResult:
    return SeedResult(options, "valid", (str(os.getpid()),))


def _tell_cores(options: RunOptions, keep: Keep, cores: int | None = None) -> SeedResult:
    return SeedResult(options, "valid", (str(cores),))


@pytest.mark.parametrize(("jobs", "cores"), [(1, "None"), (2, "2"), (3, "1"), (6, "1")])
def test_processes_share_the_cores_on_which_runs_are_judged(
    jobs: int, cores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds, "run_seed", _tell_cores)
    monkeypatch.setattr(seeds, "usable_cores", lambda: 5)
    results = list(run_all([RunOptions("register", seed=seed) for seed in range(1, 4)], jobs))
    assert {result.reasons for result in results} == {(cores,)}


def test_processes_that_are_all_due_to_be_replaced_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both were gone after as many seeds as they may run, and the command waited for ever."""
    monkeypatch.setattr(seeds, "SEEDS_PER_PROCESS", 2)
    monkeypatch.setattr(seeds, "run_seed", _tell_process)
    results = list(run_all([RunOptions("register", seed=seed) for seed in range(1, 8)], jobs=2))
    assert [result.options.seed for result in results] == [1, 2, 3, 4, 5, 6, 7]
    assert len({result.reasons for result in results}) >= 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_are_taken_as_they_are_needed(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "SEEDS_PER_PROCESS", 2)
    monkeypatch.setattr(seeds, "run_seed", _tell_process)
    taken: list[int] = []

    def asked() -> Iterator[RunOptions]:
        for seed in range(10**8):
            taken.append(seed)
            yield RunOptions("register", seed=seed)

    with closing(run_all(asked(), jobs=jobs)) as results:
        assert [result.options.seed for result in islice(results, 3)] == [0, 1, 2]
    assert len(taken) <= 2 * jobs * 2


def test_a_command_of_very_many_seeds_begins_with_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The options of every seed were checked before any of them ran: nothing was seen for hours."""
    checked: list[int] = []

    def refused_at_three(options: RunOptions, keep: Keep) -> SeedResult:
        if options.seed == 3:
            raise UserError("There is no room.")
        return SeedResult(options, "valid")

    def counted(options: RunOptions) -> RunOptions:
        checked.append(options.seed)
        return options

    monkeypatch.setattr(seeds, "run_seed", refused_at_three)
    monkeypatch.setattr(seeds, "validate", counted)
    answer = assay(capsys, "run", "register", "--seeds", "1..99999999", "--store", tmp_path)
    assert answer.code == 254 and answer.out.splitlines()[2].startswith("UNKNOWN: 2 of 99999999 seeds: 2 valid")
    assert checked == [1]


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

    monkeypatch.setattr(seeds, "adopt", full)
    honest.with_clients(monkeypatch, honest.Liar)
    result = seeds.run_seed(RunOptions("register", time_limit=6.0, seed=3, masters=1, nodes=3, store=tmp_path))
    assert result.overall == "invalid" and result.run is None
    assert result.reasons[-1] == "the run could not be kept: no space left on device"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("refuted", [False, True])
def test_what_a_run_has_refuted_that_was_stopped_is_kept(
    refuted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers a run ends in peace when the user stops it, and is judged; it was thrown away whatever it found."""
    make = compose.carry_out

    def stopped(*arguments: Any) -> compose.Finished:
        finished = make(*arguments)
        return replace(finished, outcome=replace(finished.outcome, interrupted=True))

    if refuted:
        honest.with_clients(monkeypatch, honest.Liar)
    monkeypatch.setattr(compose, "carry_out", stopped)
    options = RunOptions("register", time_limit=6.0, seed=3, masters=1, nodes=3, store=tmp_path)
    results = run_all([options, replace(options, seed=4)], jobs=1)
    if refuted:
        result = next(results)
        assert result.overall == "invalid" and result.run is not None and result.run.exists()
    with pytest.raises(KeyboardInterrupt):
        next(results)


def test_a_store_that_can_not_be_written_costs_no_other_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (result,) = run_all([RunOptions("register", store=tmp_path / "file" / "store")], jobs=1)
    assert (result.overall, result.why) == ("unknown", "harness")


@pytest.mark.parametrize(("found", "code"), [("invalid", 1), ("valid", 254)])
def test_a_seed_that_no_run_can_be_made_of_hides_no_bug(
    found: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refused_from_two_on(options: RunOptions, keep: Keep) -> SeedResult:
        if options.seed == 2:
            raise UserError("There is no room.")
        return SeedResult(options, found)

    monkeypatch.setattr(seeds, "run_seed", refused_from_two_on)
    arguments = ("run", "register", "--seeds", "1..3", "--store", tmp_path)
    answer = assay(capsys, *arguments)
    assert answer.code == code and "There is no room." in answer.err
    assert "1 of 3 seeds" in answer.out
    (told,) = assay(capsys, *arguments, "--json").objects
    assert told["overall"] == ("invalid" if found == "invalid" else "unknown")


@pytest.mark.parametrize(
    ("whys", "word", "why"),
    [
        ([None, "undecided", "not-recovered", "harness", "refuted"], "invalid", "refuted"),
        (["vacuous", "not-recovered"], "invalid", "not-recovered"),
        ([None, "undecided", "vacuous", "harness"], "unknown", "harness"),
        ([None, "undecided", "vacuous"], "unknown", "vacuous"),
        ([None], "valid", None),
        ([], "unknown", "interrupted"),
    ],
)
def test_the_worst_finding_wins(whys: list[str | None], word: str, why: str | None) -> None:
    words = {None: "valid", "refuted": "invalid", "not-recovered": "invalid"}
    results = [SeedResult(RunOptions("register"), words.get(each, "unknown"), why=each) for each in whys]
    assert worst(results) == word_of(len(results), results) == (word, why)


def test_every_seed_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = assay(capsys, "run", "register", *SHORT, "--seeds", "1..2", "--store", tmp_path, "--json").objects
    assert (found["overall"], found["why"]) == ("valid", None)
    assert [(each["seed"], each["overall"], each["why"]) for each in found["results"]] == [
        (1, "valid", None),
        (2, "valid", None),
    ]
    for each in found["results"]:
        assert (each["workload"], each["environment"]) == ("register", "sim")
        assert each["trace"] and each["commit"] and each["duration_s"] > 3


def test_seeds_that_did_not_all_end_are_not_called_valid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Text, JSON and the exit code say the same."""

    def stopped_after_two(options: RunOptions, keep: Keep) -> SeedResult:
        if options.seed == 3:
            raise KeyboardInterrupt
        return SeedResult(options, "valid")

    monkeypatch.setattr(seeds, "run_seed", stopped_after_two)
    arguments = ("run", "register", "--seeds", "1..3", "--store", tmp_path)
    answer = assay(capsys, *arguments)
    assert answer.code == 2 and answer.out.splitlines()[2].startswith("UNKNOWN: 2 of 3 seeds: 2 valid")
    assert answer.complaint.endswith("2 of 3 seeds had ended; what was under way is removed.")
    (told,) = assay(capsys, *arguments, "--json").objects
    assert (told["valid"], told["overall"], told["why"]) == ("unknown", "unknown", "interrupted")
