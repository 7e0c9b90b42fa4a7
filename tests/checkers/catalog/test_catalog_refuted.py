"""Each contradiction at its edge: the least that is one, and what is none any more; nothing is left to the search."""

from __future__ import annotations

from collections import Counter

import pytest

from checkers.catalog.altered_rows import ADD, DROP_SECOND, schema_findings
from checkers.catalog.altered_rows import RENAME as RENAME_COLUMN
from checkers.catalog.calls import (
    ALTER,
    COLUMN,
    CREATE,
    DELETE,
    KNOWN,
    LIST,
    LOCATIONS,
    RENAME,
    RESHAPE,
    SCHEMA,
    TABLE_STATES,
    TABLET_STATES,
    UNRECORDED,
    Call,
    TableSeen,
    Tablet,
)
from checkers.catalog.refute import _name_of as name_of
from checkers.catalog.refute import refutations
from checkers.columns.codes import NEVER

BUDGET_NS = 100
RUNNING, ALTERING = TABLE_STATES.index("RUNNING"), TABLE_STATES.index("ALTERING")
RUNS, CREATING = TABLET_STATES.index("RUNNING"), TABLET_STATES.index("CREATING")


def refuted(*calls: Call) -> dict[str, int]:
    ordered = sorted(calls, key=lambda call: call.order)
    return dict(Counter(finding.anomaly for finding in refutations(ordered, BUDGET_NS)))


def named(*calls: Call) -> list[tuple[str, int, tuple[int, ...]]]:
    """What is found, the name under which the table stood, and the operations that show it."""
    found = refutations(sorted(calls, key=lambda call: call.order), BUDGET_NS)
    return [(each.anomaly, each.key.partition, each.ops) for each in found]


def change(kind: int, order: int, complete: int, id: int | None = 7, name: int = 1, **more: object) -> Call:
    return Call(order, order, complete, kind, name=name, id=id, **more)  # type: ignore[arg-type]


def made(order: int = 0, complete: int = 1, id: int | None = 7, name: int = 1) -> Call:
    return change(CREATE, order, complete, id, name)


def sees(order: int, complete: int, version: int | None = None, id: int = 7, since: int | None = None) -> Call:
    shown = (TableSeen(1, False, id, version),)
    return Call(order, order if since is None else since, complete, SCHEMA, seen=shown)


def listed(order: int, complete: int, *tables: TableSeen, **more: object) -> Call:
    return Call(order, order, complete, LIST, total=True, seen=tables, **more)  # type: ignore[arg-type]


def old_list(order: int, complete: int, since: int) -> Call:
    return Call(order, since, complete, LIST, total=True)


def located(order: int, complete: int, *tablets: Tablet, name: int = 1, since: int | None = None, **more: int) -> Call:
    table, begin = (TableSeen(name, False, 6 + name),), order if since is None else since
    return Call(order, begin, complete, LOCATIONS, seen=table, tablets=tablets, **more)  # type: ignore[arg-type]


# ---- one answer ----


def test_a_list_shows_each_id_and_each_name_once() -> None:
    first, other = TableSeen(1, False, 7, 0), TableSeen(2, False, 8, 0)
    two = made(), made(2, 3, 8, 2)
    assert refuted(*two, listed(4, 5, first, other)) == {}
    assert refuted(*two, listed(4, 5, first, TableSeen(2, False, 7, 0), other)) == {"table-twice": 2}
    assert refuted(*two, listed(4, 5, first, TableSeen(1, False, 8, 0))) == {"table-twice": 1}, "one name of two"


@pytest.mark.parametrize("state", range(-1, len(TABLE_STATES)))
def test_lists_show_tables_that_were_committed(state: int) -> None:
    wrong = refuted(made(), listed(2, 3, TableSeen(1, False, 7, 0), states=(state,)))
    assert wrong == ({} if state in (RUNNING, ALTERING) else {"uncommitted-record": 1})


@pytest.mark.parametrize("state", range(-1, len(TABLET_STATES)))
def test_locations_show_tablets_that_were_committed(state: int) -> None:
    shown = TABLET_STATES.index("PREPARING"), CREATING, RUNS
    wrong = refuted(made(), located(2, 3, Tablet(0, 11, state, 3)))
    assert wrong == ({} if state in shown else {"uncommitted-record": 1})
    wrong = refuted(made(), located(2, 3, Tablet(0, 11, state, 0)))
    assert wrong.get("no-location", 0) == (state == RUNS), "only what runs has to run somewhere"


