"""A saved run is edited, cut, robbed of files, or mixed with another: judged again it is never valid."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.check_command import whole_or_unknown
from assay.cluster_command import saved_report
from harness.errors import UserError
from harness.history.rundir import RunDir, open_run
from harness.verdict.facts import conclude_run
from harness.verdict.run_seal import is_verdict_of, seal_run, sealed_verdict
from harness.verdict.run_verdict import saved_form
from tests.harness.run.memory_runs import KillNemesis, Setup
from tests.harness.verdict.test_invariants_verdict import WatchedMemory

VALID = {"values": {"valid": True}}
FILES = ("run.json", "history.parquet", "faults.json", "invariants.json", "outcome.json", "seal.json")
ADDED = ("leaders.json", "cluster.json")


def valid_run(folder: Path, seed: int = 7) -> RunDir:
    setup = Setup(folder, seed)
    database = WatchedMemory(setup.environment.clock)
    outcome = setup.run(database=database, nemesis=KillNemesis(database))
    assert outcome.verdict.overall == "valid", outcome.verdict.reasons
    return outcome.rundir


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return valid_run(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return valid_run(tmp_path_factory.mktemp("other"), seed=8)


@pytest.fixture
def run(saved: RunDir, tmp_path: Path) -> RunDir:
    return open_run(Path(shutil.copytree(saved.path, tmp_path / "run")))


def sealed_anew(run: RunDir, checkers: dict[str, object] = VALID) -> None:
    """The run's files as they are now are one whole run, judged."""
    seal_run(run)
    run.write_json(run.verdict_json, sealed_verdict(run, saved_form(conclude_run(run, checkers))))


def judged(run: RunDir) -> str:
    """The word for a run whose checkers find nothing: only the files decide."""
    try:
        return conclude_run(run, VALID).overall
    except UserError:
        return "refused"


def test_a_run_that_was_copied_whole_is_still_valid(run: RunDir) -> None:
    assert judged(run) == "valid"
    assert {path.name for path in run.path.iterdir()} >= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_lost(run: RunDir, name: str) -> None:
    if name == "history.parquet":
        (run.path / "history.journal").rename(run.path / "kept")
        (run.path / "kept").rename(run.path / "history.journal")
    (run.path / name).unlink()
    if name == "run.json":
        assert judged(run) == "refused"
    else:
        assert judged(run) in ("unknown", "refused")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_a_file_that_was_cut(run: RunDir, name: str, share: float) -> None:
    path = run.path / name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    assert judged(run) in ("unknown", "refused")


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_run(run: RunDir, other: RunDir, name: str) -> None:
    same = (run.path / name).read_bytes() == (other.path / name).read_bytes()
    shutil.copy(other.path / name, run.path / name)
    assert judged(run) == ("valid" if same else "unknown")
    assert same == (name == "invariants.json")


@pytest.mark.parametrize("name", ADDED)
def test_a_file_that_was_added(run: RunDir, name: str) -> None:
    (run.path / name).write_text("[]")
    assert judged(run) == "unknown"


def emptied(value: object) -> object:
    return {} if isinstance(value, dict) else []


