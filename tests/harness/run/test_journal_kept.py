"""The journal of a run goes once the table is found to say the same, and never before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import HarnessError
from harness.history.journal import read_journal
from harness.history.rundir import RunDir, open_run
from harness.history.saved import open_saved
from harness.history.table import write_batches, write_parquet
from harness.run import life_cycle
from harness.verdict.facts import conclude_run, read_record
from tests.harness.run.memory_runs import NOW, Setup, judge_values

VALID = {"values": {"valid": True}}


def flip(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:999] + bytes([whole[999] ^ 1]) + whole[1000:])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def lose_a_row(path: Path) -> None:
    write_batches(pq.read_table(path).slice(1).to_batches(), path)


def answer_otherwise(path: Path) -> None:
    """A whole and sealed table in which one operation that failed has succeeded."""
    table = pq.read_table(path)
    types = table.column("type").to_pylist()
    types[types.index("fail")] = "ok"
    write_batches(
        table.set_column(table.column_names.index("type"), table.schema.field("type"), pa.array(types)).to_batches(),
        path,
    )


def test_the_journal_goes_once_the_table_says_the_same(tmp_path: Path) -> None:
    east = NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))
    kept, dropped = (
        Setup(tmp_path / name).run(keep_journal=name == "kept", started=east) for name in ("kept", "dropped")
    )
    assert read_record(kept.rundir).started == "2026-01-02T00:00:00+00:00", "in UTC, wherever the clock stands"
    assert kept.rundir.journal.exists() and not dropped.rundir.journal.exists()
    assert dropped.verdict == kept.verdict and dropped.verdict.overall == "valid"
    assert conclude_run(open_run(dropped.rundir.path), judge_values(dropped.rundir)) == dropped.verdict
    purpose = open_saved(dropped.rundir.history_parquet).manifest.purpose
    assert (purpose.workload, purpose.models) == ("register", ("register", "stats"))


@pytest.mark.parametrize("harm", [flip, cut, lose_a_row, answer_otherwise])
def test_a_table_that_is_not_what_the_journal_says_is_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    def written(events: object, path: Path, **options: object) -> int:
        rows = write_parquet(events, path, **options)  # type: ignore[arg-type]
        harm(path)
        return rows

    monkeypatch.setattr(life_cycle, "write_parquet", written)
    outcome = Setup(tmp_path).run(judge=lambda rundir: VALID, keep_journal=False)
    run, verdict = outcome.rundir, outcome.verdict
    assert (verdict.overall, verdict.why) == ("unknown", "harness")
    assert any("the table is not what the journal says, which is kept" in reason for reason in verdict.reasons)
    assert read_journal(run.journal).path.exists() and not run.history_parquet.exists()
    again = conclude_run(open_run(run.path), VALID)
    assert again == verdict and again.adequacy.answer is True, "what the journal says is enough"


def test_the_journal_stays_where_anything_could_not_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = RunDir.write_json

    def full(run: RunDir, path: Path, value: object) -> None:
        if path == run.faults_json:
            raise HarnessError("faults.json can't be written: No space left on device")
        write(run, path, value)

    monkeypatch.setattr(RunDir, "write_json", full)
    outcome = Setup(tmp_path).run(keep_journal=False)
    assert outcome.verdict.overall == "unknown" and outcome.rundir.journal.exists()
    assert conclude_run(outcome.rundir, VALID).adequacy.answer is True, "faults are read from the journal"
