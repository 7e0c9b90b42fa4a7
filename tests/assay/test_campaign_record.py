"""A campaign goes on where it was: what is in its record is not run again, and counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay import campaign
from assay.campaign import CampaignOutcome, CampaignRecord, outcome_of, seen_by
from assay.options import RunOptions
from assay.runner import RunResult
from cluster.flaws import FLAWS
from harness.errors import UserError


def outcome(command: str = "a", overall: str = "valid", **more: tuple[str, ...]) -> CampaignOutcome:
    return CampaignOutcome(command=command, commit="c", overall=overall, **more)  # type: ignore[arg-type]


def test_what_is_recorded_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def run_all(runs: list[RunOptions], jobs: int, keep: object) -> list[RunResult]:
        ran.extend(options.seed for options in runs)
        return [RunResult(options, "valid", ops=7) for options in runs]

    monkeypatch.setattr(campaign, "run_all", run_all)
    command = campaign.CLEAN_COMMANDS[0]
    for last in (2, 3):
        runs = [command.options(seed) for seed in range(1, last + 1)]
        outcomes = campaign.carry_out(runs, CampaignRecord(tmp_path / "record", "c"), 1, "")
        assert [each.ops for each in outcomes] == [7] * last
    assert ran == [1, 2, 3]


def test_runs_of_another_commit_do_not_count(tmp_path: Path) -> None:
    CampaignRecord(tmp_path / "record", "c").add(outcome())
    assert "a" in CampaignRecord(tmp_path / "record", "c")
    assert "a" not in CampaignRecord(tmp_path / "record", "d")


def test_what_another_commit_found_can_be_told_and_not_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = campaign.CLEAN_COMMANDS[0].options(1).command()
    CampaignRecord(tmp_path / "record", "c").add(outcome(command, "unknown"))
    asked = ["--record", str(tmp_path / "record"), "--commit", "c"]
    assert campaign.main([*asked, "--only", "tables"]) == 1
    assert "clean runs at c: 1 (1 unknown)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        campaign.main(asked)


def test_a_line_that_is_no_outcome_is_named(tmp_path: Path) -> None:
    CampaignRecord(tmp_path / "record", "c").add(outcome())
    with (tmp_path / "record").open("a") as file:
        file.write("{}\n")
    with pytest.raises(UserError, match="line 2"):
        CampaignRecord(tmp_path / "record", "c")


def test_clients_and_invariants_are_told_apart() -> None:
    result = RunResult(
        RunOptions("register"), "invalid", anomalies=("stale-read", "state-digest"), invariants=("state-digest",)
    )
    line = outcome_of(result, "a", "c")
    assert (line.found, line.anomalies, line.invariants) == (True, ("stale-read",), ("state-digest",))
    assert seen_by([line]) == "stale-read; `state-digest`"
    assert not outcome(overall="invalid").found


def test_the_first_seed_is_one_that_clients_saw_if_any_did() -> None:
    by_invariant, by_clients = (
        outcome(overall="invalid", invariants=("x",)),
        outcome(overall="invalid", anomalies=("y",)),
    )
    assert campaign.first_seed((4, 5, 6), (outcome(), by_invariant, by_clients)) == 6
    assert campaign.first_seed((4, 5), (outcome(), by_invariant)) == 5
    assert campaign.first_seed((4,), (outcome(),)) is None


def test_every_command_of_a_flaw_is_a_clean_command_too() -> None:
    assert {campaign.command_of(flaw) for flaw in FLAWS.values()} <= set(campaign.CLEAN_COMMANDS)
    assert len(set(campaign.CLEAN_COMMANDS)) == len(campaign.CLEAN_COMMANDS)


def test_named_flaws_choose_the_clean_commands_that_find_them() -> None:
    both = campaign.clean_commands(["raft-forget-vote", "vote-before-fsync"])
    assert both == (campaign.command_of(FLAWS["raft-forget-vote"]),), "one command finds both"
    assert campaign.clean_commands(None) == campaign.CLEAN_COMMANDS


@pytest.mark.parametrize("only", [["--only", "tables"], ["--only", "tables", "--flaw", "double-apply"]])
def test_a_record_of_nothing_is_no_success(tmp_path: Path, only: list[str]) -> None:
    """The tables of no run at all ended with 0."""
    assert campaign.main(["--record", str(tmp_path / "record"), "--commit", "c", *only]) == 1


@pytest.mark.parametrize(("anomalies", "code"), [((), 1), (("nonlinearizable",), 0)])
def test_tables_of_a_flaw_that_nothing_found_are_no_success(
    tmp_path: Path, anomalies: tuple[str, ...], code: int
) -> None:
    record = CampaignRecord(tmp_path / "record", "c")
    command = campaign.flawed_options(FLAWS["double-apply"], 1).command()
    record.add(outcome(command, "invalid" if anomalies else "valid", anomalies=anomalies))
    assert campaign.main(["--record", str(tmp_path / "record"), "--commit", "c", "--only", "tables"]) == code
