"""A standalone Spark cluster whose machines are network and mount namespaces: a master and workers that see neither
this project, nor its environment, nor anybody's home, and of the histories only what the test lends them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyspark

from checkers.engines.session import check_java
from tests.support.patience import Limit

TOOLS = ("ip", "unshare", "mount")
PORT = 7077
_NOT_THERE = {Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix), Path.home(), Path("/tmp")}
HIDDEN = sorted(place for place in _NOT_THERE - {Path("/usr")} if not _NOT_THERE.intersection(place.parents))
"""What machines of the cluster do not see."""


@cache
def lacks() -> str | None:
    """Why no such cluster can be had here, or None."""
    if os.geteuid() != 0:
        return "namespaces take the rights of root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"there is no {missing[0]}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", _TRIAL], capture_output=True, text=True, check=False
    )
    return f"this machine makes no namespaces ({tried.stderr.strip()})" if tried.returncode else None


_TRIAL = "mount -t tmpfs none /tmp && ip link add bridge type bridge && ip link add one type veth peer name other"


@dataclass
class Machine:
    """A namespace with one process of Spark's, and whatever that starts."""

    name: str
    address: str
    log: Path
    process: subprocess.Popen[bytes] | None = None
    cpuinfo: Path | None = None
    """What Linux says there of the processor, if not the truth."""

    def pids(self) -> list[str]:
        """Of all that runs there."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        return listed.stdout.split()

    def kill(self) -> None:
        """Kill all that runs there, at once."""
        for pid in self.pids():
            try:
                os.kill(int(pid), 9)
            except ProcessLookupError:
                continue
        if self.process is not None:
            self.process.wait()
            self.process = None


@dataclass
class Cluster:
    """`lent` is the directory that all see by the same path; `work` is where workers keep executors' logs. A worker
    gives its executor `memory_mib`, of which half is the heap of its JVM."""

    number: int
    home: Path
    lent: Path
    memory_mib: int = 1024
    machines: dict[str, Machine] = field(default_factory=dict)

    @property
    def switch(self) -> str:
        return f"assay{self.number}-switch"

    @property
    def kept(self) -> Path:
        """Where machines mount what they see; on this one an empty directory."""
        return Path(f"/run/assay{self.number}")

    @property
    def gateway(self) -> str:
        return f"10.213.{self.number}.1"

    @property
    def master(self) -> str:
        return f"spark://{self.machines['master'].address}:{PORT}"

    @property
    def work(self) -> Path:
        return self.home / "work"

    def settings(self) -> tuple[tuple[str, str], ...]:
        """What a driver on this machine has to tell Spark."""
        return (
            ("spark.driver.host", self.gateway),
            ("spark.executor.memory", f"{self.memory_mib // 2}m"),
            ("spark.driver.memory", "512m"),
        )

    def start(self, role: str) -> Machine:
        """A new machine that runs the master, or else a worker."""
        place = len(self.machines) + 2
        name, address = f"assay{self.number}-{role}", f"10.213.{self.number}.{place}"
        self.machines[role] = Machine(name, address, self.home / f"{role}.log")
        _run("ip", "netns", "add", name)
        self.wire(f"port{place}", address, name)
        return self.boot(role)

    def boot(self, role: str) -> Machine:
        """Begin what runs on a machine that is there, and on which nothing runs."""
        machine = self.machines[role]
        with machine.log.open("wb") as log:
            command = [
                "ip",
                "netns",
                "exec",
                machine.name,
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
            ]
            script = self._script(role, machine)
            machine.process = subprocess.Popen(
                [*command, script], stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
            )
        return machine

    def await_ready(self, role: str) -> None:
        """Until the machine takes part in the cluster."""
        said = "I have been elected leader" if role == "master" else "Successfully registered with master"
        _await(self.machines[role].log, said)

    def lay_out(self) -> None:
        """A switch in a namespace of its own, where the rules of this machine's firewall do not apply; and our wire."""
        _run("ip", "netns", "add", self.switch)
        _run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self.switch, "link", "set", "bridge", "up")
        self.wire("port1", self.gateway, None)

    def wire(self, port: str, address: str, namespace: str | None) -> None:
        """Connect a namespace (None: this machine) to the switch."""
        inside, into = f"assay{self.number}p", [] if namespace is None else ["-n", namespace]
        _run(
            "ip",
            "-n",
            self.switch,
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            inside,
            "netns",
            namespace or "1",
        )
        _run("ip", "-n", self.switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", *into, "addr", "add", f"{address}/24", "dev", inside)
        for name in [inside] if namespace is None else [inside, "lo"]:
            _run("ip", *into, "link", "set", name, "up")

    def _script(self, role: str, machine: Machine) -> str:
        """Hides what a machine of a cluster would not have, and becomes a process of Spark's."""
        address = machine.address
        kept, spark = self.kept, Path(pyspark.__file__).parent
        lines = [
            "set -e",
            f"mkdir -p {kept}; mount -t tmpfs none {kept}; mkdir {kept}/spark {kept}/lent {kept}/work",
            f"mount --bind {spark} {kept}/spark; mount --bind {self.lent} {kept}/lent",
            f"mount --bind {self.work} {kept}/work",
            *([f"mount --bind {machine.cpuinfo} /proc/cpuinfo"] if machine.cpuinfo else []),
            *(f"mount -t tmpfs none {place}" for place in HIDDEN if place.exists()),
            f"mkdir -p {self.lent}; mount --bind {kept}/lent {self.lent}",
        ]
        spark_class = f"{kept}/spark/bin/spark-class org.apache.spark.deploy."
        if role == "master":
            what = f"{spark_class}master.Master --host {address} --port {PORT} --webui-port 0"
        else:
            size = f"--cores 1 --memory {self.memory_mib}m --work-dir {kept}/work --webui-port 0"
            what = f"{spark_class}worker.Worker {size} --host {address} {self.master}"
        java = check_java().resolve().parents[1]
        lines.append(
            f"cd {kept}; exec env -i PATH=/usr/bin:/bin JAVA_HOME={java} SPARK_HOME={kept}/spark "
            f"SPARK_DAEMON_MEMORY=256m SPARK_LOCAL_IP={address} HOME=/nonexistent {what}"
        )
        return "\n".join(lines)

    def compilations(self) -> list[str]:
        """What executors said that they compile, in the order of their logs."""
        logs = sorted(self.work.glob("*/*/stderr"))
        return [line for log in logs for line in _text(log).splitlines() if line.startswith("assay compiles")]

    def executors(self) -> int:
        """How many executors run."""
        return self.processes("CoarseGrainedExecutorBackend")

    def processes(self, word: str) -> int:
        """How many processes with this word in their command run."""
        commands = (
            _text(Path("/proc", pid, "cmdline")) for machine in self.machines.values() for pid in machine.pids()
        )
        return sum(word in command for command in commands)

    def stop(self) -> None:
        for machine in self.machines.values():
            machine.kill()
            _run("ip", "netns", "del", machine.name)
        _run("ip", "netns", "del", self.switch)
        with suppress(OSError):
            self.kept.rmdir()


@contextmanager
def standalone_cluster(home: Path, workers: int = 2, memory_mib: int = 1024) -> Iterator[Cluster]:
    """A master and `workers` of one core each, removed with the context."""
    cluster = Cluster(_free_number(), home, home / "lent", memory_mib)
    cluster.lent.mkdir()
    cluster.work.mkdir()
    try:
        cluster.lay_out()
        cluster.start("master")
        cluster.await_ready("master")
        for each in range(workers):
            cluster.start(f"worker{each}")
        for each in range(workers):
            cluster.await_ready(f"worker{each}")
        yield cluster
    finally:
        cluster.stop()


def _free_number() -> int:
    """One that no cluster of this machine has, be it one that runs or what is left of one that was killed."""
    names = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    taken = {int(number) for number in re.findall(r"^assay(\d+)-", names, re.MULTILINE)}
    first = os.getpid()
    return next(number for turn in range(250) if (number := (first + turn) % 250 + 1) not in taken)


def _await(log: Path, sentence: str) -> None:
    limit = Limit(120)
    while sentence not in log.read_text(errors="replace"):
        assert limit.left_s() > 0, f"not said in {log}: {sentence}\n{log.read_text(errors='replace')[-3000:]}"
        time.sleep(0.1)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # the process ended meanwhile
        return ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
