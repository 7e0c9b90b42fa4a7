"""Rates, pauses, deadlines and keys: generators that depend on time or popularity."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.generators import (
    Context,
    Generator,
    Source,
    Step,
    any_of,
    chain,
    clients,
    cycle_times,
    delay,
    draw,
    invoke,
    keyed_concurrent,
    keyed_sequential,
    keyed_zipf,
    limit,
    nemesis,
    once,
    sleep,
    stagger,
    time_limit,
    until_ok,
)
from harness.generators.simulate import imperfect, quick, simulate
from harness.history.ops import Op, read
from tests.support.few_seeds import few_examples

MILLISECOND_NS = 1_000_000
SEEDS = st.integers(0, 2**64 - 1)


def named(name: str) -> Generator:
    return draw(0, lambda context, chance, n: invoke(name, value=n))


def for_key(count: int, name: str = "read"):  # type: ignore[no-untyped-def]
    """Makes `count` operations for a key."""

    def make(key: int) -> Source:
        return limit(count, draw(key, lambda context, chance, n: invoke(name, read(key), value=n)))

    return make


def invocations(events: list[Op]) -> list[Op]:
    return [event for event in events if event.type == "invoke"]


def slow(op: Op, number: int) -> tuple[int, str]:
    """1 to 3 ms, ending ok, info, fail in turn."""
    taken_ns, type = imperfect(op, number)
    return taken_ns * MILLISECOND_NS // 10, type


@few_examples(30)
@given(seed=SEEDS, rate_hz=st.floats(50, 5000), seconds=st.floats(0.5, 3))
def test_stagger_keeps_the_total_rate(seed: int, rate_hz: float, seconds: float) -> None:
    source = time_limit(seconds, stagger(seed, rate_hz, named("a")))
    events = invocations(simulate(source, concurrency=50, latency=slow, max_ops=20_000))
    expected = rate_hz * seconds
    assert abs(len(events) - expected) <= 5 * expected**0.5 + 2


@few_examples(20)
@given(seed=SEEDS, stall_s=st.floats(0.2, 5))
def test_a_stall_is_not_followed_by_a_burst(seed: int, stall_s: float) -> None:
    rate_hz = 100.0
    latency = lambda op, n: (round(stall_s * 1e9) if n == 0 else 0, "ok")  # noqa: E731
    events = invocations(simulate(limit(200, stagger(seed, rate_hz, named("a"))), concurrency=1, latency=latency))
    resumed_ns = events[1].time
    soon_after = [event for event in events if resumed_ns <= event.time < resumed_ns + 100 * MILLISECOND_NS]
    assert len(soon_after) <= 40


@settings(deadline=None)
@given(seconds=st.floats(0.001, 2), seed=SEEDS)
def test_nothing_begins_after_a_time_limit(seconds: float, seed: int) -> None:
    events = simulate(time_limit(seconds, stagger(seed, 200, named("a"))), latency=slow)
    assert all(event.time < seconds * 1e9 for event in invocations(events))
    assert len(events) % 2 == 0, "what was in flight completed"


def test_a_time_limit_counts_from_its_own_beginning() -> None:
    source = chain(sleep(1), time_limit(0.5, delay(0.1, named("a"))), invoke("b"))
    events = invocations(simulate(source, latency=quick))
    times_s = [event.time / 1e9 for event in events]
    assert times_s == pytest.approx([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    assert events[-1].f == "b"


def test_a_time_limit_ends_a_source_that_waits_for_an_event() -> None:
    source = chain(time_limit(0.5, clients(chain(invoke("a"), sleep(9)))), invoke("b"))
    assert [(event.f, event.time) for event in invocations(simulate(source))] == [("a", 0), ("b", 500_000_000)]


def test_delay_keeps_operations_apart() -> None:
    times = [event.time for event in invocations(simulate(limit(20, delay(0.01, named("a"))), latency=slow))]
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) == 10 * MILLISECOND_NS


def test_one_source_sleeps_while_another_works() -> None:
    source = any_of(clients(limit(5, delay(0.1, named("a")))), nemesis([sleep(0.25), invoke("kill")]))
    found = [(event.f, event.time // MILLISECOND_NS) for event in invocations(simulate(source, nemesis=True))]
    assert found == [("a", 0), ("a", 100), ("a", 200), ("kill", 250), ("a", 300), ("a", 400)]


def test_cycle_times_has_quiet_periods_and_keeps_state() -> None:
    source = cycle_times((1, delay(0.4, named("a"))), (1, None), (0.5, delay(0.4, named("b"))))
    events = invocations(simulate(limit(12, source), latency=quick))
    for event in events:
        within_s = event.time / 1e9 % 2.5
        assert within_s < 1 if event.f == "a" else 2 <= within_s < 2.5
    values = {f: [event.value for event in events if event.f == f] for f in "ab"}
    assert values["a"] == list(range(len(values["a"])))
    assert values["b"] == list(range(len(values["b"])))
    assert Counter(event.f for event in events)["b"] >= 2


def test_cycle_times_ends_with_its_last_source() -> None:
    assert len(invocations(simulate(cycle_times((1, limit(2, named("a"))), (1, None))))) == 2
    assert simulate(cycle_times((1, None))) == []


@pytest.mark.parametrize("wrong", [lambda: stagger(1, 0, None), lambda: cycle_times((0, None))])
def test_nonsense_is_refused(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="positive"):
        wrong()


@given(keys=st.integers(0, 6), count=st.integers(0, 5), concurrency=st.integers(1, 5))
def test_sequential_keys_come_one_after_the_other(keys: int, count: int, concurrency: int) -> None:
    events = simulate(keyed_sequential(range(keys), for_key(count)), concurrency=concurrency, latency=imperfect)
    found = [event.mops[0].partition for event in invocations(events)]
    assert found == [key for key in range(keys) for _ in range(count)]


@given(keys=st.integers(0, 9), count=st.integers(1, 5), width=st.integers(1, 3), groups=st.integers(1, 3))
def test_concurrent_keys_belong_to_one_group_of_threads_each(keys: int, count: int, width: int, groups: int) -> None:
    concurrency = width * groups
    source = keyed_concurrent(width, range(keys), for_key(count))
    events = simulate(source, concurrency=concurrency, latency=lambda op, n: (10, "ok"))
    owners: dict[int, set[int]] = {}
    for event in invocations(events):
        owners.setdefault(event.mops[0].partition, set()).add(event.process % concurrency // width)
    assert Counter(event.mops[0].partition for event in invocations(events)) == dict.fromkeys(range(keys), count)
    assert all(len(groups_of_key) == 1 for groups_of_key in owners.values())
    if count >= 2 * width:
        assert len(set().union(*owners.values())) == min(keys, groups), "a group with nothing to do took no key"


def test_concurrent_keys_take_events_to_their_own_key() -> None:
    """Each key's work ends with its own first success, not with another group's."""

    def make(key: int) -> Source:
        return until_ok(limit(4, for_key(9)(key)))

    latency = lambda op, n: (10, "ok" if op.mops[0].partition == 0 else "fail")  # noqa: E731
    counts = Counter(
        event.mops[0].partition
        for event in invocations(simulate(keyed_concurrent(1, range(3), make), concurrency=3, latency=latency))
    )
    assert counts == Counter({0: 1, 1: 4, 2: 4})


@few_examples(30)
@given(seed=SEEDS, keys=st.integers(1, 200), count=st.integers(1, 4), exponent=st.floats(0, 2))
def test_popular_keys_yield_all_the_work_of_every_key(seed: int, keys: int, count: int, exponent: float) -> None:
    events = simulate(keyed_zipf(seed, range(keys), exponent, for_key(count)), latency=imperfect)
    by_key: dict[int, list[int]] = {}
    for event in invocations(events):
        by_key.setdefault(event.mops[0].partition, []).append(event.value)
    assert by_key == {key: list(range(count)) for key in by_key}
    assert len(by_key) == keys


def test_popularity_follows_zipf() -> None:
    source = limit(8000, keyed_zipf(11, range(1000), 1.0, for_key(10_000)))
    counts = Counter(event.mops[0].partition for event in invocations(simulate(source, latency=quick)))
    assert counts[0] == pytest.approx(2 * counts[1], rel=0.25)
    assert counts[0] == pytest.approx(10 * counts[9], rel=0.5)
    assert counts[0] > 800


class Witness:
    """Endless reads of a key, that note the keys of all events they are shown."""

    def __init__(self, key: int, seen: dict[int, set[int]]) -> None:
        self._key, self._seen = key, seen

    def step(self, context: Context) -> Step:
        op, _ = once(invoke("read", read(self._key))).step(context)
        return op, self

    def update(self, context: Context, event: Op) -> Generator:
        self._seen.setdefault(self._key, set()).add(event.mops[0].partition)
        return self


@pytest.mark.parametrize(
    "keyed",
    [lambda make: keyed_zipf(1, range(5), 0.5, make), lambda make: keyed_concurrent(2, range(5), make)],
    ids=["zipf", "concurrent"],
)
def test_events_go_to_the_key_they_are_of(keyed) -> None:  # type: ignore[no-untyped-def]
    seen: dict[int, set[int]] = {}
    simulate(limit(80, keyed(lambda key: Witness(key, seen))), concurrency=10, latency=imperfect)
    assert seen == {key: {key} for key in range(5)}


def test_popular_keys_take_events_to_their_own_key() -> None:
    def make(key: int) -> Source:
        return until_ok(for_key(6)(key))

    latency = lambda op, n: (10, "ok" if op.mops[0].partition == 0 else "fail")  # noqa: E731
    source = keyed_zipf(1, range(4), 0.0, make)
    counts = Counter(event.mops[0].partition for event in invocations(simulate(source, concurrency=1, latency=latency)))
    assert counts == Counter({0: 1, 1: 6, 2: 6, 3: 6})
