"""The store of sorted files: reads over memtables and files, flushes, compactions, purging, what it costs on disk."""

from __future__ import annotations

import asyncio

import pytest

from cluster.log.view import Quarantined
from cluster.quorum.deletions import Deletion
from cluster.quorum.journal import Journal
from cluster.quorum.keys import encode_key, token_of
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, encode_mutation
from cluster.quorum.partition_store import Arrival
from cluster.quorum.rows import merge_contents
from cluster.quorum.slices import Slice, page_of, page_token, resumed, visible_rows
from cluster.quorum.sorted.live import SortedOptions
from harness.ports.api import DiskFull
from tests.cluster.quorum.mutations import span_of
from tests.cluster.quorum.sorted.sorted_stores import GROUP, KNOBS, StoreMachine, simulate
from tests.support.played import played

P, Q = encode_key(("p",)), encode_key(("q",))


def rows(timestamp: int, *numbers: int, value: object = "v", partition: bytes = P) -> PartitionMutation:
    builder = MutationBuilder(partition, timestamp, timestamp)
    for number in numbers:
        builder.write(encode_key((number,)), {1: value})
    return builder.build()


def deletion_of_row(timestamp: int, number: int) -> PartitionMutation:
    return MutationBuilder(P, timestamp, timestamp).delete_row(encode_key((number,))).build()


def shown(page: object) -> list[int]:
    from cluster.quorum.keys import decode_key

    return [decode_key(row.key)[0] for row in visible_rows(page.contents)]  # type: ignore[attr-defined,misc]


@played(simulate)
async def test_what_was_written_is_read_from_memory_from_files_and_after_a_restart(machine: StoreMachine, /) -> None:
    await machine.start()
    for number in range(60):
        await machine.store.apply(rows(number + 1, number % 20, value=number))
    await machine.store.flush()
    assert machine.store.stats.flushes > 1 and machine.store.files
    for _ in range(2):
        page = await machine.store.read(Slice(P))
        assert {row.key: row.values[1] for row in visible_rows(page.contents)} == {
            encode_key((number,)): 40 + number for number in range(20)
        }
        await machine.restart()


@played(simulate)
async def test_slices_limits_columns_and_pages(machine: StoreMachine, /) -> None:
    await machine.start()
    held = []
    for start in range(0, 60, 6):
        held.append(rows(start + 1, *range(start, start + 6)))
        await machine.store.apply(held[-1])
    held.append(deletion_of_row(100, 10))
    await machine.store.apply(held[-1])
    whole = merge_contents([each.contents for each in held])
    spans = (span_of((4,)), (encode_key((8,)), encode_key((33,))))
    for asked in (
        Slice(P),
        Slice(P, spans),
        Slice(P, spans, 5),
        Slice(P, limit=1),
        Slice(P, limit=1_000),
        Slice(P, spans, 3, (2,)),
        Slice(P, ()),
        Slice(encode_key(("unknown",)), limit=4),
    ):
        expected = page_of(whole if asked.partition == P else type(whole)(), asked)
        assert await machine.store.read(asked) == expected
    asked = step = Slice(P, spans, 7)
    found = []
    while True:
        page = await machine.store.read(step)
        found += shown(page)
        token = page_token("t", asked, page)
        if token is None:
            break
        step = resumed("t", asked, token)
    assert found == [4, 8, 9, *range(11, 33)]


@played(simulate, options=SortedOptions(memtable_bytes=1 << 20, block_bytes=1_000))
async def test_a_read_is_of_one_moment_whatever_comes_while_it_runs(machine: StoreMachine, /) -> None:
    await machine.start()
    everything = range(1_500)
    await machine.store.apply(rows(1, *everything, value=1))
    await machine.store.flush()
    await machine.store.apply(rows(2, *everything, value=2))
    await machine.store.flush()
    reads = [asyncio.ensure_future(machine.store.read(Slice(P))) for _ in range(4)]
    await machine.clock.sleep(0)
    await asyncio.gather(
        machine.store.apply(rows(3, *everything, value=3)), machine.store.flush(), machine.store.compact_all()
    )
    scanned = machine.store.scan()
    await machine.store.apply(rows(4, *everything, value=4))
    await machine.store.compact_all()
    await machine.clock.sleep(0.1)  # long enough to remove what nobody reads
    values = set()
    while (piece := await scanned.next()) is not None:
        values |= {row.values[1] for row in visible_rows(piece.contents)}
    assert len(values) == 1
    for page in await asyncio.gather(*reads):
        assert len({row.values[1] for row in visible_rows(page.contents)}) == 1
    assert {row.values[1] for row in visible_rows(await machine.contents(P))} == {4}


