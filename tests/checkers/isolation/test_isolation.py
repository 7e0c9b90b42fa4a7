"""Isolation levels: the axioms by brute force, the corpus, names of anomalies, inputs that must not hurt."""

import csv
import random

import numpy as np
import pytest
from reference_isolation import strongest as strongest_by_force

from checkers.api import check
from checkers.columns.codes import NEVER, NIL
from checkers.engines.grouped import judge_mops
from checkers.findings import Findings
from checkers.importers.detect import open_source
from checkers.isolation import judge_isolation as isolation
from checkers.isolation.isolation_levels import LEVELS, REACHED, IsolationKernel
from checkers.options import CheckOptions
from harness.errors import UserError
from harness.history.ops import Mop, Op
from harness.history.table import write_parquet
from tests.support.corpus import CORPUS, needs_corpus
from tests.support.few_seeds import ranges_of

STATUS = {"ok": 0, "info": 1, "fail": 2}


def columns_of(transactions, lasting=None):
    """The rows that engines hand to the kernel; `lasting` says how many later transactions began before each was over
    (None: they came one by one)."""
    rows = [
        (index, place, session, STATUS[status], f == "w", key, NIL if value is None else value)
        for index, (session, status, mops) in enumerate(transactions)
        for place, (f, key, value) in enumerate(mops)
        if f == "w" or status == "ok"
    ]
    table = np.array(rows, np.int64).reshape(-1, 7)
    zeros = np.zeros(len(rows), np.int64)
    columns = {"table": zeros, "partition": table[:, 5], "row": zeros, "column": zeros}
    ends = 2 * (np.arange(len(transactions)) + np.array(lasting or [0] * len(transactions), np.int64)) + 1
    complete = np.where(table[:, 3] == STATUS["ok"], ends[table[:, 0]], NEVER)
    columns |= {"invoke": 2 * table[:, 0], "complete": complete, "place": table[:, 1], "size": zeros + 1}
    return columns | {"kind": table[:, 4], "status": table[:, 3], "value": table[:, 6], "session": table[:, 2]}


def strongest(transactions, highest=LEVELS[-1]):
    """Of the levels up to the highest."""
    found = IsolationKernel(8, highest=LEVELS.index(highest))(columns_of(transactions))
    return next(LEVELS[f.facts["level"]] for f in found.kept if f.anomaly == REACHED), found


def random_history(seed):
    """A few transactions of unique writes. Most histories are clean, so that only commit order can be wrong: reads come
    first and see last writes of others; in the rest reads may see anything that was ever written, or more."""
    random_ = random.Random(seed)
    clean = random_.random() < 0.8
    count, keys, sessions = random_.randint(3 if clean else 1, 5), random_.randint(1, 3), random_.randint(1, 4)
    statuses = random_.choices(("ok", "info", "fail"), (12, 1, 0 if clean else 1), k=count)
    owners = random_.choices(range(count), k=random_.randint(2 if clean else 1, 6))
    writes = [(owner, random_.randrange(keys), value) for value, owner in enumerate(owners)]
    if clean:
        writes = list({(owner, key): (owner, key, value) for owner, key, value in writes}.values())
    transactions = []
    for t in range(count):
        mops = [("w", key, value) for owner, key, value in writes if owner == t]
        for _ in range(random_.randint(0, 3)):
            key = random_.randrange(keys)
            others = [v for owner, k, v in writes if k == key and owner != t]
            earlier = [v for owner, k, v in writes if k == key and owner < t]
            mine = [] if clean else [v for owner, k, v in writes if (owner, k) == (t, key)]
            choices = (earlier if random_.random() < 0.7 else others) + mine
            value = random_.choice(choices) if choices and random_.random() < 0.9 else None
            if not clean and random_.random() < 0.02:
                value = 99
            mops.insert(0 if clean else random_.randint(0, len(mops)), ("r", key, value))
        transactions.append((random_.randrange(sessions), statuses[t], mops))
    return transactions


@pytest.mark.parametrize("seeds", ranges_of(250, 10_000))
def test_agrees_with_trying_every_commit_order(seeds):
    met = dict.fromkeys(LEVELS, 0)
    for seed in seeds:
        history = random_history(seed)
        expected = strongest_by_force(history)
        met[expected] += 1
        for highest in (LEVELS[-1], LEVELS[seed % 3]):
            reached = min(expected, highest, key=LEVELS.index)
            assert strongest(history, highest)[0] == reached, (seed, highest, history)
    assert min(met.values()) > len(seeds) // 300, met


