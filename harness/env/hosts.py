"""Nodes on hosts that somebody has: `harness.protocols.Environment` over SSH, which leaves them as it found them.

A host is claimed by one run at a time: all that a run has there lies at `PLACES`, in processes with the variable of our
daemons, in chains and a queueing discipline of our own. None of it is there before, or the host is refused; all of it
goes by one command (`UNDO_COMMAND`), at the end of the run or by `assay doctor --hosts FILE --clean`.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.env.abilities import PROBE_COMMAND, NodeAbilities, capabilities_of, parse_abilities
from harness.env.daemon import OWNER_VARIABLE
from harness.env.firewall import REMOVE_COMMAND, interface_of
from harness.env.fleet_environment import FleetEnvironment
from harness.env.hosts_file import HostSpec
from harness.env.marks import Marks
from harness.env.ssh import Gone, SshFleet, SshHost, SshTarget
from harness.errors import HarnessError, UserError
from harness.ports.api import Clock
from harness.protocols import Node

PLACES: Final = ("/run/assay", "/etc/assay", "/var/lib/assay", "/var/log/assay")
"""The directories of a run on a host; its agents' files are in /tmp and /dev/shm, by its marks."""

OWNER_FILE: Final = "/run/assay/owner"
SHAPED_FILE: Final = "/run/assay/shaped"
"""Names the interface whose queueing discipline is ours."""

BASICS: Final = ("python3", "flock", "setsid", "pkill", "ip", "find", "grep")
INSTALL_COMMAND: Final = (
    "export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -q -y --no-install-recommends"
    " python3 util-linux procps iproute2 iptables faketime libfaketime"
)
INSTALL_TIMEOUT_S: Final = 600.0

TRY_S: Final = 90.0
"""A host that is busy is slow to start the dozen programs that are tried."""

CONNECT_S: Final = 15.0
LOST_S: Final = 15.0
"""A host whose sshd greets nobody for so long is lost."""
PING_S: Final = 3.0
CLOCK_LOOKS: Final = 5

UNREACHABLE: Final = frozenset({"packet-rate", "packet-clog", "packet-corruption"})
"""What would take SSH with it where that comes over the interface that faults act on."""

_LOOK_AT_HOST: Final = f"""
[ "$(id -u)" = 0 ] || {{ echo "commands run as $(id -un), not as root: say sudo = true"; exit 0; }}
missing=
for tool in {" ".join(BASICS)}; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
[ -z "$missing" ] || {{ echo "it lacks$missing"; exit 0; }}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || echo "its $(python3 -V) is older than 3.9"
"""

_CLAIMED: Final = f"""
[ -e {OWNER_FILE} ] && {{ cat {OWNER_FILE}; exit 0; }}
for place in {" ".join(PLACES)}; do [ ! -e "$place" ] || {{ echo "something that left $place"; exit 0; }}; done
"""

UNDO_COMMAND: Final = f"""
ours() {{ grep -lszF -e {OWNER_VARIABLE}= /proc/[0-9]*/environ | sed 's,/proc/,,; s,/environ,,'; }}
left=250
while pids=$(ours); [ -n "$pids" ] && [ $left -gt 0 ]; do
    kill -9 $pids 2>/dev/null
    left=$((left - 1))
    sleep 0.02
done
[ -z "$pids" ] || {{ echo "processes $pids do not end" >&2; exit 1; }}
pkill -9 -f '[/]tmp/assay-.*-agent.py'
( {REMOVE_COMMAND} ) || exit 1
if read -r interface 2>/dev/null <{SHAPED_FILE}; then
    case $(tc qdisc show dev "$interface" root | awk '{{ print $2; exit }}') in
        tbf | netem) tc qdisc del dev "$interface" root || exit 1 ;;
    esac
fi
rm -rf {" ".join(PLACES)} /tmp/[a]ssay-*-agent.py /dev/shm/assay-*
""".strip()
"""Its own text must not have what it ends processes by."""


def target_of(host: HostSpec) -> SshTarget:
    """How to log in to a host."""
    return SshTarget(
        host.address, host.user, host.port, key_file=host.key, known_hosts=host.known_hosts, sudo=host.sudo
    )


