"""Makes a history smaller that a model refutes, as long as it is refuted by a finding of the same family.

    verdict ─> operations that show the finding ─> what these need ─> refuted alone?  mostly so; else more, else all
                                                                          │
                    objects, the end, operations, micro-operations: what can be left out is, until nothing can

What may be left out at all is the model's rule (`checkers.removal`), so what is left refutes whatever the whole did. A
candidate counts if its verdict has the wanted family (`assay.night.signature`); other families that the whole does not
show are told, and never followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa

from assay.night.signature import Evidence, signatures_of
from assay.reproduce.reduction import OutOfTime, Pass, Trials, ddmin, reduced
from checkers.api import judge_source
from checkers.columns.codes import NEVER, Bools, Ints
from checkers.engines.local import LocalEngine
from checkers.models import MODELS, OWN
from checkers.options import CheckOptions
from checkers.removal.needs import Needs
from checkers.removal.rules import REMOVALS, JudgedHistory, Removal
from checkers.removal.units import NO_END, Units, part_of_history, places_of, read_units
from checkers.source import Source
from checkers.transactions.lattice import DEFAULT_CONSISTENCY, friendly_name, impossible_models
from checkers.verdict import Anomaly, Verdict, as_object
from harness.errors import UserError

_LEAST_LIMIT_S: Final = 10.0
"""A candidate may take so long, or twice what the whole took, before it counts as undecided."""

_INSTANCES: Final = 3
"""Instances of the finding with which it is begun at most, those of the fewest operations first."""


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """How histories are judged: by which model, with which options."""

    model: str
    options: CheckOptions

    @property
    def removal(self) -> Removal:
        """What may be left out."""
        return REMOVALS[MODELS.get(self.model, OWN).removal]

    def verdict(self, part: Source, **changes: Any) -> Verdict | None:
        """The verdict on a part of a history; None where it can't be judged."""
        try:
            return judge_source(part, self.model, LocalEngine(), replace(self.options, **changes))
        except UserError:
            return None

    def families(self, verdict: Verdict) -> dict[str, tuple[str, ...]]:
        """The families of what refutes a history, the strongest first, each with the names of its anomalies."""
        if verdict.valid is not False:
            return {}
        found, names = as_object(verdict), self._refuting(verdict)
        families: dict[str, tuple[str, ...]] = {}
        left = {name: told for name, told in found["anomalies"].items() if name in names}
        while True:
            strongest = signatures_of(Evidence({"checkers": {self.model: found | {"anomalies": left}}}))[0]
            mine = tuple(name for name in left if self._family(found, {name: left[name]}) == strongest.family)
            families[strongest.family] = mine
            left = {name: told for name, told in left.items() if name not in mine}
            if not left:
                return families

    def _family(self, found: Mapping[str, Any], anomalies: Mapping[str, Any]) -> str:
        return signatures_of(Evidence({"checkers": {self.model: {**found, "anomalies": anomalies}}}))[0].family

    def _refuting(self, verdict: Verdict) -> Sequence[str]:
        """The anomalies that rule out what must hold; those that it allows are found too."""
        names = list(verdict.anomalies)
        if self.model not in ("list-append", "rw-register"):
            return names
        asked = friendly_name(self.options.consistency or DEFAULT_CONSISTENCY)
        return [name for name in names if asked in impossible_models([name])] or names


@dataclass(frozen=True)
class PartView:
    """A history that may be made smaller: its units and what they need."""

    part: Source
    question: HistoryQuestion

    @cached_property
    def units(self) -> Units:
        """The units of the history."""
        return read_units(self.part)

    @cached_property
    def needs(self) -> Needs:
        """What they need by the model's rule."""
        return self.question.removal.needs(
            JudgedHistory(self.part, self.units, self.question.model, self.question.options)
        )

    def kept(self, flags: Bools, end: int = NO_END) -> Source:
        """The history of as many of some units as have what they need."""
        return part_of_history(self.part, self.units, self.needs.kept(self.needs.within(flags), end))

    def of_operations(self, invocations: Sequence[int]) -> Bools:
        """The units of the operations with some invocation indices."""
        return np.isin(self.units.op, list(places_of(self.units, invocations)))


# ---- passes ----


def _by_groups(question: HistoryQuestion, group_of: Callable[[Units], Ints]) -> Pass[Source]:
    """A pass that leaves out units group by group; those without a group (-1) stay unless they want what is gone."""

    def shorten(part: Source, breaks: Callable[[Source], bool]) -> Source:
        view = PartView(part, question)
        group = group_of(view.units)
        best = part

        def still(kept: Sequence[int]) -> bool:
            nonlocal best
            smaller = view.kept((group < 0) | np.isin(group, list(kept)))
            if not smaller.rows or not breaks(smaller):
                return False
            best = smaller
            return True

        ddmin(np.unique(group[group >= 0]).tolist(), still)
        return best

    return shorten


def _objects(units: Units) -> Ints:
    """Units by the partition of their table."""
    return np.where(units.bare, -1, np.unique(units.cell(2), return_inverse=True)[1])


def _operations(units: Units) -> Ints:
    return units.op


def _micro_operations(units: Units) -> Ints:
    return np.arange(len(units))


