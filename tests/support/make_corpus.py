"""Makes `tests/corpus` anew: a few small histories of every model, with verdicts by brute force, and their table.

    python -m tests.support.make_corpus

Histories are taken in the order of their seeds: some that are valid, one for each class of anomalies that brute force
names, and of what it does not name some that are invalid. What would be valid because it says nothing is left out. They
are Jepsen EDN, or journals where EDN can't say them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.exporters.edn import write_edn
from harness.errors import UserError
from harness.history.journal import JournalWriter
from tests.support.corpus import OWN
from tests.support.small_histories import SMALL, SmallHistory

EACH: Final = 3
"""How many histories there are of each verdict; of those with anomalies that have names, one of each name at least."""

FEWEST: Final = 4
"""Operations of a history; what is shorter shows little."""

MOST_NAMES: Final = 3
"""Of one history: what shows everything explains nothing."""

MOST_NAMED: Final = 10
SEEDS: Final = 400
MORE_SEEDS: Final = 10_000
"""For models by which few histories are invalid."""


def chosen(model: str) -> Iterator[tuple[int, SmallHistory]]:
    """The seeds that are taken, with their histories."""
    taken: Counter[str] = Counter()
    names: set[str] = set()
    for seed in range(MORE_SEEDS):
        small = SMALL[model](seed)
        named = small.anomalies and len(small.anomalies) <= MOST_NAMES
        if small.valid == "true" and judge_source(small.source, model, LocalEngine()).valid == "unknown":
            continue
        new = named and not small.anomalies <= names and taken["false"] < MOST_NAMED
        if small.source.rows >= FEWEST and (new or (not small.anomalies and taken[small.valid] < EACH)):
            taken[small.valid] += 1
            names |= small.anomalies
            yield seed, small
        if seed > SEEDS and (taken["false"] >= EACH or names or model == "stats" or model == "isolation"):
            return


def save(small: SmallHistory, stem: Path) -> str:
    """Write a history; the format's name."""
    path = stem.with_suffix(".edn")
    try:
        write_edn(small.source, path)
        return "edn"
    except UserError:
        path.unlink(missing_ok=True)
    writer = JournalWriter(stem.with_suffix(".journal"))
    for event in small.events:
        writer.append(event)
    writer.close()
    return "journal"


def main() -> None:
    shutil.rmtree(OWN, ignore_errors=True)
    lines = ["\t".join(("file", "format", "model", "valid", "anomalies", "source"))]
    for model in SMALL:
        (OWN / model).mkdir(parents=True)
        for seed, small in chosen(model):
            format = save(small, OWN / model / f"{seed:03}")
            file = f"{model}/{seed:03}.{format}"
            cells = (file, format, model, small.valid, ",".join(sorted(small.anomalies)), f"brute force, seed {seed}")
            lines.append("\t".join(cells))
    (OWN / "index.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
