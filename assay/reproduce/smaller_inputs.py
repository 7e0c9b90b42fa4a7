"""What can be left out of the inputs of a run, from coarse to fine; pure.

Each pass asks of candidates whether they still break, and gives the smallest that does. It takes what is left out by
halves or by `ddmin`; what it does not name stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from msgspec.structs import replace as changed

from assay.reproduce.inputs import Inputs, nodes_of
from assay.reproduce.reduction import ddmin
from assay.worlds import SEVERITY, WORLD_KEYS, parse_world
from cluster.knobs import Knobs
from harness.history.ops import Op
from harness.ports.sim.worlds import Value
from nemesis.planned import PlannedFault

T = TypeVar("T")
Asked = Callable[[Inputs], bool]
"""Whether a candidate breaks."""

BILLION: Final = 1_000_000_000
LEAST_LOAD_S: Final = 1.0
LEAST_NODES: Final = 3
BLOCKS: Final = 16
"""Operations are left out in at most this many blocks; passes are repeated, and blocks are smaller then."""

LONGEST_GAP_NS: Final = 300_000_000
"""A time in which nothing begins or ends is made as short as this."""


def least(items: Sequence[T], breaks: Callable[[Sequence[T]], bool]) -> list[T]:
    """As `ddmin`, of items that may all be unnecessary."""
    return [] if not items or breaks([]) else ddmin(items, breaks)


def explicit(inputs: Inputs, lasted_s: float = 0.0) -> Inputs:
    """The same run with nothing left to a draw that an edit could move: kinds by their names, for their paces are in
    the times of the faults; no floors, and no extension of the load, which lasts for as long as it did."""
    options = inputs.options
    kinds = tuple(dict.fromkeys(fault.kind for fault in inputs.faults))
    times = [op.time for op in inputs.operations] + [time for fault in inputs.faults for time in times_of(fault)]
    load_s = max(options.time_limit, lasted_s, math.ceil(10 * (max(times, default=0) + 1) / BILLION) / 10)
    return replace(
        inputs, options=replace(options, swarm=False, nemesis=kinds, time_limit=load_s, floors={}), extend=False
    )


def times_of(fault: PlannedFault) -> list[int]:
    """When it begins and when it ends, as far as it does."""
    return [fault.begin_ns, *([] if fault.end_ns is None else [fault.end_ns])]


# ---- passes ----


def by_free_chance(inputs: Inputs, breaks: Asked) -> Inputs:
    """No decision is recorded: whatever the simulator draws does."""
    return _first(inputs, [replace(inputs, decisions={})] if inputs.decisions else [], breaks)


def by_end(inputs: Inputs, breaks: Asked, hint_s: float | None = None) -> Inputs:
    """The load ends earlier: soon after the time of the finding, or by shares."""
    while True:
        load_s = inputs.options.time_limit
        hints = [] if hint_s is None else [math.ceil(10 * hint_s) / 10 + more for more in (0.5, 2.0)]
        ends = [end for end in (*hints, load_s / 2, 0.75 * load_s) if LEAST_LOAD_S <= end < 0.95 * load_s]
        shorter = _first(inputs, [ended(inputs, round(end, 2)) for end in ends], breaks)
        if shorter is inputs:
            return inputs
        inputs = shorter


def ended(inputs: Inputs, load_s: float) -> Inputs:
    """The inputs up to a time."""
    end_ns = int(load_s * BILLION)
    faults = [
        fault if fault.end_ns is None or fault.end_ns < end_ns else changed(fault, end_ns=None)
        for fault in inputs.faults
        if fault.begin_ns < end_ns
    ]
    operations = tuple(op for op in inputs.operations if op.time < end_ns)
    options = replace(inputs.options, time_limit=load_s)
    return with_faults(replace(inputs, options=options, operations=operations), faults)


def by_kinds(inputs: Inputs, breaks: Asked) -> Inputs:
    """Faults of fewer kinds."""

    def of(kinds: Sequence[str]) -> Inputs:
        return with_faults(inputs, [fault for fault in inputs.faults if fault.kind in kinds])

    return of(least(list(dict.fromkeys(fault.kind for fault in inputs.faults)), lambda kept: breaks(of(kept))))


def by_faults(inputs: Inputs, breaks: Asked) -> Inputs:
    """Fewer instances, and of kinds that are not left none is asked for."""
    return with_faults(inputs, least(inputs.faults, lambda kept: breaks(with_faults(inputs, kept))))


def with_faults(inputs: Inputs, faults: Sequence[PlannedFault]) -> Inputs:
    """The inputs with these faults only."""
    kinds = {fault.kind for fault in faults}
    asked = tuple(name for name in inputs.options.nemesis if name in kinds)
    return replace(inputs, options=replace(inputs.options, nemesis=asked), faults=tuple(faults))


def by_nodes(inputs: Inputs, breaks: Asked) -> Inputs:
    """Fewer tablet servers and masters, and one zone; a fault of one that is gone finds another by its role."""
    for fewer in (_with_servers, _with_masters, _with_one_zone):
        inputs = _first(inputs, fewer(inputs), breaks)
    return inputs


def _with_servers(inputs: Inputs) -> Iterator[Inputs]:
    counts = dict.fromkeys((LEAST_NODES, (inputs.options.nodes + LEAST_NODES) // 2))
    return (_with_nodes(inputs, nodes=count) for count in counts if count < inputs.options.nodes)


def _with_masters(inputs: Inputs) -> Iterator[Inputs]:
    return (_with_nodes(inputs, masters=count) for count in (1, 3) if count < inputs.options.masters)


def _with_one_zone(inputs: Inputs) -> Iterator[Inputs]:
    return iter([_with_nodes(inputs, zones=1)] if inputs.options.zones != 1 else [])


def _with_nodes(inputs: Inputs, **fewer: int) -> Inputs:
    options = replace(inputs.options, **fewer)  # type: ignore[arg-type]
    most = {"m": options.masters, "t": options.nodes}
    faults = (
        changed(f, action=None) if any(int(name[1:]) > most[name[0]] for name in nodes_of(f)) else f
        for f in inputs.faults
    )
    return replace(inputs, options=options, faults=tuple(faults))


def by_world(inputs: Inputs, breaks: Asked) -> Inputs:
    """As many keys of the world as can be are what they are in the mildest one; knobs have their defaults."""
    values = parse_world(inputs.options.world)
    special = [name for name, value in values.items() if value != plain_value(name)]

    def world(kept: Sequence[str]) -> Inputs:
        told = {name: value if name in kept else plain_value(name) for name, value in values.items()}
        line = ",".join(f"{name}={value}" for name, value in told.items())
        return replace(inputs, options=replace(inputs.options, world=line))

    return world(least(special, lambda kept: breaks(world(kept))))


def plain_value(name: str) -> Value:
    """What a key of the world is where nothing is wrong."""
    if name == SEVERITY.name:
        return "mild"
    knob: Value | None = getattr(Knobs(), name.replace("-", "_"), None)
    if knob is not None:
        return knob
    key = WORLD_KEYS[name]
    return key.mild[0] if key.mild else key.values.parse("0")


def by_clients(inputs: Inputs, breaks: Asked) -> Inputs:
    """Fewer clients; those that are left are then numbered from 0 on."""
    threads = sorted({op.process for op in inputs.operations})
    kept = least(threads, lambda some: breaks(_of_threads(inputs, some)))
    fewer = _of_threads(inputs, kept)
    compact = _numbered(fewer)
    return _first(fewer, [compact] if compact.options.concurrency < fewer.options.concurrency else [], breaks)


def _of_threads(inputs: Inputs, threads: Sequence[int]) -> Inputs:
    return replace(inputs, operations=tuple(op for op in inputs.operations if op.process in threads))


def _numbered(inputs: Inputs) -> Inputs:
    numbers = {thread: number for number, thread in enumerate(sorted({op.process for op in inputs.operations}))}
    operations = tuple(changed(op, process=numbers[op.process]) for op in inputs.operations)
    return replace(inputs, options=replace(inputs.options, concurrency=max(1, len(numbers))), operations=operations)


def by_keys(inputs: Inputs, breaks: Asked) -> Inputs:
    """Operations on fewer partitions; those on none stay."""
    keys = sorted({key for op in inputs.operations for key in _keys(op)})
    if len(keys) < 2:
        return inputs

    def on(kept: Sequence[int]) -> Inputs:
        among = frozenset(kept)
        return replace(inputs, operations=tuple(op for op in inputs.operations if _keys(op) <= among))

    return on(least(keys, lambda kept: breaks(on(kept))))


def _keys(op: Op) -> frozenset[int]:
    return frozenset(mop.partition for mop in op.mops)


def by_operations(inputs: Inputs, breaks: Asked) -> Inputs:
    """Fewer operations, in blocks, the last ones first."""
    size = max(1, math.ceil(len(inputs.operations) / BLOCKS))
    blocks = [inputs.operations[begin : begin + size] for begin in range(0, len(inputs.operations), size)]

    def with_blocks(kept: Sequence[tuple[Op, ...]]) -> Inputs:
        return replace(inputs, operations=tuple(op for block in kept for op in block))

    return with_blocks(least(blocks, lambda kept: breaks(with_blocks(kept))))


def by_decisions(inputs: Inputs, breaks: Asked) -> Inputs:
    """Fewer streams are recorded: those of a kind together, then each half of what is left of a kind."""
    groups: dict[Hashable, list[str]] = {}
    for name in inputs.decisions:
        groups.setdefault((name.partition("/")[0], name.rpartition("/")[2]), []).append(name)

    def recorded(kept: Sequence[Hashable]) -> Inputs:
        names = {name for group in kept for name in groups[group]}
        return replace(inputs, decisions={name: each for name, each in inputs.decisions.items() if name in names})

    return recorded(least(list(groups), lambda kept: breaks(recorded(kept))))


def by_gaps(inputs: Inputs, breaks: Asked) -> Inputs:
    """Long times in which nothing begins or ends become short; those that have to be longer, by halves."""
    gaps = _gaps(inputs)
    kept = least(gaps, lambda some: breaks(_closed(inputs, [gap for gap in gaps if gap not in some])))
    inputs, place = _closed(inputs, [gap for gap in gaps if gap not in kept]), 0
    while place < len(gaps := _gaps(inputs)):
        before, more = gaps[place]
        shorter = _closed(inputs, [(before, more // 2)])
        inputs, place = (shorter, place) if breaks(shorter) else (inputs, place + 1)
    return inputs


def _gaps(inputs: Inputs) -> list[tuple[int, int]]:
    """Of each long time in which nothing begins or ends: from when on, and how much longer than the longest that stays,
    ns."""
    times = sorted({op.time for op in inputs.operations} | {t for f in inputs.faults for t in times_of(f)})
    return [
        (before, after - before - LONGEST_GAP_NS)
        for before, after in zip([0, *times], times, strict=False)
        if after - before > 2 * LONGEST_GAP_NS
    ]


def _closed(inputs: Inputs, gaps: Sequence[tuple[int, int]]) -> Inputs:
    """The inputs without these times: of each gap from when on and how long, ns."""
    if not gaps:
        return inputs

    def moved(time_ns: int) -> int:
        return time_ns - sum(length for before, length in gaps if before < time_ns)

    faults = (
        changed(f, begin_ns=moved(f.begin_ns), end_ns=None if f.end_ns is None else moved(f.end_ns))
        for f in inputs.faults
    )
    load_s = max(LEAST_LOAD_S, inputs.options.time_limit - sum(length for _, length in gaps) / BILLION)
    return replace(
        inputs,
        options=replace(inputs.options, time_limit=round(load_s, 3)),
        operations=tuple(changed(op, time=moved(op.time)) for op in inputs.operations),
        faults=tuple(faults),
    )


def _first(inputs: Inputs, candidates: Sequence[Inputs] | Iterator[Inputs], breaks: Asked) -> Inputs:
    """The first candidate that breaks, else the inputs themselves."""
    return next((candidate for candidate in candidates if breaks(candidate)), inputs)


def size_of(inputs: Inputs) -> Mapping[str, int | float]:
    """How large they are, for people."""
    special = [name for name, value in parse_world(inputs.options.world).items() if value != plain_value(name)]
    return {
        "faults": len(inputs.faults),
        "operations": len(inputs.operations),
        "clients": len({op.process for op in inputs.operations}),
        "nodes": inputs.options.nodes,
        "masters": inputs.options.masters,
        "seconds": inputs.options.time_limit,
        "world_keys": len(special),
        "decisions": sum(map(len, inputs.decisions.values())),
    }
