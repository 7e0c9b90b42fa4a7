"""Runs over SSH on machines made by somebody else: hosts with one interface, which are as they were afterwards."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
import pytest

from assay.databases.etcd import PLUGIN as ETCD
from harness.env.docker.images import image_spec
from harness.env.docker.layers import ensure_node_image
from harness.env.docker.machines import labels_of
from tests.assay.command_line import Answer

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]

RUN_ID = f"hosts-{os.getpid()}"
"""Of these tests alone: what others that were killed left is in the engine under their own."""
NAMES = ("alpha", "beta", "gamma")
SSHD = """
mkdir -p /root/.ssh /run/sshd
rm -rf /etc/assay /var/lib/assay /run/assay /var/log/assay
cp /keys/authorized_keys /root/.ssh/
ssh-keygen -q -A
exec /usr/sbin/sshd -D -e -o PasswordAuthentication=no -o UsePAM=no -o StrictModes=no
"""
LOOK = r"""
while read -r kind path; do
    if [ -d "$path" ] && [ ! -L "$path" ]; then
        [ "$kind" = 0 ] || stat -c '%n/ %A %U:%G' "$path"
    else
        stat -c '%N %A %U:%G %s %Y' "$path" 2>/dev/null || echo "$path is gone"
    fi
done <<DIFFERS
$1
DIFFERS
find /dev/shm -printf '%p %M %u:%g %s\n'
iptables-nft -S; iptables-nft -t nat -S; cat /proc/net/ip_tables_names
tc qdisc; ip address; ip route
ps ax -o user=,args=
"""
"""Of what differs from the machine's image each file with its time and each new directory (others' times change when
something is made in them, and removed); rules, tables of the older kind, disciplines, addresses, processes. The look's
own are left out."""
OWN = re.compile(r"(root +sh -c|root +ps ax)")
KV = "kv/plugin.py"
PATIENCE_S = 10.0
"""For connections that ended: sshd notices, and ends what served them."""
RUN = ("register", "--on", "ssh", "--hosts", "hosts.toml", "--rate", "50", "--database")


@dataclass(slots=True)
class Hosts:
    """The machines, and the folder that the user works in."""

    folder: Path
    containers: dict[str, Any]

    def looks(self) -> dict[str, set[str]]:
        """What is there, line by line."""
        return {name: self._look(each) for name, each in self.containers.items()}

    def _look(self, container: Any) -> set[str]:
        differs = "".join(f"{each['Kind']} {each['Path']}\n" for each in container.diff() or ())
        told = container.exec_run(["sh", "-c", LOOK, "look", differs]).output.decode()
        return {line for line in told.splitlines() if not OWN.search(line)}

    def runs(self, words: str, name: str = NAMES[-1]) -> bool:
        """Whether a program runs on a machine that has these words."""
        return self.containers[name].exec_run(["pgrep", "-f", words]).exit_code == 0

    def unlike(self, before: dict[str, set[str]]) -> dict[str, set[str]]:
        """By what they differ from what was there before, once sshd has seen that the connections ended."""
        late_s = time.monotonic() + PATIENCE_S
        while any(self.runs("sshd: .*@", name) for name in NAMES) and time.monotonic() < late_s:
            time.sleep(0.2)
        return {name: differ for name, now in self.looks().items() if (differ := now ^ before[name])}

    def assay(self, *words: str, act: Callable[[subprocess.Popen[str]], None] | None = None) -> Answer:
        command = [sys.executable, "-m", "assay", *words]
        with subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            if act is not None:
                threading.Thread(target=act, args=[process], daemon=True).start()
            out, err = process.communicate()
        return Answer(process.returncode, out, err)


@pytest.fixture(scope="module")
def hosts(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two machines with sshd, a key of RSA and what the user knows of them."""
    folder = tmp_path_factory.mktemp("hosts")
    key = paramiko.RSAKey.generate(2048)
    key.write_private_key_file(str(folder / "key"))
    image = ensure_node_image(engine, image_spec(ETCD.packages), lambda _: None)
    labels = labels_of(RUN_ID)
    network = engine.networks.create(f"assay-{RUN_ID}", labels=labels)
    containers: dict[str, Any] = {}
    try:
        for name in NAMES:
            made = engine.containers.create(
                image, entrypoint=["sh", "-c", SSHD], cap_add=["NET_ADMIN"], network=network.name, labels=labels
            )
            containers[name] = made
            made.put_archive("/", archive("keys/authorized_keys", f"{key.get_name()} {key.get_base64()}\n"))
            made.start()
            made.reload()
        addresses = {
            n: c.attrs["NetworkSettings"]["Networks"][network.name]["IPAddress"] for n, c in containers.items()
        }
        known = [f"{address} {host_key(containers[name])}" for name, address in addresses.items()]
        (folder / "known").write_text("\n".join(known) + "\n")
        tables = [f'[[host]]\nname = "{name}"\naddress = "{address}"' for name, address in addresses.items()]
        (folder / "hosts.toml").write_text("\n".join(['key = "key"', 'known_hosts = "known"', *tables]) + "\n")
        found = Hosts(folder, containers)
        assert found.assay("new", "database", "kv").code == 0
        yield found
    finally:
        for each in containers.values():
            each.remove(force=True, v=True)
        network.remove()


