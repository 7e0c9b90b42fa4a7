"""What a sorted file is made of: chunks of partitions in checked blocks, and a footer that says where they are. Pure.

A *chunk* is what a file knows of a span of one partition. The chunks of a partition follow each other without a gap,
from below all keys to above them, and each is complete by itself: ranges of deletions are cut at its bounds, and the
deletion of the whole partition is repeated. So a slice is answered by the chunks that it overlaps, and by nothing else.
A block holds some chunks and is read whole. The footer has the first place of each block (a sparse index), a filter of
the partitions, and the lowest timestamp in the file. Blocks and footer are records of `cluster.log.envelope`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from cluster.log.envelope import CorruptLog, frame, unframe
from cluster.log.frames import OtherVersion
from cluster.quorum.keys import ABOVE, LOWEST_KEY, KeyBytes, place_of, token_of
from cluster.quorum.rows import PartitionContents, clip_contents, join_contents, oldest_timestamp

# ---- filters ----
# Which partitions a file may hold: a Bloom filter over their tokens.


_BITS_EACH = 10
_PROBES = 6
"""About one false "maybe" in a hundred."""

_HALF = (1 << 32) - 1


def make_filter(tokens: Sequence[int]) -> bytes:
    """A filter that holds these tokens."""
    bits = bytearray(max(8, len(tokens) * _BITS_EACH // 8 + 1))
    for token in tokens:
        for probe in _probes(token, 8 * len(bits)):
            bits[probe >> 3] |= 1 << (probe & 7)
    return bytes(bits)


def may_hold(bits: bytes, token: int) -> bool:
    """False only if the token was not put in."""
    return all(bits[probe >> 3] >> (probe & 7) & 1 for probe in _probes(token, 8 * len(bits)))


def _probes(token: int, size: int) -> Iterator[int]:
    """Two halves of the token make all probes (Kirsch and Mitzenmacher 2006): tokens are hashes already."""
    first, step = token & _HALF, token >> 32 | 1
    return ((first + number * step) % size for number in range(_PROBES))


# ---- blocks ----


SORTED_FORMAT = 1

_BLOCK, _FOOTER = 11, 12

Place: TypeAlias = tuple[bytes, KeyBytes]
"""Where something is in the order of all files: a partition (`place_of`) and a key in it."""


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Contents of one partition from `start` (inclusive) to `end` (exclusive), canonical."""

    partition: KeyBytes
    start: KeyBytes
    end: KeyBytes
    contents: PartitionContents


class PackedChunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a block that was read, its contents still bytes: most chunks of a block are not asked for."""

    partition: KeyBytes
    start: KeyBytes
    end: KeyBytes
    contents: msgspec.Raw


class BlockEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a block lies, and what it begins with."""

    partition: KeyBytes
    start: KeyBytes
    offset: int
    length: int


