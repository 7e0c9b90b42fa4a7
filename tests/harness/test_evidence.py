"""A load goes on past its time while something that it needs has not been seen, and no longer than that may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from memory_runs import Setup, kill

from harness.adequacy import Floors
from harness.evidence import WantedEvidence, until_seen, wanted
from harness.generators import delay, draw, invoke, sleep
from harness.generators.simulate import simulate
from harness.ops import Op, OpType

SECOND_NS = 1_000_000_000
WORK = draw(0, lambda context, chance, n: invoke("write", value=n))


def lasted_s(lacking: WantedEvidence, kinds: list[OpType], extra_s: float = 6.0) -> float:
    """When a load of four operations a second, of 2 s at first, begins its last one, with these ends and then `ok`."""

    def latency(op: Op, number: int) -> tuple[int, OpType]:
        return 1_000_000, kinds[number] if number < len(kinds) else "ok"

    events = simulate(until_seen(2.0, extra_s, lacking, delay(0.25, WORK)), latency=latency)
    return max(event.time for event in events if event.type == "invoke") / 1e9


@pytest.mark.parametrize(
    ("lacking", "ends", "last_s"),
    [
        (WantedEvidence(), [], 1.75),
        (WantedEvidence(successes={"write": 3}), ["ok"] * 3, 1.75),
        (WantedEvidence(successes={"write": 3}), ["ok", *["fail"] * 9], 3.0),
        (WantedEvidence(rate_hz=2.0), ["ok", *["info"] * 7], 3.25),
        (WantedEvidence(successes={"read": 1}), ["ok"], 7.75),
        (WantedEvidence(kinds=frozenset({"kill"})), ["ok"], 7.75),
        (WantedEvidence(kinds=frozenset({"kill"})), ["fail"] * 100, 1.75),
    ],
)
def test_a_load_goes_on_until_it_has_what_it_lacks(lacking: WantedEvidence, ends: list[OpType], last_s: float) -> None:
    """Not where nothing ever succeeds, and not beyond its bound."""
    assert lasted_s(lacking, ends) == pytest.approx(last_s, abs=0.3)


def told(kind: str, step: str, **more: Any) -> Op:
    return Op("info", -1, step, value={"fault": kind, "step": step, **more})


def test_of_a_script_its_core_was_lacking_and_of_other_faults_one_that_came_to_its_end() -> None:
    lacking = WantedEvidence(kinds=frozenset({"power-cut", "kill"}))
    for event, left in (
        (told("power-cut", "begin", observed=None, core=False), {"power-cut", "kill"}),
        (told("kill", "begin", observed=False), {"power-cut", "kill"}),
        (told("kill", "end", observed=True), {"power-cut", "kill"}),
        (told("kill", "begin", observed=True), {"power-cut", "kill"}),
        (told("power-cut", "step", observed=True, core=True), {"kill"}),
        (told("kill", "end", observed=True), set()),
    ):
        lacking = lacking.after(event)
        assert lacking.kinds == left


def test_a_run_asked_for_safety_only_waits_for_no_successes() -> None:
    assert wanted(("read",), (), Floors(each_f=0.0, rate=0.0), 100.0) == WantedEvidence()
    assert wanted(("read",), ("kill",), Floors(), 100.0).kinds == {"kill"}


def test_a_fault_that_comes_late_is_waited_for_and_the_verdict_counts_the_time(tmp_path: Path) -> None:
    late = [sleep(13), kill("begin"), sleep(1), kill("end"), sleep(60)]
    short = Setup(tmp_path).run(nemesis_generator=late, heal_generator=None)
    assert short.verdict.overall == "unknown"
    longer = Setup(tmp_path / "longer").run(nemesis_generator=late, heal_generator=None, extra_s=20.0)
    load = longer.verdict.adequacy.details["load_s"]
    assert load["asked"] == 10.0 and load["lasted"] == pytest.approx(14.0, abs=0.5)
    assert longer.verdict.overall == "valid"
