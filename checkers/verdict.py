"""Verdicts: what a checker says, and how several of them make one."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

Validity: TypeAlias = Literal[True, False, "unknown"]

NOTHING_SUCCEEDED = "No operation succeeded, so there was nothing to judge."
"""The reason of an unknown verdict on a history that nothing refutes, because nothing happened in it."""


NO_READS = "No read succeeded, so there was nothing to judge."
"""The reason of an unknown verdict where only reads show whether a promise was kept, and none did."""


NO_TIMES: Final = "The history states no times, so nothing is known of real time, which is asked about."
"""The reason of an unknown verdict where real time is asked about and only the order within sessions is known."""


def reads_of_several(reads: int) -> str | None:
    """The reason of an unknown verdict where that many reads show values which several operations wrote, if any do."""
    if not reads:
        return None
    return f"{reads} read{'s' if reads > 1 else ''} of values that several operations wrote can't be matched."


def values_of_nobody(values: int) -> str | None:
    """The reason of an unknown verdict where that many values were read that no operation wrote, or had begun to write
    by then."""
    if not values:
        return None
    return f"{values} value{'s' if values > 1 else ''} that no operation had begun to write can't be placed in time."


def writes_of_two_orders(untimely: int) -> str | None:
    """The reason of an unknown verdict where that many writes state timestamps that contradict real time, and others
    there state none."""
    if not untimely:
        return None
    which = "writes state timestamps" if untimely > 1 else "write states a timestamp"
    return f"{untimely} {which} below that of a write that came before, and others there state none to order them by."


class Undecided(Exception):
    """Why a checker can't decide about a history, in a sentence: its verdict is `unknown`."""


def in_two_words(verdict: Verdict) -> str:
    """The verdict as other tools say it, which have no word for a history in which nothing happened, or of which
    nothing was read: `true`."""
    return "true" if verdict.reason in (NOTHING_SUCCEEDED, NO_READS) else str(verdict.valid).lower()


class Anomaly(msgspec.Struct, frozen=True, omit_defaults=True):
    """One explained instance of an anomaly.

    `message` says in words what is wrong and why; `ops` are the operations that show it, as rows of the history table
    (dicts with op, process, f, mops, invoke_index, complete_index, invoke_time, complete_time, node), where `left_out`
    counts what an operation or micro-operation has besides (`checkers.explain.conclude`); `steps` are the
    edges of a cycle, in order, each with `source` and `target` (op ids), `kind` (ww, wr, rw, process, realtime, …),
    `why`, a sentence, and where they are about several objects its `key` (of `isolation` also `seen_key`, by which
    the source was seen).

    `details` is what a drawing needs beyond that. Of a search that got stuck: `stuck`, the op that can't go next;
    `before` and `open`, the ops that completed before the window and those open in it; `states`, what may be at that
    point, each with `state` (text), `done` (which open ops have taken effect in it) and `why` none can go next.

    Of a torn write: `tear`, with `columns`, the names of its cells, and `lines` for the write and for reads, each with
    `op`, `what` (text) and `marks`, what it shows of each cell.
    """

    message: str
    key: Any = None
    ops: tuple[dict[str, Any], ...] = ()
    steps: tuple[dict[str, Any], ...] = ()
    details: dict[str, Any] = {}


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checker's answer: `valid`, the explained anomalies by class, and how many there are of each class in all.

    `reason` says why the answer is unknown. `rules_out` and `also_rules_out` are `not` and `also-not` in JSON, as
    by Elle; `strongest` is the strongest isolation level that holds, None where that is unknown. `details` are further
    figures, JSON-able.
    """

    valid: Validity
    model: str
    anomalies: dict[str, tuple[Anomaly, ...]] = {}
    counts: dict[str, int] = {}
    ops: int = 0
    seconds: float = 0.0
    engine: str = "local"
    reason: str | None = None
    rules_out: tuple[str, ...] = msgspec.field(default=(), name="not")
    also_rules_out: tuple[str, ...] = msgspec.field(default=(), name="also-not")
    strongest: str | None = None
    details: dict[str, Any] = {}


def worst(validities: list[Validity]) -> Validity:
    """The one word for several verdicts: invalid before unknown before valid; unknown for none at all."""
    if not validities:
        return "unknown"
    if any(v is False for v in validities):
        return False
    if any(v == "unknown" for v in validities):
        return "unknown"
    return True


def as_object(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON has it: the fields that mean something, and always those that `docs/checking.md` names."""
    always: dict[str, Any] = {"valid": verdict.valid, "model": verdict.model, "anomalies": {}, "ops": verdict.ops}
    figures = {"seconds": round(verdict.seconds, 3), "engine": verdict.engine}
    found: dict[str, Any] = msgspec.to_builtins(verdict)
    return {**always, **found, **figures}
