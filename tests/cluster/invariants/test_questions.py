"""What masters answer is held against the records that the watch has kept, as of the entries that it may be as of."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cluster.invariants.findings import BreachLog
from cluster.invariants.questions import ANSWERED_AS_APPLIED, CatalogAnswers, Question
from cluster.master.catalog import Catalog, encode_batch
from cluster.master.records import TabletState, altered_table, changed_tablet, removed_table
from cluster.wire.messages import (
    AlterTable,
    AlterTableReply,
    CreateTable,
    CreateTableReply,
    DeleteTable,
    DeleteTableReply,
    DoneReply,
    ErrorReply,
    GetTableLocations,
    GetTableSchema,
    GetTabletLocations,
    IsAlterTableDone,
    IsCreateTableDone,
    ListTables,
    ListTablesReply,
    ListTabletServers,
    RequestId,
    TableInfo,
    TableLocationsReply,
    TableSchemaReply,
    TabletLocation,
    TabletLocationsReply,
    TabletServersReply,
)
from tests.cluster.master.catalog_records import COLUMNS, TABLE, VOTERS, tablet_record

RUNS = changed_tablet(tablet_record(), state=TabletState.RUNNING, leader="t2", leader_term=1)
RENAMED = altered_table(TABLE, "bills", COLUMNS, 1)
BATCHES = {
    3: ([TABLE], [tablet_record()]),
    5: ([], [RUNS]),
    7: ([RENAMED], []),
    9: ([removed_table(RENAMED)], []),
}
"""Made at 3, runs at 5, renamed at 7, gone at 9."""

NO_TABLE = ErrorReply("NOT_FOUND", "no such table", True)
RID = RequestId(1, 1, 1)
PLACE = TabletLocation("tablet", RUNS.partition, VOTERS, "RUNNING", "t2")
UNPLACED = replace(PLACE, replicas=(), state="CREATING", leader_hint=None)
SCHEMA = TableSchemaReply("table", "orders", "RUNNING", COLUMNS, 0, None, 0, 3, "raft")
INFO = TableInfo("table", "orders", "RUNNING", 0, "raft")
LATER = replace(INFO, name="bills", state="ALTERING", version=1)

ORDERS, BILLS = "orders", "bills"
CASES = [
    # (question, answer, the entries at which it is right)
    (ListTables(), ListTablesReply(()), {1, 9}),
    (ListTables(), ListTablesReply((INFO,)), {3, 5}),
    (ListTables(), ListTablesReply((LATER,)), {7}),
    (ListTables(), ListTablesReply((INFO, LATER)), set()),
    (GetTableSchema(ORDERS), SCHEMA, {3, 5}),
    (GetTableSchema(ORDERS), replace(SCHEMA, columns=()), set()),
    (GetTableSchema(ORDERS), NO_TABLE, {1, 7, 9}),
    (GetTableSchema(table_id="table"), SCHEMA, {3, 5}),
    (GetTableSchema(BILLS, table_id="table"), NO_TABLE, {1, 3, 5, 9}),
    (IsCreateTableDone(ORDERS), DoneReply(False, "table", 0), {3}),
    (IsCreateTableDone(ORDERS), DoneReply(True, "table", 0), {5}),
    (IsAlterTableDone(BILLS), DoneReply(False, "table", 1), {7}),
    (IsAlterTableDone(BILLS), DoneReply(True, "table", 1), set()),
    (GetTableLocations(ORDERS), TableLocationsReply("table", (UNPLACED,)), {3}),
    (GetTableLocations(ORDERS), TableLocationsReply("table", (PLACE,)), {5}),
    (GetTableLocations(ORDERS), TableLocationsReply("table", (replace(PLACE, leader_hint=None),)), set()),
    (GetTabletLocations(("tablet", "x")), TabletLocationsReply((PLACE,), ("x",)), {5, 7, 9}),
    (GetTabletLocations(("tablet",)), TabletLocationsReply((), ("tablet",)), {1}),
    (CreateTable(RID, ORDERS, COLUMNS, 1, 3), CreateTableReply("table"), {3, 5, 7, 9}),
    (CreateTable(RID, ORDERS, COLUMNS, 1, 3), ErrorReply("ALREADY_PRESENT", "", True), {3, 5}),
    (AlterTable(RID, ORDERS, (), BILLS), AlterTableReply("table", 1), {7, 9}),
    (AlterTable(RID, "x", (), BILLS), ErrorReply("ALREADY_PRESENT", "", True), {7}),
    (AlterTable(RID, ORDERS, (), BILLS), NO_TABLE, {1, 7, 9}),
    (DeleteTable(RID, BILLS), DeleteTableReply("table"), {9}),
]


class Watched:
    """A watch that has seen the catalog up to an entry."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.findings = BreachLog(lambda: (self.now_ns, 0))
        self.life = self.findings.lives.begin("m1", 1)
        self.answers = CatalogAnswers(self.findings, lambda: (self.now_ns, 0))
        self.catalog, self.index = Catalog(), 0

    def go_on(self, index: int) -> None:
        for entry in range(self.index + 1, index + 1):
            self.answers.committed(entry)
            if entry in BATCHES:
                self.catalog.apply(entry, encode_batch(*BATCHES[entry]))
            self.answers.applied(entry, self.catalog)
        self.index = index

    def right(self, request: object, reply: object, lowest: int | None) -> bool:
        before = len(self.findings.record().breaches)
        self.answers.answered(self.life, request, lowest, reply)
        return len(self.findings.record().breaches) == before


