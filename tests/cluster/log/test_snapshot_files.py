"""Snapshot files: whole, read in pieces of any size, damaged in any byte, kept while they are read (G5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.log.envelope import CorruptLog
from cluster.log.snapshots import Contents, pieces
from cluster.raft.types import SnapshotMeta
from tests.cluster.log.node_logs import CONFIGURATION, Machine, entry, simulate, snapshot

META = SnapshotMeta(7, 2, CONFIGURATION)
PARTS = [b"%d" % number * number for number in range(12)]
FILE = b"".join(pieces(META, PARTS))


def whole(data: bytes) -> list[bytes]:
    """The parts of a file that is taken in at once; raises CorruptLog."""
    contents = Contents(META)
    parts = contents.take(data)
    if not contents.whole:
        raise CorruptLog("it is not whole")
    return parts


def test_a_file_gives_back_its_parts() -> None:
    assert whole(FILE) == PARTS
    assert whole(b"".join(pieces(META, []))) == []


@given(st.integers(0, 8 * len(FILE) - 1))
def test_a_flipped_bit_is_found_wherever_it_is(bit: int) -> None:
    damaged = bytearray(FILE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptLog):
        whole(bytes(damaged))


@pytest.mark.parametrize("length", range(0, len(FILE), 7))
def test_a_file_that_is_cut_short_is_not_whole(length: int) -> None:
    with pytest.raises(CorruptLog):
        whole(FILE[:length])


def test_parts_that_are_missing_doubled_or_of_another_snapshot_are_found() -> None:
    other = b"".join(pieces(SnapshotMeta(8, 2, CONFIGURATION), PARTS))
    half = len(FILE) // 2
    without_one = b"".join(pieces(META, [])) + FILE
    for data in (other, FILE + FILE, FILE[half:], without_one):
        with pytest.raises(CorruptLog):
            whole(data)
    contents = Contents(META)
    with pytest.raises(CorruptLog):
        contents.take(other)
    assert contents.take(FILE) == PARTS, "what was refused leaves no trace"


@pytest.mark.parametrize("limit", [1, 20, 100, 1_000, 1 << 20])
def test_pieces_are_whole_records_that_follow_each_other(limit: int) -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        view = machine.group("g")
        ref = await view.snapshot_file(META).write_all(pieces(META, PARTS))
        assert ref.size == len(FILE)
        contents, parts, offset = Contents(META), list[bytes](), 0
        while offset < ref.size:
            piece = await view.read_snapshot(ref, offset, limit)
            largest = max(len(part) for part in PARTS) + 16
            assert len(piece) <= max(limit, largest, 100)
            parts += contents.take(piece)
            offset += len(piece)
        assert (contents.whole, parts, offset) == (True, PARTS, ref.size)

    simulate(scenario)


def test_a_piece_that_is_damaged_on_disk_is_not_given_out() -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        view = machine.group("g")
        ref = await view.snapshot_file(META).write_all(pieces(META, PARTS))
        machine.damage(ref.path, ref.size // 2, 1)
        with pytest.raises(CorruptLog):
            await view.read_snapshot(ref, 0, 1 << 20)
        machine.disk.cut_tail(ref.path, ref.size - 3)
        with pytest.raises(CorruptLog):
            await view.read_snapshot(ref, ref.size - 17, 1 << 20)

    simulate(scenario)


def test_a_snapshot_is_kept_while_it_is_read_and_removed_after() -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        view = machine.group("g")
        await machine.write(view, *(entry(index, 1) for index in range(1, 9)))
        await machine.save(view, snapshot(2, 1))
        first = view.recover().snapshot
        assert first is not None
        view.pin(first)
        view.pin(first)
        await machine.save(view, snapshot(4, 1))
        await machine.clock.sleep(0.2)
        view.unpin(first)
        await machine.clock.sleep(0.2)
        assert first.path in machine.disk.paths()
        assert await view.read_snapshot(first, 0, 1 << 20)
        view.unpin(first)
        await machine.until(lambda: first.path not in machine.disk.paths(), "its removal")
        last = view.recover().snapshot
        assert last is not None and last.path in machine.disk.paths()

    simulate(scenario)
