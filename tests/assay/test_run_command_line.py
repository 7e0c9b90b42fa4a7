"""`assay run`, `report` and `list` as a whole: a short simulated run, its files, mistakes, and a harness killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import assay

from assay.options import RunOptions
from assay.run_command import fault_words
from harness.history.rundir import RunDir, open_run
from harness.verdict.facts import RunAccount
from harness.verdict.run_seal import broken_seal, is_verdict_of
from tests.mounts import make_read_only, small_disk

SHORT = ("--time-limit", "5", "--rate", "40", "--concurrency", "4", "--nodes", "3", "--seed", "7")


def test_a_short_run_from_start_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "run", "register", *SHORT, "--store", tmp_path / "store", "--json")
    assert answer.code == 0, answer
    assert answer.err.splitlines()[0] == "seed 7"
    (found,) = answer.objects
    assert (found["valid"], found["overall"], found["model"], found["seed"]) == (True, "valid", "register", 7)
    assert found["ops"] > 100 and len(found["trace"]) >= 32 and found["why"] is None
    run = open_run(Path(found["run"]))
    says_what_it_is(run, found)
    assert (tmp_path / "store" / "latest").resolve() == run.path
    for path in (run.run_json, run.history_parquet, run.verdict_json, run.faults_json, run.report_html):
        assert path.stat().st_size > 0, path
    checked = assay(capsys, "check", run.path, "--json")
    assert checked.code == 0 and checked.objects[0]["ops"] == found["ops"]
    assert assay(capsys, "check", run.path, "--model", "logs", "--json").objects[0]["valid"] is not False
    run.report_html.unlink()
    rebuilt = assay(capsys, "report", run.path)
    assert rebuilt.code == 0 and Path(rebuilt.out.strip()) == run.report_html
    assert run.report_html.exists()


def says_what_it_is(run: RunDir, printed: dict[str, Any]) -> None:
    """In `outcome.json` what is sealed before the verdict, in `verdict.json` what follows from it, in `--json` both."""
    outcome, verdict = run.read_json(run.outcome_json), run.read_json(run.verdict_json)
    account = {name: outcome[name] for name in RunAccount.__struct_fields__}
    assert {name: printed[name] for name in account} == account
    assert account["version"] and account["commit"] and account["changed"] in (True, False)
    assert (account["workload"], account["environment"]) == ("register", "sim")
    assert account["faults"] == {"asked": [], "seen": [], "skipped": []}
    assert datetime.fromisoformat(account["started"]).utcoffset() == timedelta(0) and account["duration_s"] > 5
    saved_too = ("overall", "why", "safety", "adequacy", "liveness", "harness", "trace")
    assert {name: printed[name] for name in saved_too} == {name: verdict[name] for name in saved_too}
    assert verdict["judge"] == {name: account[name] for name in ("version", "commit", "changed")}
    assert is_verdict_of(run, verdict) and not broken_seal(run)
    assert printed["report"] == str(run.report_html)


@pytest.mark.parametrize("nemesis", ["clock-jump(for=30s)", "kill(every=3s,for=4s)", "failpoint(points=nowhere)"])
def test_what_can_t_be_run_is_said_in_one_sentence_and_nothing_else(
    nemesis: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = assay(capsys, "run", "register", *SHORT, "--nemesis", nemesis, "--store", tmp_path / "store")
    assert answer.code == 254 and not answer.out
    (line,) = answer.err.splitlines()
    assert line.startswith("assay: ")


def test_the_same_seed_is_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run", "register", *SHORT, "--time-limit", "2", "--json", "--store")
    first, again = (assay(capsys, *arguments, tmp_path / name).objects[0] for name in ("a", "b"))
    assert first["trace"] == again["trace"] and first["ops"] == again["ops"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["registre"], "no workload 'registre'"),
        (["register", "--on", "mars"], "no environment 'mars'"),
        (["register", "--nemesis", "gremlins"], "no nemesis 'gremlins'"),
        (["register", "--flaw", "typo"], "no flaw 'typo'"),
        (["register", "--time-limit", "0"], "--time-limit is 0"),
        (["register", "--time-limit", "nan"], "--time-limit is nan"),
        (["register", "--time-limit", "soon"], "'--time-limit'"),
        (["register", "--rate", "0"], "--rate is 0"),
        (["register", "--nemesis", ""], "--nemesis names no fault"),
        (["register", "--nemesis", ","], "--nemesis names no fault"),
        (["register", "--nemesis", "kill", "--nemesis", ""], "--nemesis names no fault"),
        (["register", "--world", ",,"], "--world names no key"),
        (["register", "--world", ""], "--world names no key"),
        (["register", "--world", "loss=0.1", "--world", "loss=0.2"], "--world tells loss twice"),
        (["register", "--flaw", ""], "--flaw names no flaw"),
        (["register", "--floor", "speed=1"], "no floor 'speed'"),
        (["register", "--floor", "keys=2"], "The floor keys takes a number from 0 to 1"),
        (["register", "--rate", "-5"], "--rate is -5"),
        (["register", "--concurrency", "0"], "--concurrency is 0"),
        (["register", "--masters", "2"], "an odd number"),
        (["register", "--nodes", "1"], "--nodes is 1"),
        (["register", "--seed", "-1"], "--seed is -1"),
        (["register", "--op-timeout", "0"], "--op-timeout is 0"),
        (["register", "--recovery-budget", "-1"], "--recovery-budget is -1"),
        (["register", "-o", "keys"], "KEY=VALUE"),
        (["register", "-o", "keys=1", "-o", "keys=2"], "-o gives keys twice, as '1' and as '2'."),
        (["register", "--floor", "rate=0.1", "--floor", "rate=0.2"], "--floor gives rate twice"),
        (["register", "--nemesis", "kill(every=3s,every=5s)"], "every of the nemesis 'kill' is given twice."),
        (["register", "-o", "no-such-option=1"], "no-such-option"),
        ([], "Name a workload"),
    ],
)
def test_mistakes_get_one_sentence_and_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    store = tmp_path / "store"
    answer = assay(capsys, "run", *arguments, "--store", store)
    assert answer.code == 254
    assert words in answer.complaint
    assert answer.out == "" and not store.exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", "-1"), ("--keys", "99999999999999999999"), ("--operations", "0"), ("--info", "2")]
)
def test_a_history_that_can_t_be_made_is_refused(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = assay(capsys, "generate", "register", "--to", tmp_path / "made", option, value)
    assert answer.code == 254 and option in answer.complaint
    assert list(tmp_path.iterdir()) == []


def test_lists_may_be_given_in_several_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser took the last, so that the command which a run of two flaws printed ran one of them."""
    asked: list[RunOptions] = []

    def kept(options: RunOptions, *_: object) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr("assay.run_command.run_or_runs", kept)
    told = ("--flaw", "raft-ack-before-fsync", "--flaw", "wipe-keeps-id", "--nemesis", "kill(for=3s,every=6s)")
    told += ("--nemesis", "partition", "--world", "loss=0.1", "--world", "severity=mild")
    assay(capsys, "run", "register", "--seed", "1", *told)
    assay(capsys, *shlex.split(asked[0].command())[1:])
    assert asked[0].flaw == ("raft-ack-before-fsync", "wipe-keeps-id")
    assert asked[0].nemesis == ("kill(for=3s,every=6s)", "partition") and asked[0].world == "loss=0.1,severity=mild"
    assert asked[1] == asked[0]


