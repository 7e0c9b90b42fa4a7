"""What stays of a night's runs, and the index of a store's runs and nights.

Of a signature the first, the smallest, the quickest and the five newest runs stay whole; where the disk's bound is
reached the newest go first, the oldest of them before, then the quickest, the smallest, and at last the first.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from assay.night.records import Night, RunEnded, nights_in, read_night
from harness.errors import UserError
from harness.history.rundir import is_run

NEWEST: Final = 5
INDEX: Final = "index.db"
INDEX_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run that lies in the store: its number, its place there, what of it is compared, and its MiB."""

    run: int
    kept: str
    ops: int
    cpu_s: float
    size_mb: float


@dataclass(slots=True)
class KeptRuns:
    """The kept runs of a night in the order in which they ended, and by the signatures that they are kept for."""

    store: Path
    disk_mb: float | None
    all: OrderedDict[str, KeptRun] = field(default_factory=OrderedDict)
    by_signature: dict[str, list[str]] = field(default_factory=dict)

    def add(self, run: RunEnded) -> None:
        """Take in a run, if it was kept."""
        if run.kept is None or run.kept in self.all:
            return
        self.all[run.kept] = KeptRun(run.run, run.kept, run.ops, run.cpu_s, size_mb(self.store / run.kept))
        for name in {finding.signature for finding in run.findings} or {f"{run.cell} {run.word} {run.why}"}:
            self.by_signature.setdefault(name, []).append(run.kept)

    def forget(self, kept: str) -> None:
        """It is not there any more."""
        self.all.pop(kept, None)
        for runs in self.by_signature.values():
            if kept in runs:
                runs.remove(kept)

    def ranks(self) -> dict[str, int]:
        """How dearly each run is kept, by the best of its signatures: 4 for a first one down to 1, and 0 for none."""
        ranks = dict.fromkeys(self.all, 0)
        for names in self.by_signature.values():
            runs = [self.all[name] for name in names]
            if not runs:
                continue
            best = [(4, runs[0]), (3, min(runs, key=lambda run: run.ops)), (2, min(runs, key=lambda run: run.cpu_s))]
            for rank, run in (*best, *((1, run) for run in runs[-NEWEST:])):
                ranks[run.kept] = max(rank, ranks[run.kept])
        return ranks

    def let_go(self) -> Iterator[tuple[KeptRun, Literal["disk", "newer"]]]:
        """Remove what is one too many of its signature, or for the disk; each as it is gone."""
        ranks = self.ranks()
        for kept in [kept for kept, rank in ranks.items() if rank == 0]:
            yield self._remove(kept), "newer"
        for kept in sorted(self.all, key=lambda each: ranks[each]):
            if self.disk_mb is None or sum(run.size_mb for run in self.all.values()) <= self.disk_mb:
                return
            yield self._remove(kept), "disk"

    def _remove(self, kept: str) -> KeptRun:
        run = self.all[kept]
        self.forget(kept)
        shutil.rmtree(self.store / kept, ignore_errors=True)
        return run


def size_mb(folder: Path) -> float:
    """MiB of the files of a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total / (1 << 20)


# ---- the index ----

_TABLES: Final = """
create table nights (id text primary key, name text, begun text, commit_ text, done text, runs integer, size integer);
create table cells (night text, id text, name text, workload text, expect text, flaw text, primary key (night, id));
create table runs (night text, run integer, cell text, seed integer, at text, word text, why text, ops integer,
  cpu_s real, wall_s real, memory_mb real, virtual_s real, trace text, kept text, primary key (night, run));
create table findings (night text, run integer, cell text, kind text, family text, detail text, title text);
create table saved (path text primary key, workload text, night text);
create index runs_of_cells on runs (cell, night);
create index findings_of_families on findings (family, detail);
"""


def open_index(store: Path) -> sqlite3.Connection:
    """The index of a store, made anew where there is none, or one of another version, and brought up to date with its
    nights. Raises UserError where it can't be written."""
    path = store / INDEX
    try:
        index = _connect(path)
        with closing(index.execute("pragma user_version")) as version:
            fits = version.fetchone()[0] == INDEX_VERSION
    except sqlite3.DatabaseError:  # it is a cache, and damaged: what it was made of is not
        fits = False
    try:
        if not fits:
            with suppress(UnboundLocalError, sqlite3.Error):
                index.close()
            for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
                file.unlink(missing_ok=True)
            index = _connect(path)
            index.executescript(_TABLES + f"pragma user_version = {INDEX_VERSION};")
        _catch_up(index, store)
    except (sqlite3.Error, OSError) as error:
        raise UserError(f"The index {path} can't be written: {error}.") from error
    return index


