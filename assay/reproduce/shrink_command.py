"""`assay shrink`: the smallest part of a history that a model refutes in the same way, as files and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from assay.check_command import EXIT_CODES, draw, models_of
from assay.progress import working
from assay.reproduce.shrink_history import HistoryQuestion, HistorySearch
from assay.telling import Teller, anomaly_sentences
from checkers.api import check_source, require_models_known, with_settings
from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.removal.units import read_units
from checkers.source import Source
from checkers.verdict import Verdict, as_object
from harness.errors import HarnessError, UnwritableError, UserError
from harness.history.address import exists, place_of
from harness.history.columns import MOP, NO_PURPOSE, SCHEMA, Purpose
from harness.history.parts import write_history
from results.words import count, operation

_TOLD: Final = 40
"""Operations that are listed on the terminal at most."""


@dataclass(frozen=True, slots=True)
class ShrinkRequest:
    """What is to be made smaller: by which model (None: what the history was made for), for which anomaly (None: the
    strongest), for how long, and into which folder (None: one named after the history)."""

    path: str
    model: str | None
    options: CheckOptions
    format: str = "auto"
    anomaly: str | None = None
    budget_s: float = 600.0
    to: Path | None = None


@dataclass
class Shrunk:
    """What came of it: the verdict on the `whole`, the smallest `part` and the verdict on it as it was saved."""

    request: ShrinkRequest
    question: HistoryQuestion
    search: HistorySearch
    part: Source
    verdict: Verdict
    saved: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """The anomalies that were asked about."""
        return self.search.families[self.search.wanted]

    @property
    def others(self) -> dict[str, str]:
        """Other findings of the whole, each in a sentence."""
        families = (names for family, names in self.search.families.items() if family != self.search.wanted)
        return {names[0]: _sentence(self.search.whole, names[0]) for names in families if names}

    def as_object(self) -> dict[str, Any]:
        """What `--json` prints."""
        search = self.search
        return {
            "input": self.request.path,
            "valid": False,
            "model": self.question.model,
            "anomaly": list(self.names),
            "family": search.wanted,
            "operations": {"whole": search.source.rows, "smallest": self.part.rows},
            "micro_operations": _size(self.part),
            "necessary": search.smallest,
            "judged": search.trials.asked,
            "seconds": round(search.trials.seconds + search.whole.seconds, 3),
            "others": self.others,
            "seen": search.seen,
            "saved": self.saved,
            "notes": self.notes,
            "verdict": as_object(self.verdict),
        }

    def lines(self) -> Iterator[str]:
        """What is printed for people."""
        search = self.search
        told = f"{count(self.part.rows, 'operation')} of {self.search.source.rows:,}"
        judged = f"{count(search.trials.asked, 'part')} judged in {search.trials.seconds:.1f} s"
        yield f"INVALID: {self.request.path} by {self.question.model}, {', '.join(self.names)}: {told} ({judged})"
        yield from (f"  * {line}" for line in anomaly_sentences({self.question.model: as_object(self.verdict)}))
        yield from self._operations()
        if search.smallest:
            yield "  Each of these is necessary: without any one of them, and what needs it, this is not found."
        else:
            yield "  Not the smallest: the search was stopped, or its --budget was spent, and this is the best so far."
        yield from (f"  {note}" for note in self.notes)
        for name, sentence in self.others.items():
            yield f"  Also found, and not followed (--anomaly {name}): {sentence}"
        for name, sentence in search.seen.items():
            yield f"  Parts show besides, and were not followed: {name}: {sentence}"
        yield f"  saved: {', '.join(self.saved.values())}"

    def _operations(self) -> Iterator[str]:
        rows = self.part.operations(self._invocations())
        ops = [rows[index] for index in sorted(rows)]
        for op in ops[:_TOLD]:
            shown = [_readable(mop, self.part) for mop in op["mops"] or ()]
            ends = "" if op["complete_index"] is None else f"–{op['complete_index']}"
            told = operation(op | {"mops": shown})
            yield f"    {op['invoke_index']}{ends}  process {op['process']}  {op['type']}  {told}"
        if len(ops) > _TOLD:
            yield f"    … {len(ops) - _TOLD:,} more"

    def _invocations(self) -> list[int]:
        return [index for batch in self.part.batches(["invoke_index"]) for index in batch.column(0).to_pylist()]


def _readable(mop: Mapping[str, Any], part: Source) -> dict[str, Any]:
    names = ("partition", "row", "column", "value", "expected")
    told = {name: mop[name] if mop[name] is None else _text(mop[name], part) for name in names}
    lists = None if mop["values"] is None else [None if each is None else _text(each, part) for each in mop["values"]]
    return {**mop, **told, "values": lists}


def _text(value: int, part: Source) -> Any:
    text = part.shown(value)
    return value if text == str(value) else text


def _sentence(verdict: Verdict, name: str) -> str:
    told = verdict.anomalies.get(name)
    return told[0].message if told else name


def _size(part: Source) -> int:
    return int((~read_units(part).bare).sum())


def shrink(request: ShrinkRequest, json_output: bool) -> int:
    """Make the history smaller, write it, tell it, and return 1, for it stays refuted; 2 where the verdict is unknown.

    Raises UserError for a history that can't be read, is valid or can't become smaller, for a model that does not fit
    and for a place at which there is something; UnwritableError if nothing can be written.
    """
    target = _target(request)
    with working(f"judging {request.path}"):
        source, question, whole = _judged(request)
    if whole.valid == "unknown":
        Teller().line(f"UNKNOWN: {request.path} by {question.model}: {whole.reason} There is no finding to follow.")
        return EXIT_CODES["unknown"]
    if whole.valid is True:
        raise UserError(f"{request.path} is valid by {question.model}, so there is nothing to shrink.")
    search = HistorySearch(source, question, whole, _wanted(question, whole, request.anomaly), request.budget_s)
    with working(f"shrinking {request.path}"):
        part = search.run()
    if part is None:
        why = "the search was stopped, or its --budget was spent, before any part was judged; nothing is written"
        Teller().line(f"INVALID: {request.path} by {question.model}: {why}.")
        return EXIT_CODES[False]
    if search.smallest and part.rows == source.rows and _size(part) == _size(source):
        what = "its only operation is" if source.rows == 1 else f"all of its {source.rows:,} operations are"
        raise UserError(f"{request.path} can't become smaller: {what} necessary.")
    shrunk = _saved(request, question, search, part, target)
    teller = Teller()
    for line in [msgspec.json.encode(shrunk.as_object()).decode()] if json_output else shrunk.lines():
        teller.line(line)
    return teller.end(EXIT_CODES[False])


def _target(request: ShrinkRequest) -> Path:
    place = place_of(request.path)
    if not exists(place):
        raise UserError(f"There is no file or run directory {place}.")
    named = Path(str(place).rstrip("/").rpartition("/")[2]).stem
    target = request.to or Path(f"{named}-shrunk")
    if target.exists():
        raise UserError(f"{target} is there already; name another folder with --to.")
    if not target.absolute().parent.is_dir():
        raise UserError(f"There is no directory {target.parent} for the folder {target.name}.")
    return target


def _judged(request: ShrinkRequest) -> tuple[Source, HistoryQuestion, Verdict]:
    options = request.options
    stated = options.settings.get("versions")
    source = open_source(request.path, request.format, verify=False, alone=options.alone, stated=stated)
    purpose = NO_PURPOSE if source.saved is None else source.saved.manifest.purpose
    model = request.model or _only_model(request, purpose)
    require_models_known((model,), options)
    if model == "logs":
        raise UserError("The model logs judges what nodes wrote, not a history; there is nothing to shrink.")
    options = with_settings(options, model, {} if request.model else purpose.settings)
    verdict = check_source(source, (model,), engine="local", options=options, settings={})[model]
    return source, HistoryQuestion(model, options), verdict


def _only_model(request: ShrinkRequest, purpose: Purpose) -> str:
    models = models_of(place_of(request.path), purpose)
    if len(models) > 1:
        raise UserError(f"{request.path} was made for {' and '.join(models)}; name one of them with --model.")
    return models[0]


def _wanted(question: HistoryQuestion, whole: Verdict, anomaly: str | None) -> str:
    families = question.families(whole)
    found = [family for family, names in families.items() if anomaly is None or anomaly in names]
    if not found:
        names = ", ".join(name for each in families.values() for name in each)
        raise UserError(f"No {anomaly} refutes this history; what does: {names}.")
    return found[0]


# ---- what is saved ----


def _saved(
    request: ShrinkRequest, question: HistoryQuestion, search: HistorySearch, part: Source, target: Path
) -> Shrunk:
    try:
        target.mkdir()
    except OSError as error:
        raise UnwritableError(f"The folder {target} can't be made: {error.strerror}.") from error
    part = _dependent(part)
    verdict = question.verdict(part) or search.whole
    shrunk = Shrunk(request, question, search, part, verdict)
    _write_parquet(shrunk, target / "history.parquet")
    _write_edn(shrunk, target / "history.edn")
    found = {"input": request.path, **as_object(verdict)}
    if draw(target / "report.html", [found], []) == 0:
        shrunk.saved["report"] = str(target / "report.html")
    return shrunk


def _dependent(part: Source) -> Source:
    """A history of one of several independent objects as one of that object, for a saved history can't say more."""
    if not part.independent:
        return part
    assert part.table is not None
    mops = part.table.column("mops").combine_chunks()
    flat = mops.flatten()
    if len(np.unique(flat.field("partition").to_numpy())) > 1:
        return part
    fields = {each.name: flat.field(each.name) for each in MOP}
    fields |= {"partition": fields["row"], "row": pa.array(np.zeros(len(flat), np.int64))}
    structs = pa.StructArray.from_arrays(list(fields.values()), fields=list(MOP))
    lists = pa.ListArray.from_arrays(mops.offsets, structs, type=mops.type, mask=mops.is_null())
    table = part.table.set_column(SCHEMA.names.index("mops"), SCHEMA.field("mops"), lists)
    return replace(part, table=table, independent=False)


