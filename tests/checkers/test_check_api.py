"""`check` from file to verdict, in-process: words, formats, vacuity, crashes, bad input."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from register_histories import Row, random_rows, table, write_history

from checkers.api import check, check_run
from checkers.columns.codes import CAS, FAILED_CAS, FAILED_WRITE, NEVER, NIL, READ, WRITE
from checkers.linearizability.registers.register_zones import ZONE_ANOMALIES
from checkers.made.examples import EXAMPLES
from checkers.models import MODELS
from checkers.options import CheckOptions
from harness.errors import UserError
from harness.history.columns import VERSION_KEY
from harness.history.journal import JournalWriter
from harness.history.ops import Mop, Op, cas, read, write

STALE: list[Row] = [(WRITE, 17, NIL, 0, 1), (WRITE, 18, NIL, 2, 3), (READ, 17, NIL, 4, 5)]


def test_a_stale_read_is_explained_in_two_sentences(tmp_path: Path) -> None:
    verdict = check(write_history(tmp_path / "h.parquet", [STALE]), "register", engine="local")
    assert (verdict.valid, verdict.counts, verdict.ops) == (False, {"stale-read": 1}, 3)
    (anomaly,) = verdict.anomalies["stale-read"]
    assert anomaly.message == (
        "Process 2 read 17 from key 0 at 0.040 s on node t2 although process 1's write of 18 had completed at 0.030 s. "
        "Every order of the operations contradicts real time: process 1's write of 18 began at 0.020 s, when process "
        "0's write of 17 had completed at 0.010 s, so the older value was replaced for good before it was seen again."
    )
    assert [op["process"] for op in anomaly.ops] == [2, 1, 0]
    assert [(step["source"], step["target"], step["kind"]) for step in anomaly.steps] == [
        (1, 2, "realtime"),
        (0, 1, "realtime"),
    ]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("isolation", "ThinAirRead"),
        ("isolation", "FracturedReadAO"),
        ("lin-set", "nonlinearizable"),
        ("register", "stale-read"),
    ],
)
def test_no_verdict_hangs_on_how_many_anomalies_are_explained(model: str, name: str) -> None:
    path = EXAMPLES / model / f"{name}.edn"
    one, none = (check(path, model, engine="local", options=CheckOptions(explain=count)) for count in (1, 0))
    assert none.valid is one.valid is False
    assert none.counts == one.counts and set(one.anomalies) == set(one.counts)
    assert none.anomalies == {}


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("stale-read", [(WRITE, 1, NIL, 0, 1), (READ, NIL, NIL, 2, 3)], "nil is older than that value"),
        ("stale-read", [(WRITE, 1, NIL, 0, 1), (CAS, 2, 1, 2, 3), (READ, 1, NIL, 4, 5)], "had replaced 1 by then"),
        ("read-of-unwritten", [(READ, 7, NIL, 0, 1)], "no operation that can have taken effect wrote 7"),
        ("read-of-unwritten", [(FAILED_WRITE, 7, NIL, 0, 1), (READ, 7, NIL, 2, 3)], "process 0's write of 7, failed"),
        ("read-before-write", [(READ, 1, NIL, 0, 1), (WRITE, 1, NIL, 2, 3)], "before process 1's write of 1 began"),
        ("lost-update", [(WRITE, 1, NIL, 0, 1), (CAS, 2, 1, 2, 5), (CAS, 3, 1, 3, 4)], "held 1 only once"),
        ("cas-cycle", [(CAS, 2, 1, 0, 3), (CAS, 1, 2, 1, 2)], "neither can have been first"),
        ("cas-cycle", [(CAS, 2, 2, 0, 3)], "only it wrote"),
        (
            "overlapping-clusters",
            [
                *[(WRITE, 1, NIL, 0, 20), (WRITE, 2, NIL, 1, 21), (READ, 1, NIL, 2, 3), (READ, 2, NIL, 4, 5)],
                *[(READ, 1, NIL, 6, 7), (READ, 2, NIL, 8, 9)],
            ],
            "wholly before the other",
        ),
        (
            "nonlinearizable",
            [
                *[(WRITE, 1, NIL, 0, 100), (WRITE, 1, NIL, 1, 101), (WRITE, 2, NIL, 2, 102), (READ, 1, NIL, 3, 4)],
                *[(READ, 2, NIL, 5, 6), (READ, 1, NIL, 7, 8), (READ, 2, NIL, 9, 10)],
            ],
            "could hold only 1",
        ),
        (
            "stale-read",
            [(WRITE, 1, NIL, 0, 1), (WRITE, 1, NIL, 2, 3), (WRITE, 2, NIL, 4, 5), (READ, 1, NIL, 6, 7)],
            "was replaced for good before it was seen again",
        ),
    ],
)
def test_every_anomaly_has_words(tmp_path: Path, name: str, rows: list[Row], words: str) -> None:
    verdict = check(write_history(tmp_path / "h.parquet", [[], rows]), "register", engine="local")
    assert verdict.counts == {name: 1}
    (anomaly,) = verdict.anomalies[name]
    assert words in anomaly.message
    assert anomaly.key == 1
    assert anomaly.message.count(". ") == 1 and anomaly.message.endswith(".")


def test_random_histories_are_explained_without_crashing(tmp_path: Path) -> None:
    histories = [random_rows(Random(seed), 8, seed % 3 > 0) for seed in range(400)]
    verdict = check(write_history(tmp_path / "h.parquet", histories), "register", options=CheckOptions(explain=50))
    assert verdict.valid is False and verdict.reason is None
    assert len(set(verdict.counts) & {*ZONE_ANOMALIES, "nonlinearizable"}) >= 5
    assert {name: len(found) for name, found in verdict.anomalies.items()} == {
        name: min(50, count) for name, count in verdict.counts.items()
    }


def test_a_history_in_which_nothing_happened_is_unknown(tmp_path: Path) -> None:
    verdicts = check_run(write_history(tmp_path / "h.parquet", []), ("register", "stats", "list-append"))
    for model in ("register", "list-append"):
        assert verdicts[model].valid == "unknown" and "nothing to judge" in str(verdicts[model].reason)
    unanswered: list[Row] = [(WRITE, value, NIL, 2 * value, NEVER) for value in range(50)]
    verdict = check(write_history(tmp_path / "i.parquet", [unanswered]), "register")
    assert verdict.valid == "unknown" and "No operation succeeded" in str(verdict.reason)
    assert (verdicts["stats"].valid, verdicts["stats"].reason) == ("unknown", "The history has no client operations.")


def test_stats_count_and_name_what_never_succeeded(tmp_path: Path) -> None:
    rows: list[Row] = [(WRITE, 1, NIL, 0, 1), (FAILED_CAS, 3, 2, 2, 3), (WRITE, 2, NIL, 4, NEVER)]
    verdict = check(write_history(tmp_path / "h.parquet", [rows]), "stats")
    assert verdict.valid == "unknown" and "succeeded: cas." in str(verdict.reason)
    assert verdict.details["by_f"] == {
        "cas": {"ok": 0, "fail": 1, "info": 0},
        "write": {"ok": 1, "fail": 0, "info": 1},
    }


def test_failed_cas_constrains_only_if_asked(tmp_path: Path) -> None:
    path = write_history(tmp_path / "h.parquet", [[(WRITE, 1, NIL, 0, 1), (FAILED_CAS, 2, 1, 2, 3)]])
    assert check(path, "cas-register").valid == "unknown", "nothing was read"
    assert check(path, "cas-register", options=CheckOptions(failed_cas="observed")).valid is False


def test_a_journal_is_judged_up_to_its_last_sealed_block(tmp_path: Path) -> None:
    path = tmp_path / "history.journal"
    journal = JournalWriter(path)
    for i, done in enumerate((write(5, 17), write(5, 18), Mop("r", 5, 17))):
        op = Op("invoke", i, "some", (done,), index=2 * i, time=2 * i)
        journal.append(op)
        journal.append(op.complete("ok", index=2 * i + 1))
    journal.append(Op("invoke", 9, "cas", (cas(5, 17, 99),), index=6, time=6))
    journal.seal()
    journal.append(Op("invoke", 10, "read", (read(5),), index=7, time=7))
    verdict = check(path, "register")
    assert verdict.counts == {"stale-read": 1}
    assert "ended early" in verdict.details["note"]
    journal.close()
    assert "note" not in check(path, "register").details


def test_the_sealed_prefix_of_a_journal_is_never_valid(tmp_path: Path) -> None:
    path = tmp_path / "history.journal"
    journal = JournalWriter(path)
    begun = Op("invoke", 0, "read", (read(5),), index=0, time=0)
    journal.append(begun)
    journal.append(begun.complete("ok", index=1))
    journal.seal()
    verdict = check(path, "register")
    assert verdict.valid == "unknown" and "ended early" in str(verdict.reason)
    journal.close()
    assert check(path, "register").valid is True


def test_a_checker_that_crashes_is_unknown_and_stops_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("so it goes\nand more")

    monkeypatch.setattr("checkers.jepsen.stats.judge_stats", crash)
    path = write_history(tmp_path / "h.parquet", [STALE])
    verdicts = check_run(path, ("stats", "register"), options=CheckOptions(debug=True))
    assert verdicts["stats"].valid == "unknown"
    assert verdicts["stats"].reason == "The checker stats crashed: ZeroDivisionError: so it goes"
    assert "Traceback" in verdicts["stats"].details["traceback"]
    assert verdicts["register"].valid is False


def test_a_search_without_budget_is_unknown(tmp_path: Path) -> None:
    rows: list[Row] = [(WRITE, 0, NIL, 0, 1), (WRITE, 0, NIL, 2, 3)]
    rows += [(CAS, 10 + i, 0, 4 + i, 10_000 + i) for i in range(40)]
    rows += [(CAS, 0, 10 + i, 100 + i, 20_000 + i) for i in range(40)]
    rows += [(WRITE, 77, NIL, 300, 400), (WRITE, 88, NIL, 301, 401)]
    rows += [(READ, value, NIL, 302 + 2 * i, 303 + 2 * i) for i, value in enumerate((88, 77, 88))]
    path = write_history(tmp_path / "h.parquet", [rows, [(WRITE, 1, NIL, 0, 1)]])
    verdict = check(path, "register", options=CheckOptions(memory_mib=1))
    assert verdict.valid == "unknown"
    assert "1 of 2 keys could not be decided" in str(verdict.reason)


def refused(path: Path, model: str = "register", **options: str) -> str:
    with pytest.raises(UserError) as raised:
        check(path, model, **options)  # type: ignore[arg-type]
    assert str(raised.value).endswith(".") and "\n" not in str(raised.value)
    return str(raised.value)


def test_choices_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    path = write_history(tmp_path / "h.parquet", [STALE])
    assert "no model 'nope'" in refused(path, "nope")
    assert "no engine 'nope'" in refused(path, engine="nope")
    assert "no format 'nope'" in refused(path, format="nope")
    assert "can't be read" in refused(tmp_path / "missing.parquet")
    assert "has no run.json" in refused(tmp_path)


def test_parquet_that_is_no_history_of_ours_is_refused(tmp_path: Path) -> None:
    good = table([STALE])
    path = tmp_path / "h.parquet"
    pq.write_table(good.replace_schema_metadata({}), path)
    assert "states no assay.history.version" in refused(path)
    pq.write_table(good.replace_schema_metadata({VERSION_KEY: b"99"}), path)
    assert "has history version 99" in refused(path)
    pq.write_table(good.drop_columns(["invoke_index"]), path)
    assert "column invoke_index is missing" in refused(path)
    write_history(path, [STALE])
    path.write_bytes(path.read_bytes()[:-20])
    assert "not a whole Parquet file" in refused(path)


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("invoke_index", [0, 2, 2], "invocations are not in order"),
        ("invoke_index", [0, 1, 4], "two events have this index"),
        ("complete_index", [1, 0, 5], "completes before it begins"),
        ("complete_index", [1, 10**12, 10**12], "two events have this index"),
        ("complete_index", [1, None, 5], "has no completion"),
        ("type", ["ok", "okay", "ok"], "operations of type okay"),
        ("mops", [None, None, None], "can't judge it"),
    ],
)
def test_events_that_cannot_be_are_refused(tmp_path: Path, column: str, values: list[object], words: str) -> None:
    good = table([STALE])
    place = good.schema.get_field_index(column)
    field = good.schema.field(place)
    bad = good.set_column(place, field, pa.array(values, field.type))
    pq.write_table(bad, tmp_path / "h.parquet")
    assert words in refused(tmp_path / "h.parquet")


def test_the_integer_that_stands_for_nil_is_refused(tmp_path: Path) -> None:
    rows = table([STALE]).to_pylist()
    rows[0]["mops"][0]["value"] = NIL
    pq.write_table(pa.Table.from_pylist(rows, schema=table([]).schema), tmp_path / "h.parquet")
    assert "event 0: not one read, write" in refused(tmp_path / "h.parquet")


def test_every_model_states_what_it_does() -> None:
    assert all(info.name == name and info.summary for name, info in MODELS.items())
