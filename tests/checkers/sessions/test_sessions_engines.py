"""The same verdicts on both engines: injected anomalies, valid histories, and what must not hurt."""

import msgspec
import pyarrow.parquet as pq
import pytest
from naive_pages import drawn as drawn_pages
from naive_sessions import drawn as drawn_sessions
from session_histories import Row, events_of, side_by_side
from test_appended_lists import random_lists as random_sessions
from test_monotonic_reads import random_lists, random_registers
from test_write_atomicity import random_lists as random_pages

from checkers.api import check_run, judge_source
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.made.isolation import TransactionShape, write_transaction_history
from checkers.made.pages import PageShape, write_page_history
from checkers.options import CheckOptions
from harness.errors import UserError
from harness.history.ops import Mop, Op
from harness.history.table import write_parquet

GUARANTEES = ("sessions", "monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads")
MODELS = (*GUARANTEES, "write-atomicity", "isolation", "snapshot-reads", "change-feed")


def verdicts(path, models=MODELS):
    return check_run(path, models, engine="local")


@pytest.mark.parametrize("stamped", [False, True])
def test_synthetic_pages_are_valid_until_something_is_injected(stamped, tmp_path):
    path = tmp_path / "history.parquet"
    shape = PageShape(6000, partitions=40, stamped=stamped)
    write_page_history(shape, path)
    found = verdicts(path)
    assert all(found[model].valid is True for model in MODELS[:6])
    assert found["write-atomicity"].details["pages"] > 2000
    write_page_history(msgspec_replace(shape, anomaly="torn-read"), path)
    torn = verdicts(path, ("write-atomicity",))["write-atomicity"]
    assert torn.valid is False and torn.counts == {"torn-read": 1}
    assert [step["kind"] for step in torn.anomalies["torn-read"][0].steps] == ["wr", "rw"]
    write_page_history(msgspec_replace(shape, anomaly="non-monotonic-read"), path)
    stale = verdicts(path, ("monotonic-reads", "write-atomicity"))
    assert set(stale["monotonic-reads"].counts) == {"non-monotonic-read"}
    assert stale["write-atomicity"].valid is True


def msgspec_replace(shape, **changes):
    fields = {name: getattr(shape, name) for name in shape.__dataclass_fields__}
    return type(shape)(**(fields | changes))


INJECTED = {
    "none": ("causal", set()),
    "causal": ("read-atomic", {"COConflictAO"}),
    "fractured": ("read-committed", {"FracturedReadCO"}),
    "AbortedRead": ("none", {"AbortedRead"}),
    "ThinAirRead": ("none", {"ThinAirRead"}),
}


@pytest.mark.parametrize("anomaly", INJECTED)
def test_synthetic_transactions_break_just_what_was_injected(anomaly, tmp_path):
    path = tmp_path / "history.parquet"
    write_transaction_history(TransactionShape(3000, keys=100, anomaly=anomaly), path)
    verdict = verdicts(path, ("isolation",))["isolation"]
    assert (verdict.strongest, set(verdict.counts)) == INJECTED[anomaly]


def history(*ops):
    return [
        event
        for place, call in enumerate(ops)
        for event in (
            Op("invoke", call.process, call.f, call.mops, index=2 * place, time=place),
            msgspec.structs.replace(call, index=2 * place + 1, time=place),
        )
    ]


EXTREMES = (Mop("w", -(2**61), 2**63 - 1), Mop("r", 2**63 - 1, None), Mop("r", -(2**61), 2**63 - 1))
ODD = {
    "empty": [],
    "nemesis": [Op("info", -1, "kill", value={"fault": "kill"}, index=0, time=0)],
    "no mops": history(Op("ok", 0, "txn")),
    "one read": history(Op("ok", 0, "read", (Mop("r", 1, None),))),
    "only unknown": [Op("invoke", 0, "write", (Mop("w", 1, 1),), index=0, time=0)],
    "extremes": history(*(Op("ok", 0, "txn", (mop,)) for mop in EXTREMES)),
}


OF_TIMESTAMPS = ("change-feed", "snapshot-reads")
"""Models of promises about timestamps, of which these histories have none."""


