"""Faults on nodes in containers, each seen from inside the nodes and seen to be gone afterwards."""

from __future__ import annotations

import asyncio

import pytest

from harness.env import daemon
from harness.env.docker.environment import DockerEnvironment
from harness.errors import HarnessError
from harness.ports.machines import CLIENTS, Daemon, ProcessState

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

Link = tuple[str, str]

STUB = Daemon("stub", ("python3", "-c", "import time\nwhile True: time.sleep(1)"))


def cut_links(runner: asyncio.Runner, environment: DockerEnvironment) -> set[Link]:
    matrix = runner.run(environment.reachability())
    assert len(matrix) == (12 if any(CLIENTS in link for link in matrix) else 6)
    return {link for link, arrives in matrix.items() if not arrives}


def stub_state(runner: asyncio.Runner, environment: DockerEnvironment) -> ProcessState:
    return runner.run(environment.process_state("t1", STUB))


def test_commands_run_on_the_named_node(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    answers = runner.run(environment.fleet.check_each(dict.fromkeys(("t1", "t2", "t3"), "hostname")))
    assert {name: answer.strip() for name, answer in answers.items()} == {"t1": "t1", "t2": "t2", "t3": "t3"}


def test_a_failing_command_is_our_failure_and_says_why(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    with pytest.raises(HarnessError, match=r"t2.*ended with 3.*no such thing"):
        runner.run(environment.fleet.check("t2", "echo no such thing >&2; exit 3"))


def test_a_one_way_cut_is_seen_one_way_and_healed(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    assert cut_links(runner, environment) == set()
    runner.run(environment.cut(frozenset({("t1", "t2")})))
    assert cut_links(runner, environment) == {("t1", "t2")}
    runner.run(environment.cut(frozenset({("t3", "t2"), ("t2", "t3")})))
    assert cut_links(runner, environment) == {("t3", "t2"), ("t2", "t3")}
    runner.run(environment.heal_network())
    assert cut_links(runner, environment) == set()


def test_clients_are_cut_off_from_a_node_one_way_and_healed(
    runner: asyncio.Runner, environment: DockerEnvironment
) -> None:
    runner.run(environment.cut(frozenset({("t1", CLIENTS)})))
    assert cut_links(runner, environment) == {("t1", CLIENTS)}
    runner.run(environment.cut(frozenset({(CLIENTS, "t2")})))
    assert cut_links(runner, environment) == {(CLIENTS, "t2")}
    runner.run(environment.heal_network())
    assert cut_links(runner, environment) == set()


def test_healing_leaves_rules_that_are_not_ours(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    fleet = environment.fleet
    runner.run(fleet.check("t1", "iptables -A INPUT -p udp --dport 9 -j DROP"))
    runner.run(environment.cut(frozenset({("t2", "t1")})))
    runner.run(environment.heal_network())
    rules = runner.run(fleet.check("t1", "iptables -S; iptables -D INPUT -p udp --dport 9 -j DROP"))
    assert "--dport 9 -j DROP" in rules
    assert "-s " not in rules


def test_ssh_reaches_a_node_that_is_cut_off_from_all(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    links = frozenset({("t1", "t2"), ("t1", "t3"), ("t2", "t1"), ("t3", "t1")})
    runner.run(environment.cut(links))
    try:
        assert runner.run(environment.fleet.check("t1", "echo here")) == "here\n"
        assert cut_links(runner, environment) == links
    finally:
        runner.run(environment.heal_network())


def test_kill_pause_and_resume_are_seen(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    def do(command: str) -> str:
        return runner.run(environment.fleet.check("t1", command))

    assert stub_state(runner, environment) is ProcessState.DEAD
    pid = do(daemon.start_command(STUB))
    assert do(daemon.start_command(STUB)) == pid
    assert stub_state(runner, environment) is ProcessState.RUNNING
    do(daemon.pause_command(STUB))
    assert stub_state(runner, environment) is ProcessState.PAUSED
    do(daemon.resume_command(STUB))
    assert stub_state(runner, environment) is ProcessState.RUNNING
    do(daemon.pause_command(STUB))
    do(daemon.kill_command(STUB))
    assert stub_state(runner, environment) is ProcessState.DEAD
    assert do(daemon.start_command(STUB)) != pid
    do(daemon.stop_command(STUB))
    assert stub_state(runner, environment) is ProcessState.DEAD


def test_a_killed_program_leaves_disk_and_cuts_as_they_are(
    runner: asyncio.Runner, environment: DockerEnvironment
) -> None:
    fleet = environment.fleet
    runner.run(fleet.check("t1", daemon.start_command(STUB)))
    runner.run(fleet.upload("t1", "/var/lib/assay/kept", b"bytes"))
    runner.run(environment.cut(frozenset({("t2", "t1")})))
    runner.run(fleet.check("t1", daemon.kill_command(STUB)))
    assert runner.run(fleet.check("t1", "cat /var/lib/assay/kept")) == "bytes"
    assert cut_links(runner, environment) == {("t2", "t1")}
    runner.run(environment.heal_network())


def test_a_dead_probe_agent_is_replaced(runner: asyncio.Runner, environment: DockerEnvironment) -> None:
    runner.run(environment.fleet.check("t2", "pkill -9 -f assay-probe-agent.py"))
    assert cut_links(runner, environment) == set()
