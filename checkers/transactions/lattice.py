"""Which anomaly rules out which consistency model, as literal data, with the closures that verdicts need.

Adya's theses and papers, Cerone et al. 2015 and Viotti and Vukolić 2016, as Elle combines them
(`elle.consistency-model`); definitions in words are in `docs/anomalies.md`. Only direct relations are written down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from harness.errors import UserError

IMPLIED_ANOMALIES: Final[Mapping[str, str]] = {
    "G-nonadjacent": "G-nonadjacent-process G2",
    "G-nonadjacent-item": "G-nonadjacent G-nonadjacent-item-process G2-item",
    "G-nonadjacent-item-process": "G-nonadjacent-item-realtime G-nonadjacent-process G2-item-process",
    "G-nonadjacent-item-realtime": "G-nonadjacent-realtime G2-item-realtime",
    "G-nonadjacent-process": "G-nonadjacent-realtime G2-process",
    "G-nonadjacent-realtime": "G2-realtime",
    "G-single": "G-nonadjacent G-single-process GSIb",
    "G-single-item": "G-nonadjacent-item G-single G-single-item-process",
    "G-single-item-process": "G-nonadjacent-item-process G-single-item-realtime G-single-process",
    "G-single-item-realtime": "G-nonadjacent-item-realtime G-single-realtime",
    "G-single-process": "G-nonadjacent-process G-single-realtime",
    "G-single-realtime": "G-nonadjacent-realtime",
    "G0": "G0-process G1c",
    "G0-process": "G0-realtime G1c-process",
    "G0-realtime": "G1c-realtime",
    "G1": "G1-process",
    "G1-process": "G1-realtime",
    "G1a": "G1",
    "G1b": "G1",
    "G1c": "G1 G1c-process",
    "G1c-process": "G1-process G1c-realtime",
    "G1c-realtime": "G1-realtime",
    "G2": "G2-process",
    "G2-item": "G2 G2-item-process",
    "G2-item-process": "G2-item-realtime G2-process",
    "G2-item-realtime": "G2-realtime",
    "G2-process": "G2-realtime",
    "GSIa": "GSI",
    "GSIb": "GSI",
    "cyclic-versions-process": "cyclic-versions-realtime",
    "dirty-update": "G1a",
    "future-read": "G1c",
    "garbage-read": "G1a",
    "incompatible-order": "G1a",
    "lost-update": "G2-item write-skew",
    "write-skew": "G2",
}
"""Anomaly → what it directly implies: whoever shows it also shows these. Three are ours: `garbage-read` (a value that
nobody wrote; no committed transaction made that state, as with an aborted read), and `cyclic-versions` where its orders
come from sessions or real time: in each order of the versions some transaction found what is older than what its
session, or one that had completed, left there, which is a cycle with one rw at most."""

MODELS: Final[Mapping[str, tuple[str, str, str]]] = {
    "1SR": ("1SR", "", ""),
    "read-uncommitted": ("PL-1", "", "G0 PL-1-cycle-exists cyclic-versions duplicate-elements"),
    "read-committed": ("PL-2", "read-uncommitted", "G1 PL-2-cycle-exists"),
    "monotonic-view": ("PL-2L", "read-committed", "G-monotonic G1"),
    "cursor-stability": ("PL-CS", "read-committed", "G-cursor G1 lost-update"),
    "monotonic-snapshot-read": ("PL-MSR", "read-committed", "G-MSR G1"),
    "consistent-view": ("PL-2+", "cursor-stability monotonic-view", "G-single G1"),
    "forward-consistent-view": ("PL-FCV", "consistent-view", "G-SIb G1"),
    "update-serializable": ("PL-3U", "forward-consistent-view", "G-update G1"),
    "monotonic-atomic-view": ("monotonic-atomic-view", "read-committed", ""),
    "read-atomic": ("read-atomic", "monotonic-atomic-view", "G1a future-read internal"),
    "update-atomic": ("update-atomic", "read-atomic", "lost-update"),
    "causal-cerone": ("causal-cerone", "read-atomic", "G1a internal"),
    "prefix": ("prefix", "causal-cerone", "G1a internal"),
    "parallel-snapshot-isolation": ("parallel-snapshot-isolation", "causal-cerone update-atomic", "G1a internal"),
    "repeatable-read": (
        "PL-2.99",
        "cursor-stability monotonic-atomic-view",
        "G1 G2-item PL-2.99-cycle-exists lost-update",
    ),
    "snapshot-isolation": (
        "PL-SI",
        "forward-consistent-view monotonic-snapshot-read parallel-snapshot-isolation prefix",
        "G-SI G-nonadjacent G1 PL-SI-cycle-exists internal",
    ),
    "view-serializable": ("view-serializable", "", ""),
    "serializable": (
        "PL-3",
        "repeatable-read snapshot-isolation update-serializable view-serializable",
        "G1 G2 PL-3-cycle-exists internal predicate-read-miss",
    ),
    "session-serializable": ("session-serializable", "1SR", ""),
    "strong-session-read-uncommitted": (
        "strong-session-PL-1",
        "read-uncommitted",
        "G0-process strong-session-PL-1-cycle-exists",
    ),
    "strong-session-read-committed": (
        "strong-session-PL-2",
        "read-committed strong-session-read-uncommitted",
        "G1c-process strong-session-PL-2-cycle-exists",
    ),
    "strong-session-snapshot-isolation": (
        "strong-session-snapshot-isolation",
        "snapshot-isolation strong-session-read-committed",
        "G-nonadjacent-process G1-process cyclic-versions-process internal "
        "strong-session-snapshot-isolation-cycle-exists",
    ),
    "strong-session-serializable": (
        "strong-session-serializable",
        "serializable strong-session-snapshot-isolation",
        "G1-process G2-process strong-session-serializable-cycle-exists",
    ),
    "strong-read-uncommitted": (
        "strong-PL-1",
        "strong-session-read-uncommitted",
        "G0-realtime strong-PL-1-cycle-exists",
    ),
    "strong-read-committed": (
        "strong-PL-2",
        "strong-read-uncommitted strong-session-read-committed",
        "G1c-realtime strong-PL-2-cycle-exists",
    ),
    "strong-snapshot-isolation": (
        "strong-snapshot-isolation",
        "strong-read-committed strong-session-snapshot-isolation",
        "G-nonadjacent-realtime G1-realtime cyclic-versions-realtime internal strong-snapshot-isolation-cycle-exists",
    ),
    "strong-serializable": (
        "PL-SS",
        "linearizable session-serializable strong-session-serializable strong-snapshot-isolation",
        "G1 G1c-realtime G2-realtime PL-SS-cycle-exists",
    ),
    "monotonic-reads": ("monotonic-reads", "", ""),
    "monotonic-writes": ("monotonic-writes", "", ""),
    "read-your-writes": ("read-your-writes", "", ""),
    "writes-follow-reads": ("writes-follow-reads", "", ""),
    "PRAM": ("PRAM", "monotonic-reads monotonic-writes read-your-writes", ""),
    "causal": ("causal", "PRAM writes-follow-reads", ""),
    "sequential": ("sequential", "causal", ""),
    "linearizable": ("linearizable", "sequential", ""),
}
"""Friendly name → canonical name, the weaker models that it directly implies, the anomalies it directly forbids."""

ALIASES: Final[Mapping[str, str]] = {
    "strict-serializable": "strong-serializable",
    "ser": "serializable",
    "sser": "strong-serializable",
    "strict": "strong-serializable",
    "si": "snapshot-isolation",
    "strong-si": "strong-snapshot-isolation",
    "strong-session-si": "strong-session-snapshot-isolation",
    "strong-session-ser": "strong-session-serializable",
    "psi": "parallel-snapshot-isolation",
    "pc": "prefix",
    "ru": "read-uncommitted",
    "rc": "read-committed",
    "mav": "monotonic-atomic-view",
    "ra": "read-atomic",
    "ua": "update-atomic",
    "cc": "causal-cerone",
    "cs": "cursor-stability",
    "cv": "consistent-view",
    "rr": "repeatable-read",
}
"""What people write → friendly name; capitals don't matter."""

