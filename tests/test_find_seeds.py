"""The search for pinned seeds: what it writes where, and which tests hold a seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.options import RunOptions
from assay.outcome_records import CampaignOutcome, CampaignRecord
from cluster.flaws import FLAWS
from tests.support import find_seeds

CLIENTS = next(flaw for flaw in FLAWS.values() if flaw.seen_by == "clients")
INVARIANT = next(flaw for flaw in FLAWS.values() if flaw.seen_by != "clients")
SOURCE = """FOUND_BY = {{
    "{name}": 4,
    "{name}-too": 4,
}}
"""
PAGE = """| flaw | how |
| `{name}` | a | `assay run --seed 4 --flaw {name} -o x=1` | 9 of 9 | old |
--seed 4 --flaw {name}-too
| `{name}` | 1 | 2 | smallest |
"""


def outcome(overall: str, anomalies: tuple[str, ...] = (), invariants: tuple[str, ...] = ()) -> CampaignOutcome:
    return CampaignOutcome(command="", commit=None, overall=overall, anomalies=anomalies, invariants=invariants)


def test_a_seed_counts_where_the_flaw_shows_as_it_is_to_be_seen() -> None:
    by_clients, by_invariant = outcome("invalid", ("x",)), outcome("invalid", (), (INVARIANT.seen_by,))
    assert [find_seeds.shows(CLIENTS, each) for each in (by_clients, by_invariant, outcome("unknown"))] == [1, 0, 0]
    assert [find_seeds.shows(INVARIANT, each) for each in (by_clients, by_invariant)] == [False, True]


def test_seeds_and_figures_are_written_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = CLIENTS.name
    source, page = tmp_path / "source.py", tmp_path / "docs" / "flaws.md"
    page.parent.mkdir()
    source.write_text(SOURCE.format(name=name))
    for text in (page, tmp_path / "README.md"):
        text.write_text(PAGE.format(name=name))
    monkeypatch.setattr(find_seeds, "ROOT", tmp_path)
    monkeypatch.setattr(find_seeds, "FOUND_BY", source)
    monkeypatch.setattr(find_seeds, "TRACK_RECORD", page)
    tried = (outcome("valid"), outcome("invalid", ("x",)), outcome("invalid", (), ("y",)))
    find_seeds.write_flaw(CLIENTS, 7, tried)
    assert source.read_text() == SOURCE.format(name=name).replace(": 4", ": 7", 1)
    moved = PAGE.format(name=name).replace("4", "7", 1)
    assert (tmp_path / "README.md").read_text() == moved
    assert page.read_text() == moved.replace("9 of 9 | old", "2 of 3, clients in 1 | x; `y`")


def test_by_one_command_the_first_seed_that_finds_a_flaw_ends_its_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = list(FLAWS)[:2]

    def carried_out(runs: list[RunOptions], record: CampaignRecord, jobs: int) -> list[CampaignOutcome]:
        (run,) = runs
        assert run.swarm and run.nemesis == ("all",) and not run.world
        return [outcome("invalid", ("x",)) if run.flaw == (first,) and run.seed == 3 else outcome("unknown")]

    monkeypatch.setattr(find_seeds, "carried_out", carried_out)
    lines = list(find_seeds.find_by_one_command((first, second), CampaignRecord(tmp_path / "record", None), 1))
    assert lines == [f"{first}: 3 (x)", f"{second}: none of 60 seeds", "1 of 2"]


def test_a_row_keeps_its_command_where_nothing_was_found() -> None:
    row = "| `x` | a | `assay run` | 1 of 1 | old |"
    nothing = find_seeds.rewritten(row, (outcome("valid"),))
    assert find_seeds.rewritten(nothing, (outcome("invalid", ("y",)),)) == "| `x` | a | `assay run` | 1 of 1 | y |"


def test_the_first_seed_of_a_test_is_found_and_changed() -> None:
    held = find_seeds.pinning(["harness/ports/sim"])
    assert "tests/harness/ports/sim/test_sim_tcp.py" in {test.partition("::")[0] for test in held}
    text = "seed=1\n@played(seed=2)\ndef test_it() -> None:\n    World(3)\n\nWorld(4)\n"
    assert find_seeds.with_seed(text, (1, 4), 9) == text.replace("seed=2", "seed=9")
    assert find_seeds.with_seed(text, (3, 4), 9) == text.replace("World(3)", "World(9)")