def overlap(transactions, lasting):
    """The first transaction that took effect, and began before an earlier one of its session had succeeded."""
    read = {
        (key, value)
        for _, status, mops in transactions
        for place, (f, key, value) in enumerate(mops)
        if status == "ok" and f == "r" and ("w", key) not in [mop[:2] for mop in mops[:place]]
    }
    committed = [
        t
        for t, (_, status, mops) in enumerate(transactions)
        if (status == "ok" and mops) or (status == "info" and {mop[1:] for mop in mops if mop[0] == "w"} & read)
    ]
    for later in committed:
        for earlier in committed:
            same = transactions[earlier][0] == transactions[later][0] and transactions[earlier][1] == "ok"
            if same and earlier < later <= earlier + lasting[earlier]:
                return later
    return None


@pytest.mark.parametrize("seeds", ranges_of(250, 10_000))
def test_overlapping_transactions_of_one_session_are_refused_and_others_are_not(seeds):
    refused = 0
    for seed in seeds:
        history = random_history(seed)
        random_ = random.Random(seed)
        lasting = [random_.choice((0, 0, 0, 1, 2)) for _ in history]
        found = IsolationKernel(8)(columns_of(history, lasting))
        first = overlap(history, lasting)
        assert [event for event, _ in found.unsupported] == ([] if first is None else [2 * first]), (seed, history)
        assert bool(found.counts) == (first is None)
        refused += first is not None
    assert len(seeds) // 20 < refused < len(seeds) * 19 // 20


@pytest.mark.parametrize("level", ["none", "read-committed"])
def test_more_edges_than_there_is_room_for_at_first_are_all_followed(level):
    """A reader sees the second write of a session and then what that replaced, or the other way round, many times."""
    transactions, many = [], 1_100
    for number in range(many):
        x, y, session = 2 * number, 2 * number + 1, 2 * number
        reads = [("r", x, 1), ("r", y, 0)]
        transactions.append((session, "ok", [("w", y, 0)]))
        transactions.append((session, "ok", [("w", x, 1), ("w", y, 1)]))
        transactions.append((session + 1, "ok", reads if level == "none" else reads[::-1]))
    found, told = strongest(transactions)
    assert found == level
    assert sum(count for name, count in told.counts.items() if name != REACHED) == many


@needs_corpus
def test_formats_of_the_corpus_are_distinguished():
    """What is in them is judged with all others in `test_conformance`."""
    with (CORPUS / "index.tsv").open() as file:
        rows = [row for row in csv.reader(file, delimiter="\t") if len(row) > 3 and row[2] == "isolation"]
    assert len(rows) >= 16
    for file_name, format, *_ in rows:
        told, found = (open_source(CORPUS / file_name, each) for each in (format, "auto"))
        assert (found.format, found.rows, found.table) == (told.format, told.rows, told.table), file_name


NAMED = {
    "ThinAirRead": [(0, "ok", [("r", 1, 7)])],
    "AbortedRead": [(0, "fail", [("w", 1, 7)]), (1, "ok", [("r", 1, 7)])],
    "FutureRead": [(0, "ok", [("r", 1, 7), ("w", 1, 7)])],
    "NotMyOwnWrite": [(0, "ok", [("w", 1, 1)]), (1, "ok", [("w", 1, 2), ("r", 1, 1)])],
    "NotMyLastWrite": [(0, "ok", [("w", 1, 1), ("w", 1, 2), ("r", 1, 1)])],
    "IntermediateRead": [(0, "ok", [("w", 1, 1), ("w", 1, 2)]), (1, "ok", [("r", 1, 1)])],
    "CyclicCO": [
        (0, "ok", [("r", 1, 1), ("w", 2, 1)]),
        (1, "ok", [("r", 2, 1)]),
        (1, "ok", [("w", 1, 1)]),
    ],
    "NonMonoReadCO": [
        (0, "ok", [("w", 1, 1)]),
        (0, "ok", [("w", 1, 2), ("w", 2, 2)]),
        (1, "ok", [("r", 2, 2), ("r", 1, 1)]),
    ],
    "NonRepeatableRead": [(0, "ok", [("w", 1, 1)]), (1, "ok", [("w", 1, 2)]), (2, "ok", [("r", 1, 1), ("r", 1, 2)])],
    "FracturedReadCO": [
        (0, "ok", [("w", 1, 1)]),
        (0, "ok", [("w", 1, 2), ("w", 2, 2)]),
        (1, "ok", [("r", 1, 1), ("r", 2, 2)]),
    ],
    "FracturedReadAO": [
        (0, "ok", [("w", 1, 1), ("w", 2, 1)]),
        (1, "ok", [("w", 1, 2), ("w", 2, 2)]),
        (2, "ok", [("r", 1, 1), ("r", 2, 2)]),
    ],
    "COConflictAO": [
        (0, "ok", [("w", 1, 1)]),
        (0, "ok", [("w", 1, 2), ("w", 2, 2)]),
        (1, "ok", [("r", 2, 2)]),
        (1, "ok", [("w", 3, 3)]),
        (2, "ok", [("r", 3, 3), ("r", 1, 1)]),
    ],
    "ConflictAO": [
        (0, "ok", [("w", 1, 1)]),
        (0, "ok", [("w", 4, 4)]),
        (1, "ok", [("w", 1, 2)]),
        (1, "ok", [("w", 5, 5)]),
        (2, "ok", [("r", 4, 4), ("r", 1, 2)]),
        (2, "ok", [("r", 5, 5)]),
        (3, "ok", [("r", 5, 5), ("r", 1, 1)]),
        (3, "ok", [("r", 4, 4)]),
    ],
}


