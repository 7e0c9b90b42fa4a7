"""One operation is one batch of bounded size (M7), and what masters are told in bulk or in error costs little."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cluster.client.client import ClusterClient
from cluster.master.background import (
    MOST_FOUNDED_AT_ONCE,
    PLACEMENT_BATCH_BYTES,
    SCAN_INTERVAL_S,
    Placement,
    fitting,
    within,
)
from cluster.master.calls import MOST_IN_FLIGHT
from cluster.master.catalog import encode_batch
from cluster.master.ddl import CREATE_BATCH_BYTES
from cluster.master.manager import MAX_BATCH_BYTES
from cluster.master.records import (
    TableRecord,
    TabletConfig,
    TabletRecord,
    TabletState,
    changed_tablet,
    deleted_tablet,
    new_table,
    new_tablet,
    removed_table,
)
from cluster.store.schema import MAX_SCHEMA_BYTES
from cluster.wire.messages import (
    Column,
    CreateTableReply,
    DeleteTableReply,
    ErrorReply,
    Heartbeat,
    HeartbeatReply,
    Partition,
    Replica,
    RequestId,
    decode_reply,
    encode,
)
from tests.cluster.master.catalog_records import COLUMNS
from tests.cluster.master.master_rig import MASTERS, MasterRig, play_masters
from tests.support.few_seeds import few_examples
from tests.support.played import played

DOCUMENT_BYTES = 117_000
"""What Kudu measured for a table of 1 000 tablets with a simple schema of three columns."""

THREE_COLUMNS = (
    Column(0, "key", "int64", False, None, True),
    Column(1, "name", "string"),
    Column(2, "value", "double"),
)


def table_of(tablets: int) -> tuple[TableRecord, list[TabletRecord]]:
    entropy = Random(1)
    ids = [f"{entropy.getrandbits(128):032x}" for _ in range(tablets + 1)]
    table = new_table(ids[0], "people", THREE_COLUMNS, 3)
    return table, [new_tablet(each, ids[0], Partition(bucket, tablets)) for bucket, each in enumerate(ids[1:])]


def running(tablet: TabletRecord, revision: int) -> TabletRecord:
    """As it is after a long life, on servers with long names."""
    voters = tuple(Replica(f"t{number}:0123456789abcdef", f"server{number}.example.org:7050") for number in range(3))
    changed = changed_tablet(
        tablet, state=TabletState.RUNNING, config=TabletConfig(9, voters), confirmed=tuple(v.node_id for v in voters)
    )
    return msgspec.structs.replace(changed, revision=revision)


def test_a_table_of_1_000_tablets_is_created_and_deleted_by_a_batch_of_the_document_s_size() -> None:
    table, tablets = table_of(1_000)
    request = RequestId(1 << 40, 1 << 20, 1 << 20)
    created = encode_batch([table], tablets, request, encode(CreateTableReply(table.table_id)), 1 << 60)
    gone = [deleted_tablet(running(tablet, 100_000)) for tablet in tablets]
    deleted = encode_batch([removed_table(table)], gone, request, encode(DeleteTableReply(table.table_id)), 1 << 60)
    assert len(created) < DOCUMENT_BYTES
    assert len(deleted) < DOCUMENT_BYTES


def test_whatever_can_be_created_can_be_deleted() -> None:
    count = 10_000
    _, tablets = table_of(count)
    created = len(encode(tablets))
    deleted = len(encode([deleted_tablet(running(tablet, (1 << 32) - 2)) for tablet in tablets]))
    assert deleted / created * CREATE_BATCH_BYTES < MAX_BATCH_BYTES - MAX_SCHEMA_BYTES - 4_000, "however it was altered"


@few_examples(20)
@given(st.integers(0, 1_500), st.booleans())
def test_placements_are_split_into_batches_of_bounded_size(count: int, replacing: bool) -> None:
    _, tablets = table_of(count)
    left = [Placement(running(tablet, 2), tablet if replacing else None) for tablet in tablets]
    while left:
        batch = list(fitting(left))
        assert batch == left[: len(batch)] and batch
        records = [record for placement in batch for record in placement.records]
        assert len(encode_batch([], records)) < PLACEMENT_BATCH_BYTES + 1_000 < DOCUMENT_BYTES
        left = left[len(batch) :]
        assert not left or len(encode_batch([], records)) > PLACEMENT_BATCH_BYTES / 2, "and not into many small ones"


@given(st.lists(st.sampled_from(("PREPARING", "CREATING", "RUNNING"))), st.integers(0, 30))
def test_of_a_large_table_only_so_many_tablets_are_founded_at_once(states: list[str], limit: int) -> None:
    _, tablets = table_of(len(states))
    known = [msgspec.structs.replace(each, state=state) for each, state in zip(tablets, states, strict=True)]
    kept = within(limit, known, known)
    founding, waiting = states.count("CREATING"), states.count("PREPARING")
    assert [each for each in kept if each.state != "PREPARING"] == [each for each in known if each.state != "PREPARING"]
    assert sum(each.state == "PREPARING" for each in kept) == max(0, min(waiting, limit - founding))


@played(play_masters)
async def test_a_master_answers_bytes_that_are_no_request(rig: MasterRig, client: ClusterClient, /) -> None:
    for payload in (b"", b"\xc1", b"paper", encode({"type": "DropEverything"}), encode(COLUMNS)):
        reply = decode_reply(await rig.ports.network.call(MASTERS[0].address, payload, 1))
        assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("INVALID", True)
    assert await rig.client().list_tables() == ()


@played(play_masters)
async def test_followers_take_no_look_at_reports_and_the_leader_refuses_what_is_none(
    rig: MasterRig, client: ClusterClient, /
) -> None:
    """M3: a full report of 1 000 tablets costs a follower no more than the liveness that comes with it."""
    leader = await rig.leader()
    for master in MASTERS:
        beat = Heartbeat("h", 0, "h:7050", "z1", 1, True, msgspec.Raw(encode("no reports")))
        reply = await rig.ask(master.node_id, beat)
        if master.node_id == leader:
            assert isinstance(reply, ErrorReply) and "no tablet reports" in reply.message
        else:
            assert isinstance(reply, HeartbeatReply)


def test_a_table_of_many_tablets_comes_up_part_by_part_and_is_told_in_turn() -> None:
    """Never more than its servers can have led at once: a new part is placed as soon as the one before runs."""
    buckets = 300

    async def scenario(rig: MasterRig, client: ClusterClient) -> None:
        client, most = rig.client(), {"creating": 0, "calls": 0}
        limit = MOST_FOUNDED_AT_ONCE * len(rig.servers)
        for server in rig.servers:
            server.calls_slowly(0.02, lambda busy: most.update(calls=max(most["calls"], busy)))
        await client.create_table("a", COLUMNS, buckets, 3)
        began_s = rig.ports.clock.monotonic_ns() / 1e9
        while not await client.is_create_done("a"):
            states = [tablet.state for tablet in (await client.table_locations("a")).tablets]
            most["creating"] = max(most["creating"], states.count("CREATING"))
            await rig.sleep(0.01)
        took_s = rig.ports.clock.monotonic_ns() / 1e9 - began_s
        assert 0 < most["creating"] <= limit < buckets
        assert 0 < most["calls"] <= MOST_IN_FLIGHT
        assert took_s < buckets / limit * SCAN_INTERVAL_S, "it did not wait for the next scan"

    play_masters(scenario)
