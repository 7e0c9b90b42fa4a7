"""What a crash leaves of an unsynced stretch."""

from __future__ import annotations

from random import Random

import pytest

from harness.ports.sim.disk import PAGE_BYTES, SECTOR_BYTES, Tear, torn

SEEDS = range(400)


def written(length: int) -> bytes:
    return bytes(1 + position % 251 for position in range(length))


@pytest.mark.parametrize("tear", ["prefix", "pages", "stale"])
def test_what_was_synced_is_never_touched_and_nothing_is_made_up(tear: Tear) -> None:
    for seed in SEEDS:
        entropy = Random(seed)
        data = written(entropy.randrange(1, 5 * PAGE_BYTES))
        synced = entropy.randrange(len(data))
        left = torn(data, synced, tear, entropy)
        assert left[:synced] == data[:synced] and synced <= len(left) <= len(data)
        assert all(new in (old, 0) for new, old in zip(left, data, strict=False))


def test_a_prefix_is_a_prefix() -> None:
    data = written(20_000)
    left = [torn(data, 100, "prefix", Random(seed)) for seed in SEEDS]
    assert all(data.startswith(kept) for kept in left)
    assert len({len(kept) for kept in left}) > 300


def fates(data: bytes, left: bytes, unit: int) -> tuple[str, ...]:
    """Of each page or sector: kept, lost, or some of both."""
    found = []
    for start in range(0, len(left), unit):
        piece = left[start : start + unit]
        kept = piece == data[start : start + len(piece)]
        found.append("kept" if kept else "lost" if not any(piece) else "torn")
    return tuple(found)


def test_pages_are_kept_lost_and_torn_in_every_combination() -> None:
    data = written(2 * PAGE_BYTES)
    seen = {fates(data, left, PAGE_BYTES) for seed in range(4000) if len(left := torn(data, 0, "pages", Random(seed)))}
    words = ("kept", "lost", "torn")
    assert seen >= {(first, second) for first in words for second in words}
    assert ("lost",) in seen, "the file may be shorter than what was written"


def test_torn_pages_are_torn_between_sectors() -> None:
    data = written(2 * PAGE_BYTES)
    for seed in SEEDS:
        left = torn(data, 0, "pages", Random(seed))
        whole = len(left) - len(left) % SECTOR_BYTES
        assert "torn" not in fates(data, left[:whole], SECTOR_BYTES)


def test_a_later_page_may_reach_the_disk_before_an_earlier_one() -> None:
    """The legal power cut that prefixes never show."""
    data = written(PAGE_BYTES + 100)
    left = [torn(data, 50, "pages", Random(seed)) for seed in SEEDS]
    assert any(
        kept[50:PAGE_BYTES] == bytes(PAGE_BYTES - 50) and kept[PAGE_BYTES:] == data[PAGE_BYTES:] for kept in left
    )


def test_stale_pages_show_what_a_truncation_had_cut_off() -> None:
    data, before = written(3 * PAGE_BYTES), b"\xff" * (2 * PAGE_BYTES)
    stale = [torn(data, 10, "stale", Random(seed), before) for seed in SEEDS]
    assert any(b"\xff" in left for left in stale)
    assert all(b"\xff" not in left[2 * PAGE_BYTES :] and b"\xff" not in left[:10] for left in stale)
    assert all(b"\xff" not in torn(data, 10, "pages", Random(seed), before) for seed in SEEDS)