class SshEnvironment(FleetEnvironment):
    """Hosts, one for each node, named by it; the harness's machine reaches both of their addresses."""

    name = "ssh"

    def __init__(self, clock: Clock, hosts: Sequence[HostSpec], report: Callable[[str], None] = lambda _: None) -> None:
        self.run_id = secrets.token_hex(4)
        super().__init__(clock, Marks(f"-{self.run_id}"))
        self._hosts = {host.name: host for host in hosts}
        self._addresses = {host.name: host.data_address for host in hosts}
        self._marks_at: dict[str, Marks] = {}
        self._silent_since: dict[str, float] = {}
        self._boots: dict[str, str] = {}
        self._claimed: set[str] = set()
        self._report = report
        self._ready_fleet(self._lost, with_clocks=False)

    @property
    def capabilities(self) -> frozenset[str]:
        """What every host bears, once they were tried (`prepare`)."""
        if self._abilities is None:
            return frozenset()
        shared = any(marks.ssh_port is not None for marks in self._marks_at.values())
        return capabilities_of(self._abilities, volumes=False) - (UNREACHABLE if shared else frozenset())

    def marks_at(self, node: str) -> Marks:
        return self._marks_at.get(node, self._marks)

    async def prepare(self, install: bool = False) -> None:
        """Log in everywhere, and see what each host bears; with `install` what it lacks is installed first.

        Nothing else is changed. Raises UserError, one sentence for the first host that can't be used.
        """
        names = list(self._hosts)
        found = await asyncio.gather(*(self._try_host(name, install) for name in names), return_exceptions=True)
        for name, each in zip(names, found, strict=True):
            if isinstance(each, HarnessError):
                raise UserError(f"Host {self._hosts[name].where} can't be used: {each}.") from each
            if isinstance(each, BaseException):
                raise each
        abilities = dict(zip(names, (each for each in found if isinstance(each, NodeAbilities)), strict=True))
        self._abilities = common_abilities(abilities)

    async def _try_host(self, name: str, install: bool) -> NodeAbilities:
        host = self._hosts[name]
        await self.fleet.add(name, target_of(host), lambda each: each.connect(CONNECT_S))
        if host.sudo:
            result = await self.fleet.on(name, lambda each: each.run("true"))
            if result.status != 0:
                raise HarnessError(f"sudo is refused to {host.user}: {_last_line(result.stderr)}")
        if install:
            self._report(f"installing what {name} lacks")
            await self.fleet.check(name, INSTALL_COMMAND, timeout_s=INSTALL_TIMEOUT_S)
        if lacking := (await self.fleet.check(name, _LOOK_AT_HOST)).strip():
            raise HarnessError(f"{lacking} (--install installs tools, on Debian)" if "lacks" in lacking else lacking)
        await self.fleet.check(name, interface_of(host.data_address))
        if claimed := (await self.fleet.check(name, _CLAIMED)).strip():
            raise HarnessError(f"it is taken by {claimed}; `assay doctor --hosts FILE --clean` frees it")
        if await self._is_shared(name):
            self._marks_at[name] = replace(self._marks, ssh_port=host.port)
        self._boots[name] = await self._boot(name)
        return await self._abilities_of(name)

    async def _abilities_of(self, name: str) -> NodeAbilities:
        """In a network namespace of its own where root may make one, so that nothing of the host is touched."""
        quoted = shlex.quote(PROBE_COMMAND)
        tried = f"if unshare -n true 2>/dev/null; then unshare -n sh -c {quoted}; else sh -c {quoted}; fi"
        result = await self.fleet.on(name, lambda host: host.run(tried, timeout_s=TRY_S))
        if result.status != 0:
            return NodeAbilities("", frozenset(), {"iptables": _last_line(result.stderr)})
        found = parse_abilities(result.text)
        kind = await self.fleet.check(name, f"{self._interface(name)}\n{_QDISC_KIND}")
        if kind.strip() in ("tbf", "netem"):
            reason = f"its queueing discipline is {kind.strip()} already"
            lacks = {**found.lacks, "netem": reason, "tbf": reason}
            return NodeAbilities(found.iptables, found.works - {"netem", "tbf"}, lacks)
        return found

    async def _is_shared(self, name: str) -> bool:
        """Whether SSH comes over the interface that faults act on, by the address that sshd was reached at."""
        own = await self.fleet.on(name, lambda host: host.run_as_user('echo "$SSH_CONNECTION"'))
        words = own.text.split()
        if len(words) != 4 or ":" in words[2]:
            return True
        control = await self.fleet.check(name, f'({interface_of(words[2])}\necho "$interface") 2>/dev/null || true')
        data = await self.fleet.check(name, f'{self._interface(name)}\necho "$interface"')
        return control.strip() in ("", data.strip())

    def _interface(self, name: str) -> str:
        return interface_of(self.data_address(name))

    async def _boot(self, name: str) -> str:
        return (await self.fleet.check(name, "cat /proc/sys/kernel/random/boot_id")).strip()

    async def setup(self, nodes: tuple[Node, ...]) -> None:
        """Claim the hosts, and prepare firewall and agents; raises UserError for nodes that are no hosts."""
        names = [node.name for node in nodes]
        if unknown := [name for name in names if name not in self._boots]:
            raise UserError(f"There is no host for the node {unknown[0]}.")
        self._addresses = {name: self._hosts[name].data_address for name in names}
        if "clock" in self.capabilities:
            self._ready_clocks()
        await asyncio.gather(*(self._claim(name) for name in names))
        for name in names:
            await self.fleet.on(name, self._prepare_host)
        if self._clocks is not None:
            for name in names:
                self._clocks.ahead_ns[name] = await self._ahead_ns(name)

    async def _claim(self, name: str) -> None:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        owner = f"run {self.run_id} of {socket.gethostname()}, since {since}"
        shaped = f"{self._interface(name)}\n{_QDISC_KIND}" if "packets" in self.capabilities else "echo"
        noted = f'echo "$interface" >{SHAPED_FILE}' if "packets" in self.capabilities else "true"
        taken = f"mkdir {PLACES[0]} 2>/dev/null || {{ echo 'another run was faster' >&2; exit 1; }}"
        await self.fleet.check(name, f"set -e\n{taken}\necho {shlex.quote(owner)} >{OWNER_FILE}\n{shaped}\n{noted}")
        self._claimed.add(name)

    async def _ahead_ns(self, name: str) -> int:
        """How far the host's wall clock is ahead of this machine's: by the quickest of some questions."""
        best = (float("inf"), 0)
        for _ in range(CLOCK_LOOKS):
            before = time.time_ns()
            told = int(await self.fleet.check(name, "date +%s%N"))
            after = time.time_ns()
            best = min(best, (after - before, told - (before + after) // 2))
        return best[1]

    def _lost(self, name: str) -> Gone | None:
        """Whether the host's sshd has greeted nobody for `LOST_S`; blocking. That a connection is taken tells nothing:
        the kernel takes it for a process that is stopped."""
        host = self._hosts[name]
        try:
            with socket.create_connection((host.address, host.port), PING_S) as greeted:
                greeted.recv(1)
                self._silent_since.pop(name, None)
                return None
        except OSError as error:
            now = time.monotonic()
            silent_s = now - self._silent_since.setdefault(name, now)
            if silent_s < LOST_S:
                return None
            return Gone(f"{host.address}:{host.port} has not answered for {silent_s:.0f} s ({error})")

    async def disturbed(self) -> tuple[str, ...]:
        """`harness.protocols.Inspected`: hosts that are lost, and those that were started anew."""
        found = await asyncio.gather(*(self._disturbance(name) for name in sorted(self._claimed)))
        return tuple(sentence for sentence in found if sentence)

    async def _disturbance(self, name: str) -> str:
        gone = await asyncio.to_thread(self._lost, name)
        if gone is not None:
            return f"{name} is gone: {gone.why}"
        if name in self._silent_since:
            return ""
        try:
            anew = await self._boot(name) != self._boots[name]
        except HarnessError:
            return ""  # it is lost, or will answer the next time
        return f"{name} is gone: it was started anew" if anew else ""

    async def teardown(self) -> None:
        """Leave every host as it was found. Raises HarnessError that names those where that can't be done."""
        claimed, self._claimed = sorted(self._claimed), set()
        if self._clocks is not None:
            self._clocks.close()
        if self._probe is not None:
            self._probe.close()
        found = await asyncio.gather(
            *(self.fleet.check(name, UNDO_COMMAND) for name in claimed), return_exceptions=True
        )
        self._close_fleet()
        failures = [f"{name}: {each}" for name, each in zip(claimed, found, strict=True) if isinstance(each, Exception)]
        if failures:
            left = "; ".join(failures)
            raise HarnessError(f"hosts are not as they were ({left}); `assay doctor --hosts FILE --clean` tries again")


_QDISC_KIND: Final = """tc qdisc show dev "$interface" root 2>/dev/null | awk '{ print $2; exit }'"""


def common_abilities(hosts: Mapping[str, NodeAbilities]) -> NodeAbilities:
    """What all of them bear; what some lack is told by the first that does."""
    works = frozenset[str].intersection(*(each.works for each in hosts.values()))
    lacks: dict[str, str] = {}
    for name, each in hosts.items():
        for what, why in each.lacks.items():
            lacks.setdefault(what, f"{name}: {why}")
    iptables = "" if any(not each.iptables for each in hosts.values()) else "iptables"
    return NodeAbilities(iptables, works if iptables else works - {"statistic"}, lacks)


def _last_line(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or ["no word"])[-1]


# ---- hosts that are looked at, or freed ----


async def clean_hosts(hosts: Sequence[HostSpec]) -> dict[str, str | HarnessError]:
    """Undo on each host whatever runs left there; by name what came of it."""

    def undo(host: SshHost) -> str:
        host.connect(CONNECT_S)
        owner = host.run(_CLAIMED).text.strip()
        host.check(UNDO_COMMAND)
        return f"what was left by {owner} is removed" if owner else "nothing was left"

    fleet = SshFleet()
    try:
        for each in hosts:
            await fleet.add(each.name, target_of(each), lambda host: None)
        found = await asyncio.gather(*(fleet.on(each.name, undo) for each in hosts), return_exceptions=True)
    finally:
        fleet.close()
    if other := next((each for each in found if not isinstance(each, str | HarnessError)), None):
        raise other
    return {each.name: told for each, told in zip(hosts, found, strict=True) if isinstance(told, str | HarnessError)}
