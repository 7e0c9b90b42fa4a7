"""The journal of a night: what is read of one that was torn, changed, damaged, or written to a store that was full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.night import journal as journals
from assay.night.journal import NightJournal, begin_night, head_of, open_night, resume_night, sole_night
from assay.night.records import JOURNAL, Night, NightDone, RunBegan, RunEnded, RunFinding, read_night
from assay.night.store import KeptRuns
from harness.errors import UserError


def begun(store: Path) -> Night:
    return begin_night(store, "a name/with signs", "text", lambda id: head_of(id, "a name", "text"))


def lines(count: int) -> list[RunBegan | RunEnded]:
    both: list[RunBegan | RunEnded] = []
    for run in range(count):
        same: dict[str, Any] = {
            "run": run,
            "cell": "c",
            "number": run,
            "seed": run,
            "attempt": 1,
            "at": "",
            "spent_s": 1.0,
        }
        both += [RunBegan(**same), RunEnded(**same, word="valid")]
    return both


def a_night(store: Path, runs: int = 3, done: bool = False) -> Path:
    night = begun(store)
    journal = NightJournal(night.directory, night.whole_bytes, night.seal)
    assert journal.append(*lines(runs))
    if done:
        journal.append(NightDone(at="", why="wall", wall_s=1, cpu_s=1))
    return night.directory


def test_what_was_written_is_read(tmp_path: Path) -> None:
    night = read_night(a_night(tmp_path, done=True))
    assert [run.run for run in night.runs] == [0, 1, 2] and not night.begun and not night.damage and not night.is_open
    assert night.directory.name.endswith("-a-name-with-signs") and night.head.machine.cores > 0
    assert open_night(tmp_path) is None and open_night(tmp_path / "nothing") is None


def test_a_torn_end_is_no_line_and_is_cut_off_when_the_night_goes_on(tmp_path: Path) -> None:
    directory = a_night(tmp_path)
    path = directory / JOURNAL
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    night = open_night(tmp_path)
    assert night is not None and len(night.runs) == 2 and list(night.begun) == [2] and not night.damage
    journal, owed = resume_night(night)
    assert [each.run for each in owed] == [2] and journal.append(*lines(3)[-1:])
    again = read_night(directory)
    assert len(again.runs) == 3 and not again.damage and again.resumed[0].spent_s == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: told.replace(b'"word":"valid"', b'"word":"inval"', 1), "is damaged"),
        (lambda told: told.replace(b'{"seal"', b'{"se', 4), "is damaged"),
        (lambda told: told.replace(b'"version":1', b'"version":2', 1), "reads nights up to version 1"),
        (lambda told: told[told.index(b"\n") + 1 :], "is damaged|does not begin with the head"),
        (lambda told: b"", "does not begin with the head"),
        (lambda told: b"\xff\xfe\n" + told, "line 1, is damaged"),
    ],
)
def test_a_journal_that_is_damaged_before_its_end_is_refused(
    change: Callable[[bytes], bytes], words: str, tmp_path: Path
) -> None:
    path = a_night(tmp_path, done=True) / JOURNAL
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=words):
        read_night(path.parent)


@pytest.mark.parametrize(
    "change",
    [
        lambda each: [*each[:3], *each[5:]],
        lambda each: [each[0], each[3], each[4], each[1], each[2], *each[5:]],
        lambda each: [*each[:2], each[2].replace(b'"ops":0', b'"ops":9'), *each[3:]],
    ],
    ids=["taken out", "exchanged", "changed"],
)
def test_lines_that_do_not_follow_each_other_are_told_and_nothing_goes_on(
    change: Callable[[list[bytes]], list[bytes]], tmp_path: Path
) -> None:
    path = a_night(tmp_path) / JOURNAL
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    night = read_night(path.parent)
    assert night.damage and "does not follow the line before it" in night.damage[0]
    with pytest.raises(UserError, match="can't go on"):
        resume_night(night)


def test_a_night_of_another_commit_does_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night = read_night(a_night(tmp_path))
    monkeypatch.setattr(journals, "provenance", lambda: {"git_commit": "another"})
    with pytest.raises(UserError, match="this is another"):
        resume_night(night)


def test_lines_wait_in_order_while_the_store_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    night = begun(tmp_path)
    journal = NightJournal(night.directory, night.whole_bytes, night.seal)
    sync = os.fsync

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(os, "fsync", full)
    written = lines(2)
    assert not journal.append(*written[:2]) and not journal.append(written[2])
    assert journal.trouble == os.strerror(errno.ENOSPC)
    monkeypatch.setattr(os, "fsync", sync)
    assert journal.append(written[3]) and journal.trouble is None
    found = read_night(night.directory)
    assert [run.run for run in found.runs] == [0, 1] and not found.damage


def test_plans_exclude_each_other_and_commands_of_seeds_do_not(tmp_path: Path) -> None:
    both = sole_night(tmp_path, shared=True), sole_night(tmp_path, shared=True)
    with both[0], both[1], pytest.raises(UserError, match="Another night is at work"), sole_night(tmp_path):
        pass
    with sole_night(tmp_path), pytest.raises(UserError, match="Another night"), sole_night(tmp_path, shared=True):
        pass


def kept(store: Path, run: int, family: str, ops: int, cpu_s: float) -> RunEnded:
    place = f"register/{run:03}"
    (store / place).mkdir(parents=True)
    (store / place / "file").write_bytes(b"x" * (1 << 19))
    finding = RunFinding(kind="safety", family=family, detail="d")
    return RunEnded(
        **{name: getattr(lines(1)[0], name) for name in ("cell", "number", "seed", "attempt", "at")},
        run=run, word="invalid", findings=(finding,), ops=ops, cpu_s=cpu_s, kept=place,
    )  # fmt: skip


def test_of_a_signature_the_first_smallest_quickest_and_five_newest_stay(tmp_path: Path) -> None:
    runs, gone = KeptRuns(tmp_path, None), []
    for number in range(12):
        runs.add(kept(tmp_path, number, "one", 5 if number == 2 else 100, 0.1 if number == 3 else 9.0))
        gone += [(run.run, why) for run, why in runs.let_go()]
    assert gone == [(number, "newer") for number in (1, 4, 5, 6)]
    assert sorted(path.name for path in (tmp_path / "register").iterdir()) == [
        f"{number:03}" for number in (0, 2, 3, 7, 8, 9, 10, 11)
    ]
    runs.add(kept(tmp_path, 12, "two", 1, 1.0))
    assert [run.run for run, _ in runs.let_go()] == [], "another signature has places of its own"
    runs.disk_mb = 1.6
    assert [(run.run, why) for run, why in runs.let_go()] == [(number, "disk") for number in (7, 8, 9, 10, 11, 3)]
    assert list(runs.all) == ["register/000", "register/002", "register/012"], "the first of each goes last"


def test_the_size_of_a_line_is_bounded_by_what_it_says(tmp_path: Path) -> None:
    path = a_night(tmp_path) / JOURNAL
    assert all(len(line) < 2_000 for line in path.read_bytes().splitlines())
    assert msgspec.json.decode(path.read_bytes().splitlines()[1])["entry"]["entry"] == "began"
