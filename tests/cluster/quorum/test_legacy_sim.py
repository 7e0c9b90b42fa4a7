"""Legacy tables in the simulator, end to end: levels, outcomes, hints, restarts and typed errors (Q1, Q2)."""

from __future__ import annotations

import asyncio

import pytest

from cluster.knobs import Knobs
from cluster.quorum.messages import PageRead, ReadPartition, RepairTable, Written
from cluster.quorum.slices import Slice, visible_rows
from cluster.wire.messages import ErrorReply
from harness.errors import DefiniteError, IndefiniteError
from harness.levels import LEVELS
from harness.ports.failpoints import Arming
from tests.cluster.quorum.quorum_rig import (
    FROM_NS,
    TABLE,
    VALUE,
    SimQuorumRig,
    everything,
    part,
    play_quorum,
    rows_of,
    wrote,
)
from tests.support.played import played

GRACE_MS = 4_000


@played(play_quorum)
async def test_what_is_written_is_read_at_every_level_and_kept_over_restarts(rig: SimQuorumRig, /) -> None:
    client = rig.client()
    for at, level in enumerate(LEVELS):
        written = await client.write(wrote(10 + at, level, at), level, "dc1")
        assert len(written.reply.replicas) >= {"THREE": 3, "ALL": 3, "ONE": 1, "LOCAL_ONE": 1}.get(level, 2)
        read = await client.read(part(at, at), "ALL", "dc1")
        assert rows_of(read.reply.page) == {at: level} and len(read.reply.replicas) == 3
    for name in rig.replicas:
        await rig.database.kill(name)
        await rig.database.start(name)
    await rig.database.await_ready(30)
    for name in rig.replicas:
        assert len(await rig.held(name)) == 8
    pages = [(await client.read(everything(limit=3), "QUORUM", "dc1")).reply]
    while pages[-1].token is not None:
        pages.append((await client.read(everything(limit=3), "QUORUM", "dc1", pages[-1].token)).reply)
    assert [list(rows_of(page.page)) for page in pages] == [[0, 1, 2], [3, 4, 5], [6, 7]]


@played(play_quorum)
async def test_a_write_fails_for_certain_only_if_it_reached_nobody_and_hints_make_up_for_what_was_missed(
    rig: SimQuorumRig, /
) -> None:
    a, b, c = rig.replicas
    d, _ = rig.others
    client = rig.client(timeout_s=2)
    await client.write(wrote(1, "first", 1), "ALL", "dc1")
    for name in (b, c):
        await rig.database.kill(name)
    one = await rig.write(d, wrote(2, "second", 1), "ONE")
    assert one == Written((a,))
    two = await rig.write(d, wrote(3, "third", 2), "TWO")
    assert isinstance(two, ErrorReply) and (two.kind, two.definite) == ("UNAVAILABLE", False), "one replica has it"
    with pytest.raises(IndefiniteError):
        await client.write(wrote(4, "fourth", 3), "ALL", "dc1")
    await rig.database.kill(a)
    nobody = await rig.write(d, wrote(5, "fifth", 4), "ONE")
    assert isinstance(nobody, ErrorReply) and nobody.definite, "it was sent to nobody"
    for name in (a, b, c):
        await rig.database.start(name)

    async def replayed() -> bool:
        return [await rig.held(name) for name in (a, b, c)] == 3 * [{1: "second", 2: "third", 3: "fourth"}]

    await rig.until(replayed, "hints at the replicas that were away")


