"""Every number by which a checker bounds its work or memory, or cuts what it shows: with it at its least no worked
example of an anomaly becomes valid. One that is not in these lists fails a test, so that none comes unseen."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from frames_in_memory import engine_in_memory

import checkers
from checkers.api import judge_source
from checkers.engines import spark as engine_of_spark
from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.made.examples import Example, groups, open_example
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.transactions.stages.time_segments import Sizes
from checkers.verdict import Validity
from harness.errors import UserError

HERE = Path(checkers.__file__).parent
TASKS = "in tasks"


class Least(NamedTuple):
    """A bound at its least: its package and name, and whether it matters in tasks only."""

    place: str
    value: Any
    where: str = ""


BOUNDS = (
    Least("catalog:_STEPS_PER_S", 0),
    Least("catalog:_STATES_SHOWN", 0),
    Least("catalog:PIN_AFTER", 0),
    Least("catalog:PINS", 0),
    Least("catalog:PIN_WORK_SHARE", 0.0),
    Least("catalog:MOST_OVERLAPPING", -1),
    Least("catalog:PAST", 0),
    Least("catalog:RECENT", 1),
    Least("columns:_PLACES", 1),
    Least("engines:_ROWS_PER_CALL", 1),
    Least("explain:_MOST_SHOWN", 1),
    Least("findings:_MOST_KEPT", 1),
    Least("isolation:_CYCLES", 0),
    Least("jepsen:_MOST_TOTALS", 1),
    Least("jepsen:MOST_SUMS", 0, TASKS),
    Least("jepsen:_ROWS_PER_RANGE", 1, TASKS),
    Least("jepsen:_MOST_RANGES", 1, TASKS),
    Least("jepsen:_MOST_COUNTERS", 0, TASKS),
    Least("jepsen:_MOST_BITS", 0),
    Least("jepsen:_MOST_SETS", 0, TASKS),
    Least("jepsen:_ITEMS_PER_SHARE", 1, TASKS),
    Least("jepsen:_LEAST_SHOWN", 1, TASKS),
    Least("linearizability:_SHOWN", 0),
    Least("linearizability:_MOST_ELEMENTS", 0),
    Least("linearizability:MOST_SLOTS", 0),
    Least("linearizability:_MOST_WORK", 1),
    Least("linearizability:_MOST_PAIRS", 0),
    Least("quorum:_MOST_OPS", 2),
    Least("quorum:MOST_TOUCHES", 0),
    Least("quorum:MOST_CELLS", 0),
    Least("quorum:MOST_READS", 1),
    Least("sessions:_PAIRS_AT_ONCE", 64),
    Least("sessions:_LONGEST", 2),
    Least("snapshots:EVENTS_PER_RANGE", 1, TASKS),
    Least("snapshots:_MOST_RANGES", 1, TASKS),
    Least("transactions:_MOST_STEPS", 2),
    Least("transactions:_MOST_WORK", -1),
    Least("transactions:_FEW", 0),
    Least("transactions:_MANY", 1),
    Least("transactions:_SHOWN", 6),
    Least("transactions:_ROUNDS", 0, TASKS),
    Least("transactions:SIZES", Sizes(1, 1, 1, 1, 1), TASKS),
    Least("transactions:_ROWS_PER_BUCKET", 1, TASKS),
    Least("transactions:_ROWS_PER_PIECE", 1, TASKS),
    Least("transactions:_LONG", 0, TASKS),
)

HARMLESS = {
    "catalog:DDL_BUDGET_S": "a limit that the user may set, of what is late: a longer one is another question",
    "catalog:ROWS_EXPANDED": "what a task plans for: what does not fit is left out, and makes the verdict unknown",
    "transactions:_EDGE_BYTES": "what a task plans for: what does not fit is not searched, so it is unknown",
    "transactions:_PLACED_BYTES": "the same",
    "columns:_PAGE_BITS": "whether values are numbered by pages or by sorting",
    "columns:OPS_PER_INSTANCE": "the width of a row of what is shown; anomalies are counted beside it",
    "api:_BYTES_PER_OPERATION": "chooses the engine, and both give one verdict",
    "importers:_MOST_BYTES": "a longer text is refused",
    "importers:MOST_DEPTH": "deeper values are refused",
    "importers:_MOST_DIGITS": "longer integers are read another way",
    "importers:_MOST_NAMES": "a history with more is refused",
    "importers:_MOST_SMALL": "larger addresses are interned",
    "importers:IN_MEMORY_BYTES": "a longer text is read from disk",
    "jepsen:_MOST_BYTES": "test_bounds.py: a longer line is unknown",
    "jepsen:_OVERLAP": "the same",
    "jepsen:_MOST_SHOWN": "how much of a line is shown",
    "jepsen:_LEAST_SHOWN_NS": "how a latency is told",
    "linearizability:_NAMED": "words",
    "linearizability:_CORE": "words",
    "linearizability:_NAMED_IN_STATE": "words",
    "linearizability:_MOST_MISSING": "past it a history of etcd is unknown",
    "linearizability:_MOST_STEPS": "the same",
    "linearizability:_MOST_STATES": "past it a model of one's own is unknown",
    "transactions:_BYTES_PER_EDGE": "what a search for orders plans for: past its memory it is unknown",
    "transactions:_MOST_PAIRS": "past it the search is not cut into parts",
    "transactions:_MOST": "how many edges are explained",
    "transactions:_MOST_CYCLES": "words",
    "transactions:_TOLD": "words",
    "linearizability:FIRST_BEAM": "in a kernel: a beam that loses is widened, the last loses nothing",
    "linearizability:WIDER": "the same",
    "linearizability:WIDEST_BEAM": "the same",
    "linearizability:PAST": "the same",
    "linearizability:_SHARE": "past its share of the memory a search waits for its turn, and then has all of it",
    "linearizability:KEPT": "the same: marks of where a search goes back to",
    "removal:_MOST_SUMMED": "whether operations may be left out together; a result is always judged again",
    "sessions:_LARGE": "in a kernel: from which size on rows are found by bisection",
    "transactions:STATES": "in a kernel: how many states a walk has, all of them",
    "transactions:_SPAN": "how far windows reach; what is longer is loose, and searched elsewhere",
}
"""What can't be made less for a test, or not be less, and why it hides nothing."""

