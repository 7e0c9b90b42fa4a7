"""The models `write-atomicity`, `monotonic-reads`, `read-your-writes`, `sessions` and `durable-rows` of quorum tables.

The order of versions is that of the clients' timestamps, so that writes of unknown outcome have their place like all
others, and what a session writes comes in the order that its client chose: `monotonic-writes` and
`writes-follow-reads` promise nothing here. What must be seen is Q1's rule (`harness.levels`), within sessions too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkers.engines.api import Engine, any_succeeded
from checkers.engines.grouped import SLICES, judge_mops
from checkers.explain.conclude import Steps
from checkers.explain.speaker import Speaker
from checkers.findings import Finding, Findings, Key
from checkers.options import CheckOptions
from checkers.quorum.quorum_history import Reading, read_quorum_history, refuse
from checkers.quorum.quorum_kernel import (
    DURABLE_ROWS,
    LOST,
    MISSED,
    MONOTONIC_READS,
    OLDER,
    READ_YOUR_WRITES,
    RETURNED,
    SESSIONS,
    TORN,
    TWOFOLD,
    UNWRITTEN,
    QuorumKernel,
)
from checkers.quorum.torn_pages import picture, why_torn
from checkers.source import Source
from checkers.verdict import NO_READS, NOTHING_SUCCEEDED, Anomaly, Validity, Verdict
from harness.errors import UserError

_BY_CLIENTS: Final = (
    "The order of a session's writes is that of the timestamps which its client chose, so the database promises "
    "nothing here."
)
_JUDGED_SESSIONS: Final = frozenset({MONOTONIC_READS, READ_YOUR_WRITES, SESSIONS})


def judge_durable_rows(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Every read whose level binds it shows what was acknowledged before it began, or something later."""
    reading = read_quorum_history(source, engine)
    if reading is None and not any_succeeded(source, engine):
        return Verdict("unknown", DURABLE_ROWS, engine=engine.name, reason=NOTHING_SUCCEEDED)
    if reading is None:
        raise UserError(
            f"{source.path} states no write timestamps (write_ts), so the model {DURABLE_ROWS} can't judge it."
        )
    return judge_quorum(DURABLE_ROWS, reading, source, engine, options)


