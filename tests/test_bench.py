"""Every benchmark still runs: each prints a figure of a history, a load or a cluster that is as small as it takes.

What they measure here says nothing; what fails is a benchmark that the code has left behind.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bench.__main__ import benchmarks
from bench.checkers_jepsen import main as jepsen

SMALLEST = [
    ("checkers_cores --model register --operations 1000 --turns 1", r"register .* 2 cores: [\d.]+ s"),
    ("checkers_isolation --events 1600 --keys 50", r'"causal", "format": "txt", "verdict": true'),
    ("checkers_memory --model register --operations 1000", r"register .* peak .* times"),
    ("checkers_register local --operations 2000", r"local, 2000 operations on one key: [\d.]+ s"),
    ("checkers_register loaded --operations 20000", r"loaded, 2000 operations on 100 keys: [\d.]+ s"),
    ("checkers_register search --operations 2000", r"search, 5 values, 20 operations"),
    ("checkers_sessions --model write-atomicity --reads 1000", r"1000 reads, local: True"),
    ("checkers_transactions --transactions 1000", r"rw-register: 1000 transactions, local: True"),
    ("cost_curves --model register --most 10000 --picture FOLDER/curve.png", r"\| register \| 10000 \| "),
    ("counts --seconds 0.02", r'"per_op": \{"counted": [1-9]'),
    ("failover --kills 1", r'"simulator": \{"kills": 1, "median_s": [\d.]+'),
    ("growth --engine local --operations 1000", r"\| register \| 10000 \| 1.0% \| [\d.]+ \| False \|"),
    ("idle --tablets 2 --seconds 1", r'"quiescent": \{\s*"cores_per_node": [\d.]+'),
    ("importers 0.02 1", r"to Parquet [\d.]+ MB/CPU s"),
    ("interpreter --ops 200 --concurrency 5", r'"ops": 200, .*"ops_per_second": [1-9]'),
    ("master_failover --kills 1", r'"simulator": \{"kills": 1, "median_s": [\d.]+'),
    ("masters --tablets 10 --catalog 50", r'"created_bytes": [1-9]'),
    (
        "node_log --virtual-s 0.05 --seconds 0",
        r'(?s)"fsyncs_per_write_on_a_node": [\d.]+.*"writes_per_s": [1-9]\d*, "fsyncs_per_write": [\d.]+',
    ),
    (
        "quorum.__main__ lag streaming wire reconciling restart",
        r'"design": "logged", "mutations_of_one_row"',
    ),
    ("simulator --seconds 0.2", r'"at_100_per_second": \{"ops": [1-9]'),
    ("sorted_store --writes 2000 --reads 16 --one-row 100", r'"mutations_of_one_row": 100'),
    ("storm --tablets 3 --seconds 3 --every 3", r'"leased": 3'),
    ("task_memory --model register --operations 1000", r"register, 1000 operations, True: \d+ B an operation"),
]
"""What each is called with, and what it has to print."""

ELSEWHERE = {
    "checkers_jepsen": "the test below",
    "checkers_search": "ten thousand operations are its least",
    "compiling": "compiles all that a model needs",
    "docker_throughput": "in containers",
    "masters_restart": "a thousand tablets are its least",
    "on_cluster": "starts a cluster of Spark",
    "probes": "in containers",
    "run_figures": "in containers",
    "snapshot_stream": "starts nodes that it loads for seconds",
}
"""Those that SMALLEST leaves out, and why."""


@pytest.mark.parametrize(("call", "printed"), SMALLEST)
def test_a_benchmark_prints_what_it_measured(
    call: str, printed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *given = call.replace("FOLDER", str(tmp_path)).split()
    monkeypatch.setattr(sys, "argv", [name, *given])
    import_module(f"bench.{name}").main()
    told = capfd.readouterr().out
    assert re.search(printed, told), told


def test_jepsen_s_models_are_measured_on_valid_histories(capfd: pytest.CaptureFixture[str]) -> None:
    jepsen(2_000, "local")
    told = capfd.readouterr().out.splitlines()
    assert len(told) == 6 and all(line.split()[1] == "True" for line in told), told


def test_every_benchmark_is_run_or_said_not_to_be() -> None:
    run = {re.split(r"[ .]", call)[0] for call, _ in SMALLEST}
    assert not run & set(ELSEWHERE) and run | set(ELSEWHERE) == set(benchmarks())
