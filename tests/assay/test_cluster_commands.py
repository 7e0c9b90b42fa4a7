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
from cluster.wire.operating import OperatorRequest
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
        (["ranges"], "No cluster is up"),
        (["ranges", "orders", "--json"], "No cluster is up"),
        (["call", "ListTables"], "No cluster is up"),
        (["repair", "orders"], "No cluster is up"),
        (["repair", "orders", "--timeout", "-1"], "--timeout is -1; it has to lie between"),
        (["repair", "orders", "--timeout", "nan"], "--timeout is nan; it has to lie between"),
        (["call", "DropTable"], "There is no call 'DropTable'; there are: CreateTable"),
        (["call", "DeleteTable"], "DeleteTable needs name or table_id"),
        (["call", "DeleteTable", "orders"], "'orders' is no argument of DeleteTable"),
        (["call", "DeleteTable", "name=a", "max_staleness_ms=5"], "'max_staleness_ms=5' is no argument of DeleteTable"),
        (["call", "GetDecommission", "server=t1", "max_staleness_ms=5"], "is no argument of GetDecommission"),
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


def test_every_call_of_operators_can_be_made_and_each_that_knows_an_age_takes_a_bound() -> None:
    among_masters = {"AskFreshness"}
    requests = {each.__name__: each for each in (*CatalogRequest.__args__, *OperatorRequest.__args__)}
    assert set(CALLS) == set(requests) - among_masters
    of_an_age = {name for name in CALLS if "max_staleness_ms" in requests[name].__struct_fields__}
    assert of_an_age == {name for name, call in CALLS.items() if "max_staleness_ms" in call.arguments}
    for name, call in CALLS.items():
        needed = [key for key, default in call.arguments.items() if default is None or key == "name"]
        assert callable(prepared(name, [f"{key}=1" for key in needed]))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ChangeMasters", "add=m4"], "needs both: add=SERVER_ID address=HOST:PORT"),
        (["DecommissionServer", "server=t1", "leaving=perhaps"], "leaving is yes or no, not 'perhaps'"),
        (["ListTables", "max_staleness_ms=old"], "max_staleness_ms takes a whole number, not 'old'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anybody_is_asked(words: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        prepared(words[0], words[1:])(None)  # type: ignore[arg-type]


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