@pytest.mark.parametrize("name", NAMED)
def test_names_the_anomaly_and_says_why(name, tmp_path):
    verdict = check(save(NAMED[name], tmp_path), "isolation", engine="local")
    assert verdict.valid is False
    assert verdict.counts == {name: 1}
    (anomaly,) = verdict.anomalies[name]
    assert anomaly.ops and anomaly.message.endswith(".")
    for step, following in zip(anomaly.steps, anomaly.steps[1:] + anomaly.steps[:1], strict=True):
        assert step["target"] == following["source"]
        assert step["why"]


def test_a_value_written_before_and_after_it_was_read_is_no_future_one(tmp_path):
    """It was said to have been written only afterwards."""
    mops = [("w", 1, 1), ("w", 1, 2), ("r", 1, 1), ("w", 1, 1)]
    verdict = check(save([(0, "ok", mops)], tmp_path), "isolation", engine="local")
    assert verdict.counts == {"NotMyLastWrite": 1}
    assert "although it had written 2 there since" in verdict.anomalies["NotMyLastWrite"][0].message


def save(transactions, folder):
    events = []
    for number, (session, status, mops) in enumerate(transactions):
        told = tuple(Mop(f, key, value) for f, key, value in mops)
        asked = tuple(Mop(f, key, value if f == "w" else None) for f, key, value in mops)
        call = Op("invoke", number, "txn", asked, index=2 * number, time=2 * number, session=session)
        events.append(call)
        events.append(call.complete(status, mops=told, index=2 * number + 1, time=2 * number + 1))
    path = folder / "history.parquet"
    write_parquet(events, path)
    return path


def test_weaker_levels_may_be_asked_for(tmp_path):
    path = save(NAMED["FracturedReadAO"], tmp_path)
    verdict = check(path, "isolation", engine="local", options=CheckOptions(consistency="read-committed"))
    assert (verdict.valid, verdict.strongest, verdict.counts) == (True, None, {})
    assert verdict.details["not_tried"] == ("read-atomic", "causal")
    refuted = check(path, "isolation", engine="local", options=CheckOptions(consistency="read-atomic"))
    assert (refuted.valid, refuted.strongest, refuted.counts) == (False, "read-committed", {"FracturedReadAO": 1})
    with pytest.raises(UserError, match="knows the levels"):
        check(path, "isolation", engine="local", options=CheckOptions(consistency="serializable"))


def test_an_observed_write_of_unknown_outcome_took_effect():
    history = [(0, "info", [("w", 1, 1), ("w", 2, 1)]), (1, "ok", [("r", 2, None), ("r", 1, 1)])]
    assert strongest(history)[0] == "read-committed"
    assert strongest([(0, "info", [("w", 1, 1)]), (0, "ok", [("r", 1, None)]), (1, "ok", [("r", 1, 1)])])[0] == "causal"


def test_reads_with_several_possible_writers_conclude_nothing(tmp_path):
    history = [(0, "ok", [("w", 1, 1)]), (1, "ok", [("w", 1, 1)]), (2, "ok", [("r", 1, 1)])]
    verdict = check(save(history, tmp_path), "isolation", engine="local")
    assert verdict.valid == "unknown" and verdict.details["unclear_reads"] == 1
    refuted = [*history, (3, "ok", [("r", 2, 5)])]
    assert check(save(refuted, tmp_path), "isolation", engine="local").valid is False


