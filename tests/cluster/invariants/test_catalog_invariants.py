"""What tablet servers are told has been committed, and names are unique: held where they have to be, broken else."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.invariants.catalog import CALLS_COMMITTED, ONE_NAME, CatalogInvariants, premature
from cluster.invariants.findings import Findings
from cluster.master.records import TableRecord, TableState, TabletConfig, TabletRecord, TabletState, new_table
from cluster.raft.types import OpId
from cluster.store.schema import Column
from cluster.wire.messages import AlterTablet, CreateTablet, DeleteTablet, Partition, Replica

COLUMNS = (Column(0, "value", "int64"),)
TABLE = new_table("a", "orders", COLUMNS, 3)
VOTERS = tuple(Replica(name, "") for name in ("t1", "t2", "t3"))
TABLET = TabletRecord("x", 1, "a", Partition(0, 1), TabletState.CREATING, TabletConfig(0, VOTERS), ())
CREATE = CreateTablet("t1", True, "x", "a", "orders", Partition(0, 1), COLUMNS, 0, VOTERS)
DELETE = DeleteTablet("x")


def reason(
    request: CreateTablet | AlterTablet | DeleteTablet,
    table: TableRecord = TABLE,
    tablet: TabletRecord = TABLET,
    server: str = "t1",
) -> str | None:
    return premature(server, request, {"a": table}, {"x": tablet})


def test_calls_follow_what_is_committed() -> None:
    assert reason(CREATE) is None
    assert "no committed configuration" in str(reason(CREATE, server="t4"))
    assert "no committed configuration" in str(reason(CREATE, tablet=replace(TABLET, state=TabletState.REPLACED)))
    assert "nothing is committed" in str(premature("t1", CREATE, {}, {}))
    alter = AlterTablet("x", "orders", COLUMNS, 1)
    assert "before it is committed" in str(reason(alter))
    assert reason(alter, table=replace(TABLE, version=1)) is None


def test_nothing_is_deleted_without_a_record_that_says_so() -> None:
    assert "not deleted by any committed record" in str(reason(DELETE))
    assert "nothing is committed" in str(premature("t1", DELETE, {}, {}))
    assert reason(DELETE, tablet=replace(TABLET, state=TabletState.DELETED)) is None
    assert reason(DELETE, table=replace(TABLE, state=TableState.REMOVED)) is None
    assert reason(DeleteTablet("x", OpId(1, 5))) is None


def test_what_breaks_is_told_once_an_entry() -> None:
    findings = Findings(lambda: (5, 7))
    invariants = CatalogInvariants(findings)
    life = findings.lives.begin("m1", 1)
    invariants.called(life, "t1", DELETE, {"a": TABLE}, {"x": TABLET})
    invariants.applied(life, 1, {"a": TABLE})
    invariants.applied(life, 2, {"a": TABLE, "b": replace(TABLE, table_id="b")})
    invariants.applied(life, 2, {"a": TABLE, "b": replace(TABLE, table_id="b")})
    removed = replace(TABLE, table_id="b", state=TableState.REMOVED)
    invariants.applied(life, 3, {"a": TABLE, "b": removed})
    record = findings.record()
    assert record.broken == {CALLS_COMMITTED: 1, ONE_NAME: 1}
    assert record.checked[ONE_NAME] == 3
