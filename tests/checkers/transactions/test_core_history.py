"""The transactions of an anomaly are a history that is refuted too, and hardly more of it."""

from __future__ import annotations

from typing import Any

import pytest
from weak_store import Txn, source_of

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.core_history import core_of

Mops = tuple[tuple[str, int, Any], ...]

SKEW: list[Mops] = [
    (("w", 0, 1), ("w", 1, 1), ("w", 5, 1)),
    (("r", 0, 1), ("r", 7, 70), ("w", 1, 2)),
    (("r", 1, 1), ("r", 5, 1), ("w", 0, 2)),
]
"""Write skew: each of two missed what the other wrote. Nobody says that 1 is older than 2, but no order helps."""

APPENDS: list[Mops] = [
    (("append", 0, 1), ("r", 1, ()), ("append", 2, 1)),
    (("append", 0, 2), ("append", 1, 1), ("r", 2, ()), ("r", 7, (70, 71))),
]
"""Both append to one list, and neither saw the other."""

FORK: list[Mops] = [
    (("append", 0, 1),),
    (("append", 1, 1),),
    (("r", 0, (3, 1)), ("r", 1, ())),
    (("r", 1, (1,)), ("r", 0, (3,)), ("r", 7, (70, 71))),
    (("append", 0, 3),),
]

SEEN_THROUGH: list[Mops] = [
    (("w", 0, 1),),
    (("r", 0, 1), ("w", 1, 1)),
    (("r", 1, 1), ("w", 2, 1)),
    (("r", 2, 1), ("r", 0, None)),
]
"""The last one saw the first through two others, and yet not what it wrote."""


def among_others(mops: list[Mops], lists: bool) -> list[Txn]:
    """All at a time, after a hundred others that write one key each, of which some of these read."""
    write = "append" if lists else "w"
    others = [((write, 7, 70 + n), ("r", 9, () if lists else None)) for n in range(100)]
    everybody = [*others, *mops]
    return [Txn(n, "ok", n, 1000 + n, each) for n, each in enumerate(everybody)]


@pytest.mark.parametrize(
    ("model", "level", "mops"),
    [
        ("rw-register", "serializable", SKEW),
        ("list-append", "snapshot-isolation", APPENDS),
        ("list-append", "prefix", FORK),
        ("rw-register", "causal-cerone", SEEN_THROUGH),
    ],
)
def test_the_transactions_of_an_anomaly_are_refuted_by_themselves(model: str, level: str, mops: list[Mops]) -> None:
    source = source_of(among_others(mops, model == "list-append"))

    def refuted(part: Source) -> bool:
        return judge_source(part, model, LocalEngine(), CheckOptions(consistency=level)).valid is False

    verdict = judge_source(source, model, LocalEngine(), CheckOptions(consistency=level))
    assert verdict.valid is False
    anomaly = next(iter(verdict.anomalies.values()))[0]
    part = core_of(source, model, [op["invoke_index"] for op in anomaly.ops], refuted)
    assert part is not None
    assert len(mops) - 1 <= part.rows <= len(mops)
    assert refuted(part)
    told = [mop for row in part.table.to_pylist() for mop in row["mops"]]
    assert all(mop["partition"] != 7 or mop["values"] == [] for mop in told)


def test_operations_that_refute_nothing_are_no_core() -> None:
    source = source_of(among_others(SKEW, False))
    assert core_of(source, "rw-register", [0, 101], lambda part: False) is None
