"""`assay doctor` names exactly the faults that nemeses can make here, and what killed runs left."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from command_line import assay

from assay import doctor_command
from assay.doctor_command import docker_faults
from harness.env.abilities import NodeAbilities
from harness.env.doctor import ABILITIES, EngineFacts, MachineFacts
from harness.errors import UserError
from nemesis.registry import NEMESES


def facts(works: set[str]) -> MachineFacts:
    node = NodeAbilities("iptables-nft", frozenset(works), {})
    return MachineFacts(8, 16.0, "", EngineFacts("27.0", image_built=True, node=node))


def test_where_everything_works_only_messages_are_for_the_simulator_alone() -> None:
    works, lacks = docker_faults(facts(set(ABILITIES)))
    assert {name for name in NEMESES if name not in works.sentence} == {"held-message", "client-clock"}
    assert lacks.sentence.endswith(": held-message (held-message), client-clock (client-clocks).")


def test_what_lacks_an_ability_is_named_with_it() -> None:
    works, lacks = docker_faults(facts(set()))
    assert "partition" in works.sentence
    assert "clock" not in works.sentence
    assert not lacks.ok
    assert "clock-jump (clock)" in lacks.sentence


def test_nothing_is_said_where_no_node_was_tried() -> None:
    assert docker_faults(MachineFacts(8, 16.0, "", None, "no engine")) == ()


def test_what_killed_runs_left_is_named_by_doctor_and_by_the_next_run_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def examined(*_: object, **__: object) -> MachineFacts:
        return facts(set(ABILITIES))

    store, in_engine = tmp_path / "store", "3 containers, 3 volumes and 2 networks of 1 run whose harness is gone"
    (store / ".seed-77-x" / "register").mkdir(parents=True)
    (tmp_path / "assay-trees-x" / "tree").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(doctor_command, "examine", examined)
    monkeypatch.setattr(doctor_command, "engine_leftovers", lambda: in_engine)
    monkeypatch.setattr(doctor_command, "clean_up", lambda: (f"Removed {in_engine}.",))
    folders, trees = f"1 folder of runs in the making in {store}", f"1 folder of other commits in {tmp_path}"
    how = f"`assay doctor --clean --store {store}` removes"
    told = assay(capsys, "doctor", "--store", store).out
    assert f"leftovers   {folders}: {how} them." in told and f"leftovers   {trees}: {how} them." in told
    assert f"leftovers   {in_engine}: {how} them." in told
    one = ("run", "register", "--time-limit", "1", "--seeds", "1..1", "--store", store)
    sentence = f"assay: left by runs that were killed: {folders}; {trees}. {how} it."
    assert sentence in assay(capsys, *one).err.splitlines()
    cleaned = assay(capsys, "doctor", "--clean", "--store", store)
    assert cleaned.code == 0 and cleaned.out.splitlines() == [
        f"Removed {each}." for each in (folders, trees, in_engine)
    ]
    shutil.rmtree(store)
    monkeypatch.setattr(doctor_command, "engine_leftovers", lambda: None)
    assert "No run that was killed has left anything." in assay(capsys, "doctor", "--store", store).out
    said: list[str] = []
    doctor_command.warn_of_leftovers(store, True, said.append)
    assert said == []


def test_an_engine_that_does_not_answer_keeps_no_folder_from_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent() -> None:
        raise UserError("No Docker engine answers here")

    (tmp_path / ".seed-77-x").mkdir()
    monkeypatch.setattr(doctor_command, "clean_up", silent)
    answer = assay(capsys, "doctor", "--clean", "--store", tmp_path)
    assert answer.code == 254 and answer.out.startswith("Removed 1 folder") and list(tmp_path.iterdir()) == []
