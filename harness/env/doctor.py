"""What this machine can do: facts that are probed, and plain sentences that are made of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.env.abilities import NodeAbilities
from harness.env.docker.engine import connect_engine, engine_failures
from harness.env.docker.environment import DockerEnvironment, probe_node
from harness.env.docker.images import can_make_base, image_is_built, image_spec
from harness.env.docker.leftovers import Leftovers, Removed, clean_leftovers, find_leftovers
from harness.errors import HarnessError, UserError
from harness.history.cores import usable_cores
from harness.ports.api import Clock

WANTED_JAVA = 17
WANTED_CORES = 2
WANTED_MEMORY_GIB = 4.0


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """A Docker engine that answers: its version, whether the node image is there or can be had, and what nodes can do.

    `base` is empty if a base image can be made here, else why not. `node` is None if none was tried or could be
    started; `node_error` then says what went wrong, if something did.
    """

    version: str
    image_built: bool
    base: str = ""
    node: NodeAbilities | None = None
    node_error: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What was seen of the machine; `java` is the first line of `java -version`, empty without Java."""

    cores: int
    memory_gib: float
    java: str
    engine: EngineFacts | None
    engine_error: str = ""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that works or is lacking, in a plain sentence that says what to do about a lack."""

    subject: str
    ok: bool
    sentence: str


# ---- sentences ----


def findings(facts: MachineFacts) -> tuple[DoctorFinding, ...]:
    """Everything that was found, in a fixed order."""
    return (_cores(facts), _memory(facts), _java(facts.java), *_docker(facts))


def java_major(version_line: str) -> int | None:
    """The feature release in a line such as `openjdk version "17.0.9"`; `1.8.0` is 8."""
    match = re.search(r'"(\d+)(?:\.(\d+))?', version_line)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major


def _cores(facts: MachineFacts) -> DoctorFinding:
    ok = facts.cores >= WANTED_CORES
    advice = "" if ok else f"; with fewer than {WANTED_CORES}, expect containers to be slow and use `--on sim`"
    return DoctorFinding("cores", ok, f"{_counted(facts.cores, 'core')} can be used{advice}.")


def _memory(facts: MachineFacts) -> DoctorFinding:
    ok = facts.memory_gib >= WANTED_MEMORY_GIB
    advice = "" if ok else f"; large checks on Spark want {WANTED_MEMORY_GIB:g} GiB, so judge with `--engine local`"
    return DoctorFinding("memory", ok, f"{facts.memory_gib:.1f} GiB of memory{advice}.")


def _java(version_line: str) -> DoctorFinding:
    major = java_major(version_line)
    if major is None:
        return DoctorFinding(
            "java",
            False,
            f"Java was not found: install a Java {WANTED_JAVA} runtime or later (or set JAVA_HOME) for checks on Spark;"
            " `--engine local` needs none.",
        )
    if major < WANTED_JAVA:
        advice = f"Spark needs {WANTED_JAVA} or later: install it or set JAVA_HOME; `--engine local` needs none"
        return DoctorFinding("java", False, f"Java {major} is too old, {advice}.")
    return DoctorFinding("java", True, f"Java {major} runs Spark.")


def _docker(facts: MachineFacts) -> tuple[DoctorFinding, ...]:
    engine = facts.engine
    if engine is None:
        return (DoctorFinding("docker", False, f"{facts.engine_error}."),)
    found = (DoctorFinding("docker", True, f"The Docker engine {engine.version} answers."), _image(engine))
    if engine.node is not None:
        return (*found, *_node(engine.node))
    if engine.node_error:
        sentence = f"A node in a container could not be tried: {engine.node_error}."
    else:
        sentence = "What faults nodes can take is tried once the node image is there (`assay doctor --build` makes it)."
    return (*found, DoctorFinding("nodes", False, sentence))


def _image(engine: EngineFacts) -> DoctorFinding:
    if engine.image_built:
        return DoctorFinding("image", True, "The node image is built.")
    if engine.base:
        return DoctorFinding(
            "image", False, f"The node image is not built; without a registry it can't be: {engine.base}."
        )
    return DoctorFinding("image", True, "The node image is made at the first run on Docker, in about a minute.")


def _node(node: NodeAbilities) -> tuple[DoctorFinding, ...]:
    ssh = DoctorFinding("ssh", True, "Nodes are reached over SSH.")
    partitions = DoctorFinding("partitions", True, f"Nodes have NET_ADMIN and {node.iptables}: partitions work.")
    return (ssh, partitions, *(_ability(node, name) for name in ABILITIES))


ABILITIES = {
    "netem": (
        "tc netem works: packets can be delayed, duplicated, reordered and corrupted.",
        "delay, duplication, reordering and corruption of packets need the kernel's sch_netem module; load it, or do"
        " these faults in the simulator, which has them all",
    ),
    "statistic": (
        "iptables' statistic match works: packets can be lost at random.",
        "random loss of packets needs the kernel's xt_statistic module; load it, or use the simulator",
    ),
    "tbf": (
        "tc tbf works: a node's rate can be limited.",
        "rate limits need the kernel's sch_tbf module; load it, or use the simulator",
    ),
    "faketime": (
        "libfaketime works: the wall clock of one node's program can be skewed, the host's never moves.",
        "clock skew needs libfaketime in the node image; use a base image whose Debian release has it",
    ),
}
"""For each ability the sentence when it works, and what to do when it does not."""


def _ability(node: NodeAbilities, name: str) -> DoctorFinding:
    works, advice = ABILITIES[name]
    if name in node.works:
        return DoctorFinding(name, True, works)
    reason = node.lacks.get(name) or "no reason given"
    return DoctorFinding(name, False, f"{name} does not work here ({reason.rstrip('.')}): {advice}.")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# ---- probes ----


async def examine(clock: Clock, build_image: bool = False) -> MachineFacts:
    """Probe this machine; a node is tried in a container if its image is there or may be built. Never raises."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = usable_cores()
    try:
        client = connect_engine()
    except UserError as error:
        return MachineFacts(cores, memory_gib, _java_version_line(), None, str(error))
    try:
        engine = await _examine_engine(client, clock, build_image)
    finally:
        client.close()
    return MachineFacts(cores, memory_gib, _java_version_line(), engine)


