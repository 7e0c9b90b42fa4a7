"""`assay run --seeds` and its like: one line a seed, the worst finding as the exit code, and how rare it is."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import assay

from assay import runner, seeds
from assay.cli import main
from assay.night.records import nights_in, read_night
from assay.options import RunOptions
from assay.runner import RunResult
from assay.seeds import SeedPlan, line_of, parse_seeds, percent, upper_bound, word_of, worst
from harness.errors import UserError

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
        (["--seeds", "1..2", "--test-count", "3"], "exclude each other"),
        (["--test-count", "0"], "--test-count is 0"),
        (["--seed-timeout", "9"], "go with --seeds"),
        (["--seeds", "1..2", "--seed-timeout", "0"], "--seed-timeout is 0"),
        (["--seeds", "1..2", "--jobs", "0"], "--jobs is 0"),
        (["--seeds", "1..2", "--jobs", "2", "--on", "docker"], "--jobs above 1 is for the simulator"),
    ],
)
def test_bad_arguments(arguments: Sequence[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "run", "register", *arguments)
    assert answer.code == 254 and words in answer.err


def test_valid_seeds_leave_a_line_each_in_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    answer = assay(capsys, "run", "register", *SHORT, "--seeds", "1..3", "--store", store)
    assert answer.code == 0, answer
    lines = answer.out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["seed 1", "seed 2", "seed 3"]
    assert lines[3] == "VALID: 3 of 3 seeds: 3 valid"
    assert [path.name for path in store.iterdir()] == ["nights"]
    (directory,) = nights_in(store)
    night = read_night(directory)
    assert [(run.seed, run.word, run.twin) for run in night.runs] == [(seed, "valid", None) for seed in (1, 2, 3)]
    assert night.done is not None and night.done.why == "runs" and all(run.points for run in night.runs)


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


def test_a_command_of_very_many_seeds_begins_with_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The options of every seed were checked before any of them ran: nothing was seen for hours."""
    checked: list[int] = []

    def refused_at_three(options: RunOptions, *_: object) -> RunResult:
        if options.seed == 3:
            raise UserError("There is no room.")
        return RunResult(options, "valid")

    def counted(options: RunOptions) -> RunOptions:
        checked.append(options.seed)
        return options

    monkeypatch.setattr(runner, "run_seed", refused_at_three)
    monkeypatch.setattr(seeds, "validate", counted)
    answer = assay(capsys, "run", "register", "--seeds", "1..99999999", "--store", tmp_path)
    assert answer.code == 254 and answer.out.splitlines()[2].startswith("UNKNOWN: 2 of 99999999 seeds: 2 valid")
    assert checked == [1]


