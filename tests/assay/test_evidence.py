"""`assay check --evidence`: a refutation as GraphML that networkx reads back, and as a history refuted too."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest
from command_line import assay

SKEW = """
{:index 0 :process 0 :type :invoke :f :txn :value [[:w x 1] [:w y 1] [:w z 8]]}
{:index 1 :process 1 :type :invoke :f :txn :value [[:r x nil] [:w y 2]]}
{:index 2 :process 2 :type :invoke :f :txn :value [[:r y nil] [:r z nil] [:w x 2]]}
{:index 3 :process 3 :type :invoke :f :txn :value [[:w z 9]]}
{:index 4 :process 0 :type :ok :f :txn :value [[:w x 1] [:w y 1] [:w z 8]]}
{:index 5 :process 1 :type :ok :f :txn :value [[:r x 1] [:w y 2]]}
{:index 6 :process 2 :type :ok :f :txn :value [[:r y 1] [:r z 9] [:w x 2]]}
{:index 7 :process 3 :type :ok :f :txn :value [[:w z 9]]}
"""
"""Write skew after blind writes: no order of the versions of x and y explains it; z has nothing to do with it."""


@pytest.fixture
def skew(tmp_path: Path) -> Path:
    path = tmp_path / "skew.edn"
    path.write_text(SKEW)
    return path


CHECK = ("--model", "rw-register", "--consistency", "serializable")


def test_a_refutation_is_a_graph_of_operations_and_reasons(
    skew: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = assay(capsys, "check", skew, *CHECK, "--evidence", tmp_path / "skew.graphml")
    assert answer.code == 1
    graph = nx.read_graphml(tmp_path / "skew.graphml")
    assert f"{len(graph)} operations" in answer.err
    assert {"T0", "T1", "T2"} <= set(graph) and "T3" not in graph
    assert "read x → 1" in graph.nodes["T1"]["operation"].replace("key ", "")
    steps = [told for _, _, told in graph.edges(data=True)]
    assert {"wr", "rw"} <= {told["kind"] for told in steps}
    assert all("comes before" in told["why"] for told in steps)
    assert not nx.is_directed_acyclic_graph(graph)


def test_a_refutation_is_a_history_that_is_refuted_too(
    skew: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = tmp_path / "part.parquet"
    assert assay(capsys, "check", skew, *CHECK, "--evidence", part).code == 1
    (found,) = assay(capsys, "check", part, *CHECK, "--json").objects
    assert found["valid"] is False
    assert found["ops"] == 3
    weaker = assay(capsys, "check", skew, *CHECK[:3], "snapshot-isolation", "--evidence", tmp_path / "none.parquet")
    assert weaker.code == 0 and "no evidence" in weaker.err
    assert not (tmp_path / "none.parquet").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--evidence", "skew.svg"), "FILE.graphml"),
        (("--evidence", "nowhere/skew.graphml"), "no directory"),
        (("other.edn", "--evidence", "skew.parquet"), "one input"),
    ],
)
def test_evidence_that_cannot_be_written_is_refused(
    more: tuple[str, ...], why: str, skew: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = assay(capsys, "check", skew, *CHECK, *more)
    assert answer.code == 254
    assert why in answer.complaint
