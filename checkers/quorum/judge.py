"""The models `write-atomicity`, `monotonic-reads`, `read-your-writes`, `sessions` and `durable-rows` of quorum tables.

The order of versions is that of the clients' timestamps, so that writes of unknown outcome have their place like all
others, and what a session writes comes in the order that its client chose: `monotonic-writes` and
`writes-follow-reads` promise nothing here. What must be seen is Q1's rule (`harness.levels`), within sessions too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from checkers.engines.api import Engine, any_succeeded
from checkers.engines.grouped import SLICES, judge_mops
from checkers.options import CheckOptions
from checkers.quorum.explain import explain_all
from checkers.quorum.kernel import DURABLE_ROWS, MONOTONIC_READS, READ_YOUR_WRITES, SESSIONS, QuorumKernel
from checkers.quorum.reading import Reading, read_quorum_history
from checkers.quorum.verdicts import refuse
from checkers.source import Source
from checkers.verdict import NO_READS, NOTHING_SUCCEEDED, Validity, Verdict
from harness.errors import UserError

_BY_CLIENTS: Final = (
    "The order of a session's writes is that of the timestamps which its client chose, so the database promises "
    "nothing here."
)
_JUDGED_SESSIONS: Final = frozenset({MONOTONIC_READS, READ_YOUR_WRITES, SESSIONS})


def judge_durable_rows(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Every read whose level binds it shows what was acknowledged before it began, or something later."""
    reading = read_quorum_history(source, engine)
    if reading is None and not any_succeeded(source, engine):
        return Verdict("unknown", DURABLE_ROWS, engine=engine.name, reason=NOTHING_SUCCEEDED)
    if reading is None:
        raise UserError(
            f"{source.path} states no write timestamps (write_ts), so the model {DURABLE_ROWS} can't judge it."
        )
    return judge_quorum(DURABLE_ROWS, reading, source, engine, options)


def judge_quorum(model: str, reading: Reading, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The model of that name on a history of a quorum table. Raises UserError for histories that can't be judged."""
    kernel = QuorumKernel(model, reading.binding, options.explain)
    found = judge_mops(engine, source, reading.projection, ("table", "partition"), kernel, options.explain, SLICES)
    refuse(source, model, found)
    nothing = None if found.undecided else _nothing_compared(found.figures)
    valid: Validity = False if found.counts else "unknown" if found.undecided or nothing else True
    details = {"partitions": found.keys} | found.figures
    reasons = (*found.reasons, *((nothing,) if nothing else ()))
    return Verdict(
        valid,
        model,
        explain_all(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=" ".join(reasons) if valid == "unknown" else None,
        details=details | ({"undecided": found.undecided} if found.undecided else {}),
    )


def _nothing_compared(figures: Mapping[str, int]) -> str | None:
    """Why a judge that found nothing wrong had nothing to look at, if so."""
    if not figures.get("pages"):
        return NO_READS
    if figures.get("comparisons") == 0:
        return "No read is bound by its level to show what another operation did, so nothing was compared."
    return None


def judge_session_model(model: str, reading: Reading, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """A session guarantee on a history of a quorum table; those about the order of writes are the clients' business."""
    if model in _JUDGED_SESSIONS:
        return judge_quorum(model, reading, source, engine, options)
    return Verdict("unknown", model, engine=engine.name, reason=_BY_CLIENTS)
