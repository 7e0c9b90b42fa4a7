"""Export of a history as Jepsen EDN: one map an event, `{:index 0, :type :invoke, :process 3, :f :read, …}`."""

from __future__ import annotations

from pathlib import Path

from checkers.exporters.events import Counts, event_lines
from checkers.exporters.readback import check_reads_back
from checkers.source import Source
from harness.whole import appearing


def write_edn(source: Source, path: Path) -> Counts:
    """Write a history as EDN, one event a line, and return how much it was.

    The file appears whole or not at all, once it was read back and found to hold the same client operations. Raises
    UserError for a history that Jepsen's form can't say, HarnessError if it can't be written.
    """
    counts = Counts()
    with appearing(path, f"The history {path}") as unfinished:
        with unfinished.open("w", encoding="utf-8") as file:
            for line in event_lines(source, counts):
                file.write(line + "\n")
            if not counts.events:
                file.write("[]\n")  # A file without anything in it could be one that was cut short.
        check_reads_back(source, unfinished)
    return counts
