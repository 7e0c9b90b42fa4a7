"""The register workload: what its clients do, and how its options are checked."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.errors import UserError
from harness.generators import limit
from harness.generators.core import Context
from harness.generators.simulate import simulate
from harness.history.ops import Op
from workloads.api import check_operations, resolve_options
from workloads.register import WORKLOAD, reads_only
from workloads.registry import WORKLOADS, workload

options = st.fixed_dictionaries(
    {
        "keys": st.integers(1, 40),
        "hot": st.integers(1, 10),
        "dwell": st.integers(1, 50),
        "readers": st.floats(0.0, 0.9),
        "reads": st.floats(0.05, 0.9),
        "cas": st.floats(0.05, 0.95),
        "final": st.integers(1, 3),
    }
)


def invocations(given_options: dict[str, object], seed: int, count: int) -> list[Op]:
    generator = WORKLOAD.generator(resolve_options(WORKLOAD, given_options), Random(seed))
    return [event for event in simulate(limit(count, generator), concurrency=5) if event.type == "invoke"]


@settings(deadline=None)
@given(options, st.integers(0, 2**32))
def test_written_values_are_unique_and_keys_in_range(chosen: dict[str, object], seed: int) -> None:
    ops = invocations(chosen, seed, 300)
    written = [op.mops[0].value for op in ops if op.f in ("write", "cas")]
    assert len(set(written)) == len(written)
    assert None not in written
    assert all(0 <= op.mops[0].partition < chosen["keys"] for op in ops)
    assert {op.f: op.mops[0].f for op in ops}.items() <= {"read": "r", "write": "w", "cas": "cas"}.items()


@settings(deadline=None)
@given(options, st.integers(0, 2**32))
def test_the_same_seed_is_the_same_load(chosen: dict[str, object], seed: int) -> None:
    assert invocations(chosen, seed, 100) == invocations(chosen, seed, 100)


def test_every_operation_comes_up_in_its_share() -> None:
    counts = Counter(op.f for op in invocations({"readers": 0.0, "reads": 0.5, "cas": 0.4}, 3, 5_000))
    assert 0.45 < counts["read"] / 5_000 < 0.55
    assert 0.15 < counts["cas"] / 5_000 < 0.25


def test_readers_only_read_and_others_do_it_all() -> None:
    by_process: dict[int, set[str]] = {}
    for op in invocations({"readers": 0.4}, 3, 2_000):
        by_process.setdefault(op.process, set()).add(op.f)
    assert by_process == {2: {"read"}, 4: {"read"}} | {p: {"read", "write", "cas"} for p in (0, 1, 3)}


@pytest.mark.parametrize("clients", [10, 1_000, 10_000])
def test_readers_are_spread_so_that_few_operations_of_many_clients_have_all_kinds(clients: int) -> None:
    for share in (0.1, 0.4, 0.9):
        assert abs(sum(reads_only(bit, share) for bit in range(1, clients + 1)) - share * clients) <= 1
        for begin in range(1, clients, max(1, clients // 7)):
            row = [reads_only(bit, share) for bit in range(begin, begin + 20)]
            assert abs(sum(row) - share * 20) <= 1
    generator = WORKLOAD.generator(resolve_options(WORKLOAD, {}), Random(1))
    counts = Counter(op.f for op in simulate(limit(60, generator), concurrency=clients) if op.type == "invoke")
    assert counts["write"] >= 5 and counts["cas"] >= 5


def test_a_single_client_does_everything() -> None:
    generator = WORKLOAD.generator(resolve_options(WORKLOAD, {}), Random(1))
    assert {op.f for op in simulate(limit(100, generator), concurrency=1)} == {"read", "write", "cas"}


def test_only_a_few_keys_are_hot_at_a_time_and_all_get_their_turn() -> None:
    keys = [op.mops[0].partition for op in invocations({"keys": 20, "hot": 3, "dwell": 10}, 3, 400)]
    assert all(len(set(keys[start : start + 10])) <= 3 for start in range(0, 400, 10))
    assert set(keys) == set(range(20))


def test_most_compare_and_sets_succeed_against_a_register_that_works() -> None:
    generator = WORKLOAD.generator(resolve_options(WORKLOAD, {}), Random(7))
    context = Context.initial(1)
    cells: dict[int, int | None] = {}
    results = []
    for number in range(4_000):
        op, generator = generator.step(replace(context, time_ns=number))
        mop = op.mops[0]
        found = cells.get(mop.partition)
        done = mop.f != "cas" or mop.expected == found
        if mop.f == "cas":
            results.append(done)
        if done and mop.f != "r":
            cells[mop.partition] = mop.value
        answer = replace(mop, value=found) if mop.f == "r" else mop
        generator = generator.update(context, op.complete("ok" if done else "fail", mops=(answer,)))
    assert 0.5 < sum(results) / len(results) < 0.99


def test_final_reads_read_every_key_as_often_as_asked() -> None:
    chosen = resolve_options(WORKLOAD, {"keys": 7, "final": 3})
    events = simulate(WORKLOAD.final_generator(chosen, Random(1)), concurrency=4)
    reads = Counter(event.mops[0].partition for event in events if event.type == "invoke" and event.f == "read")
    assert reads == dict.fromkeys(range(7), 3)


def test_options_are_taken_as_text_and_have_defaults() -> None:
    chosen = resolve_options(WORKLOAD, {"keys": "12", "reads": "0.25"})
    assert (chosen["keys"], chosen["reads"], chosen["hot"]) == (12, 0.25, 4)


@pytest.mark.parametrize(
    ("given_options", "sentence"),
    [
        ({"keys": "0"}, r"'keys' must be a whole number between 1 and 1000000, not '0'\.$"),
        ({"keys": "3.5"}, r"'keys' must be a whole number"),
        ({"reads": "nan"}, r"'reads' must be a number between 0\.01 and 0\.98, not 'nan'\.$"),
        ({"reads": "many"}, r"not 'many'\.$"),
        ({"colour": "red"}, r"no option 'colour'; it has keys, .*\.$"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(given_options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        resolve_options(WORKLOAD, given_options)


def test_unknown_workloads_are_refused_and_known_ones_found() -> None:
    assert all(workload(name).name == name for name in WORKLOADS)
    with pytest.raises(UserError, match=r"no workload 'no-such'; known are register, snapshots"):
        workload("no-such")


def test_a_database_that_lacks_an_operation_is_refused() -> None:
    check_operations(WORKLOAD, "etcd", frozenset({"r", "w", "cas", "append"}))
    with pytest.raises(UserError, match=r"needs cas, which etcd does not offer\.$"):
        check_operations(WORKLOAD, "etcd", frozenset({"r", "w"}))
