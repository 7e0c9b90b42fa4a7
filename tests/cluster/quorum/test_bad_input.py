"""Bad input to quorum tables of either design: each mistake has its kind, damage stays with one replica (Q1, G7)."""

from __future__ import annotations

import asyncio

import pytest

from cluster.knobs import Knobs
from cluster.quorum.coordinator import MOST_AHEAD_NS, MOST_BYTES
from cluster.quorum.messages import PageRead, QuorumRequest, ReadPartition, WritePartition, Written
from cluster.quorum.mutation import PartitionMutation, encode_mutation
from cluster.quorum.slices import Slice
from cluster.wire.messages import ErrorReply
from tests.cluster.quorum.quorum_rig import FROM_NS, TABLE, SimQuorumRig, everything, part, play_quorum, rows_of, wrote

DESIGNS = ("legacy", "logged")


async def refused(rig: SimQuorumRig, request: QuorumRequest) -> str:
    """The kind of a refusal, which is in words and says that nothing was done."""
    reply = await rig.ask(rig.others[0], request)
    assert isinstance(reply, ErrorReply) and reply.definite and reply.message, reply
    return reply.kind


def writing(mutation: PartitionMutation | bytes, level: str = "QUORUM") -> WritePartition:
    encoded = mutation if isinstance(mutation, bytes) else encode_mutation(mutation)
    return WritePartition(TABLE, encoded, level, 1.0)


@pytest.mark.parametrize("design", DESIGNS)
def test_each_mistake_of_a_client_is_refused_by_its_kind_and_the_rest_is_served(design: str) -> None:
    async def scenario(rig: SimQuorumRig) -> None:
        good = wrote(1, "x", 1, 2, 3)
        assert isinstance(await rig.ask(rig.others[0], writing(good, "ALL")), Written)
        first = await rig.ask(rig.others[0], ReadPartition(TABLE, everything(limit=1), "ONE", 1.0))
        assert isinstance(first, PageRead) and first.token is not None
        ahead = rig.ports.clock.wall_ns() - FROM_NS + 2 * MOST_AHEAD_NS
        of_others = Slice(everything().partition, part(1, 2).spans, 1)
        expected: list[tuple[QuorumRequest, str]] = [
            (writing(good, "MOST"), "UNKNOWN_LEVEL"),
            (ReadPartition(TABLE, everything(), "MOST", 1.0), "UNKNOWN_LEVEL"),
            (writing(wrote(2, "x" * MOST_BYTES, 1)), "TOO_LARGE"),
            (writing(b"\x01?"), "INVALID"),
            (writing(wrote(0, "x", 1)), "TIMESTAMP_OUT_OF_BOUNDS"),
            (writing(wrote(ahead, "x", 1)), "TIMESTAMP_OUT_OF_BOUNDS"),
            (ReadPartition(TABLE, of_others, "ONE", 1.0, token=first.token), "INVALID_TOKEN"),
            (ReadPartition(TABLE, everything(), "ONE", 1.0, token=b"?"), "INVALID_TOKEN"),
            (ReadPartition(TABLE, everything(limit=0), "ONE", 1.0), "INVALID"),
            (ReadPartition("nothing", everything(), "ONE", 1.0), "NOT_LOCATED"),
        ]
        assert [await refused(rig, request) for request, _ in expected] == [kind for _, kind in expected]
        read = await rig.read(rig.others[1], everything(), ())
        assert isinstance(read, PageRead) and rows_of(read.page) == {1: "x", 2: "x", 3: "x"}

    play_quorum(scenario, design=design)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_level_that_so_few_replicas_cannot_satisfy_is_refused(design: str) -> None:
    async def scenario(rig: SimQuorumRig) -> None:
        assert await refused(rig, writing(wrote(1, "x", 1), "TWO")) == "LEVEL_UNSATISFIABLE"
        assert await refused(rig, ReadPartition(TABLE, everything(), "THREE", 1.0)) == "LEVEL_UNSATISFIABLE"
        assert isinstance(await rig.ask(rig.others[0], writing(wrote(1, "x", 1), "ONE")), Written)

    play_quorum(scenario, design=design, replication=1, tservers=3)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_damaged_file_takes_its_replica_out_and_no_other(design: str) -> None:
    async def scenario(rig: SimQuorumRig) -> None:
        a, rows = rig.replicas[0], range(1, 61)
        for row in rows:
            assert isinstance(await rig.ask(rig.others[0], writing(wrote(row, "x" * 50, row), "ALL")), Written)
        await asyncio.sleep(1)
        disk = rig.world.node(a).disk
        files = [path for path in disk.paths() if path.startswith("sorted/") and not path.endswith("manifest")]
        assert files
        for path in files:
            disk.flip_bit(path, 400)
        for _ in range(3):
            read = await rig.read(rig.others[1], everything(), (a, rig.replicas[1]))
            assert isinstance(read, PageRead) and sorted(rows_of(read.page)) == list(rows)
            assert a not in read.replicas
        write = await rig.ask(rig.others[0], writing(wrote(99, "after", 1)))
        assert isinstance(write, Written) and a not in write.replicas
        everywhere = await rig.ask(rig.others[0], writing(wrote(100, "never", 1), "ALL"))
        assert isinstance(everywhere, ErrorReply)

    play_quorum(scenario, design=design, knobs=Knobs(poll_period_ms=0, reconcile_period_ms=0, memtable_bytes=1_500))
