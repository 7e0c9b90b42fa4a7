"""What answers about the catalog may say one after the other: small histories that must not be believed, each beside
one that must; in the words of `checkers.made.examples`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from checkers.engines.local import LocalEngine
from checkers.made.examples import events_of
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from cluster.wire import catalog as wire
from cluster.wire.nouns import TableInfo, TabletLocation
from harness.history.table import to_table

DOCUMENT = Path(__file__).parents[3] / "docs/checking.md"


def judged(*operations: str) -> Verdict:
    """One after the other, unless a line says when (`begin-end …`)."""
    lines = [
        each if each[0].isdigit() else f"{10 * place}-{10 * place + 1} {place} ok {each}"
        for place, each in enumerate(operations)
    ]
    events = [event.complete(event.type, index=index) for index, event in enumerate(events_of("\n".join(lines)))]
    table = to_table(events)
    source = Source(Path("test.journal"), "journal", table.num_rows, table=table)
    return MODELS["catalog"].judge(source, LocalEngine(), CheckOptions())


CREATE, DELETE = "create create(1,0,1)=500[3]", "delete delete(1)=500"
ALTER = "alter alter(1)=500[1]"
DONE, NOT_DONE = ("created created(1,0)=500[1]", "created created(1,0)=500[0]")
SETTLED, SETTLING = ("altered altered(1,1)=500[1]", "altered altered(1,1)=500[0]")
LISTED, LISTED_ALTERING = ("list table(1,1,2)=500", "list table(1,1,3)=500")


def located(state: int, tablet: int = 801, name: int = 1, id: int = 500) -> str:
    return f"locations locations({name},0,1)={id} tablet(0,{3 if state == 3 else 0},{state})={tablet}"


def known(state: int, tablet: int = 801) -> str:
    return f"tablets known(0,0,{state})={tablet}"


PREPARING, CREATING, RUNNING, REPLACED, DELETED = range(1, 6)
BASE, X = "column(0,{0},0)=2", "column(0,{0},1)=5"
SCHEMA_0 = "columns " + BASE.format(0)
ADDED = "reshape reshape(0,1,0)=nil"
SCHEMA_1 = f"columns {BASE.format(1)} {X.format(1)}"
AGAIN = ("reshape reshape(0,2,1)=nil", "reshape reshape(0,3,0)=nil")

BELIEVED = {
    "done, then a tablet PREPARING": ((CREATE, DONE, located(PREPARING)), "creation-undone"),
    "done, then a single tablet CREATING": (
        (CREATE, located(CREATING), DONE, known(CREATING)),
        "creation-undone",
    ),
    "done, then not": ((CREATE, DONE, NOT_DONE), "creation-undone"),
    "all runs, then not done": ((CREATE, located(RUNNING), NOT_DONE), "creation-undone"),
    "not done, then done": ((CREATE, NOT_DONE, located(CREATING), DONE, located(RUNNING)), None),
    "altered, then not": ((CREATE, ALTER, SETTLED, SETTLING), "altering-without-alter"),
    "altered, then ALTERING at that version": ((CREATE, ALTER, SETTLED, LISTED_ALTERING), "altering-without-alter"),
    "RUNNING, then ALTERING at that version": ((CREATE, ALTER, LISTED, LISTED_ALTERING), "altering-without-alter"),
    "ALTERING, then RUNNING": ((CREATE, ALTER, LISTED_ALTERING, SETTLING, SETTLED, LISTED), None),
    "ALTERING though nobody altered": ((CREATE, "list table(1,0,3)=500"), "altering-without-alter"),
    "not altered though nobody altered": ((CREATE, "altered altered(1,0)=500[0]"), "altering-without-alter"),
    "ALTERING, and all follow": ((CREATE, ALTER, "schema schema(1,1)=500[3,3,1]"), "altering-without-alter"),
    "RUNNING, and all follow an older": ((CREATE, ALTER, "schema schema(1,1)=500[2,3,1]"), "altering-without-alter"),
    "ALTERING, and all follow an older": ((CREATE, ALTER, "schema schema(1,1)=500[3,3,0]"), None),
    "a schema of a state that none has": ((CREATE, "schema schema(1,0)=500[1,3,0]"), "uncommitted-record"),
    "an alteration to another version": ((CREATE, "alter alter(1)=500[2]"), "version-without-alter"),
    "two alterations to one version": ((CREATE, ALTER, ALTER), "no-order"),
    "a renaming to another version": ((CREATE, ALTER, "rename rename(1,2)=500[1]"), "no-order"),
    "an alteration and a renaming": ((CREATE, ALTER, "rename rename(1,2)=500[2]", "list table(2,2,3)=500"), None),
    "RUNNING, then CREATING": ((CREATE, located(RUNNING), known(CREATING)), ("creation-undone", "tablet-went-back")),
    "RUNNING, then REPLACED": ((CREATE, located(RUNNING), known(REPLACED)), "tablet-went-back"),
    "CREATING, then PREPARING": ((CREATE, located(CREATING), located(PREPARING)), "tablet-went-back"),
    "REPLACED, then CREATING": ((CREATE, located(CREATING), known(REPLACED), known(CREATING)), "tablet-went-back"),
    "CREATING, then REPLACED": ((CREATE, located(CREATING), known(REPLACED), located(RUNNING, 802), DONE), None),
    "DELETED, then RUNNING": (
        (CREATE, located(RUNNING), "20-21 1 ok delete delete(1)=500", known(DELETED), known(RUNNING)),
        ("deleted-table-seen", "tablet-went-back"),
    ),
    "DELETED, then its table lives": (
        (CREATE, located(RUNNING), "20- 1 info delete delete(1)=nil", known(DELETED), LISTED.replace("1,1", "1,0")),
        "deleted-table-seen",
    ),
    "DELETED though nobody deletes": ((CREATE, located(RUNNING), known(DELETED)), "lost-table"),
    "DELETED by one of unknown outcome": (
        (CREATE, located(RUNNING), "20- 1 info delete delete(1)=nil", known(DELETED)),
        None,
    ),
    "DELETED under a later name": (
        (
            CREATE,
            located(RUNNING),
            "20- 1 info rename rename(1,2)=nil",
            "30- 2 info delete delete(2)=nil",
            known(RUNNING),
            known(DELETED),
        ),
        None,
    ),
    "DELETED, and deleted later": ((CREATE, located(RUNNING), known(DELETED), DELETE), "lost-table"),
    "RUNNING after its table was deleted": ((CREATE, located(RUNNING), DELETE, known(RUNNING)), "deleted-table-seen"),
    "REPLACED after its table was deleted": ((CREATE, located(CREATING), DELETE, known(REPLACED)), None),
    "DELETED after its table was deleted": ((CREATE, located(RUNNING), DELETE, known(DELETED)), None),
    "RUNNING after a list without its table": (
        (CREATE, located(RUNNING), "20-21 1 ok list", known(RUNNING)),
        "flickering-table",
    ),
    "a single tablet in no state": ((CREATE, known(0)), "uncommitted-record"),
    "one tablet of two tables": (
        (CREATE, "create create(2,0,1)=501[3]", located(RUNNING), located(RUNNING, 801, 2, 501)),
        "tablet-in-two-places",
    ),
    "one tablet of two partitions": (
        ("create create(1,0,2)=500[3]", "locations locations(1,0,2)=500 tablet(0,3,3)=801 tablet(1,3,3)=801"),
        "tablet-in-two-places",
    ),
    "other partitions than asked for": (("create create(1,0,2)=500[3]", located(RUNNING)), "wrong-size"),
    "other partitions than anybody asked for": (
        ("0- 0 info create create(1,0,2)=nil", located(RUNNING)),
        "wrong-size",
    ),
    "partitions as somebody asked for": (
        ("0- 0 info create create(1,0,2)=nil", "2- 1 info create create(1,0,1)=nil", located(RUNNING)),
        None,
    ),
    "other replicas than asked for": ((CREATE, "schema schema(1,0)=500[2,5,0]"), "wrong-size"),
    "other replicas in the end": ((CREATE, located(RUNNING).replace(",3,3)", ",2,3)") + " phase=final"), "unknown"),
    "replicas on their way": ((CREATE, located(RUNNING).replace(",3,3)", ",2,3)"), located(RUNNING)), None),
    "rows: as altered": ((CREATE, SCHEMA_0, ADDED, SCHEMA_1), None),
    "rows: a column nobody added": ((CREATE, SCHEMA_0, ADDED, SCHEMA_1 + " column(0,1,3)=6"), "column-without-alter"),
    "rows: a column from the beginning": ((CREATE, f"{SCHEMA_0} column(0,0,1)=5"), "column-without-alter"),
    "rows: a version that jumps": ((CREATE, SCHEMA_0, ADDED.replace("0,1,0", "0,2,0")), "schema-without-alter"),
    "rows: an acknowledged version that is missed": ((CREATE, ADDED, SCHEMA_0), "schema-went-back"),
    "rows: a version too low": ((CREATE, "10-11 1 ok reshape reshape(0,1,0)=nil", SCHEMA_0), "schema-went-back"),
    "rows: one of unknown outcome": ((CREATE, "10- 1 info reshape reshape(0,0,0)=nil", SCHEMA_0, SCHEMA_1), None),
    "rows: one that began later": (
        (CREATE, "10- 1 info reshape reshape(0,0,1)=nil", SCHEMA_1, "30- 2 info reshape reshape(0,0,0)=nil"),
        "column-without-alter",
    ),
    "rows: renamed with its id": (
        (CREATE, ADDED, SCHEMA_1, "reshape reshape(0,2,2)=nil", "columns column(0,2,0)=2 column(0,2,2)=5"),
        None,
    ),
    "rows: renamed with a new id": (
        (CREATE, ADDED, SCHEMA_1, "reshape reshape(0,2,2)=nil", "columns column(0,2,0)=2 column(0,2,2)=6"),
        "column-without-alter",
    ),
    "rows: dropped and added under its id": (
        (CREATE, ADDED, SCHEMA_1, *AGAIN, "columns column(0,3,0)=2 column(0,3,1)=5"),
        "column-without-alter",
    ),
    "rows: dropped and added": (
        (CREATE, ADDED, SCHEMA_1, *AGAIN, "columns column(0,3,0)=2 column(0,3,1)=6"),
        None,
    ),
    "rows: the base column vanishes": ((CREATE, SCHEMA_0, ADDED, f"columns {X.format(1)}"), "column-without-alter"),
    "rows: the base column gets an id": (
        (CREATE, SCHEMA_0, ADDED, f"columns column(0,1,0)=3 {X.format(1)}"),
        "column-without-alter",
    ),
    "rows: what can't be dropped": ((CREATE, "reshape reshape(0,1,1)=nil"), "column-without-alter"),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_what_must_not_be_believed_is_not_and_what_may_be_is(name: str) -> None:
    operations, wrong = BELIEVED[name]
    verdict = judged(*operations)
    expected = {wrong} if isinstance(wrong, str) else set(wrong or ())
    if wrong == "unknown":
        assert (verdict.valid, verdict.counts) == ("unknown", {})
    else:
        assert (verdict.valid, set(verdict.counts)) == (not expected, expected), verdict
    for instances in verdict.anomalies.values():
        assert all(each.message.endswith(".") for each in instances)


def test_an_answer_of_before_does_not_contradict_what_came_later() -> None:
    """Answers that overlap may have been given in either order (M2); a list within an age is as old as that (M13)."""
    late = "15-45 7 ok created created(1,0)=500[0]"
    assert judged(CREATE, late, DONE, located(RUNNING)).valid is True
    old = "30-31 7 ok list table(1,1,3)=500 bound=20000000"
    assert judged(CREATE, ALTER, SETTLED, old).valid is True
    assert judged(CREATE, ALTER, SETTLED, old.replace("bound=20000000", "bound=1000000")).valid is False


REPLIES = set(get_args(wire.CatalogReply)) - {wire.FreshnessReply}
"""What the eleven calls are answered with; DoneReply is of two, and masters alone ask for freshness."""

MORE = (TableInfo, TabletLocation)


def test_every_field_of_every_answer_is_judged_or_it_is_said_why_not() -> None:
    """The table is in `docs/checking.md`; a field that it lacks, or that no answer has, fails here."""
    fields = {f"{answer.__name__}.{name}" for answer in (*REPLIES, *MORE) for name in answer.__struct_fields__}
    said = set(re.findall(r"`(\w+\.\w+)`", DOCUMENT.read_text().split("### A catalog")[1].split("\n### ")[0]))
    assert len(REPLIES) == 10 and fields == {each for each in said if each[0].isupper()}
