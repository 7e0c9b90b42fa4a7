"""Which run comes next: owed ones, twins, what was found, fixed seeds, each least, then where new points come from."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from assay.night.choice import EVEN_SHARE, OTHERS, Chooser, fresh_seed, seed_of
from assay.night.records import CellRecord, MachineRecord, NightHead, RunBegan, RunEnded, RunFinding


def cell(id: str, **fields: object) -> CellRecord:
    return CellRecord(
        id=id, name=id, workload="register", options={"on": "sim"}, command="assay run register", **fields
    )  # type: ignore[arg-type]


def head(*cells: CellRecord) -> NightHead:
    machine = MachineRecord(host="h", cores=2)
    told = {"commit": None, "clean": None, "assay": None, "judge": None, "machine": machine, "plan": "p"}
    return NightHead(id="night", name="n", begun="", budget={"runs": 9}, cells=cells, **told)  # type: ignore[arg-type]


def made(chooser: Chooser, count: int, cpu_s: float = 1.0, **of: tuple[str, ...]) -> list[RunEnded]:
    """A number of runs, one after the other, each ended at once; `of` are points that runs of a cell bring anew."""
    found = []
    for number in range(count):
        choice = chooser.next()
        if choice is None:
            break
        same = {name: getattr(choice, name) for name in ("run", "number", "seed", "attempt", "twin", "retries")}
        points = tuple(f"{each}/{number}" for each in of.get(choice.cell.id, ()))
        run = RunEnded(cell=choice.cell.id, at="", word="valid", cpu_s=cpu_s, points=points, **same)
        chooser.ended(run)
        found.append(run)
    return found


def test_seeds_are_63_bits_of_the_night_the_cell_and_the_number() -> None:
    seeds = {fresh_seed(night, cell, number) for night in "ab" for cell in "cd" for number in range(50)}
    assert len(seeds) == 200 and all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of("n", cell("c", seeds=((5, 6), (9, 9))), 2) == 9
    assert seed_of("n", cell("c", seeds=((5, 6),)), 2) == fresh_seed("n", "c", 2) != fresh_seed("m", "c", 2)


def test_fixed_seeds_come_first_then_the_least_of_each_cell_and_none_has_more_than_its_most() -> None:
    chooser = Chooser(head(cell("a", least=3), cell("b", seeds=((1, 2),), most=3), cell("c", least=2, most=2)))
    runs = made(chooser, 40)
    assert [run.cell for run in runs[:2]] == ["b", "b"]
    assert Counter(run.cell for run in runs[2:7]) == {"a": 3, "c": 2}
    assert [run.seed for run in runs[:2]] == [1, 2]
    counts = Counter(run.cell for run in runs)
    assert (counts["b"], counts["c"]) == (3, 2) and counts["a"] == 35
    assert Chooser(head(cell("a", most=2))).next(0) is None
    assert [run.run for run in runs] == list(range(40)), "numbers go on without a gap"


def test_a_fifth_goes_evenly_and_the_rest_to_where_new_points_come_from() -> None:
    chooser = Chooser(head(cell("poor"), cell("rich"), cell("poor too")))
    counts = Counter(run.cell for run in made(chooser, 300, rich=("x", "y")))
    evenly = EVEN_SHARE * 300 / 3
    assert counts["rich"] > 0.75 * 300
    assert min(counts["poor"], counts["poor too"]) >= 0.8 * evenly, "nobody is forgotten"


def found(run: int, cell: str, family: str, **more: object) -> RunEnded:
    finding = RunFinding(kind="safety", family=family, detail="d")
    return RunEnded(run=run, cell=cell, number=0, seed=7, attempt=1, at="", word="invalid", findings=(finding,), **more)  # type: ignore[arg-type]


def test_something_new_gets_its_seed_again_and_ten_others() -> None:
    chooser = Chooser(
        head(cell("a", most=50), cell("b", most=50)),
        known=lambda finding, cell: (cell.name, finding.family) == ("a", "old"),
    )
    first = chooser.next()
    assert first is not None and first.cell.id == "a"
    assert not chooser.ended(found(first.run, "a", "old")), "what is known is nothing new"
    assert chooser.ended(found(first.run, "a", "new"))
    assert not chooser.ended(found(first.run, "a", "new")), "it is new once"
    runs = made(chooser, 1 + OTHERS)
    assert (runs[0].seed, runs[0].retries) == (7, first.run)
    assert {run.cell for run in runs} == {"a"} and len({run.seed for run in runs}) == 1 + OTHERS


def test_the_flaw_that_is_expected_is_no_news_and_the_second_one_is() -> None:
    chooser = Chooser(head(cell("a", expect="found")))
    chooser.next()
    assert not chooser.ended(found(0, "a", "flaw"))
    assert chooser.ended(found(0, "a", "another"))


def test_one_simulated_run_in_a_hundred_has_a_twin_and_the_first_one_has() -> None:
    chooser = Chooser(head(cell("a")))
    runs: list[RunEnded] = []
    for _ in range(205):
        choice = chooser.next()
        assert choice is not None
        same = {name: getattr(choice, name) for name in ("run", "number", "seed", "attempt", "twin", "retries")}
        runs.append(RunEnded(cell="a", at="", word="valid", trace="t", **same))
        chooser.ended(runs[-1])
    assert [run.twin for run in runs if run.twin is not None] == [0, 101, 202]
    assert all(runs[run.twin].seed == run.seed for run in runs if run.twin is not None)


@pytest.mark.parametrize("stopped_after", [0, 1, 5, 17, 30])
def test_a_night_that_stopped_goes_on_with_the_same_runs(stopped_after: int) -> None:
    """Whichever runs were under way: they are owed, and no other is missing or made twice."""
    cells = head(cell("a", seeds=((1, 9),), most=15), cell("b", least=4, most=15))
    alone = Chooser(cells)
    whole = {(run.cell, run.number, run.seed) for run in made(alone, 99)}
    stopped = Chooser(cells)
    ended = made(stopped, stopped_after)
    choices = [choice for choice in (stopped.next(), stopped.next()) if choice is not None]
    begun = [
        RunBegan(run=each.run, cell=each.cell.id, number=each.number, seed=each.seed, attempt=1, at="")
        for each in choices
    ]
    resumed = Chooser(cells)
    assert resumed.recall(Random(stopped_after).sample(ended, len(ended)), begun) == ()
    rest = made(resumed, 99)
    assert [run.attempt for run in rest[: len(begun)]] == [2] * len(begun)
    assert len(ended) + len(rest) == len(whole) == 30
    assert {(run.cell, run.number, run.seed) for run in [*ended, *rest]} == whole


def test_what_began_three_times_and_never_ended_is_given_up() -> None:
    chooser = Chooser(head(cell("a", most=2)))
    began = RunBegan(run=0, cell="a", number=0, seed=fresh_seed("night", "a", 0), attempt=3, at="")
    assert chooser.recall([], [began]) == (began,)
    assert [run.number for run in made(chooser, 9)] == [1]
    assert chooser.recall([], [msgspec.structs.replace(began, attempt=2)]) == ()
