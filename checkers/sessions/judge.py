"""The models `monotonic-reads`, `read-your-writes`, `monotonic-writes`, `writes-follow-reads`; `sessions` is all four.

Each cell is an object of its own: what one cell's version tells about another's is causal consistency's business.
Monotonic reads hold within each session for all reads, and for strong reads (mode null, strong, QUORUM, ALL, …) also
across sessions in real time, as CEP-45 puts it: a read that starts after another returned omits nothing that the other
saw. Which versions are older is read from the data, see `columns.versions`; what it does not tell is not concluded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from checkers.columns.codes import READ, WRITE
from checkers.columns.mops import ADDRESS, MopProjection
from checkers.columns.versions import APPEND, ELEMENT, LIST_READ
from checkers.engines.api import Engine
from checkers.engines.grouped import SLICES, judge_mops
from checkers.findings import refuse_unsupported
from checkers.options import CheckOptions
from checkers.quorum.judge import judge_session_model
from checkers.quorum.reading import read_quorum_history
from checkers.sessions.explain import explain_all
from checkers.sessions.guarantees import APPENDS_UNCLEAR, UNCLEAR, SessionKernel
from checkers.sessions.session_order import GUARANTEES, MONOTONIC_READS, MONOTONIC_WRITES
from checkers.source import Source
from checkers.verdict import NO_READS, Verdict, appends_of_repeated, reads_of_several

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE, "append": APPEND},
    extras=("session", "strong", "served_ts"),
    list_kinds=(LIST_READ, ELEMENT),
    keep_failed=False,
)

SESSIONS: Final = "sessions"


def judge_guarantees(model: str, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The guarantee of that name, or all of them for `sessions`; unknown if nothing was read, for all show in reads."""
    wanted = GUARANTEES if model == SESSIONS else (model,)
    kernel = SessionKernel(wanted, options.explain)
    reading = read_quorum_history(source, engine)
    if reading is not None:
        return judge_session_model(model, reading, source, engine, options)
    found = judge_mops(engine, source, PROJECTION, ADDRESS, kernel, options.explain, SLICES)
    refuse_unsupported(found, source.path, model)
    doubt = _doubt(wanted, found.figures)
    return Verdict(
        False if found.counts else "unknown" if doubt else True,
        model,
        explain_all(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=None if found.counts else doubt,
        details={"cells": found.keys} | found.figures,
    )


def _doubt(wanted: tuple[str, ...], figures: Mapping[str, int]) -> str | None:
    """Why what is not refuted is not valid either, or None.

    `comparisons_undecided` is no such reason: versions that came in no certain order may have come in the one that the
    reads show, and whether one order fits all reads of a cell is decided (`contradictory-reads`).
    """
    if not figures.get("reads"):
        return NO_READS
    # The order of a session's writes is told by their own numbers, whatever values they wrote.
    reads = 0 if wanted == (GUARANTEES[MONOTONIC_WRITES],) else figures.get(UNCLEAR, 0)
    appends = 0 if wanted == (GUARANTEES[MONOTONIC_READS],) else figures.get(APPENDS_UNCLEAR, 0)
    return " ".join(doubt for doubt in (reads_of_several(reads), appends_of_repeated(appends)) if doubt) or None
