"""Leases of silent groups (G3): members' promises extend them without an entry, and successors wait these out."""

from __future__ import annotations

import msgspec
import pytest

from cluster.knobs import Knobs
from cluster.raft.types import ChangeKind
from cluster.wire.messages import (
    ChangeReplicas,
    ConfigurationReply,
    Done,
    ErrorReply,
    GetStatus,
    GroupState,
    ReadCell,
    ReadReply,
    StatusReply,
    WriteCell,
)
from cluster.wire.operating import LeadershipReply, TransferLeadership
from harness.ports.api import CallLost, Unreachable
from tests.cluster.tserver.tserver_rig import NAMES, SECOND, TserverRig, simulate
from tests.support.played import played

LONG_S = 3
LONG = Knobs(
    tablet_lease_ms=1_000 * LONG_S, support_ms=1_000 * LONG_S, quiesce_after_ms=200, session_silence_ms=10_000_000
)
"""By the time that a successor is elected the lease still lasts for long."""


async def states(servers: TserverRig) -> dict[str, GroupState]:
    found = {}
    for name in NAMES:
        try:
            reply = await servers.call(name, GetStatus())
        except (CallLost, Unreachable):
            continue
        assert isinstance(reply, StatusReply)
        found[name] = reply.groups[0]
    return found


async def last_indexes(servers: TserverRig) -> set[int]:
    return {state.last_index for state in (await states(servers)).values()}


async def silent(servers: TserverRig) -> str:
    """The leaseholder of a tablet that was written to once, whose record has run out since, and that is silent."""
    await servers.created()
    assert isinstance(await servers.write(1, 1), Done)
    await servers.clock.sleep(servers.knobs.lease_record_ns / 1e9 + 3)
    holder = await servers.leader()
    await servers.clock.sleep(3)
    return holder


async def highest_read(servers: TserverRig, holder: str) -> int:
    """Read from the holder until it serves no more: the highest time that it served at."""
    highest = 0
    for _ in range(500):
        try:
            reply = await servers.call(holder, ReadCell("tab", 1, 0, 0), 0.5)
        except (CallLost, Unreachable):
            break
        if not isinstance(reply, ReadReply):
            break
        highest = max(highest, reply.timestamp)
        await servers.clock.sleep(0.01)
    assert highest
    return highest


@played(simulate, seed=6, knobs=Knobs(session_silence_ms=10_000_000))
async def test_a_silent_tablet_serves_strong_reads_without_an_entry_or_a_message_in_its_group(
    servers: TserverRig, /
) -> None:
    holder = await silent(servers)
    before, network = await last_indexes(servers), servers.world.network
    delivered = network.delivered
    await servers.clock.sleep(60)
    at_rest = network.delivered - delivered
    delivered = network.delivered
    for _ in range(120):
        shown = servers.world.node(holder).clock.wall_ns()
        reply = await servers.call(holder, ReadCell("tab", 1, 0, 0))
        assert isinstance(reply, ReadReply) and reply.value == 1
        assert reply.timestamp >> 16 >= shown >> 16, "a strong read is served at its arrival or later"
        await servers.clock.sleep(0.5)
    assert network.delivered - delivered <= at_rest * 1.02 + 2 * 120, "a call and its answer each"
    assert await last_indexes(servers) == before and len(before) == 1


@pytest.mark.parametrize("ill", ["down", "cut off", "never silent"])
def test_a_tablet_that_cannot_fall_silent_keeps_its_lease(ill: str) -> None:
    """Not all members promise it anything. The holder serves though it reaches nobody just now, who could renew it."""
    knobs = Knobs(session_silence_ms=10_000_000, quiesce_after_ms=0 if ill == "never silent" else 1_000)

    async def scenario(servers: TserverRig) -> None:
        holder = await silent(servers)
        other = next(name for name in NAMES if name != holder)
        if ill == "down":
            servers.world.node(other).kill()
        elif ill == "cut off":
            servers.cut_off(other)
        await servers.clock.sleep(10)
        for _ in range(3):
            await servers.clock.sleep(3.1)
            servers.cut_off(holder)
            reply = await servers.call(holder, ReadCell("tab", 1, 0, 0), 0.3)
            assert isinstance(reply, ReadReply) and reply.value == 1
            servers.world.network.heal()
            if ill == "cut off":
                servers.cut_off(other)
        entries = (await states(servers))[holder].last_index
        await servers.clock.sleep(10)
        more = (await states(servers))[holder].last_index - entries
        assert more <= 10e9 / (knobs.lease_record_ns / 2), "one entry for each half of a record"

    simulate(6, scenario, knobs=knobs)


