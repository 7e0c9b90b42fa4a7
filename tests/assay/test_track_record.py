"""What is known of other people's databases: the rows, when one is met, and the table in its document."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay import track_record
from assay.outcome_records import CampaignOutcome, CampaignRecord
from assay.track_record import KNOWN, Known, exit_code, in_words, known_of, make_missing, table, write_table
from harness.errors import UserError
from workloads.registry import WORKLOADS

CORRECT = Known("etcd", "watch", ("valid",), "somebody")
STALE = Known("etcd", "register", ("stale-read",), "somebody", {"read": "serializable"}, {}, ("partition",))


def outcome(known: Known, overall: str, *anomalies: str, seed: int = 1) -> CampaignOutcome:
    return CampaignOutcome(command=known.run(seed).command(), commit="c", overall=overall, anomalies=anomalies)


def test_every_row_is_a_run_that_can_be_asked_for_and_no_two_are_the_same() -> None:
    commands = {row.run(1).command() for row in KNOWN}
    assert len(commands) == len(KNOWN)
    assert {row.workload for row in KNOWN} <= WORKLOADS.keys()
    assert {row.database for row in known_of(["redis"])} == {"redis"}
    with pytest.raises(UserError, match="no track record of 'mine'; choose from: etcd, redis, postgresql, mariadb"):
        known_of(["mine"])


@pytest.mark.parametrize(
    ("known", "overall", "anomalies", "met"),
    [
        (CORRECT, "valid", (), True),
        (CORRECT, "unknown", (), False),
        (CORRECT, "invalid", ("missing-row",), False),
        (STALE, "invalid", ("stale-read", "lost-update"), True),
        (STALE, "invalid", ("lost-update",), False),
        (STALE, "invalid", (), False),
        (STALE, "valid", (), False),
    ],
)
def test_a_row_is_met_by_what_is_known_alone(known: Known, overall: str, anomalies: tuple[str, ...], met: bool) -> None:
    assert known.met(outcome(known, overall, *anomalies)) is met


@pytest.mark.parametrize("words", [(), ("unknown",), ("unknown", "unknown")])
def test_rows_of_which_nothing_is_known_are_no_success(tmp_path: Path, words: tuple[str, ...]) -> None:
    record = CampaignRecord(tmp_path / "record.jsonl", "c")
    for seed, word in enumerate(words, 1):
        record.add(outcome(CORRECT, word, seed=seed))
    assert exit_code([CORRECT], 3, record) == 2


def test_the_table_has_what_was_recorded_and_takes_its_place_in_a_document(tmp_path: Path) -> None:
    record = CampaignRecord(tmp_path / "record.jsonl", "c")
    record.add(outcome(CORRECT, "valid"))
    record.add(outcome(STALE, "invalid", "stale-read"))
    record.add(outcome(STALE, "unknown", seed=2))
    lines = list(table([CORRECT, STALE], 3, record))
    assert lines[2:] == [
        "| etcd | `watch` | valid | 1 of 1 | – | somebody |",
        f"| etcd | {in_words(STALE)} | one of stale-read | 1 of 2 | stale-read; also unknown | somebody |",
    ]
    assert exit_code([CORRECT, STALE], 3, record) == 0
    record.add(outcome(CORRECT, "invalid", "missing-row", seed=2))
    assert exit_code([CORRECT, STALE], 3, record) == 1
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- table -->\nold\n<!-- end of table -->\nafter\n")
    write_table(document, lines)
    assert document.read_text().split("\n") == [
        "before",
        "<!-- table -->",
        *lines,
        "<!-- end of table -->",
        "after",
        "",
    ]
    document.write_text("nothing")
    with pytest.raises(UserError, match="no place for the table"):
        write_table(document, lines)


def test_what_is_missing_or_unknown_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = CampaignRecord(tmp_path / "record.jsonl", "c")
    record.add(outcome(CORRECT, "valid"))
    record.add(outcome(CORRECT, "unknown", seed=2))
    monkeypatch.setattr(track_record, "run_all", lambda runs, jobs, keep: runs)
    monkeypatch.setattr(
        track_record,
        "outcome_of",
        lambda run, command, commit: CampaignOutcome(command=command, commit=commit, overall="valid"),
    )
    made = [each.command for each in make_missing([CORRECT], 3, record, tmp_path)]
    assert made == [CORRECT.run(seed).command() for seed in (2, 3)]
