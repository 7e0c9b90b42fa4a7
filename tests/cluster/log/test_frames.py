"""Frames of a node's log: torn and damaged in every way that a small log can be (G5)."""

from __future__ import annotations

import itertools
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.log.frames import CHUNK, Frame, Hole, LogRecord, OtherVersion, Scan, build, build_in_turns, scan

SALT = 0xC0FFEE
PAGE = 96
"""Pages of the exhaustive tests are small, so that a small frame has several."""


def record(group: str, number: int, size: int = 40) -> LogRecord:
    return LogRecord(group, number, 2, random.Random(f"{group}/{number}").randbytes(size))


def log_of(*batches: list[LogRecord]) -> tuple[bytes, list[int]]:
    """A log of one frame a batch, and where each ends."""
    data, ends = b"", []
    for batch in batches:
        data += build(batch, len(data), SALT)
        ends.append(len(data))
    return data, ends


def records_of(found: Scan) -> list[LogRecord]:
    return [record for part in found.parts for record in part.records]


SYNCED = [[record("a", 1), record("b", 1)], [record("a", 2)]]
LAST = [record("a", 3, 90), record("c", 1, 60), record("b", 2, 90)]


def test_what_was_built_is_read_back() -> None:
    data, ends = log_of(*SYNCED, LAST)
    found = scan(data, SALT, sealed=False)
    assert records_of(found) == [*itertools.chain(*SYNCED), *LAST]
    assert [part.end for part in found.parts] == ends
    assert found.length == len(data)


@pytest.mark.parametrize("sizes", [(0,), (40, 7), (1 << 19, 3), (1 << 20, 1 << 20, 100)])
def test_a_frame_that_is_built_in_turns_is_the_same(sizes: tuple[int, ...]) -> None:
    records = [record("a", number, size) for number, size in enumerate(sizes)]
    building, turns = build_in_turns(records, 300, SALT), 0
    while True:
        try:
            next(building)
        except StopIteration as built:
            assert built.value == build(records, 300, SALT)
            break
        turns += 1
    assert turns > sum(sizes) >> 20


@pytest.mark.parametrize("length", ["full", "short"])
def test_whatever_pages_of_the_last_frame_reached_the_disk_it_is_whole_or_absent(length: str) -> None:
    """G5: every subset of the unsynced pages kept, lost or garbage; also the first lost, the last kept."""
    data, ends = log_of(*SYNCED, LAST)
    start = ends[1]
    borders = [start, *range(start - start % PAGE + PAGE, len(data), PAGE), len(data)]
    pages = list(itertools.pairwise(borders))
    garbage = random.Random(1).randbytes(len(data))
    assert len(pages) > 6
    for fates in itertools.product("klg", repeat=len(pages)):
        torn = bytearray(data)
        for fate, (low, high) in zip(fates, pages, strict=True):
            if fate != "k":
                torn[low:high] = bytes(high - low) if fate == "l" else garbage[low:high]
        if length == "short":
            kept = [high for fate, (_, high) in zip(fates, pages, strict=True) if fate != "l"]
            del torn[max(kept, default=start) :]
        found = scan(bytes(torn), SALT, sealed=False)
        assert not any(isinstance(part, Hole) for part in found.parts), fates
        whole = [*itertools.chain(*SYNCED)]
        assert records_of(found) in (whole, [*whole, *LAST]), fates
        assert found.length in (start, len(data)), fates


def test_a_torn_frame_without_its_beginning_is_cut_and_with_the_flaw_it_is_damage() -> None:
    """As a power cut leaves it that kept the later page of a batch and lost the first."""
    data, ends = log_of(*SYNCED, [record("a", 3, 5_000)])
    lost = data[: ends[1]] + bytes(4_096) + data[ends[1] + 4_096 :]
    found = scan(lost, SALT, sealed=False)
    assert (found.length, [type(part) for part in found.parts]) == (ends[1], [Frame, Frame])
    flawed = scan(lost, SALT, sealed=False, flaws=("torn-frame-is-damage",))
    assert (flawed.length, flawed.parts[-1]) == (ends[2], Hole(ends[1], ends[2], None))


def test_every_flipped_bit_of_what_was_synced_is_repaired_also_in_the_last_frame() -> None:
    data, _ = log_of(*SYNCED, LAST)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = scan(bytes(flipped), SALT, sealed=False)
        assert records_of(found) == [*itertools.chain(*SYNCED), *LAST], bit
        assert found.length == len(data), bit


