"""Dependencies that an analyzer of the user's own names: `graph(ops)`, a directed multigraph of networkx.

Its nodes are operations, or their `index`; an edge says its kind as `kind` (`ww`, `wr`, `rw`, `process`) and in a
sentence why it is there as `why`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from checkers.linearizability.own_model.calls import OwnCall
from harness.errors import UserError
from harness.own_code import OwnCode

KINDS: Final = ("ww", "wr", "rw", "process")
"""Of edges, by the code that the search for cycles has for each."""


class OwnGraph(NamedTuple):
    """Edges between operations, each named by its place: from, to, the code of the kind, and why."""

    edges: list[tuple[int, int, int, str]]


def graph_of(code: OwnCode, graph: Any, calls: list[OwnCall]) -> OwnGraph:
    """What the analyzer says of operations; raises UserError, naming the edge, for what is no such graph."""
    try:
        found = graph(tuple(calls))
        edges = list(found.edges(data=True))
    except (Exception, SystemExit) as error:
        raise code.blamed(error) from error
    places = {call.index: place for place, call in enumerate(calls)}

    def place(node: Any) -> int:
        index = node.index if isinstance(node, OwnCall) else node
        if isinstance(index, bool) or index not in places:
            raise UserError(f"{code.file}: {code.name}.graph has the node {node!r:.60}, which is no operation.")
        return places[index]

    told = []
    for source, target, says in edges:
        kind, why = says.get("kind"), says.get("why")
        if kind not in KINDS or not isinstance(why, str) or not why.strip():
            raise UserError(
                f"{code.file}: {code.name}.graph has an edge of {says!r:.60}; it says kind={'|'.join(KINDS)} and why."
            )
        told.append((place(source), place(target), KINDS.index(kind), why.strip().rstrip(".")))
    return OwnGraph(sorted(told))
