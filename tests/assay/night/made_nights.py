"""Nights that were never made: records built in memory, and written as journals where a command is to read them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.night.records import (
    JOURNAL,
    NIGHTS,
    CellRecord,
    Entry,
    FaultCount,
    MachineRecord,
    Night,
    NightDone,
    NightHead,
    RunBegan,
    RunEnded,
    RunFinding,
    sealed_line,
)

NOON = dt.datetime(2027, 1, 1, 12, tzinfo=dt.UTC)
TODAY = NOON.date()
SCRIPT = "<script>alert('x')</script>"


def cell(name: str = "register", **other: Any) -> CellRecord:
    options = {"workload": "register", "on": "sim", "nemesis": ["kill"], **other.pop("options", {})}
    told = {"id": f"id-{name}", "workload": "register", "command": f"assay run register -o cell={name}"} | other
    return CellRecord(name=name, options=options, **told)


def found(name: str = "lost", detail: str = "0", kind: Any = "safety", title: str = "a write is lost") -> RunFinding:
    """A finding whose family and detail are made of these words."""
    family, part = (word.encode().hex().ljust(12, "0")[:12] for word in (name, detail))
    return RunFinding(kind=kind, family=family, detail=part, family_words={"name": name}, title=title)


def run(number: int = 0, *findings: RunFinding, of: str = "register", **other: Any) -> RunEnded:
    word = "invalid" if any(each.kind != "harness" for each in findings) else "unknown" if findings else "valid"
    told: dict[str, Any] = {"word": word, "seed": 1000 + number, "ops": 100, "virtual_s": 60.0, "cpu_s": 2.0} | other
    told = {"faults": {"kill": FaultCount(3, 3, 0)}, "at": NOON.isoformat()} | told
    return RunEnded(run=number, cell=f"id-{of}", number=number, attempt=1, findings=findings, **told)


def runs(count: int, first: int = 0, of: str = "register", **other: Any) -> list[RunEnded]:
    """Valid runs of a cell."""
    return [run(first + number, of=of, **other) for number in range(count)]


def night(made: Sequence[RunEnded], cells: Sequence[CellRecord] = (cell(),), day: int = 30, **other: Any) -> Night:
    """A night of the last days of December: `day` 31 is the latest."""
    begun = dt.datetime(2026, 12, 31, 20, tzinfo=dt.UTC) - dt.timedelta(days=31 - day)
    id = f"{begun:%Y%m%dT%H%M%S}+0000-made"
    told: dict[str, Any] = {"commit": "a" * 40, "clean": True, "assay": "1", "judge": "7"} | other.pop("head", {})
    done = NightDone(at=NOON.isoformat(), why="wall", wall_s=3600.0, cpu_s=7000.0)
    head = NightHead(
        id=id,
        name="made",
        begun=begun.isoformat(),
        machine=told.pop("machine", MachineRecord(host="h", cores=2)),
        plan="p",
        budget={"wall_s": 3600.0},
        cells=tuple(cells),
        **told,
    )
    return Night(Path("store") / NIGHTS / id, head, runs=tuple(made), **({"done": done} | other))


def write_night(store: Path, made: Night) -> Path:
    """The folder of the night in a store, with a whole journal."""
    folder = store / NIGHTS / made.head.id
    folder.mkdir(parents=True)
    began = [RunBegan(run=r.run, cell=r.cell, number=r.number, seed=r.seed, attempt=1, at=r.at) for r in made.runs[:1]]
    entries: list[Entry] = [made.head, *began, *made.runs, *([made.done] if made.done else [])]
    lines, seal = [], ""
    for entry in entries:
        line, seal = sealed_line(entry, seal)
        lines.append(line)
    (folder / JOURNAL).write_bytes(b"".join(lines))
    return folder
