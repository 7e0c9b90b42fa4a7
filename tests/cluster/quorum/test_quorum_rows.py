"""Rows of quorum tables: merging is last-write-wins, whatever the order and grouping; keys sort as their values do."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.log.frames import OtherVersion
from cluster.quorum.deletions import Deletion, RangeDeletion, add_range
from cluster.quorum.keys import ABOVE, InvalidKey, decode_key, encode_key, place_of, token_of
from cluster.quorum.mutation import (
    InvalidMutation,
    MutationBuilder,
    PartitionMutation,
    check_mutation,
    decode_mutation,
    encode_mutation,
)
from cluster.quorum.rows import (
    PartitionContents,
    QuorumCell,
    QuorumRow,
    canonical,
    clip_contents,
    join_contents,
    merge_contents,
    oldest_timestamp,
    supersedes,
    without_deletions,
)
from cluster.quorum.slices import visible_rows
from tests.cluster.quorum.mutations import BOUNDS, KEYS, PARTITIONS, NaiveRows, Statements, in_one, span_of, statements

scalars = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.booleans(),
    st.floats(allow_nan=False),
)
columns = st.sampled_from(
    [
        st.integers(-300, 300),
        st.text("a\0b", max_size=3),
        st.binary(max_size=3),
        st.booleans(),
        st.floats(allow_nan=False).filter(lambda each: math.copysign(1, each) > 0 or each != 0),
    ]
)
few = st.lists(statements(st.integers(0, 6)), max_size=6)


@given(st.lists(scalars, max_size=4))
def test_keys_are_found_again(values: list[object]) -> None:
    decoded = decode_key(encode_key(values))
    assert [(type(each), each) for each in decoded] == [(type(each), each) for each in values]


@given(st.lists(columns, min_size=1, max_size=4).flatmap(lambda types: st.tuples(st.tuples(*types), st.tuples(*types))))
def test_keys_sort_like_their_values_column_by_column(pair: tuple[tuple, tuple]) -> None:
    one, other = pair
    assert (encode_key(one) < encode_key(other)) == (one < other)
    assert (encode_key(one) == encode_key(other)) == (one == other)


@given(st.tuples(scalars, scalars), st.tuples(scalars, scalars))
def test_a_span_holds_the_keys_that_begin_with_its_values_and_no_others(one: tuple, other: tuple) -> None:
    start, end = span_of(one[:1])
    inside = start <= encode_key(other) < end
    assert inside == (encode_key(one[:1]) == encode_key(other[:1]))
    assert start <= encode_key(one) < end < ABOVE


@pytest.mark.parametrize("bad", [b"\x30", b"\x02abc", b"\x16\x01", b"\x21\0", b"\x02\xff\0"])
def test_what_is_no_key_is_refused(bad: bytes) -> None:
    with pytest.raises(InvalidKey):
        decode_key(bad)


def test_what_no_key_holds_is_refused() -> None:
    for value in (None, 1 << 63, [1]):
        with pytest.raises(InvalidKey):
            encode_key((value,))  # type: ignore[arg-type]


def test_places_sort_by_token() -> None:
    keys = [encode_key((number,)) for number in range(100)]
    assert sorted(keys, key=place_of) == sorted(keys, key=lambda key: (token_of(key), key))


@given(few)
def test_merging_shows_what_a_naive_reader_of_all_statements_sees(said: list[Statements]) -> None:
    rows = visible_rows(in_one(said))
    shown = {row.key: {column: (row.timestamps[column], row.values[column]) for column in row.values} for row in rows}
    expected = NaiveRows(said).visible()
    assert shown == expected
    assert repr(shown) == repr({key: dict(sorted(cells.items())) for key, cells in expected.items()})  # 1 is not True


@given(few, few, few)
def test_merging_is_associative_commutative_and_idempotent(one: list, two: list, three: list) -> None:
    a, b, c = in_one(one), in_one(two), in_one(three)
    whole = merge_contents([a, b, c])
    assert whole == merge_contents([merge_contents([a, b]), c]) == merge_contents([a, merge_contents([c, b])])
    assert whole == merge_contents([whole, b]) == merge_contents([whole, whole])


@given(few)
def test_merged_contents_are_canonical(said: list[Statements]) -> None:
    merged = in_one(said)
    assert canonical(merged.deletion, merged.ranges, merged.rows) == merged
    for one, two in zip(merged.ranges, merged.ranges[1:], strict=False):
        assert one.start < one.end <= two.start and (one.end < two.start or one.deletion != two.deletion)


@given(few, few, st.lists(st.sampled_from(BOUNDS), max_size=4))
def test_merging_span_by_span_is_merging(one: list, two: list, cuts: list[bytes]) -> None:
    a, b = in_one(one), in_one(two)
    bounds = sorted({b"", *cuts, ABOVE})
    pieces = [
        merge_contents([clip_contents(a, start, end), clip_contents(b, start, end)])
        for start, end in itertools.pairwise(bounds)
    ]
    assert join_contents(pieces) == merge_contents([a, b])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)), max_size=8))
def test_ranges_say_of_each_key_the_latest_deletion(drawn: list[tuple[int, int, int]]) -> None:
    ranges: list[RangeDeletion] = []
    for low, high, timestamp in drawn:
        add_range(ranges, RangeDeletion(bytes((low,)), bytes((high,)), Deletion(timestamp, 0)))
    for key in range(10):
        expected = max((timestamp for low, high, timestamp in drawn if low <= key < high), default=None)
        found = [each.deletion.timestamp for each in ranges if each.start <= bytes((key,)) < each.end]
        assert found == ([] if expected is None else [expected])


def cell(timestamp: int, value: object, local_time_ms: int = 0) -> QuorumCell:
    return QuorumCell(1, timestamp, value, local_time_ms)


def test_ties_are_decided_as_in_cassandra() -> None:
    assert supersedes(cell(2, "a"), cell(1, "b")) and not supersedes(cell(1, "b"), cell(2, "a"))
    assert supersedes(cell(1, "b"), cell(1, "a")) and not supersedes(cell(1, "a"), cell(1, "b"))
    assert supersedes(cell(1, None, 5), cell(1, "z")) and not supersedes(cell(1, "z"), cell(1, None, 5))
    assert supersedes(cell(1, None, 6), cell(1, None, 5)) and not supersedes(cell(1, None, 5), cell(1, None, 5))
    assert not supersedes(cell(1, "a"), cell(1, "a"))
    deleted = MutationBuilder(PARTITIONS[0], 5, 1).write(KEYS[0], {1: "x"}).delete_row(KEYS[0]).build()
    assert visible_rows(deleted.contents) == () and deleted.contents.rows[0].deletion == Deletion(5, 1)


def test_deletions_are_forgotten_one_by_one() -> None:
    said = Statements(PARTITIONS[0], 3, [(KEYS[0], {1: None, 2: "x"}, False)], [KEYS[1]], [(KEYS[3], KEYS[4])])
    older = MutationBuilder(PARTITIONS[0], 2, 1_002).delete_partition().build().contents
    both = merge_contents([in_one([said]), older])
    assert without_deletions(both, lambda each: False) == both
    left = without_deletions(both, lambda each: each.timestamp < 3)
    assert left == PartitionContents(None, both.ranges, both.rows) and oldest_timestamp(left) == 3
    live = without_deletions(both, lambda each: True)
    assert live == PartitionContents(None, (), (QuorumRow(KEYS[0], (cell(3, "x"),)),)) or len(live.rows) == 1
    assert visible_rows(live) == visible_rows(both)


@given(statements(st.integers(-(1 << 63), (1 << 63) - 1_001)))
def test_mutations_are_found_again(said: Statements) -> None:
    mutation = said.mutation()
    assert decode_mutation(encode_mutation(mutation)) == mutation
    if not mutation.contents.empty:
        check_mutation(mutation)


def test_bytes_of_another_format_or_of_nothing_are_refused() -> None:
    data = encode_mutation(Statements(PARTITIONS[0], 1, whole=True).mutation())
    with pytest.raises(OtherVersion):
        decode_mutation(b"\x09" + data[1:])
    with pytest.raises(OtherVersion):
        decode_mutation(b"")
    with pytest.raises(InvalidMutation):
        decode_mutation(data[:-1])


D = Deletion(3, 3)
ROW = QuorumRow(KEYS[0], (QuorumCell(1, 5, "x"),))


@pytest.mark.parametrize(
    "contents",
    [
        PartitionContents(),
        PartitionContents(rows=(ROW, ROW)),
        PartitionContents(rows=(QuorumRow(KEYS[0], (QuorumCell(2, 5, 1), QuorumCell(1, 5, 1))),)),
        PartitionContents(rows=(QuorumRow(KEYS[0], (QuorumCell(1, 5, [1]),)),)),
        PartitionContents(rows=(QuorumRow(KEYS[0], (QuorumCell(1, 1 << 63, 1),)),)),
        PartitionContents(rows=(QuorumRow(KEYS[0], (), 3),), deletion=D),
        PartitionContents(rows=(QuorumRow(KEYS[0], ()),)),
        PartitionContents(ranges=(RangeDeletion(b"b", b"d", D), RangeDeletion(b"c", b"e", D))),
        PartitionContents(ranges=(RangeDeletion(b"b", b"b", D),)),
    ],
)
def test_mutations_that_no_replica_can_take_are_refused(contents: PartitionContents) -> None:
    with pytest.raises(InvalidMutation):
        check_mutation(PartitionMutation(PARTITIONS[0], contents))