def archive(path: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(path)
        entry.size, entry.mtime = len(text), int(time.time())
        tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def host_key(container: Any) -> str:
    """Its public key, once sshd has made it."""
    for _ in range(200):
        code, output = container.exec_run(["cat", "/etc/ssh/ssh_host_ed25519_key.pub"])
        if code == 0 and output.count(b" ") >= 1:
            return str(output.decode().rpartition(" ")[0])
        time.sleep(0.1)
    raise AssertionError(container.logs().decode())


@pytest.mark.parametrize(
    ("instead", "sentence"),
    [
        ({'key = "key"': 'key = "other"'}, "SSH to alpha .* was refused: Authentication failed"),
        ({'known_hosts = "known"': 'known_hosts = "changed"'}, "was refused: .*[Hh]ost key.* does not match"),
        ({'known_hosts = "known"': 'known_hosts = "nobody"'}, "was refused: its key .* is in no file of known hosts"),
        ({'key = "key"': 'key = "key"\nsudo = true'}, "sudo is refused to root: .*sudo.*: .*not found"),
        ({'key = "key"': 'key = "key"\nport = 23'}, "SSH to alpha .* failed: .*Unable to connect to port 23"),
    ],
)
def test_hosts_that_can_not_be_used_are_told_in_a_sentence(
    hosts: Hosts, instead: dict[str, str], sentence: str
) -> None:
    other = paramiko.ECDSAKey.generate(bits=256)
    other.write_private_key_file(str(hosts.folder / "other"))
    names = [line.split()[0] for line in (hosts.folder / "known").read_text().splitlines()]
    (hosts.folder / "changed").write_text("".join(f"{n} {other.get_name()} {other.get_base64()}\n" for n in names))
    (hosts.folder / "nobody").write_text("")
    text = (hosts.folder / "hosts.toml").read_text()
    for old, new in instead.items():
        text = text.replace(old, new)
    (hosts.folder / "wrong.toml").write_text(text)
    answer = hosts.assay("run", "register", "--on", "ssh", "--hosts", "wrong.toml", "--database", KV)
    assert answer.code == 254
    assert re.match(f"assay: Host alpha .* can't be used: .*{sentence}", answer.complaint), answer.complaint
    assert answer.complaint.count("\n") <= 1


def test_a_run_leaves_hosts_as_they_were_and_its_command_repeats_it(hosts: Hosts) -> None:
    before = hosts.looks()
    answer = hosts.assay("run", *RUN, "etcd", "--nemesis", "partition,kill", "--time-limit", "8", "--seed", "1")
    assert hosts.unlike(before) == {}
    assert "--hosts hosts.toml" in answer.out and " 0 observed in effect" not in answer.out, answer.out + answer.err
    if answer.code != 0 and "this machine is overloaded" in answer.out:
        pytest.skip("the hosts are as they were; what came late on an overloaded machine is no verdict")
    assert answer.code == 0, answer.out + answer.err


def test_what_a_killed_run_left_is_named_and_goes(hosts: Hosts) -> None:
    before = hosts.looks()

    def kill(process: subprocess.Popen[str]) -> None:
        while not hosts.runs("kv/store.py"):
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)

    assert hosts.assay("run", *RUN, KV, "--time-limit", "60", act=kill).code == -signal.SIGKILL
    assert hosts.looks() != before
    taken = hosts.assay("run", *RUN, KV, "--time-limit", "5")
    assert taken.code == 254 and "it is taken by run" in taken.complaint and "--clean` frees it" in taken.complaint
    freed = hosts.assay("doctor", "--hosts", "hosts.toml", "--clean")
    assert freed.code == 0 and freed.out.count("is removed.") == len(NAMES)
    assert hosts.unlike(before) == {}


def test_a_host_that_is_lost_ends_the_load_as_a_failure_of_the_harness(hosts: Hosts) -> None:
    lost = hosts.containers[NAMES[1]]

    def lose(process: subprocess.Popen[str]) -> None:
        while lost.exec_run(["sed", "-n", "20q1", "/var/lib/assay/kv/log"]).exit_code != 1:  # twenty writes
            time.sleep(0.2)
        lost.pause()

    try:
        answer = hosts.assay("run", *RUN, KV, "--time-limit", "600", "--recovery-budget", "2", act=lose)
        assert answer.code == 2 and "(harness)" in answer.out, answer.out + answer.err
        assert f"the load was ended: {NAMES[1]} is gone: " in answer.out
    finally:
        lost.unpause()
    assert hosts.assay("doctor", "--hosts", "hosts.toml", "--clean").code == 0