async def _examine_engine(client: Any, clock: Clock, build_image: bool) -> EngineFacts:
    version, built, base = "of unknown version", False, can_make_base()
    try:
        with engine_failures("telling its version and images"):
            version = str(client.version().get("Version", version))
            built = image_is_built(client, image_spec())
        if not (built or build_image):
            return EngineFacts(version, False, base)
        return EngineFacts(version, True, base, await probe_node(DockerEnvironment(clock)))
    except (UserError, HarnessError) as error:
        return EngineFacts(version, built, base, None, str(error))


def _java_version_line() -> str:
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    if java is None:
        return ""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line for line in (done.stderr + done.stdout).splitlines() if "version" in line]
    return lines[0] if lines else ""


def leftovers() -> str | None:
    """What runs left in the engine whose harness is gone, in words; None where there is nothing. Raises UserError if no
    engine answers and HarnessError if it fails."""
    client = connect_engine()
    try:
        left = find_leftovers(client)
    finally:
        client.close()
    return f"{_things(left)} of {_counted(len(left.runs), 'run')} whose harness is gone" if left.runs else None


def clean() -> tuple[str, ...]:
    """Remove what crashed runs left in the engine; what was done, and what could not be, in sentences.

    Images are kept. Raises UserError if no engine answers and HarnessError if it fails.
    """
    client = connect_engine()
    try:
        removed = clean_leftovers(client)
    finally:
        client.close()
    done = f"Removed {_things(removed)} of {_counted(removed.runs, 'run')} whose harness is gone."
    saved = (f"Saved the logs of {_counted(removed.logs, 'node')} with their runs.",) if removed.logs else ()
    return (done, *saved, *(f"Left behind: {failure}." for failure in removed.failures))


def _things(these: Leftovers | Removed) -> str:
    others = f"{_counted(these.volumes, 'volume')} and {_counted(these.networks, 'network')}"
    return f"{_counted(these.containers, 'container')}, {others}"
