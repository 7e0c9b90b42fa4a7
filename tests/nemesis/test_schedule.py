"""The schedule: every kind early, quiet time between, nothing that overlaps with its own kind."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from fake_cluster import FakeDatabase, FakeEnvironment
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.errors import UserError
from harness.generators import time_limit
from harness.generators.core import Context, Generator, Pending, invoke
from harness.generators.simulate import simulate
from harness.history.ops import NEMESIS_PROCESS, Op, OpType
from nemesis.packages import MISSING, NemesisOptions, package
from nemesis.registry import NEMESES, SCRIPTS
from nemesis.schedule import Schedule, Steps, Timed, end_op, plan_cycle

SECOND_NS = 1_000_000_000
OFFERED = sorted(name for name, info in NEMESES.items() if info.needs.isdisjoint(MISSING))
names = st.lists(st.sampled_from(OFFERED), min_size=1, unique=True)


def slow(op: Op, number: int) -> tuple[int, OpType]:
    """Each step takes a tenth of a second."""
    return SECOND_NS // 10, "info"


def steps(kinds: list[str], seed: int, limit_s: float, interval_s: float = 5.0) -> list[Op]:
    """The invocations of a run of `limit_s` seconds."""
    options = NemesisOptions(interval_s, time_limit_s=limit_s)
    made = package(kinds, FakeDatabase(), FakeEnvironment(), options, Random(seed))
    events = simulate(time_limit(limit_s, made.generator), nemesis=True, latency=slow)
    return [event for event in events if event.type == "invoke"]


@settings(deadline=None)
@given(names, st.integers(0, 2**32), st.floats(20, 120))
def test_every_kind_begins_and_ends_within_the_first_twenty_seconds(
    kinds: list[str], seed: int, limit_s: float
) -> None:
    """Nothing joins a script that is alone, and here never reaches its core."""
    ended = {op.value["fault"] for op in steps(kinds, seed, limit_s) if op.value["step"] == "end"}
    early = [op for op in steps(kinds, seed, 20.0) if op.value["step"] == "begin"]
    assert {op.value["fault"] for op in early} == set(kinds)
    assert ended == set(kinds) or (len(kinds) == 1 and kinds[0] in SCRIPTS)


def test_a_kind_that_was_seen_for_too_short_a_time_has_other_turns_until_it_was_not() -> None:
    """One short instance of one kind decided a run of 600 s: later cycles took kinds by chance."""
    for seed in range(10):
        kinds = ["partition", "kill", "clock-drift", "pause", "stop", "packets"]
        options = NemesisOptions(time_limit_s=60.0, drawn=True)
        schedule = package(kinds, FakeDatabase(), FakeEnvironment(), options, Random(seed)).generator
        begun: list[str] = []
        for event in unseen_at_first(time_limit(60.0, schedule), "clock-drift", 2):
            if event.type == "invoke" and event.value["step"] == "begin":
                begun.append(event.value["fault"])
        assert begun[:8] == [*kinds, "clock-drift", "clock-drift"]
        assert len(set(begun[8:])) > 1


def test_a_kind_that_never_shows_enough_leaves_others_their_turns() -> None:
    """29 of the last 36 faults of a run of 600 s were walks of failpoints."""
    options = NemesisOptions(time_limit_s=200.0, drawn=True)
    kinds = ["partition", "kill", "clock-drift", "pause"]
    schedule = package(kinds, FakeDatabase(), FakeEnvironment(), options, Random(3)).generator
    events = unseen_at_first(time_limit(200.0, schedule), "clock-drift", 1000)
    begun = [each.value["fault"] for each in events if each.type == "invoke" and each.value["step"] == "begin"]
    assert begun[:7] == [*kinds, *["clock-drift"] * 3]
    later = begun[7:]
    assert len(later) > 10 and {"partition", "kill", "pause"} <= set(later)
    assert len(later) // 3 <= later.count("clock-drift") <= len(later) * 2 // 3


def test_a_list_gives_every_other_cycle_to_what_was_seen_for_too_short_a_time() -> None:
    options = NemesisOptions(time_limit_s=100.0)
    schedule = package(["partition", "kill"], FakeDatabase(), FakeEnvironment(), options, Random(3)).generator
    events = unseen_at_first(time_limit(100.0, schedule), "kill", 1000)
    begun = [each.value["fault"] for each in events if each.type == "invoke" and each.value["step"] == "begin"]
    assert begun[2::2].count("kill") >= len(begun[2::2]) // 2
    assert "partition" in begun[2:]


def unseen_at_first(source: Generator, kind: str, times: int) -> list[Op]:
    """The events of a schedule whose faults are all seen for as long as they last, but for the first `times` of
    one kind, which are seen for a tenth of it."""
    began: dict[int, int] = {}
    missed = itertools.count()
    events: list[Op] = []
    context = Context.initial(1, nemesis=True)
    now_ns = 0
    while True:
        op, following = source.step(replace(context, time_ns=now_ns))
        if op is None or following is None:
            return events
        source = following
        if isinstance(op, Pending):
            assert op.until_ns is not None
            now_ns = op.until_ns
            continue
        number, step = op.value["instance"], op.value["step"]
        began.setdefault(number, now_ns)
        told = {**op.value, "observed": True}
        if step == "end":
            share = 0.1 if op.value["fault"] == kind and next(missed) < times else 1.0
            told["spans"] = [[began[number], began[number] + int(share * (now_ns - began[number]))]]
        for event in (op, op.complete("info", value=told, time=now_ns)):
            source = source.update(replace(context, time_ns=now_ns), event)
            events.append(event)


def test_looks_that_take_long_cost_no_drawn_kind_its_first_turn() -> None:
    """Seed 54 of a swarm of 20 s: looking at packets took five seconds, and the disk never had its turn."""

    def looks(op: Op, number: int) -> tuple[int, OpType]:
        return (5 * SECOND_NS // 2 if op.value["fault"] == "packets" else SECOND_NS // 10), "info"

    kinds = ["stop", "packets(every=6s,for=3.7s)", "hung-disk(every=8.8s,for=2.6s)"]
    for seed in range(20):
        options = NemesisOptions(time_limit_s=20.0, drawn=True)
        made = package(kinds, FakeDatabase(), FakeEnvironment(), options, Random(seed))
        events = simulate(time_limit(20.0, made.generator), nemesis=True, latency=looks)
        ended = {each.value["fault"] for each in events if each.type == "invoke" and each.value["step"] == "end"}
        assert ended == {"stop", "packets", "hung-disk"}


@pytest.mark.parametrize(("core", "observed", "lasts"), [(True, True, 1), (True, False, 3), (False, None, 3)])
def test_an_episode_is_extended_until_its_core_was_seen(core: bool, observed: bool | None, lasts: int) -> None:
    begun = Op("invoke", -1, "step", value={"fault": "x"}, time=0)
    told = {"fault": "x", "core": core, "observed": observed}
    steps = Steps((Timed(0.0, begun, repeat_s=1.0, extend_s=2.0),))
    context = Context.initial(1, nemesis=True)
    steps = steps.step(context)[1].after(begun.complete("info", value=told, time=SECOND_NS // 2))
    asked = [
        isinstance(steps.step(replace(context, time_ns=ns))[0], Op)
        for ns in range(SECOND_NS // 2, 4 * SECOND_NS, SECOND_NS // 10)
    ]
    assert asked.count(True) == 10 * lasts - 5


@pytest.mark.parametrize(
    ("kinds", "drawn", "failover_s", "lasts_s"),
    [
        (["stale-lease"], False, 4.0, 20.0),
        (["stale-lease"], False, 18.0, 36.0),
        (["stale-lease", "kill"], False, 18.0, 0.0),
        (["stale-lease", "kill"], True, 4.0, 10.0),
        (["stale-lease", "kill"], True, 18.0, 18.0),
    ],
)
def test_an_extension_is_as_long_as_fail_overs_are(
    kinds: list[str], drawn: bool, failover_s: float, lasts_s: float
) -> None:
    """In far regions `stale-lease` was never observed within 30 s: its leader was to be one for 12 s (seed 106)."""

    class Slow(FakeDatabase):
        @property
        def failover_s(self) -> float:
            return failover_s

    options = NemesisOptions(time_limit_s=40.0, drawn=drawn)
    slow = Slow(capabilities=FakeDatabase().capabilities | {"failover"})
    schedule = package(kinds, slow, FakeEnvironment(), options, Random(1)).generator
    assert isinstance(schedule, Schedule)
    items = plan_cycle(schedule.kinds, schedule.pace, 1, 0, (0,) * len(kinds)).items
    assert [item.extend_s for item in items if item.repeat_s is not None] == [lasts_s]


@settings(deadline=None)
@given(names, st.integers(0, 2**32))
def test_faults_begin_before_they_end_and_never_overlap_with_their_own_kind(kinds: list[str], seed: int) -> None:
    active: dict[int, str] = {}
    for op in steps(kinds, seed, 120.0):
        fault, instance, step = op.value["fault"], op.value["instance"], op.value["step"]
        if step == "begin":
            assert fault not in active.values()
            assert instance not in active
            active[instance] = fault
        else:
            assert active[instance] == fault
            if step == "end":
                del active[instance]
    assert len(active) <= 2


@settings(deadline=None)
@given(names, st.integers(0, 2**32), st.floats(1, 10))
def test_there_is_quiet_time_before_each_cycle(kinds: list[str], seed: int, interval_s: float) -> None:
    active, last_end_ns, first = 0, 0, len(kinds)
    for op in steps(kinds, seed, 200.0, interval_s):
        if op.value["step"] == "begin":
            if active == 0 and first <= 0:
                assert op.time - last_end_ns >= 0.45 * interval_s * SECOND_NS
            active, first = active + 1, first - 1
        elif op.value["step"] == "end":
            active, last_end_ns = active - 1, op.time


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_every_variant_of_a_kind_comes_before_any_comes_again(seed: int) -> None:
    begun = [op.value["variant"] for op in steps(["partition"], seed, 300.0) if op.value["step"] == "begin"]
    size = len(set(begun))
    assert size > 5
    assert begun[0] == "leaseholder"
    for start in range(0, len(begun) - size + 1, size):
        assert len(set(begun[start : start + size])) == size


@settings(deadline=None)
@given(names, st.integers(0, 2**32))
def test_the_same_seed_is_the_same_schedule(kinds: list[str], seed: int) -> None:
    assert steps(kinds, seed, 60.0) == steps(kinds, seed, 60.0)


def test_scripts_take_steps_until_their_episode_is_over() -> None:
    ops = [op.value["step"] for op in steps(["power-cut"], 1, 60.0)]
    episode = ops[: ops.index("end") + 1]
    assert episode[0] == "begin"
    assert episode[1:-1] == ["step"] * (len(episode) - 2)
    assert len(episode) > 5


@pytest.mark.parametrize(("idle", "waits"), [(True, 0.0), (False, 3.0)])
def test_a_fault_that_found_no_victim_holds_nobody_up(idle: bool, waits: float) -> None:
    own, other = end_op("kill", 0), end_op("pause", 1)
    begun = invoke("kill", value={"instance": 0, "step": "begin", "idle": idle}).complete("info")
    begun = replace(begun, process=NEMESIS_PROCESS)
    assert Steps((Timed(3.0, own),)).after(begun).items[0].wait_s == waits
    assert Steps((Timed(3.0, other), Timed(3.0, own))).after(begun).items[0].wait_s == 3.0, "another one lasts"


def test_a_finished_script_takes_no_further_step() -> None:
    made = package(["power-cut"], FakeDatabase(), FakeEnvironment(), NemesisOptions(), Random(1))
    generator = made.generator
    assert isinstance(generator, Schedule)
    events = simulate(
        time_limit(30.0, generator),
        nemesis=True,
        latency=slow,
    )
    step = next(event for event in events if event.f == "step-power-cut")
    done = step.complete("info", value={**step.value, "finished": True}, time=step.time + 5)
    assert generator.steps.after(done).until_ns is None
    repeating = generator._next_cycle().steps
    following = type(repeating)(repeating.items[1:], 0, 10 * SECOND_NS).after(done)
    assert following.until_ns == done.time


def test_the_final_generator_ends_every_kind() -> None:
    made = package(["kill", "partition"], FakeDatabase(), FakeEnvironment(), NemesisOptions(), Random(1))
    ended = [event for event in simulate(made.final_generator, nemesis=True, latency=slow) if event.type == "invoke"]
    assert [(op.f, op.value["step"], op.value["instance"]) for op in ended] == [
        ("restart", "end", None),
        ("stop-partition", "end", None),
    ]
    assert all(op.process == -1 for op in ended)


def test_no_names_mean_no_faults() -> None:
    made = package(["none"], FakeDatabase(), FakeEnvironment(), NemesisOptions(), Random(1))
    assert made.kinds == ()
    assert simulate(made.generator, nemesis=True) == simulate(made.final_generator, nemesis=True) == []


def test_all_means_every_plain_kind_that_can_be_done_here() -> None:
    database = FakeDatabase(capabilities=frozenset({"pause"}))
    made = package(["all"], database, FakeEnvironment(), NemesisOptions(), Random(1))
    assert made.kinds == ("partition", "pause", "packets")
    assert all("lea" not in variant for kind in made.generator.kinds for variant in kind.variants)


def test_where_no_fault_can_be_made_all_is_refused() -> None:
    """It stood for nothing, and a run without any fault was valid."""
    database, environment = FakeDatabase(capabilities=frozenset()), FakeEnvironment(capabilities=frozenset())
    with pytest.raises(UserError, match="None of the faults that there are can be made here"):
        package(["all"], database, environment, NemesisOptions(), Random(1))


@pytest.mark.parametrize(
    ("kinds", "capabilities", "interval_s", "sentence"),
    [
        (["fire"], {"kill"}, 5.0, r"no nemesis 'fire'; choose from: partition, kill, .*\.$"),
        (["kill"], set(), 5.0, r"'kill' can't be used here: .*kill.*\.$"),
        (["kill(target=leader)"], {"kill", "status"}, 5.0, r"the database has no terms, by which to tell"),
        (["kill(target=leaseholder)"], {"kill", "status", "terms"}, 5.0, r"about the roles of the reference cluster"),
        (["partition"], set(), 0.0, r"interval must lie between .* not 0\.$"),
        (["partition"], set(), float("nan"), r"interval must lie between .* not nan\.$"),
    ],
)
def test_what_can_not_be_is_refused_in_one_sentence(
    kinds: list[str], capabilities: set[str], interval_s: float, sentence: str
) -> None:
    database = FakeDatabase(capabilities=frozenset(capabilities))
    with pytest.raises(UserError, match=sentence):
        package(kinds, database, FakeEnvironment(), NemesisOptions(interval_s), Random(1))


def test_leaders_and_followers_of_any_group_are_hit_where_there_are_no_masters() -> None:
    everywhere = {"kill", "status", "terms"}
    for capabilities, aimed in ((everywhere, True), (everywhere | {"masters"}, False), ({"kill", "status"}, False)):
        database = FakeDatabase(capabilities=frozenset(capabilities))
        schedule = package(["kill"], database, FakeEnvironment(), NemesisOptions(), Random(1)).generator
        assert isinstance(schedule, Schedule)
        assert ({"leader", "follower"} <= set(schedule.kinds[0].variants)) == aimed
        assert ("leaseholder" in schedule.kinds[0].variants) == ("masters" in capabilities)