@pytest.mark.parametrize("design", ["legacy", "logged"])
def test_a_write_that_is_sent_again_is_the_same_write_and_stays_unknown_once_it_was(design: str) -> None:
    """Whatever became of the first attempt, the second one says the same at the same time: it can't double anything."""

    async def scenario(rig: SimQuorumRig) -> None:
        a, b, c = rig.replicas
        client = rig.client(timeout_s=6, retry_unknown=True)
        await client.write(wrote(1, "before", 1), "ALL", "dc1")
        for name in (b, c):
            await rig.database.kill(name)
        writing = asyncio.create_task(client.write(wrote(2, "again", 1), "QUORUM", "dc1"))
        await rig.until(lambda: _shows(rig, a, "again"), "the first attempt at one replica")
        await rig.database.start(b)
        assert a in (await writing).reply.replicas
        for name in (a, b):
            (row,) = visible_rows((await client.read_at(rig.database.address(name), everything())).page.contents)
            assert (row.values, row.timestamps) == ({VALUE: "again"}, {VALUE: FROM_NS + 2})
        await rig.database.kill(b)
        writing = asyncio.create_task(client.write(wrote(3, "unknown", 1), "QUORUM", "dc1"))
        await rig.until(lambda: _shows(rig, a, "unknown"), "the next one at one replica")
        await rig.database.kill(a)
        with pytest.raises(IndefiniteError):
            await writing

    play_quorum(scenario, design=design)


async def _shows(rig: SimQuorumRig, name: str, value: str) -> bool:
    return await rig.held(name) == {1: value}


@played(play_quorum)
async def test_hints_outlive_their_coordinator(rig: SimQuorumRig, /) -> None:
    a, b, c = rig.replicas
    d, _ = rig.others
    await rig.database.kill(c)
    assert isinstance(await rig.write(d, wrote(2, "new", 1, 2), "QUORUM"), Written)
    await asyncio.sleep(0.3)
    await rig.database.kill(d)
    await rig.database.start(c)
    await asyncio.sleep(2)
    assert await rig.held(c) == {}
    await rig.database.start(d)

    async def replayed() -> bool:
        return await rig.held(c) == {1: "new", 2: "new"}

    await rig.until(replayed, "the hint after a restart of who keeps it")
    await rig.database.kill(d)
    await rig.database.start(d)
    await asyncio.sleep(2)
    assert await rig.held(a) == await rig.held(b) == {1: "new", 2: "new"}


@played(play_quorum, knobs=Knobs(deletion_grace_ms=GRACE_MS))
async def test_a_hint_is_over_when_deletions_of_what_it_says_may_be_forgotten(rig: SimQuorumRig, /) -> None:
    """Replayed after the grace period it would bring back what was deleted everywhere meanwhile."""
    c, d = rig.replicas[2], rig.others[0]
    rig.cut(d, c)
    assert isinstance(await rig.write(d, wrote(2, "early", 1), "QUORUM"), Written)
    await asyncio.sleep(GRACE_MS / 1e3)
    assert isinstance(await rig.write(d, wrote(3, "late", 2), "QUORUM"), Written)
    rig.heal()

    async def replayed() -> bool:
        return bool(await rig.held(c))

    await rig.until(replayed, "the hint that is young enough")
    await asyncio.sleep(2)
    assert await rig.held(c) == {2: "late"}


@played(play_quorum)
async def test_a_read_goes_on_with_others_where_a_replica_is_away_and_fails_where_none_is_left(
    rig: SimQuorumRig, /
) -> None:
    a, b, c = rig.replicas
    d, _ = rig.others
    await rig.write(d, wrote(1, "x", 1), "ALL")
    await rig.database.kill(a)
    reply = await rig.read(d, everything(), (a, b))
    assert isinstance(reply, PageRead) and reply.replicas == (b, c) and rows_of(reply.page) == {1: "x"}
    missing = await rig.read(d, everything(), (), "ALL")
    assert isinstance(missing, ErrorReply) and missing.definite and a in missing.message
    with pytest.raises(DefiniteError):
        await rig.client(timeout_s=1).read(everything(), "THREE", "dc1")
    await rig.database.pause(b)
    slow = await rig.read(d, everything(), (b, c))
    assert isinstance(slow, ErrorReply) and slow.definite, "one hangs, the other is away"


