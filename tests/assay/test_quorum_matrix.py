"""What legacy replication keeps and what it breaks, combination by combination (Q2): tears are not made up.

Each line of the table in `docs/design/quorum.md` is a few short runs whose histories are judged by both models. Where a
line says that something breaks, it must be found in one of the seeds; where it says that it holds, in none.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.options import RunOptions
from checkers.api import check_run
from harness.errors import UserError
from harness.facts import read_record
from harness.rundir import RunDir
from harness.spec import Silent

MODELS = ("write-atomicity", "monotonic-reads")
CALM = "severity=mild,latency=lan"


def nobody(_: RunDir) -> dict[str, Any]:
    return {}


def judged(
    tmp_path: Path, nemesis: str, seed: int, load: tuple[float, float, int] = (15, 60, 8), **settings: str
) -> tuple[bool, bool]:
    """Whether the run's reads were atomic, and monotonic. The load: for how many seconds, at what rate, by how many."""
    time_limit_s, rate, concurrency = load
    options = RunOptions(
        "write-atomicity",
        nemesis=(nemesis,),
        time_limit=time_limit_s,
        rate=rate,
        concurrency=concurrency,
        seed=seed,
        world=CALM,
        workload_options={
            "keys": "1",
            "rows": "8",
            **{name.replace("_", "-"): each for name, each in settings.items()},
        },
        store=tmp_path,
    )
    finished = carry_out(options, nobody, Silent(), datetime(2026, 1, 1), lambda _: None)
    verdicts = check_run(finished.outcome.rundir.history_parquet, MODELS, engine="local")
    assert all(verdict.valid in (True, False) for verdict in verdicts.values())
    broken = {model for model, verdict in verdicts.items() if verdict.valid is False}
    assert broken <= set(read_record(finished.outcome.rundir).unpromised), "it breaks what it promised"
    return verdicts[MODELS[0]].valid is True, verdicts[MODELS[1]].valid is True


BLOCKING = {"slices": "0.8", "limits": "0", "keys": "4"}
LIMITS = {"slices": "0", "limits": "0.8"}
WITHOUT_REPAIR = {**LIMITS, "keys": "3", "deletes": "0.5", "read_repair": "none"}


@pytest.mark.parametrize(
    ("nemesis", "seeds", "load", "settings"),
    [
        ("partial-write", (4, 5, 9, 12, 14, 15), (15, 60, 8), BLOCKING),
        ("short-read", (1, 3, 4, 5, 6, 7), (15, 60, 8), LIMITS),
        ("short-read", (1, 2, 3, 4), (20, 150, 16), WITHOUT_REPAIR),
    ],
    ids=["blocking read repair", "short-read protection", "short-read protection without read repair"],
)
def test_what_tears_reads_and_keeps_them_monotonic_where_it_repairs_them(
    tmp_path: Path, nemesis: str, seeds: tuple[int, ...], load: tuple[float, float, int], settings: dict[str, str]
) -> None:
    for seed in seeds:
        atomic, monotonic = judged(tmp_path / str(seed), nemesis, seed, load, **settings)
        assert monotonic or "read_repair" in settings, seed
        if not atomic:
            return
    raise AssertionError(f"{len(seeds)} runs, and nothing was torn")


@pytest.mark.parametrize(
    ("nemesis", "seed", "settings", "holds"),
    [
        ("partial-write", 2, {"slices": "0.8", "limits": "0", "read_repair": "none"}, (True, False)),
        ("partial-write", 4, {"slices": "0", "limits": "0"}, (True, True)),
        ("short-read", 4, {"slices": "0", "limits": "0"}, (True, True)),
        ("partial-write", 4, {**BLOCKING, "table": "logged"}, (True, True)),
        ("short-read", 1, {**LIMITS, "table": "logged"}, (True, True)),
    ],
    ids=["without read repair reads flap", "wide reads", "wide reads of short pages", "logged", "logged, with limits"],
)
def test_what_holds_of_reads_in_each_combination(
    tmp_path: Path, nemesis: str, seed: int, settings: dict[str, str], holds: tuple[bool, bool]
) -> None:
    """Atomic, and monotonic: legacy tables where reads are as wide as writes and have no limits, logged ones always."""
    assert judged(tmp_path, nemesis, seed, **settings) == holds


@pytest.mark.parametrize("nemesis", ["partition", "kill(target=all)", pytest.param("kill", marks=pytest.mark.campaign)])
def test_whatever_else_fails_each_line_keeps_what_it_says_holds(tmp_path: Path, nemesis: str) -> None:
    def line(name: str, **settings: str) -> tuple[bool, bool]:
        return judged(tmp_path / name, nemesis, 1, (10, 60, 8), **settings)

    assert line("wide", slices="0", limits="0") == (True, True)
    assert line("blocking", slices="0.8", limits="0.4")[1], "monotonic"
    assert line("none", slices="0.8", limits="0", read_repair="none")[0], "atomic"
    assert line("logged", slices="0.8", limits="0.4", table="logged") == (True, True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"replication": "7"}, "needs 7 tablet servers there; --nodes 5 makes 5"),
        ({"replication": "3", "data-centres": "3"}, "in the smallest of 3 data centres; --nodes 5 makes 1"),
        ({"replication": "2", "read-level": "THREE"}, "THREE asks for 3 replicas, of which there are only 2"),
        ({"replication": "1", "write-level": "TWO"}, "TWO asks for 2 replicas"),
    ],
)
def test_levels_and_factors_that_no_cluster_can_satisfy_are_refused(
    tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    options = RunOptions("write-atomicity", workload_options=settings, store=tmp_path)
    with pytest.raises(UserError, match=says):
        carry_out(options, nobody, Silent(), datetime(2026, 1, 1), lambda _: None)
