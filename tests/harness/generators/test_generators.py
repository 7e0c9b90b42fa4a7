"""Laws of the generator combinators, checked on the histories that a pure driver makes of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.generators import (
    Chance,
    Context,
    Generator,
    Pending,
    Step,
    any_of,
    chain,
    child,
    clients,
    cycle,
    draw,
    each_process,
    filter_ops,
    flip_flop,
    invoke,
    lift,
    limit,
    map_ops,
    mix,
    nemesis,
    on_threads,
    once,
    phases,
    repeat,
    reserve,
    sleep,
    synchronize,
    then,
    until_ok,
    weighted,
)
from harness.generators.core import Source
from harness.generators.simulate import imperfect, perfect, quick, simulate
from harness.history.ops import Op

CONCURRENCY = st.integers(1, 6)
SEEDS = st.integers(0, 2**64 - 1)


def named(name: str, seed: int = 0) -> Generator:
    """An endless stream of operations with this `f`."""
    return draw(seed, lambda context, chance, n: invoke(name, value=n))


def leaves() -> st.SearchStrategy[Source]:
    names = st.sampled_from("abc")
    return st.one_of(names.map(invoke), names.map(named), st.none(), st.floats(0, 1e-7).map(sleep))


def extended(inner: st.SearchStrategy[Source]) -> st.SearchStrategy[Source]:
    """Every combinator around smaller sources; repeats are bounded so that the simulation ends by its limit."""
    return st.one_of(
        st.lists(inner, max_size=3),
        st.builds(limit, st.integers(0, 10), inner),
        st.builds(lambda a, b, seed: mix(seed, a, b), inner, inner, SEEDS),
        st.builds(lambda a, b, seed: weighted(seed, (1, a), (3, b)), inner, inner, SEEDS),
        st.builds(any_of, inner, inner),
        st.builds(flip_flop, inner, inner),
        st.builds(then, inner, inner),
        st.builds(phases, inner, inner),
        st.builds(repeat, inner, st.integers(0, 5)),
        st.builds(cycle, inner, st.integers(0, 4)),
        st.builds(until_ok, inner),
        st.builds(each_process, inner),
        st.builds(clients, inner),
        st.builds(lambda a, b: reserve((1, a), default=b), inner, inner),
        st.builds(lambda a: filter_ops(lambda op: op.f != "a", limit(20, a)), inner),
        st.builds(lambda a: map_ops(lambda op: op.complete("invoke", session=1), a), inner),
    )


SOURCES = st.recursive(leaves(), extended, max_leaves=6)


class Checked:
    """A generator that is asked everything twice, and must answer the same; what it gives must be a free process's."""

    def __init__(self, inner: Generator) -> None:
        self._inner = inner

    def step(self, context: Context) -> Step:
        op, after = self._inner.step(context)
        again, after_again = self._inner.step(context)
        assert (op, after) == (again, after_again)
        if isinstance(op, Op):
            assert op.type == "invoke"
            assert op.time == context.time_ns
            assert context.free >> context.bit_of(op.process) & 1
            assert context.process_at(context.bit_of(op.process)) == op.process
        if isinstance(op, Pending):
            assert after is not None
            assert op.until_ns is None or op.until_ns > context.time_ns
        return op, after and Checked(after)

    def update(self, context: Context, event: Op) -> Generator:
        return Checked(self._inner.update(context, event))


def invocations(events: list[Op]) -> list[Op]:
    return [event for event in events if event.type == "invoke"]


def fs(events: list[Op]) -> list[str]:
    return [event.f for event in invocations(events)]


@given(source=SOURCES, concurrency=CONCURRENCY, with_nemesis=st.booleans())
def test_any_generator_is_pure_and_gives_work_to_free_processes_only(
    source: Source, concurrency: int, with_nemesis: bool
) -> None:
    checked = Checked(lift(source))
    events = simulate(checked, concurrency=concurrency, nemesis=with_nemesis, latency=imperfect, max_ops=60)
    plain = simulate(source, concurrency=concurrency, nemesis=with_nemesis, latency=imperfect, max_ops=60)
    assert events == plain
    times = [event.time for event in events]
    assert times == sorted(times)
    flying = 0
    for event in events:
        flying += 1 if event.type == "invoke" else -1
        assert 0 <= flying <= concurrency + with_nemesis
    assert flying == 0


@given(count=st.integers(0, 40), concurrency=CONCURRENCY)
def test_limit_of_an_endless_source_yields_exactly_that_many(count: int, concurrency: int) -> None:
    assert len(fs(simulate(limit(count, named("a")), concurrency=concurrency, latency=imperfect))) == count


