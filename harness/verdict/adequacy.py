"""Did a run do enough to mean anything? Floors as data, and what falls below them (`run_verdict`, question 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from harness.errors import UserError
from harness.verdict.faults import Fault, asked_s, in_effect_s, roles_hit, unobserved_kinds, why_unobserved
from harness.verdict.recovery import Hurt

KEY_ASKED_OFTEN = 5
"""A key asked for less often says nothing if it was never answered."""

OFTEN_SHARE = 0.1
"""Of the keys, that are to be asked for so often."""

LEAST_SUCCESSES = 3
"""Operations of each kind that are to succeed, however little was asked for."""


class Floors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run must reach, as shares of what was asked; low, since faults are meant to hurt.

    `load`: time for which the load went on, of the time limit. `rate`: operations a second that succeeded, of the asked
    rate. `each_f`: successes of every kind of operation, of its even part of all that were asked for. `success`:
    operations that succeeded, of all. `keys`: keys that answered at least once, of those asked for often. `groups`:
    groups of keys (tablets) that answered, of all that the database spreads keys over.
    `final_reads`: final reads that succeeded, of all, and the keys that answered them, of those that had answered
    before; of those that went to each node in turn, the ones that it answered, and the keys that some node served.
    `nodes`: nodes that answered then.
    `overlap`: operations of the load during which a fault was seen in effect, or of the time for which they were open.
    `served`: of the operations that succeeded those that say which node answered: others may never have been sent.
    `used`: of the faults that hit nodes, those that hit one that answered clients or kept replicas for one that did.
    `roles`: of the faults of a kind that were aimed at a role, those that hit nodes which held it. `effect`: share of
    the time for which each requested plain fault was to last in which probes saw it in effect; `effect_s`: the same in
    seconds, over all its instances.
    """

    load: float = 0.9
    rate: float = 0.2
    each_f: float = 0.02
    success: float = 0.3
    keys: float = 0.9
    groups: float = 0.9
    final_reads: float = 0.9
    nodes: float = 1.0
    overlap: float = 0.01
    served: float = 0.9
    used: float = 0.25
    roles: float = 0.5
    effect: float = 0.5
    effect_s: float = 0.25


class FloorOf(msgspec.Struct, frozen=True):
    """A floor of a workload's own: how much of a figure of its history (`harness.history.figures`) there has to be at
    least, as a count, or as a share `of` another figure; with a `nemesis` only where that kind of fault was asked for.
    """

    figure: str
    least: float
    of: str = ""
    nemesis: str = ""


class NodesAsked(msgspec.Struct, frozen=True):
    """The final reads that went to each node in turn: (asked, answered) by node, and the keys (asked for, served)."""

    reads: Mapping[str, tuple[int, int]]
    keys: tuple[int, int]

    @property
    def answered(self) -> int:
        """How many nodes answered something."""
        return sum(answered > 0 for _, answered in self.reads.values())


class WorkDone(msgspec.Struct, frozen=True):
    """What a run did: `counts` by `f` and type in the load, `keys` (asked for often, of these answered) of all that
    were asked for and `groups` of keys (there are, of these answered) in the load,
    `final_counts` by type and `final_keys` (that answered in the load, of these that answered final reads; both None
    where the run has none), `each_node` (None where nodes can't be asked one by one), `load_s`, the asked `rate_hz`
    (None: none) and `time_limit_s`; `served`, the operations that succeeded in the load and say which node answered
    (None where they don't have to), and the workload's own floors with the `figures` that they are of."""

    fs: tuple[str, ...]
    counts: Mapping[str, Mapping[str, int]]
    load_s: float
    rate_hz: float | None
    keys: tuple[int, int] | None = None
    keys_in_all: int = 0
    groups: tuple[int, int] | None = None
    final_counts: Mapping[str, int] | None = None
    final_keys: tuple[int, int] | None = None
    each_node: NodesAsked | None = None
    time_limit_s: float = 0.0
    served: int | None = None
    own_floors: tuple[FloorOf, ...] = ()
    figures: Mapping[str, int] = {}

    @property
    def ok(self) -> int:
        return sum(by_type.get("ok", 0) for by_type in self.counts.values())

    @property
    def asked(self) -> int:
        """How many operations ended in some way."""
        return sum(sum(by_type.values()) for by_type in self.counts.values())

    @property
    def ok_rate_hz(self) -> float:
        return self.ok / self.load_s if self.load_s > 0 else 0.0


