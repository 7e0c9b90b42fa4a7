"""Telling a verdict: what goes wrong with standard output must not hide what was found."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from shlex import quote
from typing import Any, Final

from harness.history.rundir import RunDir

SHOWN_ANOMALIES: Final = 3
EXIT_WITHOUT_VERDICT: Final = 255


class Untold(Exception):
    """Standard output took no more; `code` is what the command would have ended with."""

    def __init__(self, code: int, error: OSError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error


class Teller:
    """Prints lines as long as somebody takes them, and goes on in silence when nobody does; `end` says so."""

    def __init__(self) -> None:
        self._failed: OSError | None = None

    def line(self, text: str) -> None:
        """Print a line now."""
        if self._failed is not None or sys.stdout is None:
            return
        try:
            print(text, flush=True)
        except OSError as error:
            self._failed = error

    def end(self, code: int) -> int:
        """The exit code, once everything was told; raises Untold if it was not."""
        if self._failed is not None:
            raise Untold(code, self._failed)
        return code


def say_at_once(sentence: str) -> None:
    """A line on standard error from within a handler of signals, whatever was being printed there."""
    with suppress(OSError):
        os.write(2, f"assay: {sentence}\n".encode(errors="backslashreplace"))


def unfinished(rundir: RunDir) -> str:
    """Where the history of a run lies that was not ended in order, and what judges it."""
    history = rundir.journal if rundir.journal.exists() else rundir.history_parquet
    return f"the history so far lies in {history}; `assay check {quote(str(rundir.path))}` judges it"


def skipped_words(counts: Mapping[str, Any]) -> str:
    """How many instances of one kind found no victim, and why; empty where each did."""
    why = "; ".join(counts.get("skipped_because", ()))
    return f"{counts['skipped']} skipped ({why})" if counts.get("skipped") else ""


def print_any_name() -> None:
    """Let names that the terminal's encoding can't show be printed with escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def anomaly_sentences(checkers: Mapping[str, Any], limit: int = SHOWN_ANOMALIES) -> list[str]:
    """The first explained anomalies in words, the checkers in turn, each with its class; then how many there are."""
    by_checker = (
        [f"{kind}: {anomaly['message']}" for kind, found in verdict.get("anomalies", {}).items() for anomaly in found]
        for verdict in checkers.values()
    )
    found = [sentence for turn in zip_longest(*by_checker) for sentence in turn if sentence is not None]
    total = sum(sum(verdict.get("counts", {}).values()) for verdict in checkers.values())
    more = [f"… {total} anomalies in all; the report explains more" * (total > limit)]
    return [*found[:limit], *[line for line in more if line]]