def judge_quorum(model: str, reading: Reading, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """The model of that name on a history of a quorum table. Raises UserError for histories that can't be judged."""
    kernel = QuorumKernel(model, reading.binding, options.explain)
    found = judge_mops(engine, source, reading.projection, ("table", "partition"), kernel, options.explain, SLICES)
    refuse(source, model, found)
    nothing = None if found.undecided else _nothing_compared(found.figures)
    reasons = (*found.reasons, *((nothing,) if nothing else ()))
    return verdict_on_partitions(model, engine, found, explain_all(source, found.kept), reasons)


def verdict_on_partitions(
    model: str, engine: Engine, found: Findings, explained: dict[str, tuple[Anomaly, ...]], reasons: Sequence[str]
) -> Verdict:
    """The verdict on the partitions of a quorum table: unknown for these reasons, or if some were not decided."""
    valid: Validity = False if found.counts else "unknown" if found.undecided or reasons else True
    reason = " ".join(reasons) if valid == "unknown" else None
    undecided = {"undecided": found.undecided} if found.undecided else {}
    details = {"partitions": found.keys} | found.figures | undecided
    return Verdict(valid, model, explained, found.counts, found.ops, engine=engine.name, reason=reason, details=details)


def _nothing_compared(figures: Mapping[str, int]) -> str | None:
    """Why a judge that found nothing wrong had nothing to look at, if so."""
    if not figures.get("pages"):
        return NO_READS
    if figures.get("comparisons") == 0:
        return "No read is bound by its level to show what another operation did, so nothing was compared."
    return None


def judge_session_model(model: str, reading: Reading, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """A session guarantee on a history of a quorum table; those about the order of writes are the clients' business."""
    if model in _JUDGED_SESSIONS:
        return judge_quorum(model, reading, source, engine, options)
    return Verdict("unknown", model, engine=engine.name, reason=_BY_CLIENTS)


LEVEL_COLUMNS: Final = ("mode", "write_ts", "data_centre", "replicas")
"""Columns of evidence beside those of every model."""


def explain_all(source: Source, findings: Sequence[Finding]) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations, by class; reads just those operations from the source."""
    indices = [index for finding in findings for index in finding.ops]
    speaker = Speaker(source, source.operations(indices, LEVEL_COLUMNS))
    explained: dict[str, tuple[Anomaly, ...]] = {}
    for finding in findings:
        ops = tuple(speaker.rows[index] for index in dict.fromkeys(finding.ops) if index >= 0)
        message, steps = _SENTENCES[finding.anomaly](speaker, finding)
        details = picture(speaker, finding.facts) if finding.anomaly == TORN else {}
        anomaly = Anomaly(message, source.shown_key(finding.key), ops, steps, details)
        explained[finding.anomaly] = (*explained.get(finding.anomaly, ()), anomaly)
    return explained


def cell_words(speaker: Speaker, cell: Sequence[int]) -> str:
    """`row 2 of key 14`."""
    key = Key(*cell)
    line = speaker.source.shown(key.row)
    name = f"row {line}" if key.column == 0 else f"row {line}, column {key.column}"
    return f"{name} of {speaker.key(Key(key.table, key.partition))}"


def _at(speaker: Speaker, index: int) -> str:
    """` at QUORUM, answered by n1,n3`."""
    row = speaker.rows[index]
    level = f" at {row['mode']}" if row.get("mode") else ""
    if level and row.get("data_centre"):
        level += f" in {row['data_centre']}"
    return f"{level}, answered by {row['replicas']}," if row.get("replicas") else level


def _reads(speaker: Speaker, index: int) -> str:
    """`Process 3's read at QUORUM, answered by n1,n3, at 12.031 s on node n2`."""
    row = speaker.rows[index]
    node = f" on node {row['node']}" if row["node"] else ""
    return f"Process {row['process']}'s read{_at(speaker, index)} at {speaker.when(index, 'invoke')}{node}"


def _shows(speaker: Speaker, seen: dict[str, Any]) -> str:
    """`7 (timestamp 90)` or `nothing`."""
    if seen["value"] is None:
        return "nothing"
    stamp = "" if seen["timestamp"] is None else f" (timestamp {seen['timestamp']})"
    return f"{speaker.source.shown(seen['value'])}{stamp}"


def _did(speaker: Speaker, written: dict[str, Any]) -> str:
    """What a write did there: `wrote 7` or `deleted it`."""
    return "deleted it" if written["value"] is None else f"wrote {speaker.source.shown(written['value'])}"


def _by(speaker: Speaker, index: int, timestamp: int) -> str:
    return f"process {speaker.rows[index]['process']}'s write of timestamp {timestamp}"


def _torn(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    reader, writer = finding.ops[:2]
    shown, lacking, written = (finding.facts[name] for name in ("shown", "lacking", "written"))
    here, there = cell_words(speaker, shown["cell"]), cell_words(speaker, lacking["cell"])
    by = _by(speaker, writer, written["timestamp"])
    message = (
        f"{_reads(speaker, reader)} shows {by} in {here} ({speaker.source.shown(shown['value'])}), but in {there}, "
        f"where that {_did(speaker, written)}, the page shows {_shows(speaker, lacking)}"
    )
    absent = "the row is absent within the page's bounds" if not lacking["named"] else "the cell is absent"
    if "kept" in finding.facts:
        message += f": {absent}. {_torn_deletion(speaker, finding.facts)}"
    elif lacking["value"] is None:
        message += f": {absent}, and no later deletion that the page could have seen whole accounts for it."
    else:
        message += ", which is older. One page shows a part of the write only."
    message += why_torn(speaker, finding.facts)
    if "kept" in finding.facts:
        writer, kept = finding.facts["torn"], finding.facts["kept"]["cell"]
        sees, cells = f"only that deletion accounts for the absence of {there}", (lacking["cell"], kept)
        return message, _cycle(speaker, reader, writer, sees, cells)
    cells = (shown["cell"], lacking["cell"])
    return message, _cycle(speaker, reader, writer, f"the read shows what {by} left in {here}", cells)


def _torn_deletion(speaker: Speaker, facts: dict[str, Any]) -> str:
    """What the deletion that accounts for the absence would have deleted as well."""
    row, kept = speaker.rows[facts["torn"]], facts["kept"]
    outcome = "" if row["type"] == "ok" else ", of unknown outcome,"
    return (
        f"Process {row['process']}'s deletion of timestamp {facts['deleted_ts']}{outcome} accounts for that, but it "
        f"covers {cell_words(speaker, kept['cell'])} as well, where the page still shows {_shows(speaker, kept)}: one "
        "page shows a part of the deletion only."
    )


def _cycle(speaker: Speaker, reader: int, writer: int, sees: str, cells: tuple[Sequence[int], Sequence[int]]) -> Steps:
    source, target = speaker.rows[writer]["op"], speaker.rows[reader]["op"]
    seen, lacking = (speaker.source.shown_key(cell) for cell in cells)
    lacks = f"the read shows {cell_words(speaker, cells[1])} as it was before that write"
    return (
        {"source": source, "target": target, "kind": "wr", "why": sees, "key": seen},
        {"source": target, "target": source, "kind": "rw", "why": lacks, "key": lacking},
    )


def _twofold(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    first, second = finding.facts["shown"], finding.facts["lacking"]
    return (
        f"{_reads(speaker, finding.ops[0])} shows {cell_words(speaker, first['cell'])} twice in one page, as "
        f"{_shows(speaker, first)} and as {_shows(speaker, second)}.",
        (),
    )


def _unwritten(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    reader, writer = finding.ops
    shown = finding.facts["shown"]
    where = cell_words(speaker, shown["cell"])
    said = f"{_reads(speaker, reader)} shows {speaker.source.shown(shown['value'])} in {where}"
    failed = speaker.failed(writer) if writer >= 0 else "failed"
    why = {
        "never": "which no operation wrote",
        "failed": f"which was written by an operation that {failed}, so it never took effect",
        "later": "whose write began only after that read had ended",
        "own": "which the same operation wrote only afterwards",
    }[finding.facts["why"]]
    by = f" (process {speaker.rows[writer]['process']}'s)" if writer not in (-1, reader) else ""
    return f"{said}, {why}{by}.", ()


def _older(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    reader, before = finding.ops[:2]
    mine, earlier = finding.facts["mine"], finding.facts["earlier"]
    where, row = cell_words(speaker, mine["cell"]), speaker.rows[before]
    seen = _shows(speaker, earlier) if earlier["value"] is not None else "a deletion that came after what is shown"
    message = (
        f"{_reads(speaker, reader)} shows {_shows(speaker, mine)} in {where}, but process {row['process']}'s read"
        f"{_at(speaker, before)} which {speaker.ended(before)}, had shown {seen}. {_BOUND}"
    )
    if mine["value"] is None:
        message += " No deletion of that row accounts for its absence."
    return message, _steps(speaker, reader, before, f"that read had shown {seen} in {where}", where)


_BOUND: Final = (
    "Every set of replicas that answers the one level has a replica of every set that answers the other, so the later "
    "read may omit nothing."
)


def _missing(speaker: Speaker, finding: Finding) -> tuple[str, Steps]:
    reader, writer = finding.ops[:2]
    mine, written = finding.facts["mine"], finding.facts["earlier"]
    where, by = cell_words(speaker, mine["cell"]), _by(speaker, writer, written["timestamp"])
    own = "its session's own, " if finding.anomaly == MISSED else ""
    message = (
        f"{_reads(speaker, reader)} shows {_shows(speaker, mine)} in {where}, but {by} ({own}acknowledged"
        f"{_at(speaker, writer)} at {speaker.when(writer, 'complete')}) {_did(speaker, written)}. {_BOUND}"
    )
    if finding.anomaly == RETURNED:
        message += " What was deleted is back."
    elif mine["value"] is None:
        message += " No later deletion of that row accounts for its absence."
    return message, _steps(speaker, reader, writer, f"{by} {_did(speaker, written)} in {where}", where)


def _steps(speaker: Speaker, reader: int, before: int, did: str, where: str) -> Steps:
    source, target = speaker.rows[before]["op"], speaker.rows[reader]["op"]
    return (
        {"source": source, "target": target, "kind": "realtime", "why": f"it was over before the read began; {did}"},
        {"source": target, "target": source, "kind": "rw", "why": f"the read shows {where} as it was before"},
    )


_SENTENCES: Final = {
    TORN: _torn,
    TWOFOLD: _twofold,
    UNWRITTEN: _unwritten,
    OLDER: _older,
    MISSED: _missing,
    LOST: _missing,
    RETURNED: _missing,
}