async def first_write_after(servers: TserverRig, holder: str, sequence: int = 2) -> Done:
    others = tuple(name for name in NAMES if name != holder)
    deadline_ns = servers.clock.monotonic_ns() + 30 * SECOND
    while servers.clock.monotonic_ns() < deadline_ns:
        for name in others:
            try:
                reply = await servers.call(name, WriteCell(servers.rid(sequence), "tab", 1, 0, 0, 2), 0.5)
            except (CallLost, Unreachable):
                continue
            if isinstance(reply, Done):
                return reply
        await servers.clock.sleep(0.02)
    raise AssertionError("nobody writes")


async def lost_after_silence(servers: TserverRig) -> tuple[int, int]:
    """(The highest time that a holder served a read at, when its successor wrote); cut off, with a fast clock."""
    holder = await silent(servers)
    for name in NAMES:
        servers.world.node(name).clock.set_offset((1 if name == holder else -1) * SECOND * 24 // 25)
    await servers.clock.sleep(2)
    assert await servers.leader() == holder
    servers.cut_off(holder)
    highest = await highest_read(servers, holder)
    return highest, (await first_write_after(servers, holder)).timestamp


FAR = Knobs(
    election_timeout_ms=300,
    raft_heartbeat_ms=100,
    tablet_lease_ms=3_000,
    support_ms=3_000,
    quiesce_after_ms=100,
    check_quorum_ms=10_000,
    max_clock_offset_ms=2_000,
    session_silence_ms=10_000_000,
)


@pytest.mark.parametrize("seed", range(3))
def test_a_successor_writes_above_all_that_was_served_by_promises(seed: int) -> None:
    async def scenario(servers: TserverRig) -> None:
        read, written = await lost_after_silence(servers)
        assert written > read

    simulate(seed, scenario, knobs=FAR)


@played(simulate, seed=1, flaws=("support-not-waited-out",), knobs=FAR)
async def test_with_the_flaw_support_not_waited_out_it_writes_below(servers: TserverRig, /) -> None:
    read, written = await lost_after_silence(servers)
    assert written < read


@played(simulate, seed=6, flaws=("support-not-waited-out",), knobs=LONG)
async def test_with_the_flaw_support_not_waited_out_it_begins_within_the_promises(servers: TserverRig, /) -> None:
    """The lease of the old holder lasts for three seconds when it is cut off, and an election takes less than one."""
    holder = await silent(servers)
    end = (await servers.read()).timestamp + LONG_S * SECOND
    servers.cut_off(holder)
    assert (await first_write_after(servers, holder)).timestamp < end - SECOND


@played(simulate, seed=6, knobs=LONG)
async def test_a_successor_begins_only_when_the_promises_are_over(servers: TserverRig, /) -> None:
    holder = await silent(servers)
    end = (await servers.read()).timestamp + (LONG_S - 0.3) * SECOND
    servers.cut_off(holder)
    assert (await first_write_after(servers, holder)).timestamp > end


@pytest.mark.parametrize("seed", range(3))
def test_after_a_silence_with_reads_to_its_end_a_fail_over_takes_no_longer_than_the_goal(seed: int) -> None:
    """An election timeout, a lease and half a second, until somebody else writes."""
    knobs = Knobs(session_silence_ms=10_000_000)

    async def scenario(servers: TserverRig) -> None:
        holder = await silent(servers)
        assert (await servers.read()).value == 1
        servers.world.node(holder).kill()
        began_ns = servers.clock.monotonic_ns()
        await first_write_after(servers, holder)
        took_ns = servers.clock.monotonic_ns() - began_ns
        assert took_ns < (2 * knobs.election_timeout_ms + 500) * SECOND // 1000

    simulate(seed, scenario, knobs=knobs)


@played(simulate, seed=6, knobs=Knobs(tablet_lease_ms=20_000, quiesce_after_ms=200, session_silence_ms=10_000_000))
async def test_a_lease_that_is_handed_over_after_a_silence_is_not_waited_for(servers: TserverRig, /) -> None:
    holder = await silent(servers)
    assert isinstance(read := await servers.call(holder, ReadCell("tab", 1, 0, 0)), ReadReply)
    target = next(name for name in NAMES if name != holder)
    reply = await servers.call(holder, TransferLeadership("tab", target, 5.0), 6.0)
    assert isinstance(reply, LeadershipReply)
    assert isinstance(done := await servers.write(2, 2), Done)
    assert read.timestamp < done.timestamp < read.timestamp + 5 * SECOND, "the old lease lasts for 20 s"


@pytest.mark.parametrize("knobs", [LONG, msgspec.structs.replace(LONG, tablet_lease_ms=400)], ids=["long", "short"])
def test_before_members_change_the_record_says_what_they_have_promised(knobs: Knobs) -> None:
    """Of records shorter than promises none could say it: no change was made until the group had been awake as long."""

    async def scenario(servers: TserverRig) -> None:
        holder = await silent(servers)
        assert (await servers.read()).value == 1
        entries = []
        for name in [name for name in NAMES if name != holder]:
            state = (await states(servers))[holder]
            request = ChangeReplicas("tab", ChangeKind.DEMOTE, name, "", state.config_term, state.config_index, 2.0)
            assert isinstance(await servers.call(holder, request), ConfigurationReply)
            entries.append((await states(servers))[holder].last_index - state.last_index)
        assert entries == [2, 1], "a renewal and the change; then nothing is to be said"

    simulate(6, scenario, knobs=knobs)


@played(simulate, seed=6, knobs=LONG)
async def test_a_leader_that_waits_for_promises_changes_no_members_meanwhile(servers: TserverRig, /) -> None:
    """Of who joins nobody would know what was promised."""
    holder = await silent(servers)
    assert (await servers.read()).value == 1
    servers.world.node(holder).kill()
    leaders: list[str] = []
    while not leaders:
        await servers.clock.sleep(0.05)
        leaders = [name for name, state in (await states(servers)).items() if state.role == "leader"]
    state = (await states(servers))[leaders[0]]
    position = (state.config_term, state.config_index)
    hasty = ChangeReplicas("tab", ChangeKind.REMOVE, holder, "", *position, 0.1)
    reply = await servers.call(leaders[0], hasty)
    assert isinstance(reply, ErrorReply) and reply.kind == "CHANGE_REFUSED" and reply.definite
    patient = ChangeReplicas("tab", ChangeKind.REMOVE, holder, "", *position, 10.0)
    assert isinstance(await servers.call(leaders[0], patient, 10.0), ConfigurationReply)
    assert isinstance(await servers.call(leaders[0], ReadCell("tab", 1, 0, 0)), ReadReply)


@pytest.mark.parametrize("seed", range(3))
def test_voters_that_start_anew_answer_for_what_they_had_promised(seed: int) -> None:
    async def scenario(servers: TserverRig) -> None:
        holder = await silent(servers)
        others = [name for name in NAMES if name != holder]
        read = await servers.read()
        for name in NAMES:
            servers.world.node(name).kill()
        servers.start(*others)
        done = await first_write_after(servers, holder)
        assert done.timestamp > read.timestamp + (LONG_S - 0.3) * SECOND

    simulate(seed, scenario, knobs=LONG)


@played(simulate, seed=6, knobs=Knobs(tablet_lease_ms=20_000, quiesce_after_ms=20, session_silence_ms=10_000_000))
async def test_a_silence_of_a_group_that_is_new_is_not_waited_for(servers: TserverRig, /) -> None:
    """Its first lease begins when it has a leader, though that one's voters fall silent at once."""
    began = servers.clock.monotonic_ns()
    await servers.created()
    assert servers.clock.monotonic_ns() - began < 5 * SECOND, "a lease lasts for 20 s"
