"""What tables and tablets go through, and in which order answers may show it; certain, as all of `refute` is.

A tablet is PREPARING, then CREATING, then RUNNING (M1, M8). Another one replaces it only while it is CREATING, and
REPLACED and DELETED are for good. It belongs to one partition of one table. So a creation that was done once stays
done: all that is left of it runs (M5). A table is ALTERING from an alteration until all its tablets have followed, once
for each version (M5); version 0 is nobody's alteration. It has as many partitions as were asked for, at once (M7).
Answers are of the present, or as old as was allowed (M2, M13): `Call.since` holds either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from checkers.catalog.calls import (
    CREATE,
    CREATED,
    LOCATIONS,
    SCHEMA,
    TABLE_STATES,
    TABLET_STATES,
    Call,
)
from checkers.catalog.refute import contradiction, places_of
from checkers.findings import Finding

ALTERING_UNASKED, TABLET_BACK = "altering-without-alter", "tablet-went-back"
UNDONE, TWO_PLACES, WRONG_SIZE = "creation-undone", "tablet-in-two-places", "wrong-size"

_RUNS, _ALTERS = TABLE_STATES.index("RUNNING"), TABLE_STATES.index("ALTERING")
_PREPARING, _CREATING, _RUNNING, _REPLACED, _DELETED = range(1, len(TABLET_STATES))

_AFTER: Final = {
    _PREPARING: {_PREPARING, _CREATING, _RUNNING, _REPLACED, _DELETED},
    _CREATING: {_CREATING, _RUNNING, _REPLACED, _DELETED},
    _RUNNING: {_RUNNING, _DELETED},
    _REPLACED: {_REPLACED},
    _DELETED: {_DELETED},
}
"""What may be shown of a tablet after each state, to whoever asks later."""


def lifecycle_refutations(calls: Sequence[Call]) -> Iterator[Finding]:
    """Everything in the answers that no table and no tablet can have gone through."""
    yield from _altering(calls)
    yield from _tablets(calls)
    yield from _places(calls)
    yield from _undone(calls)
    yield from _sizes(calls)


def replica_doubts(calls: Sequence[Call]) -> tuple[str, ...]:
    """What the last answers say of running tablets that have not as many replicas as were asked for. They get them
    in the end (M11), but by when is not promised."""
    asked = {call.id: call.replicas for call in calls if call.kind == CREATE and call.replicas}
    last = {call.seen[0].id: call for call in calls if call.final and call.kind == LOCATIONS and call.seen}
    doubts = []
    for table_id, call in last.items():
        wanted = asked.get(table_id)
        shown = {tablet.replicas for tablet in call.tablets if tablet.state == _RUNNING and tablet.replicas}
        if wanted is not None and shown - {wanted}:
            others = " and ".join(map(str, sorted(shown - {wanted})))
            doubts.append(f"In the end table {call.seen[0].name} has tablets of {others} replicas, not of {wanted}.")
    return tuple(doubts)


# ---- tables ----


def _altering(calls: Sequence[Call]) -> Iterator[Finding]:
    """A table that is ALTERING at a version that nobody made, or that all its tablets had."""
    settled: dict[tuple[int, int], Call] = {}
    for call, table_id, version, state in _table_states(calls):
        if state == _RUNS:
            _note(settled, (table_id, version), call)
    wrong: set[int] = set()
    for call, table_id, version, state in _table_states(calls):
        earlier = settled.get((table_id, version))
        back = state == _ALTERS and earlier is not None and earlier.complete <= call.since
        applied = (state == _RUNS and call.applied > 0) or (state == _ALTERS and call.applied >= max(1, version))
        if table_id not in wrong and (back or applied or (state == _ALTERS and version == 0)):
            wrong.add(table_id)
            ops = [earlier, call] if back and earlier is not None else [call]
            yield contradiction(ALTERING_UNASKED, ops, id=table_id, version=version, applied=call.applied)


def _table_states(calls: Iterable[Call]) -> Iterator[tuple[Call, int, int, int]]:
    for call in calls:
        for seen, state in zip(call.seen, call.states, strict=False):
            if seen.id is not None and seen.version is not None:
                yield call, seen.id, seen.version, state


def _note(first: dict[tuple[int, int], Call], key: tuple[int, int], call: Call) -> None:
    """Keep the call that was over first."""
    known = first.setdefault(key, call)
    if call.complete < known.complete:
        first[key] = call


def _sizes(calls: Sequence[Call]) -> Iterator[Finding]:
    """Partitions and a replication factor that nobody asked for; of a table whose creation was not acknowledged each
    creation that had begun may have made it."""
    makers = {call.id: call for call in calls if call.kind == CREATE and call.changes and call.id is not None}
    doubtful = [call for call in calls if call.kind == CREATE and call.changes and call.id is None]
    first: dict[int, Call] = {}
    for call in calls:
        if call.kind not in (LOCATIONS, SCHEMA) or not call.seen or call.seen[0].id is None:
            continue
        table_id, name = call.seen[0].id, call.seen[0].name
        maker = makers.get(table_id)
        begun = [each.buckets for each in doubtful if each.order < call.complete]
        asked = {maker.buckets} if maker is not None else set(begun)
        facts = {"id": table_id, "buckets": call.buckets, "replicas": call.replicas}
        other = first.setdefault(table_id, call) if call.buckets else call
        if call.buckets and asked and 0 not in asked and call.buckets not in asked:
            yield contradiction(WRONG_SIZE, [call] if maker is None else [maker, call], name, **facts)
        elif call.buckets != other.buckets:
            yield contradiction(WRONG_SIZE, [other, call], name, **facts)
        elif maker is not None and call.replicas and maker.replicas not in (0, call.replicas):
            yield contradiction(WRONG_SIZE, [maker, call], name, **facts)


# ---- tablets ----


def _tablets(calls: Sequence[Call]) -> Iterator[Finding]:
    """A tablet that goes back to what it was."""
    first: dict[tuple[int, int], Call] = {}
    sightings = [(call, tablet) for call in calls for tablet in call.tablets if tablet.state in _AFTER]
    for call, tablet in sightings:
        _note(first, (tablet.id, tablet.state), call)
    wrong: set[int] = set()
    for call, tablet in sightings:
        for state, later in _AFTER.items():
            earlier = first.get((tablet.id, state))
            if earlier is None or tablet.state in later or earlier.complete > call.since or tablet.id in wrong:
                continue
            wrong.add(tablet.id)
            facts: dict[str, Any] = {"id": tablet.id, "was": TABLET_STATES[state], "now": TABLET_STATES[tablet.state]}
            yield contradiction(TABLET_BACK, [earlier, call], **facts)


def _places(calls: Sequence[Call]) -> Iterator[Finding]:
    """A tablet of two tables, or of two partitions of one."""
    places = places_of(calls)
    for call in calls:
        for tablet in call.tablets if call.kind == LOCATIONS and call.seen else ():
            table_id, bucket, first = places.get(tablet.id, (call.seen[0].id, tablet.bucket, call))
            if (table_id, bucket) != (call.seen[0].id, tablet.bucket):
                ops = [call] if first is call else [first, call]
                yield contradiction(TWO_PLACES, ops, call.seen[0].name, id=tablet.id)


def _undone(calls: Sequence[Call]) -> Iterator[Finding]:
    """Who asks after a creation was done, or all tablets ran, is told so, and is shown no tablet that is being made."""
    places = places_of(calls)
    done: dict[tuple[int, int], Call] = {}
    for call in calls:
        told = call.seen[0].id if call.seen else None
        states = [tablet.state for tablet in call.tablets]
        ran = call.kind == LOCATIONS and call.buckets > 0 and states == [_RUNNING] * call.buckets
        if told is not None and (call.done or ran):
            _note(done, (told, 0), call)
    wrong: set[int] = set()
    for call in calls:
        for table_id in _unfinished(call, places):
            earlier = done.get((table_id, 0))
            if earlier is not None and earlier.complete <= call.since and table_id not in wrong:
                wrong.add(table_id)
                yield contradiction(UNDONE, [earlier, call], id=table_id)


def _unfinished(call: Call, places: dict[int, tuple[int, int, Call]]) -> Iterator[int]:
    """The tables of which an answer says that they are being created."""
    if call.kind == CREATED and call.done is False and call.seen[0].id is not None:
        yield call.seen[0].id
    for tablet in call.tablets:
        if tablet.state in (_PREPARING, _CREATING) and tablet.id in places:
            yield places[tablet.id][0]
