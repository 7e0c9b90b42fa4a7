"""What somebody does to containers behind the harness's back: no run is valid on it, and each says what it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.env import ssh
from harness.env.docker.engine import RUN_LABEL
from harness.env.firewall import CHAIN
from harness.ops import Op
from harness.run import Silent
from harness.verdict import RunVerdict

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

IPTABLES = "for tool in iptables-nft iptables-legacy; do $tool -w -S INPUT >/dev/null 2>&1 && break; done; $tool -w "


class Somebody(Silent):
    """Has the containers of the one run that began after it did; `meddle` is told each stage and each event."""

    def __init__(self, engine: Any, meddle: Callable[[Somebody, str, Op | None], None]) -> None:
        self.engine, self.meddle = engine, meddle
        self.before = {each.id for each in engine.containers.list(all=True)}

    def node(self, name: str) -> Any:
        found = self.engine.containers.list(all=True, filters={"label": RUN_LABEL})
        return next(each for each in found if each.id not in self.before and each.name.endswith(f"-{name}"))

    def iptables(self, name: str, words: str) -> None:
        done = self.node(name).exec_run(["sh", "-c", IPTABLES + words])
        assert done.exit_code == 0, done.output

    def stage(self, name: str) -> None:
        self.meddle(self, name, None)

    def event(self, op: Op) -> None:
        self.meddle(self, "", op)


TIME_LIMIT_S = 6.0
"""A load goes on for up to three times as long where what was asked for is not seen, as in most runs here."""

BUDGET_S = 4.0
PATIENCE_S = 4.0
"""For the answer to a command, of which a machine that is paused gives none."""


def run_with(
    engine: Any,
    store: Path,
    nemesis: str,
    meddle: Callable[[Somebody, str, Op | None], None],
    time_limit: float = TIME_LIMIT_S,
) -> RunVerdict:
    small: dict[str, Any] = {"masters": 1, "nodes": 3, "recovery_budget": BUDGET_S}
    options = RunOptions(
        "register", on="docker", nemesis=(nemesis,), time_limit=time_limit, seed=3, store=store, **small
    )
    somebody = Somebody(engine, meddle)
    return carry_out(options, judge_saved_run, somebody, datetime.now(), lambda sentence: None).outcome.verdict


def test_firewall_rules_that_vanish_end_the_fault(engine: Any, tmp_path: Path) -> None:
    def flush(somebody: Somebody, name: str) -> None:
        somebody.iptables(name, f"-F {CHAIN}; $tool -w -F {CHAIN}-OUT")

    def meddle(somebody: Somebody, stage: str, op: Op | None) -> None:
        if op is not None and op.process < 0 and op.type == "info" and op.value.get("step") == "begin":
            for name in ("m1", "t1", "t2", "t3"):
                threading.Timer(0.3, flush, [somebody, name]).start()

    verdict = run_with(engine, tmp_path, "partition", meddle, time_limit=12.0)
    assert verdict.overall == "unknown", verdict.reasons
    assert any("the fault partition was in effect for" in reason for reason in verdict.reasons), verdict.reasons
    counts = verdict.adequacy.details["faults"]["partition"]
    assert counts["in_effect_s"] < 0.5 * counts["asked_s"]


def test_a_rule_that_somebody_left_is_told_before_the_final_reads(engine: Any, tmp_path: Path) -> None:
    def meddle(somebody: Somebody, stage: str, op: Op | None) -> None:
        if stage == "recover":
            somebody.iptables("t2", f"-I INPUT -s {address(somebody, 't1')} -j DROP")

    verdict = run_with(engine, tmp_path, "kill", meddle)
    assert verdict.overall == "unknown", verdict.reasons
    assert verdict.harness.answer is False
    assert any("nothing arrives over t1 -> t2" in reason for reason in verdict.reasons), verdict.reasons


def address(somebody: Somebody, name: str) -> str:
    networks = somebody.node(name).attrs["NetworkSettings"]["Networks"]
    return str(next(each["IPAddress"] for network, each in networks.items() if network.endswith("-data")))


@pytest.mark.parametrize(
    ("deed", "words"), [("remove", "was removed"), ("restart", "was started anew"), ("pause", "is paused")]
)
def test_a_container_that_goes_away_is_told_in_one_sentence(
    engine: Any, tmp_path: Path, deed: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "COMMAND_TIMEOUT_S", PATIENCE_S)

    def meddle(somebody: Somebody, stage: str, op: Op | None) -> None:
        """It begins with the first fault, and is done when the run looks whether all is up again, however long an
        engine takes that has much to do."""
        if (stage == "heal" or (op is not None and op.process < 0 and op.type == "info")) and not gone:
            node = somebody.node("t3")
            acts = {"remove": lambda: node.remove(force=True), "restart": lambda: node.restart(timeout=0)}
            gone.append(threading.Thread(target=acts.get(deed, node.pause)))
            gone[0].start()
        if stage == "heal for certain":
            gone[0].join()

    gone: list[threading.Thread] = []
    verdict = run_with(engine, tmp_path, "pause", meddle)
    assert verdict.overall == "unknown", verdict.reasons
    assert verdict.harness.answer is False
    errors = {failure["error"] for failure in verdict.harness.details["failures"]}
    told = [f"t3 is gone: its container {words}" in error for error in errors]
    assert any(told) if deed == "pause" else all(told), errors
