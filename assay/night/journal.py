"""The one writer of a night's journal: its place in the store, its lines, and how a night begins and goes on.

A night holds a lock on the folder of its store's nights for as long as its process lives: plans exclude each other,
several commands of many seeds may work in one store at once. Every line is on its disk before anything else happens;
where the store takes nothing, lines wait, in order, until it does.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

from assay.night.records import (
    JOURNAL,
    NIGHTS,
    PLAN,
    Entry,
    MachineRecord,
    Night,
    NightHead,
    NightResumed,
    RunBegan,
    nights_in,
    read_night,
    sealed_line,
)
from harness.errors import UserError
from harness.history.cores import usable_cores
from harness.history.rundir import require_store
from harness.run.provenance import provenance

_SLUG: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_NIGHTS: Final = 10_000
"""That begin within one second."""


def now_text() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def sole_night(store: Path, shared: bool = False) -> Iterator[None]:
    """Hold the store for one night, or for one of several that share it; raises UserError where another has it."""
    require_store(store)
    folder = store / NIGHTS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"The store {store} can't be written ({error.strerror}); name another with --store.") from error
    try:
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"Another night is at work in the store {store}; name another with --store.") from None
        yield
    finally:
        os.close(lock)


class NightJournal:
    """Lines of one night, appended whole and flushed, or waiting in order. `size` and `seal` are of what is written."""

    def __init__(self, directory: Path, size: int = 0, seal: str = "") -> None:
        self._path = directory / JOURNAL
        self._size, self._seal = size, seal
        self._waiting: deque[Entry] = deque()
        self.trouble: str | None = None
        """Why lines wait, if they do."""

    def append(self, *entries: Entry) -> bool:
        """Write entries behind those that wait; whether all are on the disk."""
        self._waiting.extend(entries)
        return self.flush()

    def flush(self) -> bool:
        """Write what waits; whether nothing waits any more. A line of which a part was written is taken back."""
        while self._waiting:
            line, seal = sealed_line(self._waiting[0], self._seal)
            try:
                with self._path.open("r+b" if self._size else "wb", buffering=0) as file:
                    file.truncate(self._size)
                    file.seek(self._size)
                    if file.write(line) != len(line):
                        raise OSError(28, os.strerror(28))
                    os.fsync(file.fileno())
            except OSError as error:
                self.trouble = os.strerror(error.errno or 0)
                return False
            self._waiting.popleft()
            self._size, self._seal, self.trouble = self._size + len(line), seal, None
        return True

    def flush_for_long(self, most_s: float, pause_s: float = 1.0) -> bool:
        """Flush again and again for so long; whether all is written."""
        until_s = time.monotonic() + most_s
        while not self.flush():
            if time.monotonic() >= until_s:
                return False
            time.sleep(pause_s)
        return True


def digest_of(text: str) -> str:
    """Of a plan's text."""
    return blake2b(text.encode(), digest_size=6).hexdigest()


def begin_night(store: Path, name: str, text: str, make: Callable[[str], NightHead]) -> Night:
    """Make the folder of a new night, with its plan's text and its head, which is made of its id. Raises UserError, and
    leaves nothing behind, if the store can't be written."""
    directory = _make_directory(store, f"{datetime.now(UTC):%Y%m%dT%H%M%S+0000}-{_SLUG.sub('-', name)[:60]}")
    journal = NightJournal(directory)
    try:
        (directory / PLAN).write_text(text)
        written = journal.append(make(directory.name))
    except OSError as error:
        journal.trouble, written = error.strerror, False
    if not written:
        shutil.rmtree(directory, ignore_errors=True)
        raise UserError(f"The store {store} can't be written ({journal.trouble}); name another with --store.")
    return read_night(directory)


def _make_directory(store: Path, id: str) -> Path:
    for number in range(1, _MOST_NIGHTS):
        directory = store / NIGHTS / (id if number == 1 else f"{id}-{number}")
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"The store {store} can't be written ({error.strerror}).") from error
        return directory
    raise UserError(f"Too many nights began at once in {store}.")


def head_of(id: str, name: str, text: str) -> NightHead:
    """The head of a night that begins now, here, by a plan of this text, without its cells."""
    source = provenance()
    version, commit = source["versions"].get("assay"), source["git_commit"]
    return NightHead(
        id=id,
        name=name,
        begun=now_text(),
        commit=commit,
        clean=None if source["git_dirty"] is None else not source["git_dirty"],
        assay=version,
        judge=version if commit is None else f"{version} {commit[:12]}",
        machine=this_machine(),
        plan=digest_of(text),
        budget={},
    )


def this_machine() -> MachineRecord:
    """What the runs of a night share; the host's name is told by its digest only."""
    model = None
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    host = blake2b(platform.node().encode(), digest_size=6).hexdigest()
    return MachineRecord(host=host, cores=usable_cores(), cpu=model)


def open_night(store: Path, plan: str | None = None) -> Night | None:
    """The newest night of a store, with `plan` of a plan of this digest, if it may go on; None where there is none.
    Raises UserError for one that can't be read."""
    for directory in reversed(nights_in(store)):
        night = read_night(directory)
        if plan is None or night.head.plan == plan:
            return night if night.is_open else None
    return None


def resume_night(night: Night) -> tuple[NightJournal, tuple[RunBegan, ...]]:
    """The journal of a night that goes on, its torn end cut off, and the runs that it owes: they began and have no end.
    Raises UserError for a night that another commit began, or whose journal was changed."""
    commit = provenance()["git_commit"]
    if night.damage:
        raise UserError(f"The night {night.head.id} can't go on: {night.damage[0]}.")
    if commit != night.head.commit:
        raise UserError(
            f"The night {night.head.id} began at commit {night.head.commit}, and this is {commit}: begin another one."
        )
    journal = NightJournal(night.directory, night.whole_bytes, night.seal)
    journal.append(NightResumed(at=now_text(), spent_s=night.spent_s))
    return journal, tuple(sorted(night.begun.values(), key=lambda each: each.run))
