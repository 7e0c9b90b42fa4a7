"""`all` leaves out what this database can hardly be brought to; who names it gets it all the same."""

from __future__ import annotations

from random import Random

import pytest

from cluster.deploy.database import failover_s
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from harness.env.sim import SimEnvironment
from harness.errors import UserError
from harness.ports.sim.world import World
from nemesis.asked import expand, parse_all
from nemesis.packages import NemesisOptions, package
from nemesis.registry import KINDS, NEMESES, SCRIPTS


def offered(**knobs: int) -> frozenset[str]:
    with World(1) as world:
        needed = frozenset[str]().union(*(info.needs for info in NEMESES.values()))
        return frozenset(SimDatabase(world, Layout(3, 5), (), Knobs(**knobs)).capabilities) | needed - {"leaderless"}


def drawn(database: SimDatabase, others: set[str] | None = None, asked: str = "all") -> set[str]:
    """What a database is given, with what environments offer."""
    can = frozenset(database.capabilities | {"partition"} | (others or set()))
    return {each.name for each in expand(parse_all([asked]), can, database.tuning)}


@pytest.mark.parametrize(
    ("tservers", "workload", "kind", "comes"),
    [
        (3, "register", "membership", False),
        (4, "register", "membership", True),
        (7, "strong-anywhere", "membership", False),
        (3, "follower-reads", "learner-lag", False),
        (4, "follower-reads", "learner-lag", True),
    ],
)
def test_members_change_and_learners_lag_only_where_there_are_servers_for_it(
    tservers: int, workload: str, kind: str, comes: bool
) -> None:
    """Seed 21 of a swarm drew `membership` for three tablet servers, which can neither take one in nor spare one; seed
    2 of `strong-anywhere` drew `late-call`, and each server had a replica."""
    with World(1) as world:
        database = SimDatabase(world, Layout(3, tservers, zones=3), (), Knobs())
    database.workload = workload
    assert (kind in drawn(database)) == comes
    assert kind in drawn(database, asked=kind)


def test_disks_of_tablet_servers_are_damaged_only_where_what_they_lose_can_be_replaced() -> None:
    """Seed 733 of a swarm was over links between continents with one entry a round trip: the learner in the lost
    replica's place, behind the longest of them, came no nearer to the leader's log while clients wrote."""
    for knobs, drawn in (({"max_batch_entries": 1, "max_inflight": 1}, False), ({"max_inflight": 4}, True)):
        can = offered(**knobs)
        for kind in ("bit-flip", "truncate", "wipe"):
            variants = KINDS[kind].variants
            assert {whom for whom in variants if variants[whom].needs <= can} == {
                "master",
                *(("leaseholder", "tserver") if drawn else ()),
            }


def test_nothing_is_asked_of_disks_where_no_loss_can_be_repaired() -> None:
    """Seed 1098 of a swarm had one master, and tablets whose lost replicas it could not replace."""
    for masters, inflight, drawn in ((1, 1, False), (1, 32, True), (3, 1, True)):
        with World(1) as world:
            knobs = Knobs(max_batch_entries=1, max_inflight=inflight)
            can = frozenset(SimDatabase(world, Layout(masters, 3), (), knobs).capabilities)
        assert ("wipe" in [each.name for each in expand(parse_all(["all"]), can)]) == drawn
    with World(1) as world, pytest.raises(UserError, match="can't be used here: masters are fewer than three"):
        database = SimDatabase(world, Layout(1, 3), (), Knobs())
        package(["bit-flip(target=master)"], database, SimEnvironment(world), NemesisOptions(), Random(1))


def test_leaders_hand_over_only_where_some_group_has_two_voters() -> None:
    """A swarm drew it for one master and tables without leaders: seed 14 of `write-atomicity --table logged`."""
    cases = (("register", 1, True), ("write-atomicity", 3, True), ("write-atomicity", 1, False))
    for workload, masters, drawn in cases:
        with World(1) as world:
            database = SimDatabase(world, Layout(masters, 5), (), Knobs())
            database.workload = workload
            can = database.capabilities | {"partition"}
        assert ("leadership" in [each.name for each in expand(parse_all(["all"]), frozenset(can))]) == drawn


def test_leaders_get_a_tail_of_their_own_among_registers_and_among_typed_rows() -> None:
    """Seeds 21 and 22 of a swarm of `catalog` drew `leader-returns`, and no tail ever grew among its rows."""
    for workload in ("register", "catalog"):
        with World(1) as world:
            database = SimDatabase(world, Layout(3, 5), (), Knobs())
            database.workload = workload
        assert "leader-returns" in drawn(database)


