"""The model `etcd-kv` against brute force, and what it refuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from etcd_histories import events_of, random_calls, some_order

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.source import Source
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.ops import Op
from harness.history.table import to_table


def judge(events: list[Op]) -> Verdict:
    placed = [msgspec.structs.replace(event, index=i, time=i) for i, event in enumerate(events)]
    table = to_table(placed)
    return judge_source(Source(Path("h"), "journal", table.num_rows, table=table), "etcd-kv", LocalEngine())


@pytest.mark.parametrize(("unknown", "size"), [(0.0, 5), (0.3, 5)])
def test_brute_force_agrees(unknown: float, size: int) -> None:
    """A verdict is wrong for no history; it is unknown only where nothing was read or revisions are missing."""
    seen: Counter[Any] = Counter()
    for seed in range(300):
        calls = random_calls(Random(seed), size, unknown)
        right, verdict = some_order(calls), judge(events_of(calls))
        seen[right, verdict.valid] += 1
        assert verdict.valid in (right, "unknown"), (seed, right, verdict)
        reason = verdict.reason or ""
        assert verdict.valid != "unknown" or "No read" in reason or "No operation" in reason or not right or unknown
    assert seen[True, True] > 25 and seen[False, False] > 25, seen


def request(kind: str = "range", **parts: Any) -> dict[str, Any]:
    return {"input": {"Type": kind, **parts}, "output": {"Revision": 2, "Range": {"KVs": []}, "Txn": {"Results": [{}]}}}


LEASED = {"OperationsOnSuccess": [{"Type": "put-operation", "Put": {"Key": "k", "Value": "1", "LeaseID": 7}}]}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (request("leaseGrant"), "this is a leaseGrant"),
        (request("watch"), "only ranges and transactions"),
        (request("txn", Txn=LEASED), "under a lease"),
        ({"input": 1}, "no request of etcd's"),
        ({"input": {"Type": "range", "Range": {"Start": "k"}}}, "without an answer"),
    ],
)
def test_what_is_not_judged_is_refused(value: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        judge([Op("invoke", 0, "call", value={"input": value["input"]}), Op("ok", 0, "call", value=value)])


def test_plain_operations_of_robustness_tests_keep_their_revisions() -> None:
    source = open_source(Path(__file__).parents[2] / "data" / "histories" / "operations.json")
    rows = source.table.to_pylist()  # type: ignore[union-attr]
    assert [(row["served_ts"], row["write_ts"]) for row in rows][:3] == [(1, None), (4, 4), (6, None)]
    verdict = judge_source(source, "etcd-kv", LocalEngine())
    assert verdict.valid == "unknown" and "revisions are of no write" in str(verdict.reason)
