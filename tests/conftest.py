"""Which tests are whole runs, which share a Spark session, and that those in containers come first."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.support.few_seeds import EXAMPLES
from tests.support.patience import bear_with_this_machine

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=EXAMPLES
)
settings.register_profile("torture", settings.get_profile("any machine"), max_examples=2_000)
settings.load_profile("any machine")
"""How long an example takes says how busy the machine is. `make torture` has more of them."""


HERE: Final = Path(__file__).parent

PLAYERS: Final = ("world", "twin", "cluster")
"""Fixtures that run a coroutine: a simulated world, real or simulated ports, a cluster in containers."""

WHOLE_RUNS: Final = (
    *("assay/*", "workloads/*", "docker/*", "nemesis/test_nemeses_in_simulator.py"),
    *("cluster/test_*_sim.py", "cluster/test_*_flaws.py", "cluster/*/test_*_sim.py", "cluster/master/test_*_flaws.py"),
)
"""Whose tests run the command, whole clusters or loads: they have the marker `runs`, and `make test-fast` has none."""

THOUSANDS: Final = (
    *("checkers/linearizability/*", "checkers/isolation/*", "checkers/snapshots/*", "checkers/sessions/*"),
    *("checkers/transactions/*", "checkers/jepsen/*", "checkers/quorum/*", "checkers/made/*", "checkers/exporters/*"),
    *("checkers/catalog/test_catalog_search.py", "checkers/catalog/test_catalog_injected.py"),
    *("checkers/catalog/test_altered_rows.py", "checkers/engines/test_spark_settings.py"),
    *("checkers/engines/test_threads.py", "checkers/engines/test_breadth.py"),
    *("checkers/importers/test_[dip]*.py", "checkers/test_[cefiro]*.py", "checkers/test_*bound*.py"),
    *(
        "assay/reproduce/test_[ls]*.py",
        "checkers/test_growth.py",
        "cluster/raft/test_raft_walks.py",
        "cluster/test_cluster_determinism.py",
    ),
    *(
        "results/test_*report.py",
        "harness/history/test_quorum_history.py",
        "test_anomaly_docs.py",
        "test_example_exports.py",
    ),
)
"""Whose tests compare thousands of histories with brute force, make large ones, or judge by many models, whose
kernels take a minute to compile: the marker `thousands`."""


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(settings: Any) -> Generator[None, bool, bool]:
    """The limit of each test grows where other processes take the machine's cores."""
    done = yield
    bear_with_this_machine(settings.timeout)
    return done


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine is run by the first of `PLAYERS` that it asks for, else by asyncio."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    player = next((given[name] for name in PLAYERS if name in given), asyncio)
    player.run(pyfuncitem.obj(**given))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Docker's first, then those that share a Spark session: they stay together, so that it starts once, and take long.

    Marks are added before pytest takes the tests that `-m` asks for."""
    for item in items:
        for mark in marks_of(item.path):
            item.add_marker(mark)
        shared = {"spark", "spark_runs", "engines"}.intersection(getattr(item, "fixturenames", ()))
        if shared and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=turn)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of whose tests none is asked for is not read: to rewrite all assertions takes long the first time."""
    unasked = refused(config.option.markexpr or "")
    return True if any(mark.name in unasked for mark in marks_of(collection_path)) else None


def refused(expression: str) -> set[str]:
    """The marks that no test has which `-m` takes, where it says `not a and not b and c`, and not more than that."""
    parts = expression.split(" and ")
    if not all(re.fullmatch(r"(not )?\w+", part) for part in parts):
        return set()
    return {part.removeprefix("not ") for part in parts if part.startswith("not ")}


@cache
def marks_of(file: Path) -> list[pytest.MarkDecorator]:
    place = file.relative_to(HERE)
    said = ((WHOLE_RUNS, pytest.mark.runs), (THOUSANDS, pytest.mark.thousands))
    return [mark for patterns, mark in said if any(place.match(pattern) for pattern in patterns)]


def turn(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    return 0 if item.get_closest_marker("docker") else 1 if group is not None and group.args == ("spark",) else 2
