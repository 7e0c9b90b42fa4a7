"""The models `monotonic-reads`, `read-your-writes`, `monotonic-writes`, `writes-follow-reads`; `sessions` is all four.

Each cell is an object of its own: what one cell's version tells about another's is causal consistency's business.
Monotonic reads hold within each session for all reads, and for strong reads (mode null, strong, QUORUM, ALL, …) also
across sessions in real time, as CEP-45 puts it: a read that starts after another returned omits nothing that the other
saw. Which versions are older is read from the data, see `kernels.versions`; what it does not tell is not concluded.
"""

from __future__ import annotations

from typing import Final

from checkers.engines.api import Engine
from checkers.engines.grouped import judge_mops
from checkers.kernels.session_order import GUARANTEES
from checkers.kernels.versions import APPEND, ELEMENT, LIST_READ, READ, WRITE
from checkers.mops import ADDRESS, MopProjection
from checkers.options import CheckOptions
from checkers.quorum.judge import judge_session_model
from checkers.quorum.reading import read_quorum_history
from checkers.sessions.guarantees import SessionKernel
from checkers.sessions.words import explain_all
from checkers.source import Source
from checkers.verdict import Verdict
from harness.errors import UserError

PROJECTION: Final = MopProjection(
    {"r": READ, "w": WRITE, "cas": WRITE, "append": APPEND},
    extras=("session", "strong", "served_ts"),
    list_kinds=(LIST_READ, ELEMENT),
    keep_failed=False,
)

SESSIONS: Final = "sessions"


def judge_guarantees(model: str, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The guarantee of that name, or all of them for `sessions`."""
    wanted = GUARANTEES if model == SESSIONS else (model,)
    kernel = SessionKernel(wanted, options.explain)
    reading = read_quorum_history(source)
    if reading is not None:
        return judge_session_model(model, reading, source, engine, options)
    found = judge_mops(engine, source, PROJECTION, ADDRESS, kernel, options.explain, in_slices=True)
    if found.unsupported:
        raise UserError(
            f"{source.path}, event {found.unsupported[0]}: not reads, writes, compare-and-sets or appends of integers, "
            f"so the model {model} can't judge it."
        )
    return Verdict(
        not found.counts,
        model,
        explain_all(source, found.kept),
        found.counts,
        found.ops,
        engine=engine.name,
        details={"cells": found.keys} | found.figures,
    )
