"""Slices of a partition, what replicas answer to them, and how answers merge, compare and continue. Pure.

A replica's page carries deletions beside rows, cut to what it covers, so that pages of several replicas merge to what
one replica would answer that has all of their mutations. A page says how far it goes: a replica that stopped at the
limit knows nothing of what lies behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from cluster.log.frames import OtherVersion
from cluster.quorum.deletions import RangeDeletion
from cluster.quorum.keys import ABOVE, EVERYTHING, KeyBytes, KeySpan
from cluster.quorum.mutation import decode_versioned, encode_versioned
from cluster.quorum.rows import (
    NOTHING,
    PartitionContents,
    QuorumRow,
    clip_contents,
    join_contents,
    merge_contents,
)
from cluster.store.cells import Value
from harness.errors import UNDECODABLE

_encode = msgspec.msgpack.Encoder().encode


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """A question to one partition: rows of `spans` (sorted, disjoint), at most `limit` live ones.

    `columns` (rising) restricts which cells are looked at: a row counts if it was inserted or one of *these* is live.
    """

    partition: KeyBytes
    spans: tuple[KeySpan, ...] = (EVERYTHING,)
    limit: int | None = None
    columns: tuple[int, ...] | None = None


class Page(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a slice below `end` (exclusive; None: of the whole slice): its contents, canonical."""

    contents: PartitionContents
    end: KeyBytes | None = None


class VisibleRow(msgspec.Struct, frozen=True, array_like=True):
    """A row as a client sees it: its live cells by column, with the timestamps of their writes beside the values."""

    key: KeyBytes
    values: dict[int, Value]
    timestamps: dict[int, int]
    marker: int | None


class InvalidToken(ValueError):
    """A token that continues no page, or one of another query."""


def live_rows(contents: PartitionContents) -> int:
    """How many rows readers see."""
    return sum(1 for row in contents.rows if row.live)


def visible_rows(contents: PartitionContents) -> tuple[VisibleRow, ...]:
    """What readers see of canonical contents."""
    return tuple([_visible(row) for row in contents.rows if row.live])


def _visible(row: QuorumRow) -> VisibleRow:
    live = [cell for cell in row.cells if cell.value is not None]
    values, timestamps = {cell.column: cell.value for cell in live}, {cell.column: cell.timestamp for cell in live}
    return VisibleRow(row.key, values, timestamps, row.marker)


# ---- cutting ----


def cut_to(contents: PartitionContents, asked: Slice, end: KeyBytes | None = None) -> PartitionContents:
    """What of canonical contents belongs to a slice below `end`, its limit aside."""
    stop = ABOVE if end is None else end
    pieces = [clip_contents(contents, start, min(last, stop)) for start, last in asked.spans if start < stop]
    found = join_contents(pieces) if pieces else PartitionContents(contents.deletion)
    return found if asked.columns is None else _projected(found, asked.columns)


def _projected(contents: PartitionContents, columns: tuple[int, ...]) -> PartitionContents:
    wanted = frozenset(columns)
    rows = [_only(row, wanted) for row in contents.rows]
    return PartitionContents(contents.deletion, contents.ranges, tuple([row for row in rows if not row.silent]))


def _only(row: QuorumRow, wanted: frozenset[int]) -> QuorumRow:
    return QuorumRow(row.key, tuple([cell for cell in row.cells if cell.column in wanted]), row.marker, row.deletion)


def page_of(contents: PartitionContents, asked: Slice, end: KeyBytes | None = None) -> Page:
    """The page of contents that are complete below `end`: cut to the slice, and behind the last row of the limit."""
    found = cut_to(contents, asked, end)
    last = _last_of_limit(found, asked.limit)
    if last is None:
        return Page(found, end)
    behind = last + ABOVE  # nothing lies between a row and the end of its own span
    return Page(clip_contents(found, b"", behind), behind)


def _last_of_limit(contents: PartitionContents, limit: int | None) -> KeyBytes | None:
    """The row that fills the limit, if there is one."""
    if limit is None:
        return None
    live = 0
    for row in contents.rows:
        live += row.live
        if live >= limit:
            return row.key
    return None


def behind(asked: Slice, end: KeyBytes, limit: int | None) -> Slice:
    """The slice from `end` on, with another limit."""
    spans = tuple([(max(start, end), last) for start, last in asked.spans if last > end])
    return Slice(asked.partition, spans, limit, asked.columns)


