"""Anomalies by key and time: what is one group, who its neighbours are, and what the page has of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from sample_run import sample_run

from checkers.importers.detect import open_source
from results.neighbours import FindingGroup, find_neighbours, grouped, keys_of
from results.report import render

SECOND = 1_000_000_000


def op(number: int, key: int, begin_s: float, end_s: float | None, process: int = 1) -> dict[str, Any]:
    return {
        "op": number,
        "process": process,
        "mops": [{"f": "r", "partition": key, "value": 1}],
        "invoke_time": int(begin_s * SECOND),
        "complete_time": None if end_s is None else int(end_s * SECOND),
    }


def found(**anomalies: list[list[dict[str, Any]]]) -> dict[str, Any]:
    told = {kind: [{"message": "?", "ops": ops} for ops in each] for kind, each in anomalies.items()}
    return {"register": {"valid": False, "anomalies": told}}


def test_anomalies_of_one_key_at_one_time_are_one_group() -> None:
    near, nearer = [op(1, 3, 1.0, 1.1), op(2, 3, 1.2, None)], [op(3, 3, 1.5, 1.6, process=7)]
    later, elsewhere = [op(4, 3, 9.0, 9.1)], [op(5, 4, 1.0, 1.1)]
    one, other, third = grouped(found(stale=[near, later], lost=[nearer], torn=[elsewhere]))
    assert (one.keys, one.kinds, one.ops) == ({(0, 3)}, {"stale": 1, "lost": 1}, {1, 2, 3})
    assert (one.begin_ns, one.end_ns, one.processes) == (SECOND, int(1.6 * SECOND), {1, 7})
    assert (other.keys, third.begin_ns) == ({(0, 4)}, 9 * SECOND)


def test_two_groups_that_a_third_anomaly_joins_are_one() -> None:
    both = [op(3, 1, 1.0, 1.1), op(4, 2, 1.0, 1.1)]
    [group] = grouped(found(stale=[[op(1, 1, 1.0, 1.1)], [op(2, 2, 1.0, 1.1)], both]))
    assert (group.keys, group.kinds) == ({(0, 1), (0, 2)}, {"stale": 3})


def test_what_names_no_keys_or_times_is_in_no_group() -> None:
    breach = {"invariants": {"anomalies": {"no-panic": [{"message": "t1 ended"}]}}}
    untimed = found(g1c=[[{"op": 1, "mops": [["r", 3, 1, None, None, 0, 0, 0]]}]])
    assert grouped(breach) == grouped(untimed) == []
    assert keys_of({"mops": [["r", 3, 1, None, None, 2, 0, 0]]}) == {(2, 3)}


def test_neighbours_are_all_that_keys_and_processes_did_around_it(tmp_path: Path) -> None:
    rundir = sample_run(tmp_path, rate_hz=20)
    group = FindingGroup({(0, 3)}, 4 * SECOND, 5 * SECOND, processes={9})
    find_neighbours([group], open_source(rundir.history_parquet))
    first_ns, last_ns = group.around
    assert (first_ns, last_ns) == (int(3.5 * SECOND), int(5.5 * SECOND))
    rows = [row for row in pq.read_table(rundir.history_parquet).to_pylist() if row["process"] >= 0]
    expected = {
        row["op"]
        for row in rows
        if row["invoke_time"] <= last_ns and (row["complete_time"] is None or row["complete_time"] >= first_ns)
        if row["process"] == 9 or (0, 3) in keys_of(row)
    }
    assert {each["op"] for each in group.neighbours} == expected
    assert group.left_out == 0 and expected


def test_the_page_has_the_group_with_its_canvas_its_buttons_and_its_table(tmp_path: Path) -> None:
    page = render(sample_run(tmp_path), {}, tmp_path)
    article = page[page.index('class="panel around"') : page.index("<h2>Timeline")]
    assert "key 3, 4.900\u00a0s to 4.916\u00a0s: 1 × stale-read" in article
    (ops,) = re.findall(r'data-ops="([0-9 ]+)"', article)
    assert len(ops.split()) > 10 and article.count("<canvas") == 1 and article.count("<tr>") > 10
    assert all(f'data-zoom="{step}"' in article for step in ("in", "out", "left", "right", "all"))
    assert page.count("<script") == 2 and not re.findall(r"""(?:src|href)=["'](?!data:|#)http""", page)


def test_a_run_without_anomalies_has_no_such_section(tmp_path: Path) -> None:
    rundir = sample_run(tmp_path)
    rundir.verdict_json.unlink()
    page = render(rundir, {}, rundir.path)
    assert "with their neighbours" not in page and page.count("<canvas") == 1, "only the whole run"