@played(play_quorum, replication=6, data_centres=2, tservers=6)
async def test_two_data_centres_have_levels_of_their_own(rig: SimQuorumRig, /) -> None:
    zones = {node.name: node.zone[:3] for node in rig.database.nodes}
    near = [name for name in rig.replicas if zones[name] == "dc1"]
    far = [name for name in rig.replicas if zones[name] == "dc2"]
    assert (len(near), len(far)) == (3, 3)
    client = rig.client(timeout_s=2)
    await client.write(wrote(1, "both", 1), "EACH_QUORUM", "dc1")
    rig.cut(near[0], *far)
    for name in near[1:]:
        rig.cut(name, *far)
    await client.write(wrote(2, "one side", 1), "LOCAL_QUORUM", "dc2")
    assert rows_of((await client.read(everything(), "LOCAL_QUORUM", "dc2")).reply.page) == {1: "one side"}
    assert rows_of((await client.read(everything(), "LOCAL_QUORUM", "dc1")).reply.page) == {1: "both"}
    for level in ("QUORUM", "EACH_QUORUM"):
        with pytest.raises(IndefiniteError):
            await client.write(wrote(3, "never", 2), level, "dc1")
    with pytest.raises(DefiniteError, match="dc3"):
        await client.read(everything(), "ONE", "dc3")


@played(play_quorum)
async def test_mistakes_are_refused_by_their_kinds_and_the_rest_is_served(rig: SimQuorumRig, /) -> None:
    d, _ = rig.others
    await rig.write(d, wrote(1, "x", 1, 2, 3), "ALL")

    async def kind(request: ReadPartition) -> str:
        reply = await rig.ask(d, request)
        assert isinstance(reply, ErrorReply) and reply.definite
        return reply.kind

    first = await rig.ask(d, ReadPartition(TABLE, everything(limit=1), "ONE", 1.0))
    assert isinstance(first, PageRead) and first.token is not None
    other = Slice(everything().partition, part(1, 2).spans, 1)
    assert await kind(ReadPartition(TABLE, other, "ONE", 1.0, token=first.token)) == "INVALID_TOKEN"
    assert await kind(ReadPartition(TABLE, everything(), "ONE", 1.0, token=b"?")) == "INVALID_TOKEN"
    assert await kind(ReadPartition(TABLE, everything(), "SOME", 1.0)) == "UNKNOWN_LEVEL"
    assert await kind(ReadPartition(TABLE, everything(), "ONE", 1.0, "later")) == "INVALID"
    assert await kind(ReadPartition(TABLE, everything(limit=0), "ONE", 1.0)) == "INVALID"
    assert await kind(ReadPartition("nothing", everything(), "ONE", 1.0)) == "NOT_LOCATED"
    assert isinstance(await rig.write(d, wrote(0, "x", 1), "ONE"), ErrorReply)
    assert isinstance(await rig.read(d, everything(), ()), PageRead)


STEPS = ("before_fencing", "before_comparing", "before_collecting", "before_delivering", "before_raising")
"""Failpoints of a reconciliation, of which legacy tables have none."""


@played(play_quorum)
async def test_every_failpoint_of_coordinators_and_replicas_is_reached_and_can_break_off_what_passes(
    rig: SimQuorumRig, /
) -> None:
    a, b, _ = rig.replicas
    d, e = rig.others
    await rig.pass_failpoints((b, a))
    await rig.ask(e, RepairTable(TABLE, 10), timeout_s=11)
    of_logged = ("after_id", "after_rows", "before_fence", "after_fence", "before_deliver", "before_bound", *STEPS)
    assert rig.points_not_passed() == [f"quorum.{point}" for point in of_logged]
    rig.world.node(d).failpoints.disarm()
    rig.world.node(d).failpoints.arm(Arming("quorum.before_send", "fail", times=3))
    broken = await rig.write(d, wrote(9, "new", 1), "ONE")
    assert isinstance(broken, ErrorReply) and not broken.definite
