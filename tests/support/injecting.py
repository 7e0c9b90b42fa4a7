"""Spoils valid histories of `checkers.made.jepsen` in one known way each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from harness.errors import UserError
from harness.history.ops import Mop, Op

Events: TypeAlias = Sequence[Op]

NS_PER_EVENT: Final = 1_000_000


def with_mops(events: Sequence[Op], place: int, mops: tuple[Mop, ...]) -> list[Op]:
    """The events with another outcome of one operation."""
    return [msgspec.structs.replace(op, mops=mops) if i == place else op for i, op in enumerate(events)]


def without(events: Sequence[Op], chosen: Callable[[Op], bool]) -> list[Op]:
    """The events without those of some operations, numbered anew."""
    dropped = {op.process: False for op in events}
    kept: list[Op] = []
    for op in events:
        if op.type == "invoke":
            dropped[op.process] = chosen(op)
        if not dropped[op.process]:
            kept.append(msgspec.structs.replace(op, index=len(kept), time=len(kept) * NS_PER_EVENT))
    return kept


def _done(events: Events, f: str) -> list[int]:
    """The places of the successful completions of operations called f, in order."""
    return [place for place, op in enumerate(events) if op.type == "ok" and op.f == f]


def _begun(events: Events, place: int) -> int:
    """Where the operation that completes there began."""
    process = events[place].process
    return max(i for i in range(place) if events[i].process == process and events[i].type == "invoke")


def _first(events: Events, places: Sequence[int], wanted: Callable[[int], bool] = lambda place: True) -> int:
    """The middle one of the places that are wanted; raises UserError where the history is too short for it."""
    found = [place for place in places if wanted(place)]
    if not found:
        raise UserError("The history is too short for this anomaly.")
    return found[len(found) // 2]


def _change_read(events: Events, change: Callable[[tuple[Mop, ...]], tuple[Mop, ...]], f: str = "read") -> list[Op]:
    place = _first(events, _done(events, f))
    return with_mops(events, place, change(events[place].mops))


def _balance(change: Callable[[int], int | None]) -> Callable[[Events], list[Op]]:
    """Change the first balance of a read."""
    return lambda events: _change_read(
        events, lambda mops: (msgspec.structs.replace(mops[0], value=change(mops[0].value or 0)), *mops[1:])
    )


def _overdrawn(mops: tuple[Mop, ...]) -> tuple[Mop, ...]:
    """The first account owes one, and the second holds what the first had and that one."""
    more = (mops[1].value or 0) + (mops[0].value or 0) + 1
    return (msgspec.structs.replace(mops[0], value=-1), msgspec.structs.replace(mops[1], value=more), *mops[2:])


def _unexpected_account(events: Events) -> list[Op]:
    return _change_read(events, lambda mops: (*mops, Mop("r", 77, 0)))


def _elements(events: Events, place: int, change: Callable[[list[int]], list[int]]) -> list[Op]:
    (mop,) = events[place].mops
    items = [item for item in mop.values or () if item is not None]
    return with_mops(events, place, (msgspec.structs.replace(mop, values=tuple(change(items))),))


def _missing(events: Events, place: int, value: int | None) -> list[Op]:
    return _elements(events, place, lambda items: [item for item in items if item != value])


def _lost_from_all(events: Events) -> list[Op]:
    """An acknowledged element that no read shows."""
    value = events[_first(events, _done(events, "add"))].mops[0].value
    corrupted = list(events)
    for place in _done(events, "read"):
        corrupted = _missing(corrupted, place, value)
    return corrupted


def _stale(events: Events) -> list[Op]:
    """A read in the middle misses an element that was acknowledged before it began; later reads show it."""
    reads = _done(events, "read")
    for place in reads[:-1]:
        begun = _begun(events, place)
        known = {events[add].mops[0].value for add in _done(events, "add") if add < begun}
        shown = [item for item in events[place].mops[0].values or () if item in known]
        later = [other for other in reads if _begun(events, other) > begun]
        if shown and later:
            return _missing(events, place, shown[0])
    raise UserError("The history is too short for this anomaly.")


def _counter_off(by: int) -> Callable[[Events], list[Op]]:
    return lambda events: _change_read(
        events, lambda mops: (msgspec.structs.replace(mops[0], value=(mops[0].value or 0) + by),)
    )


def _drained(events: Events, change: Callable[[list[int]], list[int]]) -> list[Op]:
    return _elements(events, _done(events, "drain")[-1], change)


def _lost_element(events: Events) -> list[Op]:
    place = _first(events, _done(events, "enqueue"))
    value = events[place].mops[0].value
    corrupted = _missing(events, _done(events, "drain")[-1], value)
    for dequeue in _done(events, "dequeue"):
        if events[dequeue].mops[0].value == value:
            return [
                msgspec.structs.replace(op, type="fail", mops=events[_begun(events, dequeue)].mops)
                if i == dequeue
                else op
                for i, op in enumerate(corrupted)
            ]
    return corrupted


def _premature(events: Events) -> list[Op]:
    """A dequeue returns, in its own element's stead, what begins to be enqueued after it; the drain evens that out."""
    for place in _done(events, "dequeue"):
        own = events[place].mops[0].value or 0
        for later in _done(events, "enqueue"):
            value = events[later].mops[0].value or 0
            drained = events[_done(events, "drain")[-1]].mops[0].values or ()
            if _begun(events, later) > place and value in drained:
                corrupted = _drained(events, lambda items, v=value, o=own: [o if i == v else i for i in items])  # type: ignore[misc]
                (mop,) = events[place].mops
                return with_mops(corrupted, place, (msgspec.structs.replace(mop, value=value),))
    raise UserError("The history is too short for this anomaly.")


