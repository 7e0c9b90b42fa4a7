"""Blocks, filters, memtables: the pure parts of sorted files."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.log.envelope import CorruptLog
from cluster.log.frames import OtherVersion
from cluster.quorum.keys import ABOVE, LOWEST_KEY, encode_key, place_of, token_of
from cluster.quorum.mutation import MutationBuilder
from cluster.quorum.rows import PartitionContents, join_contents, merge_contents, oldest_timestamp
from cluster.quorum.sorted.blocks import (
    BlockPacker,
    Chunk,
    make_filter,
    may_hold,
    read_block,
    read_footer,
    split_chunk,
    unpack,
)
from cluster.quorum.sorted.compaction import HIGHEST_PLACE, LOWEST_PLACE
from cluster.quorum.sorted.memtable import MemoryCursor, Memtable
from cluster.quorum.sorted.reading import MergedCursor
from tests.cluster.quorum.mutations import BOUNDS, PARTITIONS, Statements, in_one, statements

few = st.lists(statements(st.integers(0, 6), PARTITIONS), max_size=8)


def chunks_of(tables: list[Memtable]) -> list[Chunk]:
    async def read() -> list[Chunk]:
        cursors = [MemoryCursor(table, LOWEST_PLACE, HIGHEST_PLACE) for table in tables]
        merged, found = MergedCursor(cursors, LOWEST_PLACE, HIGHEST_PLACE), []
        while (chunk := await merged.next()) is not None:
            found.append(chunk)
        return found

    return asyncio.run(read())


def table_of(said: list[Statements]) -> Memtable:
    table = Memtable()
    for number, each in enumerate(said, 1):
        table.apply(number, each.mutation(), 10)
    return table


def merged_by_partition(said: list[Statements]) -> dict[bytes, PartitionContents]:
    by = {partition: [each for each in said if each.partition == partition] for partition in PARTITIONS}
    return {partition: in_one(each) for partition, each in by.items() if each}


@given(few, few)
def test_memtables_hold_what_was_written_in_the_order_of_places(one: list[Statements], two: list[Statements]) -> None:
    chunks = chunks_of([table_of(one), table_of(two)])
    expected = merged_by_partition(one + two)
    assert {chunk.partition: chunk.contents for chunk in chunks} == expected
    assert [chunk.partition for chunk in chunks] == sorted(expected, key=place_of)
    for partition in PARTITIONS:
        held = [each.mutation().contents for each in one if each.partition == partition]
        oldest = [found for contents in held if (found := oldest_timestamp(contents)) is not None]
        assert table_of(one).oldest(place_of(partition)) == min(oldest, default=None)


def packed(chunks: list[Chunk], block_bytes: int) -> tuple[BlockPacker, list[list[Chunk]]]:
    packer, blocks = BlockPacker(block_bytes, block_bytes // 2), []
    for chunk in chunks:
        blocks += packer.add(chunk)
    blocks += packer.finish()
    return packer, [[unpack(packed) for packed in read_block(block)] for block in blocks]


@given(few, st.lists(st.sampled_from(BOUNDS), max_size=4), st.sampled_from([1, 60, 200, 10_000]))
def test_blocks_hold_chunks_that_tile_their_partitions(
    said: list[Statements], cuts: list[bytes], block_bytes: int
) -> None:
    whole = chunks_of([table_of(said)])
    bounds = sorted({LOWEST_KEY, ABOVE, *cuts})
    given_cut = []
    for chunk in whole:
        for start, end in itertools.pairwise(bounds):
            part = Chunk(chunk.partition, start, end, chunk.contents)
            given_cut.append(next(iter(clipped(part))))
    packer, blocks = packed(given_cut, block_bytes)
    found: dict[bytes, list[Chunk]] = {}
    for chunk in (chunk for block in blocks for chunk in block):
        found.setdefault(chunk.partition, []).append(chunk)
    expected = {chunk.partition: chunk.contents for chunk in whole if not chunk.contents.empty}
    assert {key: join_contents([chunk.contents for chunk in chunks]) for key, chunks in found.items()} == expected
    for chunks in found.values():
        assert [LOWEST_KEY, *(chunk.end for chunk in chunks)] == [*(chunk.start for chunk in chunks), ABOVE]
    footer, record = packer.footer()
    if blocks:
        assert read_footer(record) == footer
        assert [(entry.partition, entry.start) for entry in footer.blocks] == [
            (block[0].partition, block[0].start) for block in blocks
        ]
        assert footer.partitions == len(found) and footer.last == [*found][-1]
        oldest = [oldest_timestamp(contents) for contents in expected.values()]
        assert footer.oldest == min(each for each in oldest if each is not None)
        assert all(may_hold(footer.filter, token_of(partition)) for partition in found)


def clipped(chunk: Chunk) -> list[Chunk]:
    from cluster.quorum.rows import clip_contents

    return [Chunk(chunk.partition, chunk.start, chunk.end, clip_contents(chunk.contents, chunk.start, chunk.end))]


def test_large_chunks_are_split_and_small_ones_joined() -> None:
    builder = MutationBuilder(PARTITIONS[0], 1, 1)
    for number in range(400):
        builder.write(encode_key((number,)), {1: "x" * 20})
        builder.delete_range((encode_key((1_000 + 2 * number,)), encode_key((1_001 + 2 * number,))))
    chunk = Chunk(PARTITIONS[0], LOWEST_KEY, ABOVE, builder.build().contents)
    parts = list(split_chunk(chunk, 500))
    assert all(size <= 500 for _, size in parts) and len(parts) > 40
    assert join_contents([part.contents for part, _ in parts]) == chunk.contents
    # Joined again: not as many chunks as a merge of many files had windows.
    small = [part for part, _ in split_chunk(chunk, 50)]
    _, blocks = packed(small, 2_000)
    assert sum(map(len, blocks)) < len(small) / 10


def test_filters_hold_what_was_put_in_and_little_else() -> None:
    tokens = [token_of(encode_key((number,))) for number in range(2_000)]
    bits = make_filter(tokens[:1_000])
    assert all(may_hold(bits, token) for token in tokens[:1_000])
    assert sum(may_hold(bits, token) for token in tokens[1_000:]) < 40
    assert len(bits) < 1_300


@given(st.data())
def test_a_flipped_bit_of_a_block_is_always_seen(data: st.DataObject) -> None:
    packer = BlockPacker(100, 50)
    mutation = Statements(PARTITIONS[0], 3, whole=True).mutation()
    packer_blocks = [*packer.add(Chunk(PARTITIONS[0], LOWEST_KEY, ABOVE, mutation.contents)), *packer.finish()]
    record = packer.footer()[1]
    for good, read in ((packer_blocks[0], read_block), (record, read_footer)):
        damaged = bytearray(good)
        bit = data.draw(st.integers(0, 8 * len(good) - 1))
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLog):
            read(bytes(damaged))
        with pytest.raises(CorruptLog):
            read(good[: data.draw(st.integers(0, len(good) - 1))])


def test_a_file_of_another_format_is_refused() -> None:
    from msgspec.structs import replace

    from cluster.log.envelope import frame
    from cluster.quorum.sorted.blocks import _FOOTER, _encode

    packer = BlockPacker(100, 50)
    contents = Statements(PARTITIONS[0], 3, whole=True).mutation().contents
    assert [*packer.add(Chunk(PARTITIONS[0], LOWEST_KEY, ABOVE, contents)), *packer.finish()]
    with pytest.raises(OtherVersion):
        read_footer(frame(_FOOTER, _encode(replace(packer.footer()[0], version=9))))


@given(few, few, few)
def test_what_is_merged_from_many_sources_is_what_all_of_them_hold(one: list, two: list, three: list) -> None:
    chunks = chunks_of([table_of(one), table_of(two), table_of(three)])
    pieces: dict[bytes, list[PartitionContents]] = {}
    for chunk in chunks:
        pieces.setdefault(chunk.partition, []).append(chunk.contents)
    joined = {partition: join_contents(each) for partition, each in pieces.items()}
    assert joined == {
        partition: merge_contents([contents]) for partition, contents in merged_by_partition(one + two + three).items()
    }