def _to_the_end(question: HistoryQuestion) -> Pass[Source]:
    """The pass that cuts the end off: validity of a beginning follows from that of the whole, so it is halved."""

    def shorten(part: Source, breaks: Callable[[Source], bool]) -> Source:
        view = PartView(part, question)
        if not question.removal.ends(view.units):
            return part
        every, operations = np.ones(len(view.units), np.bool_), view.units.operations
        ends = np.unique(np.concatenate((operations.invoke, operations.ended)))
        ends = ends[ends != NEVER]
        best, low, high = part, 0, len(ends)
        while low < high:
            middle = (low + high) // 2
            cut = view.kept(every, int(ends[middle]))
            if cut.rows and breaks(cut):
                best, high = cut, middle
            else:
                low = middle + 1
        return best

    return shorten


def passes_of(question: HistoryQuestion) -> list[Pass[Source]]:
    """From coarse to fine."""
    return [
        _by_groups(question, _objects),
        _to_the_end(question),
        _by_groups(question, _operations),
        _by_groups(question, _micro_operations),
    ]


def part_name(part: Source) -> bytes:
    """Equal for equal parts of one history."""
    assert part.table is not None
    digest = blake2b(digest_size=16)
    with pa.BufferOutputStream() as stream:
        with pa.ipc.new_stream(stream, part.table.schema) as writer:
            writer.write_table(part.table.combine_chunks())
        digest.update(stream.getvalue())
    return digest.digest()


# ---- the search ----


@dataclass
class HistorySearch:
    """Looks for the smallest part of a refuted history with the wanted family among its findings. `seen` are findings
    of other families than the whole's, by anomaly, each in a sentence."""

    source: Source
    question: HistoryQuestion
    whole: Verdict
    wanted: str
    budget_s: float
    seen: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.families = self.question.families(self.whole)
        limit_s = max(_LEAST_LIMIT_S, 2 * self.whole.seconds)
        self._limit_s = min(self.question.options.time_limit_s, limit_s)
        self.trials: Trials[Source] = Trials(self._breaks, part_name, self.budget_s)
        self.smallest = False

    def run(self) -> Source | None:
        """The smallest part that was found, None if there was no time for any; `smallest` says whether nothing more can
        be left out of it. Ends early, with the best so far, at an interrupt."""
        try:
            start = next((part for part in self._starts() if self.trials(part)), None)
            if start is not None:
                reduced(start, passes_of(self.question), self.trials)
                self.smallest = True
        except (OutOfTime, KeyboardInterrupt):
            pass
        return self.trials.best

    def _breaks(self, part: Source) -> bool:
        verdict = self.question.verdict(part, explain=1, time_limit_s=self._limit_s)
        if verdict is None:
            return False
        found = self.question.families(verdict)
        for family, names in found.items():
            if family not in self.families and names and verdict.anomalies.get(names[0]):
                self.seen.setdefault(names[0], verdict.anomalies[names[0]][0].message)
        return self.wanted in found and found.keys() <= self.families.keys()

    def _starts(self) -> Iterator[Source]:
        """Parts to begin with, from what shows the finding by itself up to all."""
        view = PartView(self.source, self.question)
        names = set[bytes]()
        for flags, end in self._chosen(view):
            kept = view.needs.within(flags)
            name = kept.tobytes() + end.to_bytes(8, "big")
            if kept.any() and name not in names:
                names.add(name)
                yield part_of_history(self.source, view.units, view.needs.kept(kept, end))

    def _chosen(self, view: PartView) -> Iterator[tuple[Bools, int]]:
        shown = [view.of_operations(invocations) for invocations in self._instances()]
        yield from ((flags, NO_END) for flags in shown)
        yield from ((view.needs.around(flags), NO_END) for flags in shown)
        yield from ((view.needs.beside(flags), NO_END) for flags in shown)
        end = self._end(view, shown[0]) if shown else NO_END
        every = np.ones(len(view.units), np.bool_)
        if shown:
            cell = view.units.cell(2)
            objects = np.isin(cell, cell[shown[0] & ~view.units.bare])
            yield from ((view.needs.around(objects), end) for end in dict.fromkeys((end, NO_END)))
        yield from ((every, end) for end in dict.fromkeys((end, NO_END)))

    def _end(self, view: PartView, flags: Bools) -> int:
        """Just behind the last event of what shows the finding."""
        operations = view.units.operations
        op = np.unique(view.units.op[flags])
        if not self.question.removal.ends(view.units) or not len(op):
            return NO_END
        events = np.concatenate((operations.invoke[op], operations.ended[op]))
        return int(events[events != NEVER].max()) + 1

    def _instances(self) -> list[list[int]]:
        """The invocations of the operations that show the finding, for some of its instances."""
        found = [
            sorted(_invocations(anomaly))
            for name in self.families[self.wanted]
            for anomaly in self.whole.anomalies.get(name, ())
        ]
        return sorted((each for each in found if each), key=len)[:_INSTANCES]


def _invocations(anomaly: Anomaly) -> set[int]:
    return {int(op["invoke_index"]) for op in anomaly.ops if op.get("invoke_index") is not None}
