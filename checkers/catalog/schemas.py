"""The columns of a table that is altered while its rows are read and written: one schema a version, each id given once.

Versions are told by those who altered the table, and with all its columns by those who asked for them. What reads and
writes of the columns must give is another question: columns are told apart by their ids, and each cell is a register
(the model `catalog-rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from checkers.catalog.calls import COLUMN, RESHAPE, Call
from checkers.findings import NO_KEY, Finding

SCHEMAS_DIFFER, COLUMN_BACK, SCHEMA_BACK = "schemas-differ", "column-came-back", "schema-went-back"

ADD, DROP, RENAME, DROP_SECOND = range(4)
"""What a reshaping does (`Call.step`) to the column that it names by number: number n is first called 2n + 1 (`xn`),
and 2n + 2 (`yn`) once it was renamed; either may be dropped."""


def schema_findings(calls: Sequence[Call]) -> Iterator[Finding]:
    """What is wrong with the schemas that were told."""
    told = [call for call in calls if call.kind in (COLUMN, RESHAPE) and call.version is not None]
    yield from _versions(told)
    yield from _went_back(told)
    yield from _came_back([call for call in told if call.kind == COLUMN])


def _finding(name: str, calls: Sequence[Call], **facts: int) -> Finding:
    ops = tuple(call.order for call in calls)
    return Finding(name, max(ops), NO_KEY, ops, facts)


def _versions(told: Sequence[Call]) -> Iterator[Finding]:
    """A version is one schema, made by one alteration, and has what this was for."""
    shown: dict[int, Call] = {}
    made: dict[int, Call] = {}
    for call in told:
        assert call.version is not None
        first = (shown if call.kind == COLUMN else made).setdefault(call.version, call)
        same = first is call if call.kind == RESHAPE else sorted(first.columns) == sorted(call.columns)
        if not same:
            yield _finding(SCHEMAS_DIFFER, [first, call], version=call.version)
    for version, call in shown.items():
        ids, names = ([each[place] for each in call.columns] for place in (0, 1))
        if len(set(ids)) < len(ids) or len(set(names)) < len(names):
            yield _finding(SCHEMAS_DIFFER, [call], version=version)
        elif version in made and not _done(made[version], set(names)):
            yield _finding(SCHEMAS_DIFFER, [made[version], call], version=version)


def _done(change: Call, names: set[int]) -> bool:
    old, new = 2 * change.name + 1, 2 * change.name + 2
    done = {ADD: old in names, DROP: old not in names, RENAME: new in names and old not in names}
    return done.get(change.step, new not in names)


def _went_back(told: Sequence[Call]) -> Iterator[Finding]:
    """Who asks after a version was told is not told an earlier one."""
    ended = sorted(told, key=lambda call: call.complete)
    newest = list(accumulate(ended, _newer))
    place = 0
    for call in sorted(told, key=lambda call: call.since):
        while place < len(ended) and ended[place].complete < call.since:
            place += 1
        if place and _version(newest[place - 1]) > _version(call):
            facts = {"was": _version(newest[place - 1]), "now": _version(call)}
            yield _finding(SCHEMA_BACK, [newest[place - 1], call], **facts)
            return


def _newer(one: Call, other: Call) -> Call:
    return other if _version(other) > _version(one) else one


def _version(call: Call) -> int:
    return -1 if call.version is None else call.version


def _came_back(shown: Sequence[Call]) -> Iterator[Finding]:
    """An id that a later version has not is no column's any more."""
    known: dict[int, Call] = {}
    gone: dict[int, tuple[Call, Call]] = {}
    for call in sorted(shown, key=_version):
        here = {each for each, _ in call.columns}
        for each in sorted(here & gone.keys()):
            yield _finding(COLUMN_BACK, [*gone.pop(each), call], id=each)
        for each in known.keys() - here - gone.keys():
            gone[each] = (known[each], call)
        for each in here:
            known[each] = call