def shortfalls(done: WorkDone, floors: Floors) -> Iterator[str]:
    """A sentence for everything in which the load fell short."""
    if done.load_s < floors.load * done.time_limit_s:
        lasted = f"the load lasted {done.load_s:.1f} of {done.time_limit_s:g} s"
        yield f"{lasted}; the floor is {floors.load:.0%}"
    yield from _too_few_of_a_kind(done, floors)
    if done.rate_hz is not None and done.ok_rate_hz < floors.rate * done.rate_hz:
        yield (
            f"only {done.ok_rate_hz:.1f} operations a second succeeded, of {done.rate_hz:g} asked; "
            f"the floor is {floors.rate:.0%}"
        )
    if done.asked and done.ok < floors.success * done.asked:
        yield f"only {done.ok} of {done.asked} operations succeeded; the floor is {floors.success:.0%}"
    if done.served is not None and done.served < floors.served * done.ok:
        told = f"only {done.served} of {done.ok} operations that succeeded say which node answered"
        yield f"{told}; the floor is {floors.served:.0%}"
    if done.keys is not None:
        asked, answered = done.keys
        if answered < floors.keys * asked:
            yield f"only {answered} of {asked} keys ever answered; the floor is {floors.keys:.0%}"
        if asked < OFTEN_SHARE * floors.keys * done.keys_in_all:
            yield f"only {asked} of {done.keys_in_all} keys were asked for as often as {KEY_ASKED_OFTEN} times"
    yield from _own_shortfalls(done)
    if done.groups is not None and done.groups[1] < floors.groups * done.groups[0]:
        there, answered = done.groups
        yield f"only {answered} of {there} groups of keys ever answered; the floor is {floors.groups:.0%}"


def _own_shortfalls(done: WorkDone) -> Iterator[str]:
    for floor in done.own_floors:
        found, of = done.figures.get(floor.figure, 0), done.figures.get(floor.of, 0)
        if not floor.of and found < floor.least:
            yield f"only {found} {floor.figure}; the floor is {floor.least:g}"
        elif floor.of and (not of or found < floor.least * of):
            yield f"only {found} {floor.figure} among {of} {floor.of}; the floor is {floor.least:.0%}"


def final_shortfall(done: WorkDone, floors: Floors) -> Iterator[str]:
    """A sentence if too few final reads came back, or too few keys were read."""
    if done.final_counts is None:
        return
    ok, asked = done.final_counts.get("ok", 0), sum(done.final_counts.values())
    if not ok:
        yield "no final read succeeded"
    elif ok < floors.final_reads * asked:
        yield f"only {ok} of {asked} final reads succeeded; the floor is {floors.final_reads:.0%}"
    if done.final_keys is not None and ok:
        used, read = done.final_keys
        if read < floors.final_reads * used:
            yield f"final reads answered for {read} of {used} keys in use; the floor is {floors.final_reads:.0%}"


def node_shortfall(done: WorkDone, floors: Floors) -> Iterator[str]:
    """A sentence if too few nodes answered when each was asked, or too few of what they were asked for."""
    if done.each_node is None:
        return
    reads, (keys, served) = done.each_node.reads, done.each_node.keys
    if done.each_node.answered < floors.nodes * len(reads):
        silent = " ".join(name for name, (_, answered) in reads.items() if not answered)
        yield f"only {done.each_node.answered} of {len(reads)} nodes answered final reads, not {silent}"
    # Who does not answer the first read is not asked for the others, and owes them all the same.
    due = max((asked for asked, _ in reads.values()), default=0)
    asked = sum(asked if answered else due for asked, answered in reads.values())
    answered = sum(answered for _, answered in reads.values())
    if answered < floors.final_reads * asked:
        yield f"nodes answered only {answered} of {asked} final reads; the floor is {floors.final_reads:.0%}"
    if served < floors.final_reads * keys:
        yield f"only {served} of {keys} keys were served by any node at the end; the floor is {floors.final_reads:.0%}"