EDITS: dict[str, tuple[str, Callable[[dict], None]]] = {
    "no fault was asked for": ("run.json", lambda run: run.update(requested_faults=[])),
    "no kind has to succeed": ("run.json", lambda run: run.update(fs=[])),
    "floors on the ground": ("run.json", lambda run: run["floors"].update(rate=0.0, keys=0.0)),
    "no final reads": ("run.json", lambda run: run.update(final_reads=False)),
    "nothing was watched": ("run.json", lambda run: run.update(watched=False)),
    "another budget": ("run.json", lambda run: run.update(recovery_budget_s=1e6)),
    "recovered in no time": ("outcome.json", lambda outcome: outcome["recovery"].update(seconds=0.0)),
    "a longer load": ("outcome.json", lambda outcome: outcome.update(load_s=1.0)),
    "an invariant more": ("invariants.json", lambda record: record["checked"].update(more=1)),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_that_was_edited(run: RunDir, edit: str) -> None:
    name, change = EDITS[edit]
    value = json.loads((run.path / name).read_text())
    change(value)
    (run.path / name).write_text(json.dumps(value))
    verdict = conclude_run(run, VALID)
    assert verdict.overall == "unknown"
    assert verdict.harness.reasons == (f"the saved files are not those of one whole run: {name} was changed",)


def test_faults_that_were_written_in(run: RunDir) -> None:
    faults = json.loads(run.faults_json.read_text())
    faults[0]["spans"] = [[faults[0]["begun_ns"], faults[0]["healed_ns"]]]
    run.faults_json.write_text(json.dumps([*faults, {**faults[0], "kind": "pause"}]))
    assert judged(run) == "unknown"


def test_the_files_of_a_run_that_ended_early_are_told_as_before(run: RunDir) -> None:
    run.outcome_json.unlink()
    run.seal_json.unlink()
    verdict = conclude_run(run, VALID)
    assert verdict.overall == "unknown" and "the harness ended before the run did" in verdict.harness.reasons[0]


def test_by_a_named_model_an_edited_run_is_not_valid_either(run: RunDir) -> None:
    found = {"valid": True, "model": "register"}
    assert whole_or_unknown(run.path, found) == found
    value = json.loads(run.run_json.read_text())
    value["floors"]["rate"] = 0.0
    run.run_json.write_text(json.dumps(value))
    assert whole_or_unknown(run.path, found)["valid"] == "unknown"
    assert whole_or_unknown(run.path, {**found, "valid": False})["valid"] is False
    assert whole_or_unknown(run.history_parquet, found) == found, "a history by itself has a seal of its own"


@pytest.mark.parametrize("change", ["refuted", "edited", "gone"])
def test_by_a_named_model_a_run_that_its_own_models_refute_is_not_valid_either(run: RunDir, change: str) -> None:
    """A run whose register was refuted was valid by `--model stats`, with exit code 0."""
    if change == "refuted":
        sealed_anew(run, {"values": {"valid": False, "anomalies": {"stale-read": ["..."]}}})
    elif change == "edited":
        run.write_json(run.verdict_json, {**json.loads(run.verdict_json.read_text()), "reasons": ["none"]})
    else:
        run.verdict_json.unlink()
    found = whole_or_unknown(run.path, {"valid": True, "model": "stats"})
    assert found["valid"] == "unknown"
    assert ("By its own models the run is invalid" in found["reason"]) is (change == "refuted"), found["reason"]


@pytest.mark.parametrize("change", ["a line is gone", "a log is gone", "a log is another's"])
def test_logs_that_were_edited_are_not_judged_valid(run: RunDir, change: str) -> None:
    """A panic could be taken out of a saved log, or a node's log be taken away, and the model `logs` was valid."""
    folder, found = run.nodes / "n1", {"valid": True, "model": "logs"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "node.log").write_text("ready\nPANIC: it is over\n")
    (folder / "other.log").write_text("ready\n")
    sealed_anew(run)
    assert whole_or_unknown(run.path, found) == whole_or_unknown(run.history_parquet, found) == found
    if change == "a line is gone":
        (folder / "node.log").write_text("ready\n")
    elif change == "a log is gone":
        (folder / "node.log").unlink()
    else:
        shutil.copyfile(folder / "other.log", folder / "node.log")
    for path in (run.path, run.history_parquet):
        assert whole_or_unknown(path, found)["reason"].endswith("nodes was changed.")
    assert judged(run) == "valid", "logs are no part of what the run's own checkers judge"
    assert whole_or_unknown(run.path, {"valid": True, "model": "register"})["valid"] is True


def test_by_a_named_model_a_vacuous_run_is_not_valid_either(run: RunDir) -> None:
    """`assay check RUN` said unknown, and with `--model` the same history was valid."""
    value = json.loads(run.run_json.read_text())
    value["requested_faults"].append("clock-jump")
    run.run_json.write_text(json.dumps(value))
    seal_run(run)
    found = whole_or_unknown(run.path, {"valid": True, "model": "register"})
    assert found["valid"] == "unknown" and "the fault clock-jump was never observed in effect" in found["reason"]


def test_a_verdict_is_one_on_its_own_files_word_for_word(run: RunDir, other: RunDir) -> None:
    saved = json.loads(run.verdict_json.read_text())
    assert is_verdict_of(run, saved)
    assert not is_verdict_of(other, saved), "it is the verdict on another run"
    assert not is_verdict_of(run, {**saved, "reasons": ["all is well"]})
    assert not is_verdict_of(run, {name: value for name, value in saved.items() if name != "seal"})
    run.seal_json.write_bytes(other.seal_json.read_bytes())
    assert not is_verdict_of(run, saved)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a": "\xff"}', b"\xff\xfe", b"NaN", b"9" * 10_000])
def test_what_is_no_json_is_refused_or_told(run: RunDir, name: str, content: bytes) -> None:
    (run.path / name).write_bytes(content)
    assert judged(run) in ("unknown", "refused")


def test_what_is_no_file_or_too_large_is_refused_without_being_read(run: RunDir) -> None:
    found = {"valid": True, "model": "register"}
    run.outcome_json.unlink()
    os.mkfifo(run.outcome_json)
    assert judged(run) == "refused" and whole_or_unknown(run.path, found)["valid"] == "unknown"
    run.outcome_json.unlink()
    with run.outcome_json.open("wb") as file:
        file.truncate(1 << 40)
    assert judged(run) == "refused" and whole_or_unknown(run.path, found)["valid"] == "unknown"


def test_how_a_cluster_was_is_told_of_whole_runs_only(run: RunDir) -> None:
    run.cluster_json.write_text("{}")
    with pytest.raises(UserError, match=r"not those of one whole run: cluster.json was added"):
        saved_report(run.path)
