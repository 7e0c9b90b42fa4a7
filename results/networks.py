"""Anomalies as graphs of networkx: how several cycles are laid out, and GraphML, which yEd and Gephi read too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import networkx as nx

from harness.history.rundir import write_atomic
from results.words import op_name, operation

Judged: TypeAlias = Mapping[str, Any]
"""A verdict as `assay check --json` prints it; see `Anomaly`."""

Graph: TypeAlias = "nx.MultiDiGraph[str]"

_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file may have."""

_MOST_AROUND: Final = 14
"""Operations that stand around a circle."""

_TOLD: Final = ("process", "type", "node", "invoke_index", "complete_index", "invoke_time", "complete_time")
"""What a node tells of its operation besides what it did."""


def spread(steps: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """A place near the unit circle for each operation of some steps, the same for the same steps.

    Few stand around it, so that no arrow passes under a box; many are laid out by springs from there (Fruchterman and
    Reingold 1991), so that what depends on each other lies together.
    """
    graph = nx.Graph((str(step.get("source")), str(step.get("target"))) for step in steps)
    found = nx.circular_layout(graph)
    if len(graph) > _MOST_AROUND:
        found = nx.spring_layout(graph, pos=found, k=1.6 / len(graph) ** 0.5, seed=1)
    return {node: (1.25 * float(x), 0.8 * float(y)) for node, (x, y) in found.items()}


def graph_of(inputs: Iterable[Sequence[Judged]]) -> Graph:
    """The operations that anomalies name, and an edge for each step of their cycles, with its `kind` and `why`.

    `inputs` are the verdicts on each history; an operation of one is one node, however many anomalies name it.
    """
    graph: Graph = nx.MultiDiGraph()
    for number, verdicts in enumerate(inputs):
        found = [pair for verdict in verdicts for pair in verdict.get("anomalies", {}).items()]
        for name, place, anomaly in ((name, *each) for name, several in found for each in enumerate(several)):
            _add(graph, number, {"anomaly": name, "instance": place}, anomaly)
    return graph


def _add(graph: Graph, number: int, about: dict[str, Any], anomaly: Mapping[str, Any]) -> None:
    for op in anomaly.get("ops", ()):
        told = {name: op[name] for name in _TOLD if op.get(name) is not None}
        graph.add_node(_node(number, op.get("op")), label=op_name(op.get("op")), operation=_text(operation(op)), **told)
    for order, step in enumerate(anomaly.get("steps", ())):
        ends = [_node(number, step.get(end)) for end in ("source", "target")]
        for node, end in zip(ends, ("source", "target"), strict=True):
            if node not in graph:
                graph.add_node(node, label=op_name(step.get(end)))
        told = {name: _text(str(step[name])) for name in ("kind", "why", "key") if step.get(name) is not None}
        graph.add_edge(ends[0], ends[1], step=order, **about, **told)


def _node(number: int, op: object) -> str:
    return op_name(op) if number == 0 else f"{op_name(op)} of history {number + 1}"


def _text(words: str) -> str:
    return _NO_XML.sub("\ufffd", words)


def write_graphml(path: Path, inputs: Iterable[Sequence[Judged]]) -> Graph:
    """Write what was found in histories as GraphML and return it; see `graph_of`.

    Raises UnwritableError if the file can't be written.
    """
    graph = graph_of(inputs)
    write_atomic(path, "\n".join(nx.generate_graphml(graph)).encode())
    return graph
