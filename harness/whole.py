"""Files that appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.errors import UnwritableError


@contextmanager
def appearing(path: Path, name: str) -> Iterator[Path]:
    """Where to write a file, which takes its place when the block ends and is removed if it fails.

    Raises UnwritableError, in which the file is called `name`, if it can't be written.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise UnwritableError(f"{name} can't be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):  # a directory of that name, or a volume that can't be written: nothing of ours is there
            unfinished.unlink(missing_ok=True)
