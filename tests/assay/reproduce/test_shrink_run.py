"""`assay shrink RUN`: a run becomes small, keeps its family, goes on where it was stopped, refuses in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from assay.options import RunOptions
from assay.reproduce.inputs import Inputs, load_inputs
from assay.reproduce.reduction import Pass
from assay.reproduce.saved_run import saved_run
from assay.reproduce.shrink_run import KEYS, PASSES
from assay.runner import Keep, RunOrder, RunResult, run_orders
from tests.assay.command_line import assay

PANIC = RunOptions(
    "catalog", nemesis=("master-partition",), time_limit=4.0, seed=1, flaw=("abort-on-failed-replication",)
)
STALE = RunOptions("register", nemesis=("unheard-commit",), time_limit=12.0, seed=1, flaw=("read-before-own-term",))


def made(options: RunOptions) -> RunResult:
    ((_, result),) = run_orders([RunOrder(options, Keep.ALL, measured=True)], 1)
    return result


@pytest.fixture(scope="module")
def refuted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = made(replace(PANIC, store=tmp_path_factory.mktemp("store")))
    assert result.overall == "invalid" and result.run is not None
    return result.run


@pytest.mark.parametrize("passes", [PASSES[:1], pytest.param(PASSES, marks=pytest.mark.campaign)])
def test_a_run_becomes_small_and_breaks_as_before(
    passes: tuple[Pass[Inputs], ...],
    refuted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the coarsest passes, which end by themselves; with all of them in `make torture`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.reproduce.shrink_run.PASSES", passes)
    monkeypatch.setattr("assay.reproduce.shrink_run.KEYS", KEYS[: 1 if len(passes) < 3 else None])
    told = assay(capsys, "shrink", refuted, "--to", "small", "--json")
    assert told.code == 1
    (small,) = told.objects
    assert small["after"]["seconds"] < small["before"]["seconds"]
    assert small["after"]["operations"] < (small["before"]["operations"] if len(passes) < 3 else 41)
    assert small["after"]["faults"] <= (2 if len(passes) < 3 else 1)
    assert small["necessary"]
    assert small["after"]["decisions"] == 0 and small["digest"]
    assert sum(path.stat().st_size for path in Path("small/inputs").iterdir()) < 100_000
    again = made(replace(load_inputs(Path("small/inputs")).options, inputs=Path("small/inputs"), store=tmp_path))
    (family,) = {each.family for each in again.measures.findings if each.kind != "harness"}
    assert family == saved_run(refuted).refuted("shrink").family

    answers = Path("small/answers.jsonl").read_bytes()
    resumed = assay(capsys, "shrink", refuted, "--to", "small", "--json").objects[0]
    assert Path("small/answers.jsonl").read_bytes() == answers
    assert (resumed["after"], resumed["runs"]) == (small["after"], 2 if len(passes) < 3 else 5)
    assert "is there already" in assay(capsys, "shrink", refuted, "--to", ".").complaint


@pytest.mark.parametrize("edit", ["valid", "unfinished", "docker", "other"])
def test_what_can_not_be_shrunk_is_one_sentence(
    edit: str, refuted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "verdict.json", "outcome.json", "faults.json"):
        (run / name).write_bytes((refuted / name).read_bytes())
    verdict, record = (msgspec.json.decode((run / name).read_bytes()) for name in ("verdict.json", "run.json"))
    if edit == "unfinished":
        (run / "verdict.json").unlink()
    elif edit == "valid":
        verdict |= {"overall": "valid", "checkers": {}, "liveness": {"answer": True}}
    elif edit == "docker":
        record["options"]["on"] = "docker"
    else:
        record["options"]["seed"] = 12345
        record["options"]["flaw"] = []
    if edit != "unfinished":
        (run / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    (run / "run.json").write_bytes(msgspec.json.encode(record))
    says = {
        "valid": "is valid, so there is nothing to shrink",
        "unfinished": "did not end",
        "docker": "runs in real time would slow each other down",
        "other": "made again is another run",
    }[edit]
    told = assay(capsys, "shrink", run, "--to", tmp_path / "small", "--jobs", "2")
    assert (told.code, says in told.complaint) == (254, True)
    assert not (tmp_path / "small").exists()


@pytest.mark.campaign
def test_two_flaws_at_once_shrink_each_to_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one family each, in runs in which both flaws are there: neither search slides into the other."""
    monkeypatch.chdir(tmp_path)
    flaws = (*STALE.flaw, "voters-ignore-lease")
    families = set()
    for number, seed in enumerate((1, 2, 3, 4)):
        result = made(replace(STALE, flaw=flaws, seed=seed, nemesis=("unheard-commit", "stale-lease"), time_limit=20.0))
        if result.run is None or result.overall != "invalid":
            continue
        wanted = saved_run(result.run).refuted("shrink")
        told = assay(capsys, "shrink", result.run, "--to", f"small-{number}", "--budget", "3m", "--json").objects[0]
        again = load_inputs(Path(f"small-{number}/inputs"))
        folder = Path(f"small-{number}/inputs")
        found = made(replace(again.options, inputs=folder, store=tmp_path)).measures.findings
        assert wanted.family in {each.family for each in found}
        assert wanted.family not in told["others"]
        families.add(wanted.family)
    assert families
