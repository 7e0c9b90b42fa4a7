"""Q3: a store tells a ledger of mutations with ids, keeps in the log what it needs, and a note beside them."""

from __future__ import annotations

import pytest

from cluster.log.envelope import CorruptLog
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import KeyBytes, encode_key
from cluster.quorum.mutation import MutationBuilder, PartitionMutation, encode_mutation
from cluster.store.sorted.records import MutationRecord, NoteRecord, decode_record, encode_record
from tests.cluster.store.sorted.sorted_stores import StoreMachine, simulate

PARTITION = encode_key((1,))


def wrote(row: int, timestamp: int) -> PartitionMutation:
    return MutationBuilder(PARTITION, timestamp, 0).write(encode_key((row,)), {5: "x" * 50}).build()


class Told:
    """A ledger that remembers what it was told, and needs the log from a place on."""

    def __init__(self) -> None:
        self.stored_ids: dict[MutationId, tuple[int, KeyBytes]] = {}
        self.needs_from: int | None = None

    def stored(self, number: int, each: MutationId, partition: KeyBytes) -> None:
        self.stored_ids[each] = (number, partition)


def test_records_come_back_and_others_are_damage() -> None:
    encoded = encode_mutation(wrote(1, 5))
    for record in (MutationRecord(None, encoded), MutationRecord(MutationId(7, "t1"), encoded), NoteRecord(b"n")):
        assert decode_record(encode_record(record)) == record
    for data in (b"", b"\x7f", b"\x80short"):
        with pytest.raises(CorruptLog):
            decode_record(data)


def test_mutations_are_told_when_they_are_visible_and_again_after_a_restart_though_they_are_in_files() -> None:
    async def scenario(machine: StoreMachine) -> None:
        told = machine.ledger = Told()
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
        again = machine.ledger = Told()
        again.needs_from = 6
        await machine.restart()
        assert again.stored_ids == {each: told.stored_ids[each] for each in ids[5:]}
        for each, (number, partition) in again.stored_ids.items():
            assert partition == PARTITION and machine.store.logged(number) == encode_mutation(
                wrote(each.time, each.time)
            )
        assert len((await machine.contents(PARTITION)).rows) == 31
        again.needs_from = None
        machine.store.release()
        await machine.until(lambda: machine.store.logged(30) is None, "the log is let go of")

    simulate(scenario)


def test_a_note_stays_over_flushes_and_restarts_and_the_last_one_counts() -> None:
    async def scenario(machine: StoreMachine) -> None:
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

    simulate(scenario)
