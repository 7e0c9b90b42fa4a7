"""`assay check --manifest`: a table of histories with known verdicts, judged in one go and compared.

The table is tab-separated with a header. Columns `file` (relative to the table), `model` and `valid` (`true`, `false`,
`unknown` or `strongest=LEVEL`) must be there; `format`, `consistency`, `anomalies` (separated by commas; those that are
not found are told) and `not` (consistency models that must be ruled out) may be; others are ignored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from assay.progress import working
from assay.telling import Teller
from checkers.api import choose_engine, judge_source_by_each
from checkers.engines.api import Engine
from checkers.importers.detect import open_source, require_file
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict, in_two_words
from harness.errors import HarnessError, UserError

REQUIRED: Final = ("file", "model", "valid")
STRONGEST: Final = "strongest="


class ManifestRow(msgspec.Struct, frozen=True):
    """One line of the table: what is to be judged and what is expected."""

    line: int
    file: str
    model: str
    expected: str
    format: str = "auto"
    consistency: str | None = None
    anomalies: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()


class RowOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found of one line; `found` is in the words of the column `valid`, or `error` with the reason."""

    file: str
    model: str
    expected: str
    found: str
    agrees: bool
    ops: int = 0
    seconds: float = 0.0
    consistency: str | None = None
    anomalies: dict[str, int] = {}
    missing: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestRequest:
    """How a table is judged: the engine's name, and the options of every line."""

    table: Path
    engine: str
    options: CheckOptions


def read_manifest(table: Path) -> list[ManifestRow]:
    """The lines of a table; raises UserError, naming the line, for one that can't be read."""
    require_file(table)
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The table {table} can't be read: {_first_line(error)}.") from error
    header = lines[0].split("\t") if lines else []
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise UserError(f"{table}, line 1: the header has no column {missing[0]}; it needs {', '.join(REQUIRED)}.")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            rows.append(_row(table, number, header, line.split("\t")))
    if not rows:
        raise UserError(f"The table {table} names no history.")
    return rows


def _row(table: Path, number: int, header: list[str], cells: list[str]) -> ManifestRow:
    if len(cells) > len(header):
        raise UserError(f"{table}, line {number}: there are {len(cells)} cells below {len(header)} columns.")
    named = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
    for name in REQUIRED:
        if not named.get(name):
            raise UserError(f"{table}, line {number}: the column {name} is empty.")
    expected = named["valid"]
    if expected not in ("true", "false", "unknown") and not expected.startswith(STRONGEST):
        raise UserError(
            f"{table}, line {number}: valid is {expected!r}; it is true, false, unknown or {STRONGEST}LEVEL."
        )
    return ManifestRow(
        number,
        named["file"],
        named["model"],
        expected,
        named.get("format") or "auto",
        named.get("consistency") or None,
        _names(named.get("anomalies", "")),
        _names(named.get("not", "")),
    )


def _names(cell: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in cell.split(",") if part.strip())


