"""Judges fresh small histories of every model and compares with brute force (`tests.support.small_histories`).

    python -m tests.support.fresh --histories 50000 --first-seed 1000000

Prints a line a model: how many were valid, invalid and unknown, and how many disagree, with their seeds. The exit code
is 1 if any does. What is found must be among what brute force names, where it names anything.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable

from checkers.api import judge_source
from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.verdict import Verdict
from tests.support.small_histories import SMALL, SmallHistory


def word_of(small: SmallHistory, verdict: Verdict) -> str:
    """What was found, in the words of `SmallHistory.valid`; `unknown` where the history says too little."""
    if "=" in small.valid:
        return f"strongest={verdict.strongest}"
    return str(verdict.valid).lower()


def disagreement(small: SmallHistory, verdict: Verdict) -> str | None:
    """What is wrong with a verdict, or None. Unknown is no contradiction of valid, unless the checker crashed."""
    found, reason = word_of(small, verdict), verdict.reason or ""
    if (found != small.valid and (found, small.valid) != ("unknown", "true")) or "crashed" in reason:
        return f"brute force says {small.valid}, the checker {found} {verdict.counts} {reason}"
    if small.anomalies and not set(verdict.counts) <= small.anomalies:
        return f"brute force names {sorted(small.anomalies)}, the checker {sorted(verdict.counts)}"
    return None


def compare(model: str, seeds: Iterable[int], engine: Engine) -> tuple[Counter[str], list[str]]:
    """How often each verdict was given, and the disagreements."""
    words: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        small = SMALL[model](seed)
        if small.source.rows == 0:
            continue
        verdict = judge_source(small.source, model, engine)
        words[word_of(small, verdict)] += 1
        if told := disagreement(small, verdict):
            wrong.append(f"{model}, seed {seed}: {told}")
    return words, wrong


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--histories", type=int, default=50_000, help="of all models together")
    parser.add_argument("--first-seed", type=int, default=1_000_000)
    parser.add_argument("--models", default=",".join(SMALL), help="separated by commas")
    asked = parser.parse_args()
    models = asked.models.split(",")
    each = -(-asked.histories // len(models))
    sum_of, disagreements = 0, 0
    for model in models:
        words, wrong = compare(model, range(asked.first_seed, asked.first_seed + each), LocalEngine())
        sum_of += words.total()
        disagreements += len(wrong)
        told = ", ".join(f"{count} {word}" for word, count in sorted(words.items()))
        print(f"{model}: {words.total()} histories: {told}; {len(wrong)} disagree", flush=True)
        for line in wrong[:5]:
            print(f"  {line}", flush=True)
    print(f"{sum_of} histories of {len(models)} models, {disagreements} disagree")
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
