"""Merkle-tree repair in the simulator: hints that were lost are made up for, deletions stay deleted in time (Q2)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from cluster.knobs import Knobs
from cluster.log.view import Quarantined
from cluster.quorum.calls import ReplicaCalls
from cluster.quorum.client import repair_table
from cluster.quorum.keys import TOKENS
from cluster.quorum.messages import (
    ANY_EPOCH,
    FetchRows,
    HashLeaves,
    PageRead,
    ReadReplica,
    Repaired,
    RepairTable,
    StopRepairs,
    Stored,
    StoreMutation,
    StreamSpan,
    TakePartitions,
    Written,
    encode_quorum_request,
)
from cluster.quorum.mutation import encode_mutation
from cluster.quorum.replica import LegacyReplica, PartitionReplica
from cluster.wire.messages import CreateTablet, ErrorReply, Partition
from harness.errors import IndefiniteError
from harness.ports.api import Ports, Refused, Unreachable
from harness.ports.failpoints import Arming
from harness.ports.sim.world import World
from tests.cluster.quorum.quorum_rig import (
    COLUMNS,
    FROM_NS,
    TABLE,
    SimQuorumRig,
    deleted,
    everything,
    play_quorum,
    wrote,
)
from tests.support.played import played

OLD = {1: "old", 2: "old"}


async def missed(rig: SimQuorumRig, coordinator: str, *writes: object) -> None:
    """The first replica misses writes, whose coordinator dies with the hints and its disk."""
    first, *_ = rig.replicas
    rig.cut(coordinator, first)
    for each in writes:
        assert isinstance(await rig.write(coordinator, each, "QUORUM"), Written)  # type: ignore[arg-type]
    await rig.database.kill(coordinator)
    rig.heal()


@played(play_quorum)
async def test_what_was_lost_with_a_coordinator_s_hints_is_streamed_once(rig: SimQuorumRig, /) -> None:
    d, e = rig.others
    await rig.write(e, wrote(1, "old", 1, 2), "ALL")
    await missed(rig, d, wrote(5, "new", 2, 3), deleted(6, 1))
    assert await rig.held(rig.replicas[0]) == OLD
    repaired = await repair_table(rig.ports.network, rig.database.address(e), TABLE, 20)
    assert (repaired.tablets, repaired.leaves, repaired.partitions) == (1, 1, 3), "two groups of equal replicas"
    assert repaired.sent_bytes > 0
    for name in rig.replicas:
        assert await rig.held(name) == {2: "new", 3: "new"}
    again = await rig.ask(e, RepairTable(TABLE, 20))
    assert again == Repaired(1, 0, 0, 0, 0), "all is in memory, and equal"


@played(play_quorum, knobs=Knobs(repair_period_ms=700, repair_tree_depth=0))
async def test_in_the_background_one_replica_repairs_every_period(rig: SimQuorumRig, /) -> None:
    d, _ = rig.others
    await missed(rig, d, wrote(5, "new", 2, 3))

    async def equal() -> bool:
        return [await rig.held(name) for name in rig.replicas] == 3 * [{2: "new", 3: "new"}]

    await rig.until(equal, "a repair in the background")


@played(play_quorum)
async def test_a_replica_that_is_away_aborts_a_repair_and_so_do_operators(rig: SimQuorumRig, /) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    await missed(rig, d, wrote(5, "new", 2))
    await rig.database.kill(c)
    with pytest.raises(IndefiniteError, match=c):
        await repair_table(rig.ports.network, rig.database.address(e), TABLE, 20)
    await rig.database.start(c)

    async def up() -> bool:
        return await rig.held(c) == {2: "new"}

    await rig.until(up, "the replica that was away")
    for name in (b, c):
        rig.world.node(name).failpoints.arm(Arming("quorum.before_stream", "hang", times=0))
    for give_up in ("stop", "cancel", "timeout"):
        timeout_s = 1.0 if give_up == "timeout" else 20.0
        repairing = asyncio.create_task(repair_table(rig.ports.network, rig.database.address(e), TABLE, timeout_s))
        await asyncio.sleep(0.5)
        if give_up == "stop":
            assert await rig.ask(e, StopRepairs()) == Stored()
        if give_up == "cancel":
            repairing.cancel()
        with pytest.raises((IndefiniteError, asyncio.CancelledError)) as raised:
            await repairing
        words = {"stop": "was stopped", "cancel": "", "timeout": "longer than 1.0 s"}[give_up]
        assert words in str(raised.value)
        assert await rig.held(a) == {}, give_up
    for name in (b, c):
        rig.world.node(name).failpoints.disarm("quorum.before_stream")
    assert isinstance(await rig.ask(e, RepairTable(TABLE, 20)), Repaired)
    assert await rig.held(a) == {2: "new"}
    nowhere = await rig.ask(e, RepairTable("nothing", 20))
    assert isinstance(nowhere, ErrorReply) and nowhere.kind == "NOT_LOCATED"


@played(play_quorum)
async def test_deletions_carry_the_clock_of_their_coordinator(rig: SimQuorumRig, /) -> None:
    await rig.write(rig.others[0], deleted(5, 1), "ALL")
    now_ms = rig.ports.clock.wall_ns() // 1_000_000
    for name in rig.replicas:
        reply = await rig.ask(name, ReadReplica(TABLE, everything()))
        assert isinstance(reply, PageRead)
        (row,) = reply.page.contents.rows
        assert row.deletion is not None and row.deletion.timestamp == FROM_NS + 5
        assert abs(row.deletion.local_time_ms - now_ms) < 2_000, "its client said 5"


@played(play_quorum)
async def test_requests_of_another_epoch_or_cluster_are_refused(rig: SimQuorumRig, /) -> None:
    a = rig.replicas[0]
    encoded = encode_mutation(wrote(5, "new", 1))
    for request in (
        StoreMutation(rig.tablet_id, 3, encoded),
        FetchRows(rig.tablet_id, 3, everything()),
        HashLeaves(rig.tablet_id, 3, 0, TOKENS - 1, 0, 0, 0),
        StreamSpan(rig.tablet_id, 3, 0, TOKENS - 1, ()),
        TakePartitions(rig.tablet_id, 3, (encoded,)),
    ):
        reply = await rig.ask(a, request)
        assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("WRONG_EPOCH", True)
    assert await rig.held(a) == {}

    stranger = rig.world.node("stranger")
    stranger.cluster_id = "another"
    met: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def main(ports: Ports) -> None:
        payload = encode_quorum_request(StoreMutation(rig.tablet_id, 0, encoded))
        try:
            await ports.network.call(rig.database.address(a), payload, 2)
            met.set_result("answered")
        except (Refused, Unreachable) as error:
            met.set_result(type(error).__name__)

    stranger.start(main)
    assert await met != "answered"
    assert await rig.held(a) == {}
    assert await rig.ask(a, StoreMutation(rig.tablet_id, ANY_EPOCH, encoded)) == Stored()
    assert await rig.held(a) == {1: "new"}


class Damaged:
    """A store that finds what it holds damaged, whatever it is asked."""

    async def apply_all(self, arrivals: object) -> None:
        raise Quarantined("torn")

    async def read(self, asked: object) -> None:
        raise Quarantined("torn")


def test_damage_that_a_request_meets_is_an_answer_and_no_error_of_the_server_s() -> None:
    with World(1) as world:
        created = CreateTablet("n", True, "tab", "id", TABLE, Partition(0, 1), COLUMNS, 0, ())
        ports = world.harness_ports("n")
        replica = PartitionReplica(ports, created, Knobs(), LegacyReplica(ports, created, Knobs()))
        replica._store = cast(Any, Damaged())

        async def kinds() -> list[tuple[str, bool]]:
            encoded = encode_mutation(wrote(5, "new", 1))
            asked = (StoreMutation("tab", 0, encoded), FetchRows("tab", 0, everything()))
            replies = [await replica.answer(each, cast(ReplicaCalls, None)) for each in asked]
            return [(reply.kind, reply.definite) for reply in replies if isinstance(reply, ErrorReply)]

        assert world.run(kinds()) == [("QUARANTINED", False), ("QUARANTINED", True)]
