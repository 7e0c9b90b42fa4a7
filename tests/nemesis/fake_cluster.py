"""A small stand-in for a database on an environment: three masters, four tservers, faults that may fail to bite."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import HarnessError
from harness.failpoints import SYNC, Action
from harness.protocols import (
    CLIENTS,
    Client,
    Damage,
    DamageKind,
    DiskState,
    Failpoint,
    GroupStatus,
    Node,
    NodeStatus,
    ProcessState,
)

NODES = tuple(Node(f"m{i}", "master") for i in (1, 2, 3)) + tuple(Node(f"t{i}", "tserver") for i in (1, 2, 3, 4))
GROUPS = {"catalog": ("m1", "m2", "m3"), "tablet": ("t1", "t2", "t3")}


class FakeClock:
    """Time that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)
        await asyncio.sleep(0)


@dataclass
class FakeEnvironment:
    """A network of links; `failing` makes cut or heal raise, `leaky` links never get cut, `left_behind` stay so."""

    clock: FakeClock = field(default_factory=FakeClock)
    name: str = "fake"
    capabilities: frozenset[str] = frozenset({"partition", "client-cut", "full-disk"})
    links_cut: set[tuple[str, str]] = field(default_factory=set)
    leaky: bool = False
    left_behind: set[tuple[str, str]] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    heals: int = 0

    @property
    def client_machines(self) -> tuple[str, ...]:
        return ()

    async def setup(self, nodes: tuple[Node, ...]) -> None: ...

    async def cut(self, links: frozenset[tuple[str, str]]) -> None:
        if not self.leaky:
            self.links_cut = set(links) | self.left_behind
        if "cut" in self.failing:
            raise HarnessError("cut failed half-way")

    async def heal_network(self) -> None:
        if "heal" in self.failing:
            raise HarnessError("heal failed")
        self.heals += 1
        self.links_cut = set(self.left_behind)

    async def reachability(self) -> Mapping[tuple[str, str], bool]:
        names = [*(node.name for node in NODES), CLIENTS]
        return {(a, b): (a, b) not in self.links_cut for a in names for b in names if a != b}

    async def teardown(self) -> None: ...


@dataclass
class FakeDatabase:
    """Processes with incarnations; each group is led by its first running voter, in a term that rises as it changes.

    Nodes that are to be held stop as soon as they are told to, but for the last voter of the group that still runs.
    """

    name: str = "fake"
    nodes: tuple[Node, ...] = NODES
    capabilities: frozenset[str] = frozenset(
        {"kill", "stop", "pause", "status", "failpoint", "flood", "membership", "disk"}
    )
    operations: frozenset[str] = frozenset({"r", "w"})
    states: dict[str, ProcessState] = field(default_factory=lambda: {node.name: ProcessState.RUNNING for node in NODES})
    incarnations: dict[str, int] = field(default_factory=lambda: {node.name: 1 for node in NODES})
    leaders: dict[str, tuple[str, int]] = field(default_factory=dict)
    immortal: set[str] = field(default_factory=set)
    unkillable: set[str] = field(default_factory=set)
    unstartable: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    disks: dict[str, DiskState] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    async def install(self) -> None: ...

    async def start(self, node: str) -> None:
        self.calls.append(f"start {node}")
        if node in self.unstartable:
            raise HarnessError(f"{node} does not start")
        if self.states[node] is ProcessState.DEAD:
            self.states[node] = ProcessState.RUNNING
            self.incarnations[node] += 1

    async def stop(self, node: str) -> None:
        await self.kill(node)

    async def kill(self, node: str) -> None:
        self.calls.append(f"kill {node}")
        if node in self.unkillable:
            raise HarnessError(f"{node} can't be reached")
        if node not in self.immortal:
            self.states[node] = ProcessState.DEAD

    async def pause(self, node: str) -> None:
        self.calls.append(f"pause {node}")
        self.states[node] = ProcessState.PAUSED

    async def resume(self, node: str) -> None:
        self.calls.append(f"resume {node}")
        if self.states[node] is ProcessState.PAUSED:
            self.states[node] = ProcessState.RUNNING

    @property
    def failpoints(self) -> tuple[Failpoint, ...]:
        return (Failpoint("before_vote", "", "a vote is granted"),)

    async def arm(
        self, node: str, point: str, action: Action, group: str = "", times: int = 1, seconds: float = 0.0
    ) -> bool:
        self.calls.append(f"arm {node} {point} {action}")
        if point == SYNC:
            self.disks[node] = (
                DiskState(1e3 * seconds, True, False) if action == "delay" else DiskState(1e6, False, False)
            )
            return True
        others = [name for name in GROUPS[group] if name != node and self.states[name] is ProcessState.RUNNING]
        if self.states[node] is ProcessState.RUNNING and others:
            self.states[node] = ProcessState.PAUSED
        return self.states[node] is not ProcessState.DEAD

    async def disarm(self, node: str, point: str = "") -> None:
        self.calls.append(f"disarm {node} {point}")
        self.disks.pop(node, None)
        await self.resume(node)

    async def acted(self, node: str) -> Mapping[str, int]:
        return {}

    async def probe_disk(self, node: str) -> DiskState | None:
        return self.disks.get(node, DiskState(1.0, True, False))

    async def fill_disk(self, node: str) -> None:
        self.disks[node] = DiskState(1.0, True, True)

    async def free_disk(self, node: str) -> None:
        self.disks.pop(node, None)

    async def wipe(self, node: str) -> None:
        self.calls.append(f"wipe {node}")

    async def damage(self, node: str, kind: DamageKind, seed: int) -> tuple[Damage, str] | None:
        return None

    async def server_id(self, node: str) -> str | None:
        return node

    async def flood(self, node: str, group: str, writes: int) -> bool:
        self.calls.append(f"flood {node} {writes}")
        return True

    async def change_replicas(
        self, leader: str, group: str, change: str, server: str, expected: tuple[int, int], timeout_s: float
    ) -> str | None:
        self.calls.append(f"{change} {server}")
        return "this fake changes nothing"

    async def process_state(self, node: str) -> ProcessState:
        return self.states[node]

    async def status(self, node: str) -> NodeStatus | None:
        if self.states[node] is not ProcessState.RUNNING or node in self.mute:
            return None
        groups = tuple(self._replica(group, node) for group, voters in GROUPS.items() if node in voters)
        role = next(n.role for n in NODES if n.name == node)
        return NodeStatus(node, role, self.incarnations[node], groups)

    def _replica(self, group: str, node: str) -> GroupStatus:
        running = [name for name in GROUPS[group] if self.states[name] is ProcessState.RUNNING]
        leader, term = self.leaders.get(group, ("", 0))
        if leader not in running:
            leader, term = running[0], term + 1
            self.leaders[group] = (leader, term)
        follower = GroupStatus(group, "follower", term, leader, 9, 9, 9, term, False, GROUPS[group])
        return replace(follower, role="leader", lease_valid=True) if node == leader else follower

    def depose(self, group: str) -> None:
        """The next voter in line leads from now on, in a new term."""
        leader, term = self.leaders[group]
        voters = GROUPS[group]
        self.leaders[group] = (voters[(voters.index(leader) + 1) % len(voters)], term + 1)

    async def await_ready(self, timeout_s: float) -> None: ...

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None: ...

    async def open_client(self, process: int, timeout_s: float) -> Client:
        raise HarnessError("the fake has no clients")

    async def collect_logs(self) -> Mapping[str, bytes]:
        return {}

    async def teardown(self) -> None: ...
