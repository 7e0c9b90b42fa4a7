"""Inputs of a run: recording moves nothing, unedited ones make the same history, an edit changes nothing before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from assay.compose import carry_out
from assay.options import RunOptions, validate
from assay.reproduce.inputs import Inputs, load_inputs, save_inputs
from harness.errors import UserError
from harness.history.journal import read_journal
from harness.history.ops import Op
from harness.history.rundir import RunDir
from harness.run.spec import Silent
from tests.support.few_seeds import few_of

HARSH = "severity=harsh,disk-tear=stale,fsync-hang=0.002,disk-full=0.002,long-turns=0.001"
RUNS: tuple[dict[str, Any], ...] = (
    {"workload": "register", "nemesis": ("partition", "kill"), "time_limit": 4.0, "seed": 3},
    {
        "workload": "snapshots",
        "nemesis": ("packets", "pause"),
        "world": f"{HARSH},transport=tcp,loss=0.03,breaks=0.0005",
    },
    {"workload": "durable-rows", "nemesis": ("kill",), "world": f"{HARSH},transport=datagram,loss=0.03,reorder=0.1"},
    {"workload": "register", "nemesis": ("deposed-leader", "clock-strobe"), "time_limit": 6.0},
    {"workload": "catalog", "nemesis": ("master-kill", "heartbeat-loss"), "world": "client-outages=0.002"},
    {"workload": "register", "nemesis": ("all",), "swarm": True, "seed": 7},
    {"workload": "durable-rows", "nemesis": ("all",), "swarm": True, "seed": 9},
)


class Made(NamedTuple):
    """A run: the digest of its steps, its journal, and where that is."""

    trace: str | None
    journal: bytes
    rundir: RunDir

    def events(self) -> list[Op]:
        return list(read_journal(self.rundir.journal))


def unjudged(rundir: RunDir) -> Mapping[str, Any]:
    return {"register": {"valid": True}}


def make(options: RunOptions) -> Made:
    finished = carry_out(options, unjudged, Silent(), datetime(2026, 1, 1), lambda _: None)
    return Made(finished.trace, finished.outcome.rundir.journal.read_bytes(), finished.outcome.rundir)


def options_for(store: Path, **fields: Any) -> RunOptions:
    return RunOptions(**{"time_limit": 4.0, "seed": 11, "store": store, "keep_journal": True, **fields})


def carried_out(inputs: Inputs, store: Path) -> Made:
    """A run of these inputs."""
    folder = store / f"inputs-{inputs.digest()}"
    save_inputs(inputs, folder)
    return make(replace(load_inputs(folder).options, inputs=folder, store=store, keep_journal=True))


def recorded(store: Path, **fields: Any) -> tuple[Made, Inputs]:
    made = make(options_for(store, **fields, record=store / "inputs"))
    return made, load_inputs(store / "inputs")


@pytest.mark.parametrize("number", few_of(4, len(RUNS)))
def test_recording_moves_nothing_and_unedited_inputs_give_the_same_history(number: int, tmp_path: Path) -> None:
    fields = RUNS[number]
    plain = make(options_for(tmp_path, **fields))
    made, inputs = recorded(tmp_path, **fields)
    assert (made.trace, made.journal) == (plain.trace, plain.journal)
    assert inputs.operations and inputs.decisions
    assert carried_out(inputs, tmp_path).journal == plain.journal
    named = {name.rpartition("/")[2] for name in inputs.decisions} | {name.split("/")[0] for name in inputs.decisions}
    assert {"link", "disk", "delay", "fsync"} <= named


def without_late_operations(inputs: Inputs, at_ns: int) -> Inputs:
    return replace(inputs, operations=tuple(op for op in inputs.operations if op.time < at_ns))


def without_late_faults(inputs: Inputs, at_ns: int) -> Inputs:
    return replace(inputs, faults=tuple(each for each in inputs.faults if each.begin_ns < at_ns))


def ended_early(inputs: Inputs, at_ns: int) -> Inputs:
    faults = (msgspec.structs.replace(f, end_ns=min(f.end_ns or at_ns, max(at_ns, f.begin_ns))) for f in inputs.faults)
    return replace(inputs, faults=tuple(faults))


def moved_targets(inputs: Inputs, at_ns: int) -> Inputs:
    faults = (
        f if f.begin_ns < at_ns else msgspec.structs.replace(f, action={"do": "Pause", "targets": ["m1"]})
        for f in inputs.faults
    )
    return replace(inputs, faults=tuple(faults))


@pytest.mark.parametrize("edit", [without_late_operations, without_late_faults, ended_early, moved_targets])
def test_an_edit_at_a_time_changes_nothing_before_it(edit: Callable[[Inputs, int], Inputs], tmp_path: Path) -> None:
    made, inputs = recorded(tmp_path, workload="register", nemesis=("pause", "kill"), time_limit=5.0, seed=3)
    at_ns = inputs.faults[1].begin_ns
    edited = edit(inputs, at_ns)
    assert edited != inputs
    after = carried_out(edited, tmp_path)
    assert after.journal != made.journal
    before = [event for event in made.events() if event.time < at_ns]
    assert before and before == [event for event in after.events() if event.time < at_ns]


def test_one_decision_moves_no_other_stream(tmp_path: Path) -> None:
    """Beyond its record a stream goes on by its key, and whatever was recorded of the others stays."""
    made, inputs = recorded(tmp_path, workload="register", time_limit=3.0, seed=4)
    name = max(inputs.decisions, key=lambda stream: len(inputs.decisions[stream]) if stream.startswith("link/") else 0)
    cut = replace(
        inputs, decisions={**inputs.decisions, name: inputs.decisions[name][: len(inputs.decisions[name]) // 2]}
    )
    folder = tmp_path / "cut"
    save_inputs(cut, folder)
    again = make(replace(cut.options, inputs=folder, record=tmp_path / "again", store=tmp_path, keep_journal=True))
    kept = load_inputs(tmp_path / "again").decisions
    assert again.journal != made.journal
    assert kept[name][: len(cut.decisions[name])] == cut.decisions[name]
    assert kept[name] != inputs.decisions[name]
    same = [stream for stream in kept if kept[stream][:20] == inputs.decisions.get(stream, [])[:20]]
    assert len(same) >= len(kept) - 1
    assert carried_out(cut, tmp_path).journal == again.journal


def test_decisions_that_are_drawn_anew_change_nothing_before(tmp_path: Path) -> None:
    made, inputs = recorded(tmp_path, workload="register", time_limit=3.0, seed=4)
    start_ns = msgspec.json.decode(made.rundir.outcome_json.read_bytes())["history_start_ns"]
    at_ns = 1_500_000_000
    branches = [carried_out(replace(inputs, anew_ns=start_ns + at_ns, key=key), tmp_path) for key in ("one", "two")]
    assert len({made.journal, *(each.journal for each in branches)}) == 3
    before = [[event for event in each.events() if event.time < at_ns] for each in (made, *branches)]
    assert len(before[0]) > 100 and before[0] == before[1] == before[2]


def test_roles_choose_anew(tmp_path: Path) -> None:
    _, inputs = recorded(tmp_path, workload="register", nemesis=("kill(target=leader)",), time_limit=4.0, seed=3)
    assert all(fault.roles for fault in inputs.faults if fault.action)
    assert inputs.pinned() and not inputs.pinned("role")


def spoiled(folder: Path, change: Callable[[dict[str, Any]], Any], file: str = "inputs.json") -> None:
    path = folder / file
    saved = msgspec.json.decode(path.read_bytes())
    change(saved)
    path.write_bytes(msgspec.json.encode(saved))


def unsealed(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda saved: (saved.pop("digests"), change(saved))


BAD: Mapping[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "newer": (lambda saved: saved.update(version=99), "version 99 of the format"),
    "edited": (lambda saved: saved.update(key="other"), "was edited since it was saved"),
    "no such option": (unsealed(lambda saved: saved["options"].update(speed=9)), "no option 'speed'"),
    "no such flaw": (unsealed(lambda saved: saved["options"].update(flaw=["none-such"])), "no flaw 'none-such'"),
    "no such plugin": (unsealed(lambda saved: saved["options"].update(plugins=["gone.py"])), "gone.py"),
    "no such node": (
        unsealed(lambda saved: saved["faults"][0].update(action={"do": "Kill", "targets": ["t9"]})),
        "t9, a node that the run does not have",
    ),
    "no such action": (unsealed(lambda saved: saved["faults"][0].update(action={"do": "Wish"})), "no action 'Wish'"),
    "no such fault": (unsealed(lambda saved: saved["faults"][0].update(kind="mood")), "mood"),
    "ends before it begins": (unsealed(lambda saved: saved["faults"][0].update(end_ns=1)), "end before it begins"),
    "too few clients": (unsealed(lambda saved: saved["options"].update(concurrency=1)), "no client can begin"),
    "in containers": (unsealed(lambda saved: saved["options"].update(on="docker")), "docker decides for itself"),
    "operations of its own": (
        unsealed(lambda saved: saved.update(own_load=True)),
        "leaves the operations to the workload",
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("inputs")
    recorded(store, workload="register", nemesis=("kill",), time_limit=3.0, seed=3)
    return store / "inputs"


@pytest.mark.parametrize("what", BAD)
def test_bad_inputs_are_one_sentence(what: str, sound: Path, tmp_path: Path) -> None:
    change, sentence = BAD[what]
    for name in ("inputs.json", "operations.jsonl", "decisions.msgpack"):
        (tmp_path / name).write_bytes((sound / name).read_bytes())
    spoiled(tmp_path, change)
    with pytest.raises(UserError, match=re.escape(sentence)):
        validate(load_inputs(tmp_path).options)


def test_files_that_were_edited_or_go_back_in_time_are_refused(sound: Path, tmp_path: Path) -> None:
    for name in ("inputs.json", "operations.jsonl", "decisions.msgpack"):
        (tmp_path / name).write_bytes((sound / name).read_bytes())
    lines = (sound / "operations.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "operations.jsonl").write_bytes(b"".join(reversed(lines)))
    with pytest.raises(UserError, match=r"operations.jsonl was edited"):
        load_inputs(tmp_path)
    spoiled(tmp_path, lambda saved: saved.pop("digests"))
    with pytest.raises(UserError, match="goes back in time"):
        load_inputs(tmp_path)
    (tmp_path / "decisions.msgpack").unlink()
    with pytest.raises(UserError, match=r"decisions.msgpack: No such file"):
        load_inputs(tmp_path)