class Judges:
    """Opens histories once each and keeps one engine of each kind for the whole table.

    Lines that differ only in their consistency model are judged together when the first of them is asked for.
    """

    def __init__(self, request: ManifestRequest, rows: Sequence[ManifestRow]) -> None:
        self._request = request
        self._engines: dict[str, Engine] = {}
        self._source: tuple[tuple[str, str], Source] | None = None
        self._alike: dict[tuple[str, ...], list[ManifestRow]] = {}
        self._ahead: dict[int, Verdict] = {}
        for row in rows:
            self._alike.setdefault((row.file, row.format, row.model), []).append(row)

    def outcome(self, row: ManifestRow) -> RowOutcome:
        """Judge one line; whatever goes wrong with it is its outcome."""
        begin = time.perf_counter()
        try:
            if row.model not in MODELS:
                raise UserError(f"There is no model {row.model!r} in this assay.")
            verdict = self._verdict(row)
        except (UserError, HarnessError) as error:
            outcome = RowOutcome(row.file, row.model, row.expected, "error", False, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a bug of ours must not hide what was found on other lines
            reason = f"a bug of the harness: {type(error).__name__}: {error}"
            outcome = RowOutcome(row.file, row.model, row.expected, "error", False, reason=reason)
        else:
            outcome = _compared(row, verdict)
        return msgspec.structs.replace(
            outcome, consistency=row.consistency, seconds=round(time.perf_counter() - begin, 3)
        )

    def _verdict(self, row: ManifestRow) -> Verdict:
        if row.line not in self._ahead:
            alike = self._alike.pop((row.file, row.format, row.model), [row])
            try:
                self._judge(alike)
            except UserError:
                self._judge([row])  # One of them may be to blame for all, so each is judged alone from here on.
        return self._ahead.pop(row.line)

    def _judge(self, rows: Sequence[ManifestRow]) -> None:
        """Judge lines of one file and model."""
        source = self._open(rows[0])
        options = self._request.options
        chosen = choose_engine(self._request.engine, source, options.spark, options.cores)
        engine = self._engines.setdefault(chosen.name, chosen)
        asked = [row.consistency or options.consistency for row in rows]
        verdicts = judge_source_by_each(source, rows[0].model, engine, options, asked)
        self._ahead |= {row.line: verdict for row, verdict in zip(rows, verdicts, strict=True)}

    def _open(self, row: ManifestRow) -> Source:
        path = self._request.table.parent / row.file
        if not path.exists():
            raise UserError(f"There is no file {path}.")
        key = (row.file, row.format)
        if self._source is None or self._source[0] != key:
            stated = self._request.options.settings.get("versions")
            self._source = (key, open_source(path, row.format, stated=stated))
        return self._source[1]

    def close(self) -> None:
        """Release the engines."""
        for engine in self._engines.values():
            engine.close()


def _compared(row: ManifestRow, verdict: Verdict) -> RowOutcome:
    found = in_two_words(verdict)
    if row.expected == "unknown":  # the table has a word for histories of which nothing is said
        found = str(verdict.valid).lower()
    if row.expected.startswith(STRONGEST):
        found = "unknown" if verdict.valid == "unknown" else f"{STRONGEST}{verdict.strongest}"
    excused = set(row.ruled_out) - {*verdict.rules_out, *verdict.also_rules_out}
    missing = (*sorted(set(row.anomalies) - verdict.counts.keys()), *sorted(excused))
    reason = verdict.reason
    if excused:
        reason = f"It does not rule out {', '.join(sorted(excused))}."
    agrees = found == row.expected and not excused
    return RowOutcome(
        row.file,
        row.model,
        row.expected,
        found,
        agrees,
        verdict.ops,
        anomalies=verdict.counts,
        missing=missing,
        reason=reason,
    )


def check_manifest(request: ManifestRequest, json_output: bool) -> int:
    """Judge the table and print what agrees and what does not; the exit code is 0, or 1 if anything does not."""
    begin = time.perf_counter()
    rows = read_manifest(request.table)
    outcomes = judge_rows(rows, request)
    disagreements = [outcome for outcome in outcomes if not outcome.agrees]
    teller = Teller()
    if json_output:
        teller.line(msgspec.json.encode(as_object(request.table, outcomes, time.perf_counter() - begin)).decode())
    else:
        for line in in_words(outcomes, time.perf_counter() - begin):
            teller.line(line)
    return teller.end(1 if disagreements else 0)


def judge_rows(rows: Sequence[ManifestRow], request: ManifestRequest) -> list[RowOutcome]:
    """The outcome of every line, in order."""
    judges = Judges(request, rows)
    outcomes = []
    try:
        with working(f"checking {request.table}") as change:
            for number, row in enumerate(rows, start=1):
                change(f"checking {request.table}: {number} of {len(rows)}")
                outcomes.append(judges.outcome(row))
    finally:
        judges.close()
    return outcomes


def as_object(table: Path, outcomes: Sequence[RowOutcome], seconds: float) -> dict[str, Any]:
    """What `--json` prints: counts and every line's outcome."""
    disagreements = sum(not outcome.agrees for outcome in outcomes)
    return {
        "manifest": str(table),
        "agrees": disagreements == 0,
        "agreements": len(outcomes) - disagreements,
        "disagreements": disagreements,
        "ops": sum(outcome.ops for outcome in outcomes),
        "seconds": round(seconds, 3),
        "rows": [msgspec.to_builtins(outcome) for outcome in outcomes],
    }


def in_words(outcomes: Sequence[RowOutcome], seconds: float) -> Iterator[str]:
    """Agreements by model, every disagreement, and the sum."""
    by_model = Counter((outcome.model, outcome.agrees) for outcome in outcomes)
    for model in dict.fromkeys(outcome.model for outcome in outcomes):
        agreed, not_agreed = by_model[model, True], by_model[model, False]
        against = f", {not_agreed} do not" if not_agreed else ""
        yield f"{model}: {agreed} agree{against}"
    for outcome in outcomes:
        if not outcome.agrees:
            consistency = f" ({outcome.consistency})" if outcome.consistency else ""
            reason = f": {outcome.reason}" if outcome.reason else ""
            yield (
                f"  DISAGREES {outcome.file} by {outcome.model}{consistency}: "
                f"expected {outcome.expected}, found {outcome.found}{reason}"
            )
    wrong = sum(not outcome.agrees for outcome in outcomes)
    operations = sum(outcome.ops for outcome in outcomes)
    yield (
        f"{len(outcomes) - wrong} of {len(outcomes)} agree, {wrong} disagree; "
        f"{operations} operations in {seconds:.1f} s"
    )


def _first_line(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (reason.splitlines() or [""])[0].rstrip(".")
