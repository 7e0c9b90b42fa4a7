"""Pages of slices: cut, merged, compared and continued."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.quorum.keys import EVERYTHING, encode_key
from cluster.quorum.mutation import MutationBuilder
from cluster.quorum.rows import PartitionContents, clip_contents, join_contents, merge_contents
from cluster.quorum.slices import (
    InvalidToken,
    Page,
    Slice,
    behind,
    cut_to,
    digest_of,
    live_rows,
    merge_pages,
    missing,
    page_digest,
    page_of,
    page_token,
    resumed,
    visible_rows,
)
from tests.cluster.quorum.mutations import BOUNDS, COLUMNS, PARTITIONS, in_one, span_of, spans, statements

few = st.lists(statements(st.integers(0, 6)), max_size=6)
P = PARTITIONS[0]


def disjoint(cuts: list[bytes]) -> tuple[tuple[bytes, bytes], ...]:
    bounds = sorted(set(cuts))
    return tuple(zip(bounds[::2], bounds[1::2], strict=False)) or (EVERYTHING,)


slices = st.builds(
    Slice,
    st.just(P),
    st.lists(st.sampled_from(BOUNDS), max_size=5).map(disjoint),
    st.none() | st.integers(1, 3),
    st.none() | st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1).map(sorted).map(tuple),
)


@given(few, slices)
def test_a_page_shows_the_live_rows_of_the_slice_up_to_the_limit(said: list, asked: Slice) -> None:
    contents = in_one(said)
    page = page_of(contents, asked)
    shown = visible_rows(cut_to(contents, Slice(P, asked.spans, None, asked.columns)))
    assert visible_rows(page.contents) == shown[: asked.limit]
    assert all(any(start <= row.key < end for start, end in asked.spans) for row in shown)
    assert page.end is None or live_rows(page.contents) == asked.limit


@given(few, slices)
def test_pages_by_their_tokens_are_the_whole_slice(said: list, asked: Slice) -> None:
    contents = in_one(said)
    pages, step = [page_of(contents, asked)], asked
    while (token := page_token("t", asked, pages[-1])) is not None:
        step = resumed("t", asked, token)
        pages.append(page_of(contents, step))
    whole = visible_rows(cut_to(contents, Slice(P, asked.spans, None, asked.columns)))
    assert tuple(row for page in pages for row in visible_rows(page.contents)) == whole


@given(few, few, slices)
def test_merged_pages_are_the_page_of_whoever_has_everything_as_far_as_they_go(
    one: list, two: list, asked: Slice
) -> None:
    a, b = in_one(one), in_one(two)
    pages = [page_of(a, asked), page_of(b, asked)]
    merged = merge_pages(asked, pages)
    known = page_of(merge_contents([a, b]), asked, min((p.end for p in pages if p.end is not None), default=None))
    assert visible_rows(merged.contents) == visible_rows(known.contents) and merged.end == known.end
    if asked.columns is None:
        assert merged == known


@given(few, slices)
def test_asking_for_more_behind_a_page_gives_the_larger_page(said: list, asked: Slice) -> None:
    contents = in_one(said)
    first = page_of(contents, asked)
    if first.end is not None and behind(asked, first.end, 1).spans:
        more = page_of(contents, behind(asked, first.end, 1))
        larger = page_of(contents, Slice(P, asked.spans, (asked.limit or 0) + 1, asked.columns))
        assert Page(join_contents([first.contents, more.contents]), more.end) == larger


@given(few, few)
def test_what_is_missing_makes_them_equal(one: list, two: list) -> None:
    a, both = in_one(one), in_one(one + two)
    assert merge_contents([a, missing(both, a)]) == both
    assert missing(both, both).empty


@given(few, few, st.lists(st.sampled_from(BOUNDS), max_size=4))
def test_digests_are_equal_for_equal_contents_and_only_for_these(one: list, two: list, cuts: list[bytes]) -> None:
    a, b = in_one(one), in_one(two)
    bounds = sorted({*EVERYTHING, *cuts})
    pieces = [clip_contents(a, start, end) for start, end in itertools.pairwise(bounds)]
    assert digest_of(pieces) == digest_of([a])
    same = repr(a) == repr(b)  # 1, 1.0 and True are equal, and not the same
    assert (digest_of([a]) == digest_of([b])) == same
    assert (page_digest(Page(a)) == page_digest(Page(b))) == same
    assert page_digest(Page(a)) != page_digest(Page(a, b"x"))


def test_tokens_of_other_queries_and_damaged_ones_are_refused() -> None:
    builder = MutationBuilder(P, 1, 1)
    for number in range(4):
        builder.write(encode_key((number, "x")), {1: number})
    contents, asked = builder.build().contents, Slice(P, limit=2)
    token = page_token("t", asked, page_of(contents, asked))
    assert token is not None
    assert resumed("t", Slice(P, limit=9), token).limit == 9  # another page size is the same query
    for other in (Slice(PARTITIONS[1]), Slice(P, (span_of((1,)),)), Slice(P, columns=(1,))):
        with pytest.raises(InvalidToken):
            resumed("t", other, token)
    with pytest.raises(InvalidToken, match="another query"):
        resumed("u", asked, token)
    for bad in (b"", b"\x01", token[:-1], b"\x07" + token[1:]):
        with pytest.raises(InvalidToken):
            resumed("t", asked, bad)


def test_an_empty_partition_has_an_empty_page() -> None:
    assert page_of(PartitionContents(), Slice(P, limit=1)) == Page(PartitionContents())


@given(spans)
def test_a_span_of_nothing_shows_nothing(span: tuple[bytes, bytes]) -> None:
    contents = in_one([])
    assert page_of(contents, Slice(P, (span,))).contents.empty