PARALLEL = re.compile(r"(engines:.*|importers:.*|transactions:_(ROWS|BATCH|FEW)_.*)$")
"""How work is dealt to tasks, or read in blocks: `tests/checkers/engines` and `test_growth.py` judge in one as in many,
and what a task leaves out makes a verdict unknown (`test_bounds.py`)."""

WORDS = re.compile(
    "MOST|LIMIT|FEW|MANY|LONG|LARGE|PAST|PINS|PIN_|RECENT|CYCLES|SHOWN|TOLD|KEPT|BITS|ROUNDS|SLOTS|WORK|PLACES|WIDE|BEAM"
    "|OVERLAP$|PAIRS|SLICE|BUDGET|STATES|ROWS|BYTES|STEPS|DEPTH|SPAN|CORE|NAMED|CELLS$|PER_|SHARE|LEAST|STRIDE"
)


def bounds_of(path: Path) -> Iterator[str]:
    """The constants of a module that are numbers and called like bounds, behind the package's name."""
    package = path.relative_to(HERE).with_suffix("").parts[0]
    for node in ast.parse(path.read_text()).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        if isinstance(target, ast.Name) and WORDS.search(target.id) and _is_bound(node.value):  # type: ignore[attr-defined]
            yield f"{package}:{target.id}"


def _is_bound(value: ast.expr | None) -> bool:
    if isinstance(value, ast.BinOp):
        return _is_bound(value.left) or _is_bound(value.right)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float) and value.value > 3


def test_every_bound_is_in_a_list() -> None:
    known = {least.place for least in BOUNDS} | HARMLESS.keys()
    paths = [path for path in sorted(HERE.rglob("*.py")) if path.parent.name not in ("made", "exporters")]
    found = {name for path in paths for name in bounds_of(path)}
    assert len(found) > 60
    assert sorted(name for name in found - known if not PARALLEL.match(name)) == []


def verdict_on(example: Example, engine: Engine) -> Validity:
    """The verdict on an example; one that is refused is not valid either."""
    settings = dict(setting.split("=", 1) for setting in example.settings)
    options = CheckOptions(consistency=example.consistency, settings=settings)
    try:
        return judge_source(open_example(example.path), example.model, engine, options).valid
    except UserError:
        return "unknown"


JUDGED_BESIDE = {"quorum": ("quorum.", "sessions.", "jepsen.convergence")}
"""Quorum tables are judged by models that judge other tables too."""


@cache
def examples(family: str) -> tuple[Example, ...]:
    """The examples that models of a package refute; of a package without models one of each model."""
    every = [each for group in groups() for each in group.examples if each.path.suffix != ".log"]
    families = JUDGED_BESIDE.get(family, (f"{family}.",))
    one_each = list({each.model: each for each in every}.values())
    mine = [each for each in every if MODELS[each.model].function.startswith(families)] or one_each
    return tuple(each for each in mine if verdict_on(each, LocalEngine()) is False)


def modules(package: str) -> list[ModuleType]:
    """A package with all that is in it, or a module."""
    first = importlib.import_module(f"checkers.{package}")
    inside = pkgutil.walk_packages(getattr(first, "__path__", ()), f"checkers.{package}.")
    return [first, *(importlib.import_module(each.name) for each in inside)]


@pytest.mark.parametrize("least", BOUNDS, ids=lambda least: least.place)
def test_no_bound_makes_an_anomaly_valid(least: Least, monkeypatch: pytest.MonkeyPatch) -> None:
    package, name = least.place.split(":")
    refuted = examples(package)
    assert len(refuted) > 4
    engine: Engine = LocalEngine()
    if least.where == TASKS:
        monkeypatch.setattr(engine_of_spark, "_FEW_ROWS", 0)
        engine = engine_in_memory(monkeypatch)
    bounded = [module for module in modules(package) if hasattr(module, name)]
    assert bounded
    for module in bounded:
        monkeypatch.setattr(module, name, least.value)
    assert [each.anomaly for each in refuted if verdict_on(each, engine) is True] == []
