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
    """All of M5, and what operators ask, on a cluster of one master and three tablet servers, from its first answers to
    a table that is gone."""
    answer_of = operator.answer_of
    until(lambda: operator.ask("ListTabletServers")[0] == 0)
    until(lambda: sorted(answer_of("ListTabletServers")["live"]) == ["t1", "t2", "t3"])
    assert answer_of("ListMasters")["leader"] == "m1"
    table_id = answer_of("CreateTable", "name=orders", "columns=k:int64:key,v:string", "buckets=2")["table_id"]
    until(lambda: answer_of("IsCreateTableDone", "name=orders")["done"])
    listed = answer_of("ListTables", "max_staleness_ms=1000")
    assert ([table["name"] for table in listed["tables"]], listed["age_ms"]) == (["orders"], 0), "one master: it leads"
    located = answer_of("GetTableLocations", "name=orders")["tablets"]
    assert [len(tablet["replicas"]) for tablet in located] == [3, 3]
    operate(operator, located[0]["tablet_id"])
    assert answer_of("AlterTable", "name=orders", "add=x:int32", "drop=v", "new_name=bills")["version"] == 1
    until(lambda: answer_of("IsAlterTableDone", "name=bills")["done"])
    schema = answer_of("GetTableSchema", "name=bills")
    assert [(column["id"], column["name"]) for column in schema["columns"]] == [(0, "k"), (2, "x")]
    assert (schema["table_id"], schema["version"], schema["state"]) == (table_id, 1, "RUNNING")
    assert answer_of("PlaceTable", "name=bills", "home=z1", "voters=z1:3") == {"table_id": table_id, "version": 1}
    assert answer_of("DeleteTable", "name=bills") == {"table_id": table_id}
    tablets = ",".join(tablet["tablet_id"] for tablet in located)
    found = answer_of("GetTabletLocations", f"tablets={tablets},paper")
    assert [tablet["state"] for tablet in found["tablets"]] == ["DELETED", "DELETED"]
    assert (answer_of("ListTables")["tables"], found["unknown"]) == ([], ["paper"])
    assert operator.made == set(CALLS)
    assert invoke(["cluster", "status", "--store", str(operator.store)]) == 0
    assert invoke(["cluster", "check", "--store", str(operator.store)]) == 0


def operate(operator: Operator, tablet: str) -> None:
    """Every call of `cluster.wire.operating`, on a tablet of three replicas."""
    answer_of = operator.answer_of
    master = answer_of("ListMasters")["voters"][0]
    changed = answer_of("ChangeMasters", f"add={master['node_id']}", f"address={master['address']}")
    assert [voter["node_id"] for voter in changed["voters"]] == ["m1"], "what is so already is left alone"
    assert answer_of("DecommissionServer", "server=t3")["leaving"]
    state = answer_of("GetDecommission", "server=t3")
    assert (state["leaving"], state["replicas"] > 0) == (True, True)
    assert not answer_of("DecommissionServer", "server=t3", "leaving=no")["leaving"]

    def handed_over() -> bool:
        """Whether another one leads in the end; it is refused as long as the masters do not know yet who does."""
        leader = answer_of("GetTabletLocations", f"tablets={tablet}")["tablets"][0]["leader_hint"]
        target = min({"t1", "t2", "t3"} - {leader})
        code, text = operator.ask("TransferLeadership", f"group={tablet}", f"target={target}")
        return code == 0 and json.loads(text)["leader"] == target

    until(handed_over)
