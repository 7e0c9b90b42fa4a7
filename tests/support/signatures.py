"""What signatures are worth: `python -m tests.support.signatures` has ten findings each of many flaws, all under one
command (`--nemesis all --swarm`), for a flaw's own nemesis would give it away.

Told is in how many pairs of findings of one flaw both have the same family, and in how many pairs of one family and
detail both are of one flaw. Flaws that this command finds in less than one seed of five are told and not counted. What
was tried is in a record, so that a measurement that was broken off goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import msgspec

from assay.options import validate
from assay.runner import Keep, RunOrder, run_orders
from cluster.flaws import FLAWS, Flaw
from tests.support.find_seeds import generic_options

RAREST = 5
"""A flaw counts that is found in one seed of this many at least."""


class SeenFinding(msgspec.Struct, frozen=True):
    """A seed under which the command with this flaw was refuted (else both are empty), and its strongest signature."""

    flaw: str
    seed: int
    family: str = ""
    detail: str = ""


class Worth(msgspec.Struct, frozen=True):
    """Shares of pairs of findings: of those of one flaw, how many share a family (`recall`); of those that share family
    and detail, how many are of one flaw (`precision`); and the pairs of flaws that share them (`merged`)."""

    recall: float
    precision: float
    merged: dict[tuple[str, str], int]


def worth(findings: Iterable[SeenFinding]) -> Worth:
    """Of all pairs; a share of no pairs is 1."""
    pairs = list(combinations(findings, 2))
    related = [one.family == other.family for one, other in pairs if one.flaw == other.flaw]
    alike = [(one.flaw, other.flaw) for one, other in pairs if (one.family, one.detail) == (other.family, other.detail)]
    merged = Counter((min(names), max(names)) for names in alike if len(set(names)) == 2)
    return Worth(
        sum(related) / len(related) if related else 1.0,
        1 - merged.total() / len(alike) if alike else 1.0,
        dict(merged.most_common()),
    )


def findings_of(flaw: Flaw, wanted: int, record: Path, jobs: int) -> list[SeenFinding]:
    """The first findings of a flaw, from seed 1 on: as many as are `wanted`, fewer where they are too rare."""
    tried = {each.seed: each for each in recorded(record) if each.flaw == flaw.name}
    seeds = range(1, RAREST * wanted + 1)
    for first in range(0, len(seeds), jobs):
        found = sum(bool(each.family) for each in tried.values())
        if found >= wanted or first - RAREST * found >= 2 * RAREST:
            break
        missing = [seed for seed in seeds[first : first + jobs] if seed not in tried]
        for each in seen(flaw, missing, jobs):
            tried[each.seed] = each
            with record.open("ab") as file:
                file.write(msgspec.json.encode(each) + b"\n")
    return sorted((each for each in tried.values() if each.family), key=lambda each: each.seed)[:wanted]


def recorded(record: Path) -> list[SeenFinding]:
    lines = record.read_bytes().splitlines() if record.exists() else []
    return [msgspec.json.decode(line, type=SeenFinding) for line in lines]


def seen(flaw: Flaw, seeds: Sequence[int], jobs: int) -> Iterator[SeenFinding]:
    """What comes of the runs of these seeds; harness failures are none of the flaw's."""
    with tempfile.TemporaryDirectory(prefix="assay-signatures-") as store:
        runs = [validate(replace(generic_options(flaw, seed), store=Path(store))) for seed in seeds]
        orders = [RunOrder(options, Keep.NOTHING, measured=True) for options in runs]
        for order, result in run_orders(orders, jobs):
            found = [each for each in result.measures.findings if each.kind == "safety"] if result.measures else []
            first = (found[0].family, found[0].detail) if found else ("", "")
            yield SeenFinding(flaw.name, order.options.seed, *first)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.signatures", description=__doc__)
    parser.add_argument("flaws", nargs="*", choices=[[], *FLAWS], help="names of flaws; all of them if none is given")
    parser.add_argument("--findings", type=int, default=10, help="so many of each flaw (10)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", type=Path, default=Path("store/signatures.jsonl"))
    asked = parser.parse_args(arguments)
    asked.record.parent.mkdir(parents=True, exist_ok=True)
    every: list[SeenFinding] = []
    frequent = 0
    for name in asked.flaws or FLAWS:
        found = findings_of(FLAWS[name], asked.findings, asked.record, asked.jobs)
        tried = sum(each.flaw == name for each in recorded(asked.record))
        families = Counter(f"{each.family}/{each.detail}" for each in found)
        print(f"{name}: {len(found)} of {tried} seeds; {dict(families.most_common())}", flush=True)
        if len(found) == asked.findings:
            frequent += 1
            every += found
    told = worth(every)
    words = f"recall by family {told.recall:.2f}, precision with details {told.precision:.2f}"
    print(f"{frequent} flaws, {len(every)} findings: {words}")
    for (one, other), pairs in told.merged.items():
        print(f"  {one} and {other} are one signature in {pairs} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
