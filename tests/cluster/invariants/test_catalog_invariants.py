"""What tablet servers are told has been committed, and names are unique: held where they have to be, broken else."""

from __future__ import annotations

from msgspec.structs import replace

from cluster.invariants.catalog import (
    CALLS_COMMITTED,
    DELETIONS_COMMITTED,
    NOT_OVER_REPLICATED,
    ONE_NAME,
    CatalogInvariants,
    premature,
)
from cluster.invariants.findings import BreachLog, Scope
from cluster.invariants.raft import MEMBERS_STAY, Membership
from cluster.master.catalog import Catalog
from cluster.master.records import (
    ServerRecord,
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
)
from cluster.raft.log import configuration_entry
from cluster.raft.types import ChangeKind, Configuration, Member, OpId
from cluster.wire.messages import AlterTablet, CreateTablet, DeleteTablet, Partition
from tests.cluster.master.catalog_records import COLUMNS, TABLE, VOTERS, tablet_record

TABLET = tablet_record()
CREATE = CreateTablet("t1", True, "tablet", "table", "orders", Partition(0, 1), COLUMNS, 0, VOTERS)
DELETE = DeleteTablet("tablet")


def reason(
    request: CreateTablet | AlterTablet | DeleteTablet,
    table: TableRecord = TABLE,
    tablet: TabletRecord = TABLET,
    server: str = "t1",
) -> str | None:
    return premature(server, request, {"table": table}, {"tablet": tablet})


def test_calls_follow_what_is_committed() -> None:
    assert reason(CREATE) is None
    assert "no committed configuration" in str(reason(CREATE, server="t4"))
    assert "no committed configuration" in str(reason(CREATE, tablet=replace(TABLET, state=TabletState.REPLACED)))
    assert "nothing is committed" in str(premature("t1", CREATE, {}, {}))
    alter = AlterTablet("tablet", "orders", COLUMNS, 1)
    assert "before it is committed" in str(reason(alter))
    assert reason(alter, table=replace(TABLE, version=1)) is None


def test_nothing_is_deleted_without_a_record_that_says_so() -> None:
    assert "not deleted by any committed record" in str(reason(DELETE))
    assert "nothing is committed" in str(premature("t1", DELETE, {}, {}))
    assert reason(DELETE, tablet=replace(TABLET, state=TabletState.DELETED)) is None
    assert reason(DELETE, table=replace(TABLE, state=TableState.REMOVED)) is None
    assert reason(DeleteTablet("tablet", OpId(1, 5))) is None


def catalog(tables: dict[str, TableRecord], *tablets: TabletRecord, leaving: str = "") -> Catalog:
    """A master's applied state that holds these records."""
    made = Catalog()
    made.tables, made.tablets = tables, {tablet.tablet_id: tablet for tablet in tablets}
    made.servers = {leaving: ServerRecord(leaving, 1, True)} if leaving else {}
    return made


def test_what_is_deleted_for_good_is_deleted_by_a_committed_record() -> None:
    """Appendix A, cases 1 and 2: true orphans stay, and so does what only a stranger wants deleted."""

    def broken(table: TableRecord, *tablets: TabletRecord) -> bool:
        findings = BreachLog(lambda: (5, 7))
        invariants = CatalogInvariants(findings)
        life = findings.lives.begin("t1", 1)
        invariants.deleted(life, "t1", "tablet")  # no catalog was ever seen: nothing to hold it against
        invariants.applied(life, 1, catalog({"table": table}, *tablets))
        invariants.deleted(life, "t1", "tablet")
        assert findings.record().checked[DELETIONS_COMMITTED] == 1
        return DELETIONS_COMMITTED in findings.record().broken

    assert broken(TABLE) and broken(TABLE, TABLET)
    assert not broken(replace(TABLE, state=TableState.REMOVED), TABLET)
    assert not broken(TABLE, replace(TABLET, state=TabletState.REPLACED))