def hurt_shortfall(hurt: Hurt, floors: Floors, lasting: bool) -> Iterator[str]:
    """A sentence if faults passed the clients by; `lasting` if some were to last, for the core of a script is a moment
    that few operations overlap."""
    if lasting and hurt.overlap < floors.overlap:
        overlapped = f"only {hurt.overlapped} of {hurt.operations} operations were open while a fault was in effect"
        yield f"{overlapped}; the floor is {floors.overlap:.0%}"
    for kind in hurt.unmet if floors.overlap else ():
        yield f"no operation was open while {kind} was in effect"
    if hurt.used < floors.used * hurt.hit:
        yield f"only {hurt.used} of {hurt.hit} faults hit a node that clients used; the floor is {floors.used:.0%}"


def fault_shortfall(kind: str, faults: Sequence[Fault], floors: Floors) -> Iterator[str]:
    """A sentence for everything in which the faults of a kind that was asked for fell short, all instances together."""
    if unobserved_kinds((kind,), faults):
        yield why_unobserved(kind, faults)
        return
    yield from effect_shortfall(kind, in_effect_s(kind, faults), asked_s(kind, faults), floors)
    yield from role_shortfall(kind, *roles_hit(kind, faults), floors)


def effect_shortfall(kind: str, effect_s: float, asked_s: float, floors: Floors) -> Iterator[str]:
    """A sentence if a kind of fault was in effect for too short a time, or too small a share of what was asked."""
    if effect_s < floors.effect_s:
        yield f"the fault {kind} was in effect for {effect_s:.2f} s; the floor is {floors.effect_s:g} s"
    elif effect_s < floors.effect * asked_s:
        lasted = f"{effect_s:.1f} of {asked_s:.1f} s asked"
        yield f"the fault {kind} was in effect for {lasted}; the floor is {floors.effect:.0%}"


def role_shortfall(kind: str, aimed: int, held: int, floors: Floors) -> Iterator[str]:
    """A sentence if faults aimed at roles hit nodes that no longer had them."""
    if held < floors.roles * aimed:
        hit = f"only {held} of {aimed} {kind} faults aimed at a role hit a node that held it"
        yield f"{hit}; the floor is {floors.roles:.0%}"


def without_availability(floors: Floors) -> Floors:
    """The floors of a run whose faults leave too few nodes to serve: safety and recovery are all that is asked."""
    return msgspec.structs.replace(floors, rate=0.0, each_f=0.0, success=0.0, keys=0.0, groups=0.0)


def _too_few_of_a_kind(done: WorkDone, floors: Floors) -> Iterator[str]:
    wanted = max(done.asked, int((done.rate_hz or 0) * done.load_s))
    floor = max(LEAST_SUCCESSES if floors.each_f else 1, int(floors.each_f * wanted / max(len(done.fs), 1)))
    for f in done.fs:
        ok = done.counts.get(f, {}).get("ok", 0)
        if not ok:
            yield f"no {f} succeeded"
        elif ok < floor:
            yield f"only {ok} {f} succeeded; the floor is {floor}"


def parse_floors(pairs: Mapping[str, str]) -> Floors:
    """Floors from `KEY=VALUE`; raises UserError for unknown keys and values below 0 (shares: above 1)."""
    values: dict[str, Any] = {}
    for name, text in pairs.items():
        if name not in Floors.__struct_fields__:
            raise UserError(f"There is no floor {name!r}; there are: {', '.join(Floors.__struct_fields__)}.")
        try:
            values[name] = float(text)
        except ValueError:
            values[name] = -1.0
        most = 1e6 if name.endswith("_s") else 1.0
        if not 0 <= values[name] <= most:
            raise UserError(f"The floor {name} takes a number from 0 to {most:g}, not {text!r}.")
    return Floors(**values)