class Footer(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a file without reading its blocks; `oldest` is the lowest timestamp in it."""

    version: int
    blocks: tuple[BlockEntry, ...]
    last: KeyBytes
    filter: bytes
    partitions: int
    oldest: int


_encode = msgspec.msgpack.Encoder().encode
_chunks = msgspec.msgpack.Decoder(list[PackedChunk])
_contents = msgspec.msgpack.Decoder(PartitionContents)
_footers = msgspec.msgpack.Decoder(Footer)


def read_block(data: bytes) -> list[PackedChunk]:
    """The chunks of a block; raises CorruptLog."""
    return _chunks.decode(unframe(_BLOCK, data))


def unpack(packed: PackedChunk) -> Chunk:
    """The chunk that was packed."""
    return Chunk(packed.partition, packed.start, packed.end, _contents.decode(packed.contents))


def read_footer(data: bytes) -> Footer:
    """Raises CorruptLog, OtherVersion."""
    footer = _footers.decode(unframe(_FOOTER, data))
    if footer.version != SORTED_FORMAT:
        raise OtherVersion(f"the file has format version {footer.version}; this program reads {SORTED_FORMAT}")
    if not footer.blocks:
        raise CorruptLog("the file holds nothing")
    return footer


def split_chunk(chunk: Chunk, limit: int) -> Iterator[tuple[Chunk, int]]:
    """The chunk in parts of at most `limit` bytes, each with its size; what can't be split is larger."""
    size = len(_encode(chunk))
    middle = _middle(chunk.contents) if size > limit else None
    if middle is None:
        yield chunk, size
        return
    for start, end in ((chunk.start, middle), (middle, chunk.end)):
        yield from split_chunk(Chunk(chunk.partition, start, end, clip_contents(chunk.contents, start, end)), limit)


def _middle(contents: PartitionContents) -> KeyBytes | None:
    """A key above the first of its rows, or of its ranges."""
    if len(contents.rows) > 1:
        return contents.rows[len(contents.rows) // 2].key
    if len(contents.ranges) > 1:
        return contents.ranges[len(contents.ranges) // 2].start
    return None


class BlockPacker:
    """Packs chunks, which come in order, into blocks of about `block_bytes`, and at the end makes the footer.

    Chunks are made to be of about `chunk_bytes`: large ones are split, for a reader merges whole chunks, and small ones
    of one partition are joined, for a merge of several files cuts at the bounds of all of them. A partition of which
    nothing is left is left out.
    """

    def __init__(self, block_bytes: int, chunk_bytes: int) -> None:
        self._limit, self._chunk_limit = block_bytes, chunk_bytes
        """Bytes of a block, and of a chunk; both about."""
        self._waiting: tuple[Chunk, int] | None = None
        """The last chunk and its size: the next one may be joined to it."""
        self._block: list[Chunk] = []
        """The chunks of the block that is open; its entry comes when it is closed."""
        self._block_bytes = 0
        """How many bytes the chunks of the open block take."""
        self._entries: list[BlockEntry] = []
        """One for each block that is closed, in order."""
        self._tokens: list[int] = []
        """Tokens of the partitions so far, one each."""
        self._last = LOWEST_KEY
        """The last partition, where there is any token."""
        self._oldest: int | None = None
        """The lowest timestamp so far."""
        self.size = 0
        """Bytes of all blocks that are closed: where the next one begins."""

    def add(self, chunk: Chunk) -> Iterator[bytes]:
        """Take the next chunk; the blocks that are complete now."""
        for part, size in split_chunk(chunk, self._chunk_limit):
            joined = self._join(part, size)
            if joined is None:
                yield from self._settle()
                joined = part, size
            self._waiting = joined

    def finish(self) -> Iterator[bytes]:
        """The last blocks."""
        yield from self._settle()
        if self._block:
            yield self._close_block()

    def footer(self) -> tuple[Footer, bytes]:
        """The footer, and the record of it that ends the file."""
        filter_bits = make_filter(self._tokens)
        footer = Footer(
            SORTED_FORMAT, tuple(self._entries), self._last, filter_bits, len(self._tokens), self._oldest or 0
        )
        return footer, frame(_FOOTER, _encode(footer))

    @property
    def empty(self) -> bool:
        """Whether no block came of all chunks."""
        return not self._entries

    def _join(self, part: Chunk, size: int) -> tuple[Chunk, int] | None:
        """The chunk that waits and the one behind it as one, if they belong together and are small enough."""
        if self._waiting is None:
            return part, size
        last, last_size = self._waiting
        small = last.contents.empty or part.contents.empty or last_size + size <= self._chunk_limit
        if last.partition != part.partition or not small:
            return None
        contents = join_contents([last.contents, part.contents])
        return Chunk(last.partition, last.start, part.end, contents), last_size + size

    def _settle(self) -> Iterator[bytes]:
        """Nothing more can be joined to the chunk that waits."""
        if self._waiting is None:
            return
        (chunk, size), self._waiting = self._waiting, None
        if chunk.contents.empty and (chunk.start, chunk.end) == (LOWEST_KEY, ABOVE):
            return
        if self._block and self._block_bytes + size > self._limit:
            yield self._close_block()
        self._note(chunk)
        self._block.append(chunk)
        self._block_bytes += size

    def _note(self, chunk: Chunk) -> None:
        if chunk.partition != self._last or not self._tokens:
            self._last = chunk.partition
            self._tokens.append(token_of(chunk.partition))
        oldest = oldest_timestamp(chunk.contents)
        if oldest is not None:
            self._oldest = oldest if self._oldest is None else min(oldest, self._oldest)

    def _close_block(self) -> bytes:
        data = frame(_BLOCK, _encode(self._block))
        first = self._block[0]
        self._entries.append(BlockEntry(first.partition, first.start, self.size, len(data)))
        self._block, self._block_bytes = [], 0
        self.size += len(data)
        return data


def ending(chunk: PackedChunk) -> Place:
    """Where a chunk ends."""
    return place_of(chunk.partition), chunk.end
