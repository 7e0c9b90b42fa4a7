"""The models `monotonic-reads`, `read-your-writes`, `monotonic-writes`, `writes-follow-reads`; `sessions` is all four.

Each cell is an object of its own: what one cell's version tells about another's is causal consistency's business.
Monotonic reads hold within each session for all reads, and for strong reads (mode null, strong, QUORUM, ALL, …) also
across sessions in real time, as CEP-45 puts it: a read that starts after another returned omits nothing that the other
saw. Which versions are older is read from the data, see `columns.versions`; what it does not tell is not concluded.
"""

from __future__ import annotations

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
from checkers.sessions.guarantees import SessionKernel
from checkers.sessions.lists import verdict_of
from checkers.sessions.session_order import GUARANTEES
from checkers.source import Source
from checkers.verdict import Verdict

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE, "append": APPEND},
    extras=("session", "strong", "served_ts"),
    list_kinds=(LIST_READ, ELEMENT),
    keep_failed=False,
)

SESSIONS: Final = "sessions"


def judge_guarantees(model: str, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The guarantee of that name, or all of them for `sessions`; unknown if nothing was read, for all show in reads,
    or if nothing is refuted of lists that are not judged in full."""
    wanted = GUARANTEES if model == SESSIONS else (model,)
    kernel = SessionKernel(wanted, options.explain)
    reading = read_quorum_history(source, engine)
    if reading is not None:
        return judge_session_model(model, reading, source, engine, options)
    found = judge_mops(engine, source, PROJECTION, ADDRESS, kernel, options.explain, SLICES)
    refuse_unsupported(found, source.path, model)
    valid, reason = verdict_of(found)
    return Verdict(
        valid,
        model,
        explain_all(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        reason=reason,
        details={"cells": found.keys} | found.figures,
    )
