"""What is kept of runs and histories: they know what to be judged by, and are told where they don't fit together."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
from command_line import assay

from assay.judging import unfit
from harness.history.columns import Purpose
from harness.history.ops import Mop, Op, read, write
from harness.history.rundir import open_run
from harness.history.saved import open_saved
from harness.history.table import write_parquet

RUNS: Final = Path(__file__).parents[1] / "data" / "runs"
EVENTS: Final = (
    Op("invoke", 0, "write", (write(1, 5),), index=0, time=0),
    Op("ok", 0, "write", (write(1, 5),), index=1, time=10),
    Op("invoke", 0, "read", (read(1),), index=2, time=20),
)
GOOD: Final = Op("ok", 0, "read", (Mop("r", 1, 5),), index=3, time=30)
STALE: Final = Op("ok", 0, "read", (read(1),), index=3, time=30)


def saved(path: Path, last: Op, models: tuple[str, ...]) -> Path:
    write_parquet([*EVENTS, last], path, purpose=Purpose("register", models))
    return path


def edited(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(RUNS / name, folder / name))


def test_a_history_is_judged_by_the_models_that_it_was_made_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = saved(tmp_path / "good.parquet", GOOD, ("register", "stats"))
    stale = saved(tmp_path / "stale.parquet", STALE, ("register",))
    answer = assay(capsys, "check", good, stale, "--json")
    several, one = answer.objects
    assert answer.code == 1 and (several["valid"], several["model"]) == (True, "register+stats")
    assert {name: found["valid"] for name, found in several["checkers"].items()} == {"register": True, "stats": True}
    assert (one["valid"], one["model"], list(one["anomalies"])) == (False, "register", ["stale-read"])
    assert assay(capsys, "check", stale, "--model", "stats").code == 0, "what is named comes first"
    copy = tmp_path / "parts"
    assert assay(capsys, "import", good, "--to", copy, "--part-rows", "1").code == 0
    assert open_saved(copy).manifest.purpose == open_saved(good).manifest.purpose
    assert assay(capsys, "check", copy, "--json").objects[0]["checkers"].keys() == {"register", "stats"}
    assert assay(capsys, "generate", "set", "--operations", "200", "--to", tmp_path / "made").code == 0
    assert assay(capsys, "check", tmp_path / "made").out.startswith("VALID")


def test_a_history_that_knows_no_model_asks_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "foreign.edn"
    foreign.write_text("{:process 0 :type :invoke :f :read}\n")
    for path in (RUNS / "valid" / "history.parquet", saved(tmp_path / "bare.parquet", GOOD, ()), foreign):
        answer = assay(capsys, "check", path)
        assert answer.code == 254 and "name what to check it for with --model" in answer.complaint


def test_what_is_whole_of_a_damaged_table_is_unknown_at_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = Op("invoke", 1, "write", (write(1, 6),), index=4, time=40)
    for last, word, code in ((GOOD, "unknown", 2), (STALE, False, 1)):
        path = tmp_path / f"{word}.parquet"
        events = [*EVENTS, last, late, late.complete("ok", index=5, time=50)]
        write_parquet(events, path, rows_per_group=2, purpose=Purpose("register", ("register", "stats")))
        assert assay(capsys, "check", path, "--what-is-whole").code == (0 if code == 2 else 1), "it is not damaged"
        flip(path, pq.read_metadata(path).row_group(1).column(0).data_page_offset)
        assert "is damaged" in assay(capsys, "check", path).complaint
        answer = assay(capsys, "check", path, "--what-is-whole", "--json")
        [found] = answer.objects
        assert (answer.code, found["valid"], found["ops"]) == (code, word, 2)
        told = assay(capsys, "check", path, "--what-is-whole", "--model", "register")
        assert told.code == code and "left out: row group 1, damaged." in told.out
    assert "no saved history" in assay(capsys, "check", RUNS / "unfinished", "--what-is-whole").complaint
    run = copied("containers", tmp_path)
    assert assay(capsys, "check", run, "--what-is-whole", "--json").objects[0]["overall"] == "valid"
    flip(run / "history.parquet")
    assert "older assay" in assay(capsys, "check", run, "--what-is-whole").complaint


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """A module in the working directory, which Python looks through as well; whether anybody ran it."""
    for folder in (tmp_path, tmp_path / "checkers", tmp_path / "workloads"):
        folder.mkdir(exist_ok=True)
        (folder / "snare.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\nWORKLOAD = judge = None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda: (tmp_path / "sprung").exists() or "snare" in sys.modules


NAMES: Final = ("snare", "snare:judge", "./snare.py", "../checkers/snare", "checkers.snare", "os:system")


def test_nothing_that_a_history_names_is_imported(
    trap: Callable[[], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        answer = assay(capsys, "check", saved(tmp_path / "h.parquet", GOOD, ("register", name)))
        assert answer.code == 254 and f"for the model {name!r}, which there is not" in answer.complaint
    assert not trap()


def test_nothing_that_a_run_names_is_imported(
    trap: Callable[[], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied("valid", tmp_path)
    options = json.loads((run / "run.json").read_text())["options"]
    for name in NAMES:
        named = {"checkers": [name], "workload": name, "nemesis": [name], "command": name, "flaw": [name]}
        edited(run / "run.json", options={**options, **named}, database=name, environment=name, workload=name)
        edited(run / "verdict.json", checkers={name: {"valid": True, "model": name}}, judge={"version": name})
        assert f"The run is judged by {name}, which is no model of ours" in assay(capsys, "check", run).complaint
        assert assay(capsys, "cluster", "check", run).code != 0
    assert assay(capsys, "report", run).code == 2
    edited(run / "run.json", options=options, workload="catalog")
    assert assay(capsys, "check", run, "--json").objects[0]["overall"] == "unknown", "it is not as it was sealed"
    assert not trap()


def test_nothing_that_lies_in_a_run_is_imported(tmp_path: Path) -> None:
    """Python itself looks there for `assay`, and for nothing else."""
    for name in ("typer", "msgspec", "harness", "pathlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    command = [sys.executable, "-m", "assay", "check", "--help"]
    assert subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=False).returncode == 0


HARMS: Final[dict[str, Callable[[Path], object]]] = {
    "run.json was changed": lambda run: edited(run / "run.json", rate_hz=1.0),
    "faults.json is missing": lambda run: (run / "faults.json").unlink(),
    "outcome.json is missing": lambda run: (run / "outcome.json").unlink(),
    "seal.json is missing": lambda run: (run / "seal.json").unlink(),
    "history.parquet was changed": lambda run: shutil.copy(RUNS / "quorum" / "history.parquet", run),
    "verdict.json is not what was said of these files": lambda run: edited(run / "verdict.json", overall="invalid"),
    "is damaged: its checksum does not match": lambda run: flip(run / "history.parquet"),
}


def flip(path: Path, at: int = 2000) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


@pytest.mark.parametrize("words", HARMS)
def test_files_that_do_not_fit_together_are_named(words: str, tmp_path: Path) -> None:
    run = copied("valid", tmp_path)
    HARMS[words](run)
    assert any(words in each for each in unfit(open_run(run)))


def test_files_that_fit_are_left_in_peace_whatever_they_say() -> None:
    runs = [folder for folder in RUNS.iterdir() if folder.is_dir()]
    assert [unfit(open_run(run)) for run in runs] == [()] * 5


def test_the_report_of_a_run_whose_files_do_not_fit_together_is_not_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied("invalid", tmp_path)
    assert assay(capsys, "report", run).code == 0
    (run / "faults.json").write_text("[]")
    answer = assay(capsys, "report", run)
    assert answer.code == 2 and "faults.json was changed" in answer.complaint and Path(answer.out.strip()).exists()