@pytest.mark.parametrize("size", [700, 3 * CHUNK, 5_000])
def test_any_run_of_512_damaged_bytes_of_a_larger_frame_is_repaired(size: int) -> None:
    last = [record("a", 3, size), record("b", 2, 30)]
    data, ends = log_of(*SYNCED, last)
    garbage = random.Random(2).randbytes(CHUNK)
    payload = ends[1] + 27, ends[1] + 27 + size + 30
    for start in range(payload[0], payload[1] - CHUNK, 41):
        damaged = data[:start] + garbage + data[start + CHUNK :]
        found = scan(damaged, SALT, sealed=False)
        assert records_of(found)[-2:] == last, start
        assert isinstance(found.parts[-1], Frame) and found.parts[-1].repaired


def test_damage_with_a_later_frame_behind_it_is_no_torn_tail() -> None:
    data, ends = log_of(*SYNCED, LAST)
    for start in range(ends[0], ends[1] - 100, 7):
        damaged = data[:start] + bytes(100) + data[start + 100 :]
        found = scan(damaged, SALT, sealed=False)
        assert records_of(found)[-3:] == LAST
        holes = [part for part in found.parts if isinstance(part, Hole)]
        if record("a", 2) not in records_of(found):
            assert [(hole.offset, hole.end) for hole in holes] == [(ends[0], ends[1])]


def test_a_hole_names_what_was_lost_and_keeps_what_was_not() -> None:
    """The first chunks of a large frame are gone, with more than the guard can restore."""
    batch = [record("a", 1, 100), record("b", 1, 6 * CHUNK), record("c", 1, 100)]
    data, _ = log_of(batch, [record("a", 2)])
    damaged = data[:1000] + bytes(1500) + data[2500:]
    hole = scan(damaged, SALT, sealed=False).parts[0]
    assert isinstance(hole, Hole)
    assert hole.lost == (("b", 1),)
    assert [each.group for each in hole.records] == ["a", "c"]


def test_the_tail_of_a_sealed_segment_is_never_taken_for_torn() -> None:
    data, ends = log_of(*SYNCED)
    damaged = data[: ends[0] + 5]
    assert scan(damaged, SALT, sealed=False).length == ends[0]
    assert scan(damaged, SALT, sealed=True).parts[-1] == Hole(ends[0], len(damaged), None)


def test_stale_pages_of_another_segment_and_chosen_bytes_are_not_taken_for_frames() -> None:
    """A later frame under another salt, or at another place, proves nothing."""
    data, ends = log_of(*SYNCED)
    other = build(LAST, ends[1], SALT + 1)
    moved = build(LAST, ends[1], SALT)
    for junk in (b"\0" * 30 + other, b"\0" * 30 + moved, other):
        found = scan(data + junk, SALT, sealed=False)
        assert found.length == ends[1]
        assert not any(isinstance(part, Hole) for part in found.parts)


def test_a_value_that_looks_like_a_frame_does_not_make_a_torn_frame_a_damaged_one() -> None:
    crafted = build(LAST, 0, 0)
    data, ends = log_of(*SYNCED, [LogRecord("a", 3, 2, crafted * 3)])
    torn = data[: ends[1]] + bytes(30) + data[ends[1] + 30 : -30]
    assert scan(torn, SALT, sealed=False).length == ends[1]


def test_another_format_version_is_refused_in_a_sentence() -> None:
    data, _ = log_of(*SYNCED)
    head = data[:2] + bytes([9]) + data[3:23]
    with pytest.raises(OtherVersion, match=r"^the log has format version 9; this program reads \d+$"):
        scan(head + zlib.crc32(head, SALT).to_bytes(4, "little") + data[27:], SALT, sealed=False)


@given(data=st.data())
def test_random_damage_never_invents_records_and_never_raises(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.lists(st.integers(0, 900), max_size=4), min_size=1, max_size=4))
    batches = [[record(f"g{n}", number, size) for n, size in enumerate(batch)] for number, batch in enumerate(sizes, 1)]
    whole, _ = log_of(*batches)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(whole)))
        junk = data.draw(st.binary(max_size=700))
        damaged[start : start + len(junk)] = junk[: len(damaged) - start]
    written = [each for batch in batches for each in batch]
    assert all(each in written for each in records_of(scan(bytes(damaged), SALT, sealed=data.draw(st.booleans()))))
