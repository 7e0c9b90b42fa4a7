"""`assay bisect` from the command line: of a repository of a few commits, whose build decides what runs show."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.options import RunOptions
from assay.reproduce.inputs import Inputs, load_inputs, save_inputs
from assay.reproduce.worktrees import TREES, Worktrees, abandoned_trees, tree_folder
from tests.assay.command_line import Answer, assay

SAVED = Path(__file__).parents[2] / "data" / "runs"

FAKE = f"""
import json, os, pathlib, shutil, sys, time
words = sys.argv[1:]
seed, store = int(words[words.index("--seed") + 1]), pathlib.Path(words[words.index("--store") + 1])
state = (pathlib.Path(os.environ["ASSAY_TREE"]) / "built").read_text().strip()
if state.startswith("hangs"):
    pathlib.Path("hanging").write_text(str(os.getpid()))
    time.sleep(600)
word = "invalid" if state == "bad" and seed % 3 else "valid"
shutil.copytree({str(SAVED)!r} + "/" + word, store / "run")
print(json.dumps({{"run": str(store / "run")}}))
sys.exit(int(word == "invalid"))
"""
"""Instead of an assay, since what is tried is how runs are made at commits: a finding in two of three seeds."""

BUILD = 'grep -q broken source && { echo "error: no such header" >&2; exit 3; }; cp source built'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a repository `system` of nine commits, tagged c0 to c8: c5 brought it, and c3 does not build."""
    (tmp_path / "assay").mkdir()
    (tmp_path / "assay" / "__init__.py").touch()
    (tmp_path / "assay" / "cli.py").write_text(FAKE)
    system = tmp_path / "system"
    system.mkdir()
    git(system, "init", "-q")
    for number, state in enumerate(("good",) * 3 + ("broken",) + ("good",) + ("bad",) * 4):
        (system / "source").write_text(f"{state}\n")
        (system / "number").write_text(str(number))
        git(system, "add", ".")
        git(system, "commit", "-q", "-m", f"change {number} <b>")
        git(system, "tag", f"c{number}")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(repository: Path, *words: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    ended = subprocess.run(["git", *named, "-C", repository, *words], capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def bisected(capsys: pytest.CaptureFixture[str], *more: str, run: str = "invalid") -> Answer:
    return assay(capsys, "bisect", SAVED / run, "--repository", "system", "--build", BUILD, *more)


def test_the_commit_is_found_and_the_record_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = bisected(capsys, "--good", "c0", "--bad", "c8", "--json", "--to", "r.json", "--jobs", "2")
    (found,) = told.objects
    wanted = git(folder / "system", "rev-parse", "c5")
    assert told.code == 1 and [each["commit"] for each in found["suspects"]] == [wanted] and found["decided"]
    assert next(each for each in found["commits"] if each["commit"] == wanted)["subject"] == "change 5 <b>"
    broken = git(folder / "system", "rev-parse", "c3")
    assert all(each == broken and "no such header (exit code 3)" in why for each, why in found["left_out"].items())
    record = (folder / "r.json").read_bytes()
    assert git(folder / "system", "worktree", "list").count("\n") == 0, "no worktree is left"
    assert list((folder / "scratch").iterdir()) == []
    shutil.rmtree(folder / "assay")  # no run can be made any more, and none is asked for
    again = bisected(capsys, "--good", "c0", "--bad", "c8", "--to", "r.json")
    assert again.code == 1 and again.out.startswith(f"FOUND: {wanted[:12]} brought it, 9")
    assert (folder / "r.json").read_bytes() == record


@pytest.mark.parametrize(
    ("more", "run", "word"),
    [
        (
            ("--good", "c8", "--bad", "c0"),
            "invalid",
            "c8 can't be good and c0 bad: the commits are in the wrong order.",
        ),
        (("--good", "c0", "--bad", "c0"), "invalid", "c0 and c0 are the same commit"),
        (("--good", "c0", "--bad", "side"), "invalid", "c0 can't be good and side bad: it is not before that one."),
        (("--good", "--all", "--bad", "c8"), "invalid", "There is no commit --all in "),
        (("--good", "c9", "--bad", "c8"), "invalid", "There is no commit c9 in "),
        (("--good", "c0", "--bad", "c8"), "valid", "is valid, so there is nothing to bisect."),
        (("--good", "c0", "--bad", "c8"), "gone", "is no run directory."),
        (("--good", "c0", "--bad", "c8"), "unfinished", "did not end"),
        (("--good", "c0", "--bad", "c8", "--to", "no/such.json"), "invalid", "There is no directory no for the record"),
        (("--good", "c0", "--bad", "c8", "--to", "taken.json"), "invalid", "taken.json is no record of a bisection"),
        (("--good", "c0", "--bad", "c8", "--to", "other.json"), "invalid", "other.json is of another bisection"),
        (("--good", "c0", "--bad", "c8", "--budget", "soon"), "invalid", "--budget is 'soon'"),
        (("--good", "c0", "--bad", "c8", "--repository", "gone"), "invalid", "There is no directory gone."),
    ],
)
def test_bad_input_is_one_sentence(
    more: tuple[str, ...], run: str, word: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(folder / "system", "checkout", "-q", "--orphan", "side")
    git(folder / "system", "commit", "-q", "-m", "of another root")
    (folder / "taken.json").write_text("{}")
    other = {"version": 1, "family": "f", "good": "a", "bad": "b", "build": None}
    (folder / "other.json").write_text(json.dumps(other))
    told = bisected(capsys, *more, run=run)
    assert (told.code, told.out) == (254, "") and word in told.complaint


def test_a_tree_with_changes_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "system" / "source").write_text("changed\n")
    told = bisected(capsys, "--good", "c0", "--bad", "c8")
    assert told.code == 254 and "has changes that are of no commit" in told.complaint
    told = assay(capsys, "bisect", SAVED / "invalid", "--good", "c0", "--repository", "system")
    assert told.code == 254 and "say with --build how a commit is built" in told.complaint


def test_the_end_of_the_budget_leaves_what_is_known(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = bisected(capsys, "--good", "c0", "--bad", "c8", "--budget", "0.01", "--to", "r.json")
    assert told.code == 2 and told.out.startswith("UNKNOWN: one of 8 commits with 95 %")
    assert "Stopped, or the --budget was spent; the same command goes on from here." in told.out


def test_ctrl_c_leaves_what_is_known_and_no_process(folder: Path) -> None:
    """Both commits after the good one hang; nothing that was started goes on."""
    git(folder / "system", "checkout", "-q", "c0")
    for number in range(2):
        (folder / "system" / "source").write_text("hangs\n" * (number + 1))
        git(folder / "system", "commit", "-q", "-am", "hangs")
    command = [sys.executable, "-c", "import sys; sys.path.pop(0); from assay.cli import main; main()"]
    words = ["bisect", SAVED / "invalid", "--repository", "system", "--build", BUILD, "--to", "r.json"]
    asked = subprocess.Popen(
        [*command, *words, "--good", "c0", "--runs", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while not (folder / "hanging").exists() and asked.poll() is None:
            time.sleep(0.1)
        time.sleep(0.5)  # until its name is written whole
        asked.send_signal(signal.SIGINT)
        out, _ = asked.communicate(timeout=60)
    finally:
        asked.kill()
    assert asked.returncode == 2
    assert "the same command goes on from here" in out
    assert not Path("/proc", (folder / "hanging").read_text()).exists()
    assert git(folder / "system", "worktree", "list").count("\n") == 0


def test_what_a_killed_search_left_is_named_and_removed(folder: Path) -> None:
    """The folder of another that goes on stays."""
    left = folder / "scratch" / f"{TREES}left"
    left.mkdir()
    git(folder / "system", "worktree", "add", "-q", "--detach", str(left / "tree"), "c1")
    with tree_folder() as held:
        assert abandoned_trees() == (left,)
        assert abandoned_trees(remove=True) == (left,)
        assert held.exists() and not left.exists()
    assert git(folder / "system", "worktree", "list").count("\n") == 0
    assert abandoned_trees() == ()


def test_a_run_by_inputs_is_made_with_other_chance_for_each_seed(folder: Path) -> None:
    """Its own seed has what was recorded, from wherever it is made."""
    whole = Inputs(RunOptions("register", seed=4), decisions={"clock/t1": [0.5]}, key="7")
    save_inputs(whole, folder / "inputs")
    options = replace(whole.options, inputs=Path("inputs"))
    with Worktrees(folder / "system", None, options, "family", 1, 0.0) as trees:
        asked = [trees.options_for(seed, folder / "store") for seed in (4, 5, 6)]
        assert [str(each.inputs).startswith("/") for each in asked] == [True] * 3
        own, *others = (load_inputs(each.inputs) for each in asked if each.inputs is not None)
    assert own == whole
    assert others == [replace(whole, decisions={}, key=f"seed-{seed}") for seed in (5, 6)]
