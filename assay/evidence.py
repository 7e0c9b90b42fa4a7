"""`assay check --evidence FILE`: what refutes a history, as a graph for other tools or as a history of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.source import Source
from harness.errors import UserError
from harness.history.address import Place, place_of
from harness.history.parts import write_history

GRAPHML: Final = ".graphml"
HISTORY: Final = ".parquet"
MODELS: Final = ("list-append", "rw-register")
"""The models of whose anomalies the transactions are a history of their own."""


class EvidenceRequest(Protocol):
    """How the input was judged."""

    @property
    def model(self) -> str | None: ...
    @property
    def format(self) -> str: ...
    @property
    def options(self) -> CheckOptions: ...


def require_evidence(path: Path | None, inputs: int, manifest: bool, model: str | None) -> None:
    """Raise UserError for evidence that can't be written of what is judged."""
    if path is None:
        return
    if manifest:
        raise UserError("--evidence is of histories named one by one, not of a table of --manifest.")
    if path.suffix not in (GRAPHML, HISTORY):
        raise UserError(f"--evidence writes a graph, FILE{GRAPHML}, or a history, FILE{HISTORY}, not {path.name}.")
    if not path.parent.is_dir():
        raise UserError(f"There is no directory {path.parent} for the evidence {path.name}.")
    if path.suffix == HISTORY and (inputs != 1 or model not in MODELS):
        raise UserError(f"Evidence that is a history is of one input, and goes with {' and '.join(MODELS)}.")


def write_evidence(
    path: Path, inputs: Sequence[Place | str], judged: Sequence[Mapping[str, Any]], asked: EvidenceRequest
) -> str:
    """Write what was found and say in a line what was written, or that there was nothing to write.

    Raises UnwritableError if the file can't be written.
    """
    if path.suffix == GRAPHML:
        from results.networks import write_graphml  # networkx and plots take a second to load
        from results.report import checkers_of

        graph = write_graphml(path, [list(checkers_of(found).values()) for found in judged])
        return f"evidence: {path}, {len(graph)} operations and {graph.number_of_edges()} dependencies"
    part = _refuted_part(place_of(inputs[0]), judged[0], asked) if judged and judged[0]["valid"] is False else None
    if part is None:
        return f"no evidence: nothing was refuted by transactions alone, so {path} was not written"
    assert part.table is not None
    write_history(part.table.to_batches(), path, dictionary=msgspec.json.encode(part.dictionary))
    return f"evidence: {path}, {part.rows} operations"


def _refuted_part(place: Place, found: Mapping[str, Any], asked: EvidenceRequest) -> Source | None:
    """The transactions of the first anomaly that refute the history by themselves."""
    from checkers.transactions.core_history import core_of  # the code of a model is loaded once it judges

    assert asked.model is not None
    model, options = asked.model, replace(asked.options, explain=1)
    stated = options.settings.get("versions")
    source, engine = open_source(place, asked.format, verify=False, stated=stated), LocalEngine()

    def refuted(part: Source) -> bool:
        return judge_source(part, model, engine, options).valid is False

    for anomaly in (each for several in found["anomalies"].values() for each in several):
        if part := core_of(source, model, [op["invoke_index"] for op in anomaly.get("ops", ())], refuted):
            return part
    return None
