"""Many seeds of one run, one after the other in each of a few processes, so that starting up is paid once."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, get_args

import msgspec

from assay.options import RunOptions, validate
from assay.processes import begin_subprocess
from assay.progress import counting
from assay.telling import Teller
from harness.errors import HarnessError, UserError
from harness.history.arrow import without_pandas
from harness.history.cores import usable_cores
from harness.history.rundir import RunDir, adopt
from harness.run.spec import Silent
from harness.run.stopping import end_runs_from_now_on, ending_runs, in_charge, signals_held
from harness.verdict.facts import RunAccount
from harness.verdict.run_verdict import CHECKER, EXIT_CODES, Why

GRACE_S = 3.0
"""How long a process of the pool may take to end its run, and to remove what is left of it."""

MOST_SEEDS = 1_000_000_000

SEEDS_PER_PROCESS = 200
"""Processes are replaced after this many runs each: what one leaves behind in memory can't add up over a night."""

WORDS = ("valid", "unknown", "invalid")
WORST_FIRST = (*get_args(Why), None)


class Keep(Enum):
    """Which runs stay in the store: none, those that are not valid, or all."""

    NOTHING = "nothing"
    FINDINGS = "findings"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What came of one seed: the verdict's word and why; where the harness itself raised there is neither `account` nor
    anything but `unknown`, `harness`.

    `anomalies` are names; `invariants` are those among them that broke. `ops` counts judged operations; `faults` are
    counts by kind as adequacy has them; `run` is where the run is saved (None: a valid one, not kept). CPU
    seconds are of run and judging. `stopped` says that the user ended it, and the others with it: only what was refuted
    by then is a result.
    """

    options: RunOptions
    overall: str
    reasons: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    ops: int = 0
    faults: dict[str, dict[str, int]] | None = None
    trace: str | None = None
    run: Path | None = None
    report: Path | None = None
    cpu_s: float = 0.0
    invariants: tuple[str, ...] = ()
    stopped: bool = False
    why: str | None = None
    account: RunAccount | None = None


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
    if low < 0 or high >= 2**63:
        raise UserError(f"--seeds is {text!r}; seeds lie between 0 and 2^63 - 1.")
    return range(low, high + 1)


def run_seed(options: RunOptions, keep: Keep = Keep.FINDINGS, cores: int | None = None) -> SeedResult:
    """One run, judged on `cores` cores (None: all); what `keep` names is saved in its store, with a report unless it is
    valid. Raises UserError for options that no run can be made of, and nothing else: a failure of the harness is a
    result."""
    began_s = time.process_time()
    ends, scratch = in_charge(), None
    try:
        options.store.mkdir(parents=True, exist_ok=True)
        scratch = Path(mkdtemp(prefix=_scratch_of(os.getpid()), dir=options.store))
        with nullcontext() if ends is None else ends.run():
            result = _run_in(scratch, options, keep, cores)
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001  the other seeds go on, and this one is not lost
        result = SeedResult(options, "unknown", (_words(error),), why="harness")
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    return replace(result, cpu_s=time.process_time() - began_s)


def _words(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def _scratch_of(process: int) -> str:
    """How the names begin of the directories in which a process makes its runs."""
    return f".seed-{process}-"


def _run_in(scratch: Path, options: RunOptions, keep: Keep, cores: int | None) -> SeedResult:
    from assay.compose import carry_out
    from assay.judging import judge_saved_run

    judge = partial(judge_saved_run, cores=cores)
    finished = carry_out(options, judge, Silent(), datetime.now(), _nobody, scratch)
    verdict, rundir = finished.outcome.verdict, finished.outcome.rundir
    if finished.outcome.interrupted and verdict.overall != "invalid":
        raise KeyboardInterrupt
    finding = verdict.overall != "valid"
    kept: RunDir | None = None
    lost: tuple[str, ...] = ()
    if keep is Keep.ALL or (finding and keep is Keep.FINDINGS):
        try:
            kept = adopt(rundir, options.store, options.workload)
        except HarnessError as error:  # what was found stands
            lost = (f"the run could not be kept: {error}",)
    return SeedResult(
        options,
        "unknown" if lost and not finding else verdict.overall,
        (*verdict.reasons, *lost),
        anomaly_names(verdict.checkers),
        max((checker.get("ops", 0) for checker in verdict.checkers.values()), default=0),
        dict(verdict.adequacy.details.get("faults", {})),
        finished.trace,
        None if kept is None else kept.path,
        _report(kept) if kept is not None and finding else None,
        invariants=anomaly_names({CHECKER: verdict.checkers.get(CHECKER, {})}),
        stopped=finished.outcome.interrupted,
        why="harness" if lost and not finding else verdict.why,
        account=finished.outcome.account,
    )


def anomaly_names(checkers: Any) -> tuple[str, ...]:
    """The names of all anomalies that the checkers found, each once."""
    return tuple(dict.fromkeys(name for checker in checkers.values() for name in checker.get("anomalies", {})))


def _report(rundir: RunDir) -> Path | None:
    from assay.judging import report_of

    return report_of(rundir)


def _nobody(sentence: str) -> None:
    return None


def run_all(runs: Iterable[RunOptions], jobs: int, keep: Keep = Keep.FINDINGS) -> Generator[SeedResult, None, None]:
    """Every run's result, in the order given, from `jobs` processes; runs are taken as they are needed.

    When a process dies, its pool is lost with it: what was under way is run again, each run in a process of its own, so
    that only the one at fault is `unknown`, `harness`.
    """
    if jobs == 1:
        for options in runs:
            yield (result := run_seed(options, keep))
            if result.stopped:
                raise KeyboardInterrupt
        return
    left, part = iter(runs), list[RunOptions]()
    # Each part has a pool of its own: `max_tasks_per_child` takes a process that leaves for an idle one where all
    # runs were handed in before, starts no other, and waits for ever.
    while part := [*part, *islice(left, jobs * SEEDS_PER_PROCESS - len(part))]:
        done = 0
        for result in _until_broken(part, jobs, keep):
            yield result
            done += 1
        under_way = part[done : done + jobs]
        for options in under_way:
            yield _run_alone(options, keep)
        del part[: done + len(under_way)]


def _until_broken(runs: Sequence[RunOptions], jobs: int, keep: Keep) -> Iterator[SeedResult]:
    """Results in order, up to the first that a dead process has taken along."""
    cores = max(1, usable_cores() // jobs)
    with _pool(jobs) as pool:
        futures = [pool.submit(run_seed, options, keep, cores) for options in runs]
        try:
            for future in futures:
                yield future.result()
        except BrokenProcessPool:
            return
        except BaseException:  # ctrl-c and its like, or nobody wants more
            pool.shutdown(wait=False, cancel_futures=True)
            _end_workers(runs)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _end_workers(runs: Sequence[RunOptions]) -> None:
    """Tell the processes of the pool to end, and end those that don't: a simulation may spin for ever."""
    with signals_held():
        workers = multiprocessing.active_children()
        for worker in workers:
            worker.terminate()
        deadline_s = time.monotonic() + GRACE_S
        for worker in workers:
            worker.join(max(0.0, deadline_s - time.monotonic()))
        for worker in workers:
            worker.kill()
            worker.join()
        for store in dict.fromkeys(options.store for options in runs):
            for worker in workers:
                for scratch in store.glob(f"{_scratch_of(worker.pid or 0)}*"):
                    shutil.rmtree(scratch, ignore_errors=True)