@pytest.mark.parametrize(("present", "of", "half"), [((0, 1), 2, 0), ((0,), 2, 1), ((0, 0), 2, 1), ((0, 1), 0, 0)])
def test_locations_show_each_partition_once(present: tuple[int, ...], of: int, half: int) -> None:
    """Where it is not told how many there are (0), nothing is missed."""
    tablets = [Tablet(bucket, 11 + place, CREATING, 3) for place, bucket in enumerate(present)]
    assert refuted(made(), located(2, 3, *tablets, buckets=of)).get("half-made-table", 0) == half


# ---- tables that nobody made ----


def test_a_table_is_seen_no_sooner_than_its_creation_begins() -> None:
    assert refuted(made(2, 5), sees(0, 1)) == {"phantom-table": 1}
    assert refuted(made(2, 5), sees(1, 3)) == {}
    assert refuted(made(2, 9), sees(1, 8), sees(0, 1)) == {"phantom-table": 1}, "the first to see it"
    assert refuted(made(2, 9), change(DELETE, 0, 1)) == {"deleted-table-seen": 1, "phantom-table": 1}


def test_as_many_tables_as_creations_in_doubt_have_begun() -> None:
    doubts = made(0, NEVER, None), made(4, NEVER, None)
    assert refuted(*doubts, sees(1, 3)) == {}
    assert refuted(*doubts, sees(1, 2), sees(2, 3, id=8)) == {"phantom-table": 1}, "the other one had not begun"
    assert refuted(*doubts, sees(1, 2), sees(3, 5, id=8)) == {}
    assert refuted(*doubts, sees(1, 2), sees(3, 5, id=8), sees(6, 8, id=9)) == {"phantom-table": 1}
    taken = Call(2, 2, 3, CREATE, seen=(TableSeen(1, False),))
    assert refuted(made(), taken) == {}, "a refusal tells no id"
    assert refuted(change(DELETE, 0, NEVER, None), sees(1, 3)) == {"phantom-table": 1}, "a deletion makes none"


# ---- tables that were there ----


def test_a_list_without_a_table_between_two_that_see_it() -> None:
    assert refuted(made(), listed(2, 3), sees(4, 5)) == {"flickering-table": 1}
    deletion = change(DELETE, 2, NEVER, None)
    assert refuted(made(), deletion, listed(3, 4), sees(5, 6)) == {"flickering-table": 1}, "ids are given once"
    assert refuted(made(), deletion, listed(3, 6), sees(5, 7)) == {}, "they overlap"
    assert refuted(made(0, 3), listed(2, 4), sees(5, 6)) == {}, "it was not there yet"
    assert refuted(made(), listed(2, 3, TableSeen(1, False, 7, 0)), sees(4, 5)) == {}
    late = change(DELETE, 3, NEVER, None), listed(4, 5), sees(6, 7)
    assert refuted(made(), *late, sees(2, 9)) == {"flickering-table": 1}, "whoever asked last, not who was told last"


def test_a_list_without_a_table_that_nobody_can_have_deleted() -> None:
    assert refuted(made(), listed(2, 3)) == {"lost-table": 1}
    assert refuted(made(0, 3), listed(2, 4)) == {}
    assert refuted(made(), listed(3, 4), change(DELETE, 5, 6)) == {"lost-table": 1}, "the deletion came later"
    for id in (7, None):
        assert refuted(made(), listed(2, 4), change(DELETE, 3, 6, id)) == {}
    assert refuted(made(), listed(3, 5), change(DELETE, 2, 4, 8)) == {"lost-table": 1, "phantom-table": 1}
    assert refuted(made(), listed(3, 4), change(ALTER, 2, NEVER, None)) == {"lost-table": 1}
    assert refuted(made(), listed(2, 3), listed(4, 5)) == {"lost-table": 1}, "told once"
    assert refuted(made(), listed(6, 7), old_list(8, 9, since=0)) == {"lost-table": 1}, "an old one explains nothing"
    assert refuted(made(), old_list(8, 9, since=0)) == {}