@pytest.mark.parametrize(
    "transactions",
    [
        [],
        [(0, "ok", [])],
        [(0, "info", [("w", 1, 1)])],
        [(0, "ok", [("r", 1, None)])],
        [(0, "ok", [("w", 2**63 - 1, 2**63 - 1)]), (1, "ok", [("r", 2**63 - 1, 2**63 - 1), ("r", -(2**61), None)])],
        [(0, "ok", [("w", 1, None)]), (0, "ok", [("w", 1, 3)]), (1, "ok", [("r", 1, 3)])],
    ],
)
def test_small_and_odd_histories_are_causal(transactions, tmp_path):
    verdict = check(save(transactions, tmp_path), "isolation", engine="local")
    something_read = any(status == "ok" and mop[0] == "r" for _, status, mops in transactions for mop in mops)
    expected = (True, "causal") if something_read else ("unknown", None)
    assert (verdict.valid, verdict.strongest) == expected


@pytest.mark.parametrize("refuted", [False, True])
def test_no_level_is_claimed_of_what_was_not_judged_whole(refuted, tmp_path, monkeypatch):
    def some(engine, *_):
        found = judge_mops(engine, *_)
        engine.skipped.append("One part is too large.")
        return found if refuted else Findings()

    monkeypatch.setattr(isolation, "judge_mops", some)
    verdict = check(save([(0, "ok", [("r", 1, 7)])], tmp_path), "isolation", engine="local")
    assert (verdict.valid, verdict.strongest) == (False if refuted else "unknown", None)


def test_other_operations_are_refused(tmp_path):
    call = Op("invoke", 0, "txn", (Mop("append", 1, 1),), index=0, time=0)
    path = tmp_path / "history.parquet"
    write_parquet([call, call.complete("ok", index=1, time=1)], path)
    with pytest.raises(UserError, match="event 0"):
        check(path, "isolation", engine="local")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("r(1,1,0,0)\nw(1,2,0", "line 2"),
        ("r 1 1\n-----\nw 1\n", "line 3"),
        ("w(99999999999999999999,1,0,0)\n", "64 bits"),
        (f"w 1 {-(2**63)}\n", "least"),
    ],
)
def test_broken_text_is_refused_with_its_line(text, complaint, tmp_path):
    path = tmp_path / "history.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=complaint):
        check(path, "isolation", engine="local")


def test_aborted_transactions_of_plume_are_distinguished(tmp_path):
    path = tmp_path / "history.txt"
    path.write_text("w(1,1,0,-1)\nw(1,2,0,3)\nw(1,3,1,-1)\nr(1,2,1,4)\nr(1,1,1,5)\n")
    verdict = check(path, "isolation", engine="local")
    assert verdict.counts == {"AbortedRead": 1}
    assert verdict.ops == 5


def serial_history(seed):
    """Transactions that run one after the other, and how many values were written."""
    random_ = random.Random(seed)
    held, transactions, written = {}, [], 0
    for _ in range(5):
        mops = []
        for key in random_.sample(range(3), random_.randint(1, 3)):
            mops.append(("r", key, held.get(key)))
        for key in random_.sample(range(3), random_.randint(0, 2)):
            written += 1
            held[key] = written
            mops.append(("w", key, written))
        transactions.append((random_.randrange(3), "ok", mops))
    return transactions


def mutated(transactions, seed):
    """One read shows another value of its key, or one write is gone."""
    random_ = random.Random(seed)
    t = random_.randrange(len(transactions))
    session, status, mops = transactions[t]
    place = random_.randrange(len(mops))
    f, key, _ = mops[place]
    values = [None] + [v for _, _, inside in transactions for f_, k, v in inside if f_ == "w" and k == key]
    changed = [("r", key, random_.choice(values))] if f == "r" else []
    return [*transactions[:t], (session, status, mops[:place] + changed + mops[place + 1 :]), *transactions[t + 1 :]]


@pytest.mark.parametrize("seeds", ranges_of(100, 4_000))
def test_mutations_of_serial_histories_agree_with_the_axioms(seeds):
    met = dict.fromkeys(LEVELS, 0)
    for seed in seeds:
        history = serial_history(seed)
        assert strongest(history)[0] == "causal"
        corrupted = mutated(history, seed)
        expected = strongest_by_force(corrupted)
        assert strongest(corrupted)[0] == expected, (seed, corrupted)
        met[expected] += 1
    assert met["causal"] < 11 * len(seeds) // 12 and met["none"] > len(seeds) // 24, met