@pytest.mark.parametrize(("request_", "reply", "right_at"), CASES)
def test_an_answer_is_right_at_some_entries_only(request_: object, reply: object, right_at: set[int]) -> None:
    for index in (1, 3, 5, 7, 9):
        watched = Watched()
        watched.go_on(index)
        assert watched.right(request_, reply, watched.answers.asked(request_)) == (index in right_at), index
        assert watched.findings.checked[ANSWERED_AS_APPLIED] == 1


def test_any_entry_between_the_call_and_the_answer_will_do() -> None:
    watched, question = Watched(), GetTableLocations(ORDERS)
    watched.go_on(3)
    lowest = watched.answers.asked(question)
    watched.go_on(9)
    for reply in (TableLocationsReply("table", (UNPLACED,)), TableLocationsReply("table", (PLACE,)), NO_TABLE):
        assert watched.right(question, reply, lowest)
    assert not watched.right(question, TableLocationsReply("table", ()), lowest)
    assert not watched.right(question, TableLocationsReply("table", (UNPLACED,)), watched.answers.asked(question))


AGED = [
    (question, reply) for question, reply, at in CASES if isinstance(question, Question) and max(at, default=0) == 5
]


@pytest.mark.parametrize(("question", "reply"), AGED)
@pytest.mark.parametrize(("allowed_ms", "fine"), [(0, False), (1_000, False), (2_100, True), (60_000, True)])
def test_a_question_that_allows_an_age_may_be_answered_by_the_catalog_of_then(
    question: Question, reply: object, allowed_ms: int, fine: bool
) -> None:
    watched, aged = Watched(), replace(question, max_staleness_ms=allowed_ms)
    watched.go_on(5)
    watched.now_ns = 10_000_000_000
    watched.go_on(9)
    watched.now_ns = 12_000_000_000
    assert watched.right(aged, reply, watched.answers.asked(aged)) == fine


def test_of_what_is_soft_nothing_is_said() -> None:
    watched = Watched()
    for request, reply in (
        (ListTabletServers(), TabletServersReply(())),
        (ListTables(), ErrorReply("NOT_THE_LEADER", "", True)),
    ):
        assert watched.right(request, reply, 0)
    assert watched.findings.checked[ANSWERED_AS_APPLIED] == 0
