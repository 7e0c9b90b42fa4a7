"""All runs of a store judged again, in one table: the word then and now, and what changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest
from command_line import assay

from assay import again
from harness.history.rundir import open_run
from harness.verdict.run_seal import sealed_verdict

RUNS: Final = Path(__file__).parents[1] / "data" / "runs"


def added(store: Path, name: str, called: str) -> Path:
    return Path(shutil.copytree(RUNS / name, store / "register" / called))


def say(run: Path, **words: object) -> None:
    """Have the run's own verdict say something else, as if an earlier version had said it."""
    rundir = open_run(run)
    told = {name: value for name, value in rundir.read_json(rundir.verdict_json).items() if name != "seal"}
    rundir.write_json(rundir.verdict_json, sealed_verdict(rundir, {**told, **words}))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Runs of every kind, in the order of their names; two of the last three can't be judged."""
    store = tmp_path / "store"
    added(store, "containers", "1-valid")
    say(added(store, "containers", "2-vacuous"), overall="unknown", why="vacuous", judge={"version": "0.0.9"})
    say(added(store, "invalid", "3-unseen"), overall="valid", checkers={"register": {"counts": {"lost": 2}}})
    unlike = added(store, "containers", "4-unlike") / "verdict.json"
    unlike.write_text(unlike.read_text().replace('"valid"', '"invalid"', 1))
    added(store, "unfinished", "5-unfinished")
    (added(store, "containers", "6-nameless") / "run.json").unlink()
    (added(store, "containers", "7-damaged") / "history.parquet").write_bytes(b"PAR1")
    (added(store, "containers", "8-no-verdict") / "verdict.json").write_text('"valid"')
    (store / "latest").symlink_to("register/1-valid")
    (store / "register" / "latest").symlink_to("1-valid")
    added(store / ".seed-1", "invalid", "under way")
    (store / "notes").mkdir()
    return store


def test_a_store_is_one_table_of_words_then_and_now(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "check", store, "--again", "--json")
    [found] = answer.objects
    rows: dict[str, Any] = {Path(row["run"]).name[2:]: row for row in found["runs"]}
    assert answer.code == 1 and {name: row["now"] and row["now"]["overall"] for name, row in rows.items()} == {
        **dict.fromkeys(("valid", "vacuous", "unlike", "no-verdict"), "valid"),
        "unseen": "invalid",
        "unfinished": "unknown",
        "nameless": None,
        "damaged": None,
    }
    assert {name: row["changed"] for name, row in rows.items() if row["changed"]} == {
        "vacuous": ["unknown then, valid now"],
        "unseen": [
            "valid then, invalid now",
            "lost: 2 then, 0 now",
            *(f"{name}: 0 then, {count} now" for name, count in rows["unseen"]["now"]["anomalies"].items()),
        ],
        "unlike": ["what was said then is not of these files"],
        "no-verdict": [f"{store / 'register' / '8-no-verdict' / 'verdict.json'} is not what a run saves."],
    }
    assert rows["unseen"]["now"]["anomalies"]["stale-read"] == 1 and rows["unfinished"]["then"] is None
    assert rows["vacuous"]["then"]["judge"] == "0.0.9" and rows["vacuous"]["now"]["judge"]
    counts = {"valid": 4, "invalid": 1, "unknown": 1, "unreadable": 2, "changed": 4}
    assert {name: found[name] for name in counts} == counts
    assert "is not the directory of a run" in rows["nameless"]["error"] and "Parquet" in rows["damaged"]["error"]


def test_the_table_is_for_people_and_its_exit_code_is_the_worst_word_now(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store / "register"
    shutil.rmtree(folder / "3-unseen")
    answer = assay(capsys, "check", store, "--again")
    head, *lines, total = answer.out.splitlines()
    assert answer.code == 254 and head.split() == ["run", "then", "now", "anomalies", "changed"] and len(lines) == 7
    assert "unknown (vacuous) by 0.0.9  valid" in lines[1] and "unreadable" in lines[-2]
    assert total == "7 runs: 4 valid, 1 unknown, 2 unreadable; 3 judged otherwise than then"
    for name in ("6-nameless", "7-damaged"):
        shutil.rmtree(folder / name)
    (store.parent / "elsewhere").symlink_to(folder)
    assert assay(capsys, "check", store.parent / "elsewhere", "--again").code == 2
    assert assay(capsys, "check", folder / "1-valid", folder / "2-vacuous", "--again").code == 0
    monkeypatch.setattr(again, "conclude_run", lambda rundir, checkers: 1 / 0)
    answer = assay(capsys, "check", folder / "1-valid", "--again")
    assert answer.code == 255 and "a bug of the harness: ZeroDivisionError" in answer.out


def test_what_can_not_be_judged_again_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {
        ("check", tmp_path, "--again"): "There is no run in",
        ("check", tmp_path / "none", "--again"): "There is no store",
        ("check", tmp_path, "--again", "--model", "register"): "leave --model out",
        ("check", tmp_path, "--again", "--engine", "abacus"): "There is no run in",
        ("check", "--again"): "Name a run directory",
    }
    for arguments, words in asked.items():
        answer = assay(capsys, *arguments)
        assert answer.code == 254 and words in answer.complaint
