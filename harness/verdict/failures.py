"""The harness's own failures, kept apart from the system's: what, where in the run, and the traceback in a log."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from harness.own_code import OWN_MODULE

_MAX_TRACEBACKS = 50

PLUGIN_MODULES = (OWN_MODULE, "assay.databases.")
"""How modules of databases are named whose mistakes are told with file and line."""


def place_in_plugin(error: BaseException) -> str:
    """Where in code that is not ours it came from, ` (FILE, line N)`; empty for our own."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(PLUGIN_MODULES):
            found = f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


class HarnessFailure(msgspec.Struct, frozen=True):
    """One failure of ours: `stage` of the run (`set up`, `client`, `nemesis`, …), what it was, how often, and `where`,
    module and function, of our code it was raised."""

    stage: str
    error: str
    times: int = 1
    where: str = ""


_OURS = frozenset({"harness", "cluster", "checkers", "nemesis", "workloads", "results", "assay"})


def place_of(error: BaseException) -> str:
    """Module and function of the deepest frame that is our own code, without lines; "" where there is none."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    names = [(frame.f_globals.get("__name__", ""), frame.f_code.co_qualname) for frame in frames]
    ours = [f"{module}.{function}" for module, function in names if module.partition(".")[0] in _OURS]
    return ours[-1] if ours else ""


class FailureLog:
    """Collects failures; equal ones are counted, the tracebacks of the first ones go to a log file, if there is one,
    with the time (UTC) that `now` gives."""

    def __init__(self, path: Path | None = None, now: Callable[[], datetime] | None = None) -> None:
        self._path, self._now = path, now
        self._counts: dict[tuple[str, str], int] = {}
        self._places: dict[tuple[str, str], str] = {}

    def record(self, stage: str, error: BaseException) -> None:
        """Note a failure; never raises."""
        key = (stage, f"{type(error).__name__}: {error}{place_in_plugin(error)}")
        self._counts[key] = self._counts.get(key, 0) + 1
        self._places.setdefault(key, place_of(error))
        if self._counts[key] == 1 and len(self._counts) <= _MAX_TRACEBACKS:
            self._log(stage, error)

    def failures(self) -> tuple[HarnessFailure, ...]:
        """All of them, in the order in which they first happened."""
        return tuple(
            HarnessFailure(stage, error, times, self._places.get((stage, error), ""))
            for (stage, error), times in self._counts.items()
        )

    def _log(self, stage: str, error: BaseException) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                at = f" at {self._now().astimezone(UTC).isoformat(timespec='milliseconds')}" if self._now else ""
                file.write(f"---- {stage}{at}\n{''.join(traceback.format_exception(error))}\n")
        except OSError as failed:
            self._counts.setdefault(("log", f"{self._path} can't be written: {failed.strerror}"), 1)
