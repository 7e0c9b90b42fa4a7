"""Nights whose runs stop, grow, die and leave processes; that are killed and go on; and what the commands say."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import made_nights
import psutil
import pytest
from command_line import assay

from assay import judging, night_command, runner
from assay.night import journal, loop
from assay.night.journal import NightJournal, begin_night, head_of
from assay.night.loop import NightWork, carry_out_night
from assay.night.plan import cell_of
from assay.night.records import NIGHTS, Night, NightHead, RunEnded, RunFinding, RunMeasures, nights_in, read_night
from assay.options import RunOptions
from assay.runner import JudgedElsewhere, RunResult, run_step
from harness.history.rundir import RunDir
from tests.mounts import small_disk
from tests.support.patience import until

LIMIT_S = 8.0


def night_of(store: Path, *seeds: int, memory_mb: float = 4000.0, **more: Any) -> Night:
    cell = cell_of(
        RunOptions("register"), "cell", seeds=tuple((seed, seed) for seed in seeds), least=0, most=len(seeds)
    )

    def head(id: str) -> NightHead:
        limits = {"run_time_s": LIMIT_S, "memory_mb": memory_mb}
        told = {"budget": {"runs": 99}, "limits": limits, "jobs": len(seeds), "cells": (cell,), **more}
        return NightHead(**{name: getattr(head_of(id, "n", ""), name) for name in NightHead.__struct_fields__} | told)

    return begin_night(store, "n", "", head)


def work_of(night: Night, **more: Any) -> NightWork:
    return NightWork(night, NightJournal(night.directory, night.whole_bytes, night.seal), **more)


def made(night: Night, **more: Any) -> list[RunEnded]:
    return [ended for ended, _ in carry_out_night(work_of(night, **more))]


def grow() -> None:
    held = []
    while True:
        held.append(bytearray(50 << 20))
        held[-1][:: 1 << 12] = b"x" * len(held[-1][:: 1 << 12])
        time.sleep(0.02)


def leave(how: Callable[[], object]) -> None:
    """A grandchild that has a session and a parent of its own, as daemons do."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            Path(os.environ["LEFT"]).write_text(str(os.getpid()))
            time.sleep(60)
        os._exit(0)
    while not Path(os.environ["LEFT"]).exists() or not Path(os.environ["LEFT"]).read_text():
        time.sleep(0.02)
    how()


