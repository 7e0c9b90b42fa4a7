"""`--swarm`: every seed draws cluster, load and faults of its own, and the same ones again."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from assay import compose
from assay.compose import draw_cluster, draw_faults, swarmed
from assay.options import RunOptions, validate
from assay.worlds import draw_world, parse_world
from harness.protocols import Tuning
from nemesis.asked import expand, parse, parse_all
from nemesis.packages import JOINING_SHARE, cost_s
from nemesis.registry import AIMED, JOINING, KINDS, NEMESES
from nemesis.scripts.quorum import LEADERLESS
from workloads.api import draw_options, resolve_options
from workloads.registry import WORKLOADS

VARIANTS = [variant for kind in KINDS.values() for variant in kind.variants.values()]
NEEDED = (*(info.needs for info in NEMESES.values()), *(variant.needs for variant in VARIANTS))
EVERYTHING = frozenset[str]().union(*NEEDED) - {LEADERLESS}
OPTIONS = RunOptions("register", nemesis=("all",), swarm=True)
ANYWAY = Tuning(
    spare_servers=1,
    under_way=1000,
    message=1,
    taken_in=1000,
    kept=1,
    outlives_s=1.0,
    limits=1.0,
    stepping=True,
    learners=1,
)
"""Lets every script reach its core."""

TOGETHER = EVERYTHING.difference(*(NEMESES[name].needs for name in JOINING)) | {"status", "terms"}
"""What the kinds need that are drawn together."""

KINDS_HERE = expand(parse_all(OPTIONS.nemesis), TOGETHER, ANYWAY)


def test_seeds_differ_and_each_draws_the_same_again() -> None:
    drawn = {}
    for seed in range(100):
        options = replace(OPTIONS, seed=seed)
        cluster, faults = draw_cluster(options), draw_faults(options, EVERYTHING, ANYWAY)
        assert (cluster, faults) == (draw_cluster(options), draw_faults(options, EVERYTHING, ANYWAY))
        validate(replace(cluster, nemesis=faults))
        drawn[seed] = (cluster.masters, cluster.nodes, cluster.rate, cluster.concurrency, faults)
    assert len(set(drawn.values())) > 90
    kinds = {parse(part).name for *_, faults in drawn.values() for part in faults}
    assert kinds == {name for name, info in NEMESES.items() if info.needs <= EVERYTHING} - set(AIMED)


def test_a_cluster_has_the_nodes_that_the_workload_needs() -> None:
    """Two data centres of three replicas each take six tablet servers: runs that drew fewer were refused."""
    two = replace(OPTIONS, workload="monotonic-reads", workload_options={"data-centres": "2", "replication": "3"})
    drawn = {seed: swarmed(replace(two, seed=seed)).nodes for seed in range(20)}
    assert min(drawn.values()) == 6
    for seed, nodes in drawn.items():
        alone = swarmed(replace(OPTIONS, seed=seed)).nodes
        assert nodes == max(6, alone), "else as the seed has them"


def test_every_kind_that_is_drawn_has_time_for_its_turn() -> None:
    """Seed 30 of 40 s drew five kinds with paces of their own; four of them took 37 s: the fifth never began."""
    paced = 0
    for seed in range(200):
        options = replace(OPTIONS, seed=seed, time_limit=40.0)
        drawn = parse_all(draw_faults(options, EVERYTHING, ANYWAY))
        assert len(drawn) == 1 or sum(map(cost_s, drawn)) <= options.time_limit
        paced += sum(each.every_s is not None for each in drawn)
    assert paced > 100


def test_what_takes_longer_than_the_run_is_drawn_again_and_all_else_as_ever() -> None:
    """A campaign of 8 s ended at its first seed that drew a script every 10 s."""
    drawn: dict[float, list[tuple[str, ...]]] = {}
    for limit in (8.0, 10.0, 40.0):
        runs = [replace(OPTIONS, seed=seed, time_limit=limit) for seed in range(1, 101)]
        drawn[limit] = [draw_faults(options, TOGETHER, ANYWAY) for options in runs]
        assert all((each.every_s or 0.0) <= limit for faults in drawn[limit] for each in parse_all(faults))
        assert drawn[limit] == [draw_faults(options, TOGETHER, ANYWAY) for options in runs]
    first = [compose._draw_kinds(KINDS_HERE, 1, 8.0, Random(f"swarm/{seed}/faults")) for seed in range(1, 101)]
    texts = [tuple(each.text() for each in faults) for faults in first]
    moved = [was for was, now in zip(texts, drawn[8.0], strict=True) if was != now]
    assert 5 < len(moved) < 30 and all(any((each.every_s or 0.0) > 8 for each in parse_all(was)) for was in moved)
    told = replace(OPTIONS, seed=1, time_limit=8.0, nemesis=("kill(every=9s)",))
    assert draw_faults(told, EVERYTHING, ANYWAY) == ("kill(every=9s)",), "to be refused"


def test_what_joins_takes_one_place_in_some_runs_and_moves_nothing_else() -> None:
    joined = 0
    for seed in range(200):
        options = replace(OPTIONS, seed=seed)
        without, drawn = draw_faults(options, TOGETHER, ANYWAY), draw_faults(options, EVERYTHING, ANYWAY)
        moved = [now for was, now in zip(without, drawn, strict=True) if was != now]
        assert moved in ([], [*JOINING]) and len(JOINING) == 1
        joined += len(moved)
    assert 0.5 * JOINING_SHARE < joined / 200 < 1.5 * JOINING_SHARE


def test_what_was_asked_for_is_all_that_is_drawn_with_its_settings() -> None:
    for seed in range(20):
        options = replace(OPTIONS, seed=seed, nemesis=("kill(target=one,every=9s)", "partition", "pause"))
        drawn = parse_all(draw_faults(options, EVERYTHING, ANYWAY))
        assert 2 <= len(drawn) <= 3
        for each in drawn:
            assert each.name in ("kill", "partition", "pause")
            assert each.name != "kill" or (each.variants, each.every_s) == (("one",), 9.0)


def test_a_run_without_faults_draws_none_and_the_command_says_swarm() -> None:
    assert draw_faults(replace(OPTIONS, nemesis=()), EVERYTHING, ANYWAY) == ()
    assert draw_faults(OPTIONS, frozenset()) == ("all",), "to be refused"
    assert " --swarm" in OPTIONS.command()
    assert "--swarm" not in replace(OPTIONS, swarm=False).command()


def test_waits_that_are_slow_are_drawn_by_swarms_in_the_simulator_unless_they_are_told() -> None:
    drawn = [parse_world(swarmed(replace(OPTIONS, seed=seed)).world).get("slow-waits", 0) for seed in range(100)]
    assert set(drawn) == {0, 1, 3} and 30 < drawn.count(0) < 70
    seed = next(seed for seed, count in enumerate(drawn) if count)
    assert swarmed(replace(OPTIONS, seed=seed, world="slow-waits=0,loss=0.01")).world == "slow-waits=0,loss=0.01"
    assert swarmed(replace(OPTIONS, seed=seed, on="docker")).world == ""
    assert "slow-waits" not in draw_world(seed).values, "others have none"


def test_options_of_workloads_are_drawn_within_what_the_workload_promises_and_told_ones_stay() -> None:
    for name, chosen in WORKLOADS.items():
        if not any(option.drawn for option in chosen.options):
            continue
        drawn = [draw_options(chosen, {}, seed) for seed in range(40)]
        assert drawn == [draw_options(chosen, {}, seed) for seed in range(40)] and len({*map(str, drawn)}) > 2
        assert not any(chosen.unpromised(resolve_options(chosen, values)) for values in drawn), name
        keys = "keys" if "keys" in drawn[0] else "hot"
        assert len({values[keys] for values in drawn}) > 1
        assert all(draw_options(chosen, {keys: "5"}, seed)[keys] == "5" for seed in range(5))
    legacy = {"table": "legacy"}
    assert draw_options(WORKLOADS["write-atomicity"], legacy, 1) == legacy, "with slices it is torn by design"