def _run_alone(options: RunOptions, keep: Keep) -> SeedResult:
    with _pool(1) as pool:
        try:
            return pool.submit(run_seed, options, keep).result()
        except BrokenProcessPool:
            reason = "the process that ran it died (was it killed, or out of memory?)"
            return SeedResult(options, "unknown", (reason,), why="harness")


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
    )


def _begin() -> None:
    """How a process of the pool begins: what it is told to end, it ends at once."""
    begin_subprocess()
    end_runs_from_now_on()
    without_pandas()


def worst(results: Iterable[SeedResult]) -> tuple[str, str | None]:
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


def run_seeds(options: RunOptions, seeds: Sequence[int], jobs: int, keep_valid: bool, json_output: bool) -> int:
    """Run every seed and tell what came of each; returns the exit code of the worst finding.

    Told to end it ends the runs that are under way and tells what it has found so far. So it is with a seed of which no
    run can be made, which is raised (UserError) unless a bug was found by then.
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
        print(f"assay: {sentence}", file=sys.stderr)
    except UserError as error:
        if results:
            tell(teller, options, asked, results, json_output)
        if worst(results)[0] != "invalid":  # a bug that was found must not be hidden by it
            raise error from None
        print(f"assay: {error}", file=sys.stderr)
    else:
        tell(teller, options, asked, results, json_output)
    return teller.end(EXIT_CODES[word_of(asked, results)[0]])


def line_of(result: SeedResult) -> str:
    """One seed in a line; where it is not valid, why, where it is saved and how to run it again below."""
    faults = ", ".join(f"{each['observed']}/{each['requested']} {kind}" for kind, each in (result.faults or {}).items())
    why = f" ({result.why})" if result.why else ""
    line = f"seed {result.options.seed}: {result.overall}{why}, {result.ops} operations, {result.cpu_s:.1f} CPU-s"
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
    """The summary of `asked` seeds, for people on standard output, or as one JSON object there."""
    if json_output:
        teller.line(msgspec.json.encode(summary_object(options, asked, results)).decode())
        return
    words = Counter(result.overall for result in results)
    counts = ", ".join(f"{words[word]} {word}" for word in ("valid", "invalid", "unknown") if words[word])
    ops, cpu_s = sum(result.ops for result in results), sum(result.cpu_s for result in results)
    word, why = word_of(asked, results)
    told = f" ({why})" if why else ""
    teller.line(f"{word.upper()}: {len(results)} of {asked} seeds: {counts or 'none ended'}{told}")
    teller.line(f"  {ops} operations judged, {cpu_s:.0f} CPU-s")
    for reason, seeds in reasons(results).items():
        shown = ", ".join(str(seed) for seed in seeds[:8]) + (f" and {len(seeds) - 8} more" if len(seeds) > 8 else "")
        teller.line(f"  {len(seeds)} x {reason} (seed {shown})")


def word_of(asked: int, results: Sequence[SeedResult]) -> tuple[str, str | None]:
    """The one word and why, in text and JSON: the worst finding; of seeds that did not all end it is never that all is
    well."""
    word, why = worst(results)
    return ("unknown", "interrupted") if len(results) < asked and word != "invalid" else (word, why)


def reasons(results: Sequence[SeedResult]) -> dict[str, list[int]]:
    """Why seeds were not valid: each reason with its seeds, the most frequent first."""
    found: dict[str, list[int]] = {}
    for result in results:
        for reason in result.reasons if result.overall != "valid" else ():
            found.setdefault(reason, []).append(result.options.seed)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def summary_object(options: RunOptions, asked: int, results: Sequence[SeedResult]) -> dict[str, Any]:
    """What `--json` prints: `valid` as for one run, of the worst finding; counts; and every seed."""
    words = Counter(result.overall for result in results)
    word, why = word_of(asked, results)
    return {
        "valid": {"invalid": False, "valid": True}.get(word, "unknown"),
        "model": options.workload,
        "overall": word,
        "why": why,
        "seeds": {"asked": asked, "ended": len(results), **words},
        "ops": sum(result.ops for result in results),
        "cpu_seconds": round(sum(result.cpu_s for result in results), 1),
        "results": [
            {
                "seed": result.options.seed,
                "overall": result.overall,
                "why": result.why,
                "reasons": result.reasons,
                "anomalies": result.anomalies,
                "ops": result.ops,
                **msgspec.to_builtins(result.account or RunAccount(workload=options.workload, environment=options.on)),
                "run": None if result.run is None else str(result.run),
                "report": None if result.report is None else str(result.report),
                "trace": result.trace,
                "command": result.options.command(),
            }
            for result in results
        ],
    }
