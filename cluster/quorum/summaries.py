"""Summaries of sets of mutation ids, and how two sets differ by them (Q4). Pure.

A summary states how many ids there are from a bound on and a *set hash* of them: the sum of 128-bit hashes, bit by bit.
Sets that differ differ in it but for one case in 2^128. Beside that it may carry a *sketch*, an invertible Bloom lookup
table (Goodrich and Mitzenmacher, 2011): each id is added to three cells, so that the sketches of two sets, subtracted,
leave those ids that only one has, and small differences can be taken apart whatever the sets' sizes. Large ones can't:
then the sketch has overflowed, which the set hash shows too, and somebody has to ask for a larger one, or for the ids.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from cluster.quorum.ids import ID_BYTES, MutationId, decode_id, encode_id

ALL_IDS = -1
"""Asked for in place of a sketch's size: the ids themselves."""

_CELL = struct.Struct(f">i{ID_BYTES}s8s")
_POSITIONS = 3
_GROWTH = 8
_HASH_BYTES = 16


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a set: its ids with times from `bound` on, `count` of them, and their set hash.

    `sketch` is empty where none was asked for, `ids` None. What lies below the bound all replicas have.
    """

    bound: int
    count: int
    set_hash: bytes
    sketch: bytes = b""
    ids: tuple[MutationId, ...] | None = None

    def agrees(self, other: Summary, weak: bool = False) -> bool:
        """Whether both are of equal sets, given that their bounds are equal; `weak` counts and compares no more."""
        return self.count == other.count and (weak or self.set_hash == other.set_hash)

    @property
    def detail(self) -> int:
        """What was asked for: how many cells the sketch has, or ALL_IDS."""
        return ALL_IDS if self.ids is not None else len(self.sketch) // _CELL.size


@dataclass(frozen=True, slots=True)
class Difference:
    """The ids that only the one set has, and those that only the other has, both rising."""

    only_one: tuple[MutationId, ...]
    only_other: tuple[MutationId, ...]


class SetHash:
    """The set hash of a set that grows and shrinks; it begins with `ids`, each given once."""

    def __init__(self, ids: Iterable[MutationId] = ()) -> None:
        self.count = 0
        self._sum = 0
        for each in ids:
            self.add(each)

    def add(self, each: MutationId) -> None:
        """An id that the set did not have."""
        self.count += 1
        self._sum ^= _of_set(encode_id(each))

    def remove(self, ids: Iterable[MutationId]) -> None:
        """Ids that it had."""
        for each in ids:
            self.count -= 1
            self._sum ^= _of_set(encode_id(each))

    def summary(self, bound: int) -> Summary:
        """The plain summary, given that no id of the set lies below the bound."""
        return Summary(bound, self.count, self._sum.to_bytes(_HASH_BYTES, "big"))


def summarize(ids: Iterable[MutationId], bound: int, detail: int = 0) -> Summary:
    """The summary of those ids that are not below the bound, with a sketch of `detail` cells, or ALL_IDS."""
    chosen = sorted(each for each in ids if each.time >= bound)
    plain = SetHash(chosen).summary(bound)
    if detail == ALL_IDS:
        return msgspec.structs.replace(plain, ids=tuple(chosen))
    if detail == 0:
        return plain
    cells = _SketchCells.empty(detail)
    for each in chosen:
        cells.add(encode_id(each), 1)
    return msgspec.structs.replace(plain, sketch=cells.packed())


def difference(one: Summary, other: Summary, overflow_is_equal: bool = False) -> Difference | None:
    """How two sets differ, of whose summaries bound and detail are equal; None where the sketches can't tell.

    Never wrong: what was taken apart has to explain the difference of the set hashes. Where `overflow_is_equal` what
    could not be taken apart counts for nothing.
    """
    if one.ids is not None and other.ids is not None:
        return _of_lists(one.ids, other.ids)
    if not one.sketch or len(one.sketch) != len(other.sketch):
        return None
    cells = _SketchCells.unpacked(one.sketch)
    cells.subtract(_SketchCells.unpacked(other.sketch))
    found = cells.peel()
    if overflow_is_equal or _explains(found, one, other):
        return Difference(tuple(sorted(found.only_one)), tuple(sorted(found.only_other)))
    return None


def more_detail(detail: int, count: int, first: int) -> int:
    """What to ask for where a sketch of `detail` cells told too little of sets of up to `count` ids.

    `first` is the size to begin with; a sketch that is as large as the list of all ids is not worth its bytes.
    """
    cells = first if detail == 0 else detail * _GROWTH
    return cells if 0 < cells * _CELL.size < count * ID_BYTES else ALL_IDS


def _of_lists(one: tuple[MutationId, ...], other: tuple[MutationId, ...]) -> Difference:
    mine, others = dict.fromkeys(one), dict.fromkeys(other)
    return Difference(
        tuple([each for each in one if each not in others]), tuple([each for each in other if each not in mine])
    )


def _explains(found: Difference, one: Summary, other: Summary) -> bool:
    """Whether a difference is all that there is between two sets."""
    left = int.from_bytes(one.set_hash, "big") ^ int.from_bytes(other.set_hash, "big")
    for each in (*found.only_one, *found.only_other):
        left ^= _of_set(encode_id(each))
    return left == 0 and one.count - other.count == len(found.only_one) - len(found.only_other)


# ---- cells ----


def _of_set(encoded: bytes) -> int:
    """An id's part in the set hash."""
    return int.from_bytes(blake2b(encoded, digest_size=48).digest()[:_HASH_BYTES], "big")


