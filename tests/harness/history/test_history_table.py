"""The history table has one row per operation, in order of invocation, whatever the interleaving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.errors import UserError
from harness.generators import any_of, clients, draw, invoke, limit, nemesis
from harness.generators.simulate import simulate
from harness.history.columns import SCHEMA, SCHEMA_VERSION, VERSION_KEY
from harness.history.ops import Mop, Op, read, write
from harness.history.summary import summarise_events, summarise_parquet
from harness.history.table import difference, pairs, to_table, write_batches, write_parquet
from tests.support.few_seeds import few_examples


def history(seed: int, ops: int, concurrency: int) -> list[Op]:
    """A simulated history with all completion types, a nemesis, and operations that never complete at its end."""
    work = draw(seed, lambda context, chance, n: invoke("write", write(chance.below(3), n), read(n)))
    faults = draw(seed, lambda context, chance, n: invoke("kill", value={"n": n}))
    source = limit(ops, any_of(clients(work), nemesis(faults)))
    types = ("ok", "fail", "info")
    events = simulate(
        source,
        concurrency=concurrency,
        nemesis=True,
        latency=lambda op, n: (10 * (1 + (n * 7 + seed) % 11), types[n % 3]),
    )
    return [replace(one, index=index, phase="main") for index, one in enumerate(events)]


def naive_rows(events: list[Op]) -> list[tuple[Op, Op | None]]:
    rows = []
    for position, one in enumerate(events):
        if one.type == "invoke":
            later = (other for other in events[position + 1 :] if other.process == one.process)
            rows.append((one, next(later, None)))
    return rows


@given(seed=st.integers(0, 1000), ops=st.integers(0, 60), concurrency=st.integers(1, 8), kept=st.floats(0, 1))
def test_rows_are_operations_in_order_of_invocation(seed: int, ops: int, concurrency: int, kept: float) -> None:
    events = history(seed, ops, concurrency)
    events = events[: int(len(events) * kept)]
    expected = naive_rows(events)
    assert list(pairs(events)) == expected
    rows = to_table(events).to_pylist()
    assert [row["op"] for row in rows] == list(range(len(expected)))
    for row, (invocation, completion) in zip(rows, expected, strict=True):
        assert (row["invoke_index"], row["invoke_time"]) == (invocation.index, invocation.time)
        assert row["complete_index"] == (completion.index if completion else None)
        assert row["complete_time"] == (completion.time if completion else None)
        assert row["type"] == (completion.type if completion else "info")
        assert (row["process"], row["f"]) == (invocation.process, invocation.f)
        assert [mop["partition"] for mop in row["mops"] or []] == [mop.partition for mop in invocation.mops]


@few_examples(15)
@given(seed=st.integers(0, 1000), ops=st.integers(0, 50), group=st.integers(1, 20))
def test_parquet_is_the_same_in_any_row_groups(
    tmp_path_factory: pytest.TempPathFactory, seed: int, ops: int, group: int
) -> None:
    path = tmp_path_factory.mktemp("table") / "history.parquet"
    events = history(seed, ops, 4)
    assert write_parquet(events, path, rows_per_group=group) == ops
    file = pq.ParquetFile(path)
    assert file.schema_arrow.equals(SCHEMA)
    assert file.metadata.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
    assert file.metadata.num_row_groups == -(-ops // group)
    assert file.read().to_pylist() == to_table(events).to_pylist()
    assert summarise_parquet(path) == summarise_events(events)


def test_reads_carry_what_the_completion_saw_and_the_rest_falls_back() -> None:
    invocation = Op("invoke", 0, "read", (read(4),), index=0, time=1, mode="strong", session=9)
    answered = invocation.complete("ok", mops=(Mop("r", 4, 17),), index=1, time=5, node="n2", served_ts=3)
    [row] = to_table([invocation, answered]).to_pylist()
    assert row["mops"][0]["value"] == 17
    assert (row["node"], row["mode"], row["session"], row["served_ts"]) == ("n2", "strong", 9, 3)
    forgetful = Op("info", 0, "read", index=1, time=5, error_class="timeout", error="late")
    [row] = to_table([invocation, forgetful]).to_pylist()
    assert row["mops"][0]["partition"] == 4
    assert (row["type"], row["error_class"], row["error"]) == ("info", "timeout", "late")


def test_lists_values_and_extremes_survive() -> None:
    mop = Mop("append", 2**62, -(2**63), 2**63 - 1, (1, -2, 3), table=2, row=5, column=7)
    events = [
        Op("invoke", 0, "txn", (mop, read(1)), {"a": [1, None]}, index=0, time=0),
        Op("ok", 0, "txn", (mop, read(1)), index=1, time=1),
    ]
    [row] = to_table(events).to_pylist()
    assert row["mops"][0] == {
        "f": "append",
        "partition": 2**62,
        "value": -(2**63),
        "expected": 2**63 - 1,
        "values": [1, -2, 3],
        "table": 2,
        "row": 5,
        "column": 7,
    }
    assert row["mops"][1]["values"] is None
    assert json.loads(row["value"]) == {"a": [1, None]}


def test_an_unsolicited_event_is_a_row_of_its_own() -> None:
    [row] = to_table([Op("info", -2, "change", value={"ts": 3}, index=0, time=8)]).to_pylist()
    assert (row["invoke_index"], row["complete_index"], row["complete_time"], row["type"]) == (0, 0, 8, "info")
    assert row["mops"] is None


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([Op("ok", 3, "read", index=0, time=0)], "process 3 completes what it has not invoked"),
        (
            [Op("invoke", 1, "read", index=0, time=0), Op("invoke", 1, "read", index=1, time=0)],
            "last operation is open",
        ),
    ],
)
def test_an_inconsistent_history_is_refused_and_leaves_no_file(tmp_path: Path, events: list[Op], words: str) -> None:
    with pytest.raises(UserError, match=words):
        write_parquet(events, tmp_path / "history.parquet")
    assert list(tmp_path.iterdir()) == []


def test_pairing_holds_only_what_is_open() -> None:
    """Rows come out while the history is still being read, so memory does not grow with it."""
    consumed = 0

    def endless() -> Iterator[Op]:
        nonlocal consumed
        while True:
            invocation = Op("invoke", 0, "read", index=consumed, time=consumed)
            consumed += 2
            yield invocation
            yield invocation.complete("ok", index=consumed - 1)

    rows = pairs(endless())
    for _ in range(1000):
        next(rows)
    assert consumed <= 2002


def other(table: pa.Table, name: str, row: int, value: object) -> pa.Table:
    """The table with one value changed."""
    column = table.column(name).to_pylist()
    column[row] = value
    return table.set_column(
        table.column_names.index(name), SCHEMA.field(name), pa.array(column, SCHEMA.field(name).type)
    )


def test_a_table_is_compared_with_its_events_row_by_row(tmp_path: Path) -> None:
    events = history(5, 60, 4)
    table, path = to_table(events), tmp_path / "history.parquet"
    mops = table.column("mops").to_pylist()
    row = next(place for place, each in enumerate(mops) if each)
    unread = [{**mop, "value": 7} if mop["f"] == "r" else mop for mop in mops[row]]
    last = table.num_rows - 1
    changed = {
        None: table,
        f"row {row} differs": other(table, "mops", row, unread),
        f"row {last} differs": other(table, "complete_time", last, 1),
        f"it ends before row {last}": table.slice(0, last),
        f"row {table.num_rows} differs": pa.concat_tables([table, table.slice(last)]),
    }
    for words, each in changed.items():
        for most in (5, 1000):
            write_batches(each.to_batches(max_chunksize=most), path)
            assert difference(events, path) == words
    assert difference(events[:0], path) == "row 0 differs"
    whole = path.read_bytes()
    path.write_bytes(whole[:2000] + bytes([whole[2000] ^ 4]) + whole[2001:])
    with pytest.raises(UserError, match="damaged"):
        difference(events, path)
