"""Small files: whole, or of another version, or damaged, and never taken for another of these."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.log import envelope
from cluster.log.envelope import CorruptLog, either, twice, unframe
from cluster.log.frames import OtherVersion

KIND, PAYLOAD = 7, b"what it holds"


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A file that a program of another version has written."""
    with monkeypatch.context() as patch:
        patch.setattr(envelope, "FORMAT_VERSION", 9)
        return twice(KIND, PAYLOAD)


def flipped(data: bytes, *at: int) -> bytes:
    changed = bytearray(data)
    for each in at:
        changed[each] ^= 1
    return bytes(changed)


def test_another_version_is_no_damage_though_one_copy_is_damaged(other: bytes) -> None:
    for data in (other, flipped(other, 3), flipped(other, len(other) - 1)):
        with pytest.raises(OtherVersion, match=r"^the record has format version 9; this program reads 1$"):
            either(KIND, data)
    with pytest.raises(CorruptLog, match="damaged"):
        either(KIND, flipped(other, 3, len(other) - 1))
    with pytest.raises(CorruptLog, match="version 9"):
        unframe(KIND, other)  # a part of a file, which may have come from another node


@given(st.integers(0, 2 * len(twice(KIND, PAYLOAD)) - 1))
def test_no_bit_that_flips_makes_a_file_one_of_another_version(at: int) -> None:
    data = twice(KIND, PAYLOAD)
    at %= len(data)
    assert either(KIND, flipped(data, at)) == PAYLOAD
    half = len(data) // 2
    with pytest.raises(CorruptLog):
        either(KIND, flipped(data, at, (at + half) % len(data)))


def test_a_file_of_another_kind_is_damage() -> None:
    with pytest.raises(CorruptLog, match="a record of kind 7 where one of kind 8 belongs"):
        either(8, twice(KIND, PAYLOAD))