def test_only_a_deletion_by_a_name_that_the_table_may_have_had_explains_its_absence() -> None:
    """Among 18 500 operations any deletion of unknown outcome explained it, and ten minutes of search found no more."""
    elsewhere = change(DELETE, 2, NEVER, None, name=2)
    assert refuted(made(), elsewhere, listed(4, 5)) == {"lost-table": 1}
    to_two, on = (change(RENAME, 3, NEVER, None, name=old, new=new) for old, new in ((1, 3), (3, 2)))
    assert refuted(made(), elsewhere, to_two, listed(6, 7)) == {"lost-table": 1}, "it may have the third name"
    assert refuted(made(), elsewhere, to_two, on, listed(6, 7)) == {}, "by way of the third name the second"
    late = change(RENAME, 8, 9, None, name=1, new=2)
    assert refuted(made(), elsewhere, late, listed(6, 7)) == {"lost-table": 1}, "renamed only later"
    over = change(RENAME, 2, 3, None, name=1, new=2)
    assert refuted(made(), over, sees(4, 5), elsewhere, listed(6, 7)) == {"lost-table": 1}, "seen by its name since"
    told = change(RENAME, 3, 5, 7, name=1, new=2)
    assert refuted(made(), elsewhere, told, listed(6, 7)) == {}
    assert refuted(made(), elsewhere, told, sees(4, 6), listed(7, 8)) == {}, "seen before it was renamed"


def test_an_old_answer_was_true_when_it_says_and_not_when_it_was_asked_for() -> None:
    """Such histories were refuted: a table that an old answer shows may have been deleted before anybody asked."""
    old, without = sees(5, 6, since=1), listed(7, 8)
    for id in (7, None):
        assert refuted(made(), change(DELETE, 2, 3, id), old, without) == {}
        renamed = change(RENAME, 2, 3, id, name=1, new=2)
        assert refuted(made(), renamed, change(DELETE, 4, NEVER, None, name=2), old, without) == {}
    assert refuted(made(), change(DELETE, 2, 3, None), sees(5, 6, since=4), without) == {"lost-table": 1}


def test_a_deletion_before_a_table_was_seen_last_explains_nothing() -> None:
    before, seen, without = change(DELETE, 2, 3, None), sees(4, 5), listed(6, 7)
    assert refuted(made(), before, seen, without) == {"lost-table": 1}
    still_open = change(DELETE, 2, NEVER, None)
    assert refuted(made(), still_open, seen, without) == {}
    assert refuted(made(), still_open, change(DELETE, 3, 4, None), sees(5, 6), listed(7, 8)) == {}
    assert refuted(made(), listed(3, 4), change(DELETE, 2, 5), listed(6, 7)) == {}, "one explains all that follow"
    again = change(DELETE, 2, 4, None), listed(3, 6), sees(5, 7)
    assert refuted(made(), *again, listed(8, 9)) == {"lost-table": 1}, "what explains the first explains no other"
    assert refuted(made(), sees(2, 9), listed(4, 5)) == {"lost-table": 1}, "what ends behind a list says nothing of it"
    early = change(DELETE, 2, 4, None), sees(5, 6)
    assert refuted(made(), *early, sees(3, 9), listed(10, 11)) == {"lost-table": 1}, "the last to be asked saw it"


def test_nobody_sees_a_deleted_table_nor_deletes_it_again() -> None:
    gone = change(DELETE, 2, 4)
    assert refuted(made(), gone, sees(5, 6)) == {"deleted-table-seen": 1}
    assert refuted(made(), gone, sees(5, 6), sees(7, 8)) == {"deleted-table-seen": 1}, "told once"
    assert refuted(made(), gone, sees(3, 6)) == {}
    assert refuted(made(), gone, sees(8, 9, since=3)) == {}, "an old answer"
    assert refuted(made(), gone, change(DELETE, 3, 6)) == {"deleted-table-seen": 1}
    later = change(DELETE, 3, 9)
    assert named(made(), gone, later, sees(5, 6)) == [("deleted-table-seen", 1, (2, 5))], "the first to have ended"


# ---- versions ----


def open_alterations(count: int) -> list[Call]:
    return [change(ALTER, order, NEVER, None) for order in range(-count, 0)]