def _write_parquet(shrunk: Shrunk, path: Path) -> None:
    part, question = shrunk.part, shrunk.question
    if part.independent:
        shrunk.notes.append("There is no history.parquet, which can't tell several independent keys apart.")
        return
    assert part.table is not None
    purpose = NO_PURPOSE
    if question.model in MODELS:
        settings = dict(question.options.settings)
        settings |= {"consistency": question.options.consistency} if question.options.consistency else {}
        purpose = Purpose(models=(question.model,), settings={question.model: settings} if settings else {})
    texts = msgspec.json.encode(part.dictionary)
    write_history(part.table.to_batches(), path, dictionary=texts, purpose=purpose)
    shrunk.saved["parquet"] = str(path)
    again = open_source(path)
    found = question.verdict(again, failed_cas=question.options.failed_cas or part.failed_cas)
    if found is None or shrunk.search.wanted not in question.families(found):
        raise HarnessError(f"What was written to {path} is not refuted in the same way.")
    shrunk.notes.append(f"again: {' '.join(_again(shrunk, path))}")


def _again(shrunk: Shrunk, path: Path) -> Sequence[str]:
    """The command that judges what was written."""
    words = ["assay", "check", quote(str(path))]
    if shrunk.question.model not in MODELS:
        words += ["--model", quote(shrunk.question.model)]
    observed = (shrunk.question.options.failed_cas or shrunk.part.failed_cas) == "observed"
    return [*words, "--failed-cas", "observed"] if observed and _has_failed(shrunk.part) else words


def _has_failed(part: Source) -> bool:
    return any("fail" in batch.column("type").to_pylist() for batch in part.batches(["type"]))


def _write_edn(shrunk: Shrunk, path: Path) -> None:
    try:
        write_edn(shrunk.part, path)
    except UserError as error:
        shrunk.notes.append(f"There is no history.edn: {error}")
        return
    shrunk.saved["edn"] = str(path)
