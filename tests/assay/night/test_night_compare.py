"""`assay compare`: what is different between two nights, and that what is not is not told as such."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import assay
from made_nights import cell, found, night, run, write_night

from assay.night.compare import ComparedFact, differences, side_of_nights
from assay.night.records import FaultCount, RunFigures


def made(day: int, slow: float = 1.0, invalid: int = 0, **other: object):  # type: ignore[no-untyped-def]
    figures = [RunFigures(p99_ms=slow * (10 + n % 5), recovery_s={"kill": slow * (1 + n % 3)}) for n in range(40)]
    runs = [
        run(n, *([found()] if n < invalid else []), figures=figures[n], points=("a",) if slow == 1 else ("a", "b"))
        for n in range(40)
    ]
    return night(runs, [cell(**other)], day=day)  # type: ignore[arg-type]


def facts(first: object, second: object) -> dict[str, ComparedFact]:
    sides = (side_of_nights(name, [each]) for name, each in (("a", first), ("b", second)))  # type: ignore[list-item]
    return {each.what: each for each in differences(*sides)}


def test_what_differs_is_told_with_intervals() -> None:
    told = facts(made(29), made(30, 1.5, 20, options={"nemesis": ["partition"]}))
    assert (told["option nemesis"].first, told["option nemesis"].second) == ("['kill']", "['partition']")
    assert told["invalid"].change == "differs" and "95 %" in told["invalid"].second
    for figure in ("p99-ms", "recovery-s kill"):
        assert told[figure].change.startswith("+50.0 % (+") and told[figure].change.endswith(" %, 95 %)")
    (finding,) = (each for what, each in told.items() if what.startswith("finding"))
    assert (finding.first, finding.second, finding.change) == ("0", "20", "only one side has it")
    assert told["coverage b"].change == "only one side has it" and "coverage a" not in told


def test_what_does_not_differ_is_no_difference() -> None:
    told = facts(made(29), made(30))
    assert told["invalid"].change == "" and "+0.0 %" in told["p99-ms"].change
    assert not [what for what in told if what.startswith(("option", "world", "fault", "coverage", "finding"))]


def test_faults_and_cells_that_one_side_has() -> None:
    one = night([run(0, faults={"kill": FaultCount(3, 2)})], [cell()])
    two = night([run(0, faults={"kill": FaultCount(3, 3)}), run(1, of="new")], [cell(), cell("new")])
    told = list(differences(side_of_nights("a", [one]), side_of_nights("b", [two])))
    assert [(e.what, e.first, e.second) for e in told if e.what.startswith("fault")] == [
        ("fault kill", "2 of 3 seen", "3 of 3 seen")
    ]
    assert [(e.cell, e.first, e.second) for e in told if e.what == "cell"] == [("new", "absent", "there")]


def test_the_command_takes_nights_and_commits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (write_night(tmp_path, made(day)) for day in (29, 30))
    for names in ((first.name, second.name), (first.name[:8], second.name[:8]), ("aaaaaaaa", second.name)):
        answer = assay(capsys, "compare", *names, "--store", str(tmp_path))
        assert answer.code == 0 and "p99-ms: 12 | 12" in answer.out
    assert assay(capsys, "compare", first.name, "nope", "--store", str(tmp_path)).code == 254
    told = assay(capsys, "compare", first.name, second.name, "--store", str(tmp_path), "--json").objects[0]
    assert {"cell", "what", "first", "second", "change"} == set(told[0])
