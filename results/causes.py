"""What checkers found, grouped by cause: what is alike is one card with a count, and invariants of the database that
broke in the window of an anomaly stand beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.verdict.run_verdict import CHECKER

WINDOW_NS: Final = 1_000_000_000
"""An invariant broke in the window of an anomaly if it did so while its operations ran, or so long before or after."""

_PARTICULAR: Final = re.compile(
    r"""\ \([^()]*\)           # what is added in brackets, such as which row
    | "[^"]*" | '[^'\s]*'     # values
    | \[[^][]*\] | \{[^{}]*\}
    | (?<![\w-])(?:nil|None|true|false)(?![\w-])
    | \b[0-9a-f]{12,}\b
    | (?<![\w.:+-])(?=[\w.:+-]*\d)[\w.:+-]+  # numbers, ids, nodes and what is named with a number
    """,
    re.VERBOSE,
)
_SEVERAL: Final = re.compile(r"#(?:(?:,? and |, ?| ?/ ?| )#)+")


class Card(NamedTuple):
    """Instances of one class of one checker that have one cause, the first of them told in full; `anchor` is its
    address in the page, `windows` are the times (ns since the history began) of those that say when they were."""

    anchor: str
    checker: str
    kind: str
    items: tuple[Mapping[str, Any], ...]
    windows: tuple[tuple[int, int], ...]

    def met_by(self, other: Card) -> int | None:
        """When (ns) the first window of the other one begins that meets one of its own, widened by WINDOW_NS."""
        met = (
            first_ns
            for begin_ns, end_ns in self.windows
            for first_ns, last_ns in other.windows
            if begin_ns - WINDOW_NS <= last_ns and first_ns <= end_ns + WINDOW_NS
        )
        return min(met, default=None)


def without_particulars(message: str, names: Iterable[str]) -> str:
    """A sentence with `#` for what differs from run to run: numbers, ids, times, values, and nodes (the `names` among
    them that have no number in them); several in a row are one."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    told = re.sub(rf"(?<![\w-])(?:{known})(?![\w-])", "#", message) if known else message
    return _SEVERAL.sub("#", _PARTICULAR.sub(lambda found: "" if found[0].startswith(" (") else "#", told))


def cards_of(checkers: Mapping[str, Mapping[str, Any]], history_start_ns: int = 0) -> list[Card]:
    """The cards of all checkers; breaches are timed from the run's start, `history_start_ns` before the history's."""
    by_cause: dict[tuple[str, str, str], list[tuple[str, str, Mapping[str, Any]]]] = {}
    for checker, verdict in checkers.items():
        anomalies = verdict.get("anomalies")
        for kind, found in anomalies.items() if isinstance(anomalies, dict) else ():
            for item in found if isinstance(found, list | tuple) else ():
                if isinstance(item, Mapping):
                    cause = checker, kind, without_particulars(str(item.get("message")), ())
                    by_cause.setdefault(cause, []).append((checker, kind, item))
    cards = []
    for number, instances in enumerate(by_cause.values(), start=1):
        checker, kind, _ = instances[0]
        items = tuple(item for _, _, item in instances)
        told = [window_of(item, history_start_ns) for item in items]
        windows = tuple(window for window in told if window is not None)
        cards.append(Card(f"found-{number}", checker, kind, items, windows))
    return cards


def beside(card: Card, cards: Sequence[Card]) -> list[tuple[int, Card]]:
    """Of a breach the anomalies in whose windows it lies, of an anomaly such breaches; each with when (ns) it was."""
    inside = card.checker == CHECKER
    others = [other for other in cards if (other.checker == CHECKER) is not inside]
    return [(at_ns, other) for other in others if (at_ns := card.met_by(other)) is not None]


def window_of(item: Mapping[str, Any], history_start_ns: int) -> tuple[int, int] | None:
    """From the first invocation to the last known event of its operations, or the moment of a breach."""
    ops = item.get("ops")
    listed = [op for op in ops if isinstance(op, Mapping)] if isinstance(ops, list | tuple) else []
    times = [op[name] for op in listed for name in ("invoke_time", "complete_time") if isinstance(op.get(name), int)]
    if times:
        return min(times), max(times)
    details = item.get("details")
    at_ns = details.get("time_ns") if isinstance(details, Mapping) else None
    return (at_ns - history_start_ns,) * 2 if isinstance(at_ns, int) and at_ns > 0 else None
