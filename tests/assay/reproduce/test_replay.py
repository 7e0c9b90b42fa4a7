"""`assay replay RUN`: the same run, block by block; what no seed decides is told; rates of runs in real time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from assay.options import RunOptions
from assay.reproduce.blocks import (
    StepBlock,
    StepMark,
    StepSides,
    TracedStep,
    first_difference,
    first_step,
    read_steps,
)
from assay.reproduce.replay import Replayed, ReplayedSide
from assay.reproduce.traced_block import steps_in
from assay.runner import Keep, RunOrder, run_orders
from harness.ports.sim.trace import APPEND, NOTIFY, RECORD, START, STEP_OF_NETWORK, Trace
from tests.assay.command_line import assay

ROOT = Path(__file__).parent.parent.parent.parent
FOUND = RunOptions(
    "catalog", nemesis=("master-partition",), time_limit=3.0, seed=1, flaw=("abort-on-failed-replication",)
)


@pytest.fixture(scope="module")
def refuted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ((_, result),) = run_orders([RunOrder(replace(FOUND, store=tmp_path_factory.mktemp("store")), Keep.ALL)], 1)
    assert result.run is not None
    return result.run


def test_a_run_happens_again_step_by_step(refuted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = assay(capsys, "replay", refuted, "--json")
    (found,) = told.objects
    assert (told.code, found["reproduced"], found["same"], found["differs"]) == (1, True, True, {})
    marks = read_steps(refuted / "steps.jsonl")
    assert marks is not None
    assert [mark.step for mark in marks] == [1_000 * (number + 1) for number in range(len(marks))]


def test_a_run_that_went_another_way_names_the_block(
    refuted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are those of another seed, without the flaw, made by another commit."""
    run = tmp_path / "run"
    run.mkdir()
    for path in refuted.iterdir():
        if path.is_file():
            (run / path.name).write_bytes(path.read_bytes())
    record = msgspec.json.decode((run / "run.json").read_bytes())
    record["options"] |= {"flaw": [], "seed": 2}
    record["provenance"]["git_commit"] = "0" * 40
    (run / "run.json").write_bytes(msgspec.json.encode(record))
    told = assay(capsys, "replay", run)
    assert told.code in (0, 2)
    assert "the first difference lies in steps 1 to 1,000" in told.out
    assert f"git_commit: {'0' * 40} then" in told.out


PLANT = """
import asyncio, os, time
from dataclasses import replace
from harness.ports.sim.node import SimNode
from workloads.registry import workload

PLANTED = replace(workload("register"), name="planted")

def planted():
    return {what}

start = SimNode.start

def start_with_plant(self, main):
    async def node(ports):
        async def read():
            await ports.clock.sleep(3.0)
            await ports.disk.append("planted", str(planted()).encode())
        reading = asyncio.ensure_future(read())
        await main(ports)
        await reading
    start(self, node if self.name == "t1" else main)

SimNode.start = start_with_plant
"""
PLANTS = {"clock": "time.time_ns()", "set": "{'one', 'two', 'three', 'four', 'five', 'six'}", "pid": "os.getpid()"}


@pytest.mark.parametrize(
    "name", ["clock", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("set", "pid"))]
)
def test_what_no_seed_decides_is_told_with_its_block(name: str, tmp_path: Path) -> None:
    plugin, store = tmp_path / "plant.py", tmp_path / "store"
    plugin.write_text(PLANT.format(what=PLANTS[name]))
    command = [sys.executable, "-m", "assay"]
    options = ["register", "--time-limit", "3", "--seed", "5", "--world", "severity=mild", "--plugin", plugin]
    subprocess.run([*command, "run", *options, "--store", store], cwd=ROOT, capture_output=True, check=False)
    (run,) = (path for path in (store / "register").iterdir() if not path.is_symlink())
    ended = subprocess.run([*command, "replay", run, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(ended.stdout)
    assert found["same"] is False and found["differs"] == {}
    block = msgspec.convert(found["block"], StepBlock)
    assert block.end_ns is not None and block.begin_ns <= 3.6e9 and block.end_ns >= 3e9


CHANGED = """
from harness.ports.sim.node import SimNode

start = SimNode.start

def start_and_write(self, main):
    async def node(ports):
        await ports.disk.append("planted", b"one two three")
        await main(ports)
    start(self, node if self.name == "t2" else main)

SimNode.start = start_and_write
"""


@pytest.mark.campaign
def test_against_another_commit_both_sides_of_the_first_step_are_told(tmp_path: Path) -> None:
    """In a repository of its own, whose last commit has a node write what it did not write before."""
    there = tmp_path / "repository"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(there)], check=True)
    with (there / "harness/ports/sim/__init__.py").open("a") as file:
        file.write(f"\nexec({CHANGED!r})\n")
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *named, "commit", "-qam", "planted"], cwd=there, check=True)
    environment = {**os.environ, "PYTHONPATH": str(there)}

    def carried_out(*words: object) -> str:
        command = [sys.executable, "-P", "-m", "assay", *map(str, words)]
        return subprocess.run(command, cwd=there, env=environment, capture_output=True, text=True, check=False).stdout

    carried_out("run", "register", "--time-limit", 1, "--seed", 5, "--world", "severity=mild", "--store", tmp_path)
    (run,) = (path for path in (tmp_path / "register").iterdir() if not path.is_symlink())
    found = json.loads(carried_out("replay", run, "--against", "HEAD~1", "--json"))
    assert found["same"] is False and found["block"]["first"] == 1
    assert "a step of t2: append at t2, 13 bytes, from byte 0 on b'one two three'" in found["sides"]["here"]
    assert "one two three" not in found["sides"]["there"]


