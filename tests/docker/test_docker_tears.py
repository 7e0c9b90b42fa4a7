"""What CEP-45 says of legacy replication, and a reconciliation without its fence, in containers; some minutes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.run.spec import Silent

pytestmark = [pytest.mark.docker, pytest.mark.campaign, pytest.mark.xdist_group("docker")]

SLICES = {"keys": "4", "rows": "8", "slices": "0.8", "limits": "0"}
LIMITS = {"read-repair": "none", "keys": "3", "rows": "8", "slices": "0", "limits": "0.8", "deletes": "0.5"}
LOGGED = {"table": "logged", "keys": "100"}
SHORT_FENCES = "write-timeout-ms=300,reconcile-margin-ms=0,reconcile-period-ms=300"


def anomalies(options: RunOptions) -> set[str]:
    """What clients saw, of a run whose faults were observed."""
    verdict = carry_out(options, judge_saved_run, Silent(), datetime.now(), lambda _: None).outcome.verdict
    assert verdict.adequacy.answer is not False, verdict.reasons
    found = verdict.checkers[options.workload]
    return set(found.get("counts") or ())


@pytest.mark.parametrize(
    ("nemesis", "mix", "load", "seed"),
    [("partial-write", SLICES, (100.0, 10), 4), ("short-read", LIMITS, (150.0, 16), 2)],
    ids=["read-repair", "short-read-protection"],
)
def test_legacy_tables_are_torn(
    engine: Any, tmp_path: Path, nemesis: str, mix: dict[str, str], load: tuple[float, int], seed: int
) -> None:
    rate, concurrency = load
    options = RunOptions(
        "write-atomicity",
        on="docker",
        nemesis=(nemesis,),
        time_limit=60.0,
        rate=rate,
        concurrency=concurrency,
        seed=seed,
        workload_options=mix,
        store=tmp_path,
    )
    assert anomalies(options) == {"torn-read"}


def test_writes_below_a_bound_stay_at_some_replicas_only(engine: Any, tmp_path: Path) -> None:
    options = RunOptions(
        "convergence",
        on="docker",
        nemesis=("replica-away",),
        time_limit=40.0,
        seed=1,
        flaw=("accept-below-bound",),
        world=SHORT_FENCES,
        workload_options=LOGGED,
        store=tmp_path,
    )
    assert anomalies(options) == {"divergence"}
