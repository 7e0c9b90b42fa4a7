"""What must not be passed over, in the simulator; `tests/docker/test_docker_honest.py` has the same in containers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.deploy.database_sim import SimDatabase
from harness.env.sim import SimEnvironment
from harness.errors import HarnessError
from tests import honest_runs as honest
from tests.mounts import small_disk


def test_a_nemesis_that_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.without_hands(monkeypatch)
    honest.is_vacuous(honest.run("sim", tmp_path))


@pytest.mark.parametrize("script", ["new-leader-partition", "lost-answer"])
def test_a_script_that_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """The state that it waits for comes by itself."""
    honest.without_hands(monkeypatch)
    honest.is_vacuous(honest.run("sim", tmp_path, script))


def test_a_client_that_never_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.with_clients(monkeypatch, honest.Hopeless)
    honest.serves_nobody(honest.run("sim", tmp_path, "none"))


def test_a_client_that_says_fail_for_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.with_clients(monkeypatch, honest.Liar)
    honest.is_refuted(honest.run("sim", tmp_path, "none"))


def test_a_teardown_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.with_a_failing_teardown(monkeypatch, SimDatabase)
    honest.lost_only_the_teardown(honest.run("sim", tmp_path, "none"))


def test_a_clock_that_will_not_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def skew_clock(*arguments: object) -> None:
        """The hand is turned, and the clock stays."""

    monkeypatch.setattr(SimEnvironment, "skew_clock", skew_clock)
    honest.is_vacuous(honest.run("sim", tmp_path, "clock-jump"))


def test_clocks_that_can_not_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a missing libfaketime is in containers."""
    capabilities = SimEnvironment.capabilities.fget
    assert capabilities is not None
    monkeypatch.setattr(SimEnvironment, "capabilities", property(lambda self: capabilities(self) - {"clock"}))
    honest.is_refused_without_clocks("sim", tmp_path / "store")


def test_a_disk_that_fills_up_under_the_store(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as store:
        honest.ran_out_of_room(honest.run("sim", store, "pause"))


def test_a_control_connection_that_is_cut_for_20_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be done to nodes from the first fault on, for 20 s: what was not undone then is undone later."""
    cut_ns: list[int] = []

    def cut_off(database: SimDatabase) -> bool:
        now_ns = database.admin_clock().monotonic_ns()
        return bool(cut_ns) and now_ns - cut_ns[0] < 20e9

    real = SimDatabase.kill, SimDatabase.start, SimDatabase.process_state

    async def kill(self: SimDatabase, node: str) -> None:
        await real[0](self, node)
        cut_ns.append(self.admin_clock().monotonic_ns())

    async def start(self: SimDatabase, node: str) -> None:
        if cut_off(self):
            raise HarnessError(f"SSH to {node} failed")
        await real[1](self, node)

    async def process_state(self: SimDatabase, node: str):  # type: ignore[no-untyped-def]
        if cut_off(self):
            raise HarnessError(f"SSH to {node} failed")
        return await real[2](self, node)

    monkeypatch.setattr(SimDatabase, "kill", kill)
    monkeypatch.setattr(SimDatabase, "start", start)
    monkeypatch.setattr(SimDatabase, "process_state", process_state)
    verdict = honest.run("sim", tmp_path, "kill", time_limit=30.0).verdict
    assert verdict.overall == "unknown", verdict.reasons
    assert verdict.safety.answer is True and verdict.harness.answer is False
    assert any("SSH to" in reason for reason in verdict.reasons), verdict.reasons
    assert verdict.why == "harness" and verdict.liveness.answer is not False, "the load may end before all is healed"


def test_cuts_that_vanish_end_the_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = SimEnvironment.cut

    async def vanishing(self: SimEnvironment, links: frozenset[tuple[str, str]]) -> None:
        await cut(self, links)
        for link in links:
            asyncio.get_running_loop().call_later(0.3, self._world.network.uncut, *link)

    monkeypatch.setattr(SimEnvironment, "cut", vanishing)
    verdict = honest.run("sim", tmp_path, "partition").verdict
    assert verdict.overall == "unknown", verdict.reasons
    assert any("the fault partition was in effect for" in reason for reason in verdict.reasons), verdict.reasons
    counts = verdict.adequacy.details["faults"]["partition"]
    assert counts["in_effect_s"] < 0.5 * counts["asked_s"]


@pytest.mark.parametrize(
    ("again", "nemesis"),
    [(True, "pause"), (False, "pause"), (False, "pause,kill(target=all)")],
    ids=["started-again", "left-dead", "left-dead-and-killed"],
)
def test_a_process_that_somebody_else_ends(
    again: bool, nemesis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stays away has not recovered, and no fault of ours has it start again; one that came back was a fault
    that nobody asked for, and harms nobody."""
    pause, kill, start = SimDatabase.pause, SimDatabase.kill, SimDatabase.start
    gone: list[str] = []

    async def pausing(self: SimDatabase, node: str) -> None:
        await pause(self, node)
        if not gone:
            gone.extend(each for each in ("t2", "t3") if each != node)
            await kill(self, gone[0])
            if again:
                await start(self, gone[0])

    monkeypatch.setattr(SimDatabase, "pause", pausing)
    verdict = honest.run("sim", tmp_path, nemesis).verdict
    assert verdict.safety.answer is True
    if again:
        assert verdict.overall == "valid", verdict.reasons
    else:
        assert verdict.overall == "invalid" and verdict.liveness.answer is False, verdict.reasons
        assert any(gone[0] in reason for reason in verdict.reasons), verdict.reasons
