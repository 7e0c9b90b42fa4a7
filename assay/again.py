"""`assay check STORE --again`: all runs of a store in one table, with what was said of each then and is said now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.check_command import EXIT_BAD_ARGUMENTS, EXIT_HARNESS
from assay.judging import checkers_of
from assay.progress import counting
from assay.telling import Teller
from checkers.api import Judged, RunToJudge, judge_runs
from checkers.options import CheckOptions
from harness.errors import UserError
from harness.history.rundir import RunDir, is_run, open_run
from harness.verdict.facts import conclude_run, read_record
from harness.verdict.run_seal import is_verdict_of
from harness.verdict.run_verdict import EXIT_CODES

_FILES: Final = ("run.json", "verdict.json", "history.parquet", "history.journal")
"""Each of these shows that a folder is a run, or what is left of one."""


class Word(msgspec.Struct, frozen=True):
    """What was said of a run: the word and why, and how often each anomaly was found. `judge` is the version that said
    so, `sealed` whether it is what was said of these files, word for word."""

    overall: str
    why: str | None = None
    anomalies: Mapping[str, int] = {}
    judge: str | None = None
    sealed: bool = True


class RunAgain(msgspec.Struct, frozen=True):
    """A run: the word then (None where no verdict was saved) and now (None where it can't be judged, and `error` says
    why), and what changed, in a few words each."""

    run: str
    then: Word | None = None
    now: Word | None = None
    changed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    error: str | None = None
    bug: bool = False


def refuse_beside(given: Mapping[str, object]) -> None:
    """Raise UserError for an option that was given and would have runs judged otherwise than they ask for."""
    for name, value in given.items():
        if value:
            raise UserError(f"--again judges runs by what their workloads ask for; leave {name} out.")


def check_again(stores: Sequence[str], engine: str, options: CheckOptions, json_output: bool) -> int:
    """Judge all runs of some stores anew, print the table, and return the exit code of the worst that is found now."""
    runs = [run for store in stores for run in runs_in(Path(store))]
    rows = []
    with counting("runs", len(runs)) as count:
        for row in judged_again(runs, engine, options):
            rows.append(row)
            count()
    teller = Teller()
    lines = [msgspec.json.encode(as_object(stores, rows)).decode()] if json_output else in_words(rows)
    for line in lines:
        teller.line(line)
    return teller.end(exit_code(rows))


def runs_in(store: Path) -> list[Path]:
    """The runs of a store, of a workload's folder in it, or a run by itself; raises UserError where there is none."""
    if not store.is_dir():
        raise UserError(f"There is no store {store}.")
    if is_run(store):
        return [store]
    folders = (folder for depth in ("*", "*/*") for folder in store.glob(depth))
    runs = [folder for folder in folders if _is_kept(folder, store)]
    if not runs:
        raise UserError(f"There is no run in {store}.")
    return sorted(runs)


def _is_kept(folder: Path, store: Path) -> bool:
    """No link (`latest`), and nothing hidden: a run of `--seeds` that is under way."""
    within = [folder] if folder.parent == store else [folder.parent, folder]
    passed_over = any(each.name.startswith(".") or each.is_symlink() for each in within)
    return not passed_over and folder.is_dir() and any(_is_there(folder / name) for name in _FILES)


def _is_there(path: Path) -> bool:
    """What nobody may look at is there, and will be told to be unreadable."""
    try:
        return path.exists()
    except OSError:
        return True


def judged_again(runs: Sequence[Path], engine: str, options: CheckOptions) -> Iterator[RunAgain]:
    """The row of each run, in order; what is wrong with one is told of it and costs no other."""
    asked: list[RunToJudge] = []
    errors: dict[Path, Judged] = {}
    for run in runs:
        try:
            record = read_record(open_run(run))
            asked.append((run.resolve(), checkers_of(record), record.settings))
        except (UserError, OSError) as error:
            errors[run] = Judged(error=str(error))
    found = judge_runs(asked, engine, options)
    for run in runs:
        yield _row(run, errors[run] if run in errors else next(found))


