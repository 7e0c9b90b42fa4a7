"""Files that appear whole or not at all, and those that are there for a while."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile, mkdtemp
from typing import IO

from harness.errors import NoScratchError, UnwritableError


@contextmanager
def atomic_write(path: Path, name: str) -> Iterator[Path]:
    """Where to write a file, which takes its place when the block ends and is removed if it fails.

    Raises UnwritableError, in which the file is called `name`, if it can't be written.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise UnwritableError(f"{name} can't be written: {_reason(error)}.") from error
    finally:
        with suppress(OSError):  # a directory of that name, or a volume that can't be written: nothing of ours is there
            unfinished.unlink(missing_ok=True)


def scratch_folder(name: str, within: Path | None = None) -> TemporaryDirectory[str]:
    """A folder for a while, its name beginning so, in the place of temporary files or where it is told; raises
    UnwritableError where nothing can be kept for a while."""
    try:
        return TemporaryDirectory(prefix=f"assay-{name}-", dir=within)
    except OSError as error:
        if within is None:
            raise no_scratch(error) from error
        raise UnwritableError(f"Nothing can be written to {within}: {_reason(error)}.") from error


@contextmanager
def held_folder(prefix: str, within: Path) -> Iterator[Path]:
    """A folder for a while, its name beginning so, that is locked for as long as this process lives, so that others can
    tell one whose process was killed (`abandoned_folders`)."""
    while True:
        folder = Path(mkdtemp(prefix=prefix, dir=within))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():  # else somebody took it for an abandoned one before it was locked
            break
        os.close(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def abandoned_folders(prefix: str, within: Path, remove: Callable[[Path], object] | None = None) -> tuple[Path, ...]:
    """Folders of `held_folder` whose process is gone, for a living one's is locked; each is given to `remove`."""
    found = []
    for folder in sorted(within.glob(f"{prefix}*")):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if remove is not None:
                remove(folder)
            found.append(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
    return tuple(found)


def scratch_file() -> IO[bytes]:
    """A file without a name, which is there until it is closed; raises UnwritableError as above."""
    try:
        return TemporaryFile()
    except OSError as error:
        raise no_scratch(error) from error


def no_scratch(error: OSError) -> NoScratchError:
    """The sentence on why nothing can be kept for a while."""
    return NoScratchError(f"Temporary files can't be written (set TMPDIR to a place for them): {_reason(error)}.")


def _reason(error: OSError) -> str:
    """In the system's words: pyarrow puts its own before them."""
    return os.strerror(error.errno) if error.errno else str(error)
