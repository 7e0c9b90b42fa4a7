"""The model `logs`: no node panicked, by what the log files of a run say (`jepsen.checker/log-file-pattern`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from checkers.engines.api import Engine
from checkers.options import CheckOptions, names_setting
from checkers.source import Source
from checkers.verdict import Anomaly, Validity, Verdict
from harness.errors import UserError
from harness.history.rundir import is_run, open_run

PANIC: Final = "panic"

PATTERNS: Final = (
    r"\bPANIC\b",
    r"^panic: ",
    r"panicked at ",
    r"Traceback \(most recent call last\)",
    r"[Aa]ssertion(Error|\b.*\bfailed)",
    r"\bFATAL\b",
    r"Segmentation fault|\bSIGSEGV\b|\bSIGABRT\b",
    r"(Address|Thread|Memory|UndefinedBehavior)Sanitizer:",
    r"OutOfMemoryError|Out of memory",
)
"""What no healthy node writes."""

_MOST_SHOWN: Final = 300
_MOST_BYTES: Final = 1 << 24
"""Bytes of the pieces in which a longer line is searched, each with the end of the one before. A pattern may match
across more than that, so nothing is said of a log with such a line in which nothing was found."""
_OVERLAP: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Match:
    """A suspicious line: where it is, and its text, shortened."""

    node: str
    file: str
    line: int
    text: str


class Searched(NamedTuple):
    """The lines of a log that a pattern finds, and the first that is too long to be searched in one piece (0: none)."""

    matches: list[Match]
    cut: int


def searched(path: Path, node: str, pattern: re.Pattern[bytes]) -> Searched:
    """What the pattern finds in a log file; raises UserError if the file can't be read."""
    found, cut = list[Match](), 0
    try:
        with path.open("rb") as file:
            number, before = 0, b""
            while piece := file.readline(_MOST_BYTES):
                number += not before
                if any(match.end() > len(before) for match in pattern.finditer(before + piece)):
                    text = piece.decode(errors="replace").strip()
                    found.append(Match(node, path.name, number, text[:_MOST_SHOWN]))
                cut = cut or (number if before else 0)
                before = b"" if piece.endswith(b"\n") else (before + piece)[-_OVERLAP:]
    except OSError as error:
        raise UserError(f"The log {path} can't be read: {error.strerror}.") from error
    return Searched(found, cut)


def _pattern(options: CheckOptions) -> re.Pattern[bytes]:
    text = options.settings.get("pattern")
    try:
        return re.compile("|".join(PATTERNS).encode() if text is None else text.encode(), re.MULTILINE)
    except re.error as error:
        raise UserError(f"-o pattern is no regular expression: {error}.") from error


def log_files(source: Source, options: CheckOptions) -> list[tuple[str, Path]]:
    """The run's log files with the node each is of, in order; raises UserError where there is no run."""
    names = names_setting(options, "files")
    nodes = open_run(_run_of(source)).nodes
    paths = sorted(path for path in nodes.rglob("*") if path.is_file())
    return [(path.relative_to(nodes).parts[0], path) for path in paths if not names or path.name in names]


def _run_of(source: Source) -> Path:
    path = source.path
    folder = path if not isinstance(path, Path) or is_run(path) else path.parent
    if not isinstance(folder, Path) or not is_run(folder):
        raise UserError(f"{source.path} belongs to no run, so the model logs has no log files to read.")
    return folder


def judge_logs(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """No line of any node's log matches the patterns (`-o pattern=REGEX`, `-o files=NAME,NAME`); unknown if one that
    served clients left none."""
    pattern, files = _pattern(options), log_files(source, options)
    logs = [searched(path, node, pattern) for node, path in files]
    found = [match for log in logs for match in log.matches]
    reason = None if found else _doubt(files, logs) or _without_logs(source, {node for node, _ in files})
    valid: Validity = False if found else "unknown" if reason else True
    anomalies = tuple(
        Anomaly(f"Node {match.node} wrote in {match.file}, line {match.line}: {match.text}", match.node)
        for match in found[: options.explain]
    )
    by_node = {node: sum(match.node == node for match in found) for node in sorted({node for node, _ in files})}
    return Verdict(
        valid,
        "logs",
        {PANIC: anomalies} if anomalies else {},
        {PANIC: len(found)} if found else {},
        engine=engine.name,
        reason=reason,
        details={"files": len(files), "matches_by_node": by_node},
    )


def _without_logs(source: Source, known: set[str]) -> str | None:
    """Which nodes that served clients left no log, in a sentence; None if all did."""
    run = open_run(_run_of(source))
    serving = run.read_json(run.run_json).get("serving_nodes", ())
    missing = [node for node in serving if node not in known]
    return f"The run has no log of {', '.join(missing)}." if missing else None


def _doubt(files: list[tuple[str, Path]], logs: list[Searched]) -> str | None:
    """Why nothing can be said although nothing was found."""
    for (node, path), log in zip(files, logs, strict=True):
        if log.cut:
            return (
                f"Line {log.cut} of {node}'s {path.name} has more than {_MOST_BYTES} bytes and was searched in pieces."
            )
    return None if files else "The run has no log files."
