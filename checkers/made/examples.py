"""The worked examples of anomalies (`checkers/examples`): tiny histories, each of which shows one.

`index.toml` names for each group of models its anomalies, and for each anomaly the history, the model and what it
means. A history is Jepsen EDN, or, where that can't say enough, text with an operation a line:

    BEGIN-END process OUTCOME f MOPS… FIELD=VALUE…

BEGIN and END are places in the order of events (END is left out for what never completed, and is BEGIN for an event of
its own); MOPS are `r(1)=5`, `w(1,2)=nil` or `append(1)=[5 6]` with partition, row, column and table in parentheses.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from checkers.importers.detect import open_source
from checkers.source import Source
from harness.history.ops import Mop, Op
from harness.history.table import to_table

EXAMPLES: Final = Path(__file__).parents[1] / "examples"

_LINE: Final = re.compile(r"(\d+)-(\d*) +(-?\d+) +(ok|fail|info) +(\S+)(.*)")
_MOP: Final = re.compile(r"([a-z]+)\(([\d,]+)\)=(\[[^\]]*\]|\S+)")
_FIELD: Final = re.compile(r"\b([a-z_]+)=(\S+)")


@dataclass(frozen=True, slots=True)
class Example:
    """One anomaly's entry in the index."""

    anomaly: str
    model: str
    file: str
    meaning: str
    rules_out: str = ""
    also: tuple[str, ...] = ()
    consistency: str | None = None
    settings: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where the history is."""
        return EXAMPLES / self.file


@dataclass(frozen=True, slots=True)
class ExampleGroup:
    """Models that share their anomalies."""

    title: str
    models: tuple[str, ...]
    words: str
    examples: tuple[Example, ...]


def groups() -> tuple[ExampleGroup, ...]:
    """The groups of the index, in its order."""
    index = tomllib.loads((EXAMPLES / "index.toml").read_text())
    return tuple(_group(entry) for entry in index["group"])


def _group(group: dict[str, Any]) -> ExampleGroup:
    models = tuple(group["models"])
    examples = []
    for entry in group.get("anomaly", ()):
        model = entry.get("model", models[0])
        lists: dict[str, Any] = {name: tuple(entry.get(name, ())) for name in ("also", "settings")}
        file = entry.get("file", f"{model}/{entry['name']}.edn")
        known = {name: entry[name] for name in ("rules_out", "consistency") if name in entry}
        examples.append(Example(entry["name"], model, file, entry["meaning"], **known, **lists))
    return ExampleGroup(group["title"], models, group["words"], tuple(examples))


def open_example(path: Path) -> Source:
    """An example that is a history, opened."""
    if path.suffix != ".txt":
        return open_source(path)
    events = [op.complete(op.type, index=index) for index, op in enumerate(events_of(path.read_text()))]
    table = to_table(events)
    return Source(path, "journal", table.num_rows, table=table)


def events_of(text: str) -> list[Op]:
    """The events of an example in text, in order; times are a millisecond an event."""
    placed: list[tuple[int, Op]] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            placed.extend(_events(line))
    return [event for _, event in sorted(placed, key=lambda pair: pair[0])]


def _events(line: str) -> Iterator[tuple[int, Op]]:
    matched = _LINE.fullmatch(line.rstrip())
    if matched is None:
        raise ValueError(f"not an operation: {line!r}")
    begin, end, process, outcome, f, rest = matched.groups()
    mops = tuple(_mop(*found) for found in _MOP.findall(rest))
    fields: dict[str, Any] = {
        name: int(v) if v.lstrip("-").isdigit() else v for name, v in _FIELD.findall(_MOP.sub("", rest))
    }
    unanswered = tuple(
        Mop(m.f, m.partition, table=m.table, row=m.row, column=m.column) if m.f == "r" else m for m in mops
    )
    first = int(begin)
    if end == begin:
        yield first, Op("info", int(process), f, mops, time=first * 1_000_000, **fields)
        return
    asked = {name: value for name, value in fields.items() if name not in ("node", "served_ts")}
    invocation = Op("invoke", int(process), f, unanswered, time=first * 1_000_000, **asked)
    yield first, invocation
    if end:
        done = msgspec.structs.replace(invocation, mops=mops, time=int(end) * 1_000_000, **fields)
        yield int(end), done.complete(outcome)  # type: ignore[arg-type]


def _mop(f: str, address: str, value: str) -> Mop:
    parts = [int(part) for part in address.split(",")]
    partition, row, column, table = parts + [0] * (4 - len(parts))
    cell: dict[str, Any] = {"table": table, "row": row, "column": column}
    if value.startswith("["):
        return Mop(f, partition, None, None, tuple(_item(item) for item in value[1:-1].split()), **cell)
    value, *items = value.replace("[", " ").replace(",", " ").rstrip("]").split()
    return Mop(f, partition, _item(value), None, tuple(map(_item, items)) or None, **cell)


def _item(text: str) -> int | None:
    return None if text == "nil" else int(text)
