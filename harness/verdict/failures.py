"""The harness's own failures, kept apart from the system's: what, where in the run, and the traceback in a log."""

from __future__ import annotations

import traceback
from pathlib import Path

import msgspec

_MAX_TRACEBACKS = 50


class HarnessFailure(msgspec.Struct, frozen=True):
    """One failure of ours: `stage` of the run (`set up`, `client`, `nemesis`, …), what it was, how often."""

    stage: str
    error: str
    times: int = 1


class FailureLog:
    """Collects failures; equal ones are counted, the tracebacks of the first ones go to a log file, if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._counts: dict[tuple[str, str], int] = {}

    def record(self, stage: str, error: BaseException) -> None:
        """Note a failure; never raises."""
        key = (stage, f"{type(error).__name__}: {error}")
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] == 1 and len(self._counts) <= _MAX_TRACEBACKS:
            self._log(stage, error)

    def failures(self) -> tuple[HarnessFailure, ...]:
        """All of them, in the order in which they first happened."""
        return tuple(HarnessFailure(stage, error, times) for (stage, error), times in self._counts.items())

    def _log(self, stage: str, error: BaseException) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"---- {stage}\n{''.join(traceback.format_exception(error))}\n")
        except OSError as failed:
            self._counts.setdefault(("log", f"{self._path} can't be written: {failed.strerror}"), 1)