def test_a_store_that_can_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    answer = assay(capsys, "run", "register", *SHORT, "--store", blocked / "store")
    assert answer.code == 254 and "can't be written" in answer.complaint


def test_a_store_whose_name_can_not_be_saved(capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "run", "register", *SHORT, "--store", "/tmp/\udcff")
    assert answer.code == 254 and "is not UTF-8" in answer.complaint


def test_a_run_on_a_read_only_mount(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is judged where it lies; what would be written there can be had elsewhere, and that is said."""
    with small_disk(tmp_path / "mount", "64m") as store:
        run = Path(assay(capsys, "run", "register", *SHORT, "--store", store, "--json").objects[0]["run"])
        before = sorted(run.rglob("*"))
        make_read_only(store)
        assert assay(capsys, "check", run).code == 0
        for verb, elsewhere in (("report", tmp_path / "report.html"), ("export", tmp_path / "history.edn")):
            refused = assay(capsys, verb, run)
            assert refused.code == 254 and "Read-only file system; name another file with --to" in refused.complaint
            assert assay(capsys, verb, run, "--to", elsewhere).code == 0 and elsewhere.stat().st_size > 0
        assert sorted(run.rglob("*")) == before


def test_reports_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "not the directory of a run" in assay(capsys, "report", tmp_path).complaint
    assert "no list of 'animals'" in assay(capsys, "list", "animals").complaint
    for what, name in (("workloads", "register"), ("nemeses", "kill"), ("flaws", "raft-"), ("models", "set-full")):
        answer = assay(capsys, "list", what)
        assert answer.code == 0 and f"\n{name}" in f"\n{answer.out}"
    assert assay(capsys, "frobnicate").code == 254


def started(store: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "assay.cli", "run", "register", "--time-limit", "86400", "--seed", "3", *more]
    return subprocess.Popen(
        [*command, "--store", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_journal(runner: subprocess.Popen[str], store: Path) -> Path:
    """The run's directory, once its journal has some sealed blocks."""
    while runner.poll() is None:
        for journal in store.glob("register/*/history.journal"):
            if journal.stat().st_size > 100_000:
                return journal.parent.resolve()
        time.sleep(0.05)
    raise AssertionError(runner.communicate()[1])


def test_a_harness_killed_in_mid_run_leaves_a_run_that_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = started(tmp_path / "store")
    run = wait_for_journal(runner, tmp_path / "store")
    runner.send_signal(signal.SIGKILL)
    runner.communicate()
    assert runner.returncode == -signal.SIGKILL and not (run / "verdict.json").exists()
    answer = assay(capsys, "check", run, "--json")
    (found,) = answer.objects
    assert found["ops"] > 500
    assert found["valid"] == found["overall"] == "unknown"
    assert any("ended before the run did" in reason for reason in found["reasons"])
    named = assay(capsys, "check", run, "--model", "register", "--json").objects[0]
    assert named["valid"] == "unknown" and "sealed prefix" in json.dumps(named["details"])
    answer = assay(capsys, "check", run)
    assert answer.code == 2 and answer.out.startswith("UNKNOWN: ")
    assert assay(capsys, "report", run).code == 0


def test_what_was_found_until_the_terminal_was_closed_is_told(tmp_path: Path) -> None:
    """SIGHUP reaches every process of the group, also the one that is to judge."""
    runner = started(tmp_path / "store", "--nemesis", "power-cut", "--flaw", "raft-ack-before-fsync")
    run = open_run(wait_for_journal(runner, tmp_path / "store"))
    while run.journal.stat().st_size < 600_000:
        time.sleep(0.1)
    os.killpg(runner.pid, signal.SIGHUP)
    out, err = runner.communicate()
    assert runner.returncode == 1, (out, err)
    assert out.startswith("INVALID: ") and "stale-read" in out
    verdict = json.loads(run.verdict_json.read_text())
    assert verdict["safety"]["answer"] is False and run.report_html.exists()


@pytest.mark.parametrize(
    ("skipped", "words"),
    [
        ({}, ""),
        ({"skipped": 2, "skipped_because": ["nobody led", "no majority"]}, ", 2 skipped (nobody led; no majority)"),
    ],
)
def test_the_banner_tells_skipped_faults_and_why(skipped: dict[str, Any], words: str) -> None:
    counts = {"requested": 3, "observed": 1, "recovered": 1, **skipped}
    assert fault_words(counts) == f"3 requested, 1 observed in effect, 1 observed healed{words}"
