"""When a finding became inevitable: the rise of a curve of shares is found, also where the shares are noisy."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import pytest

from assay.options import RunOptions
from assay.reproduce.inputs import Inputs
from assay.reproduce.likelihood import BRANCHES, NARROW_S, Curve, CurvePoint, branches_at, climbed, drawn
from assay.reproduce.saved_run import saved_run
from harness.verdict.facts import load_faults

ROOT: Final = Path(__file__).parents[3]


def curve_of(share: Callable[[float], float], seed: int = 0) -> tuple[list[float], tuple[float, float] | None]:
    """The times that are asked for, and the rise, of branches that show a finding with these shares."""
    chance, asked = Random(seed), list[float]()

    def point_at(at_s: float) -> CurvePoint:
        asked.append(at_s)
        return CurvePoint(at_s, sum(chance.random() < share(at_s) for _ in range(BRANCHES)), BRANCHES)

    return asked, climbed(point_at, 16.0).rise


def step_at(begin_s: float) -> Callable[[float], float]:
    return lambda at_s: float(at_s > begin_s)


@pytest.mark.parametrize("begin_s", [0.1, 5.0, 7.99, 15.9])
def test_a_step_is_found_in_a_few_points(begin_s: float) -> None:
    asked, rise = curve_of(step_at(begin_s))
    assert rise is not None
    assert rise[0] <= begin_s <= rise[1] <= rise[0] + NARROW_S
    assert len(asked) == len(set(asked)) <= 2 + math.ceil(math.log2(16 / NARROW_S))


@pytest.mark.parametrize("seed", range(20))
def test_a_slope_is_found_within_its_bounds(seed: int) -> None:
    asked, rise = curve_of(lambda at_s: min(1.0, max(0.0, (at_s - 4) / 2)), seed)
    assert rise is not None
    assert rise[0] <= 6.0 and rise[1] >= 4.0 and len(asked) <= 9


def test_what_shows_often_anyway_rises_from_there() -> None:
    curve = climbed(lambda at_s: CurvePoint(at_s, 2 if at_s < 9 else BRANCHES, BRANCHES), 16.0)
    assert curve.rise == (8.75, 9.0)
    assert any("from 25% to 80% between 8.75 and 9.00 s" in line for line in curve.lines())


def test_the_picture_has_the_curve_above_the_faults_of_its_run() -> None:
    points = tuple(CurvePoint(at_s, hits, BRANCHES) for at_s, hits in ((0.0, 1), (0.5, 2), (0.75, 7), (2.0, 8)))
    run = saved_run(ROOT / "tests/data/runs/invalid")
    svg = drawn(run, Curve(points, (0.5, 0.75)))
    texts = [
        "How often the finding shows",
        "rises from 0.50 to 0.75 s",
        *{fault.kind for fault in load_faults(run.rundir)},
    ]
    assert [text for text in texts if f"<!-- {text}".encode() not in svg] == []


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_where_chance_does_not_matter_nothing_rises(share: float) -> None:
    assert curve_of(lambda at_s: share) == ([0.0, 16.0], None)


def test_branches_have_chance_of_their_own() -> None:
    branches = branches_at(Inputs(RunOptions("register")), 5)
    assert {each.anew_ns for each in branches} == {5}
    assert len({each.key for each in branches}) == BRANCHES


PLANTED = """
import asyncio
from dataclasses import replace
from cluster.nodelog import node_logger
from harness.ports.sim.node import SimNode
from workloads.registry import workload

PLANTED = replace(workload("register"), name="planted")
start = SimNode.start

def start_with_plant(self, main):
    async def node(ports):
        chance = self._world.draws.generator(f"{self._world.seed}/planted")

        async def two_steps():
            await ports.clock.sleep(5.0)
            if chance.random() < 0.05:
                node_logger(self.name).info("a bad write")
                await ports.disk.append("planted", b"bad")
            await ports.clock.sleep(10.0)
            if ports.disk.list("planted"):
                raise AssertionError("the bad write is seen")

        steps = asyncio.ensure_future(two_steps())
        await main(ports)
        await steps
    start(self, node if self.name == "t1" else main)

SimNode.start = start_with_plant
"""
UNLUCKY: Final = 52
"""A seed with which the bad write happens."""


@pytest.mark.campaign
def test_a_bug_of_two_steps_is_placed_at_the_first(tmp_path: Path) -> None:
    """A bad write 5 s after a node began, by a draw of the simulator's, is seen 10 s later: the curve rises at the
    write."""
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLANTED)

    def carried_out(*words: object) -> str:
        command = [sys.executable, "-m", "assay", *map(str, words)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    load = ["register", "--time-limit", 16, "--rate", 5, "--concurrency", 2, "--nodes", 3, "--masters", 1]
    carried_out(
        "run", *load, "--seed", UNLUCKY, "--world", "severity=mild", "--plugin", plugin, "--store", tmp_path / "store"
    )
    (run,) = (path for path in (tmp_path / "store/register").iterdir() if not path.is_symlink())
    began_s = saved_run(run).history_start_s
    found = json.loads(carried_out("replay", run, "--likelihood", "--to", tmp_path / "curve.svg", "--json"))
    curve = msgspec.convert(found["curve"], Curve)
    assert curve.rise is not None and curve.points[-1].at_s > 15 - began_s
    assert curve.rise[0] <= 5.0 - began_s <= curve.rise[1] <= curve.rise[0] + 2 * NARROW_S
    assert any("t1: " in event and "a bad write" in event for event in curve.events)
    assert b"rises from" in (tmp_path / "curve.svg").read_bytes()