@given(source=SOURCES, count=st.integers(0, 20))
def test_limit_of_any_source_yields_at_most_that_many(source: Source, count: int) -> None:
    assert len(fs(simulate(limit(count, source), max_ops=60))) <= count


@given(seed=SEEDS, count=st.integers(0, 60), concurrency=CONCURRENCY)
def test_mix_yields_all_of_its_parts_and_nothing_else(seed: int, count: int, concurrency: int) -> None:
    parts = [limit(5, named("a")), limit(count, named("b")), once(invoke("c"))]
    assert Counter(fs(simulate(mix(seed, *parts), concurrency=concurrency))) == Counter(a=5, b=count, c=1)


def test_weighted_follows_its_weights() -> None:
    counts = Counter(fs(simulate(limit(4000, weighted(7, (1, named("a")), (3, named("b")))), latency=quick)))
    assert 0.7 < counts["b"] / 4000 < 0.8


def test_weights_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        weighted(1, (0, named("a")))


@given(sizes=st.lists(st.integers(0, 6), max_size=4), concurrency=CONCURRENCY)
def test_phases_begin_when_everyone_has_finished_the_one_before(sizes: list[int], concurrency: int) -> None:
    source = phases(*(limit(size, named(str(number))) for number, size in enumerate(sizes)))
    events = simulate(source, concurrency=concurrency, latency=imperfect)
    assert fs(events) == [str(number) for number, size in enumerate(sizes) for _ in range(size)]
    seen = [int(event.f) for event in events]
    assert seen == sorted(seen), "an event of a phase came after one of the next"


def test_then_waits_and_chain_does_not() -> None:
    slow_first = lambda op, n: (100 if n == 0 else 10, "ok")  # noqa: E731
    waits = simulate(then(limit(2, named("a")), invoke("b")), latency=slow_first)
    assert next(event.time for event in waits if event.f == "b") == 100
    goes_on = simulate(chain(limit(2, named("a")), invoke("b")), latency=slow_first)
    assert next(event.time for event in goes_on if event.f == "b") == 10


def test_synchronize_waits_for_all_threads_in_scope_only() -> None:
    source = any_of(nemesis(repeat(invoke("fault"), 3)), clients(synchronize(limit(2, named("a")))))
    events = simulate(source, nemesis=True, latency=lambda op, n: (1000, "info") if op.process < 0 else (10, "ok"))
    assert [event.time for event in invocations(events) if event.f == "a"] == [0, 0]


@given(copies=st.integers(1, 4), concurrency=CONCURRENCY)
def test_each_process_gets_a_copy(copies: int, concurrency: int) -> None:
    events = simulate(each_process(limit(copies, named("a"))), concurrency=concurrency)
    assert Counter(event.process for event in invocations(events)) == dict.fromkeys(range(concurrency), copies)


def test_each_process_gives_a_new_process_a_new_copy() -> None:
    latency = lambda op, n: (10, "info" if n < 2 else "ok")  # noqa: E731
    events = simulate(each_process([invoke("a"), invoke("b")]), concurrency=1, latency=latency)
    assert [(event.process, event.f) for event in invocations(events)] == [(0, "a"), (1, "a"), (2, "a"), (2, "b")]


def test_reserve_gives_threads_their_own_work() -> None:
    source = reserve((2, limit(20, named("a"))), (1, limit(20, named("b"))), default=limit(20, named("c")))
    for event in invocations(simulate(source, concurrency=6, latency=imperfect)):
        thread = event.process % 6
        assert event.f == ("a" if thread < 2 else "b" if thread < 3 else "c")


def test_on_threads_sees_only_its_own_events() -> None:
    """A generator on thread 0 that waits for an ok must not be ended by thread 1's."""
    source = any_of(on_threads([0], until_ok(limit(5, named("a")))), on_threads([1], limit(1, named("b"))))
    latency = lambda op, n: (10, "ok" if op.f == "b" else "fail")  # noqa: E731
    assert Counter(fs(simulate(source, latency=latency))) == Counter(a=5, b=1)


class Witness:
    """An endless stream that notes the `f` of every event it is shown."""

    def __init__(self, f: str, seen: set[str]) -> None:
        self._inner, self._seen = named(f), seen

    def step(self, context: Context) -> Step:
        op, _ = self._inner.step(context)
        return op, self

    def update(self, context: Context, event: Op) -> Generator:
        self._seen.add(event.f)
        return self