def test_a_fail_over_takes_as_long_as_leaders_and_leases_stand_in_its_way() -> None:
    """In seconds: a leader that hears nobody, or its lease, and two elections."""
    quick, leased = Knobs(), Knobs(tablet_lease_ms=6000, max_clock_offset_ms=3000)
    stubborn = Knobs(election_timeout_ms=3000, check_quorum_ms=0, tablet_lease_ms=6000, max_clock_offset_ms=3000)
    assert [failover_s(knobs) for knobs in (quick, leased, stubborn)] == [3.6, 10.2, 18.0]


def test_short_reads_are_for_runs_with_limits_and_of_logged_tables_for_those_with_many() -> None:
    """`assay run write-atomicity --table logged --nemesis short-read --swarm` was unknown with 10 of 16 seeds,
    `convergence --nemesis all --swarm`, which has few limits, with seeds 10, 18 and 19."""
    found = {}
    for table, limits in (("legacy", "0.1"), ("legacy", "0.2"), ("logged", "0.4"), ("logged", "0.8")):
        with World(1) as world:
            database = SimDatabase(world, Layout(3, 5), (), Knobs())
            database.workload, database.workload_options = "write-atomicity", {"table": table, "limits": limits}
            found[table, limits] = "short-read" in drawn(database, {"pause"})
    assert found == {
        ("legacy", "0.1"): False,
        ("legacy", "0.2"): True,
        ("logged", "0.4"): False,
        ("logged", "0.8"): True,
    }


def test_what_the_workload_does_not_bring_is_told_before_the_run() -> None:
    """`assay run register --nemesis unheard-tablets` ran, and was unknown: nobody made a table."""
    with World(1) as world:
        database, environment = SimDatabase(world, Layout(3, 5), (), Knobs()), SimEnvironment(world)
        database.workload = "register"
        for script, words in (("unheard-tablets", "makes no tables"), ("short-read", "tables have leaders")):
            with pytest.raises(UserError, match=f"{script!r} can't be used here: .*{words}"):
                package([script], database, environment, NemesisOptions(), Random(1))


@pytest.mark.parametrize(
    ("script", "seed", "never", "often"),
    [
        (
            "deposed-leader",
            6,
            {"election_timeout_ms": 600, "tablet_lease_ms": 3000, "max_clock_offset_ms": 1000},
            {"election_timeout_ms": 600, "check_quorum_ms": 5000, "max_clock_offset_ms": 500},
        ),
        ("snapshot-race", 38, {"snapshot_entries": 2000, "retained_entries": 16}, {"snapshot_entries": 20}),
        ("snapshot-race", 44, {"snapshot_entries": 2, "retained_entries": 256}, {"snapshot_entries": 2}),
        ("membership", 576, {"max_inflight": 1, "max_batch_entries": 1}, {"max_inflight": 1, "max_batch_entries": 64}),
        ("membership", 576, {"max_inflight": 4, "max_batch_bytes": 200}, {"max_inflight": 32, "max_batch_bytes": 200}),
        ("leader-returns", 550, {"max_requests": 4}, {"max_requests": 10_000}),
        ("leader-returns", 570, {"max_queued_proposals": 8}, {"max_queued_proposals": 8, "max_batch_entries": 4}),
    ],
)
def test_scripts_whose_core_these_knobs_keep_away(
    script: str, seed: int, never: dict[str, int], often: dict[str, int]
) -> None:
    """`assay run register --nemesis all --swarm --seed N` drew them, and their cores were never reached."""
    often = {"retained_entries": 16, **often}
    with World(1) as world:
        rarely, likely = (SimDatabase(world, Layout(3, 5), (), Knobs(**knobs)) for knobs in (never, often))
    assert SCRIPTS[script].needs <= rarely.capabilities | {"partition"}
    assert script not in drawn(rarely)
    assert script in drawn(likely)
    assert script in drawn(rarely, asked=script)


@pytest.mark.parametrize("workload", ["convergence", "durable-rows"])
def test_snapshots_are_split_only_where_replicas_tell_what_they_have_applied(workload: str) -> None:
    """Seeds 8, 13 and 14 of a swarm of `convergence` waited for a step that legacy tables don't have."""
    for table in ("legacy", "logged"):
        with World(1) as world:
            database = SimDatabase(world, Layout(3, 5), (), Knobs())
            database.workload, database.workload_options = workload, {"table": table}
            can = frozenset(database.capabilities)
            assert ("split-snapshot" in [each.name for each in expand(parse_all(["all"]), can)]) == (table == "logged")
            if table == "legacy":
                with pytest.raises(UserError, match="can't be used here: the workload's table logs no mutations"):
                    package(["split-snapshot"], database, SimEnvironment(world), NemesisOptions(), Random(1))