@played(simulate, options=SortedOptions(memtable_bytes=30_000, block_bytes=2_000))
async def test_a_slice_reads_the_blocks_that_it_overlaps_and_no_others(machine: StoreMachine, /) -> None:
    await machine.start()
    for start in range(0, 4_000, 100):
        await machine.store.apply(rows(1, *range(start, start + 100)))
    await machine.store.flush()
    await machine.store.compact_all()
    size = sum(file.ref.size for file in machine.store.files)
    before = machine.store.stats.read_bytes
    assert shown(await machine.store.read(Slice(P, (span_of((1_234,)),)))) == [1_234]
    assert shown(await machine.store.read(Slice(P, limit=3))) == [0, 1, 2]
    read = machine.store.stats.read_bytes - before
    assert 0 < read < 10_000 and size > 50_000
    assert not shown(await machine.store.read(Slice(encode_key(("other",)))))
    assert machine.store.stats.reads_from_disk <= 3


@played(simulate)
async def test_partitions_are_scanned_in_the_order_of_their_tokens(machine: StoreMachine, /) -> None:
    await machine.start()
    keys = [encode_key((number,)) for number in range(40)]
    for number in range(120):
        await machine.store.apply(rows(number + 1, number // 40, partition=keys[number % 40]))
    found = await machine.scanned()
    assert list(found) == sorted(keys, key=token_of)
    assert all(len(contents.rows) == 3 for contents in found.values())
    tokens = sorted(map(token_of, keys))
    part = await machine.scanned(tokens[3], tokens[8])
    assert list(map(token_of, part)) == tokens[3:9]


@played(simulate)
async def test_similar_files_are_compacted_and_the_log_is_collected(machine: StoreMachine, /) -> None:
    await machine.start()
    for number in range(1_200):
        await machine.store.apply(rows(number + 1, number % 7, value="x" * 40))
    await machine.store.flush()
    await machine.until(lambda: len(machine.store.files) < 4, "compaction")
    await machine.until(lambda: len(machine.files()) == len(machine.store.files) + 1, "removal")
    stats = machine.store.stats
    assert stats.flushes > 20 and stats.compactions > 5
    log_bytes = sum(len(machine.disk.peek(path)) for path in machine.disk.paths() if path.startswith("log/"))
    assert log_bytes < 4 * KNOBS.log_segment_bytes
    assert len((await machine.contents(P)).rows) == 7


def test_deletions_go_when_they_may_and_never_before_what_they_cover() -> None:
    allowed: dict[str, int] = {"below": 0}

    def purgeable(partition: bytes, deletion: Deletion) -> bool:
        return partition == P and deletion.timestamp < allowed["below"]

    async def scenario(machine: StoreMachine) -> None:
        await machine.start()
        store = machine.store
        await store.apply(rows(1, 1, 2, 3))
        await store.flush()
        await store.apply(deletion_of_row(5, 2))
        await store.flush()
        await store.compact_all()
        assert len((await machine.contents(P)).rows) == 3  # not allowed: the deletion stays
        allowed["below"] = 5
        await store.compact_all()
        assert len((await machine.contents(P)).rows) == 3
        allowed["below"] = 6
        await store.apply(rows(4, 2))  # in memory, and older
        await store.compact_all()
        assert len((await machine.contents(P)).rows) == 3 and shown(await store.read(Slice(P))) == [1, 3]
        await store.flush()
        await store.compact_all()
        assert [row.deletion for row in (await machine.contents(P)).rows] == [None, None]
        await machine.restart()
        assert shown(await machine.store.read(Slice(P))) == [1, 3]

    simulate(scenario, options=SortedOptions(), purgeable=purgeable)


async def deleted_row(machine: StoreMachine) -> None:
    """One file has rows, another the deletion of one of them, which may be forgotten as far as the caller knows."""
    await machine.start()
    await machine.store.apply(rows(1, 1, 2, 3))
    await machine.store.flush()
    await machine.store.apply(deletion_of_row(5, 2))
    await machine.store.flush()


@played(simulate, options=SortedOptions(), purgeable=lambda partition, deletion: True)
async def test_a_deletion_stays_while_another_file_has_what_it_covers(machine: StoreMachine, /) -> None:
    await deleted_row(machine)
    older, newer = machine.store.files
    await machine.store._compact((newer,))
    assert shown(await machine.store.read(Slice(P))) == [1, 3]
    await machine.store.compact_all()
    assert len((await machine.contents(P)).rows) == 2 and older not in machine.store.files


@played(simulate, options=SortedOptions(), purgeable=lambda partition, deletion: True)
async def test_a_deletion_stays_while_another_file_has_what_it_wins_over_at_a_tie(machine: StoreMachine, /) -> None:
    await machine.start()
    await machine.store.apply(rows(5, 1, 2, 3))
    await machine.store.flush()
    await machine.store.apply(deletion_of_row(5, 2))
    await machine.store.flush()
    await machine.store._compact(machine.store.files[1:])
    assert shown(await machine.store.read(Slice(P))) == [1, 3]


@pytest.mark.parametrize("newer", [True, False])
@pytest.mark.parametrize(("covered", "free"), [(P, Q), (Q, P)])
@played(simulate, options=SortedOptions(), purgeable=lambda partition, deletion: True)
async def test_each_partition_keeps_its_deletions_for_what_it_has_elsewhere(
    machine: StoreMachine, /, covered: bytes, free: bytes, newer: bool
) -> None:
    """Of two that were deleted alike, one has only newer rows in other files, or nothing at all there."""
    await machine.start()
    await machine.store.apply(rows(4, 1, 2, partition=covered))
    await machine.store.flush()
    if newer:
        await machine.store.apply(rows(9, 2, partition=free))
        await machine.store.flush()
    for partition in (covered, free):
        await machine.store.apply(MutationBuilder(partition, 5, 5).delete_row(encode_key((1,))).build())
    await machine.store.flush()
    await machine.store._compact(machine.store.files[-1:])
    assert shown(await machine.store.read(Slice(covered))) == [2]
    assert len((await machine.contents(free)).rows) == newer, "nothing needs its deletion"


@played(simulate, options=SortedOptions(), purgeable=lambda partition, deletion: True)
async def test_a_deletion_stays_while_what_it_covers_is_on_its_way_through_the_log(machine: StoreMachine, /) -> None:
    await deleted_row(machine)
    machine.disk.extra_sync_ns = 50_000_000
    write = asyncio.ensure_future(machine.store.apply(rows(4, 2, 7)))
    await machine.clock.sleep(0)
    await machine.store.compact_all()
    await write
    assert shown(await machine.store.read(Slice(P))) == [1, 3, 7]


@played(simulate, options=SortedOptions(), purgeable=lambda partition, deletion: True)
async def test_what_is_in_files_is_not_taken_from_the_log_again(
    machine: StoreMachine, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before the log forgets must not bring back what was deleted, its deletion being forgotten."""
    await machine.start()
    await machine.store.apply(deletion_of_row(5, 2))
    await machine.store.flush()
    await machine.clock.sleep(0.5)  # the log has forgotten the deletion, and will not forget what it covers
    monkeypatch.setattr(Journal, "cut", lambda *_: None)
    await machine.store.apply(rows(4, 1, 2, 3))
    await machine.store.flush()
    await machine.store.compact_all()
    await machine.restart()
    assert shown(await machine.store.read(Slice(P))) == [1, 3]


@played(simulate, purgeable=lambda partition, deletion: True)
async def test_a_partition_of_which_nothing_is_left_is_gone(machine: StoreMachine, /) -> None:
    await machine.start()
    await machine.store.apply(rows(1, 1, 2, 3))
    await machine.store.apply(MutationBuilder(P, 2, 2).delete_partition().build())
    await machine.store.flush()
    assert await machine.scanned()
    await machine.store.compact_all()
    assert machine.store.files == () and await machine.scanned() == {}
    assert (await machine.contents(P)).empty
    await machine.restart()
    assert machine.store.files == ()


@pytest.mark.parametrize("columns", [1, 20])
@pytest.mark.parametrize("rows_each", [1, 200])
@played(simulate, options=SortedOptions())
async def test_a_cell_costs_less_than_three_times_its_bytes(
    machine: StoreMachine, /, columns: int, rows_each: int
) -> None:
    """Its bytes: those of its value and timestamp, and its share of the keys of row and partition."""
    await machine.start()
    written = 0
    for number in range(1_000 // rows_each):
        partition = encode_key((f"user{number:05d}",))
        builder = MutationBuilder(partition, 1_700_000_000_000_000 + number, 0)
        for row in range(rows_each):
            key = encode_key((row, "clustering"))
            builder.write(key, dict.fromkeys(range(columns), 1000000 + row), insert=False)
            written += len(key) + columns * (8 + 8)
        written += len(partition)
        await machine.store.apply(builder.build())
    await machine.store.flush()
    await machine.store.compact_all()
    on_disk = sum(file.ref.size for file in machine.store.files)
    assert 0 < on_disk < 3 * written


@played(simulate)
async def test_writes_wait_while_the_disk_is_full_and_nothing_is_lost(machine: StoreMachine, /) -> None:
    await machine.start()
    for number in range(20):
        await machine.store.apply(rows(number + 1, number))
    machine.disk.full = True
    refused = 0
    writes = [asyncio.ensure_future(machine.store.apply(rows(100 + n, 100 + n))) for n in range(3)]
    await machine.clock.sleep(0.5)
    try:
        await asyncio.wait_for(machine.store.apply(rows(200, 200)), 0.5)
    except (DiskFull, TimeoutError):
        refused += 1
    assert refused == 1
    assert len(shown(await machine.store.read(Slice(P)))) >= 20
    machine.disk.full = False
    await asyncio.gather(*writes)
    await machine.store.flush()
    await machine.restart()
    assert set(shown(await machine.store.read(Slice(P)))) >= {*range(20), 100, 101, 102}


@played(simulate)
async def test_writes_wait_for_a_flush_that_hangs_and_reads_do_not(machine: StoreMachine, /) -> None:
    await machine.start()
    await machine.store.apply(rows(1, 1))
    machine.disk.extra_sync_ns = 3_000_000_000
    writes = [asyncio.ensure_future(machine.store.apply(rows(n, n))) for n in range(2, 60)]
    began = machine.clock.monotonic_ns()
    assert shown(await machine.store.read(Slice(P))) == [1]
    assert machine.clock.monotonic_ns() - began < 1_000_000
    machine.disk.extra_sync_ns = 0
    await asyncio.gather(*writes)
    assert len(shown(await machine.store.read(Slice(P)))) == 59


@played(simulate)
async def test_what_a_deleted_replica_left_does_not_come_back(machine: StoreMachine, /) -> None:
    await machine.start()
    await machine.store.apply(rows(1, 1))
    await machine.store.flush()
    await machine.store.close()
    left = {path: machine.disk.peek(path) for path in machine.files()}
    await machine.log.destroy(GROUP)
    assert len(left) > 1 and machine.files() == []
    for path, data in left.items():
        machine.disk.put(path, data)
    machine.begun = False
    await machine.restart()  # as after a crash before they were removed: the group is new, they are not its own
    assert (await machine.contents(P)).empty
    await machine.store.apply(rows(2, 2))
    await machine.store.flush()
    assert shown(await machine.store.read(Slice(P))) == [2]


@played(simulate)
async def test_a_closed_store_is_found_again_and_a_quarantined_one_refuses(machine: StoreMachine, /) -> None:
    await machine.start()
    await machine.store.apply(rows(1, *range(50)))
    await machine.store.flush()
    path = machine.store.files[0].ref.path
    machine.disk.flip_bit(path, 8 * 60)
    machine.disk.extra_sync_ns = 1_000_000_000
    arrival = Arrival(rows(3, 3), encode_mutation(rows(3, 3)))
    coming = [machine.store.begin_apply((arrival,) * count) for count in (1, 2)]
    await asyncio.sleep(0)
    with pytest.raises(Quarantined):
        await machine.store.read(Slice(P))
    assert len(machine.quarantined) == 1
    for told in await asyncio.gather(*coming, return_exceptions=True):
        assert isinstance(told, Quarantined), "nobody waits for what is not durable yet"
    machine.disk.extra_sync_ns = 0
    with pytest.raises(Quarantined):
        machine.store.begin_apply((arrival,))
    for refused in (machine.store.read(Slice(P)), machine.store.apply(rows(2, 2)), machine.store.flush()):
        with pytest.raises(Quarantined):
            await refused
    await machine.clock.sleep(2)
    machine.disk.flip_bit(path, 8 * 60)  # whole again, and not trusted again
    with pytest.raises(Quarantined):
        await machine.restart()
    assert machine.failures == []
