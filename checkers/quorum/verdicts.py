"""What histories of quorum tables are refused for."""

from __future__ import annotations

from checkers.findings import Findings, refuse_unsupported
from checkers.quorum.table import REFUSALS
from checkers.source import Source
from harness.errors import UserError


def refuse(source: Source, model: str, found: Findings) -> None:
    """Raise UserError for operations that no model of quorum tables knows, and for histories that can't be judged."""
    refuse_unsupported(found, source.path, model)
    refused = [finding for finding in found.kept if finding.anomaly.startswith("refused:")]
    if refused:
        first = min(refused, key=lambda finding: (finding.order, finding.anomaly))
        events = " and ".join(str(index) for index in sorted(set(first.ops)))
        reason = REFUSALS[first.anomaly.removeprefix("refused:")]
        raise UserError(f"{source.path}, event {events}: {reason}, so the model {model} can't judge it.")