def _long_fork(events: Events) -> list[Op]:
    """Two reads of one group of which each misses what the other shows."""
    reads = [place for place in _done(events, "txn") if events[place].mops[0].f == "r"]
    for i, one in enumerate(reads):
        keys = sorted(mop.partition for mop in events[one].mops)
        for other in reads[i + 1 :]:
            if sorted(mop.partition for mop in events[other].mops) == keys and len(keys) > 1:
                return with_mops(_showing(events, one, keys[0]), other, _showing(events, other, keys[1])[other].mops)
    raise UserError("The history is too short for this anomaly.")


def _showing(events: Events, place: int, key: int) -> list[Op]:
    mops = tuple(Mop("r", mop.partition, 1 if mop.partition == key else None) for mop in events[place].mops)
    return with_mops(events, place, mops)


def _same_id(events: Events) -> list[Op]:
    one, other = _done(events, "generate")[:2]
    return with_mops(events, other, events[one].mops)


def _divergence(events: Events) -> list[Op]:
    place = next(i for i in reversed(range(len(events))) if events[i].phase == "final" and events[i].type == "ok")
    (mop,) = events[place].mops
    return with_mops(events, place, (msgspec.structs.replace(mop, value=-7),))


_SETS: Final = {
    "lost": _lost_from_all,
    "unexpected": lambda events: _elements(events, _done(events, "read")[-1], lambda items: [*items, -7]),
}
_QUEUES: Final = {
    "lost": _lost_element,
    "unexpected": lambda events: _drained(events, lambda items: [*items, -7]),
}
ANOMALIES: Final[dict[str, dict[str, Callable[[Events], list[Op]]]]] = {
    "bank": {
        "wrong-total": _balance(lambda balance: balance + 1),
        "negative-value": lambda events: _change_read(events, _overdrawn),
        "nil-balance": _balance(lambda balance: None),
        "unexpected-key": _unexpected_account,
    },
    "set": _SETS,
    "set-full": {
        "lost": _lost_from_all,
        "stale": _stale,
        "duplicated": lambda events: _elements(events, _done(events, "read")[-1], lambda items: [*items, items[0]]),
    },
    "counter": {"below-bounds": _counter_off(-10_000), "above-bounds": _counter_off(10_000)},
    "queue": {
        **_QUEUES,
        "duplicated": lambda events: _drained(events, lambda items: [*items, _taken(events)]),
        "premature": _premature,
    },
    "total-queue": _QUEUES,
    "long-fork": {"long-fork": _long_fork},
    "unique-ids": {"duplicate-id": _same_id},
    "convergence": {"divergence": _divergence},
}
"""By model and class of anomaly, what makes one."""


def _taken(events: Events) -> int:
    """An element that was dequeued."""
    return events[_done(events, "dequeue")[0]].mops[0].value or 0


def inject(model: str, anomaly: str, events: Events) -> list[Op]:
    """The history with one anomaly of that class; raises UserError where it is too short for one."""
    if anomaly not in ANOMALIES.get(model, {}):
        raise UserError(f"The model {model} has no anomaly {anomaly!r} that can be injected.")
    return ANOMALIES[model][anomaly](events)
