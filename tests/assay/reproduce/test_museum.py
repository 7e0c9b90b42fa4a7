"""The museum: each entry still shows what it was kept for, and one that means nothing any more is never passed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.reproduce.inputs import Inputs, load_inputs, save_inputs
from assay.reproduce.museum import LARGEST_BYTES, MUSEUM, Exhibit, exhibit, exhibits, tried
from assay.reproduce.smaller_inputs import ended, size_of, with_faults
from cluster.flaws import FLAWS
from harness.errors import UserError
from tests.assay.command_line import assay

ALL = exhibits()


@pytest.mark.parametrize(
    "name", [pytest.param(each.name, marks=[] if each.entry.quick else [pytest.mark.campaign]) for each in ALL]
)
def test_an_entry_shows_its_finding_with_its_flaw_and_nothing_without_it(name: str) -> None:
    outcome = tried(exhibit(MUSEUM / name))
    assert outcome.fate == "passed", outcome.why


def test_entries_are_small_and_the_quick_ones_take_a_minute_at_most() -> None:
    assert ALL
    assert sum(each.entry.cpu_s for each in ALL if each.entry.quick) <= 60
    for each in ALL:
        assert sum(path.stat().st_size for path in each.folder.iterdir()) <= LARGEST_BYTES
        inputs = load_inputs(each.folder)
        assert each.entry.flaw == ",".join(inputs.options.flaw)
        assert set(inputs.options.flaw) <= set(FLAWS)


def test_flaws_have_their_smallest_runs_in_the_documents() -> None:
    lines = (MUSEUM.parent.parent / "docs" / "flaws.md").read_text().splitlines()
    for each in ALL:
        size = size_of(load_inputs(each.folder))
        numbers = [size[name] for name in ("faults", "operations", "clients", "nodes", "masters", "seconds")]
        row = " | ".join(f"{number:g}" for number in numbers)
        assert f"| `{each.name}` | {row} | {each.entry.title.partition(':')[0]} |" in lines


PLAIN, SCRIPTED = "abort-on-failed-replication", "read-before-own-term"


def moved(folder: Path, change: Callable[[Inputs], Inputs], name: str = PLAIN) -> Exhibit:
    """An entry whose inputs are changed, as a change of the code would change what they come to."""
    shown = exhibit(MUSEUM / name)
    save_inputs(change(load_inputs(shown.folder)), folder)
    (folder / "entry.toml").write_bytes((shown.folder / "entry.toml").read_bytes())
    return exhibit(folder)


def without_its_core(inputs: Inputs) -> Inputs:
    """The load ends when the script has hardly begun."""
    return ended(inputs, inputs.faults[0].begin_ns / 1e9 + 0.05)


def with_another_flaw(inputs: Inputs) -> Inputs:
    return replace(inputs, options=replace(inputs.options, flaw=("weak-summary",)))


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        (PLAIN, lambda inputs: with_faults(inputs, []), "master-partition was seen in effect 0 of 1 times"),
        (SCRIPTED, without_its_core, "unheard-commit was seen in effect 0 of 1 times"),
        (PLAIN, with_another_flaw, "its flaw shows nothing"),
    ],
)
def test_an_entry_that_does_not_come_to_what_it_is_for_is_stale(
    name: str, change: Callable[[Inputs], Inputs], says: str, tmp_path: Path
) -> None:
    outcome = tried(moved(tmp_path, change, name))
    assert (outcome.fate, outcome.why) == ("stale", says)


def test_a_bug_that_is_back_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its flaw were in the code: it shows where none is switched on."""
    shown = moved(tmp_path, lambda inputs: inputs)
    flaw = load_inputs(shown.folder).options.flaw

    def always(value: Any, **fields: Any) -> Any:
        return replace(value, **fields | ({"flaw": flaw} if fields.get("flaw") == () else {}))

    monkeypatch.setattr("assay.reproduce.museum.replace", always)
    outcome = tried(shown)
    assert (outcome.fate, outcome.why) == ("found", shown.entry.title)


@pytest.mark.parametrize(("folders", "says"), [((), "nothing in the museum"), (("lost-entry",), "has no lost-entry")])
def test_a_museum_without_entries_does_not_pass(folders: tuple[str, ...], says: str, tmp_path: Path) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=says):
        exhibits(museum=tmp_path)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda text: text.partition("[reach]")[0] + "[reach]\n", "nothing in reach"),
        (lambda text: text.partition("[reach]")[0], "can't be read"),
        (lambda text: text + "[", "can't be read"),
        (None, "The museum has no"),
    ],
)
def test_what_is_no_entry_is_one_sentence(spoil: Callable[[str], str] | None, says: str, tmp_path: Path) -> None:
    if spoil is not None:
        (tmp_path / "entry.toml").write_text(spoil((ALL[0].folder / "entry.toml").read_text()))
    with pytest.raises(UserError, match=says):
        exhibit(tmp_path)


def test_a_name_that_there_is_none_of(capsys: pytest.CaptureFixture[str]) -> None:
    told = assay(capsys, "museum", "no-such-bug")
    assert (told.code, "The museum has no no-such-bug" in told.complaint) == (254, True)