def _row(run: Path, judged: Judged) -> RunAgain:
    rundir, then, unread = RunDir(run), None, list[str]()
    try:
        then = word_then(rundir)
    except (UserError, OSError) as error:
        unread.append(str(error))
    if judged.error is not None:
        return RunAgain(str(run), then, error=judged.error, bug=judged.bug)
    try:
        verdict = conclude_run(rundir, judged.checkers)
    except (UserError, OSError) as error:
        return RunAgain(str(run), then, error=str(error))
    except Exception as error:  # noqa: BLE001 - a bug of ours must not hide what is found in another run
        return RunAgain(str(run), then, error=f"a bug of the harness: {type(error).__name__}: {error}", bug=True)
    now = Word(verdict.overall, verdict.why, _counts(verdict.checkers), version("assay"))
    return RunAgain(str(run), then, now, (*unread, *changes(then, now)), verdict.reasons)


def word_then(rundir: RunDir) -> Word | None:
    """What `verdict.json` says, None where there is none; raises UserError for what is no verdict."""
    saved = rundir.read_json(rundir.verdict_json)
    if saved is None:
        return None
    checkers = saved.get("checkers") if isinstance(saved, dict) else None
    if not isinstance(checkers, dict) or not isinstance(saved.get("overall"), str):
        raise UserError(f"{rundir.verdict_json} is not what a run saves.")
    judge = saved.get("judge")
    by = judge.get("version") if isinstance(judge, dict) else None
    why = saved.get("why")
    return Word(
        saved["overall"],
        why if isinstance(why, str) else None,
        _counts(checkers),
        by if isinstance(by, str) else None,
        is_verdict_of(rundir, saved),
    )


def _counts(checkers: Mapping[str, Any]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for checker in checkers.values():
        counts = checker.get("counts") if isinstance(checker, dict) else None
        for name, count in counts.items() if isinstance(counts, dict) else ():
            found[str(name)] += count if isinstance(count, int) else 0
    return dict(found)


def changes(then: Word | None, now: Word) -> Iterator[str]:
    """What is said otherwise than it was, if anything was. Words of an older version say no why."""
    if then is None:
        return
    if not then.sealed:
        yield "what was said then is not of these files"
    if then.overall != now.overall:
        yield f"{then.overall} then, {now.overall} now"
    elif then.why not in (None, now.why):
        yield f"{then.why} then, {now.why} now"
    for name in dict.fromkeys((*then.anomalies, *now.anomalies)):
        was, is_now = then.anomalies.get(name, 0), now.anomalies.get(name, 0)
        if was != is_now:
            yield f"{name}: {was} then, {is_now} now"


def exit_code(rows: Iterable[RunAgain]) -> int:
    """By the table of `checking.md`: what was refuted, a bug of ours, a run that can't be read, what is unknown."""
    codes = {_code_of(row) for row in rows}
    return next(code for code in (1, EXIT_HARNESS, EXIT_BAD_ARGUMENTS, 2, 0) if code in codes)


def _code_of(row: RunAgain) -> int:
    if row.now is None:
        return EXIT_HARNESS if row.bug else EXIT_BAD_ARGUMENTS
    return EXIT_CODES[row.now.overall]


def as_object(stores: Sequence[str], rows: Sequence[RunAgain]) -> dict[str, Any]:
    """What `--json` prints: how many there are of each, and every run's row."""
    words = Counter(row.now.overall if row.now else "unreadable" for row in rows)
    changed = sum(bool(row.changed) for row in rows)
    return {"stores": list(stores), **words, "changed": changed, "runs": [msgspec.to_builtins(row) for row in rows]}


def in_words(rows: Sequence[RunAgain]) -> Iterator[str]:
    """The table, a run a line, and how many there are of each word."""
    lines = [("run", "then", "now", "anomalies", "changed"), *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
    words = Counter(row.now.overall if row.now else "unreadable" for row in rows)
    counts = ", ".join(f"{words[word]} {word}" for word in ("valid", "invalid", "unknown", "unreadable") if words[word])
    yield f"{len(rows)} runs: {counts}; {sum(bool(row.changed) for row in rows)} judged otherwise than then"


def _cells(row: RunAgain) -> tuple[str, str, str, str, str]:
    then = "–" if row.then is None else _shown(row.then) + (f" by {row.then.judge}" if row.then.judge else "")
    if row.now is None:
        return row.run, then, "unreadable", "–", row.error or ""
    anomalies = ", ".join(f"{name} ({count})" for name, count in row.now.anomalies.items())
    return row.run, then, _shown(row.now), anomalies or "–", "; ".join(row.changed) or "–"


def _shown(word: Word) -> str:
    return word.overall + (f" ({word.why})" if word.why else "")