def rest_of(asked: Slice, page: Page) -> Slice | None:
    """What lies behind a page that has fewer live rows than the limit; None where it is all that was asked for."""
    lack = 0 if asked.limit is None else asked.limit - live_rows(page.contents)
    if page.end is None or lack <= 0:
        return None
    rest = behind(asked, page.end, lack)
    return rest if rest.spans else None


# ---- pages of several replicas ----


def merge_pages(asked: Slice, pages: Sequence[Page]) -> Page:
    """What all of them know together, as far as *each* of them goes, and at most the limit.

    Where it ends with fewer live rows than the limit, those that ended first have to be asked for more.
    """
    ends = [page.end for page in pages if page.end is not None]
    end = min(ends, default=None)
    return page_of(merge_contents([page.contents for page in pages]), asked, end)


def missing(contents: PartitionContents, held: PartitionContents) -> PartitionContents:
    """What has to be written where `held` is known so that `contents` is; both canonical, and of one span.

    Row by row: a row that differs is sent whole (read repair of just what was read, Q2).
    """
    have = {row.key: row for row in held.rows}
    rows = tuple([row for row in contents.rows if have.get(row.key) != row])
    ranges = tuple([each for each in contents.ranges if each not in held.ranges])
    deletion = contents.deletion if contents.deletion != held.deletion else None
    return PartitionContents(deletion, ranges, rows)


# ---- digests ----


class ContentsDigest:
    """Takes the contents of spans that follow each other; equal contents give equal digests however they were cut."""

    def __init__(self) -> None:
        self._rows, self._ranges = blake2b(digest_size=16), blake2b(digest_size=16)
        self._deletion = NOTHING.deletion
        self._open: RangeDeletion | None = None

    def add(self, contents: PartitionContents) -> None:
        """Take the next span in."""
        self._deletion = contents.deletion
        for row in contents.rows:
            self._rows.update(_encode(row))
        for each in contents.ranges:
            self._add_range(each)

    def digest(self) -> bytes:
        """16 bytes of all that was taken in."""
        total = self._ranges.copy()
        if self._open is not None:
            total.update(_encode(self._open))
        whole = blake2b(_encode(self._deletion), digest_size=16)
        whole.update(total.digest() + self._rows.digest())
        return whole.digest()

    def _add_range(self, each: RangeDeletion) -> None:
        """A range may go on in the next span, so that the last one waits."""
        last = self._open
        if last is not None and last.end == each.start and last.deletion == each.deletion:
            self._open = RangeDeletion(last.start, each.end, last.deletion)
            return
        if last is not None:
            self._ranges.update(_encode(last))
        self._open = each


def digest_of(pieces: Iterable[PartitionContents]) -> bytes:
    """The digest of contents in pieces that follow each other."""
    digest = ContentsDigest()
    for each in pieces:
        digest.add(each)
    return digest.digest()


def page_digest(page: Page) -> bytes:
    """16 bytes: equal for equal pages, different otherwise."""
    return blake2b(digest_of([page.contents]) + _encode(page.end), digest_size=16).digest()


# ---- tokens ----


class _Token(msgspec.Struct, frozen=True, array_like=True):
    query: bytes
    end: KeyBytes


_tokens = msgspec.msgpack.Decoder(_Token)


def _query(table: str, asked: Slice) -> bytes:
    """Which query a token belongs to: the table and the slice, its limit aside."""
    return blake2b(_encode((table, asked.partition, asked.spans, asked.columns)), digest_size=8).digest()


def page_token(table: str, asked: Slice, page: Page) -> bytes | None:
    """What continues the query behind this page; None where the slice is at its end. `asked` is the *first* slice."""
    if page.end is None or not behind(asked, page.end, None).spans:
        return None
    return encode_versioned(_Token(_query(table, asked), page.end))


def resumed(table: str, asked: Slice, token: bytes) -> Slice:
    """The slice that goes on behind a page of the query; raises InvalidToken."""
    try:
        found = decode_versioned(_tokens, token)
    except (OtherVersion, *UNDECODABLE) as error:
        raise InvalidToken("this token continues no page") from error
    if found.query != _query(table, asked):
        raise InvalidToken("this token continues a page of another query")
    return behind(asked, found.end, asked.limit)
