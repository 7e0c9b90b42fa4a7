"""Schemas and their alterations (M5), and primary keys as bytes: pure."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.store.cells import Value
from cluster.store.schema import (
    KEY_TYPES,
    MAX_COLUMNS,
    MAX_NAME_CHARACTERS,
    MAX_SCHEMA_BYTES,
    MAX_STEPS,
    AddColumn,
    AlterStep,
    Column,
    DropColumn,
    InvalidSchema,
    RenameColumn,
    after,
    altered,
    bucket_of,
    check_schema,
    decode_key,
    encode_key,
    encode_prefix,
    fits,
)

VALUES: dict[str, st.SearchStrategy[Value]] = {
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "timestamp": st.integers(-(1 << 63), (1 << 63) - 1),
    "string": st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=5) | st.text("\x00ab\U0010ffff"),
    "binary": st.binary(max_size=4) | st.binary(max_size=4).map(lambda value: b"\x00\xff" + value + b"\x00"),
}


def keyed(types: list[str]) -> tuple[Column, ...]:
    return tuple(Column(at, f"k{at}", kind, False, None, True) for at, kind in enumerate(types))


@st.composite
def two_keys(draw: st.DrawFn) -> tuple[tuple[Column, ...], tuple[Value, ...], tuple[Value, ...]]:
    columns = keyed(draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4)))
    one = [draw(VALUES[column.type]) for column in columns]
    other = [draw(st.just(value) | VALUES[column.type]) for column, value in zip(columns, one, strict=True)]
    return columns, tuple(one), tuple(other)


@given(two_keys())
def test_keys_sort_as_their_values_and_are_read_back(
    drawn: tuple[tuple[Column, ...], tuple[Value, ...], tuple[Value, ...]],
) -> None:
    columns, one, other = drawn
    first, second = (
        encode_key(columns, {column.name: value for column, value in zip(columns, values, strict=True)})
        for values in (one, other)
    )
    assert (first < second, first == second) == (one < other, one == other)
    assert decode_key(columns, first) == one
    for length in range(len(one) + 1):
        prefix = encode_prefix(columns, one[:length])
        assert first.startswith(prefix)
        assert second.startswith(prefix) == (other[:length] == one[:length])
        last = after(prefix)
        assert (prefix <= second and (last is None or second < last)) == second.startswith(prefix)


@settings(deadline=None)
@given(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3), st.binary(max_size=20))
def test_bytes_are_a_key_or_refused(types: list[str], garbage: bytes) -> None:
    columns = keyed(types)
    try:
        values = decode_key(columns, garbage)
    except InvalidSchema:
        return
    assert encode_key(columns, {column.name: value for column, value in zip(columns, values, strict=True)}) == garbage


def test_buckets_are_for_ever() -> None:
    assert [bucket_of(key, 7) for key in (b"", b"a", b"key")] == [0, 4, 5]


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        ("int32", 1 << 31, False),
        ("int32", -(1 << 31), True),
        ("int64", True, False),
        ("int64", 1.0, False),
        ("bool", 1, False),
        ("double", 1, False),
        ("float", 0.5, True),
        ("string", b"a", False),
        ("string", "\ud800", False),
        ("binary", "a", False),
        ("timestamp", 1 << 62, True),
    ],
)
def test_values_are_of_their_column_s_type(kind: str, value: Value, held: bool) -> None:
    assert fits(Column(0, "c", kind), value) is held
    assert fits(Column(0, "c", kind), None) and not fits(Column(0, "c", kind, nullable=False), None)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ((), "needs columns"),
        ((Column(0, "a", "int32"), Column(1, "a", "int32")), "two columns have the name 'a'"),
        ((Column(0, "a", "int32"), Column(0, "b", "int32")), "two columns have the id '0'"),
        ((Column(0, "", "int32"),), "needs a name"),
        ((Column(0, "a", "paper"),), "types are int32"),
        ((Column(0, "a", "double", False, None, True),), "key column 'a' is a double"),
        ((Column(0, "a", "int32", True, None, True),), "neither nullable"),
        ((Column(0, "a", "int32", True, "x"),), "is no int32"),
        ((Column(0, "a", "int32"), Column(1, "b", "int32", False, None, True)), "come before"),
    ],
)
def test_schemas_that_cannot_be_are_refused(columns: tuple[Column, ...], reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        check_schema(columns)


def columns_of(count: int, name: str = "c") -> tuple[Column, ...]:
    return tuple(Column(at, f"{name}{at}", "int64") for at in range(count))


def test_a_schema_has_limits_and_what_is_at_them_is_taken() -> None:
    """However a table was created and altered, its record leaves room for its tablets in one batch (M7)."""
    check_schema(columns_of(MAX_COLUMNS))
    added = AddColumn(Column(-1, "one more", "int64"))
    assert len(altered(columns_of(MAX_COLUMNS - 1), 1_000, [added])[0]) == MAX_COLUMNS
    for steps in ([added], [added, DropColumn("c0")]):
        with pytest.raises(InvalidSchema, match=f"at most {MAX_COLUMNS} columns, not {MAX_COLUMNS + 1}"):
            altered(columns_of(MAX_COLUMNS), 1_000, steps)
    check_schema([Column(0, "\u00e4" * MAX_NAME_CHARACTERS, "int64")])
    with pytest.raises(InvalidSchema, match=f"has at most {MAX_NAME_CHARACTERS} characters"):
        check_schema([Column(0, "n" * (MAX_NAME_CHARACTERS + 1), "int64")])
    nothing = RenameColumn("c0", "c0")
    assert altered(columns_of(2), 2, [nothing] * MAX_STEPS) == (columns_of(2), 2)
    with pytest.raises(InvalidSchema, match=f"at most {MAX_STEPS} steps"):
        altered(columns_of(2), 2, [nothing] * (MAX_STEPS + 1))


def test_names_and_defaults_of_a_schema_take_a_bounded_number_of_bytes() -> None:
    def of(size: int) -> list[Column]:
        return [Column(0, "a", "binary", True, b"\x00" * size)]

    over = len(msgspec.msgpack.encode(of(MAX_SCHEMA_BYTES))) - MAX_SCHEMA_BYTES
    check_schema(of(MAX_SCHEMA_BYTES - over - 2))  # What holds fewer than 64 KiB says its length in 2 bytes less.
    with pytest.raises(InvalidSchema, match=f"take {MAX_SCHEMA_BYTES + over} bytes; the limit is {MAX_SCHEMA_BYTES}"):
        check_schema(of(MAX_SCHEMA_BYTES))
    with pytest.raises(InvalidSchema, match="the limit is"):
        check_schema(columns_of(MAX_COLUMNS, "n" * (MAX_NAME_CHARACTERS - 3)))


NAMES = st.sampled_from(("key", "a", "b", "c"))
STEPS = st.one_of(
    st.builds(lambda name: AddColumn(Column(-1, name, "string")), NAMES),
    st.builds(DropColumn, NAMES),
    st.builds(RenameColumn, NAMES, NAMES),
)


@settings(deadline=None)
@given(st.lists(st.lists(STEPS, max_size=3), max_size=8))
def test_an_alteration_is_carried_out_whole_or_refused_and_ids_are_given_once(batches: list[list[AlterStep]]) -> None:
    columns: tuple[Column, ...] = (Column(0, "key", "int64", False, None, True), Column(1, "a", "string"))
    next_id, names = 2, {0: "key", 1: "a"}
    given_ids = [0, 1]
    for steps in batches:
        expected, refused = dict(names), False
        count = next_id
        for step in steps:
            if isinstance(step, AddColumn):
                refused = refused or step.column.name in expected.values()
                expected[count] = step.column.name
                count += 1
                continue
            at = next((each for each, name in expected.items() if name == step.name), None)
            if at is None or (isinstance(step, DropColumn) and at == 0):
                refused = True
            elif isinstance(step, DropColumn):
                del expected[at]
            else:
                expected[at] = step.new_name
            if refused:
                break
        refused = refused or len(dict.fromkeys(expected.values())) < len(expected)
        try:
            columns, after_id = altered(columns, next_id, steps)
        except InvalidSchema:
            assert refused
            continue
        assert not refused and {column.id: column.name for column in columns} == expected
        given_ids += range(next_id, after_id)
        names, next_id = expected, after_id
    assert len(given_ids) == len(dict.fromkeys(given_ids))
