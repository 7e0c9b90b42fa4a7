"""A load that goes on past its time until it has brought what a verdict needs, for as long as that may take.

Far regions, slow elections and faults that wait for a state make a time limit that suffices in most worlds too short in
some. What decides is only what was done and seen, never what it was like: it can't hide a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from harness.generators import any_of, clients, nemesis, stagger
from harness.generators.core import DONE, Context, Generator, Pending, Source, Step, lift, nanos
from harness.history.figures import cut_off_of, figures_of
from harness.history.ops import Op
from harness.run.spec import Test
from harness.verdict.adequacy import LEAST_SUCCESSES, FloorOf, Floors, fault_shortfall
from harness.verdict.faults import FaultLog, kinds_of

_UNSET_NS = -1


class WantedFaults(msgspec.Struct, frozen=True):
    """The kinds of faults that were asked for, and what `told` of them so far; `lacking` are those that would fall
    below a floor if nothing more came: never observed, in effect for too small a share of the time asked, aimed at
    roles that nobody held. What still lasts is not counted."""

    kinds: tuple[str, ...] = ()
    floors: Floors = Floors()
    told: FaultLog = FaultLog()
    lacking: tuple[str, ...] = ()

    def after(self, event: Op) -> WantedFaults:
        """What is wanted when this event has come."""
        told = self.told.after(event)
        if told is self.told:
            return self
        known, touched = told.known, kinds_of(event)
        lacking = tuple(
            kind
            for kind in self.kinds
            if (any(fault_shortfall(kind, known, self.floors)) if kind in touched else kind in self.lacking)
        )
        return replace(self, told=told, lacking=lacking)


def wanted_faults(kinds: tuple[str, ...], floors: Floors) -> WantedFaults:
    """What is wanted of these kinds, of which nothing is told yet."""
    return WantedFaults(kinds, floors, lacking=kinds)


_COUNTED_AT_ONCE = 256


class WantedFigures(msgspec.Struct, frozen=True):
    """What there is to be of a workload's figures (`harness.history.figures`), as counts: what was found so far, and
    what has succeeded since that was counted."""

    floors: tuple[FloorOf, ...] = ()
    found: Mapping[str, int] = {}
    since: tuple[Op, ...] = ()

    def after(self, event: Op) -> WantedFigures:
        """With a success more."""
        since = (*self.since, event)
        return replace(self, since=since) if len(since) < _COUNTED_AT_ONCE else replace(self, since=since).counted()

    def counted(self) -> WantedFigures:
        """With all that has succeeded counted."""
        return replace(self, found=Counter(self.found) + figures_of(self.since), since=()) if self.since else self

    @property
    def lacking(self) -> bool:
        """Whether too little has come."""
        found = self.counted().found
        return any(found.get(floor.figure, 0) < floor.least for floor in self.floors)


class WantedUnderFault(msgspec.Struct, frozen=True):
    """What there is to be of reads by nodes that faults of the floor's kind cut off, and what was `found` under those
    that are over; of the one that lasts, else None, when each process last `began` something, and what succeeded."""

    floor: FloorOf
    found: int = 0
    began: Mapping[int, int] | None = None
    served: tuple[tuple[int, Op], ...] = ()

    def after(self, event: Op, faults: FaultLog) -> WantedUnderFault:
        """What is wanted when this event has come, which `faults` know of."""
        if event.process >= 0:
            return self if self.began is None else self._with(event, self.began)
        if self.floor.nemesis not in kinds_of(event):
            return self
        if event.value.get("step") != "end":
            return self if self.began is not None else replace(self, began={})
        fault = faults.found.get((self.floor.nemesis, event.value["instance"]))
        if event.type == "invoke" or fault is None:
            return self
        found = cut_off_of(self.served, dict.fromkeys(fault.targets, fault.spans or ()))
        return replace(self, found=self.found + found, began=None, served=())

    def _with(self, event: Op, began: Mapping[int, int]) -> WantedUnderFault:
        if event.type == "invoke":
            return replace(self, began={**began, event.process: event.time})
        if event.type != "ok" or event.process not in began:
            return self
        return replace(self, served=(*self.served, (began[event.process], event)))

    @property
    def lacking(self) -> bool:
        """Whether too little has come."""
        return self.found < self.floor.least


class WantedEvidence(msgspec.Struct, frozen=True):
    """What is still to come: of `faults`, successes by `f`, a rate of them, `figures` of a workload's own, and those
    `under` faults of a kind.

    `ok` successes have come so far. A load in which nothing ever succeeds is not waited for: its verdict is known.
    """

    faults: WantedFaults = WantedFaults()
    successes: Mapping[str, int] = {}
    rate_hz: float = 0.0
    figures: WantedFigures = WantedFigures()
    under: tuple[WantedUnderFault, ...] = ()
    ok: int = 0

    def after(self, event: Op) -> WantedEvidence:
        """What is wanted when this event has come."""
        left = self._after(event)
        if not self.under or (event.process < 0 and left is self):
            return left
        under = tuple(each.after(event, left.faults.told) for each in self.under)
        same = all(new is old for new, old in zip(under, self.under, strict=True))
        return left if same else replace(left, under=under)

    def _after(self, event: Op) -> WantedEvidence:
        if event.process < 0:
            faults = self.faults.after(event)
            return self if faults is self.faults else replace(self, faults=faults)
        if event.type != "ok":
            return self
        figures = self.figures.after(event) if self.figures.floors else self.figures
        left = self.successes.get(event.f)
        if left is None:
            return replace(self, ok=self.ok + 1, figures=figures)
        others = {f: count for f, count in self.successes.items() if f != event.f}
        successes = {**others, event.f: left - 1} if left > 1 else others
        return replace(self, successes=successes, ok=self.ok + 1, figures=figures)

    def waited_for(self, load_s: float) -> bool:
        """Whether a load that has lasted so long should go on."""
        asked = bool(self.faults.lacking) or bool(self.successes) or self.ok < self.rate_hz * load_s
        return self.ok > 0 and (asked or self.figures.lacking or any(each.lacking for each in self.under))


def wanted(
    fs: tuple[str, ...],
    kinds: tuple[str, ...],
    floors: Floors,
    rate_hz: float | None,
    own_floors: tuple[FloorOf, ...] = (),
) -> WantedEvidence:
    """What a load with these floors is to bring that comes with time: shares of what was asked do not."""
    successes = dict.fromkeys(fs, LEAST_SUCCESSES) if floors.each_f else {}
    counts = tuple(floor for floor in own_floors if not (floor.of or floor.nemesis))
    under = tuple(WantedUnderFault(floor) for floor in own_floors if floor.nemesis in kinds and not floor.of)
    rate = floors.rate * (rate_hz or 0.0)
    return WantedEvidence(wanted_faults(kinds, floors), successes, rate, WantedFigures(counts), under)


def load_of(test: Test) -> Generator:
    """The load of a run: its clients' work at its rate, and its faults, for its time and up to `extra_s` more."""
    work = test.generator if test.rate_hz is None or test.timed else stagger(test.seed, test.rate_hz, test.generator)
    source = clients(work)
    if test.nemesis_generator is not None:
        source = any_of(source, nemesis(test.nemesis_generator))
    lacking = wanted(test.fs, test.requested_faults, test.floors, test.rate_hz, test.own_floors)
    return until_seen(test.time_limit_s, test.extra_s, lacking, source)


