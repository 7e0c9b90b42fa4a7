"""The run directory: `store/WORKLOAD/TIMESTAMP/`, its layout and how files get into it (`runs.md`, "Run directory").

Nothing else in the project spells these names. Files are replaced atomically: a reader sees the old or the new one.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.atomic_write import atomic_write
from harness.errors import UNDECODABLE, HarnessError, UserError

_MAX_SAME_MOMENT = 10_000
LARGEST_JSON_BYTES = 1 << 28
"""More than any run saves as JSON, and little enough to be read into memory."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run."""

    path: Path

    @property
    def run_json(self) -> Path:
        """Every option, seed, versions, git commit, flaw; written first."""
        return self.path / "run.json"

    @property
    def journal(self) -> Path:
        """The history as it grows; gone once the table is found to say the same, unless it is to be kept."""
        return self.path / "history.journal"

    @property
    def history_parquet(self) -> Path:
        return self.path / "history.parquet"

    @property
    def history_edn(self) -> Path:
        return self.path / "history.edn"

    @property
    def faults_json(self) -> Path:
        return self.path / "faults.json"

    @property
    def invariants_json(self) -> Path:
        """Which invariants were checked during the run and which broke; absent where the database knows of none."""
        return self.path / "invariants.json"

    @property
    def cluster_json(self) -> Path:
        """The system as a whole at the end, as `assay cluster check` shows it; absent where nobody looked."""
        return self.path / "cluster.json"

    @property
    def leaders_json(self) -> Path:
        """Who led which group (`harness.verdict.leaderships.Leadership`); absent where the database doesn't know."""
        return self.path / "leaders.json"

    @property
    def outcome_json(self) -> Path:
        """What the run went through: stages, recovery, the harness's own failures."""
        return self.path / "outcome.json"

    @property
    def seal_json(self) -> Path:
        """A digest of each of `judged_files` (`harness.verdict.run_seal`)."""
        return self.path / "seal.json"

    @property
    def verdict_json(self) -> Path:
        """What the run is worth; written last."""
        return self.path / "verdict.json"

    @property
    def steps_jsonl(self) -> Path:
        """Of a simulation the digest of its steps after each thousand; absent elsewhere."""
        return self.path / "steps.jsonl"

    @property
    def judged_files(self) -> tuple[Path, ...]:
        """What a verdict is made of, and so what has to fit together."""
        told = (self.faults_json, self.invariants_json, self.cluster_json, self.leaders_json, self.outcome_json)
        return (self.run_json, self.history_parquet, *told)

    @property
    def report_html(self) -> Path:
        return self.path / "report.html"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    @property
    def nodes(self) -> Path:
        """Log files, as `nodes/NAME/FILE`."""
        return self.path / "nodes"

    @property
    def harness_log(self) -> Path:
        """Tracebacks of the harness's own failures."""
        return self.path / "harness.log"

    def write_json(self, path: Path, value: Any) -> None:
        """Replace a JSON file of the run; raises HarnessError if it can't be written."""
        write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    def read_json(self, path: Path) -> Any:
        """A JSON file of the run, None if it isn't there; raises UserError if it can't be read."""
        if path.exists() and not (path.is_file() and path.stat().st_size <= LARGEST_JSON_BYTES):
            raise UserError(f"{path} is no file that a run has saved.")
        try:
            return msgspec.json.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, *UNDECODABLE) as error:
            raise UserError(f"{path} can't be read: {error}.") from error

    def write_logs(self, logs: Mapping[str, bytes]) -> None:
        """Write log files by `NODE/NAME`; raises HarnessError for names outside the directory or a full disk."""
        for name, content in logs.items():
            target = (self.nodes / name).resolve()
            if not target.is_relative_to(self.nodes.resolve()):
                raise HarnessError(f"a log file must not be called {name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, content)

    def discard(self) -> None:
        """Remove the directory, for a run that never began."""
        shutil.rmtree(self.path, ignore_errors=True)
        for parent in (self.path.parent, self.path.parent.parent):
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()

    def drop_journal(self) -> None:
        """Remove the journal once the table is on its disk; raises OSError."""
        table = self.history_parquet
        for path in (*(sorted(table.iterdir()) if table.is_dir() else ()), table, self.path):
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        self.journal.unlink()

    def set_table_aside(self) -> None:
        """Have the journal be the history again, where the table is not what that says; raises OSError."""
        self.history_parquet.rename(self.path / "history.parquet.refused")

    def point_latest(self) -> None:
        """Have `latest`, of the store and of the workload in it, name this run, which has just ended; raises
        OSError."""
        _point(self.path.parent / "latest", Path(self.path.name))
        _point(self.path.parent.parent / "latest", Path(self.path.parent.name) / self.path.name)


def create(store: Path, workload: str, now: datetime) -> RunDir:
    """Make the directory of a new run, with a name no other run has.

    `now` names it, in UTC and to the millisecond. Raises UserError when the store can't be written, and leaves nothing
    behind.
    """
    utc = now.astimezone(UTC)
    stamp = utc.strftime("%Y%m%dT%H%M%S.") + f"{utc.microsecond // 1000:03d}Z"
    made: list[Path] = []
    require_store(store)
    try:
        _make_parents(store / workload, made)
        path = _make_unique(store / workload, stamp)
    except OSError as error:
        for folder in reversed(made):
            shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"The store {store} can't be written ({error.strerror}); name another with --store.") from error
    return RunDir(path)


def require_store(store: Path) -> None:
    """Raise UserError for a store whose name can't be saved in a run's own files, or that lies within a run."""
    try:
        str(store.absolute()).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"The name of the store {str(store)!r} is not UTF-8; name another with --store.") from error
    for folder in (store.absolute(), *store.absolute().parents):
        if is_run(folder):
            raise UserError(f"The store {store} lies within the run {folder}; name another with --store.")


def adopt(rundir: RunDir, store: Path, workload: str) -> RunDir:
    """Move a run that was made elsewhere on the same volume into a store, under its own name if that is free, and point
    `latest` at it; raises HarnessError."""
    try:
        _make_parents(store / workload, [])
        path = _make_unique(store / workload, rundir.path.name)
        rundir.path.replace(path)
        RunDir(path).point_latest()
    except OSError as error:
        raise HarnessError(f"the run {rundir.path} can't be moved to {store}: {error.strerror}") from error
    return RunDir(path)


def is_run(path: Path) -> bool:
    """Whether a path is the directory of a run; raises UserError where nobody may look into it."""
    try:
        return (path / "run.json").is_file()
    except PermissionError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error


def open_run(path: Path) -> RunDir:
    """The directory of a saved run; raises UserError if it is none."""
    if not is_run(path):
        raise UserError(f"{path} is not the directory of a run: it has no run.json.")
    return RunDir(path.resolve())


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file, all or nothing; raises HarnessError."""
    with atomic_write(path, str(path)) as unfinished, unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _make_parents(path: Path, made: list[Path]) -> None:
    """Make missing directories, noting each, outermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        made.append(folder)


def _make_unique(parent: Path, stamp: str) -> Path:
    for number in range(1, _MAX_SAME_MOMENT):
        path = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise OSError(17, "too many runs at the same moment")


def _point(link: Path, target: Path) -> None:
    """Make a symbolic link, replacing an older one atomically; several runs may do so at once."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.unlink(missing_ok=True)  # of a process that was killed
    temporary.symlink_to(target)
    try:
        temporary.replace(link)
    finally:
        temporary.unlink(missing_ok=True)
