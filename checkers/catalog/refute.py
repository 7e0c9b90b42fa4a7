"""What no order of a catalog's operations can make right, found without search: certain, and soon told.

`A before B` is: A completed before B was invoked (an answer that may be old counts from `Call.since`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final

from checkers.catalog.calls import (
    ALTER,
    CREATE,
    DELETE,
    KNOWN,
    LOCATIONS,
    RENAME,
    RENAME_ALTERS,
    TABLE_STATES,
    TABLET_STATES,
    UNRECORDED,
    Call,
    Tablet,
)
from checkers.findings import Finding, Key

UNCOMMITTED, HALF_MADE, TWICE, PHANTOM = "uncommitted-record", "half-made-table", "table-twice", "phantom-table"
FLICKERING, LOST, RETURNED = "flickering-table", "lost-table", "deleted-table-seen"
VERSION_BACK, VERSION_UNASKED = "version-went-back", "version-without-alter"
TABLET_BACK, TABLET_GONE = "tablet-came-back", "vanished-tablet"
NO_LOCATION = "no-location"
STUCK_DDL, LATE_DDL = "ddl-stuck", "ddl-late"

_VISIBLE_TABLES: Final = {TABLE_STATES.index("RUNNING"), TABLE_STATES.index("ALTERING")}
_VISIBLE_TABLETS: Final = {TABLET_STATES.index(name) for name in ("PREPARING", "CREATING", "RUNNING")}
_TABLE_RUNS: Final = TABLE_STATES.index("RUNNING")
_TABLET_RUNS: Final = TABLET_STATES.index("RUNNING")
_RECORDED: Final = {UNRECORDED, *range(1, len(TABLET_STATES))}
_DELETED: Final = TABLET_STATES.index("DELETED")


@dataclass(slots=True)
class _TableFacts:
    """All that is told of one table, by its id: where it was seen, at which version, and the changes that name it.

    A tablet lives and dies with its table, in one batch (M6, M7): one that is shown alive is a sighting of its table,
    and `graves` are answers that show one DELETED.
    """

    sightings: list[tuple[Call, int | None]] = field(default_factory=list)
    makers: list[Call] = field(default_factory=list)
    deletions: list[Call] = field(default_factory=list)
    graves: list[Call] = field(default_factory=list)
    renames: list[Call] = field(default_factory=list)
    raised: list[Call] = field(default_factory=list)


def refutations(calls: Sequence[Call], budget_ns: int) -> Iterator[Finding]:
    """Everything that is wrong for certain; `budget_ns` is what a change may take once all faults are healed."""
    tables = _tables(calls)
    yield from _records(calls)
    yield from _made_once(tables)
    yield from _phantoms(calls, tables)
    lists = sorted((call for call in calls if call.total), key=lambda call: call.since)
    unnamed = [call for call in calls if call.changes and call.id is None]
    fates = _Fates.of(unnamed)
    raising = sorted(call.order for call in unnamed if _raises(call))
    for table_id, table in tables.items():
        seen = _Sightings.of(table)
        yield from _absences(table_id, table, seen, lists, fates)
        yield from _buried(table_id, table, seen, fates)
        yield from _returned(table_id, table)
        yield from _versions(table_id, table)
        yield from _unasked(table_id, table, raising)
    yield from _tablets(calls)
    yield from _vanished(calls)
    yield from _at_the_end(calls, budget_ns)


def _tables(calls: Sequence[Call]) -> dict[int, _TableFacts]:
    tables: dict[int, _TableFacts] = {}
    for call in calls:
        if call.changes and call.id is not None:
            table = tables.setdefault(call.id, _TableFacts())
            if call.kind == CREATE:
                table.makers.append(call)
            if _raises(call):
                table.raised.append(call)
            if call.kind == RENAME:
                table.renames.append(call)
            if call.kind == DELETE:
                table.deletions.append(call)
            else:
                table.sightings.append((call, 0 if call.kind == CREATE else call.version))
        for seen in call.seen:
            if seen.id is not None:
                tables.setdefault(seen.id, _TableFacts()).sightings.append((call, seen.version))
    _note_tablets(calls, tables)
    return tables


def _note_tablets(calls: Sequence[Call], tables: dict[int, _TableFacts]) -> None:
    places = places_of(calls)
    for call in calls:
        for tablet in call.tablets if call.kind == KNOWN else ():
            if tablet.id in places:
                table = tables[places[tablet.id][0]]
                if tablet.state in _VISIBLE_TABLETS:
                    table.sightings.append((call, None))
                elif tablet.state == _DELETED:
                    table.graves.append(call)


def places_of(calls: Sequence[Call]) -> dict[int, tuple[int, int, Call]]:
    """By tablet the table, the partition, and the first answer about locations that shows it there."""
    places: dict[int, tuple[int, int, Call]] = {}
    for call in calls:
        if call.kind == LOCATIONS and call.seen and call.seen[0].id is not None:
            for tablet in call.tablets:
                places.setdefault(tablet.id, (call.seen[0].id, tablet.bucket, call))
    return places


def contradiction(name: str, calls: Sequence[Call], at: int = 0, **facts: Any) -> Finding:
    return Finding(
        name, max(call.order for call in calls), Key(partition=at), tuple(call.order for call in calls), facts
    )


# ---- what one answer says ----


def _records(calls: Sequence[Call]) -> Iterator[Finding]:
    for call in calls:
        for tablet in call.tablets if call.kind == KNOWN else ():
            if tablet.state not in _RECORDED:
                yield contradiction(UNCOMMITTED, [call], id=tablet.id, state=_named(TABLET_STATES, tablet.state))
        for seen, state in zip(call.seen, call.states, strict=False):
            if state not in _VISIBLE_TABLES:
                yield contradiction(UNCOMMITTED, [call], seen.name, what="table", state=_named(TABLE_STATES, state))
        for attribute in ("id", "name"):
            stated = [getattr(seen, attribute) for seen in call.seen]
            if len(stated) != len(set(stated)):
                yield contradiction(TWICE, [call], what=attribute)
        if call.kind == LOCATIONS and call.seen and not call.seen[0].absent:
            yield from _placed(call)


def _placed(call: Call) -> Iterator[Finding]:
    name = call.seen[0].name
    for tablet in call.tablets:
        if tablet.state == _TABLET_RUNS and not tablet.replicas:
            yield contradiction(NO_LOCATION, [call], name, bucket=tablet.bucket)
        if tablet.state not in _VISIBLE_TABLETS:
            yield contradiction(UNCOMMITTED, [call], name, what="tablet", state=_named(TABLET_STATES, tablet.state))
    buckets = sorted(tablet.bucket for tablet in call.tablets)
    if call.buckets and buckets != list(range(call.buckets)):
        yield contradiction(HALF_MADE, [call], name, buckets=buckets, of=call.buckets)


def _named(names: Sequence[str], state: int) -> str:
    return names[state] if 0 <= state < len(names) else str(state)


# ---- tables that nobody made, or that were made twice ----


def _made_once(tables: dict[int, _TableFacts]) -> Iterator[Finding]:
    for table_id, table in tables.items():
        if len(table.makers) > 1:
            yield contradiction(TWICE, table.makers[:2], table.makers[0].name, what="created", id=table_id)


def _phantoms(calls: Sequence[Call], tables: dict[int, _TableFacts]) -> Iterator[Finding]:
    """Tables seen before anybody can have made them. The k-th that no acknowledged creation accounts for needs k
    creations whose table is not known that began before it was seen."""
    unclaimed = []
    for table_id, table in tables.items():
        stated = [call for call, _ in table.sightings] + table.deletions
        first = min(stated, key=lambda call: call.complete)
        if table.makers:
            maker = min(table.makers, key=lambda call: call.order)
            if first.complete < maker.order:
                yield contradiction(PHANTOM, [first, maker], _name_of(first, table_id), id=table_id)
        else:
            unclaimed.append((first.complete, first.order, table_id, first))
    begun = sorted(call.order for call in calls if call.changes and call.kind == CREATE and call.id is None)
    for count, (complete, _, table_id, first) in enumerate(sorted(unclaimed, key=lambda each: each[:3]), 1):
        if bisect_left(begun, complete) < count:
            yield contradiction(
                PHANTOM, [first], _name_of(first, table_id), id=table_id, candidates=bisect_left(begun, complete)
            )


# ---- tables that were there and are not ----


@dataclass(frozen=True, slots=True)
class _Spans:
    """Changes by invocation, and the latest completion among those up to each."""

    orders: list[int]
    latest: list[int]

    @staticmethod
    def of(calls: Sequence[Call]) -> _Spans:
        ordered = sorted(calls, key=lambda call: call.order)
        return _Spans([call.order for call in ordered], list(accumulate((call.complete for call in ordered), max)))

    def any_between(self, begin: int, end: int) -> bool:
        """Whether one of them may have taken effect behind the event `begin` and before the event `end`."""
        place = bisect_left(self.orders, end)
        return place > 0 and self.latest[place - 1] > begin


@dataclass(frozen=True, slots=True)
class _Fates:
    """What changes whose table is not told may have done to one, by the name that they asked for: deleted it, or given
    it another name."""

    deletions: dict[int, _Spans]
    renames: dict[int, dict[int, _Spans]]

    @staticmethod
    def of(calls: Sequence[Call]) -> _Fates:
        deleted: dict[int, list[Call]] = {}
        renamed: dict[int, dict[int, list[Call]]] = {}
        for call in calls:
            if call.kind == DELETE:
                deleted.setdefault(call.name, []).append(call)
            elif call.kind == RENAME:
                renamed.setdefault(call.name, {}).setdefault(call.new, []).append(call)
        spans = {name: {new: _Spans.of(each) for new, each in by.items()} for name, by in renamed.items()}
        return _Fates({name: _Spans.of(each) for name, each in deleted.items()}, spans)

    def may_delete(self, names: set[int], begin: int, alive: int, end: int) -> bool:
        """Whether one may have deleted, between the events `alive` and `end`, a table that had one of these names
        behind the event `begin`."""
        reached, left = set(names), list(names)
        while left:
            name = left.pop()
            if name in self.deletions and self.deletions[name].any_between(alive, end):
                return True
            for new, spans in self.renames.get(name, {}).items():
                if new not in reached and spans.any_between(begin, end):
                    reached.add(new)
                    left.append(new)
        return False


def _names_since(table_id: int, table: _TableFacts, last: Call) -> set[int]:
    """The names that a table has had since it was last seen, by that sighting and what was acknowledged since."""
    names = {seen.name for seen in last.seen if seen.id == table_id}
    names |= {last.name, last.new if last.kind == RENAME else last.name} if last.changes else set()
    return names.union(*({call.name, call.new} for call in table.renames if call.complete > last.since))


@dataclass(frozen=True, slots=True)
class _Sightings:
    """The sightings of a table: all of them in order of completion, and by place the one among those up to it that was
    asked for last; `named` are the ones that tell its name."""

    calls: list[Call]
    ends: list[int]
    newest: list[Call]
    named: _Sightings | None = None

    @staticmethod
    def of(table: _TableFacts) -> _Sightings:
        calls = sorted((call for call, _ in table.sightings), key=lambda call: call.complete)
        return replace(_Sightings._of(calls), named=_Sightings._of([call for call in calls if call.kind != KNOWN]))

    @staticmethod
    def _of(calls: list[Call]) -> _Sightings:
        return _Sightings(calls, [call.complete for call in calls], list(accumulate(calls, _later)))

    def last(self, event: int) -> Call | None:
        """The one that was asked for last of those that were over by this event."""
        place = bisect_right(self.ends, event)
        return self.newest[place - 1] if place else None


def _lost(table_id: int, table: _TableFacts, seen: _Sightings, gone: Call, fates: _Fates) -> Call | None:
    """The last sighting before an answer says that the table is gone, if nobody can have deleted it since."""
    last, named = seen.last(gone.since), None if seen.named is None else seen.named.last(gone.since)
    if last is None or named is None or _Spans.of(table.deletions).any_between(last.since, gone.complete):
        return None
    names = _names_since(table_id, table, named)
    return None if fates.may_delete(names, named.since, last.since, gone.complete) else last


def _buried(table_id: int, table: _TableFacts, seen: _Sightings, fates: _Fates) -> Iterator[Finding]:
    """A tablet that is shown DELETED though nobody can have deleted its table."""
    for grave in table.graves:
        last = _lost(table_id, table, seen, grave, fates)
        if last is not None:
            yield contradiction(LOST, [last, grave], _name_of(last, table_id), id=table_id)
            return


def _absences(
    table_id: int, table: _TableFacts, sightings: _Sightings, lists: Sequence[Call], fates: _Fates
) -> Iterator[Finding]:
    """A list without a table that was there before and is there again, or that nobody can have deleted since."""
    if not sightings.calls:
        return
    known, again = sightings.calls[0], max(sightings.calls, key=lambda call: call.since)
    for place in range(bisect_left(lists, known.complete, key=lambda call: call.since), len(lists)):
        listing = lists[place]
        if any(seen.id == table_id for seen in listing.seen):
            continue
        if listing.complete < again.since:
            yield contradiction(FLICKERING, [known, listing, again], _name_of(known, table_id), id=table_id)
            return
        last = _lost(table_id, table, sightings, listing, fates)
        if last is not None:
            yield contradiction(LOST, [last, listing], _name_of(last, table_id), id=table_id)
            return
        if listing.since >= sightings.ends[-1]:
            return  # Whatever explains this absence explains all later ones.


def _later(one: Call, other: Call) -> Call:
    return max(one, other, key=lambda call: call.since)


def _returned(table_id: int, table: _TableFacts) -> Iterator[Finding]:
    if not table.deletions and not table.graves:
        return
    gone = min((*table.deletions, *table.graves), key=lambda call: call.complete)
    for call, _ in table.sightings:
        if call.since > gone.complete:
            yield contradiction(RETURNED, [gone, call], _name_of(call, table_id), id=table_id)
            return
    if len(table.deletions) > 1:
        yield contradiction(RETURNED, table.deletions[:2], gone.name, id=table_id)


def _name_of(call: Call, table_id: int) -> int:
    """The name under which a call changed or saw the table; its id, where the call did neither."""
    return call.name if call.changes else next((seen.name for seen in call.seen if seen.id == table_id), table_id)


# ---- schema versions ----


def _versions(table_id: int, table: _TableFacts) -> Iterator[Finding]:
    stated = [(call, version) for call, version in table.sightings if version is not None]
    ordered = sorted(stated, key=lambda each: each[0].complete)
    ends = [call.complete for call, _ in ordered]
    highest = list(accumulate(ordered, _higher))
    for call, version in sorted(stated, key=lambda each: each[0].order):
        place = bisect_left(ends, call.since)
        if place and highest[place - 1][1] > version:
            earlier, shown = highest[place - 1]
            yield contradiction(
                VERSION_BACK, [earlier, call], _name_of(call, table_id), id=table_id, was=shown, now=version
            )
            return


def _higher(one: tuple[Call, int], other: tuple[Call, int]) -> tuple[Call, int]:
    return other if other[1] > one[1] else one


def _unasked(table_id: int, table: _TableFacts, unnamed: Sequence[int]) -> Iterator[Finding]:
    """A version higher than all changes that had begun by then can make it, or lower than those that were over did.

    `unnamed` are the invocations of those that do not tell their table.
    """
    begun = sorted(call.order for call in table.raised)
    over = sorted(call.complete for call in table.raised)
    for call, version in table.sightings:
        if version is None:
            continue
        most = bisect_left(begun, call.complete) + bisect_left(unnamed, call.complete)
        least = bisect_left(over, call.since)
        if not least <= version <= most:
            yield contradiction(
                VERSION_UNASKED, [call], _name_of(call, table_id), id=table_id, now=version, least=least, most=most
            )
            return


def _raises(call: Call) -> bool:
    return call.kind == ALTER or (call.kind == RENAME and RENAME_ALTERS > 0)


# ---- tablets ----


def _tablets(calls: Sequence[Call]) -> Iterator[Finding]:
    """A tablet gives its place to another only for good, and none that was seen to run gives it at all."""
    shown: dict[tuple[int, int], list[tuple[Call, Tablet]]] = {}
    for call in calls:
        for tablet in call.tablets:
            if call.seen and call.seen[0].id is not None:
                shown.setdefault((call.seen[0].id, tablet.bucket), []).append((call, tablet))
    for (table_id, bucket), sightings in shown.items():
        if len({tablet.id for _, tablet in sightings}) > 1:
            yield from _replaced(table_id, bucket, sightings)


def _replaced(table_id: int, bucket: int, sightings: Sequence[tuple[Call, Tablet]]) -> Iterator[Finding]:
    for other, instead in sightings:
        before = [each for each in sightings if each[1].id != instead.id and each[0].complete < other.since]
        ran = next((each for each in before if each[1].state == _TABLET_RUNS), None)
        left = {tablet.id for _, tablet in before}
        again = next((each for each in sightings if each[1].id in left and each[0].since > other.complete), None)
        facts = {"id": table_id, "bucket": bucket}
        if ran is not None:
            yield contradiction(TABLET_BACK, [ran[0], other], _name_of(other, table_id), ran=True, **facts)
            return
        if again is not None:
            earlier = next(call for call, tablet in before if tablet.id == again[1].id)
            yield contradiction(TABLET_BACK, [earlier, other, again[0]], _name_of(other, table_id), ran=False, **facts)
            return


def _vanished(calls: Sequence[Call]) -> Iterator[Finding]:
    """A tablet that was shown has a record for ever: those of deleted and replaced ones are kept."""
    first: dict[int, Call] = {}
    asked = [call for call in calls if call.tablets]
    for call in sorted(asked, key=lambda call: call.complete):
        for tablet in call.tablets:
            if tablet.state != UNRECORDED:
                first.setdefault(tablet.id, call)
    found: set[int] = set()
    for call in asked:
        for tablet in call.tablets:
            shown = first.get(tablet.id)
            if tablet.state == UNRECORDED and shown is not None and shown.complete < call.since:
                if tablet.id not in found:
                    yield contradiction(TABLET_GONE, [shown, call], id=tablet.id)
                found.add(tablet.id)


# ---- after the heal ----


def _at_the_end(calls: Sequence[Call], budget_ns: int) -> Iterator[Finding]:
    """Work on tables that is never done, and changes that take longer than they may, once all faults are healed."""
    final = [call for call in calls if call.final]
    for call in final:
        if call.changes and call.duration_ns > budget_ns:
            yield contradiction(LATE_DDL, [call], call.name, took_ns=call.duration_ns, budget_ns=budget_ns)
    lists = [call for call in final if call.total and call.since == call.order]
    changed = {call.name for call in final if call.changes}
    changed |= {call.new for call in final if call.changes and call.kind == RENAME}
    if lists:
        last = max(lists, key=lambda call: call.order)
        for seen, state in zip(last.seen, last.states, strict=False):
            if state != _TABLE_RUNS and seen.name not in changed:
                yield contradiction(STUCK_DDL, [last], seen.name, what="table", state=_named(TABLE_STATES, state))
    by_name = {call.seen[0].name: call for call in final if call.kind == LOCATIONS and call.seen}
    for name, call in by_name.items():
        for tablet in call.tablets:
            if tablet.state != _TABLET_RUNS or not tablet.replicas:
                shown = _named(TABLET_STATES, tablet.state)
                yield contradiction(STUCK_DDL, [call], name, what="tablet", state=shown, replicas=tablet.replicas)
