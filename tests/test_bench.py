"""Every benchmark still runs: each prints a figure of a history, a load or a cluster that is as small as it takes.

What they measure here says nothing; what fails is a benchmark that the code has left behind.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.__main__ import CASES, DOCUMENTS, main
from bench.measure import Row, mark, power, updated

SMALLEST = [
    ("judge --count 2000", r'(?s)"set-full, 2 000 shown elements".*"valid": true'),
    ("isolation --events 1600 --keys 50", r'"level": "causal", "parquet_CPU_s": [\d.]+, .*"txt_valid": true'),
    ("cores register --count 1000 --turns 1", r'"register, 1 000 operations, 1 key", .*"s_on_2": [\d.]+'),
    ("kernel --count 2000", r'(?s)"zones, 2 000 operations.*"search, 5 values, 200 operations, 1 key, 50 clients"'),
    ("version_orders --count 100", r'(?s)"stale": "False", .*"said": "valid".*"stale": "True", .*"said": "invalid"'),
    ("memory register --count 1000", r'"peak_MB_on_2": [\d.]+, "times_on_2": [\d.]+'),
    ("task_memory register --operations 1000", r'"shuffled_B": [1-9]\d*, "judged_B": [1-9]'),
    ("cost_curves register --most 10000 --plot FOLDER/curve.png", r'"operations": "10\^4", "register_CPU_s": [\d.]+'),
    ("growth_local register --operations 1000", r'"10\^4: CPU s": [\d.]+, "10\^4: valid": false'),
    ("importers --megabytes 0.02 --runs 1", r'"register.jepsen-log", .*"to_Parquet_MB_per_CPU_s": [\d.]+'),
    ("interpreter --ops 200 --concurrency 5", r'"ops": 200, .*"ops_per_s": [1-9]'),
    ("simulator --seconds 0.2", r'"clients": "10, 100 operations a second", "ops": [1-9]'),
    ("counts --seconds 0.02 --top 1", r'"bytecodes": [1-9].*"most": \["[1-9]'),
    ("by_inputs --turns 1 --seconds 0.5", r'(?s)"run": "register.*"by_inputs_CPU_s": [\d.]+, .*"run": "catalog'),
    ("shrink_histories register --operations 2000 --keys 20", r'"operations": 2003, "left": 3, "parts_judged": [1-9]'),
    (
        "timeline --operations 9000 --keys 9",
        r'(?s)operations, one file", .*operations, with tiles", "CPU_s": [\d.]+, "MB"',
    ),
    ("failover --kills 1 --plot FOLDER/curve.png", r'(?s)"simulator", "kills": 1, .*"simulator, idle'),
    ("master_failover --kills 1", r'"simulator", "kills": 1, "median_s": [\d.]+'),
    ("idle --tablets 2 --seconds 1", r'"from node to node, groups quiescent", "cores_a_node": [\d.]+'),
    ("storm --tablets 3 --seconds 3 --every 3", r'"last_look_leased": 3'),
    ("masters --tablets 10 --catalog 50", r'"a table of 10 tablets in one batch, B", "figure": [1-9]'),
    (
        "node_log --virtual-s 0.05 --seconds 0",
        r'(?s)"fsyncs_per_write": [\d.]+.*"real", "groups": "64", "writes_per_s": [1-9]\d*, "fsyncs_per_write": [\d.]+',
    ),
    ("sorted_store --writes 2000 --reads 16 --one-row 100", r'(?s)"scanned rows", .*"mutations_of_one_row": 100'),
    (
        "follower_reads --plots FOLDER",
        r'(?s)"mode": "exact, 5 s ago".*"lag": "10 s".*"tracker": "heap".*"changes": "100".*"held": "1 s"'
        r'.*"gone": "the leaseholder\'s".*"closed": "[\d.]+ s ahead".*"way": "bounded, 10 s, at a follower"',
    ),
    (
        "quorum lag streaming wire reconciling restart --plots FOLDER",
        r'"design": "logged", "mutations_of_one_row"',
    ),
]
"""What each is called with, and what it has to print."""

ELSEWHERE = {
    "commands": "makes long histories, again and again",
    "compiling": "compiles all that a model needs",
    "docker_throughput": "in containers",
    "own_databases": "in containers",
    "night_costs": "makes nights of seconds, again and again",
    "night_looks": "ten thousand runs are its least",
    "growth": "starts Spark; measured by `tests/checkers/growth.py`, as the tests of growth are",
    "masters_restart": "a thousand tablets are its least",
    "on_cluster": "starts a cluster of Spark",
    "probes": "in containers",
    "run_figures": "in containers",
    "search": "ten thousand operations are its least",
    "shrink_runs": "makes runs again and again, for a minute a flaw",
    "snapshot_stream": "starts nodes that it loads for seconds",
    "spark": "as `judge`, on Spark",
}
"""Benchmarks that SMALLEST leaves out, and why."""


@pytest.mark.parametrize(("call", "printed"), SMALLEST)
def test_a_benchmark_prints_what_it_measured(
    call: str, printed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(call.replace("FOLDER", str(tmp_path)).split()) == 0
    out = capfd.readouterr().out
    assert re.search(printed, out), out


def test_every_benchmark_is_run_or_said_not_to_be() -> None:
    run = {call.split()[0] for call, _ in SMALLEST}
    assert not run & set(ELSEWHERE) and run | set(ELSEWHERE) == set(CASES)


def test_a_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CASES) and all(len(line.split()) > 2 for line in lines)


def test_figures_go_to_the_rows_and_columns_of_their_names() -> None:
    page = f"# Page\n{mark('x')}\n| what | s | load |\n|---|---|---|\n| a | 1.5 | idle |\n| b | 2 | idle |\n\nText.\n"
    rows: list[Row] = [
        {"what": "b", "s": 3, "most_MB": 1234, "valid": True, "of_each": [1]},
        {"what": "c", "s": None, "most_MB": 7},
    ]
    assert updated(page, "x", rows) == (
        f"# Page\n{mark('x')}\n"
        "| what | s | load | most MB |\n| --- | --- | --- | --- |\n"
        "| a | 1.5 | idle |  |\n| b | 3 | idle | 1 234 |\n| c |  |  | 7 |\n\nText.\n"
    )


def test_a_table_that_is_not_there_yet_is_begun() -> None:
    assert updated(f"{mark('x')}\nText.\n", "x", [{"what": "a", "s": 1}]).splitlines() == [
        mark("x"),
        "| what | s |",
        "| --- | --- |",
        "| a | 1 |",
        "Text.",
    ]


@pytest.mark.parametrize(("number", "words"), [(10**6, "10^6"), (5e5, "5·10^5"), (1600, "1 600"), (31623, "31 623")])
def test_numbers_in_words(number: float, words: str) -> None:
    assert power(number) == words


def test_documents_have_tables_of_benchmarks_that_there_are() -> None:
    texts = "\n".join(path.read_text() for path in DOCUMENTS.glob("**/*.md"))
    named = re.findall(r"<!-- bench: (.*) -->", texts)
    assert len(named) == len(set(named)) and set(named) <= set(CASES)
