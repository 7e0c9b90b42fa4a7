"""Triage: the state of a finding in the light of nights and of what somebody knows; the file that says so."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import assay
from made_nights import SCRIPT, TODAY, cell, found, night, run, runs, write_night

from assay.night.records import Night, RunEnded
from assay.night.triage import TriageCase, TriageEntry, cases_of, read_triage, with_entry, write_triage
from harness.errors import UserError

LOST, OTHER = found("lost"), found("other")
CELLS = (cell(), cell("catalog"), cell("containers", options={"on": "docker"}))
LATER = dt.date(2027, 6, 1)


def entry(**other: Any) -> TriageEntry:
    return TriageEntry(**{"family": LOST.family, "ticket": "T-1", "until": LATER} | other)


def nights(*each: Sequence[RunEnded], commit: str = "a" * 40) -> list[Night]:
    """Nights one after another, the last of this commit, each with twenty valid runs of every cell beside its own."""
    valid = [made for place, one in enumerate(CELLS) for made in runs(20, 100 * (place + 1), one.name)]
    days = range(31 - len(each), 31)
    return [night([*valid, *own], CELLS, day, head={"commit": commit}) for day, own in zip(days, each, strict=True)]


def descends(commit: str, fixed: str) -> bool:
    return commit >= fixed


def states(*each: Sequence[RunEnded], entries: Sequence[TriageEntry] = (), **other: Any) -> dict[str, str]:
    """Of each case of the last night its title and state."""
    cases = cases_of(nights(*each, **other), entries, TODAY, descends)
    return {f"{case.family} {'/'.join(case.cells)}": case.state for case in cases}


HERE = [run(1, LOST)]
ELSEWHERE = [run(1, LOST, of="catalog")]
IN_CONTAINERS = [run(1, LOST, of="containers")]
EXPIRED = entry(until=dt.date(2026, 12, 31))
FIXED = entry(fixed="b" * 40)

STATES: dict[str, tuple[list[list[RunEnded]], list[TriageEntry], str]] = {
    "never seen before": ([[], HERE], [], "new"),
    "seen before, and nobody has it": ([HERE, HERE], [], "open"),
    "in containers alone": ([IN_CONTAINERS, IN_CONTAINERS], [], "flaky"),
    "somebody has it": ([HERE, HERE], [entry()], "known"),
    "in a cell that the entry does not name": ([[], ELSEWHERE], [entry(cells=("register",))], "new"),
    "of a detail that the entry does not name": ([[], HERE], [entry(details=("f" * 12,))], "new"),
    "of a detail that it names": ([[], HERE], [entry(details=(LOST.detail,))], "known"),
    "as often as the entry says": ([[], HERE], [entry(rate=0.05)], "known"),
    "more often": ([[], [run(n, LOST) for n in range(6)]], [entry(rate=0.05)], "new"),
    "its day is over": ([[], HERE], [EXPIRED], "expired"),
    "before the commit that mended it": ([[], HERE], [FIXED], "known"),
    "not seen in enough runs": ([[run(n, LOST) for n in range(10)], []], [], "gone"),
    "not seen in too few runs": ([HERE, []], [], "open"),
    "known and not seen in enough runs": ([[run(n, LOST) for n in range(10)], []], [entry()], "gone"),
}  # fmt: skip


@pytest.mark.parametrize(("each", "entries", "state"), STATES.values(), ids=STATES)
def test_states(each: list[list[RunEnded]], entries: list[TriageEntry], state: str) -> None:
    (found_state,) = states(*each, entries=entries).values()
    assert found_state == state


def test_a_mended_finding_that_is_back_is_a_regression() -> None:
    """At a descendant of the commit; in its cells it is regressed, elsewhere it is new."""
    assert list(states([], HERE, entries=[FIXED], commit="c" * 40).values()) == ["regressed"]
    assert list(states(HERE, [], entries=[FIXED], commit="c" * 40).values()) == ["fixed"]
    only = entry(fixed="b" * 40, cells=("register",))
    assert set(states([], [*HERE, run(2, LOST, of="catalog")], entries=[only], commit="c" * 40).values()) == {
        "regressed",
        "new",
    }


def test_what_is_known_hides_nothing_else() -> None:
    """Neither a second flaw in its cell, with its own signature or by the rate, nor itself in another one."""
    both = [run(1, LOST), run(2, OTHER), run(3, LOST, of="catalog")]
    assert states([], both, entries=[entry(cells=("register",))]) == {
        f"{LOST.family} register": "known",
        f"{OTHER.family} register": "new",
        f"{LOST.family} catalog": "new",
    }


def test_what_a_flaw_shows_is_expected_and_what_fails_of_ours_never_is() -> None:
    flawed = cell("flawed", expect="found", flaw=("lose-writes",))
    made = night([run(1, LOST, of="flawed"), run(2, found("oom", kind="harness"), of="flawed")], [flawed])
    assert {case.family: case.state for case in cases_of([made], (), TODAY)} == {
        LOST.family: "expected",
        found("oom").family: "new",
    }


def test_a_case_says_when_where_and_how_it_comes_back() -> None:
    first = [run(7, LOST), run(9, LOST)]
    last = [run(8, found("lost", "1")), run(3, LOST, of="catalog")]
    (case,) = cases_of(nights(first, [], last), (), TODAY)
    assert isinstance(case, TriageCase) and case.times == 4 and case.cells == ("catalog", "register")
    assert (case.first.run.run, case.last.run.run) == (7, 8)
    assert case.command == "assay run register -o cell=catalog --seed 1003"
    assert (case.shown, case.runs) == (2, 42) and 0 < case.rate[0] < 2 / 42 < case.rate[1]
    assert len(case.details) == 2


def test_the_file_is_written_and_read(tmp_path: Path) -> None:
    """With all that an entry has, and text that TOML would take for its own."""
    path = tmp_path / "triage.toml"
    assert read_triage(path) == ()
    whole = entry(cells=('a "b" \\', SCRIPT), details=("a" * 12,), rate=0.25, fixed="c" * 40, title="x\x7f\ny")
    write_triage(path, with_entry((), whole))
    assert read_triage(path) == (whole,)
    changed = entry(cells=whole.cells, details=whole.details, ticket="T-2")
    assert with_entry(read_triage(path), changed) == (changed,)
    assert len(with_entry((changed,), entry())) == 2


REFUSED = {
    "no ticket": (f'[[known]]\nfamily = "{"a" * 12}"\nuntil = 2027-01-01', "ticket"),
    "an empty ticket": (f'[[known]]\nfamily = "{"a" * 12}"\nticket = " "\nuntil = 2027-01-01', "no ticket"),
    "no last day": (f'[[known]]\nfamily = "{"a" * 12}"\nticket = "T"', "until"),
    "no signature": ('[[known]]\nfamily = "lost"\nticket = "T"\nuntil = 2027-01-01', "no signature"),
    "an unknown key": (f'[[known]]\nfamily = "{"a" * 12}"\nticket = "T"\nuntil = 2027-01-01\nby = "me"', "by"),
    "no rate": (f'[[known]]\nfamily = "{"a" * 12}"\nticket = "T"\nuntil = 2027-01-01\nrate = 2.0', "rate"),
    "no TOML": ("[[known", "no triage file"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_files_that_are_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "triage.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=why):
        read_triage(path)


def test_the_command_writes_an_entry_and_tells_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, file = tmp_path / "store", tmp_path / "triage.toml"
    write_night(store, night(HERE))
    words = ("--store", str(store), "--file", str(file))
    for lacking in (("--ticket", "T-1"), ("--until", "2999-01-31")):
        assert assay(capsys, "triage", LOST.family, *lacking, *words).code == 254
    assert assay(capsys, "triage", LOST.family, "--ticket", "T", "--until", "2001-01-31", *words).code == 254
    assert not file.exists()
    more = ("--ticket", "T-1", "--until", "2999-01-31", "--cells", "register", "--rate", "0.1")
    assert assay(capsys, "triage", LOST.signature, *more, *words).code == 0
    (written,) = read_triage(file)
    assert (written.details, written.cells, written.rate) == ((LOST.detail,), ("register",), 0.1)
    assert written.title == LOST.title
    answer = assay(capsys, "triage", "--file", str(file))
    assert answer.code == 0 and "T-1 until 2999-01-31, up to 10 % of runs" in answer.out
