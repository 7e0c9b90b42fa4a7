"""What must not be passed over, in containers; `tests/assay/test_honest_runs.py` has the same in the simulator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.deploy.database_ssh import SshDatabase
from harness.env import clocks
from harness.env.docker import environment as environments
from harness.env.docker.abilities import PROBE_COMMAND
from harness.env.docker.engine import RUN_LABEL
from harness.ops import Op
from tests import honest_runs as honest
from tests.docker.test_docker_behind_our_back import Somebody
from tests.mounts import small_disk

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

CUT_S = 20.0
VACUOUS_S = 5.0
"""The load goes on for three times as long, for what was asked for is never seen."""

LIBRARY = "$(find /usr/lib -name 'libfaketime*.so.1')"
NO_LIBRARY = f"rm -f {LIBRARY}\n"


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Any) -> Iterator[None]:
    """Of every run here all containers, networks and volumes go."""

    def ours() -> set[str]:
        filters = {"label": RUN_LABEL}
        found = (*engine.containers.list(all=True, filters=filters), *engine.networks.list(filters=filters))
        return {each.name for each in found} | {each.name for each in engine.volumes.list(filters=filters)}

    before = ours()
    yield
    assert ours() <= before


def test_a_nemesis_that_does_nothing(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.without_hands(monkeypatch)
    honest.is_vacuous(honest.run("docker", tmp_path, time_limit=VACUOUS_S))


def test_a_client_that_never_succeeds(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.with_clients(monkeypatch, honest.Hopeless)
    honest.serves_nobody(honest.run("docker", tmp_path, "none", time_limit=4.0))


def test_a_client_that_says_fail_for_a_timeout(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.with_clients(monkeypatch, honest.Liar)
    honest.is_refuted(honest.run("docker", tmp_path, "none", time_limit=6.0))


def test_a_teardown_that_raises(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest.with_a_failing_teardown(monkeypatch, SshDatabase)
    honest.lost_only_the_teardown(honest.run("docker", tmp_path, "none", time_limit=6.0))


def test_a_control_connection_that_is_cut_for_20_seconds(engine: Any, tmp_path: Path) -> None:
    """Connections to the node's sshd are reset: what was not undone meanwhile is undone over new ones."""

    def cut_off(somebody: Somebody) -> None:
        somebody.iptables("t1", "-I INPUT -p tcp --dport 22 -j REJECT --reject-with tcp-reset")
        threading.Timer(CUT_S, somebody.iptables, ["t1", "-D INPUT 1"]).start()

    def meddle(somebody: Somebody, stage: str, op: Op | None) -> None:
        if op is not None and op.process < 0 and op.type == "info" and not cut:
            cut.append(True)
            threading.Thread(target=cut_off, args=[somebody]).start()

    cut: list[bool] = []
    outcome = honest.run("docker", tmp_path, "pause", Somebody(engine, meddle), time_limit=30.0)
    verdict = outcome.verdict
    assert verdict.overall == "unknown", verdict.reasons
    assert verdict.safety.answer is True and verdict.harness.answer is False
    assert any("t1" in reason and "SSH" in reason for reason in verdict.reasons), verdict.reasons
    assert verdict.liveness.answer is True, "it was healed over a new connection"
    assert verdict.aftermath == ()


def test_a_clock_that_will_not_move(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hand on each node answers, and the clock that the programs read stays."""
    agent = tmp_path / "agent.py"
    agent.write_text(clocks.AGENT_SOURCE.read_text().replace("os.replace(new, path)", "os.remove(new)"))
    monkeypatch.setattr(clocks, "AGENT_SOURCE", agent)
    honest.is_vacuous(honest.run("docker", tmp_path / "store", "clock-jump", time_limit=VACUOUS_S))


def test_libfaketime_is_missing_in_the_image(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused in a sentence before anything starts."""
    monkeypatch.setattr(environments, "PROBE_COMMAND", NO_LIBRARY + PROBE_COMMAND)
    honest.is_refused_without_clocks("docker", tmp_path / "store")


def test_libfaketime_vanishes_from_the_nodes(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs start without it, so that no clock moves: what was asked for was never seen."""
    install = SshDatabase.install

    async def without_library(self: SshDatabase) -> None:
        await install(self)
        for node in self.nodes:
            await self._command(node.name, NO_LIBRARY)

    monkeypatch.setattr(SshDatabase, "install", without_library)
    honest.is_vacuous(honest.run("docker", tmp_path, "clock-jump", time_limit=VACUOUS_S))


def test_a_disk_that_fills_up_under_the_store(engine: Any, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "8m") as store:
        honest.ran_out_of_room(honest.run("docker", store, "pause", honest.FillsUp(store)))