class UntilSeen(msgspec.Struct, frozen=True):
    """Nothing after `span_ns`, or once what is wanted has come, but for that it goes on for `extra_ns` at most."""

    inner: Generator
    wanted: WantedEvidence
    span_ns: int
    extra_ns: int
    began_ns: int = _UNSET_NS

    def step(self, context: Context) -> Step:
        began_ns = context.time_ns if self.began_ns == _UNSET_NS else self.began_ns
        load_ns, until_ns = context.time_ns - began_ns, began_ns + self.span_ns
        if load_ns >= self.span_ns:
            until_ns += self.extra_ns
            if context.time_ns >= until_ns or not self.wanted.waited_for(load_ns / 1e9):
                return DONE
        op, after = self.inner.step(context)
        if op is None or after is None:
            return op, None
        if isinstance(op, Pending):
            op = op.before(until_ns)
        if after is self.inner and began_ns == self.began_ns:
            return op, self
        return op, replace(self, inner=after, began_ns=began_ns)

    def update(self, context: Context, event: Op) -> Generator:
        inner, left = self.inner.update(context, event), self.wanted.after(event)
        return self if inner is self.inner and left is self.wanted else replace(self, inner=inner, wanted=left)


def until_seen(span_s: float, extra_s: float, lacking: WantedEvidence, source: Source) -> Generator:
    """The source for as long as asked, and up to `extra_s` more while something is lacking."""
    return UntilSeen(lift(source), lacking, nanos(span_s), nanos(extra_s))
