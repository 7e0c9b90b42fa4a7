"""The document made of the worked examples of anomalies (`checkers.made.examples`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from checkers.api import check
from checkers.made.examples import EXAMPLES, Example, events_of, groups
from checkers.options import CheckOptions
from checkers.transactions.lattice import IMPLIED_ANOMALIES, MODELS, implied_anomalies, ruled_out
from checkers.verdict import Verdict
from harness.history.journal import JournalWriter
from harness.history.ops import Op
from harness.history.rundir import create

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "anomalies.md"


def verdict_of(example: Example, scratch: Path) -> Verdict:
    """What its model says of an example."""
    settings = dict(setting.split("=", 1) for setting in example.settings)
    options = CheckOptions(consistency=example.consistency, settings=settings)
    path = READERS.get(example.path.suffix, lambda path, _: path)(example.path, scratch)
    return check(path, example.model, engine="local", options=options)


def command_of(example: Example) -> str:
    """How to see the same."""
    words = ["assay check", str(example.path.relative_to(ROOT)), "--model", example.model]
    words += [f"--consistency {example.consistency}"] if example.consistency else []
    return " ".join([*words, *(f"-o {setting}" for setting in example.settings)])


def journal_of(text: Path, scratch: Path) -> Path:
    """An example in text as a journal of ours."""
    path = scratch / f"{text.parent.name}-{text.stem}.journal"
    writer = JournalWriter(path)
    for index, event in enumerate(events_of(text.read_text())):
        writer.append(event.complete(event.type, index=index))
    writer.close()
    return path


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
        f"`{command_of(example)}` says:{with_it}" if language == "clojure" else f"Model `{example.model}`:{with_it}"
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
