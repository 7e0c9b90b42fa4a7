"""`assay run --seeds`, `--until-invalid` and `--test-count`: one run for each of many seeds, and what they come to."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, get_args

import msgspec

from assay.night.records import NightDone, NightHead, RunEnded
from assay.options import RunOptions, validate
from assay.processes import loading
from assay.progress import counting
from assay.runner import GRACE_S, Keep, RunResult, warm
from assay.telling import Teller, say_at_once, skipped_words
from harness.errors import UserError
from harness.run.stopping import AskedToEnd
from harness.verdict.facts import RunAccount
from harness.verdict.run_verdict import EXIT_CODES, Why

MOST_SEEDS = 1_000_000_000
MOST_SEED = 2**63 - 1

CONFIDENCE = 0.95

WORDS = ("valid", "unknown", "invalid")
WORST_FIRST = (*get_args(Why), None)


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """The seeds to run, in how many processes at once, and how long each may take (None: `assay.runner.limit_s`).

    `until_invalid`: the first that is invalid ends it, and it is told how rare those are where none was. `endless`:
    nobody asked for a last seed.
    """

    seeds: range
    jobs: int = 1
    keep: Keep = Keep.FINDINGS
    timeout_s: float | None = None
    until_invalid: bool = False
    endless: bool = False

    @property
    def asked(self) -> int | None:
        """How many seeds there are to be."""
        return None if self.endless else len(self.seeds)


def parse_seeds(text: str) -> range:
    """`FIRST..LAST` as a range that includes both, or one number; raises UserError for anything else."""
    first, dots, last = text.partition("..")
    try:
        low = int(first)
        high = int(last) if dots else low
    except ValueError:
        raise UserError(f"--seeds takes FIRST..LAST, such as 1..500, not {text!r}.") from None
    if low > high:
        raise UserError(f"--seeds is {text!r}: the first is above the last.")
    if high - low >= MOST_SEEDS:
        raise UserError(f"--seeds is {text!r}; a command runs at most {MOST_SEEDS} seeds.")
    if low < 0 or high > MOST_SEED:
        raise UserError(f"--seeds is {text!r}; seeds lie between 0 and 2^63 - 1.")
    return range(low, high + 1)


def seeds_from(first: int, count: int | None) -> range:
    """The seeds of `--test-count` from the first upwards, without an end if `count` is None; raises UserError for a
    count out of bounds."""
    if count is not None and not 1 <= count <= MOST_SEEDS:
        raise UserError(f"--test-count is {count}; it has to lie between 1 and {MOST_SEEDS}.")
    return range(first, min(first + (count or MOST_SEEDS), MOST_SEED + 1))


def worst(results: Iterable[RunResult]) -> tuple[str, str | None]:
    """The one word over several seeds, and why: the worst finding; `unknown`, `interrupted` if there was none."""
    return min(
        ((result.overall, result.why) for result in results),
        key=lambda outcome: (-WORDS.index(outcome[0]), WORST_FIRST.index(outcome[1])),
        default=("unknown", "interrupted"),
    )


def check_jobs(jobs: int, on: str) -> None:
    """Raise UserError for a number of processes that can't be."""
    if not 1 <= jobs <= 64:
        raise UserError(f"--jobs is {jobs}; it has to lie between 1 and 64.")
    if jobs > 1 and on != "sim":
        raise UserError("--jobs above 1 is for the simulator: runs in containers would slow each other down.")


def run_seeds(options: RunOptions, plan: SeedPlan, json_output: bool, for_good: bool = False) -> int:
    """Run every seed and tell what came of each as it ends; returns the exit code of the worst finding.

    Told to end it ends the runs that are under way and tells what it has found so far. So it is with a seed of which no
    run can be made, which is raised (UserError) unless a bug was found by then. See `assay.processes` for `for_good`.
    """
    check_jobs(plan.jobs, options.on)
    validate(replace(options, seed=plan.seeds[0]))  # what the others have of their own, they are refused for later
    results: list[RunResult] = []
    teller, asked = Teller(), AskedToEnd(lambda times: say_ending(options.on, times))
    interrupted, refused = False, None
    with asked.in_charge():
        try:
            with loading(for_good):
                warm(options.workload)
            with counting("seeds", plan.asked) as count, _night_of(options, plan, asked) as found:
                for _, result in found:
                    results.append(result)
                    count()
                    if not json_output:
                        teller.line(line_of(result))
                    if plan.until_invalid and result.overall == "invalid":
                        break
        except KeyboardInterrupt:
            interrupted = True
        except UserError as error:
            refused = error
        if results or not refused:
            tell(teller, options, plan, sorted(results, key=lambda each: each.options.seed), json_output)
    if interrupted:
        of = "" if plan.asked is None else f" of {plan.asked}"
        print(f"assay: stopped: {len(results)}{of} seeds had ended; what was under way is removed.", file=sys.stderr)
    word = word_of(plan, results)[0]
    if refused and word != "invalid":  # a bug that was found must not be hidden by it
        raise refused
    if refused:
        print(f"assay: {refused}", file=sys.stderr)
    return teller.end(EXIT_CODES[word])


