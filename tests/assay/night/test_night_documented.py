"""The walks of `docs/nights.md`, as a stranger takes them: each command, with the exit code that its comment says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from command_line import assay

from assay import night_command, runner
from assay.night.gate import read_policy
from assay.night.plan import read_plan
from assay.night.records import RunMeasures, nights_in, read_night
from assay.night.signature import evidence_of, signatures_of
from assay.options import RunOptions
from assay.runner import RunResult
from harness.history.rundir import RunDir

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "nights.md").read_text()
REFUTED = "register --nemesis power-cut --time-limit 10 --flaw raft-ack-before-fsync --seed 1"
WALK = re.compile(r"^(assay .*?)  +?# ?(\d+): ", re.M)

PLAN = """
[night]
budget = { runs = 14 }
[[cell]]
name = "register partition"
workload = "register"
nemesis = "partition"
time-limit = 5
min = 2
[[cell]]
name = "a known bug"
workload = "register"
nemesis = "power-cut"
flaw = "raft-ack-before-fsync"
expect = "found"
max = 2
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.M | re.S)


def meets(first: list[int], refuted: Path) -> Callable[..., RunResult]:
    """Runs that are valid, but for those with the flaw, and for the first one of the cell without."""

    def run_seed(options: RunOptions, *_: object) -> RunResult:
        if not options.flaw and options.seed not in first[:1]:
            return RunResult(options, "valid", trace=str(options.seed), measures=RunMeasures(virtual_s=60.0))
        kept = options.store / "register" / f"20261129T{options.seed}"
        shutil.copytree(refuted, kept, dirs_exist_ok=True)
        measures = RunMeasures(signatures_of(evidence_of(RunDir(kept))), virtual_s=60.0)
        return RunResult(options, "invalid", trace=str(options.seed), run=kept, why="refuted", measures=measures)

    return run_seed


def words_of(store: Path) -> dict[str, str]:
    """What stands for what in the walks: the finding of the first night."""
    directory = nights_in(store)[0]
    (finding,) = [
        each
        for each in json.loads((directory / "night.json").read_text())["findings"]
        if each["cells"] == ["register partition"]
    ]
    kept = Path(finding["kept"][0])
    return {
        "SIGNATURE": finding["signature"],
        "SEED": str(finding["smallest_seed"]),
        "store/RUN": f"store/{kept}",
        "NIGHT": directory.name,
        "COMMIT": str(read_night(directory).head.commit),
    }


def test_the_three_walks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """QA, a developer and a release manager, one after the other in one store."""
    assert assay(capsys, "run", *REFUTED.split(), "--store", str(tmp_path / "elsewhere")).code == 1
    (refuted,) = (tmp_path / "elsewhere" / "register").glob("2*")
    monkeypatch.chdir(tmp_path)
    for module in (night_command, runner):
        monkeypatch.setattr(module, "warm", lambda _: None)
    monkeypatch.setattr(runner, "_remake", lambda *_: None)  # a twin is made here as well
    Path("plan.toml").write_text(PLAN)
    Path("policy.toml").write_text(next(each for each in blocks("toml") if "# policy.toml" in each))
    walks = [line for block in blocks("sh") for line in WALK.findall(block)]
    assert len(walks) == 14
    stands_for: dict[str, str] = {}
    for number, (line, code) in enumerate(walks):
        with monkeypatch.context() as patched:
            if "night plan.toml" in line:
                patched.setattr(runner, "run_seed", found_once(number == 0, tmp_path / "store", refuted))
            told = line
            for word, value in stands_for.items():
                told = told.replace(word, value)
            answer = assay(capsys, *shlex.split(told)[1:])
        assert answer.code == int(code), (told, answer)
        stands_for = stands_for or words_of(tmp_path / "store")
    assert len(list(nights_in(tmp_path / "store"))) == 2


def found_once(finds: bool, store: Path, refuted: Path) -> Callable[..., RunResult]:
    """The first run of the cell without a flaw finds something, and so does its seed again, if this night does."""

    def run_seed(options: RunOptions, *more: object) -> RunResult:
        night = read_night(nights_in(store)[-1])
        seeds = [run.seed for run in (*night.runs, *night.begun.values()) if not night.head.cell(run.cell).flaw]
        return meets(seeds if finds else [], refuted)(options, *more)

    return run_seed


def test_plans_and_policies_that_are_shown_are_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {("policy" if "# policy.toml" in each else "plan"): each for each in blocks("toml")}
    for name, text in shown.items():
        (tmp_path / f"{name}.toml").write_text(text)
    assert len(read_plan(tmp_path / "plan.toml", tmp_path / "store").cells) == 5
    policy = read_policy(tmp_path / "policy.toml").asked()
    told = set(policy) | {"slower", "commit", "judge", "clean-tree"}
    assert len(told) == 13 and all(f"`{name}`" in DOCUMENT or name in policy for name in told)
    assert tomllib.loads(shown["plan"])["night"]["jobs"] == 2


def test_blocks_for_ci_can_be_parsed() -> None:
    """Each makes a night, takes the gate's exit code for its own, and hands JUnit and the night's files on."""
    actions, gitlab = map(yaml.safe_load, blocks("yaml"))
    steps = actions["jobs"]["night"]["steps"]
    runs = [step["run"] for step in steps if "run" in step and "if" not in step]
    assert any("upload-artifact" in step.get("uses", "") and step["if"] == "always()" for step in steps)
    script = gitlab["night"]["script"]
    artefacts = gitlab["night"]["artifacts"]
    assert artefacts["when"] == "always" and "gate.xml" in artefacts["reports"]["junit"]
    (jenkins,) = blocks("groovy")
    assert jenkins.count("{") == jenkins.count("}") and "post" in jenkins and "junit '" in jenkins
    in_jenkins = re.findall(r"sh '([^']+)'", jenkins)
    assert runs == script == in_jenkins and runs[-1] == "assay gate policy.toml --junit gate.xml"
    for line in runs:
        assert subprocess.run(["bash", "-n", "-c", line], check=False).returncode == 0
    ends = [
        subprocess.run(["bash", "-ec", f"(exit {n}) || test $? -lt 3"], check=False).returncode for n in (0, 1, 2, 254)
    ]
    assert ends == [0, 0, 0, 1]