def _hashed(encoded: bytes) -> tuple[int, tuple[int, ...]]:
    """What a sketch makes of an id's bytes: its check, and three numbers that choose its cells."""
    digest = blake2b(encoded, digest_size=48).digest()
    return int.from_bytes(digest[16:24], "big"), struct.unpack_from(">QQQ", digest, 24)


class _SketchCells:
    """Cells of a sketch: how many ids lie in each (of the one set less those of the other), their sum and checks."""

    def __init__(self, counts: list[int], sums: list[int], checks: list[int]) -> None:
        self._counts, self._sums, self._checks = counts, sums, checks

    @classmethod
    def empty(cls, size: int) -> _SketchCells:
        return cls([0] * size, [0] * size, [0] * size)

    @classmethod
    def unpacked(cls, data: bytes) -> _SketchCells:
        found = list(_CELL.iter_unpack(data))
        numbers = ([int.from_bytes(each[at], "big") for each in found] for at in (1, 2))
        return cls([each[0] for each in found], *numbers)

    def packed(self) -> bytes:
        cells = zip(self._counts, self._sums, self._checks, strict=True)
        return b"".join(
            _CELL.pack(count, ids.to_bytes(ID_BYTES, "big"), check.to_bytes(8, "big")) for count, ids, check in cells
        )

    def add(self, encoded: bytes, times: int) -> list[int]:
        """Put an id in, or (-1) take it out; the cells that changed."""
        (check, positions), number = _hashed(encoded), int.from_bytes(encoded, "big")
        touched = self._places(positions)
        for at in touched:
            self._counts[at] += times
            self._sums[at] ^= number
            self._checks[at] ^= check
        return touched

    def subtract(self, other: _SketchCells) -> None:
        for at in range(len(self._counts)):
            self._counts[at] -= other._counts[at]
            self._sums[at] ^= other._sums[at]
            self._checks[at] ^= other._checks[at]

    def peel(self) -> Difference:
        """Take out ids that are alone in a cell, as long as there are any; empties the cells unless they overflowed."""
        only: dict[int, dict[bytes, None]] = {1: {}, -1: {}}
        waiting = list(range(len(self._counts)))
        # Invariant: cells hold just the ids of the difference that are not in `only`, and every cell that may hold a
        # single one of them waits. A count of 1 or -1 proves nothing (two ids of one set and one of the other make 1
        # too): the check does. An id is taken out once, so the loop ends.
        while waiting:
            at = waiting.pop()
            encoded = self._sums[at].to_bytes(ID_BYTES, "big")
            sign = self._counts[at]
            if sign not in only or self._checks[at] != _hashed(encoded)[0] or encoded in only[sign]:
                continue
            only[sign][encoded] = None
            # Its other cells hold one id less, and maybe a single one by now.
            waiting += self.add(encoded, -sign)
        return Difference(*(tuple(map(decode_id, only[sign])) for sign in (1, -1)))

    def _places(self, positions: tuple[int, ...]) -> list[int]:
        """Distinct cells, one in each third; of fewer than three cells all."""
        size = len(self._counts)
        parts = min(_POSITIONS, size)
        edges = [size * part // parts for part in range(parts + 1)]
        return [low + at % (high - low) for low, high, at in zip(edges, edges[1:], positions, strict=False)]
