"""The run directory: unique names, links, atomic files, and a store that can't be written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from harness.errors import HarnessError, UserError
from harness.history import rundir as rundirs
from harness.history.rundir import RunDir, create, is_run, open_run

NOW = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)


def test_runs_of_the_same_moment_get_names_of_their_own(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "store"
    first, second, third = (create(store, "register", NOW) for _ in range(3))
    names = [run.path.name for run in (first, second, third)]
    assert names == ["20260304T050607.089Z", "20260304T050607.089Z-2", "20260304T050607.089Z-3"]
    assert all(run.path.parent == store / "register" for run in (first, second, third))


def test_a_run_is_named_by_utc_wherever_its_clock_stands(tmp_path: Path) -> None:
    east = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert east.hour == 10 and create(tmp_path, "register", east).path.name == "20260304T050607.089Z"


def test_latest_is_the_run_that_ended_last(tmp_path: Path) -> None:
    first, bank, second = (create(tmp_path, workload, NOW) for workload in ("register", "bank", "register"))
    assert not (tmp_path / "latest").is_symlink(), "none has ended"
    for run in (bank, second, first):
        run.point_latest()
    assert (tmp_path / "latest").resolve() == (tmp_path / "register" / "latest").resolve() == first.path.resolve()
    assert (tmp_path / "bank" / "latest").resolve() == bank.path.resolve()
    create(tmp_path, "bank", NOW).discard()
    assert (tmp_path / "bank" / "latest").exists()


def test_runs_that_end_at_once_leave_one_latest(tmp_path: Path) -> None:
    """Of several workloads, begun in the same millisecond: what each makes on the way has a name of its own."""
    runs = [create(tmp_path, workload, NOW) for workload in ("register", "bank", "sets", "catalog")]
    create(tmp_path, "register", NOW).point_latest()
    with ThreadPool(4) as pool:
        seen = pool.map(lambda n: (runs[n % 4].point_latest(), (tmp_path / "latest").exists()), range(400))
    assert all(there for _, there in seen)
    assert (tmp_path / "latest").resolve() in [run.path.resolve() for run in runs]
    assert not list(tmp_path.rglob(".*"))


def test_a_store_that_cannot_be_written_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    with pytest.raises(UserError, match="blocked") as refused:
        create(blocked / "store", "register", NOW)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [blocked]


def test_what_was_made_before_a_failure_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(parent: Path, stamp: str) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundirs, "_make_unique", full)
    with pytest.raises(UserError, match="No space left"):
        create(tmp_path / "new" / "store", "register", NOW)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old" / "register").mkdir(parents=True)
    with pytest.raises(UserError):
        create(tmp_path / "old", "register", NOW)
    assert list((tmp_path / "old" / "register").iterdir()) == []


def test_a_discarded_run_leaves_no_trace(tmp_path: Path) -> None:
    kept = create(tmp_path / "store", "bank", NOW)
    kept.write_json(kept.run_json, {})
    create(tmp_path / "store", "register", NOW).discard()
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["bank"]
    kept.discard()
    assert list(tmp_path.iterdir()) == []


def test_json_files_are_replaced_whole(tmp_path: Path) -> None:
    run = create(tmp_path, "register", NOW)
    assert not is_run(run.path)
    with pytest.raises(UserError, match=r"no run\.json"):
        open_run(run.path)
    run.write_json(run.run_json, {"seed": 1})
    run.write_json(run.run_json, {"seed": 2, "text": "é"})
    assert open_run(run.path).read_json(run.run_json) == {"seed": 2, "text": "é"}
    assert [path.name for path in run.path.iterdir()] == ["run.json"]
    assert run.read_json(run.verdict_json) is None
    run.verdict_json.write_text("{ half")
    with pytest.raises(UserError, match=r"verdict\.json can't be read"):
        run.read_json(run.verdict_json)


def test_a_file_that_cannot_be_written_is_our_failure(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "gone")
    with pytest.raises(HarnessError, match=r"run\.json can't be written"):
        run.write_json(run.run_json, {})


def test_logs_stay_inside_the_run(tmp_path: Path) -> None:
    run = create(tmp_path, "register", NOW)
    run.write_logs({"n1/server.log": b"one", "n2/deep/er.log": b"two"})
    assert (run.nodes / "n1" / "server.log").read_bytes() == b"one"
    assert (run.nodes / "n2" / "deep" / "er.log").read_bytes() == b"two"
    for name in ("../run.json", "/tmp/elsewhere"):
        with pytest.raises(HarnessError, match="must not be called"):
            run.write_logs({name: b""})