FATES: dict[str, tuple[str, Callable[[], object]]] = {
    "stops": ("timeout", lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "grows": ("memory", grow),
    "crashes": ("error", lambda: (faulthandler.disable(), ctypes.string_at(0))),
    "exits": ("error", lambda: os._exit(0)),
    "is killed": ("lost", lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "its keeper is killed": ("lost", lambda: (os.kill(os.getppid(), signal.SIGKILL), time.sleep(60))),
    "leaves somebody": ("valid", lambda: leave(lambda: None)),
    "leaves somebody and is killed": ("lost", lambda: leave(lambda: os.kill(os.getpid(), signal.SIGKILL))),
}


def test_each_fate_of_a_run_has_its_word_the_night_goes_on_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fates = list(FATES.values())

    def meet(options: RunOptions, *_: object) -> RunResult:
        os.environ["LEFT"] = str(tmp_path / f"left-{options.seed}")
        if options.seed < len(fates):
            fates[options.seed][1]()
        return RunResult(options, "valid", trace="t")

    monkeypatch.setattr(runner, "run_seed", meet)
    monkeypatch.setattr(runner, "GRACE_S", {"sim": 0.3})
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    found = made(night_of(tmp_path, *range(len(fates) + 1), memory_mb=400.0), repeats=False)
    words = {run.seed: run.word for run in found}
    assert [words[seed] for seed in range(len(fates) + 1)] == [*(word for word, _ in fates), "valid"]
    assert all(bool(run.findings) == (run.word in ("timeout", "memory", "error")) for run in found)
    assert len({run.findings[0].family for run in found if run.findings}) == 4, "each of them is known by itself"
    left = [int(path.read_text()) for path in tmp_path.glob("left-*")]
    assert len(left) == 2 and not any(map(psutil.pid_exists, left))
    assert {each.pid for each in psutil.Process().children(recursive=True)} <= before


SCRIPT = """
import hashlib, os, sys, time
from pathlib import Path
import assay.runner as runner
from assay.runner import RunResult

def run_seed(options, *_):
    Path(os.environ["RAN"]).open("a").write(f"{os.getpid()}\\n")
    time.sleep(0.02 + options.seed % 7 / 50)
    word = ("valid", "valid", "invalid", "unknown")[options.seed % 4]
    return RunResult(options, word, trace=hashlib.sha256(str(options.seed).encode()).hexdigest(), cpu_s=0.1)

runner.run_seed, runner.warm, runner._remake = run_seed, lambda _: None, lambda *_: None
import assay.night.choice, assay.night_command
assay.night.choice.ATTEMPTS = 99  # a run that meets three of the kills would be given up
assay.night_command.warm = lambda _: None
from assay.cli import main
main(sys.argv[1:])
"""
KILLED_PLAN = """
[night]
budget = {{ runs = {budget} }}
jobs = 2
[[cell]]
workload = "register"
nemesis = ["kill", "partition"]
seeds = "1..{each}"
max = {each}
"""


def ran(folder: Path, *more: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "RAN": str(folder / "ran")}
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        "night",
        str(folder / "plan.toml"),
        "--store",
        str(folder / "store"),
        *more,
    ]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def outcome(folder: Path) -> dict[tuple[str, int, int], tuple[str, str | None]]:
    """Of each run that repeats no other, its cell and number, its seed, word and digest."""
    (directory,) = nights_in(folder / "store")
    night = read_night(directory)
    assert night.done is not None and night.done.why == "runs" and not night.damage and not night.begun
    assert len({run.run for run in night.runs}) == len(night.runs)
    own = [run for run in night.runs if run.twin is None and run.retries is None]
    assert len({(run.cell, run.number) for run in own}) == len(own)
    return {(run.cell, run.number, run.seed): (run.word, run.trace) for run in own}


def kill_under_way(folder: Path, more: list[str], after_s: float) -> None:
    """Kill a night some time after it has written something; then none of its runs is there."""

    def written() -> int:
        return sum(path.stat().st_size for path in folder.glob("store/nights/*/night.jsonl"))

    more_than = written() + 400
    under_way = ran(folder, *more)
    until(lambda: written() > more_than or under_way.poll() is not None)
    time.sleep(after_s)
    under_way.kill()
    under_way.wait()
    runs = [int(line) for line in (folder / "ran").read_text().split()] if (folder / "ran").exists() else []
    until(lambda: not any(map(psutil.pid_exists, runs)))


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.campaign)])
def test_a_night_that_is_killed_at_random_moments_makes_the_runs_of_one_left_alone(kills: int, tmp_path: Path) -> None:
    """The night has enough runs for the last kill to meet it before its end."""
    alone, killed, each = tmp_path / "alone", tmp_path / "killed", 6 * kills
    for folder in (alone, killed):
        folder.mkdir()
        (folder / "plan.toml").write_text(KILLED_PLAN.format(each=each, budget=5 * each))
    process, entropy = ran(alone), Random(kills)
    for number in range(kills):
        kill_under_way(killed, ["--resume"] if number else [], entropy.uniform(0.0, 0.4))
    assert ran(killed, "--resume").wait() == 1 == process.wait()
    assert outcome(killed) == outcome(alone) and len(outcome(alone)) == 2 * each


def test_the_same_seed_with_another_digest_is_our_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_remake", lambda sink, order, cores: os.environ.update(TWIN="1"))
    monkeypatch.setattr(
        runner, "run_seed", lambda options, *_: RunResult(options, "valid", trace=os.environ.get("TWIN", "0"))
    )
    first, twin = made(night_of(tmp_path, 5))
    assert (first.word, twin.word, twin.twin, twin.seed) == ("valid", "error", 0, 5)
    assert "gave the trace 1, not 0" in twin.reasons[0] and twin.findings[0].kind == "harness"


def test_a_new_signature_is_told_at_once_and_the_end_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = RunFinding(kind="safety", family="f" * 12, detail="d" * 12, title="a <b>stale</b> read")
    measures = RunMeasures((finding,))
    monkeypatch.setattr(runner, "run_seed", lambda options, *_: RunResult(options, "invalid", measures=measures))
    told = tmp_path / "told"
    notify = (sys.executable, "-c", f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + '\\n')")
    found = made(night_of(tmp_path, 1, 2, notify=notify))
    assert len(found) == 3, "the cell has no seeds left for others"
    assert [run.retries for run in found[:2]] == [None, None] and found[2].retries in (0, 1)
    objects = [json.loads(line) for line in told.read_text().splitlines()]
    assert [each["what"] for each in objects] == ["finding", "end"]
    seed = objects[0]["run"]["seed"]
    assert objects[0]["run"]["findings"][0]["title"] == finding.title and f"--seed {seed}" in objects[0]["command"]
    assert seed in (1, 2), "the one that ended first"