def traced(*did: tuple[str, str, bytes], time_ns: int | None = 5, who: str = "t1") -> TracedStep:
    return TracedStep(time_ns, who, tuple((kind, node, data.hex()) for kind, node, data in did))


@pytest.mark.parametrize(
    ("here", "there", "sides"),
    [
        ([traced()], [traced()], None),
        (
            [traced(), traced(("append", "t1", b"x" * 40 + b"one"))],
            [traced(), traced(("append", "t1", b"x" * 40 + b"two"))],
            (
                f"at 0.000000005 s a step of t1: append at t1, 43 bytes, from byte 32 on {b'x' * 8 + b'one'!r}",
                f"at 0.000000005 s a step of t1: append at t1, 43 bytes, from byte 32 on {b'x' * 8 + b'two'!r}",
            ),
        ),
        ([traced(time_ns=None)], [], ("at 1.000000000 s a step of t1: nothing sent or written", "the run was over")),
        (
            [traced(who="t2")],
            [traced(("fsync", "t1", b""))],
            (
                "at 0.000000005 s a step of t2: nothing sent or written",
                "at 0.000000005 s a step of t1: fsync at t1, 0 bytes",
            ),
        ),
    ],
)
def test_the_first_step_that_differs(
    here: list[TracedStep], there: list[TracedStep], sides: tuple[str, str] | None
) -> None:
    assert first_step(here, there, 1_000_000_000) == (sides and StepSides(*sides))


def test_the_steps_of_a_trace_are_told_apart() -> None:
    """A node's start, its step that writes, and a message to it, as the trace has them."""
    trace = Trace()
    first, second = trace.new_tag(), trace.new_tag()
    trace.words += [7, first]
    trace.record(START, second, b"t1")
    trace.words += [second]
    trace.record(APPEND, second, b"ab")
    trace.words += [9, STEP_OF_NETWORK, RECORD - (second << 4) - NOTIFY]
    trace.payloads.append(b"c")
    found = list(steps_in(trace.words, trace.payloads, {second: "t1"}))
    assert [(step["time_ns"], step["who"], step["did"]) for step in found] == [
        (7, "the harness", [["start", "t1", b"t1".hex()]]),
        (7, "t1", [["append", "t1", b"ab".hex()]]),
        (9, "the network", [["notify", "t1", b"c".hex()]]),
    ]


def side(family: str | None) -> ReplayedSide:
    return ReplayedSide("valid" if family is None else "invalid", family, family, None, None)


@pytest.mark.parametrize(
    ("before", "after", "reproduced", "code", "words"),
    [
        ("a", "a", True, 1, "REPRODUCED: "),
        ("a", None, False, 0, "NOT REPRODUCED: "),
        ("a", "b", False, 1, "another finding: b"),
        (None, None, False, 0, "IT FOUND NOTHING: "),
        (None, "b", False, 1, "another finding: b"),
        ("a", None, None, 2, "CAN'T TELL: "),
    ],
)
def test_a_finding_of_any_kind_is_no_success(
    before: str | None, after: str | None, reproduced: bool | None, code: int, words: str
) -> None:
    replayed = Replayed("run", side(before), (side(after),), reproduced, int(bool(reproduced)), 1, None)
    assert replayed.exit_code == code and words in "\n".join(replayed.lines())


def mark(step: int, digest: str) -> StepMark:
    return StepMark(step, step * 1_000, digest)


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("ab", "ab", None),
        ("ab", "ac", StepBlock(1_001, 2_000, 1_000_000, 2_000_000)),
        ("ab", "cb", StepBlock(1, 1_000, 0, 1_000_000)),
        ("ab", "a", StepBlock(1_001, None, 1_000_000, None)),
        ("", "", None),
    ],
)
def test_the_first_block_that_differs(one: str, other: str, found: StepBlock | None) -> None:
    marks = [[mark(1_000 * (place + 1), digest) for place, digest in enumerate(text)] for text in (one, other)]
    assert first_difference(*marks) == found


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--times", "3"), "are for runs in real time"),
        (("--against", "no-such-commit"), "no commit no-such-commit"),
    ],
)
def test_bad_requests_are_one_sentence(
    arguments: tuple[str, ...], says: str, refuted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = assay(capsys, "replay", refuted, *arguments)
    assert (told.code, says in told.complaint) == (254, True)


def test_what_is_no_finished_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is no run directory" in assay(capsys, "replay", tmp_path / "gone").complaint