def rebuild_index(store: Path) -> tuple[int, int, int]:
    """Make the index again from the nights' journals and the runs' folders; how many nights, runs of them, and saved
    runs it has. Raises UserError for a store that is none, and for a night that can't be read."""
    if not store.is_dir():
        raise UserError(f"There is no store {store}.")
    for night in nights_in(store):
        read_night(night)  # before anything is removed
    for end in ("", "-wal", "-shm"):
        (store / (INDEX + end)).unlink(missing_ok=True)
    with closing(open_index(store)) as index:
        counts = [index.execute(f"select count(*) from {table}").fetchone()[0] for table in ("nights", "runs", "saved")]
        index.execute("pragma wal_checkpoint(truncate)")
    return counts[0], counts[1], counts[2]


def _connect(path: Path) -> sqlite3.Connection:
    index = sqlite3.connect(path)
    index.execute("pragma journal_mode = wal")
    index.execute("pragma synchronous = normal")
    return index


def _catch_up(index: sqlite3.Connection, store: Path) -> None:
    """Take in nights whose journals have grown since, and the runs that lie in the store now."""
    known = dict(index.execute("select id, size from nights").fetchall())
    with index:
        for directory in nights_in(store):
            size = (directory / "night.jsonl").stat().st_size
            if known.get(directory.name) != size:
                _put_night(index, read_night(directory), size)
        kept = dict(index.execute("select kept, night from runs where kept is not null").fetchall())
        index.execute("delete from saved")
        index.executemany("insert into saved values (?, ?, ?)", _saved(store, kept))


def _saved(store: Path, nights: dict[str, str]) -> Iterator[tuple[str, str, str | None]]:
    for workload in sorted(store.iterdir()):
        if workload.name.startswith(".") or workload.name == "nights" or workload.is_symlink() or not workload.is_dir():
            continue
        for run in sorted(workload.iterdir()):
            if not run.is_symlink() and is_run(run):
                path = str(run.relative_to(store))
                yield path, workload.name, nights.get(path)


def _put_night(index: sqlite3.Connection, night: Night, size: int) -> None:
    head = night.head
    for table, key in (("nights", "id"), ("cells", "night"), ("runs", "night"), ("findings", "night")):
        index.execute(f"delete from {table} where {key} = ?", (head.id,))
    done = None if night.done is None else night.done.why
    row = (head.id, head.name, head.begun, head.commit, done, len(night.runs), size)
    index.execute("insert into nights values (?, ?, ?, ?, ?, ?, ?)", row)
    cells = [(head.id, each.id, each.name, each.workload, each.expect, ",".join(each.flaw)) for each in head.cells]
    index.executemany("insert into cells values (?, ?, ?, ?, ?, ?)", cells)
    gone = {each.kept for each in night.let_go}
    index.executemany(f"insert into runs values ({','.join('?' * 14)})", _run_rows(head.id, night.runs, gone))
    index.executemany("insert into findings values (?, ?, ?, ?, ?, ?, ?)", _finding_rows(head.id, night.runs))


def _run_rows(night: str, runs: Sequence[RunEnded], gone: set[str]) -> Iterator[tuple[object, ...]]:
    for run in runs:
        kept = None if run.kept in gone else run.kept
        figures = (run.ops, run.cpu_s, run.wall_s, run.memory_mb, run.virtual_s)
        yield (night, run.run, run.cell, run.seed, run.at, run.word, run.why, *figures, run.trace, kept)


def _finding_rows(night: str, runs: Sequence[RunEnded]) -> Iterator[tuple[object, ...]]:
    for run in runs:
        for each in run.findings:
            yield night, run.run, run.cell, each.kind, each.family, each.detail, each.title
