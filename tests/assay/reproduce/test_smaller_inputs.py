"""What is left out of inputs, pass by pass, where what breaks is a predicate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from assay.options import RunOptions
from assay.reproduce.inputs import Inputs, nodes_of
from assay.reproduce.reduction import Trials, reduced
from assay.reproduce.smaller_inputs import (
    by_clients,
    by_decisions,
    by_end,
    by_faults,
    by_free_chance,
    by_gaps,
    by_keys,
    by_nodes,
    by_operations,
    by_world,
    explicit,
    plain_value,
    size_of,
    times_of,
)
from assay.worlds import WORLD_KEYS, draw_world
from harness.history.ops import Op, read
from nemesis.planned import PlannedFault

SECOND = 1_000_000_000
PASSES = (
    by_free_chance,
    by_end,
    by_faults,
    by_nodes,
    by_world,
    by_clients,
    by_keys,
    by_operations,
    by_decisions,
    by_gaps,
)


def fault(number: int, kind: str, *targets: str) -> PlannedFault:
    begin_ns = (2 * number + 1) * SECOND
    action = {"do": "Kill", "targets": list(targets)}
    return PlannedFault(number, kind, "one", 7, begin_ns, begin_ns + SECOND, action)


def whole() -> Inputs:
    options = RunOptions("register", nemesis=("kill(every=6s)", "pause"), time_limit=20.0, concurrency=6, nodes=7)
    world = draw_world(1, "severity=harsh,loss=0.03,retained-entries=0").line()
    ops = tuple(Op("invoke", n % 6, "read", (read(n % 5),), time=n * SECOND // 10) for n in range(200))
    faults = tuple(fault(n, "kill" if n % 2 else "pause", f"t{n + 1}") for n in range(6))
    decisions = {"link/a>b/log/delay": [0.5] * 9, "link/a>b/log/lost": [0.5] * 9, "disk/t1/fsync": [0.1]}
    made = RunOptions(**{**{f: getattr(options, f) for f in options.__slots__}, "world": world})
    return explicit(Inputs(made, faults, ops, decisions))


def smallest(breaks: Callable[[Inputs], bool]) -> Inputs:
    start = whole()
    assert breaks(start)
    return reduced(start, PASSES, Trials(breaks, Inputs.digest, 1e9))


def test_what_matters_for_nothing_goes() -> None:
    size = size_of(smallest(lambda inputs: True))
    assert size == {
        "faults": 0,
        "operations": 0,
        "clients": 0,
        "nodes": 3,
        "masters": 1,
        "seconds": size["seconds"],
        "world_keys": 0,
        "decisions": 0,
    }
    assert 1.0 <= size["seconds"] < 2.0


NEEDED: Mapping[str, tuple[Callable[[Inputs], bool], Mapping[str, int]]] = {
    "a fault": (lambda each: any(f.instance == 3 for f in each.faults), {"faults": 1, "operations": 0}),
    "a kind twice": (lambda each: sum(f.kind == "kill" for f in each.faults) > 1, {"faults": 2}),
    "a client": (lambda each: sum(op.process == 0 for op in each.operations) > 2, {"clients": 1, "operations": 3}),
    "operations of two keys": (
        lambda each: {mop.partition for op in each.operations for mop in op.mops} >= {1, 4},
        {"operations": 2},
    ),
    "time": (lambda each: each.options.time_limit >= 9, {"faults": 0, "operations": 0}),
    "nodes": (lambda each: each.options.nodes >= 5 and each.options.masters == 3, {"nodes": 5, "masters": 3}),
    "a key of the world": (lambda each: "retained-entries=0" in each.options.world, {"world_keys": 1}),
    "a record": (lambda each: bool(each.decisions.get("link/a>b/log/lost")), {"decisions": 9}),
}


@pytest.mark.parametrize("what", NEEDED)
def test_what_matters_stays_and_nothing_else(what: str) -> None:
    breaks, size = NEEDED[what]
    found = smallest(breaks)
    assert breaks(found)
    assert {name: size_of(found)[name] for name in size} == size
    assert found.options.concurrency == max(1, size_of(found)["clients"])
    assert set(found.options.nemesis) == {each.kind for each in found.faults}


def test_a_fault_of_a_node_that_is_gone_goes_by_its_role() -> None:
    start = whole()
    fewer = by_nodes(start, lambda inputs: inputs.options.masters == 3)
    assert fewer.options.nodes == 3
    assert [f.action is None for f in fewer.faults] == [int(name[1:]) > 3 for f in start.faults for name in nodes_of(f)]


def test_gaps_are_closed_and_the_order_stays() -> None:
    start = whole()
    late = tuple(op for op in start.operations if op.time > 15 * SECOND)
    sparse = Inputs(start.options, start.faults[:1], late)
    closed = by_gaps(sparse, lambda inputs: True)
    times = [op.time for op in closed.operations]
    assert times == sorted(times) and times[0] < 3 * SECOND
    assert all(begin <= end for f in closed.faults for begin, end in [times_of(f)])
    assert closed.options.time_limit < 8


def test_a_gap_that_has_to_be_long_becomes_as_short_as_halves_go() -> None:
    start = whole()
    apart = Inputs(start.options, (fault(1, "kill", "t1"), fault(8, "pause", "t2")))

    def breaks(inputs: Inputs) -> bool:
        first, second = inputs.faults
        return second.begin_ns - first.begin_ns >= 3 * SECOND

    closed = by_gaps(apart, breaks)
    assert breaks(closed)
    assert closed.faults[0].begin_ns == SECOND * 3 // 10
    assert closed.faults[1].begin_ns - closed.faults[0].begin_ns < 6 * SECOND
    assert by_gaps(closed, breaks) == closed


def test_plain_values_are_values() -> None:
    for name, key in WORLD_KEYS.items():
        assert key.values.parse(str(plain_value(name))) == plain_value(name)
