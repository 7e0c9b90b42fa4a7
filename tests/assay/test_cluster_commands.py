"""`assay cluster` where no cluster is up: saved reports, and one sentence for each mistake."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from assay.cli import invoke
from assay.cluster_command import CALLS, columns, prepared, steps
from cluster.health.check import ClusterReport, Problem
from cluster.store.schema import AddColumn, Column, DropColumn, RenameColumn
from cluster.wire.messages import CatalogRequest
from harness.errors import UserError
from harness.history.rundir import create


def saved(folder: Path, report: ClusterReport) -> Path:
    rundir = create(folder, "catalog", datetime(2026, 1, 2))
    rundir.write_json(rundir.run_json, {"workload": "catalog"})
    rundir.write_json(rundir.cluster_json, report)
    return rundir.path


def test_the_report_of_a_saved_run_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = saved(tmp_path / "a", ClusterReport(True, (), checked={"nodes": 8}))
    assert invoke(["cluster", "check", str(whole)]) == 0
    assert "HEALTHY: 8 nodes" in capsys.readouterr().out
    sick = saved(tmp_path / "b", ClusterReport(False, (Problem("tables", "orders", "is ALTERING"),)))
    assert invoke(["cluster", "check", str(sick)]) == 1
    assert "tables: orders is ALTERING" in capsys.readouterr().out
    assert invoke(["cluster", "check", str(sick), "--json"]) == 1
    assert msgspec.json.decode(capsys.readouterr().out)["problems"][0]["subject"] == "orders"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["check"], "No cluster is up"),
        (["status"], "No cluster is up"),
        (["call", "ListTables"], "No cluster is up"),
        (["repair", "orders"], "No cluster is up"),
        (["repair", "orders", "--timeout", "-1"], "--timeout is -1; it has to lie between"),
        (["repair", "orders", "--timeout", "nan"], "--timeout is nan; it has to lie between"),
        (["call", "DropTable"], "There is no call 'DropTable'; there are: CreateTable"),
        (["call", "DeleteTable"], "DeleteTable needs name: DeleteTable name=…"),
        (["call", "DeleteTable", "orders"], "'orders' is no argument of DeleteTable"),
    ],
)
def test_mistakes_are_told_in_one_sentence(words: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence.replace("?", r"\?")):
        invoke(["cluster", *words, "--store", str(tmp_path)])


def test_a_store_that_is_a_file_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(UserError, match=r"store can't be written \(File exists\); name another with --store\.$"):
        invoke(["cluster", "up", "--store", str(tmp_path / "store")])


def test_a_run_that_nobody_looked_at_has_no_report(tmp_path: Path) -> None:
    rundir = create(tmp_path, "catalog", datetime(2026, 1, 2))
    rundir.write_json(rundir.run_json, {"workload": "catalog"})
    with pytest.raises(UserError, match="nobody looked at the cluster"):
        invoke(["cluster", "check", str(rundir.path)])


def test_every_call_of_the_metadata_plane_can_be_made() -> None:
    among_masters = {"AskFreshness"}
    assert set(CALLS) == {each.__name__ for each in CatalogRequest.__args__} - among_masters
    for name, call in CALLS.items():
        assert callable(prepared(name, [f"{key}=1" for key in call.arguments if call.arguments[key] is None]))


def test_columns_and_steps_are_read() -> None:
    assert columns("k:int64:key,v:string") == (
        Column(-1, "k", "int64", nullable=False, key=True),
        Column(-1, "v", "string"),
    )
    asked = {"add": "a:bool", "drop": "b,c", "rename": "d:e"}
    added = AddColumn(Column(-1, "a", "bool"))
    assert steps(asked) == (added, DropColumn("b"), DropColumn("c"), RenameColumn("d", "e"))
    for wrong in ({"add": "a"}, {"add": "a:bool:ky"}, {"rename": "d"}):
        with pytest.raises(UserError):
            steps({"add": "", "drop": "", "rename": "", **wrong})
