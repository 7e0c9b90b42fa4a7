"""Convergence: which reads are final, and what those that are missing leave open."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.made.examples import events_of
from checkers.source import Source
from checkers.verdict import Verdict
from harness.history.table import to_table

APPEND = "0-1 0 ok append append(1)=5\n"
ONE = "10-11 1 ok read r(1)=[5] node=n1 phase=final\n"
TWO = ONE.replace("10-11", "12-13").replace("n1", "n2")


def judged(text: str) -> Verdict:
    table = to_table([op.complete(op.type, index=index) for index, op in enumerate(events_of(text))])
    return judge_source(Source(Path("final"), "journal", table.num_rows, table=table), "convergence", LocalEngine())


@pytest.mark.parametrize("outcome", ["14-15 3 fail", "14-15 3 info"])
def test_a_node_that_never_answered_has_not_converged_for_all_that_is_known(outcome: str) -> None:
    silent = f"{outcome} read r(1)=nil node=n3 phase=final\n"
    assert judged(APPEND + ONE + TWO).valid is True
    verdict = judged(APPEND + ONE + TWO + silent)
    assert (verdict.valid, verdict.reason) == (
        "unknown",
        "Final reads of 1 object were not answered by the node that they went to.",
    )
    late = "20-21 4 ok read r(1)=[VALUE] node=n3 phase=final\n"
    assert judged(APPEND + ONE + TWO + silent + late.replace("VALUE", "5")).valid is True
    assert judged(APPEND + ONE + TWO + silent + late.replace("VALUE", "6")).counts == {"divergence": 1}
    assert judged(APPEND + silent).valid == "unknown"


def test_final_reads_of_each_node_count() -> None:
    each = [f"{20 + 2 * n}-{21 + 2 * n} {n} ok read r(1)=[{5 + (n == 3)}] node=n{n} phase=each-node" for n in (1, 2, 3)]
    assert judged(APPEND + ONE + TWO + "\n".join(each)).counts == {"divergence": 1}
    assert judged(APPEND + ONE + TWO + "\n".join(each[:2])).valid is True


def test_an_element_that_is_nil_is_none_that_is_0() -> None:
    verdict = judged(APPEND + ONE.replace("[5]", "[nil]") + TWO.replace("[5]", "[0]"))
    assert verdict.counts == {"divergence": 1}
    assert "node n1 showed [nil] and node n2 showed [0]" in verdict.anomalies["divergence"][0].message
    assert judged(APPEND + ONE.replace("[5]", "[nil 1]") + TWO.replace("[5]", "[nil 1]")).valid is True