def test_versions_never_go_back() -> None:
    raised = open_alterations(3)
    assert refuted(*raised, made(), sees(2, 3, 1), sees(4, 5, 0)) == {"version-went-back": 1}
    assert refuted(*raised, made(), sees(2, 4, 1), sees(3, 5, 0)) == {}
    assert refuted(*raised, made(), sees(2, 3, 1), sees(6, 7, 0, since=2)) == {}, "an old answer"
    overlapping = sees(2, 3, 2), sees(2, 5, 1)
    assert refuted(*raised, made(), *overlapping, sees(6, 7, 1)) == {"version-went-back": 1}, "the highest of them"
    assert refuted(*raised, made(), sees(2, 3, 1), sees(4, 5, 1)) == {}
    back = made(), sees(2, 3, 1), sees(4, 5, 0), sees(6, 7, 0)
    assert refuted(*raised, *back) == {"version-went-back": 1}, "told once"


def test_versions_are_as_high_as_changes_can_have_made_them() -> None:
    altered = change(ALTER, 2, 4)
    for version, wrong in ((0, 1), (1, 0), (2, 1)):
        assert refuted(made(), altered, sees(5, 6, version)) == ({"version-without-alter": 1} if wrong else {})
        renamed = change(RENAME, 2, 4, new=2)
        assert refuted(made(), renamed, sees(5, 6, version)) == ({"version-without-alter": 1} if wrong else {})
    assert refuted(made(), altered, sees(5, 6, 0, since=3)) == {}, "an old answer"
    for version, wrong in ((0, 0), (1, 0), (2, 1)):
        assert refuted(made(), altered, sees(3, 6, version)) == ({"version-without-alter": 1} if wrong else {})
        doubtful = change(ALTER, 2, NEVER, None)
        assert refuted(made(), doubtful, sees(5, 6, version)) == ({"version-without-alter": 1} if wrong else {})
    assert refuted(made(), sees(2, 3, 1), sees(4, 5, 1)) == {"version-without-alter": 1}, "told once"
    assert refuted(made(), change(ALTER, 4, 5), sees(2, 3, 1)) == {"version-without-alter": 1}, "it had not begun"
    assert refuted(made(), change(ALTER, 4, NEVER, None), sees(2, 3, 1)) == {"version-without-alter": 1}
    assert refuted(made(), change(DELETE, 2, NEVER, None), sees(5, 6, 1)) == {"version-without-alter": 1}
    assert refuted(made(), change(RENAME, 2, NEVER, None, new=2), sees(5, 6, 1)) == {}


# ---- tablets ----


def shown(order: int, complete: int, tablet: int, state: int = CREATING, bucket: int = 0, **more: int) -> Call:
    return located(order, complete, Tablet(bucket, tablet, state, 3), **more)


def test_a_tablet_that_ran_is_replaced_by_none() -> None:
    assert refuted(made(), shown(2, 3, 11, RUNS), shown(4, 5, 12)) == {"tablet-came-back": 1}
    again = shown(4, 5, 12), shown(6, 7, 12)
    assert refuted(made(), shown(2, 3, 11, RUNS), *again) == {"tablet-came-back": 1}, "told once"
    assert refuted(made(), shown(2, 3, 11), shown(4, 5, 12)) == {}
    assert refuted(made(), shown(2, 4, 11, RUNS), shown(3, 5, 12)) == {}, "they overlap"
    assert refuted(made(), shown(2, 3, 11, RUNS), shown(6, 7, 12, since=1)) == {}, "an old answer"
    assert refuted(made(), shown(2, 3, 11, RUNS), shown(4, 5, 12, bucket=1)) == {}
    assert refuted(made(), made(0, 1, 8, 2), shown(2, 3, 11, RUNS), shown(4, 5, 12, name=2)) == {}


def test_a_tablet_gives_its_place_away_for_good() -> None:
    left, instead = shown(2, 3, 11), shown(4, 6, 12)
    assert refuted(made(), left, instead, shown(7, 8, 11)) == {"tablet-came-back": 1}
    assert refuted(made(), left, instead, shown(5, 6, 12), shown(7, 8, 11)) == {"tablet-came-back": 1}, "told once"
    assert refuted(made(), left, instead, shown(5, 8, 11)) == {}
    assert refuted(made(), left, instead, shown(7, 8, 11, since=5)) == {}, "an old answer"
    assert refuted(made(), shown(2, 5, 11), instead, shown(7, 8, 11)) == {}, "12 may have come first, and given way"


