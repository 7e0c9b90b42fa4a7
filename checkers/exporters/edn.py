"""Export of a history as Jepsen EDN: one map an event, `{:index 0, :type :invoke, :process 3, :f :read, …}`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkers.exporters.events import Counts, event_lines
from checkers.exporters.readback import check_reads_back
from checkers.importers.text_parts import write_text_parts
from checkers.source import Source
from harness.atomic_write import atomic_write
from harness.history.parts import PART_ROWS


def write_edn(source: Source, path: Path, part_rows: int = PART_ROWS) -> Counts:
    """Write a history as EDN, one event a line, and return how much it was; of more operations than go into a part it
    is a folder of parts (`checkers.importers.text_parts`).

    It appears whole or not at all, once it was read back and found to hold the same client operations. Raises
    UserError for a history that Jepsen's form can't say, UnwritableError if it can't be written.
    """
    counts = Counts()
    lines = event_lines(source, counts)
    with _atomic_write(path) as unfinished:
        if source.rows > part_rows:
            write_text_parts(unfinished, _cut(lines, counts, part_rows))
        else:
            with unfinished.open("w", encoding="utf-8") as file:
                for line in lines:
                    file.write(line + "\n")
                if not counts.events:
                    file.write("[]\n")  # A file without anything in it could be one that was cut short.
        check_reads_back(source, unfinished)
    return counts


@contextmanager
def _atomic_write(path: Path) -> Iterator[Path]:
    """A file or a folder; a folder takes the place of a file too."""
    with atomic_write(path, f"The history {path}") as unfinished:
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            yield unfinished
            if unfinished.is_dir():
                path.unlink(missing_ok=True)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


def _cut(lines: Iterator[str], counts: Counts, part_rows: int) -> Iterator[Iterator[str]]:
    """The lines by part: an invocation of more than `part_rows` operations begins the next."""
    following = next(lines, None)
    while following is not None:
        first, begun = following, counts.operations

        def part(first: str = first, full: int = begun - 1 + part_rows) -> Iterator[str]:
            nonlocal following
            yield first
            while (following := next(lines, None)) is not None and counts.operations <= full:
                yield following

        yield part()
