"""Appended lists that contradict each other, or that hold what is no element: judged by elements, or unknown."""

import random

import pytest
from session_histories import Row, events_of, flattened, intervals, side_by_side
from test_monotonic_reads import omitting

from checkers.api import check_run
from checkers.sessions.judge_sessions import PROJECTION
from checkers.sessions.session_guarantees import ANOMALIES, SessionKernel
from checkers.sessions.session_lists import UNDECIDED
from checkers.sessions.session_order import GUARANTEES as BY_CODE
from harness.history.table import write_parquet

GUARANTEES = ("sessions", "monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads")
MANY = 1_000_000
MODELS = (*GUARANTEES, "write-atomicity")


def judged(rows, tmp_path, models=MODELS):
    path = tmp_path / "history.parquet"
    write_parquet(events_of(rows), path)
    return check_run(path, models, engine="local")


def appended(begin, session, element, cell=0):
    return Row(begin, begin + 1, session, (("append", cell, element),))


def read(begin, session, *items, mode="ONE"):
    return Row(begin, begin + 1, session, (("r", 0, items),), mode=mode)


REFUTED = {
    "writes-follow-reads": [appended(0, 9, 1), read(2, 0, 1), appended(4, 0, 3), read(6, 5, 3, 1)],
    "read-your-writes": [
        appended(0, 9, 1),
        appended(2, 9, 2),
        appended(4, 0, 3),
        read(6, 0, 2, 1),
        read(8, 5, 1, 2, 3),
    ],
    "monotonic-writes": [appended(0, 0, 1), appended(2, 0, 2), read(4, 1, 2), read(6, 2, 1, 2)],
    "write-atomicity": [
        *(Row(2 * i - 2, 2 * i - 1, 9, (("append", 0, i), ("append", 1, i))) for i in (1, 2, 3)),
        Row(6, 7, 1, (("r", 0, (1, 2, 3)), ("r", 1, (2, 1)))),
        Row(8, 9, 1, (("r", 0, (1, 2, 3)), ("r", 1, (1, 2, 3)))),
    ],
}


ANOMALY = {
    "writes-follow-reads": "write-before-what-was-read",
    "read-your-writes": "missed-own-write",
    "monotonic-writes": "non-monotonic-write",
    "write-atomicity": "torn-read",
}
WHY = {
    "writes-follow-reads": "Yet process 3 read a list that shows 3 and does not show 1 before it.",
    "read-your-writes": "The appended element is not in the list that the same session read afterwards.",
    "monotonic-writes": "Yet process 2 read a list that shows 2 and does not show 1 before it.",
    "write-atomicity": "The element 3 is missing there: one page shows a part of the write only.",
}


@pytest.mark.parametrize("model", REFUTED)
def test_what_only_contradictory_lists_show_is_not_valid(model, tmp_path):
    found = judged(REFUTED[model], tmp_path)
    assert found[model].counts == {ANOMALY[model]: 1}
    assert model == "write-atomicity" or found["sessions"].counts[ANOMALY[model]] == 1
    (anomaly,) = found[model].anomalies[ANOMALY[model]]
    assert anomaly.message.endswith(WHY[model])


NOT_JUDGED = {
    "twice": [appended(0, 0, 1), appended(2, 1, 1), read(4, 0, 1)],
    "whole": [appended(0, 0, 1), Row(2, 3, 1, (("w", 0, 7),)), read(4, 0, 1)],
    "deleted": [
        Row(0, 1, 0, (("append", 0, 1), ("append", 1, 1))),
        read(2, 0, 1),
        Row(4, 5, 1, (("w", 0, None),)),
        Row(6, 7, 0, (("r", 0, None), ("r", 1, (1,)))),
        appended(8, 1, 2),
        read(10, 0, 2),
    ],
}


@pytest.mark.parametrize("name", NOT_JUDGED)
@pytest.mark.parametrize("model", MODELS)
def test_what_is_not_judged_is_counted_and_unknown(name, model, tmp_path):
    verdict = judged(NOT_JUDGED[name], tmp_path, (model,))[model]
    if (name, model) in (("twice", "monotonic-reads"), ("twice", "write-atomicity")):
        assert verdict.valid is True
        return
    assert verdict.valid == "unknown"
    assert verdict.details["lists_undecided"] == {"twice": 2, "whole": 1, "deleted": 1}[name]
    assert f"{verdict.details['lists_undecided']} " in verdict.reason