@contextmanager
def _night_of(
    options: RunOptions, plan: SeedPlan, asked: AskedToEnd
) -> Iterator[Generator[tuple[RunEnded, RunResult], None, NightDone]]:
    """The night of one cell that the seeds are: every run of it has its line, and nothing else is run."""
    from assay.night.journal import NightJournal, begin_night, head_of, sole_night
    from assay.night.loop import NightWork, carry_out_night
    from assay.night.plan import cell_of, memory_share_mb

    first, last, runs = plan.seeds[0], plan.seeds[-1], len(plan.seeds)
    cell = cell_of(options, options.workload, seeds=((first, last),), least=0, most=runs)
    text = f"# {cell.command} --seeds {first}..{last}\n"
    jobs = min(plan.jobs, runs)
    limits = {"memory_mb": memory_share_mb(jobs), **({} if plan.timeout_s is None else {"run_time_s": plan.timeout_s})}

    def head(id: str) -> NightHead:
        made = head_of(id, options.workload, text)
        return msgspec.structs.replace(made, budget={"runs": runs}, limits=limits, jobs=jobs, cells=(cell,))

    with sole_night(options.store, shared=True):
        night = begin_night(options.store, options.workload, text, head)
        journal = NightJournal(night.directory, night.whole_bytes, night.seal)
        work = NightWork(night, journal, keep=plan.keep, bounded=False, repeats=False, refusals_end=True)
        with closing(carry_out_night(work, asked)) as found:
            yield found


def say_ending(on: str, times: int) -> None:
    """Say at once what is done about the wish to end."""
    if times == 1 and on != "sim":
        what = "faults are healed, the history is judged, containers are removed"
        most = f"some seconds as a rule, {GRACE_S[on]:g} s at most"
        say_at_once(f"stopping: {what}: {most}; ctrl-c once more ends it at once.")
    elif times == 1:
        say_at_once(f"stopping: the runs under way are thrown away: {GRACE_S[on]:g} s at most.")
    elif times == 2 and on != "sim":
        say_at_once("ending at once; `assay doctor --clean` removes what is left in containers.")


def line_of(result: RunResult) -> str:
    """One seed in a line; where it is not valid, why, where it is saved and how to run it again below."""
    faults = ", ".join(map(_fault_words, (result.faults or {}).items()))
    why = f" ({result.why})" if result.why else ""
    line = f"seed {result.options.seed}: {result.overall}{why}, {result.ops} operations, {result.cpu_s:.1f} CPU-s"
    if faults:
        line += f"; observed of requested: {faults}"
    if result.overall == "valid":
        return line
    more = [*result.reasons, *([f"anomalies: {', '.join(result.anomalies)}"] if result.anomalies else [])]
    more += [f"{name}: {path}" for name, path in (("run", result.run), ("report", result.report)) if path is not None]
    return "\n".join([line, *(f"  {each}" for each in more), f"  again: {result.options.command()}"])


def _fault_words(fault: tuple[str, dict[str, Any]]) -> str:
    kind, counts = fault
    skipped = skipped_words(counts)
    return f"{counts['observed']}/{counts['requested']} {kind}" + (f", {skipped}" if skipped else "")


