"""What somebody does to containers behind the harness's back: no run is valid on it, and each says what it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from assay.compose import carry_out
from assay.judging import judge_saved_run
from assay.options import RunOptions
from harness.env.marks import IN_CONTAINERS
from harness.history.ops import Op
from harness.run.spec import Silent
from harness.verdict.run_verdict import RunVerdict
from tests.docker.conftest import made_by

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

IPTABLES = "for tool in iptables-nft iptables-legacy; do $tool -w -S INPUT >/dev/null 2>&1 && break; done; $tool -w "


class Somebody(Silent):
    """Has the containers of the one run that this process begins next; `meddle` is told each stage and each event."""

    def __init__(self, engine: Any, meddle: Callable[[Somebody, str, Op | None], None]) -> None:
        self.engine, self.meddle = engine, meddle
        self.before = made_by(engine)

    def node(self, name: str) -> Any:
        ours = made_by(self.engine) - self.before
        return self.engine.containers.get(next(each for each in ours if each.endswith(f"-{name}")))

    def iptables(self, name: str, words: str) -> None:
        done = self.node(name).exec_run(["sh", "-c", IPTABLES + words])
        assert done.exit_code == 0, done.output

    def stage(self, name: str) -> None:
        self.meddle(self, name, None)

    def waits(self, what: str) -> None: ...

    def event(self, op: Op) -> None:
        self.meddle(self, "", op)


BUDGET_S = 4.0


def run_with(
    engine: Any, store: Path, nemesis: str, meddle: Callable[[Somebody, str, Op | None], None], **others: Any
) -> RunVerdict:
    small: dict[str, Any] = {"masters": 1, "nodes": 3, "recovery_budget": BUDGET_S}
    options = RunOptions("register", on="docker", nemesis=(nemesis,), seed=3, store=store, **small, **others)
    somebody = Somebody(engine, meddle)
    return carry_out(options, judge_saved_run, somebody, datetime.now(), lambda sentence: None).outcome.verdict


def test_rules_that_vanish_end_the_fault_and_one_that_is_left_is_told_before_the_final_reads(
    engine: Any, tmp_path: Path
) -> None:
    """The nemesis's own rules are flushed before it is told that they were seen: they are never seen again."""

    def meddle(somebody: Somebody, stage: str, op: Op | None) -> None:
        if op is not None and op.process < 0 and op.type == "info" and op.value.get("step") == "begin":
            with ThreadPoolExecutor() as pool:
                flush = f"-F {IN_CONTAINERS.cut}; $tool -w -F {IN_CONTAINERS.cut_out}"
                list(pool.map(lambda name: somebody.iptables(name, flush), ("m1", "t1", "t2", "t3")))
        if stage == "recover":
            somebody.iptables("t2", f"-I INPUT -s {address(somebody, 't1')} -j DROP")

    verdict = run_with(engine, tmp_path, "partition(target=halves, for=1500ms)", meddle, time_limit=4.0)
    assert verdict.overall == "unknown", verdict.reasons
    assert any("the fault partition was in effect for" in reason for reason in verdict.reasons), verdict.reasons
    counts = verdict.adequacy.details["faults"]["partition"]
    assert counts["in_effect_s"] < 0.5 * counts["asked_s"]
    assert verdict.harness.answer is False
    assert any("nothing arrives over t1 -> t2" in reason for reason in verdict.reasons), verdict.reasons


def address(somebody: Somebody, name: str) -> str:
    networks = somebody.node(name).attrs["NetworkSettings"]["Networks"]
    return str(next(each["IPAddress"] for network, each in networks.items() if network.endswith("-data")))


DEEDS: dict[str, tuple[Callable[[Any], object], str]] = {
    "t1": (lambda node: node.remove(force=True), "was removed"),
    "t2": (lambda node: node.restart(timeout=0), "was started anew"),
    "t3": (lambda node: node.pause(), "is paused"),
}


def test_containers_that_go_away_are_told_in_one_sentence_each(engine: Any, tmp_path: Path) -> None:
    """One that can't answer is not waited for by each command in turn."""

    def meddle(somebody: Somebody, stage: str, op: Op | None) -> None:
        """It begins with the first fault, and is done when the run looks whether all is up again, however long an
        engine takes that has much to do."""
        if (stage == "heal" or (op is not None and op.process < 0 and op.type == "info")) and not at_work:
            nodes = {name: somebody.node(name) for name in DEEDS}
            at_work.extend(threading.Thread(target=deed, args=[nodes[name]]) for name, (deed, _) in DEEDS.items())
            for thread in at_work:
                thread.start()
        if stage == "heal for certain":
            for thread in at_work:
                thread.join()

    at_work: list[threading.Thread] = []
    verdict = run_with(engine, tmp_path, "pause", meddle, time_limit=4.0, op_timeout=0.5)
    assert verdict.overall == "unknown", verdict.reasons
    assert verdict.harness.answer is False
    errors = {failure["error"] for failure in verdict.harness.details["failures"]}
    sentences = [f"{name} is gone: its container {words}" for name, (_, words) in DEEDS.items()]
    assert all(any(sentence in error for error in errors) for sentence in sentences), errors
    assert all(any(sentence in error for sentence in sentences) for error in errors), errors
