"""`assay run … --seeds FIRST..LAST`: a line for each seed, a summary, and the worst finding as the exit code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec

from assay.options import RunOptions, validate
from assay.progress import counting
from assay.seeds import Keep, SeedResult, check_jobs, exit_code, run_all, worst
from assay.telling import Teller
from harness.errors import HarnessError, UserError
from harness.run.stopping import ending_runs


def run_seeds(options: RunOptions, seeds: Sequence[int], jobs: int, keep_valid: bool, json_output: bool) -> int:
    """Run every seed and tell what came of each; returns the exit code of the worst finding.

    Told to end it ends the runs that are under way, tells what it has found so far, and raises HarnessError unless that
    is a bug. So it is with a seed of which no run can be made (UserError).
    """
    check_jobs(jobs, options.on)
    validate(replace(options, seed=seeds[0]))  # what the others have of their own, they are refused for in their turn
    runs, asked = (replace(options, seed=seed) for seed in seeds), len(seeds)
    results: list[SeedResult] = []
    teller = Teller()
    found = run_all(runs, min(jobs, asked), Keep.ALL if keep_valid else Keep.FINDINGS)
    try:
        with ending_runs(options.on == "sim"), counting("seeds", asked) as count, closing(found):
            for result in found:
                results.append(result)
                count()
                if not json_output:
                    teller.line(line_of(result))
    except KeyboardInterrupt:
        tell(teller, options, asked, results, json_output)
        sentence = f"stopped: {len(results)} of {asked} seeds had ended; what was under way is removed."
        _end_early(HarnessError(sentence), results)
    except UserError as error:
        if results:
            tell(teller, options, asked, results, json_output)
        _end_early(error, results)
    else:
        tell(teller, options, asked, results, json_output)
    return teller.end(exit_code(word_of(asked, results)))


def _end_early(error: HarnessError | UserError, results: Sequence[SeedResult]) -> None:
    """Why not all seeds ended, raised unless a bug was found by then, which must not be hidden by it."""
    if worst(results) != "invalid":
        raise error from None
    print(f"assay: {error}", file=sys.stderr)


def line_of(result: SeedResult) -> str:
    """One seed in a line; where it is not valid, why, where it is saved and how to run it again below."""
    faults = ", ".join(f"{each['observed']}/{each['requested']} {kind}" for kind, each in (result.faults or {}).items())
    line = f"seed {result.options.seed}: {result.overall}, {result.ops} operations, {result.cpu_s:.1f} CPU-s"
    if faults:
        line += f"; observed of requested: {faults}"
    if result.overall == "valid":
        return line
    more = [*result.reasons, *([f"anomalies: {', '.join(result.anomalies)}"] if result.anomalies else [])]
    more += [f"{name}: {path}" for name, path in (("run", result.run), ("report", result.report)) if path is not None]
    return "\n".join([line, *(f"  {each}" for each in more), f"  again: {result.options.command()}"])


def tell(
    teller: Teller,
    options: RunOptions,
    asked: int,
    results: Sequence[SeedResult],
    json_output: bool,
) -> None:
    """The summary of so many seeds, for people on standard output, or as one JSON object there."""
    if json_output:
        teller.line(msgspec.json.encode(summary_object(options, asked, results)).decode())
        return
    words = Counter(result.overall for result in results)
    counts = ", ".join(f"{words[word]} {word}" for word in ("valid", "invalid", "unknown", "error") if words[word])
    ops, cpu_s = sum(result.ops for result in results), sum(result.cpu_s for result in results)
    teller.line(f"{word_of(asked, results).upper()}: {len(results)} of {asked} seeds: {counts or 'none ended'}")
    teller.line(f"  {ops} operations judged, {cpu_s:.0f} CPU-s")
    for reason, seeds in reasons(results).items():
        shown = ", ".join(str(seed) for seed in seeds[:8]) + (f" and {len(seeds) - 8} more" if len(seeds) > 8 else "")
        teller.line(f"  {len(seeds)} x {reason} (seed {shown})")


def word_of(asked: int, results: Sequence[SeedResult]) -> str:
    """The one word, in text and JSON: the worst finding; of seeds that did not all end it is never that all is well."""
    word = worst(results)
    return word if len(results) == asked or word == "invalid" else "unknown"


def reasons(results: Sequence[SeedResult]) -> dict[str, list[int]]:
    """Why seeds were not valid: each reason with its seeds, the most frequent first."""
    found: dict[str, list[int]] = {}
    for result in results:
        for reason in result.reasons if result.overall != "valid" else ():
            found.setdefault(reason, []).append(result.options.seed)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def summary_object(options: RunOptions, asked: int, results: Sequence[SeedResult]) -> dict[str, Any]:
    """What `--json` prints: `valid` as for one run, of the worst finding; counts; and every seed that was not valid."""
    words = Counter(result.overall for result in results)
    word = word_of(asked, results)
    return {
        "valid": {"invalid": False, "valid": True}.get(word, "unknown"),
        "model": options.workload,
        "overall": word,
        "seeds": {"asked": asked, "ended": len(results), **words},
        "ops": sum(result.ops for result in results),
        "cpu_seconds": round(sum(result.cpu_s for result in results), 1),
        "results": [
            {
                "seed": result.options.seed,
                "overall": result.overall,
                "reasons": result.reasons,
                "anomalies": result.anomalies,
                "run": None if result.run is None else str(result.run),
                "trace": result.trace,
                "command": result.options.command(),
            }
            for result in results
            if result.overall != "valid"
        ],
    }
