"""Calls of the metadata plane as an operator types them, for a cluster of any kind that a store tells of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli import invoke
from assay.cluster_command import CALLS
from tests.support.patience import until


class Operator:
    """Who types calls: `ask` gives the exit code and the answer, `answer_of` an answer that has to be a success."""

    def __init__(self, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store, self._capsys = store, capsys
        self.made: set[str] = set()

    def ask(self, name: str, *words: str) -> tuple[int, str]:
        code = invoke(["cluster", "call", name, *words, "--store", str(self.store)])
        self.made |= {name} if code == 0 else set()
        return code, self._capsys.readouterr().out

    def answer_of(self, name: str, *words: str) -> Any:
        code, text = self.ask(name, *words)
        assert code == 0, text
        return json.loads(text)


def make_every_call(operator: Operator) -> None:
    """All of M5 on a cluster of one master and three tablet servers, from its first answers to a table that is gone."""
    answer_of = operator.answer_of
    until(lambda: operator.ask("ListTabletServers")[0] == 0)
    until(lambda: sorted(answer_of("ListTabletServers")["live"]) == ["t1", "t2", "t3"])
    assert answer_of("ListMasters")["leader"] == "m1"
    table_id = answer_of("CreateTable", "name=orders", "columns=k:int64:key,v:string", "buckets=2")["table_id"]
    until(lambda: answer_of("IsCreateTableDone", "name=orders")["done"])
    assert [table["name"] for table in answer_of("ListTables")] == ["orders"]
    located = answer_of("GetTableLocations", "name=orders")["tablets"]
    assert [len(tablet["replicas"]) for tablet in located] == [3, 3]
    assert answer_of("AlterTable", "name=orders", "add=x:int32", "drop=v", "new_name=bills")["version"] == 1
    until(lambda: answer_of("IsAlterTableDone", "name=bills")["done"])
    schema = answer_of("GetTableSchema", "name=bills")
    assert [(column["id"], column["name"]) for column in schema["columns"]] == [(0, "k"), (2, "x")]
    assert (schema["table_id"], schema["version"], schema["state"]) == (table_id, 1, "RUNNING")
    assert answer_of("DeleteTable", "name=bills") == {"table_id": table_id}
    tablets = ",".join(tablet["tablet_id"] for tablet in located)
    found = answer_of("GetTabletLocations", f"tablets={tablets},paper")
    assert [tablet["state"] for tablet in found["tablets"]] == ["DELETED", "DELETED"]
    assert (answer_of("ListTables"), found["unknown"]) == ([], ["paper"])
    assert operator.made == set(CALLS)
    assert invoke(["cluster", "status", "--store", str(operator.store)]) == 0
    assert invoke(["cluster", "check", "--store", str(operator.store)]) == 0
