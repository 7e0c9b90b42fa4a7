"""What an engine does: hands groups of a history to kernels, and counts by columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from checkers.findings import Findings
from checkers.grouping import KeyedOps
from checkers.projection import Projection
from checkers.source import Source

KeyedKernel: TypeAlias = Callable[[KeyedOps], Findings]
"""Judges many keys at once; picklable, for workers call it too."""

Tally: TypeAlias = dict[tuple[str, str], int]
"""Client operations by (f, type)."""


class Engine(Protocol):
    """The same groups to the same kernels, in-process or through Spark."""

    @property
    def name(self) -> str: ...

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        """Every key's operations, sorted by invocation, through the kernel; the kernel's findings merged."""

    def tally(self, source: Source) -> Tally:
        """How many client operations there are by (f, type)."""

    def close(self) -> None:
        """Release what the engine holds; it starts again at its next use."""
