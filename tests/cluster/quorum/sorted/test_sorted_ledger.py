"""Q3: a store tells a ledger of mutations with ids, keeps in the log what it needs, and a note beside them."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterable

import pytest
from test.support import catch_unraisable_exception

from cluster.log.envelope import CorruptLog
from cluster.log.view import Quarantined
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes, encode_key
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, encode_mutation
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.partition_store import Arrival
from cluster.quorum.sorted.live import LiveFiles
from cluster.quorum.sorted.store import MOST_NOTES, MutationRecord, NoteRecord, decode_record, encode_record
from harness.ports.failpoints import Arming
from tests.cluster.quorum.sorted.sorted_stores import StoreMachine, simulate
from tests.cluster.quorum.sorted.test_sorted_crashes import SYNC
from tests.support.played import played

PARTITION = encode_key((1,))


def wrote(row: int, timestamp: int) -> PartitionMutation:
    return MutationBuilder(PARTITION, timestamp, 0).write(encode_key((row,)), {5: "x" * 50}).build()


class RecordingLedger:
    """A ledger that remembers what it was told, and needs the log from a place on."""

    def __init__(self) -> None:
        self.stored_ids: dict[MutationId, tuple[int, KeyBytes]] = {}
        self.needs_from: int | None = None
        self.low_bound = 0
        self.collected_to = 0

    def stored(self, number: int, each: MutationId, partition: KeyBytes) -> None:
        self.stored_ids[each] = (number, partition)

    def needed(self, last: int) -> list[tuple[int, MutationId, KeyBytes]]:
        return []

    def set_aside(self, numbers: Iterable[int]) -> None:
        raise AssertionError("nothing is set aside")

    def recovered(self, number: int) -> None:
        assert all(stored <= number for stored, _ in self.stored_ids.values())

    def collected(self, number: int) -> None:
        assert number > self.collected_to
        self.collected_to = number


class Unreconciled(RecordingLedger):
    """A ledger that needs everything from its low bound on that was not set aside."""

    def __init__(self) -> None:
        super().__init__()
        self.aside: dict[int, None] = {}

    @property
    def needs_from(self) -> int | None:  # type: ignore[override]
        return min((number for number, *_ in self.needed(1 << 60)), default=None)

    @needs_from.setter
    def needs_from(self, _: int | None) -> None:
        pass

    def needed(self, last: int) -> list[tuple[int, MutationId, KeyBytes]]:
        found = [(number, each, partition) for each, (number, partition) in self.stored_ids.items()]
        return sorted(n for n in found if n[0] <= last and n[0] not in self.aside and n[1].time >= self.low_bound)

    def set_aside(self, numbers: Iterable[int]) -> None:
        self.aside.update(dict.fromkeys(numbers))


def test_records_come_back_and_others_are_damage() -> None:
    encoded = encode_mutation(wrote(1, 5))
    for record in (MutationRecord(None, encoded), MutationRecord(MutationId(7, "t1"), encoded), NoteRecord(b"n")):
        assert decode_record(encode_record(record)) == record
    for data in (b"", b"\x7f", b"\x80short"):
        with pytest.raises(CorruptLog):
            decode_record(data)


@played(simulate)
async def test_mutations_are_told_when_they_are_visible_and_again_after_a_restart_though_they_are_in_files(
    machine: StoreMachine, /
) -> None:
    told = machine.ledger = RecordingLedger()
    await machine.start()
    ids = [MutationId(time, "t1") for time in range(1, 31)]
    told.needs_from = 6
    for each in ids:
        await machine.do(machine.store.apply(wrote(each.time, each.time), each))
        assert each in told.stored_ids
    await machine.do(machine.store.apply(wrote(99, 99)))
    await machine.do(machine.store.flush())
    await machine.until(lambda: machine.store.logged(5) is None, "what nobody needs leaves the log")
    assert list(told.stored_ids) == ids
    again = machine.ledger = RecordingLedger()
    again.needs_from = 6
    await machine.restart()
    assert again.stored_ids == {each: told.stored_ids[each] for each in ids[5:]}
    for each, (number, partition) in again.stored_ids.items():
        assert partition == PARTITION and machine.store.logged(number) == encode_mutation(wrote(each.time, each.time))
    assert len((await machine.contents(PARTITION)).rows) == 31
    again.needs_from = None
    machine.store.release()
    await machine.until(lambda: machine.store.logged(30) is None, "the log is let go of")


@played(simulate)
async def test_a_note_stays_over_flushes_and_restarts_and_the_last_one_counts(machine: StoreMachine, /) -> None:
    await machine.start()
    assert machine.store.noted is None
    for number in range(20):
        await machine.do(machine.store.note(b"note %d" % number))
        assert machine.store.noted == b"note %d" % number
        await machine.do(machine.store.apply(wrote(number, number + 1)))
    await machine.do(machine.store.flush())
    await machine.restart()
    assert machine.store.noted == b"note 19"
    await machine.do(machine.store.note(b"last"))
    await machine.restart()
    assert machine.store.noted == b"last"
    assert await machine.contents(PARTITION) == (await machine.scanned())[PARTITION]


@played(simulate)
async def test_a_note_outlives_the_records_that_the_log_has_forgotten(machine: StoreMachine, /) -> None:
    await machine.start()
    await machine.do(machine.store.note(b"note"))
    await machine.do(machine.store.apply(wrote(1, 1)))
    await machine.do(machine.store.flush())
    await machine.until(lambda: machine.store._journal.read(1) is None, "the log forgets the record of the note")
    await machine.restart()
    assert machine.store.noted == b"note"


def test_the_log_keeps_what_is_being_set_aside_until_that_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[None] = []

    async def hang(*_: object) -> None:
        begun.append(None)
        await asyncio.get_running_loop().create_future()

    async def scenario(machine: StoreMachine) -> None:
        machine.ledger = Unreconciled()
        await machine.start()
        monkeypatch.setattr(LiveFiles, "set_aside", hang)
        time = 0
        while not begun:
            time += 1
            await machine.do(machine.store.apply(wrote(time, time), MutationId(time, "t1")))
        await machine.clock.sleep(1)
        assert time > 10 and all(machine.store.logged(each) is not None for each in range(1, time + 1))

    simulate(scenario)


@played(simulate)
async def test_a_mutation_at_the_bound_is_kept_aside(machine: StoreMachine, /) -> None:
    ledger = machine.ledger = Unreconciled()
    await machine.start()
    for time in range(1, 101):
        await machine.do(machine.store.apply(wrote(time, time), MutationId(time, "t1")))
    await machine.do(machine.store.flush())
    await machine.until(lambda: machine.store.logged(1) is None, "the log forgets what was set aside")
    (aside, *_) = machine.store._live.asides
    ledger.low_bound = last = max(each.id.time for each in aside)
    machine.store.release()
    await machine.clock.sleep(1)
    assert await machine.do(machine.store.find(ledger.stored_ids[MutationId(last, "t1")][0])) is not None


@played(simulate)
async def test_what_stays_unreconciled_is_set_aside_and_served_from_there_until_the_bound_is_above_it(
    machine: StoreMachine, /
) -> None:
    ledger = machine.ledger = Unreconciled()
    await machine.start()
    ids = [MutationId(time, "t1") for time in range(1, 201)]
    for each in ids:
        await machine.do(machine.store.apply(wrote(each.time, each.time), each))
    await machine.do(machine.store.flush())
    assert len(ledger.aside) > 100, "the log was not to keep them all"
    await machine.until(lambda: machine.store.logged(1) is None, "the log forgets what was set aside")
    log_bytes = sum(len(machine.disk.peek(path)) for path in machine.disk.paths() if path.startswith("log/"))
    assert log_bytes < 4 * machine.knobs.log_segment_bytes

    async def all_found() -> None:
        for each, (number, partition) in ledger.stored_ids.items():
            assert partition == PARTITION
            found = await machine.do(machine.store.find(number))
            assert found == encode_mutation(wrote(each.time, each.time))

    await all_found()
    before = ledger.stored_ids
    ledger = machine.ledger = Unreconciled()
    await machine.restart()
    assert ledger.stored_ids == before and len(ledger.aside) > 100
    await all_found()

    ledger.low_bound = 101
    machine.store.release()
    await machine.clock.sleep(1)
    assert await machine.do(machine.store.find(1)) is None
    kept = [number for each, (number, _) in before.items() if each.time >= 101]
    for number in kept:
        assert await machine.do(machine.store.find(number)) is not None
    ledger.low_bound = 1_000
    machine.store.release()
    await machine.until(lambda: not machine.store._live.asides, "what all have is kept no more")
    assert len((await machine.contents(PARTITION)).rows) == 200
    after = machine.ledger = Unreconciled()
    after.low_bound = 1_000
    await machine.restart()
    assert len((await machine.contents(PARTITION)).rows) == 200
    assert not after.aside and len(machine.files()) == len(machine.store.files) + 1


@played(simulate)
async def test_what_came_between_a_snapshot_and_a_restart_is_never_taken_for_nothing(machine: StoreMachine, /) -> None:
    """A read asks on behind a snapshot; the replica restarts in between, and has forgotten what it was sent (Q5)."""
    log = machine.ledger = MutationLog()
    await machine.start()
    first, second = MutationId(5, "t1"), MutationId(6, "t1")
    await machine.do(machine.store.apply(wrote(1, 5), first))
    as_of = log.last
    await machine.do(machine.store.apply(wrote(2, 6), second))
    at_end = log.last
    log.forget_below(10)
    await machine.do(machine.store.flush())
    machine.store.release()
    await machine.until(lambda: machine.store.logged(at_end) is None, "what all have leaves the log")
    again = machine.ledger = MutationLog()
    await machine.restart()
    again.forget_below(10)
    assert log.newer(PARTITION, as_of) is None and again.newer(PARTITION, as_of) is None
    assert again.summary_of(PARTITION, 0, 8, as_of) is None
    assert again.newer(PARTITION, at_end) == (), "behind the end of its log nothing came"
    await machine.do(machine.store.apply(wrote(3, 7), MutationId(11, "t1")))
    assert again.newer(PARTITION, at_end) == (MutationId(11, "t1"),)


def test_a_store_that_is_closed_before_it_lets_go_of_mutations_leaves_nothing_unawaited() -> None:
    async def scenario(machine: StoreMachine) -> None:
        ledger = machine.ledger = Unreconciled()
        await machine.start()
        for time in range(1, 201):
            await machine.do(machine.store.apply(wrote(time, time), MutationId(time, "t1")))
        await machine.do(machine.store.flush())
        assert machine.store._live.asides
        ledger.low_bound = 1_000
        machine.store.release()
        await machine.store.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with catch_unraisable_exception() as caught:
            simulate(scenario)
            gc.collect()
            assert caught.unraisable is None


class Aside:
    """What must be found: mutations that were acknowledged, and the bound below which nobody asks."""

    def __init__(self, machine: StoreMachine) -> None:
        self.machine = machine
        self.acknowledged: list[MutationId] = []
        self.low_bound = 0
        self.deaths = 0

    async def put(self, time: int) -> None:
        machine, each = self.machine, MutationId(time, "t1")
        task = machine.begin(machine.store.apply(wrote(time, time), each))
        while not task.done() and machine.alive:
            await machine.clock.sleep(0.0005)
        if task.done() and task.exception() is None:
            self.acknowledged.append(each)

    async def raise_bound(self, bound: int) -> None:
        """As the owner does, in its own process, which made the bound durable before."""

        async def release() -> None:
            self.ledger.low_bound = bound
            self.machine.store.release()

        self.low_bound = bound
        await self.machine.do(release())

    @property
    def ledger(self) -> Unreconciled:
        assert isinstance(self.machine.ledger, Unreconciled)
        return self.machine.ledger

    async def begin(self) -> None:
        """A life: whatever was acknowledged, from the bound on, is known by its id and has its bytes."""
        ledger = self.machine.ledger = Unreconciled()
        ledger.low_bound = self.low_bound
        await self.machine.start()
        for each in self.acknowledged:
            if each.time >= self.low_bound:
                number, _ = ledger.stored_ids[each]
                found = await self.machine.do(self.machine.store.find(number))
                assert found == encode_mutation(wrote(each.time, each.time)) or not self.machine.alive

    async def revive(self) -> None:
        while not self.machine.alive:
            self.deaths += 1
            await self.begin()


def dies_with_asides_at(step: int, tear: str) -> bool:
    """A life that sets mutations aside and lets them go, and dies at its n-th durable step; whether it got there."""
    died: list[bool] = []

    async def scenario(machine: StoreMachine) -> None:
        aside = Aside(machine)
        await aside.begin()
        machine.node.failpoints.arm(Arming(SYNC, skip=step))
        set_aside = 0
        for time in range(1, 61):
            await aside.put(time)
            if time % 20 == 0 and machine.alive:
                await machine.do(machine.store.flush())
                set_aside = max(set_aside, len(aside.ledger.aside))
                await aside.raise_bound(time - 10)
                await machine.clock.sleep(0.05)
            await aside.revive()
        await aside.raise_bound(10_000)
        await machine.clock.sleep(0.5)
        await aside.revive()
        machine.kill()
        await aside.begin()
        assert len(aside.acknowledged) >= 59 and machine.quarantined == [] and machine.failures == []
        assert aside.deaths or set_aside > 10, "mutations are set aside"
        kept = len(machine.store.files) + len(machine.store._live.asides) + 1
        assert len((await machine.contents(PARTITION)).rows) >= 59 and len(machine.files()) == kept
        died.extend([True] * bool(aside.deaths))

    simulate(scenario, seed=step, tear=tear, tear_tail=0.5, lose_tail=0.3)
    return bool(died)


def test_a_crash_at_each_durable_step_leaves_every_unreconciled_mutation_to_be_found() -> None:
    step = 0
    while dies_with_asides_at(step, ("pages", "stale")[step % 2]):
        step += 1
    assert step > 40


@played(simulate)
async def test_a_damaged_mutation_that_was_set_aside_quarantines_the_replica(machine: StoreMachine, /) -> None:
    machine.ledger = Unreconciled()
    await machine.start()
    for time in range(1, 100):
        await machine.do(machine.store.apply(wrote(time, time), MutationId(time, "t1")))
    await machine.do(machine.store.flush())
    await machine.until(lambda: machine.store.logged(1) is None, "the log forgets what was set aside")
    (aside, *_) = machine.store._live.asides
    machine.disk.flip_bit(aside.ref.path, 300)
    with pytest.raises(Quarantined):
        await machine.do(machine.store.find(1))
    assert len(machine.quarantined) == 1


@played(simulate)
async def test_many_mutations_at_once_are_stored_as_one_after_the_other_and_all_that_fit_in_with_one_sync(
    machine: StoreMachine, /
) -> None:
    told = machine.ledger = RecordingLedger()
    told.needs_from = 1
    await machine.start()
    mutations = [(MutationId(time, "t1"), wrote(time, time)) for time in range(1, 201)]
    arrivals = [Arrival(mutation, encode_mutation(mutation), each) for each, mutation in mutations]
    asked_ns = machine.ports.clock.monotonic_ns()
    await machine.do(machine.store.apply_all(arrivals[:100]))
    all_ns = machine.ports.clock.monotonic_ns() - asked_ns
    await machine.do(machine.store.apply(mutations[100][1], mutations[100][0]))
    assert all_ns < 3 * (machine.ports.clock.monotonic_ns() - asked_ns - all_ns)
    await machine.do(machine.store.apply_all(arrivals[101:]))
    assert list(told.stored_ids) == [each for each, _ in mutations]
    again = machine.ledger = RecordingLedger()
    again.needs_from = 1
    await machine.restart()
    assert again.stored_ids == told.stored_ids
    assert len((await machine.contents(PARTITION)).rows) == 200
    await machine.do(machine.store.apply_all(()))


@pytest.mark.parametrize("written", [True, False], ids=["one-row", "nothing"])
@played(simulate)
async def test_notes_of_a_store_that_nobody_writes_to_do_not_pile_up_in_the_log(
    machine: StoreMachine, /, written: bool
) -> None:
    await machine.start()
    if written:
        await machine.do(machine.store.apply(wrote(1, 1)))
    before = machine.store.logged_bytes
    await machine.do(machine.store.note(b"note 10000"))
    most = 2 * MOST_NOTES * (machine.store.logged_bytes - before)
    for number in range(6 * MOST_NOTES):
        await machine.do(machine.store.note(b"note %d" % number))
    await machine.until(lambda: machine.store.logged_bytes < most, "the log is let go of")
    assert len(machine.store.files) <= written
    await machine.restart()
    assert machine.store.noted == b"note %d" % (6 * MOST_NOTES - 1)
    assert len((await machine.contents(PARTITION)).rows) == written
    await machine.do(machine.store.flush())
    await machine.do(machine.store.apply(wrote(2, 2)))
    await machine.do(machine.store.flush())
    await machine.restart()
    assert len((await machine.contents(PARTITION)).rows) == 1 + written
