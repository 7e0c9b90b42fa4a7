"""The worked examples of anomalies: tiny histories in `tests/checkers/examples`, and the document made of them.

`index.toml` names for each group of models its anomalies, and for each anomaly the history, the model and what it
means. A history is Jepsen EDN, or, where that can't say enough, text with an operation a line:

    BEGIN-END process OUTCOME f MOPS… FIELD=VALUE…

BEGIN and END are places in the order of events (END is left out for what never completed, and is BEGIN for an event of
its own); MOPS are `r(1)=5`, `w(1,2)=nil` or `append(1)=[5 6]` with partition, row, column and table in parentheses.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from checkers.api import check
from checkers.options import CheckOptions
from checkers.transactions.lattice import IMPLIED_ANOMALIES, MODELS, implied_anomalies, ruled_out
from checkers.verdict import Verdict
from harness.history.journal import JournalWriter
from harness.ops import Mop, Op
from harness.rundir import create

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "tests" / "checkers" / "examples"
DOCUMENT = ROOT / "docs" / "anomalies.md"

LINE = re.compile(r"(\d+)-(\d*) +(-?\d+) +(ok|fail|info) +(\S+)(.*)")
MOP = re.compile(r"([a-z]+)\(([\d,]+)\)=(\[[^\]]*\]|\S+)")
FIELD = re.compile(r"\b([a-z_]+)=(\S+)")


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
        return EXAMPLES / self.file

    def verdict(self, scratch: Path) -> Verdict:
        settings = dict(setting.split("=", 1) for setting in self.settings)
        options = CheckOptions(consistency=self.consistency, settings=settings)
        path = READERS.get(self.path.suffix, lambda path, _: path)(self.path, scratch)
        return check(path, self.model, engine="local", options=options)

    def command(self) -> str:
        """How to see the same."""
        words = ["assay check", str(self.path.relative_to(ROOT)), "--model", self.model]
        words += [f"--consistency {self.consistency}"] if self.consistency else []
        return " ".join([*words, *(f"-o {setting}" for setting in self.settings)])


@dataclass(frozen=True, slots=True)
class Group:
    """Models that share their anomalies."""

    title: str
    models: tuple[str, ...]
    words: str
    examples: tuple[Example, ...]


def groups() -> tuple[Group, ...]:
    """The index."""
    index = tomllib.loads((EXAMPLES / "index.toml").read_text())
    return tuple(_group(told) for told in index["group"])


def _group(told: dict[str, Any]) -> Group:
    models = tuple(told["models"])
    examples = []
    for entry in told.get("anomaly", ()):
        model = entry.get("model", models[0])
        lists = {name: tuple(entry.get(name, ())) for name in ("also", "settings")}
        file = entry.get("file", f"{model}/{entry['name']}.edn")
        known = {name: entry[name] for name in ("rules_out", "consistency") if name in entry}
        examples.append(Example(entry["name"], model, file, entry["meaning"], **known, **lists))
    return Group(told["title"], models, told["words"], tuple(examples))


def journal_of(text: Path, scratch: Path) -> Path:
    """An example in text as a journal of ours."""
    path = scratch / f"{text.parent.name}-{text.stem}.journal"
    writer = JournalWriter(path)
    for index, event in enumerate(events_of(text.read_text())):
        writer.append(event.complete(event.type, index=index))
    writer.close()
    return path


def events_of(text: str) -> list[Op]:
    """The events of an example in text, in order; times are a millisecond an event."""
    placed: list[tuple[int, Op]] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            placed.extend(_events(line))
    return [event for _, event in sorted(placed, key=lambda pair: pair[0])]


def _events(line: str) -> Iterator[tuple[int, Op]]:
    matched = LINE.fullmatch(line.rstrip())
    assert matched, f"not an operation: {line!r}"
    begin, end, process, outcome, f, rest = matched.groups()
    mops = tuple(_mop(*found) for found in MOP.findall(rest))
    fields = {name: int(v) if v.lstrip("-").isdigit() else v for name, v in FIELD.findall(MOP.sub("", rest))}
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
    cell = {"table": table, "row": row, "column": column}
    if value.startswith("["):
        return Mop(f, partition, None, None, tuple(_item(item) for item in value[1:-1].split()), **cell)
    return Mop(f, partition, _item(value), **cell)


def _item(text: str) -> int | None:
    return None if text == "nil" else int(text)


def run_of(log: Path, scratch: Path) -> Path:
    """An example that is a node's log, as the directory of a run."""
    rundir = create(scratch, "logs", datetime(2026, 1, 1))
    rundir.write_json(rundir.run_json, {"workload": "logs"})
    journal = JournalWriter(rundir.journal)
    journal.append(Op("invoke", 0, "read", index=0, time=0))
    journal.close()
    (rundir.nodes / "t1").mkdir(parents=True)
    (rundir.nodes / "t1" / "node.log").write_bytes(log.read_bytes())
    return rundir.path


READERS: dict[str, Callable[[Path, Path], Path]] = {".txt": journal_of, ".log": run_of}


def rules_out_words(example: Example) -> str:
    """Which consistency models can't hold: as the lattice has it, else as the index says."""
    known = set(IMPLIED_ANOMALIES) | implied_anomalies(IMPLIED_ANOMALIES)
    known |= {name for _, _, forbidden in MODELS.values() for name in forbidden.split()}
    if example.rules_out or example.anomaly not in known:
        return example.rules_out
    return f"{', '.join(ruled_out([example.anomaly])[0])}, and everything stronger"


def section(example: Example, verdict: Verdict) -> str:
    """An anomaly's part of the document; a name that several models use comes with the model."""
    same = [other for group in groups() for other in group.examples if other.anomaly == example.anomaly]
    language = "clojure" if example.path.suffix == ".edn" else "text"
    rules_out = rules_out_words(example)
    others = [name for name in verdict.counts if name != example.anomaly]
    with_it = f" (It comes with {', '.join(f'`{name}`' for name in others)} here.)" if others else ""
    of = f" ({example.model})" if len(same) > 1 else ""
    lines = [f"### {example.anomaly}{of}", " ".join(example.meaning.split())]
    lines += [f"Rules out: {rules_out}."] if rules_out else []
    lines += [f"```{language}\n{example.path.read_text().strip()}\n```"]
    lines += [
        f"`{example.command()}` says:{with_it}" if language == "clojure" else f"Model `{example.model}`:{with_it}"
    ]
    lines += [f"> {verdict.anomalies[example.anomaly][0].message}"]
    return "\n\n".join(lines)


def document(verdicts: dict[Example, Verdict]) -> str:
    """The whole of `docs/anomalies.md`."""
    parts = [(EXAMPLES / "introduction.md").read_text().strip()]
    contents = []
    for group in groups():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(example.anomaly for example in group.examples))
        contents.append(f"- **{group.title}** ({', '.join(group.models)}): {names or 'none'}")
    parts.append("\n".join(contents))
    for group in groups():
        models = ", ".join(f"`{model}`" for model in group.models)
        parts.append(f"## {group.title}\n\nModels: {models}. {' '.join(group.words.split())}")
        parts += [section(example, verdicts[example]) for example in group.examples]
    return "\n\n".join(parts) + "\n"