@pytest.mark.parametrize(("found", "code"), [("invalid", 1), ("valid", 254)])
def test_a_seed_that_no_run_can_be_made_of_hides_no_bug(
    found: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refused_from_two_on(options: RunOptions, *_: object) -> RunResult:
        if options.seed == 2:
            raise UserError("There is no room.")
        return RunResult(options, found)

    monkeypatch.setattr(runner, "run_seed", refused_from_two_on)
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
    results = [RunResult(RunOptions("register"), words.get(each, "unknown"), why=each) for each in whys]
    plan = SeedPlan(range(max(1, len(results))))
    assert worst(results) == word_of(plan, results) == (word, why)


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
    """Text, JSON and the exit code say the same; a second wish is heard while those under way are being ended."""

    def asked_at_three(options: RunOptions, *_: object) -> RunResult:
        if options.seed == 3:
            os.kill(multiprocessing.parent_process().pid, signal.SIGINT)
            signal.pause()
        return RunResult(options, "valid")

    monkeypatch.setattr(runner, "run_seed", asked_at_three)
    arguments = ("run", "register", "--seeds", "1..3", "--store", tmp_path)
    answer = assay(capsys, *arguments)
    assert answer.code == 2 and answer.out.splitlines()[2].startswith("UNKNOWN: 2 of 3 seeds: 2 valid")
    assert answer.complaint.endswith("2 of 3 seeds had ended; what was under way is removed.")
    (told,) = assay(capsys, *arguments, "--json").objects
    assert (told["valid"], told["overall"], told["why"]) == ("unknown", "unknown", "interrupted")


def test_seeds_that_are_stopped_before_the_first_end_like_a_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def loading_long(text: str) -> range:
        os.kill(os.getpid(), signal.SIGTERM)
        return range(1, 3)

    monkeypatch.setattr(seeds, "parse_seeds", loading_long)
    with pytest.raises(SystemExit) as ended:
        main(["run", "register", "--seeds", "1..2", "--store", str(tmp_path)])
    told = capfd.readouterr()
    assert ended.value.code == 2 and told.out.startswith("UNKNOWN: 0 of 2 seeds: none ended (interrupted)")
    assert told.err.startswith("assay: stopping before the first seed.\nassay: stopped: 0 of 2 seeds had ended")


def _invalid_at(seed: int) -> Callable[..., RunResult]:
    def run(options: RunOptions, *_: object) -> RunResult:
        word = "invalid" if options.seed == seed else "unknown" if options.seed % 10 == 9 else "valid"
        return RunResult(options, word, why={"invalid": "refuted", "unknown": "vacuous"}.get(word))

    return run


@pytest.mark.parametrize(
    ("asked", "code", "summary", "bound"),
    [
        ("--until-invalid --seed 5", 1, "INVALID: 3 seeds: 2 valid, 1 invalid (refuted)", None),
        ("--until-invalid --seeds 6..20", 1, "INVALID: 2 of 15 seeds: 1 valid, 1 invalid (refuted)", None),
        ("--test-count 30 --seed 5", 1, "INVALID: 3 of 30 seeds: 2 valid, 1 invalid (refuted)", None),
        ("--test-count 5 --seed 10", 0, "VALID: 5 of 5 seeds: 5 valid", "0 of 5: below 46 % are invalid"),
        ("--until-invalid --seeds 10..11", 0, "VALID: 2 of 2 seeds: 2 valid", "0 of 2: below 78 % are invalid"),
        ("--test-count 2 --seed 8", 2, "UNKNOWN: 2 of 2 seeds: 1 valid, 1 unknown (vacuous)", "0 of 1: below 95 %"),
        ("--test-count 1 --seed 9", 2, "UNKNOWN: 1 of 1 seeds: 1 unknown (vacuous)", None),
    ],
)
def test_the_first_invalid_seed_ends_it_or_it_is_told_how_rare_they_are(
    asked: str, code: int, summary: str, bound: str | None, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    """What is unknown is no trial: it might have been invalid."""
    monkeypatch.setattr(runner, "run_seed", _invalid_at(7))
    arguments = ("run", "register", *asked.split(), "--store", tmp_path)
    answer = assay(capsys, *arguments)
    lines = answer.out.splitlines()
    assert answer.code == code and summary in lines
    assert [line for line in lines if "% are" in line] == [line for line in lines if bound and bound in line]
    assert (bound is not None) == any("% are" in line for line in lines)
    (told,) = assay(capsys, *arguments, "--json").objects
    assert ("bound" in told) == (bound is not None)


def test_the_bound_is_the_exact_one_and_is_never_rounded_down() -> None:
    for runs in (1, 2, 59, 299, 300, 10_000, 10**9):
        bound = upper_bound(runs)
        assert (1 - bound) ** runs == pytest.approx(0.05, rel=1e-5)
        assert 100 * bound <= float(percent(bound)) * (1 + 1e-9) <= 100 * bound * 1.1 + 1e-15
    assert [percent(upper_bound(runs)) for runs in (59, 300, 10_000)] == ["5.0", "1.0", "0.030"]


def test_a_line_tells_faults_that_found_no_victim() -> None:
    counts = {"observed": 1, "requested": 3, "skipped": 2, "skipped_because": ["nobody led"]}
    line = line_of(RunResult(RunOptions("register"), "valid", faults={"kill": counts}))
    assert line.endswith("observed of requested: 1/3 kill, 2 skipped (nobody led)")
