"""The catalog state machine and the caches built over it (M1, M2, M7, M14); pure."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.groups.sessions import FORGOTTEN, SESSION_ENDED, RegisterClient, SessionLimits
from cluster.master.catalog import BatchOutcome, Caches, Catalog, decode_outcome, encode_batch
from cluster.master.records import (
    ServerRecord,
    TableRecord,
    TableState,
    TabletConfig,
    TabletRecord,
    TabletState,
    changed_table,
    changed_tablet,
    creation_done,
    new_table,
    new_tablet,
)
from cluster.wire.messages import Partition, Replica, RequestId, encode
from tests.cluster.frozen import frozen, restore
from tests.cluster.master.catalog_records import COLUMNS


def table(name: str, table_id: str = "") -> TableRecord:
    return new_table(table_id or f"id-{name}", name, COLUMNS, 3)


def tablets(of: TableRecord, buckets: int = 2) -> list[TabletRecord]:
    return [new_tablet(f"{of.table_id}/{bucket}", of.table_id, Partition(bucket, buckets)) for bucket in range(buckets)]


def registered() -> Catalog:
    """A catalog with the client session 1."""
    catalog = Catalog()
    catalog.apply(1, encode(RegisterClient(0, SessionLimits(1_000, 10, 10))))
    return catalog


def apply(
    catalog: Catalog,
    tables: Sequence[TableRecord],
    tablets: Sequence[TabletRecord],
    request_id: RequestId | None = None,
    reply: bytes = b"",
    time: int = 0,
) -> BatchOutcome:
    return decode_outcome(catalog.apply(2, encode_batch(tables, tablets, request_id, reply, time)))


def test_a_batch_brings_the_table_and_all_its_tablets() -> None:
    catalog = Catalog()
    first = table("a")
    assert apply(catalog, [first], tablets(first), reply=b"made") == BatchOutcome(None, b"made")
    assert catalog.tables == {"id-a": first}
    assert list(catalog.tablets) == ["id-a/0", "id-a/1"]


def test_a_batch_with_one_outdated_record_changes_nothing() -> None:
    catalog = Catalog()
    first = table("a")
    apply(catalog, [first], tablets(first))
    before = frozen(catalog)
    good = changed_tablet(catalog.tablets["id-a/0"], state=TabletState.CREATING)
    outdated = new_tablet("id-a/1", "id-a", Partition(1, 2))
    outcome = apply(catalog, [], [good, outdated])
    assert outcome.conflict is not None and "id-a/1" in outcome.conflict
    assert frozen(catalog) == before


def test_a_name_belongs_to_one_table_until_that_is_removed() -> None:
    catalog = Catalog()
    first, second = table("a"), table("a", "other")
    apply(catalog, [first], [])
    refused = apply(catalog, [second], tablets(second))
    assert refused.conflict is not None and "other" not in catalog.tables and not catalog.tablets
    apply(catalog, [changed_table(first, state=TableState.REMOVED)], [])
    assert apply(catalog, [second], []).conflict is None
    assert list(catalog.tables) == ["id-a", "other"], "records of removed tables are kept"


def test_a_request_takes_effect_once_and_keeps_its_first_reply() -> None:
    catalog = registered()
    request_id = RequestId(1, 1, 1)
    assert apply(catalog, [table("a")], [], request_id, b"first").reply == b"first"
    again = apply(catalog, [table("b")], [], request_id, b"second")
    assert again == BatchOutcome(None, b"first")
    assert list(catalog.tables) == ["id-a"]


def test_a_request_that_was_called_answered_does_not_come_back() -> None:
    catalog = registered()
    apply(catalog, [table("a")], [], RequestId(1, 1, 1))
    apply(catalog, [table("b")], [], RequestId(1, 2, 2))
    late = apply(catalog, [table("z")], [], RequestId(1, 1, 1))
    assert late == BatchOutcome(None, FORGOTTEN) and "id-z" not in catalog.tables


def test_a_request_of_a_session_that_ended_or_never_was_changes_nothing() -> None:
    catalog = registered()
    apply(catalog, [table("a")], [], RequestId(1, 1, 1), b"made", time=10)
    for request_id in (RequestId(1, 1, 1), RequestId(1, 2, 1), RequestId(77, 1, 1)):
        assert apply(catalog, [table("z")], [], request_id, time=1_011) == BatchOutcome(None, SESSION_ENDED)
    assert list(catalog.tables) == ["id-a"]


def test_a_snapshot_keeps_records_names_and_sessions() -> None:
    catalog, restored = registered(), Catalog()
    first = table("a")
    apply(catalog, [first], tablets(first), RequestId(1, 7, 3), b"made")
    restore(restored, frozen(catalog, 1))
    assert (restored.tables, restored.tablets) == (catalog.tables, catalog.tablets)
    assert apply(restored, [table("b")], [], RequestId(1, 7, 3)) == BatchOutcome(None, b"made")
    assert apply(restored, [table("a", "other")], []).conflict is not None


def test_creation_is_done_when_every_tablet_that_counts_runs() -> None:
    of = table("a")
    first, second = tablets(of)
    running = [changed_tablet(each, state=TabletState.RUNNING) for each in (first, second)]
    replaced = changed_tablet(first, state=TabletState.REPLACED)
    assert not creation_done([])
    assert not creation_done([running[0], second])
    assert creation_done([*running, replaced])


def test_caches_hide_removed_names_and_final_tablets_but_keep_the_records() -> None:
    of = table("a")
    caches = Caches([of], tablets(of))
    gone = changed_tablet(caches.tablets["id-a/0"], state=TabletState.DELETED)
    caches.commit([changed_table(of, state=TableState.REMOVED)], [gone])
    assert caches.table_named("a") is None and caches.tables["id-a"].removed
    assert [each.tablet_id for each in caches.tablets_of("id-a")] == ["id-a/1"]
    assert caches.tablets["id-a/0"] == gone


def test_a_renamed_table_gives_its_old_name_free() -> None:
    of = table("a")
    caches = Caches([of], [])
    caches.commit([changed_table(of, name="b")], [])
    assert caches.table_named("a") is None
    assert [each.name for each in caches.named_tables()] == ["b"]


def next_table(catalog: Catalog, name: str, action: str) -> TableRecord:
    owner = next((each for each in catalog.tables.values() if each.name == name and not each.removed), None)
    if owner is None:
        return table(name, f"{name}{len(catalog.tables)}")
    if action == "rename":
        return changed_table(owner, name=name + name)
    return changed_table(owner, state=TableState.REMOVED if action == "remove" else TableState.ALTERING)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("a", "b", "aa")),
            st.sampled_from(("rename", "remove", "alter")),
            st.sampled_from(TabletState),
        ),
        max_size=12,
    )
)
def test_caches_kept_by_commits_equal_caches_rebuilt_at_election(steps: list[tuple[str, str, TabletState]]) -> None:
    catalog = Catalog()
    kept = Caches([], [])
    catalog.observer = kept.commit
    for name, action, state in steps:
        changed = next_table(catalog, name, action)
        known = [each for each in catalog.tablets.values() if each.table_id == changed.table_id]
        moved = [changed_tablet(each, state=state, config=TabletConfig(0, (Replica("t1", ""),))) for each in known]
        apply(catalog, [changed], moved or tablets(changed))
    rebuilt = Caches(catalog.tables.values(), catalog.tablets.values())
    assert list(kept.named_tables()) == list(rebuilt.named_tables())
    assert dict(kept.tablets) == dict(rebuilt.tablets) and dict(kept.tables) == dict(rebuilt.tables)
    for table_id in catalog.tables:
        assert kept.tablets_of(table_id) == rebuilt.tablets_of(table_id)


def test_what_operators_said_of_servers_is_kept_in_snapshots_and_changed_by_compare_and_set() -> None:
    catalog = Catalog()
    of = [ServerRecord("t1", 1, True), ServerRecord("t2", 1, True)]
    assert decode_outcome(catalog.apply(1, encode_batch([], [], servers=of))).conflict is None
    stays = ServerRecord("t1", 2, False)
    assert decode_outcome(catalog.apply(2, encode_batch([], [], servers=[stays]))).conflict is None
    stale = decode_outcome(catalog.apply(3, encode_batch([], [], servers=[stays])))
    assert stale.conflict == "server t1 was changed by another operation"
    restored = Catalog()
    take = restored.restoring()
    for part in list(catalog.freeze(100)):
        take(part)
    assert restored.servers == catalog.servers and restored.digest == catalog.digest
    assert Caches([], [], restored.servers.values()).leaving == ("t2",)