BOTH = Row(0, 1, 0, (("append", 0, 1), ("append", 1, 1)))
PAGES_NOT_JUDGED = {
    "twice": [BOTH, appended(2, 1, 1), Row(4, 5, 0, (("r", 0, (1,)), ("r", 1, ())))],
    "mixed": [Row(0, 1, 0, (("append", 0, 1), ("w", 1, 7))), Row(2, 3, 1, (("r", 0, (1,)), ("r", 1, None)))],
}


@pytest.mark.parametrize("name", PAGES_NOT_JUDGED)
def test_partition_writes_of_what_no_list_shows_are_unknown(name, tmp_path):
    verdict = judged(PAGES_NOT_JUDGED[name], tmp_path, ("write-atomicity",))["write-atomicity"]
    assert (verdict.valid, verdict.details["lists_undecided"]) == ("unknown", 1)


def test_repeated_appends_matter_to_monotonic_reads_only_where_lists_contradict_each_other(tmp_path):
    rows = [appended(0, 0, 1), appended(2, 1, 1), appended(4, 1, 2), read(6, 0, 1, 1, 2), read(8, 1, 2, 1)]
    verdict = judged(rows, tmp_path, ("monotonic-reads",))["monotonic-reads"]
    assert (verdict.valid, verdict.details["lists_undecided"]) == ("unknown", 2)


OTHER = read(20, 8, 9, mode="ONE")
"""Contradicts the longest list of a history, with an element that nobody appended."""