DEFAULT_CONSISTENCY: Final = "strict-serializable"


@cache
def _friendly_names() -> dict[str, str]:
    names = {canonical.lower(): friendly for friendly, (canonical, _, _) in MODELS.items()}
    return names | {friendly.lower(): friendly for friendly in MODELS} | dict(ALIASES)


def friendly_name(model: str) -> str:
    """A model by its friendly name, given any of its names in any capitals; raises UserError for a name that no model
    has."""
    names = _friendly_names()
    if model.lower() not in names:
        others = ", ".join(f"{alias} ({name})" for alias, name in ALIASES.items())
        raise UserError(
            f"There is no consistency model {model!r}; the models are {', '.join(MODELS)}, also called {others}."
        )
    return names[model.lower()]


def _closure(start: Iterable[str], edges: Mapping[str, Iterable[str]]) -> frozenset[str]:
    seen, waiting = set(start), list(start)
    while waiting:
        for found in edges.get(waiting.pop(), ()):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return frozenset(seen)


@cache
def _stronger() -> dict[str, tuple[str, ...]]:
    """Model → the models that directly imply it."""
    return {weak: tuple(m for m, (_, implied, _) in MODELS.items() if weak in implied.split()) for weak in MODELS}


def implied_anomalies(anomalies: Iterable[str]) -> frozenset[str]:
    """The given anomalies and all that they imply."""
    return _closure(anomalies, {name: implied.split() for name, implied in IMPLIED_ANOMALIES.items()})


def implied_models(model: str) -> frozenset[str]:
    """All models that hold where this one holds, without itself."""
    edges = {name: implied.split() for name, (_, implied, _) in MODELS.items()}
    return _closure([friendly_name(model)], edges) - {friendly_name(model)}


def impossible_models(anomalies: Iterable[str]) -> frozenset[str]:
    """All models that can't hold, given these anomalies."""
    shown = implied_anomalies(anomalies)
    direct = [model for model, (_, _, forbidden) in MODELS.items() if not shown.isdisjoint(forbidden.split())]
    return _closure(direct, _stronger())


def ruled_out(anomalies: Iterable[str], models: Iterable[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The weakest models that these anomalies rule out, and all the stronger ones: Elle's `not` and `also-not`.

    `models` are ruled out besides.
    """
    impossible = impossible_models(anomalies) | _closure(models, _stronger())
    weakest = {model for model in impossible if implied_models(model).isdisjoint(impossible)}
    return tuple(sorted(weakest)), tuple(sorted(impossible - weakest))


@cache
def prohibited_anomalies(model: str) -> frozenset[str]:
    """The anomalies that must not occur where this model holds."""
    friendly = friendly_name(model)
    candidates = set(IMPLIED_ANOMALIES) | set(implied_anomalies(IMPLIED_ANOMALIES))
    candidates |= {name for _, _, forbidden in MODELS.values() for name in forbidden.split()}
    return frozenset(name for name in candidates if friendly in impossible_models([name]))


def needs_realtime(model: str) -> bool:
    """Whether the model constrains transactions by the real time between them."""
    return any(name.endswith("-realtime") for name in prohibited_anomalies(model))


def needs_sessions(model: str) -> bool:
    """Whether the model constrains transactions by their order within a process."""
    return any(name.endswith("-process") for name in prohibited_anomalies(model))