def test_failures_of_one_kind_in_a_third_of_the_cells_are_one_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "run_seed", lambda *_: os._exit(3))
    cells = tuple(
        cell_of(RunOptions("register", nodes=nodes), f"cell {nodes}", least=1, most=1) for nodes in range(3, 9)
    )
    night = night_of(tmp_path, 1, cells=cells)
    found = made(night)
    (incident,) = read_night(night.directory).incidents
    assert len(found) == 6 and len(incident.cells) == len(incident.runs) == 2


def test_a_store_that_is_full_for_a_while_costs_time_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "store") as store:
        ballast = store / "ballast"

        def filling(options: RunOptions, *_: object) -> RunResult:
            if options.seed == 2:
                with suppress(OSError), ballast.open("wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * 512)
            return RunResult(options, "valid", trace=str(options.seed))

        def make_room() -> None:
            until(lambda: "the store takes nothing: No space left" in said[0])
            ballast.unlink()

        said = [""]
        monkeypatch.setattr(loop, "say_at_once", lambda text: said.__setitem__(0, text))
        monkeypatch.setattr(runner, "run_seed", filling)
        night = night_of(store, *range(1, 9), jobs=1)
        with ThreadPoolExecutor() as pool:
            room = pool.submit(make_room)
            found = made(night, repeats=False)
            room.result()
        again = read_night(night.directory)
    assert [(run.seed, run.word) for run in found] == [(seed, "valid") for seed in range(1, 9)]
    assert again.runs == tuple(found) and again.done is not None and not again.damage and not again.begun


def test_a_clock_that_is_set_back_in_the_night_changes_no_word(
    quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Lines are in the order in which they were written, whatever the time in them."""
    at = iter([datetime.now(UTC) - timedelta(minutes=5 + 60 * (number > 4)) for number in range(99)])
    for module in (loop, journal):
        monkeypatch.setattr(module, "now_text", lambda: next(at).isoformat())
    monkeypatch.setattr(runner, "run_seed", lambda options, *_: RunResult(options, "valid"))
    store = tmp_path / "store"
    answer = assay(capsys, "night", plan(tmp_path, '[[cell]]\nworkload = "register"\n'), "--store", store)
    (directory,) = nights_in(store)
    night = read_night(directory)
    assert answer.code == 0 and "4 valid" in answer.out and [run.run for run in night.runs] == [0, 1, 2, 3]
    assert night.runs[-1].at < night.head.begun and not night.damage and night.spent_s >= 0
    (tmp_path / "gate.toml").write_text('new-findings = 0\nmax-age = "36h"\n')
    assert assay(capsys, "gate", tmp_path / "gate.toml", directory).code == 0


@pytest.mark.parametrize(
    ("argv", "limit_s", "expected"),
    [
        (["true"], 5.0, ("passed", 0)),
        (["sh", "-c", "exit 3"], 5.0, ("failed", 3)),
        (["sh", "-c", "kill -9 $$"], 5.0, ("failed", -9)),
        (["sh", "-c", "sleep 60 & sleep 60"], 0.3, ("timeout", -15)),
        (["there is no such program"], 5.0, ("failed", 127)),
    ],
)
def test_a_step_is_any_program_with_a_limit(argv: list[str], limit_s: float, expected: tuple[str, int]) -> None:
    assert run_step(argv, limit_s) == expected
    assert not [each for each in psutil.Process().children(recursive=True) if "sleep" in each.name()]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night_command, "warm", lambda _: None)
    monkeypatch.setattr(runner, "warm", lambda _: None)


def plan(folder: Path, text: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(f"[night]\nbudget = {{ runs = 4 }}\n{text}")
    return path


@pytest.mark.parametrize(
    ("cell", "word", "code", "words"),
    [
        ("", "valid", 0, "4 valid"),
        ("", "invalid", 1, "4 invalid; 1 new"),
        ("", "unknown", 2, "none of 4 runs was adequate"),
        ('expect = "found"', "invalid", 0, "4 invalid"),
        ('expect = "found"\nrate-found = 0.9', "valid", 1, "missed: register, 0 of 4 runs at a rate of 90.0 %"),
        ('expect = "found"', "valid", 2, "its flaw was not found (0 of 4 runs at a rate of 20.0 %"),
        ('[[step]]\nname = "s"\nargv = ["false"]\nlimit = 9', "valid", 1, "The step s failed (code 1)."),
    ],
)
def test_the_exit_code_of_a_night(
    cell: str,
    word: str,
    code: int,
    words: str,
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    tmp_path: Path,
) -> None:
    result = {"valid": (), "unknown": (), "invalid": ("stale-read",)}[word]
    why, vacuous = {"unknown": "vacuous", "invalid": "refuted"}.get(word), word == "unknown"
    monkeypatch.setattr(runner, "run_seed", lambda options, *_: RunResult(options, word, anomalies=result, why=why))
    path = plan(tmp_path, f'[[cell]]\nworkload = "register"\n{cell}\n')
    answer = assay(capsys, "night", path, "--store", tmp_path / "store")
    assert answer.code == code and words in answer.out, answer
    assert assay(capsys, "night", "status", "--store", tmp_path / "store", "--max-age", "36h").code == (
        2 if vacuous else 0
    )
    assert "1 nights with 4 runs" in assay(capsys, "index", "--rebuild", "--store", tmp_path / "store").out
    assert "1 nights with 4 runs" in assay(capsys, "index", "--store", tmp_path / "store").out


def test_status_says_when_nights_have_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "night", "status", "--store", tmp_path, "--max-age", "36h", "--json")
    assert answer.code == 2 and answer.objects[0]["stopped"] and answer.objects[0]["newest"] is None
    assert assay(capsys, "night", "status", "--store", tmp_path).code == 0
    to_come = (datetime.now(UTC) + timedelta(days=365)).isoformat()
    made_nights.write_night(tmp_path, made_nights.night(made_nights.runs(3, at=to_come)))
    assert assay(capsys, "night", "status", "--store", tmp_path, "--max-age", "36h").code == 2, "a clock was wrong"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["night", "nope.toml"], "The plan nope.toml can't be read"),
        (["night", "--resume"], "No night in"),
        (["night", "status", "--max-age", "soon"], "--max-age is 'soon'"),
        (["index", "--store", "nope"], "There is no store nope"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = assay(capsys, *arguments)
    assert answer.code == 254 and words in answer.complaint


def test_a_real_night_measures_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs and the twin of the first, by an interpreter of its own."""
    cell = (
        'workload = "register"\nnemesis = "kill"\ntime-limit = 4\nrate = 40\nnodes = 3\nconcurrency = 4\nseeds = "1..2"'
    )
    path = plan(tmp_path, f"[[cell]]\n{cell}\nmax = 2\n")
    assert assay(capsys, "night", path, "--store", tmp_path / "store").code == 0
    (directory,) = nights_in(tmp_path / "store")
    first, twin, second = sorted(read_night(directory).runs, key=lambda run: run.run)
    assert (twin.twin, twin.seed, twin.trace) == (0, 1, first.trace) and second.trace != first.trace
    assert {"fault", "world", "invariant", "log", "outcome"} <= {point.split("/")[0] for point in first.points}
    assert twin.points == () and len(second.points) < len(first.points)
    assert first.figures.p99_ms and first.figures.rate and first.virtual_s > 4 and first.memory_mb >= 0
    assert (tmp_path / "store" / NIGHTS).is_dir() and loop.NOTIFY_S == 30


def test_large_histories_are_judged_elsewhere_while_the_next_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one job: each run says that Spark has its history, and ends only when the next one has begun."""
    began = tmp_path / "began"
    began.mkdir()

    def judged(options: RunOptions, *more: object) -> RunResult:
        elsewhere = more[-1]
        assert elsewhere == JudgedElsewhere(100, "local[2]")
        (began / str(options.seed)).touch()
        with runner.scratch_in(options.store) as scratch:
            rows: list[tuple[int | None, str | None]] = []
            monkeypatch.setattr(
                judging, "judge_saved_run", lambda _, cores=None, master=None: rows.append((cores, master))
            )
            for count in (100, 101):
                monkeypatch.setattr(runner, "history_rows", lambda _, count=count: count)
                runner._judge(RunDir(scratch), 1, scratch, elsewhere)
            assert rows == [(1, None), (1, "local[2]")]
            if options.seed < 3:
                until(lambda: (began / str(options.seed + 1)).exists())
        return RunResult(options, "valid")

    monkeypatch.setattr(runner, "run_seed", judged)
    night = night_of(tmp_path, 1, 2, 3, jobs=1, spark="local[2]", limits={"local_rows": 100.0})
    assert [run.word for run in made(night, repeats=False)] == ["valid"] * 3
