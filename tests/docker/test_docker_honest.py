"""What must not be passed over, in containers; `tests/assay/test_honest_runs.py` has the same in the simulator.

There each has a run of its own. Here, where a run takes real time, some share one: what each does to the verdict is
looked for beside what the others do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.deploy.database_ssh import SshDatabase
from harness.env import clocks
from harness.env.abilities import PROBE_COMMAND
from harness.env.docker import environment as environments
from harness.env.docker.environment import DockerEnvironment
from harness.history.ops import Op
from nemesis.faults import Kill
from tests import honest_runs as honest
from tests.docker.conftest import made_by
from tests.docker.test_docker_behind_our_back import Somebody
from tests.mounts import small_disk

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

CUT_S = 20.0
VACUOUS_S = 4.0
OUTLASTING_S = 10.0
"""The load goes on for three times as long where what was asked for is never seen: this outlasts what is cut."""

LIBRARY = "$(find /usr/lib -name 'libfaketime*.so.1')"
NO_LIBRARY = f"rm -f {LIBRARY}\n"


@pytest.fixture(autouse=True)
def nothing_is_left(engine: Any) -> Iterator[None]:
    """Of every run here all containers, networks and volumes go."""
    before = made_by(engine)
    yield
    assert made_by(engine) <= before


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy one nothing that takes too long is held against the database."""
    monkeypatch.setattr(DockerEnvironment, "overload", lambda self: None)


def test_a_lost_connection_a_nemesis_that_does_nothing_and_a_teardown_that_raises(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections to a node's sshd are reset for 20 seconds: what was not undone then is undone over new ones."""

    def cut_off(somebody: Somebody) -> None:
        somebody.iptables("t1", "-I INPUT -p tcp --dport 22 -j REJECT --reject-with tcp-reset")
        threading.Timer(CUT_S, somebody.iptables, ["t1", "-D INPUT 1 || :"]).start()  # the end may have undone it

    def meddle(somebody: Somebody, stage: str, op: Op | None) -> None:
        if op is not None and op.process < 0 and op.type == "info" and not cut:
            cut.append(True)
            threading.Thread(target=cut_off, args=[somebody]).start()

    cut: list[bool] = []
    honest.without_hands(monkeypatch, Kill)
    honest.with_a_failing_teardown(monkeypatch, SshDatabase)
    outcome = honest.run("docker", tmp_path, "pause,kill", Somebody(engine, meddle), time_limit=OUTLASTING_S)
    verdict = outcome.verdict
    assert verdict.safety.answer is True and verdict.harness.answer is False, verdict.reasons
    assert any("t1" in reason and "SSH" in reason for reason in verdict.reasons), verdict.reasons
    assert verdict.liveness.answer is not False, "the load may end before there is a new connection"
    honest.never_saw(outcome, "kill")
    honest.is_unknown_only_for(outcome, "kill")
    honest.lost_only_the_teardown(outcome, "unknown")


def test_a_client_that_says_fail_for_a_timeout_where_libfaketime_vanishes_from_the_nodes(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs start without it, so that no clock moves: what was asked for was never seen."""
    install = SshDatabase.install

    async def without_library(self: SshDatabase) -> None:
        await install(self)
        for node in self.nodes:
            await self._command(node.name, NO_LIBRARY)

    monkeypatch.setattr(SshDatabase, "install", without_library)
    honest.with_clients(monkeypatch, honest.Liar)
    outcome = honest.run("docker", tmp_path, "clock-jump", time_limit=VACUOUS_S)
    honest.is_refuted(outcome)
    honest.never_saw(outcome, "clock-jump")
    honest.is_unknown_only_for(outcome, "clock-jump")


def test_a_client_that_never_succeeds_while_clocks_will_not_move(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hand on each node answers, and the clock that the programs read stays."""
    agent = tmp_path / "agent.py"
    agent.write_text(clocks.AGENT_SOURCE.read_text().replace("os.replace(new, path)", "os.remove(new)"))
    monkeypatch.setattr(clocks, "AGENT_SOURCE", agent)
    honest.with_clients(monkeypatch, honest.Hopeless)
    outcome = honest.run("docker", tmp_path / "store", "clock-jump", time_limit=4.0, recovery_budget=4.0)
    honest.serves_nobody(outcome)
    honest.never_saw(outcome, "clock-jump")


def test_libfaketime_is_missing_in_the_image(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused in a sentence before anything starts."""
    monkeypatch.setattr(environments, "PROBE_COMMAND", NO_LIBRARY + PROBE_COMMAND)
    honest.is_refused_without_clocks("docker", tmp_path / "store")


def test_a_disk_that_fills_up_under_the_store(engine: Any, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "8m") as store:
        honest.ran_out_of_room(honest.run("docker", store, "pause", honest.FillsUp(store), time_limit=6.0))