ODD = {
    "an element's first place counts": ([appended(0, 0, 1), appended(2, 0, 2), read(4, 1, 1, 2, 1), OTHER], {}),
    "read before it was appended": ([read(0, 0, 1, 2), appended(2, 0, 2), read(4, 1, 1, 2), OTHER], {}),
    "what had not completed": (
        [Row(0, 9, 0, (("append", 0, 1),)), appended(1, 0, 2), read(3, 0, 3, 2), read(5, 1, 1, 2, 3), OTHER],
        {},
    ),
    "what had completed in a session of overlapping operations": (
        [Row(0, 9, 0, (("append", 0, 1),)), appended(1, 0, 2), read(3, 0, 3, 1), read(5, 1, 1, 2, 3), OTHER],
        {"missed-own-write": 1},
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_orders_are_judged_by_the_definition(name, tmp_path):
    rows, counts = ODD[name]
    found = judged(rows, tmp_path, GUARANTEES[2:])
    assert all((verdict.valid is False) is bool(verdict.counts) for verdict in found.values())
    assert {anomaly: n for verdict in found.values() for anomaly, n in verdict.counts.items()} == counts


CONTRADICTORY = Row(20, 21, 8, (("r", 1, (9, 8, 7)), ("r", 2, ())))
TWO_AND_ONE = Row(0, 1, 0, (("append", 0, 1), ("append", 0, 2), ("append", 2, 3)))
ODD_PAGES = {
    "a write's second element of a list": (
        [TWO_AND_ONE, Row(2, 3, 1, (("r", 2, (3,)), ("r", 0, (1,)), ("r", 1, (5,))))],
        1,
    ),
    "a list that is read twice": (
        [TWO_AND_ONE, Row(2, 3, 1, (("r", 2, (3,)), ("r", 0, (1, 2)), ("r", 0, ()), ("r", 1, (5,))))],
        1,
    ),
    "a page's own write": ([Row(0, 1, 0, (("r", 0, ()), ("append", 0, 1), ("append", 1, 5), ("r", 1, (5,))))], 0),
}


@pytest.mark.parametrize("name", ODD_PAGES)
def test_odd_pages_are_judged_by_the_definition(name, tmp_path):
    rows, torn = ODD_PAGES[name]
    verdict = judged([*rows, CONTRADICTORY], tmp_path, ("write-atomicity",))["write-atomicity"]
    assert (verdict.valid is False, sum(verdict.counts.values())) == (bool(torn), torn)


def random_lists(seed):
    """Lists of one cell: mostly what was appended in order, sometimes with elements left out or in other places."""
    random_ = random.Random(seed)
    rows, items = [], []
    spans = intervals(random_, random_.randint(3, 8), random_.randint(1, 3))
    wild = random_.choice((0.1, 0.6))
    for begin, end, session in spans:
        if random_.random() < 0.5:
            element = len(items) + 1 if random_.random() < 0.97 or not items else random_.choice(items)
            items.insert(random_.choice((len(items), len(items), random_.randint(0, len(items)))), element)
            status = random_.choices(("ok", "info"), (9, 1))[0]
            end = end if status == "ok" else None
            rows.append(Row(begin, end, session, (("append", 0, element),), status))
        else:
            shown = list(dict.fromkeys(items))[: len(items) - random_.choice((0, 0, 0, 1, 2))]
            if random_.random() < wild:
                random_.shuffle(shown)
            if random_.random() < wild and shown:
                shown.pop(random_.randrange(len(shown)))
            value = tuple(shown) if shown or random_.random() < 0.5 else None
            rows.append(Row(begin, end, session, (("r", 0, value),), mode=random_.choice((None, "ONE"))))
    return rows


def appends_of(rows):
    return [(row, row.mops[0][2]) for row in rows if row.mops[0][0] == "append"]


def reads_of(rows):
    return [(row, row.mops[0][2] or ()) for row in rows if row.mops[0][0] == "r"]


def repeated(rows):
    appended = [element for _, element in appends_of(rows)]
    return {element for element in appended if appended.count(element) > 1}


def earlier_in_session(rows, row):
    done = [one for one in rows if one.status == "ok" and one.end < row.begin and one.session == row.session]
    return {element for _, element in appends_of(done)}, {item for _, shown in reads_of(done) for item in shown}


def breaking(rows):
    """By guarantee the beginnings of operations that break it, from the definitions."""
    guilty = {name: set() for name in BY_CODE[1:]}
    for row, shown in reads_of(rows):
        if earlier_in_session(rows, row)[0] - set(shown):
            guilty["read-your-writes"].add(row.begin)
    for row, element in appends_of(rows):
        if element in repeated(rows):
            continue
        for _, shown in reads_of(rows):
            before = set(shown[: shown.index(element)]) if element in shown else None
            for name, known in zip(BY_CODE[2:], earlier_in_session(rows, row), strict=True):
                if before is not None and known - before - {element}:
                    guilty[name].add(row.begin)
    return guilty


def invocations(histories):
    """By history the indices of events, side by side, by `begin`."""
    first = 0
    for rows in histories:
        marks = sorted(mark for row in rows for mark in (row.begin, row.end) if mark is not None)
        yield {mark: first + place for place, mark in enumerate(marks)}
        first += len(marks)


@pytest.mark.parametrize("many", [1_000, pytest.param(20_000, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", BY_CODE[1:])
def test_every_operation_is_judged_by_the_definition(name, many):
    histories = [random_lists(seed) for seed in range(many)]
    found = SessionKernel((name,), MANY)(flattened(side_by_side(histories), PROJECTION))
    guilty = [breaking(rows)[name] for rows in histories]
    expected = {at[begin] for begins, at in zip(guilty, invocations(histories), strict=True) for begin in begins}
    assert {finding.ops[0] for finding in found.kept} == expected
    assert found.counts == {ANOMALIES[BY_CODE.index(name)]: len(expected)}
    assert many // 50 < sum(map(bool, guilty)) < many - many // 20
    doubled = sum(element in repeated(rows) for rows in histories for _, element in appends_of(rows))
    assert found.figures[UNDECIDED] == doubled > many // 50


@pytest.mark.parametrize("many", [1_000, pytest.param(20_000, marks=pytest.mark.campaign)])
def test_every_read_that_omits_something_counts_once(many):
    histories = [random_lists(seed) for seed in range(many)]
    found = SessionKernel(BY_CODE[:1], MANY)(flattened(side_by_side(histories), PROJECTION))
    expected = [
        at[begin] for rows, at in zip(histories, invocations(histories), strict=True) for begin in omitting(rows)
    ]
    assert sorted(finding.ops[0] for finding in found.kept) == sorted(expected)
    assert found.counts == {ANOMALIES[0]: len(expected)}
