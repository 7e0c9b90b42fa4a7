"""Plans: what cells they make, and what no night can be made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.night import plan as plans
from assay.night.plan import SHIPPED, NightPlan, cell_of, options_of, parse_plan, read_plan
from assay.options import RunOptions
from cluster.flaws import FLAWS
from harness.errors import UserError
from nemesis.asked import parse
from nemesis.registry import NEMESES
from workloads.registry import WORKLOADS

BUDGET = "night.budget.runs = 5\n"
STEP = '[[step]]\nname = "s"\nargv = ["true"]\nlimit = 9\n'
CELL = '[[cell]]\nworkload = "register"\ntime-limit = 5\n'


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_engine_lacks", lambda: "No engine answers.")


def test_lists_make_a_product_and_a_cell_is_known_by_its_options(tmp_path: Path) -> None:
    text = BUDGET + CELL + 'nemesis = ["kill", "partition,pause"]\noption = { keys = [10, 20], readers = 0.5 }\n'
    found = parse_plan(text, tmp_path)
    assert [cell.name for cell in found.cells] == [
        f"register {nemesis} option=keys={keys},readers=0.5"
        for nemesis in ("kill", "partition,pause")
        for keys in (10, 20)
    ]
    assert len({cell.id for cell in found.cells}) == 4
    again = parse_plan(text.replace("kill", "stop").replace("stop", "kill"), tmp_path / "elsewhere")
    assert [cell.id for cell in again.cells] == [cell.id for cell in found.cells]
    options = options_of(found.cells[3], 9, tmp_path)
    assert options.nemesis == ("partition", "pause") and options.workload_options == {"keys": "20", "readers": "0.5"}
    assert (
        options.command() == f"{found.cells[3].command} --seed 9 --store {tmp_path}" or "--seed 9" in options.command()
    )


def test_options_of_a_cell_are_those_of_the_command() -> None:
    options = RunOptions(
        "catalog", nemesis=("kill",), flaw=("unbatched-catalog",), world="drift=none", seed=4, swarm=True
    )
    cell = cell_of(options, "name", "found")
    assert options_of(cell, 4, Path("store")) == options
    assert cell.id == cell_of(RunOptions(**{**options_dict(options), "seed": 5}), "other").id


def options_dict(options: RunOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in RunOptions.__dataclass_fields__}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "this is no plan"),
        (CELL, "needs a budget"),
        (BUDGET, "no cell or step"),
        (BUDGET + CELL + "seed = 4\n", "'seed', which is no option"),
        (BUDGET + CELL + "colour = 4\n", "'colour', which is no option"),
        (BUDGET + "night.colour = 1\n" + CELL, "unknown field `colour`"),
        (BUDGET + CELL + CELL, "are equal: `assay run register"),
        (BUDGET + CELL + CELL.replace("5", "9"), "several cells are named 'register'"),
        (BUDGET + CELL + STEP + STEP, "several steps are named 's'"),
        (BUDGET + "limits.memory = -1\n" + CELL, "limits.memory is -1"),
        (BUDGET + 'limits.run-time = "0s"\n' + CELL, "limits.run-time is '0s'"),
        (BUDGET + "limits.local-rows = 9\n" + CELL, "go together"),
        (BUDGET + 'night.spark = "local[2]"\n' + CELL, "go together"),
        (BUDGET + 'night.spark = "local[2]"\nlimits.local-rows = 0\n' + CELL, "limits.local-rows is 0"),
        ('night.budget.wall = "soon"\n' + CELL, "budget.wall is 'soon'"),
        ("night.budget.runs = 0\n" + CELL, "budget.runs is 0"),
        (BUDGET + "night.jobs = 0\n" + CELL, "--jobs is 0"),
        (BUDGET + '[[cell]]\nnemesis = "kill"\n', "names no workload"),
        (BUDGET + '[[cell]]\nworkload = "nope"\n', "There is no workload 'nope'"),
        (BUDGET + CELL + 'nemesis = "nope"\n', "There is no nemesis 'nope'"),
        (BUDGET + CELL + "nodes = 2\n", "--nodes is 2"),
        (BUDGET + CELL + 'rate = "much"\n', "of another kind"),
        (BUDGET + CELL + "option = { nope = 1 }\n", "no option 'nope'"),
        (BUDGET + CELL + "min = 3\nmax = 2\n", "min is 3 and max 2"),
        (BUDGET + CELL + "share = 0\n", "share is 0"),
        (BUDGET + CELL + 'expect = "luck"\n', "expect is 'luck'"),
        (BUDGET + CELL + "rate-found = 2\n", "rate-found is 2"),
        (BUDGET + CELL + 'seeds = "9..1"\n', "the first is above the last"),
        (BUDGET + CELL + "nemesis = []\n", "a list without values"),
        (BUDGET + CELL + 'on = "docker"\n', "No engine answers"),
        (BUDGET + '[[cell]]\nknown = "flaws"\nflaw = ["nope"]\n', "There is no flaw 'nope'"),
        (BUDGET + '[[cell]]\nknown = "flaws"\nrate = 3\n', "rate can't be told beside it"),
        (BUDGET + '[[step]]\nname = "s"\nargv = []\nlimit = 5\n', "has no argv"),
    ],
)
def test_what_no_night_can_be_made_of_is_told_in_a_sentence(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(UserError) as refused:
        read_plan(path, tmp_path / "store")
    assert words in str(refused.value) and str(path) in str(refused.value) and "\n" not in str(refused.value)
    assert not (tmp_path / "store").exists()


def test_a_cell_in_containers_that_is_optional_is_left_out_where_no_engine_answers(tmp_path: Path) -> None:
    found = parse_plan(BUDGET + CELL + '[[cell]]\nworkload = "catalog"\non = "docker"\noptional = true\n', tmp_path)
    assert [cell.workload for cell in found.cells] == ["register"]
    assert found.remarks == ("the cell 'catalog' is left out: No engine answers.",)


def test_a_part_of_a_plan_is_chosen_by_names(tmp_path: Path) -> None:
    text = BUDGET + CELL + 'nemesis = ["kill", "stop"]\n[[step]]\nname = "last"\nargv = ["true"]\nlimit = "1m"\n'
    whole, part = parse_plan(text, tmp_path), parse_plan(text, tmp_path, ["*kill", "la*"])
    assert [cell.name for cell in part.cells] == ["register kill"] and [step.name for step in part.steps] == ["last"]
    assert part.digest != whole.digest
    with pytest.raises(UserError, match="no cell or step that is named nope"):
        parse_plan(text, tmp_path, ["nope"])


def plan_of(path: Path) -> NightPlan:
    return read_plan(path, Path("store"))


def is_offered(workload: str) -> bool:
    """Whether the reference cluster can do what the workload needs."""
    try:
        plans._require_possible(cell_of(RunOptions(workload), workload), Path("store"))
    except UserError:
        return False
    return True


def test_the_shipped_plan_has_five_flaws_every_workload_and_every_kind_of_fault() -> None:
    cells = plan_of(SHIPPED).cells
    assert len([cell for cell in cells if cell.expect == "found"]) == 5
    valid = [cell for cell in cells if cell.expect == "valid"]
    assert {cell.workload for cell in valid} == set(filter(is_offered, WORKLOADS))
    named = {parse(part).name for cell in valid for part in cell.options["nemesis"]}
    assert named >= set(NEMESES)
    assert "containers" in SHIPPED.read_text()


def test_the_plan_of_torture_has_every_flaw() -> None:
    found = plan_of(Path(__file__).parents[2] / "torture.toml")
    assert {cell.name for cell in found.cells if cell.expect == "found"} == set(FLAWS)
    assert len(found.steps) == 8
