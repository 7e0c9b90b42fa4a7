"""The file of hosts, and what of several hosts can be used on all."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from harness.env import firewall, shaping
from harness.env.abilities import NodeAbilities
from harness.env.hosts import SshEnvironment, common_abilities
from harness.env.hosts_file import HostSpec, read_hosts
from harness.env.marks import Marks
from harness.env.ssh import SshTarget
from harness.errors import UserError
from harness.ports.real.ports import RealClock

A = '[[host]]\nname = "a"\naddress = "10.0.0.1"\n'


def test_what_stands_before_the_hosts_holds_for_those_that_say_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    file = tmp_path / "hosts.toml"
    file.write_text(f'user = "qa"\nsudo = true\nkey = "key"\n{A}[[host]]\nname = "b"\naddress = "b.lan"\n'
                    'data_address = "10.1.0.2"\nuser = "root"\nsudo = false\nport = 2222\n')  # fmt: skip
    key = tmp_path / "key"
    assert read_hosts(file) == (
        HostSpec(name="a", address="10.0.0.1", data_address="10.0.0.1", user="qa", sudo=True, key=key),
        HostSpec(name="b", address="b.lan", data_address="10.1.0.2", port=2222, key=key),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no hosts"),
        ("[[host", "is no file of hosts"),
        (A + "prot = 22\n", "unknown field `prot`"),
        (A + 'port = "22"\n', "Expected `int`"),
        (A + "port = 0\n", "the port of a is 0"),
        (A + A, "two hosts with the name a"),
        (A + A.replace('"a"', '"b"'), "two hosts with the data_address 10.0.0.1"),
        (A.replace("10.0.0.1", "b.lan"), "'b.lan' is none"),
        (A.replace('"a"', '"a b"'), "'a b' is no name of a host"),
        (A + 'key = "nowhere"\n', "a has no key at"),
        (A + 'known_hosts = "nowhere"\n', "a has no known_hosts at"),
    ],
)
def test_a_file_that_says_too_little_or_too_much(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(text)
    with pytest.raises(UserError) as refused:
        read_hosts(file)
    assert words in str(refused.value)


def test_all_hosts_bear_what_each_of_them_does(tmp_path: Path) -> None:
    able = NodeAbilities("iptables-nft", frozenset({"statistic", "netem"}), {})
    lacking = NodeAbilities("iptables-nft", frozenset({"statistic"}), {"netem": "no module"})
    closed = NodeAbilities("", frozenset(), {"iptables": "denied"})
    assert common_abilities({"a": able, "b": lacking}) == NodeAbilities(
        "iptables", frozenset({"statistic"}), {"netem": "b: no module"}
    )
    assert common_abilities({"a": able, "b": closed}) == NodeAbilities("", frozenset(), {"iptables": "b: denied"})


def test_marks_name_the_run_and_spare_ssh_where_it_shares_the_interface() -> None:
    alone, shared = Marks("-00c0ffee"), Marks("-00c0ffee", ssh_port=2222)
    for command in (firewall.install_command("10.0.0.1", alone), shaping.lose_command({}, "10.0.0.1", alone)):
        assert "-00c0ffee" in command and "RETURN" not in command
    cut = firewall.cut_command(firewall.Dropped(["10.0.0.2"], ["10.0.0.3"]), shared)
    for rule, after in (("--dport 2222 -j RETURN", "-s 10.0.0.2/32"), ("--sport 2222 -j RETURN", "-d 10.0.0.3/32")):
        assert cut.index(rule) < cut.index(after)
    assert "--dport 2222 -j RETURN" in shaping.lose_command({"10.0.0.2": 0.5}, "10.0.0.1", shared)
    assert alone.probe_port != Marks().probe_port


def test_sudo_asks_for_no_password() -> None:
    assert SshTarget("a", sudo=True).as_root("echo 'x'") == """sudo -n sh -c 'echo '"'"'x'"'"''"""
    assert SshTarget("a").as_root("true") == "true"


@pytest.mark.parametrize(("greeting", "lost"), [(b"SSH-2.0-x\r\n", False), (b"", True)])
def test_a_host_that_takes_connections_and_greets_nobody_is_lost(
    greeting: bytes, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose processes are stopped: its kernel goes on."""
    monkeypatch.setattr("harness.env.hosts.PING_S", 0.05)
    monkeypatch.setattr("harness.env.hosts.LOST_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        spec = HostSpec(name="a", address="127.0.0.1", port=server.getsockname()[1])
        environment = SshEnvironment(RealClock(), [spec])
        if greeting:
            threading.Thread(target=lambda: server.accept()[0].sendall(greeting), daemon=True).start()
        assert (environment._lost("a") is not None) is lost
