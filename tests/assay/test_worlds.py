"""Worlds of runs: drawn, told, printed, saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import assay

from assay.options import RunOptions, validate
from assay.worlds import WORLD_KEYS, draw_world, given_knobs, parse_world
from cluster.knobs import Knobs
from harness.errors import UserError
from harness.history.rundir import open_run
from harness.verdict.adequacy import Floors

SHORT = ("--time-limit", "2", "--rate", "40", "--concurrency", "4", "--nodes", "3")


def test_the_line_of_a_world_is_the_same_world_under_any_seed() -> None:
    for seed in range(100):
        drawn = draw_world(seed)
        assert draw_world(seed + 1, drawn.line()) == drawn
        assert draw_world(seed) == drawn


def test_half_of_the_worlds_are_mild() -> None:
    severities = [draw_world(seed).values["severity"] for seed in range(1000)]
    assert 400 < severities.count("mild") < 600
    for seed in range(100):
        assert draw_world(seed, "severity=mild").physical.loss == 0


def test_what_is_told_leaves_the_rest_as_it_was() -> None:
    for seed in range(50):
        drawn, told = draw_world(seed), draw_world(seed, "loss=0.03,snapshot-entries=2")
        assert told.values == {**drawn.values, "loss": 0.03, "snapshot-entries": 2}
        assert (told.physical.loss, told.knobs.snapshot_entries) == (0.03, 2)


def test_what_is_drawn_yields_to_what_is_told() -> None:
    """In five regions an election takes up to 3 s: a replica can't be told to be dead after as long."""
    for seed in range(300):
        knobs = draw_world(seed, "replica-dead-ms=1500").knobs
        assert knobs.election_timeout_ms < knobs.replica_dead_ms == 1500


def test_replicas_of_logged_tables_become_equal_in_every_world_that_is_drawn() -> None:
    """Without polls and without bounds what a replica missed stayed missed, and `convergence` was rightly invalid."""
    drawn = [draw_world(seed, "severity=harsh").knobs for seed in range(200)]
    periods = {(bool(knobs.poll_period_ms), bool(knobs.reconcile_period_ms)) for knobs in drawn}
    assert periods == {(True, True), (True, False), (False, True)}
    told = draw_world(1, "poll-period-ms=0,reconcile-period-ms=0").knobs
    assert (told.poll_period_ms, told.reconcile_period_ms) == (0, 0)


def test_every_key_can_be_told() -> None:
    for name, key in WORLD_KEYS.items():
        for value in dict.fromkeys((*key.mild, *key.harsh)):
            if key.share_of is None:
                assert parse_world(f"{name}={value}") == {name: value}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gravity=2", "no 'gravity'"),
        ("loss", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
        ("loss=2", "between 0 and 0.5"),
        ("loss=nan", "between 0 and 0.5"),
        ("latency=moon", "one of lan"),
        ("snapshot-entries=1.5", "a whole number"),
        ("snapshot-entries=0", "snapshot-entries is '0'; it has to be a whole number between 1 and"),
        ("repair-tree-depth=21", "between 0 and 20"),
        ("max-clock-drift=1.0", "max-clock-drift is '1.0'"),
        ("loss=0.1,loss=0.2", "twice"),
        ("severity=odd", "one of mild, harsh"),
        ("raft-heartbeat-ms=5000", "raft_heartbeat_ms"),
    ],
)
def test_mistakes_get_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: str) -> None:
    answer = assay(capsys, "run", "register", "--seed", "1", "--world", text, "--store", tmp_path / "store")
    assert answer.code == 254 and words in answer.complaint
    assert not (tmp_path / "store").exists()


def test_real_machines_can_be_told_the_cluster_s_knobs_only() -> None:
    validate(RunOptions("register", on="docker", world="tablet-lease-ms=1000"))
    assert given_knobs("tablet-lease-ms=1000,max-batch-entries=3") == Knobs(tablet_lease_ms=1000, max_batch_entries=3)
    assert given_knobs("") == Knobs()
    assert given_knobs("retained-entries=0,quiesce-after-ms=0") == Knobs(retained_entries=0, quiesce_after_ms=0)
    for text in ("loss=0.1", "severity=mild", "tablet-lease-ms=1000,wall=none"):
        with pytest.raises(UserError, match="is the simulator's"):
            validate(RunOptions("register", on="docker", world=text))


def test_a_run_prints_its_world_saves_it_and_can_be_told_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ("--world", "severity=mild,snapshot-entries=3")
    first = assay(capsys, "run", "register", *SHORT, "--seed", "5", *told, "--store", tmp_path, "--json")
    assert first.code == 0, first
    (line,) = [line for line in first.err.splitlines() if line.startswith("world: ")]
    spec = draw_world(5, told[1])
    assert line == f"world: {spec.line()}" and "snapshot-entries=3" in line
    run = open_run(Path(first.objects[0]["run"]))
    assert json.loads(run.run_json.read_text())["world"] == spec.values
    assert "snapshot-entries" in run.report_html.read_text()
    whole = ("--world", line.removeprefix("world: "))
    again = assay(capsys, "run", "register", *SHORT, "--seed", "5", *whole, "--store", tmp_path, "--json")
    assert again.objects[0]["trace"] == first.objects[0]["trace"]
    assert "--world" in first.objects[0]["command"]


def test_clock_tells_all_clocks_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_world("clock=none") == {"drift": "none", "wall": "none", "jumps": "none"}
    for text, words in (("clock=none,wall=within", "wall twice"), ("clock=odd", "one of none, within, beyond")):
        with pytest.raises(UserError, match=words):
            parse_world(text)
    assert "clock" in {line.split("\t")[0] for line in assay(capsys, "list", "worlds").out.splitlines()}


def test_the_rate_floor_is_of_what_so_many_clients_can_reach_in_this_world() -> None:
    """Seed 26 of a swarm: three clients, 200 operations a second asked, and one message in 33 lost, each a second."""
    asked = Floors()
    assert draw_world(1, "severity=mild").eased(asked, 100.0, 10) == asked
    lossy = draw_world(1, "severity=mild,loss=0.03").eased(asked, 200.0, 3).rate * 200.0
    assert 4 < lossy < 12
    far = draw_world(1, "latency=wan5").eased(asked, 100.0, 10).rate
    assert 0.02 < far < 0.1


def test_the_rate_floor_is_of_what_a_node_takes_in() -> None:
    """Seed 329 of a swarm: 200 operations a second asked, of nodes that take in four requests at a time."""
    slow = "severity=harsh,latency=lan,transport=tcp,loss=0.01,fsync=slow,disk-full=0.0,slow-places=0,long-turns=0"
    assert draw_world(329, f"{slow},max-requests=10000").eased(Floors(), 200.0, 10).rate > 0.19
    assert 10 < draw_world(329, f"{slow},max-requests=4").eased(Floors(), 200.0, 10).rate * 200.0 < 25


def test_final_reads_that_a_world_loses_are_not_asked_for() -> None:
    """`monotonic-reads` with one message in 33 lost: 26 of 30 reads at ALL came back, and no client repeats them."""
    lossy = draw_world(1, "severity=mild,loss=0.03").eased(Floors(), 100.0, 10).final_reads
    assert 0.5 < lossy < 26 / 30
    assert draw_world(1, "severity=mild,loss=0.03,transport=tcp").eased(Floors(), 100.0, 10).final_reads == 0.9


def test_worlds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split("\t") for line in assay(capsys, "list", "worlds").out.splitlines()]
    assert [row[0] for row in rows] == [*WORLD_KEYS, "clock"]
    assert all(row[4] for row in rows)
