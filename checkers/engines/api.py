"""What an engine does: hands groups of a history to kernels, and counts by columns.

Keys whose operations one task does not take are judged by many (`KeySplit`); `Rows` and `Zones` are their operations on
their way between tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.codes import Ints
from checkers.columns.projection import Flat, KeyedOps, Projection
from checkers.findings import Finding, Findings, Key
from checkers.source import Source


class Rows(NamedTuple):
    """Operations on registers: `key` is the register's place among those that are split, the rest as in `Flat`."""

    key: Ints
    invoke: Ints
    complete: Ints
    kind: Ints
    value: Ints
    expected: Ints

    def chosen(self, places: Ints) -> Rows:
        """Some rows, in the given order."""
        return Rows(*(column[places] for column in self))


class Zones(NamedTuple):
    """Rows that stand for blocks, all of a block with its first value: where they are compared, and 1 for those that
    an earlier range hands on."""

    rows: Rows
    range: Ints
    handed: Ints


class SplitFindings(msgspec.Struct, frozen=True):
    """What was found in registers that are split: `crossing` are conflicts of zones that were handed on, by the zone's
    register and value. `doubts` say why nothing confirms the history."""

    findings: Findings = Findings()
    crossing: dict[tuple[int, int], Finding] = {}
    doubts: frozenset[str] = frozenset()


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, one after the other."""
    if not parts:
        return Rows(*(np.empty(0, np.int64),) * len(Rows._fields))
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


if TYPE_CHECKING:
    from checkers.engines.local import LocalEngine
    from checkers.engines.spark import SparkEngine

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class KeySplit(Protocol):
    """How keys are judged whose operations one task does not take (`split_registers`); picklable."""

    def read(self, flat: Flat) -> tuple[Rows, SplitFindings]:
        """What a piece of the history has of these keys, to be gathered by key and value."""

    def gather(self, rows: Rows) -> tuple[Zones, Rows, SplitFindings]:
        """Of rows in which all of each value are: what ranges of time compare, and rows of what is in chains."""

    def blocks(self, rows: Rows) -> tuple[Zones, SplitFindings]:
        """What ranges of time compare of the chains of one key."""

    def compare(self, rows: Rows, handed: Ints) -> SplitFindings:
        """What one range has to say of one key; `handed` is 1 for rows that an earlier range hands on."""

    def united(self, answers: Iterable[SplitFindings]) -> SplitFindings:
        """Several answers as one, in any grouping."""

    def concluded(self, answer: SplitFindings) -> Findings:
        """What is said of these keys in the end."""


class KeyedKernel(Protocol):
    """Judges many keys at once; picklable, for workers call it too."""

    def __call__(self, keyed: KeyedOps) -> Findings:
        """The findings over all these keys, whose operations are sorted by invocation."""

    def split(self, addresses: tuple[Key, ...], width: int) -> KeySplit:
        """How these keys are judged by many tasks, in ranges of `width` events."""


Tally: TypeAlias = dict[tuple[str, str], int]
"""Client operations by (f, type)."""


class Work(Protocol[R_co]):
    """What is done otherwise in one process than by many tasks, with the same result. The engine picks the way, so
    nobody asks which engine there is."""

    def here(self, local: LocalEngine) -> R_co:
        """The result, by this process alone."""

    def on_spark(self, spark: SparkEngine) -> R_co:
        """The result, by tasks of this session."""


class Engine(Protocol):
    """Hands the groups of a history to kernels, in-process or through Spark, to the same effect."""

    @property
    def name(self) -> str: ...

    @property
    def skipped(self) -> list[str]:
        """Why some of a history was not judged, since the list was cleared; what was found holds without that."""

    def run(self, work: Work[R]) -> R:
        """Carry out the work, in the engine's way."""

    def parts(self, rows: int, rows_each: int, each_core: int = 1) -> int:
        """Into how many parts the work on `rows` falls; one where they are few or nobody shares it."""

    def judge_keys(self, source: Source, projection: Projection, kernel: KeyedKernel, explain: int) -> Findings:
        """Every key's operations, sorted by invocation, through the kernel; the kernel's findings merged."""

    def tally(self, source: Source) -> Tally:
        """How many client operations there are by (f, type)."""

    def verify(self, source: Source) -> None:
        """Raise UserError unless what a source reads is a whole history (`checkers.importers.integrity`)."""

    def located(self, source: Source) -> Source:
        """The source, which finds operations as the engine does."""

    def close(self) -> None:
        """Release what the engine holds; it starts again at its next use."""


TALLIED: Final = ("process", "f", "type")
"""The columns that `tally_of` reads."""


def tally_of(batch: pa.RecordBatch) -> Tally:
    """The tally of a batch."""
    table = pa.Table.from_batches([batch]).filter(pc.greater_equal(batch.column("process"), 0))
    rows = table.group_by(["f", "type"]).aggregate([([], "count_all")]).to_pylist()
    return {(str(row["f"]), str(row["type"])): row["count_all"] for row in rows}


def total_tally(tallies: list[Tally]) -> Tally:
    """Several tallies as one."""
    counts: Counter[tuple[str, str]] = Counter()
    for tally in tallies:
        counts.update(tally)
    return dict(counts)


def any_succeeded(source: Source, engine: Engine) -> bool:
    """Whether any operation of a client succeeded. Mostly the first operations say so, and nobody reads further."""
    first = next(source.batches(TALLIED), None)
    if first is None:
        return False
    return any(outcome == "ok" for _, outcome in tally_of(first)) or any(
        outcome == "ok" for _, outcome in engine.tally(source)
    )