def test_a_record_of_a_tablet_stays() -> None:
    unknown = Tablet(0, 11, UNRECORDED, 0)
    told = [Call(order, order, complete, KNOWN, tablets=(unknown,)) for order, complete in ((4, 5), (6, 7), (2, 5))]
    assert refuted(made(), shown(2, 3, 11), told[0]) == {"vanished-tablet": 1}
    assert refuted(made(), shown(2, 3, 11), told[0], told[1]) == {"vanished-tablet": 1}, "told once"
    assert refuted(made(), told[0], told[1]) == {}, "nobody was shown it"
    assert refuted(made(), shown(1, 3, 11), told[2]) == {}
    assert refuted(made(), shown(2, 3, 12), told[0]) == {}
    assert refuted(made(), shown(2, 3, 11), Call(6, 2, 7, KNOWN, tablets=(unknown,))) == {}, "an old answer"
    assert refuted(made(), shown(2, 9, 11), shown(3, 4, 11), told[1]) == {"vanished-tablet": 1}, "the first to show it"


# ---- after the heal ----


@pytest.mark.parametrize(("final", "took_ns", "late"), [(True, 101, 1), (True, 100, 0), (False, 101, 0)])
def test_changes_after_the_heal_have_a_budget(final: bool, took_ns: int, late: int) -> None:
    altered = change(ALTER, 2, 3, final=final, duration_ns=took_ns)
    assert refuted(made(), altered).get("ddl-late", 0) == late
    question = Call(2, 2, 3, SCHEMA, seen=(TableSeen(1, False, 7, 0),), final=final, duration_ns=took_ns)
    assert refuted(made(), question) == {}, "only changes have one"


def test_the_last_list_after_the_heal_shows_tables_that_run() -> None:
    table = TableSeen(1, False, 7)
    works, done = ({"states": (state,), "final": True} for state in (ALTERING, RUNNING))
    assert refuted(made(), listed(2, 3, table, **works)) == {"ddl-stuck": 1}
    assert refuted(made(), listed(2, 3, table, states=(ALTERING,))) == {}
    assert refuted(made(), listed(2, 3, table, **works), listed(4, 5, table, **done)) == {}
    assert refuted(made(), listed(2, 3, table, **done), listed(4, 5, table, **works)) == {"ddl-stuck": 1}


def test_what_is_changed_after_the_heal_need_not_be_done() -> None:
    works = listed(6, 7, TableSeen(1, False, 7), states=(ALTERING,), final=True)
    assert refuted(made(), change(ALTER, 2, 3, final=True), works) == {}
    assert refuted(made(), change(ALTER, 2, 3), works) == {"ddl-stuck": 1}
    assert refuted(made(name=2), change(RENAME, 2, 3, name=2, new=1, final=True), works) == {}
    assert refuted(made(name=2), change(ALTER, 2, 3, name=2, new=1, final=True), works) == {"ddl-stuck": 1}


def test_the_last_locations_after_the_heal_show_tablets_that_run() -> None:
    def final(order: int, state: int, replicas: int = 3) -> Call:
        return located(order, order + 1, Tablet(0, 11, state, replicas), final=True)

    assert refuted(made(), final(2, RUNS)) == {}
    assert refuted(made(), final(2, CREATING)) == {"ddl-stuck": 1}
    assert refuted(made(), final(2, RUNS, 0)) == {"ddl-stuck": 1, "no-location": 1}
    assert refuted(made(), final(2, CREATING), final(4, RUNS)) == {}
    assert refuted(made(), shown(2, 3, 11)) == {}


# ---- schemas of the table of rows ----


def schema(order: int, version: int, *columns: tuple[int, int], complete: int | None = None) -> Call:
    return Call(order, order, complete or order + 1, COLUMN, version=version, columns=columns)


def reshaped(order: int, version: int, step: int, number: int = 0) -> Call:
    return Call(order, order, order + 1, RESHAPE, number, version=version, step=step)


def wrong_schemas(*calls: Call) -> dict[str, int]:
    return dict(Counter(finding.anomaly for finding in schema_findings(calls)))


def test_a_version_is_one_schema_of_different_names() -> None:
    assert wrong_schemas(schema(0, 0, (1, 0), (5, 1)), schema(2, 0, (5, 1), (1, 0))) == {}, "in any order"
    assert wrong_schemas(schema(0, 0, (5, 1), (6, 1))) == {"schemas-differ": 1}
    assert wrong_schemas(schema(0, 0, (5, 1)), schema(2, 0, (6, 1))) == {"schemas-differ": 1}
    assert wrong_schemas(reshaped(0, 1, ADD), reshaped(2, 1, ADD)) == {"schemas-differ": 1}, "each makes its own"


