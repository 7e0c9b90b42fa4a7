"""Mutants: what the operators make, planting one, and where a campaign says that one was lost (`tests.support`)."""

from __future__ import annotations

import ast
import os
from functools import partial

import pytest

from assay.options import RunOptions
from assay.runner import RunResult
from cluster.raft import membership
from tests.support import mutants, mutation
from tests.support.mutants import Twin, fate_of, fitting, in_children
from tests.support.mutation import Site, plant, sites

FILE = "cluster/raft/membership.py"
OPERATORS = {
    "def f(a: int, b: int) -> bool:\n  return a < b": {"comparison-moved", "comparison-flipped", "another-variable"},
    "def f(a):\n  if a: g()": {"condition-negated", "condition-true", "condition-false", "call-dropped"},
    "def f(a):\n  return a and g() or min(a, 2)": {"and-or", "operand-dropped", "min-max", "off-by-one"},
    "async def f(s) -> None:\n  s.a = s.b\n  s.c = s.d\n  await s.g()": {
        *{"statement-dropped", "statements-exchanged", "await-dropped", "not-awaited", "early-return"}
    },
}


@pytest.mark.parametrize("text", OPERATORS)
def test_every_operator_makes_its_change_and_no_other(text: str) -> None:
    (_, function), *_ = mutation._functions(ast.parse(text))
    made = list(mutation._changes(function))
    assert {change.operator for change in made} == OPERATORS[text]


def test_names_are_unique_and_stand_for_the_change() -> None:
    found = sites(FILE)
    assert len({site.name for site in found}) == len(found) > 50
    assert all(1 <= site.first <= site.last for site in found)


def _changed_by(site: Site) -> bool:
    before = membership.changed.__code__
    plant(site)
    return membership.changed.__code__ != before


def test_a_mutant_is_planted_in_its_process_alone() -> None:
    site = next(site for site in sites(FILE) if site.function == "changed")
    before = membership.changed.__code__
    assert dict(in_children([partial(_changed_by, site)], 1)) == {0: True}
    assert membership.changed.__code__ is before


TWIN = Twin("register", {}, 1, "valid", "digest", 10, 1.0, {FILE: [3]})
FATES = {
    "clients": {"overall": "invalid", "anomalies": ("stale-read", "leader-completeness"), "invariants": ("no-panic",)},
    "invariant": {"overall": "invalid", "anomalies": ("lease",), "invariants": ("lease",)},
    "exception or spin": {"overall": "invalid", "anomalies": ("no-panic",), "invariants": ("no-panic",)},
    "liveness": {"overall": "unknown", "why": "vacuous", "trace": "other"},
    "believed": {"overall": "valid", "trace": "other"},
    "nothing changed": {"overall": "valid", "trace": "digest"},
}


@pytest.mark.parametrize("fate", FATES)
def test_a_run_says_by_what_a_mutant_was_found_or_where_it_was_lost(fate: str) -> None:
    assert fate_of(RunResult(RunOptions("register"), **FATES[fate]), TWIN) == fate  # type: ignore[arg-type]


def test_a_child_that_died_and_one_that_spins_are_no_success() -> None:
    stuck = RunResult(RunOptions("register"), "unknown", ("SimulationStuck: the limit of 9 steps",), why="harness")
    assert fate_of(None, TWIN) == fate_of(stuck, TWIN) == "exception or spin"
    assert [answer for _, answer in in_children([partial(_killed)], 1)] == [None]


def _killed() -> None:
    os.kill(os.getpid(), 9)


def test_a_mutant_runs_where_its_statement_ran_and_in_clean_runs_only() -> None:
    site = sites(FILE)[0]
    there = Twin("register", {}, 2, "valid", "d", 10, 1.0, {FILE: list(range(site.first, site.last + 1))})
    unknown = Twin("register", {}, 3, "unknown", "d", 10, 1.0, there.lines)
    assert fitting(site, [TWIN, there, unknown], 20) == [there]


def test_equivalent_mutants_are_there_and_have_a_reason() -> None:
    excused = mutants.equivalent()
    known = {site.name for site in mutation.all_sites()} if excused else set()
    assert all(name in known and len(reason) > 20 for name, reason in excused.items())
