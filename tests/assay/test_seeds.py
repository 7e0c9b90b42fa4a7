"""`assay run --seeds`: one line a seed, the worst finding as the exit code, and processes that die."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import assay

from assay import seeds
from assay.options import RunOptions
from assay.seeds import Keep, SeedResult, exit_code, parse_seeds, run_all, worst
from harness.errors import UserError

SHORT = ("--time-limit", "3", "--rate", "40", "--concurrency", "4", "--nodes", "3")


def test_a_range_of_seeds() -> None:
    assert parse_seeds("1..500") == range(1, 501)
    assert parse_seeds("7") == range(7, 8)


@pytest.mark.parametrize("text", ["", "5..1", "1..", "..5", "a..b", "1-5", "-1..3", "1..2..3"])
def test_a_seed_range_that_is_none(text: str) -> None:
    with pytest.raises(UserError, match=r"FIRST\.\.LAST"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "5..1"], "--seeds takes FIRST..LAST"),
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


def _die_at_two(options: RunOptions, keep: Keep) -> SeedResult:
    if options.seed == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return SeedResult(options, "valid")


def test_a_process_that_dies_costs_its_own_seed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "run_seed", _die_at_two)
    results = list(run_all([RunOptions("register", seed=seed) for seed in range(1, 6)], jobs=2))
    assert [(result.options.seed, result.overall) for result in results] == [
        (1, "valid"),
        (2, "error"),
        (3, "valid"),
        (4, "valid"),
        (5, "valid"),
    ]
    assert "died" in results[1].reasons[0]


def test_a_failure_of_the_harness_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("assay.compose.carry_out", broken)
    (result,) = run_all([RunOptions("register", store=tmp_path)], jobs=1)
    assert result.overall == "error" and "out of order" in result.reasons[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "word", "code"),
    [
        (["valid", "unknown", "invalid", "error"], "invalid", 1),
        (["valid", "unknown", "error"], "error", 255),
        (["valid", "unknown"], "unknown", 2),
        (["valid"], "valid", 0),
        ([], "unknown", 2),
    ],
)
def test_the_worst_finding_wins(words: list[str], word: str, code: int) -> None:
    results = [SeedResult(RunOptions("register"), each) for each in words]
    assert (worst(results), exit_code(results)) == (word, code)


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
    assert answer.code == 255 and answer.out.splitlines()[2].startswith("UNKNOWN: 2 of 3 seeds: 2 valid")
    assert answer.complaint.endswith("2 of 3 seeds had ended; what was under way is removed.")
    (told,) = assay(capsys, *arguments, "--json").objects
    assert (told["valid"], told["overall"]) == ("unknown", "unknown")