def watched(leaving: str = "") -> tuple[BreachLog, CatalogInvariants, int]:
    findings = BreachLog(lambda: (5, 7))
    invariants = CatalogInvariants(findings)
    life = findings.lives.begin("t1", 1)
    invariants.applied(life, 1, catalog({"table": TABLE}, TABLET, leaving=leaving))
    return findings, invariants, life


def members(voters: int, learners: int = 0, index: int = 9) -> Configuration:
    every = tuple(Member(f"t{number}", "") for number in range(voters + learners))
    return Configuration(every[:voters], every[voters:], index, 2)


def test_a_tablet_has_no_more_members_than_its_table_wants_replicas() -> None:
    def broken(voters: int, learners: int, leaving: str = "") -> bool:
        findings, invariants, life = watched(leaving)
        invariants.configured(life, "tablet", members(voters, learners))
        invariants.configured(life, "of no table", members(9))
        return NOT_OVER_REPLICATED in findings.record().broken

    assert not broken(3, 0) and not broken(2, 1) and not broken(1, 0)
    assert broken(2, 2) and broken(3, 1) and broken(4, 0)
    assert not broken(4, 0, leaving="t9") and broken(4, 1, leaving="t9"), "its replicas are replaced first"


def test_an_operator_adds_what_he_likes_and_masters_nothing_beside_it() -> None:
    findings, invariants, life = watched()

    def breaches(voters: int, learners: int, index: int) -> int:
        for _ in range(2):  # Two replicas hear of it.
            invariants.configured(life, "tablet", members(voters, learners, index))
        return findings.record().broken.get(NOT_OVER_REPLICATED, 0)

    assert breaches(3, 0, 5) == 0
    invariants.operated("tablet", ChangeKind.REMOVE, 5)
    invariants.operated("tablet", ChangeKind.ADD_LEARNER, 5)
    assert breaches(3, 1, 7) == 0, "he asked for it"
    assert breaches(4, 0, 8) == 0, "it is as many as before"
    assert breaches(4, 1, 9) == 1, "nobody asked for that one"
    assert breaches(3, 0, 10) == 1
    assert breaches(3, 1, 12) == 2, "what he asked for was of another configuration"
    assert findings.record().checked[NOT_OVER_REPLICATED] == 6


def test_what_breaks_is_told_once_an_entry() -> None:
    findings = BreachLog(lambda: (5, 7))
    invariants = CatalogInvariants(findings)
    life = findings.lives.begin("m1", 1)
    invariants.called(life, "t1", DELETE, {"table": TABLE}, {"tablet": TABLET})
    invariants.applied(life, 1, catalog({"table": TABLE}))
    invariants.applied(life, 2, catalog({"table": TABLE, "b": replace(TABLE, table_id="b")}))
    invariants.applied(life, 2, catalog({"table": TABLE, "b": replace(TABLE, table_id="b")}))
    removed = replace(TABLE, table_id="b", state=TableState.REMOVED)
    invariants.applied(life, 3, catalog({"table": TABLE, "b": removed}))
    record = findings.record()
    assert record.broken == {CALLS_COMMITTED: 1, ONE_NAME: 1}
    assert record.checked[ONE_NAME] == 3


def test_a_member_of_the_committed_configuration_is_not_deleted() -> None:
    """M9: a replica goes as removed only once its group has committed a configuration without it."""

    def broken(*committed: tuple[str, ...]) -> tuple[dict[str, int], int]:
        findings = BreachLog(lambda: (5, 7))
        life, membership = findings.lives.begin("t3", 1), Membership(Scope(findings, "tablet"))
        for number, voters in enumerate(committed, 1):
            named = tuple(Member(voter, "") for voter in voters)
            membership.committed([configuration_entry(Configuration(named, (), number, 1))])
        membership.deleted(life, "t3")
        record = findings.record()
        return record.broken, record.checked[MEMBERS_STAY]

    assert broken(("t1", "t2", "t3"), ("t1", "t2")) == ({}, 1)
    assert broken(("t1", "t2", "t3")) == ({MEMBERS_STAY: 1}, 1)
    assert broken(("t1", "t2"), ("t1", "t2", "t3")) == ({MEMBERS_STAY: 1}, 1), "it was added again"