def test_events_go_to_the_generator_whose_threads_they_are_of() -> None:
    seen: dict[str, set[str]] = {name: set() for name in "abcx"}
    a, b, c, x = (Witness(name, seen[name]) for name in "abcx")
    source = limit(60, any_of(nemesis(x), reserve((1, a), (1, b), default=c)))
    simulate(source, concurrency=4, nemesis=True, latency=imperfect)
    assert seen == {name: {name} for name in "abcx"}


def test_each_process_is_shown_its_own_events() -> None:
    """A copy is ended by the first success of its own process, not by another's."""
    latency = lambda op, n: (10, "ok" if op.process == 0 else "fail")  # noqa: E731
    events = simulate(each_process(until_ok(limit(4, named("a")))), concurrency=3, latency=latency)
    assert Counter(event.process for event in invocations(events)) == {0: 1, 1: 4, 2: 4}


def test_any_of_gives_everyone_a_turn() -> None:
    source = limit(30, any_of(named("a"), named("b"), limit(2, named("c"))))
    assert Counter(fs(simulate(source, latency=quick))) == Counter(a=14, b=14, c=2)


def test_until_ok_is_not_ended_by_the_success_of_another() -> None:
    latency = lambda op, n: (10, "ok" if op.f == "b" else "fail")  # noqa: E731
    events = simulate(any_of(until_ok(limit(5, named("a"))), limit(2, named("b"))), latency=latency)
    assert Counter(fs(events)) == Counter(a=5, b=2)


def test_clients_and_nemesis_keep_to_their_threads() -> None:
    source = any_of(clients(limit(30, named("work"))), nemesis(limit(5, named("fault"))))
    for event in simulate(source, concurrency=3, nemesis=True, latency=imperfect):
        assert (event.process < 0) == (event.f == "fault")


@given(a=st.integers(0, 6), b=st.integers(0, 6))
def test_flip_flop_alternates_until_one_is_exhausted(a: int, b: int) -> None:
    found = fs(simulate(flip_flop(limit(a, named("a")), limit(b, named("b"))), latency=imperfect))
    expected = [("a", "b")[number % 2] for number in range(2 * min(a, b) + (1 if a > b else 0))]
    assert found == expected


@given(failures=st.integers(0, 20))
def test_until_ok_ends_with_the_first_success(failures: int) -> None:
    latency = lambda op, n: (10, "ok" if n == failures else "fail" if n % 2 else "info")  # noqa: E731
    events = simulate(until_ok(named("a")), concurrency=1, latency=latency)
    assert len(invocations(events)) == failures + 1


@given(times=st.integers(0, 10))
def test_repeat_never_advances_and_cycle_does(times: int) -> None:
    source = [invoke("a"), invoke("b")]
    assert fs(simulate(repeat(source, times))) == ["a"] * times
    assert fs(simulate(cycle(source, times))) == ["a", "b"] * times


def test_cycle_of_nothing_ends() -> None:
    assert simulate(cycle(None)) == []


def test_filter_and_map() -> None:
    source = limit(50, mix(3, named("a"), named("b")))
    only_a = filter_ops(lambda op: op.f == "a", source)
    assert set(fs(simulate(only_a))) == {"a"}
    assert Counter(fs(simulate(source)))["a"] == len(fs(simulate(only_a)))
    renamed = map_ops(lambda op: invoke_like(op, "z"), only_a)
    assert set(fs(simulate(renamed))) == {"z"}


def invoke_like(op: Op, f: str) -> Op:
    return Op("invoke", op.process, f, op.mops, op.value, time=op.time)


def test_a_draw_that_returns_none_ends_the_stream() -> None:
    source = draw(1, lambda context, chance, n: invoke("a", value=n) if n < 7 else None)
    assert [event.value for event in invocations(simulate(source))] == list(range(7))


@given(seed=SEEDS, bound=st.integers(1, 2**40))
def test_draws_depend_on_seed_and_number_only(seed: int, bound: int) -> None:
    first, second = Chance(seed), Chance(seed)
    assert [first.below(bound) for _ in range(5)] == [second.below(bound) for _ in range(5)]
    assert all(0 <= Chance(child(seed, n)).below(bound) < bound for n in range(20))
    assert 0 <= Chance(seed).uniform() < 1


def test_draws_are_spread_evenly() -> None:
    counts = Counter(Chance(child(5, n)).below(10) for n in range(20_000))
    assert all(1700 < counts[value] < 2300 for value in range(10))


def test_work_goes_round_the_threads() -> None:
    found = [event.process for event in invocations(simulate(limit(12, named("a")), concurrency=4, latency=quick))]
    assert found == [0, 1, 2, 3] * 3
    assert len(simulate(limit(3, named("a")), latency=perfect)) == 6