@pytest.mark.parametrize("name", ODD)
def test_odd_histories_are_valid_or_unknown(name, tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(ODD[name], path)
    for model, verdict in verdicts(path).items():
        done = [event for event in ODD[name] if event.type == "ok" and event.process >= 0]
        shown = any(mop.f == "r" for event in done for mop in event.mops)
        assert verdict.valid == ("unknown" if not shown or model in OF_TIMESTAMPS else True), (model, verdict)


def test_what_a_model_does_not_know_is_refused(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet(history(Op("ok", 0, "dequeue", (Mop("dequeue", 1, 1),))), path)
    for model in MODELS:
        with pytest.raises(UserError, match="event 0"):
            verdicts(path, (model,))


def same(path, model, spark):
    from checkers.models import MODELS as REGISTRY

    source = open_source(path)
    both = [REGISTRY[model].judge(source, engine, CheckOptions()) for engine in (LocalEngine(), spark)]
    one, other = (msgspec.structs.replace(verdict, engine="", seconds=0.0) for verdict in both)
    assert one == other
    return one


@pytest.mark.spark
def test_spark_says_the_same(spark, tmp_path):
    path = tmp_path / "history.parquet"
    for anomaly, model, valid in (
        ("none", "monotonic-reads", True),
        ("torn-read", "write-atomicity", False),
        ("non-monotonic-read", "write-atomicity", True),
        ("non-monotonic-read", "monotonic-reads", False),
    ):
        write_page_history(PageShape(20_000, partitions=50, anomaly=anomaly, stamped=anomaly == "none"), path)
        assert same(path, model, spark).valid is valid
    write_transaction_history(TransactionShape(5000, keys=100, anomaly="causal"), path)
    assert same(path, "isolation", spark).strongest == "read-atomic"


@pytest.mark.spark
def test_spark_says_the_same_of_lists_snapshots_and_feeds(spark, tmp_path):
    rows = [
        Row(0, 1, 0, (("append", 0, 1), ("append", 1, 2))),
        Row(2, 3, 1, (("r", 0, (1,)), ("r", 1, (2,)))),
        Row(4, 5, 2, (("r", 0, (1,)), ("r", 1, ()))),
    ]
    path = tmp_path / "history.parquet"
    write_parquet(events_of(rows), path)
    assert same(path, "write-atomicity", spark).counts == {"torn-read": 1}
    assert same(path, "sessions", spark).counts == {"non-monotonic-read": 1}
    rows = [
        Row(0, 1, 0, (("w", 0, 1),), served_ts=10),
        Row(2, 3, 0, (("r", 0, None),), requested_ts=20),
        Row(4, 5, 7, (("w", 0, 2),), served_ts=15),
    ]
    events = events_of(rows)
    events.append(Op("info", -2, "feed-resolved", index=6, time=6, session=1, served_ts=30))
    write_parquet(events, path)
    assert set(same(path, "snapshot-reads", spark).counts) == {"late-commit"}
    assert same(path, "change-feed", spark).counts == {"missing-row": 2}


@pytest.mark.spark
def test_spark_says_the_same_of_operations_of_one_session_that_overlap(spark, tmp_path):
    path = tmp_path / "history.parquet"
    histories = [made(seed, overlapping=True) for seed in range(400) for made in (random_registers, random_lists)]
    pq.write_table(side_by_side(histories), path)
    counts = same(path, "sessions", spark).counts
    assert {"non-monotonic-read", "missed-own-write", "contradictory-reads"} <= set(counts)
    write_parquet(events_of([Row(0, 2, 0, (("w", 0, 1),)), Row(1, 3, 0, (("r", 0, None),))]), path)
    for engine in (LocalEngine(), spark):
        with pytest.raises(UserError, match="event 1: began while a transaction of the same session was running"):
            judge_source(open_source(path), "isolation", engine)


@pytest.mark.spark
def test_spark_says_the_same_of_contradictory_lists(spark, tmp_path):
    path = tmp_path / "history.parquet"
    pq.write_table(side_by_side([random_sessions(seed) for seed in range(300)]), path)
    found = {model: same(path, model, spark) for model in GUARANTEES}
    assert len(found["sessions"].counts) == 4
    assert found["sessions"].details["lists_undecided"] > 0
    pq.write_table(side_by_side([random_pages(seed) for seed in range(300)]), path)
    assert set(same(path, "write-atomicity", spark).counts) == {"torn-read"}


@pytest.mark.spark
def test_spark_says_the_same_of_whatever_operations_do(spark, tmp_path):
    """Own writes, values and elements that nobody had begun to write, deletions, what operations wrote over."""
    path = tmp_path / "history.parquet"
    pq.write_table(side_by_side([drawn_sessions(seed) for seed in range(200)]), path)
    verdict = same(path, "sessions", spark)
    assert set(verdict.counts) >= {"non-monotonic-read", "missed-own-write", "contradictory-reads"}
    assert verdict.details["values_unwritten"] > 0 < verdict.details["reads_unclear"]
    pq.write_table(side_by_side([drawn_pages(seed).rows for seed in range(200)]), path)
    verdict = same(path, "write-atomicity", spark)
    assert verdict.counts["torn-read"] > 0 < verdict.details["values_unwritten"]