def test_an_alteration_is_done_in_its_version() -> None:
    renamed, dropped = reshaped(0, 1, RENAME_COLUMN), reshaped(0, 1, DROP_SECOND)
    assert wrong_schemas(renamed, schema(2, 1, (5, 2))) == {}
    assert wrong_schemas(renamed, schema(2, 1, (5, 1), (6, 2))) == {"schemas-differ": 1}, "the old name is still there"
    assert wrong_schemas(dropped, schema(2, 1, (5, 1))) == {}
    assert wrong_schemas(dropped, schema(2, 1, (5, 2))) == {"schemas-differ": 1}
    assert wrong_schemas(reshaped(0, 1, ADD, 1), schema(2, 1, (5, 3))) == {}
    assert wrong_schemas(reshaped(0, 1, DROP_SECOND, 1), schema(2, 1, (5, 4))) == {"schemas-differ": 1}


def test_schemas_go_back_for_nobody_who_asks_later() -> None:
    assert wrong_schemas(reshaped(0, 2, ADD), schema(2, 1)) == {"schema-went-back": 1}
    overlapping = schema(0, 2, complete=2), schema(1, 1, complete=4)
    assert wrong_schemas(*overlapping) == {}
    assert wrong_schemas(*overlapping, schema(5, 1)) == {"schema-went-back": 1}, "the newest that was told"
    assert wrong_schemas(schema(0, 2), schema(2, 2)) == {}


def test_ids_come_back_in_later_versions_not_at_later_times() -> None:
    early, none, late = schema(0, 1, (5, 1)), schema(1, 2, complete=9), schema(2, 3, (5, 1), complete=8)
    assert wrong_schemas(early, none, late) == {"column-came-back": 1}
    assert wrong_schemas(early, schema(1, 2, (5, 1), complete=9), schema(2, 3, complete=8)) == {}
    twice = schema(3, 4, complete=9), schema(4, 5, (5, 1), complete=9)
    assert wrong_schemas(early, none, late, *twice) == {"column-came-back": 2}


# ---- what is told of it ----


def test_findings_name_the_table_and_the_operations_that_show_it() -> None:
    gone = change(DELETE, 2, 3, name=1)
    assert named(made(), gone, sees(4, 5)) == [("deleted-table-seen", 1, (2, 4))]
    assert named(made(name=3), listed(2, 3)) == [("lost-table", 3, (0, 2))]
    assert named(made(name=3), listed(2, 3), sees(4, 5)) == [("flickering-table", 3, (0, 2, 4))]
    assert named(made(2, 3, name=3), sees(0, 1)) == [("phantom-table", 1, (0, 2))]
    assert named(sees(0, 1)) == [("phantom-table", 1, (0,))]
    both = listed(4, 5, TableSeen(2, False, 8, 0), TableSeen(1, False, 7, 0))
    assert named(made(2, 3, 8, 2), both) == [("phantom-table", 1, (4,))]
    two = made(0, 1), made(2, 3, 8, 2), both
    assert named(*two, listed(6, 7, TableSeen(2, False, 8, 0))) == [("lost-table", 1, (4, 6))]
    assert named(made(), sees(2, 3, 1)) == [("version-without-alter", 1, (2,))]
    raised = open_alterations(3)
    assert named(*raised, made(), sees(2, 3, 1), sees(4, 5, 0)) == [("version-went-back", 1, (2, 4))]
    assert named(made(), shown(2, 3, 11, RUNS), shown(4, 5, 12)) == [("tablet-came-back", 1, (2, 4))]
    assert named(made(), shown(2, 3, 11), shown(4, 6, 12), shown(7, 8, 11)) == [("tablet-came-back", 1, (2, 4, 7))]


def test_a_call_that_says_nothing_of_a_table_leaves_it_its_id() -> None:
    """What is refuted is told, whichever call shows it: a crash would be told as `unknown`."""
    assert name_of(made(name=3), 7) == 3
    assert name_of(listed(2, 3, TableSeen(2, False, 8, 0), TableSeen(4, False, 7, 0)), 7) == 4
    assert name_of(listed(2, 3, TableSeen(2, False, 8, 0)), 7) == 7
    assert name_of(listed(2, 3), 7) == 7