def tell(teller: Teller, options: RunOptions, plan: SeedPlan, results: Sequence[RunResult], json_output: bool) -> None:
    """The summary of the seeds that ended, for people on standard output, or as one JSON object there."""
    if json_output:
        teller.line(msgspec.json.encode(summary_object(options, plan, results)).decode())
        return
    words = Counter(result.overall for result in results)
    counts = ", ".join(f"{words[word]} {word}" for word in ("valid", "invalid", "unknown") if words[word])
    ops, cpu_s = sum(result.ops for result in results), sum(result.cpu_s for result in results)
    word, why = word_of(plan, results)
    of = "" if plan.asked is None else f" of {plan.asked}"
    teller.line(f"{word.upper()}: {len(results)}{of} seeds: {counts or 'none ended'}" + (f" ({why})" if why else ""))
    teller.line(f"  {ops} operations judged, {cpu_s:.0f} CPU-s")
    if (bound := bound_of(plan, results)) is not None:
        left_out = f"; {words['unknown']} unknown are left out" if words["unknown"] else ""
        share = f"below {percent(bound)} % are invalid ({100 * CONFIDENCE:g} %, one-sided)"
        teller.line(f"  0 of {words['valid']}: {share}{left_out}")
    for reason, seeds in reasons(results).items():
        shown = ", ".join(str(seed) for seed in seeds[:8]) + (f" and {len(seeds) - 8} more" if len(seeds) > 8 else "")
        teller.line(f"  {len(seeds)} x {reason} (seed {shown})")


def word_of(plan: SeedPlan, results: Sequence[RunResult]) -> tuple[str, str | None]:
    """The one word and why, in text and JSON: the worst finding; of seeds that did not all end it is never that all is
    well."""
    word, why = worst(results)
    return ("unknown", "interrupted") if len(results) < len(plan.seeds) and word != "invalid" else (word, why)


def bound_of(plan: SeedPlan, results: Sequence[RunResult]) -> float | None:
    """Below which share of such runs are invalid where none of these was, if seeds are tried for that: the one-sided
    bound of a binomial share, exact. Of runs that are unknown nobody can say that they were not."""
    words = Counter(result.overall for result in results)
    if not plan.until_invalid or words["invalid"] or not words["valid"]:
        return None
    return upper_bound(words["valid"])


def upper_bound(runs: int) -> float:
    """The one-sided bound p of a share of which `runs` trials have shown nothing: (1 - p)^runs = 1 - CONFIDENCE."""
    return -math.expm1(math.log1p(-CONFIDENCE) / runs)


def percent(share: float) -> str:
    """In percent, rounded up to two digits, so that it stays a bound."""
    digits = 1 - math.floor(math.log10(100 * share))
    rounded = math.ceil(round(100 * share * 10**digits, 6)) / 10**digits
    return f"{rounded:.{max(0, 1 - math.floor(math.log10(rounded)))}f}"


def reasons(results: Sequence[RunResult]) -> dict[str, list[int]]:
    """Why seeds were not valid: each reason with its seeds, the most frequent first."""
    found: dict[str, list[int]] = {}
    for result in results:
        for reason in result.reasons if result.overall != "valid" else ():
            found.setdefault(reason, []).append(result.options.seed)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def summary_object(options: RunOptions, plan: SeedPlan, results: Sequence[RunResult]) -> dict[str, Any]:
    """What `--json` prints: `valid` as for one run, of the worst finding; counts; and every seed."""
    words = Counter(result.overall for result in results)
    word, why = word_of(plan, results)
    bound = bound_of(plan, results)
    return {
        "valid": {"invalid": False, "valid": True}.get(word, "unknown"),
        "model": options.workload,
        "overall": word,
        "why": why,
        "seeds": {"asked": plan.asked, "ended": len(results), **words},
        **({} if bound is None else {"bound": {"below": bound, "of": words["valid"], "confidence": CONFIDENCE}}),
        "ops": sum(result.ops for result in results),
        "cpu_seconds": round(sum(result.cpu_s for result in results), 1),
        "results": [_seed_object(options, result) for result in results],
    }


def _seed_object(options: RunOptions, result: RunResult) -> dict[str, Any]:
    account = result.account or RunAccount(workload=options.workload, environment=options.on)
    return {
        "seed": result.options.seed,
        "overall": result.overall,
        "why": result.why,
        "reasons": result.reasons,
        "anomalies": result.anomalies,
        "ops": result.ops,
        **msgspec.to_builtins(account),
        "lost": None if result.lost is None else msgspec.to_builtins(result.lost),
        "run": None if result.run is None else str(result.run),
        "report": None if result.report is None else str(result.report),
        "trace": result.trace,
        "command": result.options.command(),
    }
