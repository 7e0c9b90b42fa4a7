"""The model `catalog` on histories: what operations say, both engines alike, settings, and what must not hurt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from naive_catalog import linearizable
from test_catalog_search import PLENTY, small

from checkers.api import judge_source
from checkers.catalog.calls import ALTER, CREATE, KNOWN, LIST, UNRECORDED, Call, TableSeen, Tablet
from checkers.catalog.judge import _stuck as findings_of
from checkers.catalog.judge import judged
from checkers.catalog.search import STUCK, SearchAnswer
from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.catalog import CatalogShape, catalog_calls, corrupted, events_of
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.ops import Mop, Op, read
from harness.history.table import to_table, write_parquet

SMALL = 100_000
"""The first seed of the small histories here; other tests have those below."""


def judge(events: Sequence[Op], engine: Engine | None = None, **settings: str) -> Verdict:
    table = to_table(events)
    source = Source(Path("test.journal"), "journal", table.num_rows, table=table)
    return MODELS["catalog"].judge(source, engine or LocalEngine(), CheckOptions(settings=settings))


def history(seed: int) -> list[Call]:
    return catalog_calls(CatalogShape(120, 5, 4, 0.08, refusals=True), seed)


@pytest.mark.parametrize("seed", range(8))
def test_histories_by_construction_are_valid_as_events_too(seed: int) -> None:
    verdict = judge(events_of(history(seed)))
    assert verdict.valid is True, verdict
    assert verdict.ops > 50 and verdict.details["tables"] > 5 and verdict.details["observations"] > 20


@pytest.mark.spark
def test_spark_and_local_agree_in_every_word(spark: SparkEngine, tmp_path: Path) -> None:
    for seed in (1, 2):
        events = events_of(corrupted(history(seed), seed) if seed == 2 else history(seed))
        assert _comparable(judge(events, spark)) == _comparable(judge(events))
    path = tmp_path / "history.parquet"
    write_parquet(events_of(history(3)), path)
    assert judge_source(open_source(path, "auto"), "catalog", spark).valid is True
    assert _comparable(judge([], spark)) == _comparable(judge([]))


@pytest.mark.parametrize("seeds", [100, pytest.param(5_000, marks=pytest.mark.campaign)])
def test_judging_says_what_trying_every_order_says_without_any_doubt(seeds: int) -> None:
    """Four histories of each seed, three of them corrupted; the campaign looks at 20 000."""
    words: Counter[bool] = Counter()
    for seed in range(SMALL, SMALL + seeds):
        calls = small(seed)
        for given in (calls, *(corrupted(calls, 4 * seed + i) for i in range(3))) if calls else ():
            part = judged(given, 8, PLENTY, PLENTY)
            assert (bool(part.counts), part.reasons) == (not linearizable(given), ()), seed
            words[bool(part.counts)] += 1
    assert min(words.values()) > seeds // 2


@pytest.mark.spark
@pytest.mark.campaign
def test_both_engines_agree_on_small_histories_in_every_word(spark: SparkEngine) -> None:
    for seed in range(SMALL, SMALL + 100):
        calls = small(seed)
        events = events_of(corrupted(calls, seed) if calls and seed % 2 else calls)
        assert _comparable(judge(events, spark)) == _comparable(judge(events)), seed


def _comparable(verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, engine="", seconds=0.0)


def ops(*lines: tuple[str, str, tuple[Mop, ...], dict[str, object]]) -> list[Op]:
    """Operations one after the other, each in a process of its own; times are a second an event."""
    events = []
    for process, (type, f, mops, fields) in enumerate(lines):
        invoked = () if f in ("list", "locations", "schema") else mops
        op = Op(type, process, f, mops, **fields)  # type: ignore[arg-type]
        for event in (op.complete("invoke", mops=invoked), op):
            events.append(event.complete(event.type, index=len(events), time=len(events) * 1_000_000_000))
    return events


CREATED = ("ok", "create", (Mop("create", 1, 500),), {})


def test_refusals_are_observations() -> None:
    taken = ("fail", "create", (Mop("create", 1),), {"error_class": "already-present"})
    free = ("fail", "delete", (Mop("delete", 1),), {"error_class": "not-found"})
    other = ("fail", "delete", (Mop("delete", 1),), {"error_class": "not-the-leader"})
    assert judge(ops(CREATED, taken)).valid is True
    assert judge(ops(taken, CREATED)).counts == {"no-order": 1}
    assert judge(ops(free, CREATED)).valid is True
    assert judge(ops(CREATED, free)).counts == {"no-order": 1}
    assert judge(ops(CREATED, other)).valid is True


def test_refusals_say_what_they_saw_and_no_more() -> None:
    other = ("ok", "create", (Mop("create", 2, 501),), {})
    moved = ("fail", "rename", (Mop("rename", 1, row=2),), {"error_class": "already-present"})
    assert judge(ops(CREATED, other, moved)).valid is True
    assert judge(ops(CREATED, moved, other)).counts == {"no-order": 1}, "the new name was free"
    strange = ("fail", "create", (Mop("create", 1),), {"error_class": "not-found"})
    assert judge(ops(CREATED, strange)).valid is True


def test_a_refusal_that_names_no_table_says_nothing_of_any() -> None:
    nameless = [("fail", f, (), {"error_class": "not-found"}) for f in ("list", "tablets", "columns")]
    zero = ("ok", "create", (Mop("create", 0, 500),), {})
    assert judge(ops(zero, *nameless)).valid is True
    gone = [("fail", f, (Mop(f, 1),), {"error_class": "not-found"}) for f in ("alter", "rename", "schema", "locations")]
    for refused in gone:
        assert judge(ops(CREATED, refused)).counts == {"no-order": 1}, refused


def test_locations_of_nothing_say_that_there_is_no_table() -> None:
    nothing = ("ok", "locations", (Mop("locations", 1),), {})
    assert judge(ops(nothing, CREATED)).valid is True
    assert judge(ops(CREATED, nothing)).counts == {"no-order": 1}


def test_an_operation_of_unknown_outcome_tells_no_id() -> None:
    doubtful = ("info", "create", (Mop("create", 1, 500),), {"error_class": "timeout"})
    listed = ("ok", "list", (Mop("table", 1, 501, row=0, column=2),), {})
    assert judge(ops(doubtful, listed)).valid is True


def test_an_answer_that_tells_no_version_says_nothing_of_it() -> None:
    altered = ("ok", "alter", (Mop("alter", 1, 500),), {})
    for f in ("created", "altered", "schema"):
        assert judge(ops(CREATED, altered, ("ok", f, (Mop(f, 1),), {}))).valid is True, f
        assert judge(ops(("ok", f, (Mop(f, 1),), {}), CREATED)).counts == {"no-order": 1}, "but that there is a table"


def test_only_answers_tell_of_schemas() -> None:
    made, other = (Mop("reshape", number, row=1, column=0) for number in (0, 1))
    done = ("ok", "reshape", (made,), {})
    assert judge(ops(CREATED, done, ("ok", "reshape", (other,), {}))).counts == {"schemas-differ": 1}
    for outcome in ("info", "fail"):
        verdict = judge(ops(CREATED, done, (outcome, "reshape", (other,), {"error_class": "timeout"})))
        assert verdict.valid is True and verdict.details["observations"] == 0, "of tables there was none"


@pytest.mark.parametrize(
    ("present", "half"), [((0, 1), False), ((1, 0), False), ((0,), True), ((1,), True), ((1, 1), True)]
)
def test_locations_tell_how_many_partitions_there_are_and_which_was_shown(present: tuple[int, ...], half: bool) -> None:
    tablets = (Mop("tablet", bucket, 70 + place, row=3, column=3) for place, bucket in enumerate(present))
    located = ("ok", "locations", (Mop("locations", 1, 500, column=2), *tablets), {})
    assert judge(ops(CREATED, located)).counts == ({"half-made-table": 1} if half else {})


def test_a_tablet_without_a_record_is_told_apart_from_one_with() -> None:
    known, unknown = (("ok", "tablets", (Mop(f, 0, 7, column=3),), {}) for f in ("known", "unknown"))
    assert judge(ops(CREATED, known, unknown)).counts == {"vanished-tablet": 1}
    assert judge(ops(CREATED, unknown, known)).valid is True


def test_a_tablet_that_runs_nowhere_is_stuck_in_the_end() -> None:
    def located(replicas: int) -> dict[str, int]:
        mops = (Mop("locations", 1, 500, column=1), Mop("tablet", 0, 7, row=replicas, column=3))
        return judge(ops(CREATED, ("ok", "locations", mops, {"phase": "final"}))).counts

    assert located(3) == {} and located(0) == {"no-location": 1, "ddl-stuck": 1}


def test_what_is_told_of_a_table_seen_too_early_names_its_creation() -> None:
    early = ("ok", "list", (Mop("table", 1, 500, row=0, column=2),), {})
    (alone,), (both,) = (judge(ops(*lines)).anomalies["phantom-table"] for lines in ((early,), (early, CREATED)))
    assert alone.message.endswith(
        "no creation can have made it: each that had begun by then made another table or none."
    )
    assert both.message.endswith("which made it, had begun.") and len(both.ops) == 2


def test_a_tablet_is_missed_only_by_who_asks_after_it_was_shown() -> None:
    shown, unknown = (Tablet(0, 7, 3, 1),), (Tablet(0, 7, UNRECORDED, 0),)

    def gone(first: tuple[Tablet, ...], then: tuple[Tablet, ...]) -> bool:
        calls = [Call(0, 0, 1, KNOWN, tablets=first), Call(2, 2, 3, KNOWN, tablets=then)]
        return "vanished-tablet" in judged(calls, 8, 1 << 40, 1 << 40).counts

    assert gone(shown, unknown) and not gone(unknown, shown)


def test_operations_on_rows_are_no_business_of_the_catalog() -> None:
    row = ("ok", "read", (read(5),), {})
    assert judge(ops(CREATED, row)).ops == 1
    assert judge(ops(row)).valid == "unknown"
    assert "no operation" in str(judge(ops(row)).reason).lower()


def test_an_empty_list_is_a_list() -> None:
    assert judge(ops(("ok", "list", (), {}))).valid is True
    assert judge(ops(CREATED, ("ok", "list", (), {}))).counts == {"lost-table": 1}
    for outcome in ("fail", "info"):
        assert judge(ops(CREATED, (outcome, "list", (), {"error_class": "timeout"}))).valid is True


def test_an_old_list_is_right_within_its_bound_and_wrong_beyond() -> None:
    old = ("ok", "list", (), {"mode": "follower", "bound": 5_000_000_000})
    young = ("ok", "list", (), {"mode": "follower", "bound": 500_000_000})
    assert judge(ops(CREATED, old)).valid is True
    assert judge(ops(CREATED, young)).counts == {"lost-table": 1}
    exactly = ("ok", "list", (), {"mode": "follower", "bound": 1_000_000_000})
    assert judge(ops(CREATED, exactly)).valid is True, "what ended at that very moment may not be in it yet"
    deleted = ("ok", "delete", (Mop("delete", 1, 500),), {})
    still = (Mop("table", 1, 500, row=0, column=2),)
    assert judge(ops(CREATED, deleted, ("ok", "list", still, old[3]))).valid is True
    assert judge(ops(CREATED, deleted, ("ok", "list", still, young[3]))).valid is False


@pytest.mark.parametrize("f", ["schema", "created", "altered", "locations"])
def test_an_old_word_on_one_table_is_right_within_its_bound_and_wrong_beyond(f: str) -> None:
    absent = ("ok", f, (Mop(f, 1, None, column=1),))
    for bound, valid in ((5_000_000_000, True), (500_000_000, False)):
        assert judge(ops(CREATED, (*absent, {"bound": bound}))).valid is valid


def test_an_old_answer_is_of_after_every_event_that_was_over_by_then_whatever_their_order() -> None:
    """Times may contradict the order of events: then the later event counts."""
    deleted = ("ok", "delete", (Mop("delete", 1, 500),), {})
    still = (Mop("table", 1, 500, row=0, column=2),)
    events = ops(CREATED, deleted, ("ok", "list", still, {"mode": "follower", "bound": 2_500_000_000}))
    assert judge(events).valid is True
    events[3] = events[3].complete("ok", time=events[0].time)
    assert judge(events).counts == {"no-order": 1}


def test_a_time_limit_is_a_limit_of_work() -> None:
    events = events_of(history(1))
    table = to_table(events)
    source = Source(Path("test.journal"), "journal", table.num_rows, table=table)
    for seconds, valid in ((0.001, "unknown"), (60.0, True)):
        verdict = MODELS["catalog"].judge(source, LocalEngine(), CheckOptions(time_limit_s=seconds))
        assert verdict.valid == valid and ("given up after" in str(verdict.reason)) == (valid == "unknown")


def test_what_may_have_been_is_told_by_the_names_that_tables_had() -> None:
    made = [("ok", "create", (Mop("create", name, 500 + name),), {}) for name in (3, 9)]
    gone = ("ok", "created", (Mop("created", 3, column=1),), {})
    (found,) = judge(ops(*made, gone)).anomalies["no-order"]
    assert found.message.endswith(
        "Of the names that have to do with it the catalog may have been {3: 1f7 at version 0} by then."
    )
    linked = ("info", "rename", (Mop("rename", 9, row=3),), {})
    (found,) = judge(ops(*made, linked, gone)).anomalies["no-order"]
    assert found.message.endswith("The catalog may have been {3: 1f7 at version 0, 9: 1fd at version 0} by then.")
    free = Call(4, 4, 5, ALTER, seen=(TableSeen(3, True),))
    states = tuple(((7, version),) for version in range(5))
    (told,) = findings_of(SearchAnswer(STUCK, 0, free, states, (3,)))
    assert told.facts == {"states": [[[3, 7, version]] for version in range(3)], "more": 2, "apart": False}


def test_the_budget_of_changes_is_a_setting() -> None:
    late = ops(CREATED, ("ok", "alter", (Mop("alter", 1, 500),), {"phase": "final"}))
    assert judge(late).valid is True
    late[-1] = late[-1].complete("ok", time=late[-1].time + 20_000_000_000)
    assert judge(late).counts == {"ddl-late": 1}
    assert judge(late, **{"ddl-budget": "30"}).valid is True
    with pytest.raises(UserError, match="ddl-budget"):
        judge(late, **{"ddl-budget": "soon"})


def test_every_operation_of_unknown_outcome_may_have_done_nothing() -> None:
    lines = [("info", f, (Mop(f, 1),), {"error_class": "timeout"}) for f in ("create", "delete", "alter", "rename")]
    assert judge(ops(*lines, ("ok", "list", (), {}))).valid is True


def test_what_changed_at_the_end_need_not_be_done_and_an_old_list_says_nothing_of_it() -> None:
    seen, altering = (TableSeen(1, False, 7, 0),), (3,)
    made = Call(0, 0, 1, CREATE, 1, id=7)

    def stuck(*calls: Call) -> bool:
        return "ddl-stuck" in judged([made, *calls], 8, 1 << 40, 1 << 40).counts

    listed = Call(4, 4, 5, LIST, total=True, seen=seen, states=altering, final=True)
    assert stuck(listed)
    assert not stuck(Call(2, 2, 3, ALTER, 1, id=7, final=True), replace(listed, seen=(TableSeen(1, False, 7, 1),)))
    assert not stuck(replace(listed, since=2)), "a follower's, from before"
    assert stuck(Call(2, 2, 3, CREATE, 9, id=8, final=True), replace(listed, seen=(*seen, TableSeen(9, False, 8, 0))))
