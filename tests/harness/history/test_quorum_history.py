"""What histories of quorum tables carry beside others' fields, through every form that a history has."""

import pyarrow.parquet as pq
import pytest

from checkers.exporters.edn import write_edn
from checkers.importers.detect import open_source
from harness.errors import UserError
from harness.history.columns import LATER_COLUMNS, TIMED_COLUMNS
from harness.history.journal import JournalWriter, read_journal
from harness.history.ops import Mop, Op, delete, page
from harness.history.table import to_table, write_parquet

LEVEL = {"mode": "LOCAL_QUORUM", "data_centre": "dc1", "replication": "dc1:3,dc2:3"}


def events():
    """A write, a write of unknown outcome that deletes, and a page that ended at its limit."""
    write = Op("invoke", 0, "txn", (Mop("w", 7, 1, row=3), Mop("w", 7, None, row=4)), write_ts=40, **LEVEL)
    gone = Op("invoke", 1, "txn", (delete(7), delete(7, 5, 5), delete(7, 9)), write_ts=50, **LEVEL)
    asked = Op("invoke", 2, "txn", (page(7, 2, None, 2),), **LEVEL)
    shown = (page(7, 2, None, 2, 4), Mop("r", 7, 1, row=3), Mop("r", 7, 2, row=4, column=1))
    found = [write, write.complete("ok", write_ts=None, replicas="n1,n2"), gone, gone.complete("info")]
    found += [asked, asked.complete("ok", mops=shown, replicas="n2,n3")]
    return [event.complete(event.type, index=place, time=place) for place, event in enumerate(found)]


def said(rows):
    names = ("mode", "write_ts", "data_centre", "replication", "replicas")
    return [tuple(row[name] for name in names) for row in rows]


EXPECTED = [
    ("LOCAL_QUORUM", 40, "dc1", "dc1:3,dc2:3", "n1,n2"),
    ("LOCAL_QUORUM", 50, "dc1", "dc1:3,dc2:3", None),
    ("LOCAL_QUORUM", None, "dc1", "dc1:3,dc2:3", "n2,n3"),
]


def test_the_table_has_the_invocations_timestamp_and_the_bounds(tmp_path):
    rows = to_table(events()).to_pylist()
    assert said(rows) == EXPECTED
    assert [mop["values"] for mop in rows[1]["mops"]] == [[None, None], [5, 5], [9, None]]
    assert rows[2]["mops"][0]["values"] == [2, None, 2, 4]
    journal = JournalWriter(tmp_path / "journal")
    for event in events():
        journal.append(event)
    journal.close()
    assert list(read_journal(tmp_path / "journal")) == events()


def test_edn_says_levels_and_timestamps_and_refuses_open_bounds(tmp_path):
    path = tmp_path / "history.parquet"
    write_parquet([event for event in events() if event.process == 0], path)
    write_edn(open_source(path), tmp_path / "history.edn")
    back = open_source(tmp_path / "history.edn").table
    assert back is not None and said(back.to_pylist()) == EXPECTED[:1]
    write_parquet(events(), path)
    with pytest.raises(UserError, match="can't be said in EDN"):
        write_edn(open_source(path), tmp_path / "history.edn")


def test_a_file_from_before_these_columns_is_read_as_having_none(tmp_path):
    path, older = tmp_path / "history.parquet", tmp_path / "older.parquet"
    write_parquet(events(), path)
    table = pq.read_table(path)
    kept = {key: value for key, value in table.schema.metadata.items() if b"seal" not in key}
    pq.write_table(table.drop_columns(list(LATER_COLUMNS)).replace_schema_metadata(kept), older)
    source = open_source(older)
    (batch,) = source.batches(["invoke_index", *sorted(LATER_COLUMNS)])
    assert all(batch.column(name).null_count == 3 for name in LATER_COLUMNS)
    assert source.operations([0], ("write_ts",))[0]["f"] == "txn"


def test_times_and_routes_of_reads_go_through_every_form(tmp_path):
    said = {"region": "z2", "route": "follower by log", "min_ts": 5, "closed_ts": 9, "unblocked_ts": 8, "blocked_ns": 0}
    read = Op("invoke", 0, "read", (Mop("r", 7),), index=0, time=0)
    done = read.complete("ok", mops=(Mop("r", 7, 1),), served_ts=8, latest_ts=20, **said, index=1, time=1)
    path = tmp_path / "history.parquet"
    write_parquet([read, done], path)
    write_edn(open_source(path), tmp_path / "history.edn")
    for source in (open_source(path), open_source(tmp_path / "history.edn")):
        (batch,) = source.batches(["invoke_index", *TIMED_COLUMNS])
        assert batch.to_pylist() == [{"invoke_index": 0, "latest_ts": 20, **said}]
