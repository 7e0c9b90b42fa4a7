"""Shrinks valid histories under a predicate that lies: whatever is left out by a model's rule, none becomes invalid.

    python -m tests.support.lying --histories 1000

Half of them are small ones by brute force (`tests.support.small_histories`), half are made (`checkers.made`). Prints a
line a model; the exit code is 1 if any part of a valid history is refuted, and then says which seed that was.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from itertools import count, islice
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from assay.reproduce.reduction import Trials, reduced
from assay.reproduce.shrink_history import HistoryQuestion, part_name, passes_of
from checkers.made.generate import BASES, MadeHistory, made_batches
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.polygraph.conditions import CONDITIONS
from harness.history.columns import SCHEMA
from tests.support.small_histories import SMALL

MADE_OPERATIONS: Final = 40
_MOST_ACCEPTED: Final = 12
"""Parts of one history that are judged at most."""

_LEVELS: Final = tuple({"consistency": level} for level in (*CONDITIONS, "cursor-stability", "monotonic-atomic-view"))
_CAS: Final = ({}, {"failed_cas": "observed"}, {"settings": {"initial": "0"}})
VARIANTS: Final[Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "register": _CAS,
    "cas-register": _CAS,
    "multi-register": ({}, {"settings": {"initial": "0"}}),
    "list-append": _LEVELS,
    "rw-register": (
        *_LEVELS,
        *({"consistency": "serializable", "settings": {f"{name}-keys": "true"}} for name in ("wfr", "sequential")),
        {"consistency": "snapshot-isolation", "settings": {"linearizable-keys": "true"}},
    ),
    "isolation": tuple({"consistency": level} for level in ("causal", "read-atomic", "read-committed")),
    "set-full": ({}, {"settings": {"linearizable": "true"}}),
    "semaphore": ({}, {"settings": {"permits": "2"}}),
}
"""Options by which the models' histories are judged, in turn; those without are judged by default."""

LIED_ABOUT: Final = tuple(name for name in SMALL if name != "stats")
"""The models whose histories can be invalid."""


def made(model: str, seed: int) -> Source:
    """A history that is valid by construction."""
    keys = {"unique-ids": None, "bank": 2 + seed % 3, "catalog": 2 + seed % 2}.get(model, 1 + seed % 3)
    texts: dict[str, int] = {}
    wanted = MadeHistory(model, MADE_OPERATIONS, keys, info=0.1, seed=seed)
    table = pa.Table.from_batches([batch.cast(SCHEMA) for batch in made_batches(wanted, texts)], SCHEMA)
    return Source(Path("made"), "parquet", table.num_rows, table=table, dictionary=tuple(texts))


def valid_histories(model: str, first_seed: int) -> Iterator[tuple[int, Source, HistoryQuestion]]:
    """Valid histories, small ones and made ones in turn, with how they are judged."""
    variants = VARIANTS.get(model, ({},))
    for seed in count(first_seed):
        question = HistoryQuestion(model, CheckOptions(**variants[seed // 2 % len(variants)]))  # type: ignore[arg-type]
        source = made(model, seed) if seed % 2 and model in BASES else SMALL[model](seed).source
        verdict = question.verdict(source) if source.rows else None
        if verdict is not None and verdict.valid is True:
            yield seed, source, question


def refuted_part(source: Source, question: HistoryQuestion, seed: int) -> Source | None:
    """A part of a valid history, left by passes that were lied to, that is refuted; None if none is."""
    random, accepted = Random(seed), list[Source]()

    def lies(part: Source) -> bool:
        if random.random() < 0.6:
            return False
        accepted.append(part)
        return True

    reduced(source, passes_of(question), Trials(lies, lambda part: part_name(part) if part.table else b"", inf))
    chosen = accepted if len(accepted) <= _MOST_ACCEPTED else random.sample(accepted, _MOST_ACCEPTED)
    for part in chosen:
        verdict = question.verdict(part)
        if verdict is not None and verdict.valid is False:
            return part
    return None


def broken_rules(model: str, histories: int, first_seed: int = 0) -> Iterator[str]:
    """Parts of a number of valid histories that are refuted, in words."""
    for seed, source, question in islice(valid_histories(model, first_seed), histories):
        if (part := refuted_part(source, question, seed)) is not None:
            verdict = question.verdict(part)
            assert verdict is not None
            asked = (
                f"{question.options.consistency or ''} {dict(question.options.settings)} {question.options.failed_cas}"
            )
            yield f"{model}, seed {seed} ({asked}): {part.rows} of {source.rows} operations show {verdict.counts}"


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--histories", type=int, default=1_000, help="of each model")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--models", default=",".join(LIED_ABOUT), help="separated by commas")
    asked = parser.parse_args()
    broken = 0
    for model in asked.models.split(","):
        assert model in MODELS, model
        found = list(broken_rules(model, asked.histories, asked.first_seed))
        broken += len(found)
        print(f"{model}: {asked.histories} valid histories, {len(found)} became invalid", flush=True)
        for line in found[:5]:
            print(f"  {line}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
