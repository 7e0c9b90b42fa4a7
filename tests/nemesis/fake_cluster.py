"""A small stand-in for a database on an environment: three masters and four tservers, or five and six.

Faults may fail to bite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.errors import HarnessError
from harness.ports.failpoints import SYNC, Action, Failpoint
from harness.ports.machines import CLIENTS, Impairment, ProbeFlow, ProcessState, Skew
from harness.protocols import Client, Damage, DamageKind, DiskState, Emptying, GroupStatus, Node, NodeStatus
from harness.verdict.leaderships import Leaderships
from nemesis.kinds.packets import DRAWS

NODES = tuple(Node(f"m{i}", "master", f"z{i}") for i in (1, 2, 3)) + tuple(
    Node(f"t{i}", "tserver", f"z{(i - 1) % 3 + 1}") for i in (1, 2, 3, 4)
)
TURNS = 10
"""The turns of the loop in which everybody has done what needs no time."""

PACKETS = frozenset(needs for needs, _ in DRAWS.values())
GROUPS = {"catalog": ("m1", "m2", "m3"), "tablet": ("t1", "t2", "t3")}
LEARNERS = {"t4": "tablet"}

WIDE_NODES = tuple(
    Node(f"{role[0]}{i}", role, f"z{i}") for role, count in (("master", 5), ("tserver", 6)) for i in range(1, count + 1)
)
WIDE_GROUPS = {"catalog": ("m1", "m2", "m3", "m4", "m5"), "tablet": ("t1", "t2", "t3", "t5", "t6")}
"""Groups of five, and the same learner."""


class FakeClock:
    """Time that moves only when everybody sleeps, to where the first of them wakes."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self._due_ns: list[int] = []

    def wall_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def times_ns(self) -> tuple[int, int]:
        return self.now_ns, self.now_ns

    async def sleep(self, seconds: float) -> None:
        due_ns = self.now_ns + int(seconds * 1e9)
        self._due_ns.append(due_ns)
        try:
            while (before_ns := self.now_ns) < due_ns:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                if due_ns == min(self._due_ns) and self.now_ns == before_ns:
                    self.now_ns = due_ns
        finally:
            self._due_ns.remove(due_ns)
        await asyncio.sleep(0)


@dataclass
class FakeEnvironment:
    """A network of links; `failing` makes cut or heal raise, `leaky` links never get cut, `left_behind` stay so.

    `stuck_clocks` go on as they went when they were stuck, `sturdy` links carry what is sent whatever is asked of them.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    name: str = "fake"
    capabilities: frozenset[str] = (
        frozenset({"partition", "client-cut", "full-disk", "clock", "client-clocks", "packets"}) | PACKETS
    )
    skews: dict[str, tuple[Skew, int]] = field(default_factory=dict)
    stuck_clocks: set[str] = field(default_factory=set)
    client_skews: dict[str, int] = field(default_factory=dict)
    impaired: dict[tuple[str, str], Impairment] = field(default_factory=dict)
    sturdy: bool = False
    links_cut: set[tuple[str, str]] = field(default_factory=set)
    leaky: bool = False
    left_behind: set[tuple[str, str]] = field(default_factory=set)
    nodes: tuple[Node, ...] = NODES
    failing: set[str] = field(default_factory=set)
    heals: int = 0

    async def setup(self, nodes: tuple[Node, ...]) -> None: ...

    @property
    def client_machines(self) -> tuple[str, ...]:
        return ("c0", "c1")

    async def skew_client_clock(self, machine: str, skew: Skew | None) -> None:
        self.client_skews[machine] = 0 if skew is None else skew.offset_ns

    async def client_offset_ns(self, machine: str) -> int:
        return self.client_skews.get(machine, 0)

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
        names = [*(node.name for node in self.nodes), CLIENTS]
        return {(a, b): (a, b) not in self.links_cut for a in names for b in names if a != b}

    async def skew_clock(self, node: str, skew: Skew | None) -> None:
        self.skews.pop(node, None)
        if skew is not None:
            self.skews[node] = (skew, self.clock.now_ns)

    def due_offset_ns(self, node: str) -> int:
        skew, since_ns = self.skews.get(node, (Skew(), 0))
        return skew.after(self.clock.now_ns - since_ns)

    def wall_ns(self, node: str) -> int:
        """What the node's program sees."""
        return self.clock.now_ns + (0 if node in self.stuck_clocks else self.due_offset_ns(node))

    async def impair(self, links: Mapping[tuple[str, str], Impairment]) -> None:
        self.impaired = dict(links)

    async def flows(
        self, links: Iterable[tuple[str, str]], count: int, size: int, over_s: float
    ) -> Mapping[tuple[str, str], ProbeFlow]:
        await self.clock.sleep(over_s)
        return {link: self._flow(link, count, size, over_s) for link in links}

    def _flow(self, link: tuple[str, str], count: int, size: int, over_s: float) -> ProbeFlow:
        bad = Impairment() if self.sturdy else self.impaired.get(link, Impairment())
        sent = tuple(over_s * number / count for number in range(count))
        rate = bad.rate_bytes_per_s
        lost = 1.0 if bad.clogged or link in self.links_cut else bad.loss + bad.corruption
        late = [bad.delay_s + bad.jitter_s * (number % 10) / 10 for number in range(count)]
        late = [each + bad.reorder * (number % 3) / 10 for number, each in enumerate(late)]
        slow = [0.0 if rate is None else size * number / rate for number in range(count)]
        arrived = tuple(
            None if number < lost * count else sent[number] + 0.001 + late[number] + slow[number]
            for number in range(count)
        )
        whole = sum(at_s is not None for at_s in arrived)
        return ProbeFlow(sent, arrived, whole + int(bad.duplication * whole), size)

    async def teardown(self) -> None: ...


@dataclass
class FakeDatabase:
    """Processes with incarnations; each group is led by its first running voter, in a term that rises as it changes.

    With `renames` a node whose disk was wiped comes back as another server; only masters can be replaced.
    Nodes that are to be held stop as soon as they are told to, but for the last voter of the group that still runs.
    `passing` are the failpoints that each node passes (None: all); nobody passes the `lonely_points`. `written` are the
    groups that clients write to.
    """

    name: str = "fake"
    nodes: tuple[Node, ...] = NODES
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: GROUPS)
    written: frozenset[str] | None = None
    capabilities: frozenset[str] = frozenset(
        {
            *("kill", "stop", "pause", "status", "failpoint", "flood", "membership", "disk", "zones"),
            *("foreign-cluster", "master-membership", "leadership", "lasting-tablets"),
            *("replaceable-masters", "replaceable-voters", "terms", "masters", "leaderships", "written-groups"),
            *("wall-clock", "held-message", "reads-anywhere", "policies", "decommission"),
        }
    )
    wall_ns: Callable[[str], int] = lambda _: 0
    operations: frozenset[str] = frozenset({"r", "w"})
    held: list[str] = field(default_factory=list)
    states: dict[str, ProcessState] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    leaders: dict[str, tuple[str, int]] = field(default_factory=dict)
    immortal: set[str] = field(default_factory=set)
    unkillable: set[str] = field(default_factory=set)
    unstartable: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    disks: dict[str, DiskState] = field(default_factory=dict)
    acts: dict[tuple[str, str], int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    leaderships: Leaderships = field(default_factory=Leaderships)
    now_ns: Callable[[], int] = lambda: 0
    turn: int | None = None
    policy: str = "ahead"
    leaving: set[str] = field(default_factory=set)
    headless: bool = False
    servers: dict[str, str] = field(default_factory=dict)
    masters: tuple[str, ...] = ()
    strangers: set[str] = field(default_factory=set)
    renames: bool = False
    deleted: set[str] = field(default_factory=set)
    lonely_points: tuple[str, ...] = ()
    passing: dict[str, set[str]] | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        self.states = dict.fromkeys(names, ProcessState.RUNNING)
        self.incarnations = dict.fromkeys(names, 1)
        self.servers = {name: name for name in names}
        self.masters = self.groups["catalog"]

    async def install(self) -> None: ...

    def facts(self) -> Mapping[str, Any]:
        return {}

    async def first_start(self) -> None: ...

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
        return (
            Failpoint("before_vote", "", "a vote is granted"),
            Failpoint("after_vote", "tserver", "it is durable"),
            *(Failpoint(name, "", "nobody comes here") for name in self.lonely_points),
        )

    @property
    def protocols(self) -> Mapping[str, Sequence[str]]:
        return {"voting": ("before_vote", "after_vote")}

    async def relocate(self, turn: int) -> None:
        self.turn = turn

    async def wants_turn(self) -> int | None:
        return self.turn

    async def astray(self) -> tuple[str, ...]:
        return ()

    @property
    def policies(self) -> tuple[str, ...]:
        return ("ahead", "behind", "behind:5")

    async def alter_policy(self, policy: str) -> None:
        self.policy = policy

    async def policies_in_force(self) -> dict[str, list[str]]:
        return {"t1": [self.policy]}

    async def decommission(self, server: str, leaving: bool, timeout_s: float) -> str | None:
        if self.headless:
            return "this master does not lead"
        (self.leaving.add if leaving else self.leaving.discard)(server)
        return None

    async def left_on(self, server: str) -> Emptying | None:
        return Emptying(server in self.leaving, 1)

    @property
    def side_point(self) -> str:
        return "before_closing"

    @property
    def side_kind(self) -> str:
        return "closed"

    async def hold_message(self, source: str, target: str, kind: str) -> int:
        self.calls.append(f"hold {kind} {source} {target}")
        self.held.append(kind)
        return len(self.held) - 1

    async def held_bytes(self, hold: int) -> int:
        return len(self.held[hold])

    async def release_message(self, hold: int) -> None:
        self.held[hold] = ""

    async def arm(
        self, node: str, point: str, action: Action, group: str = "", times: int = 1, seconds: float = 0.0
    ) -> bool:
        self.calls.append(f"arm {node} {point} {action}")
        if point == SYNC:
            self.disks[node] = (
                DiskState(1e3 * seconds, True, False) if action == "delay" else DiskState(1e6, False, False)
            )
            return True
        if not group:
            if self.passing is not None and point not in self.passing.get(node, ()):
                return True
            self.acts[node, point] = self.acts.get((node, point), 0) + 1
            self.states[node] = ProcessState.DEAD if action == "crash" else self.states[node]
            return True
        if action == "hang":
            self.acts[node, point] = self.acts.get((node, point), 0) + (self.states[node] is ProcessState.RUNNING)
            return True
        others = [name for name in self.groups[group] if name != node and self.states[name] is ProcessState.RUNNING]
        if self.states[node] is ProcessState.RUNNING and others:
            self.states[node] = ProcessState.PAUSED
        return self.states[node] is not ProcessState.DEAD

    async def disarm(self, node: str, point: str = "") -> None:
        self.calls.append(f"disarm {node} {point}")
        self.disks.pop(node, None)
        await self.resume(node)

    async def passed(self, node: str, seconds: float) -> Mapping[str, int]:
        await self.sleep(seconds)
        known = {point.name for point in self.failpoints}
        return dict.fromkeys(known if self.passing is None else self.passing.get(node, ()), 1)

    async def acted(self, node: str) -> Mapping[str, int]:
        return {point: count for (name, point), count in self.acts.items() if name == node}

    async def probe_disk(self, node: str) -> DiskState | None:
        return self.disks.get(node, DiskState(1.0, True, False))

    async def fill_disk(self, node: str) -> None:
        self.disks[node] = DiskState(1.0, True, True)

    async def free_disk(self, node: str) -> None:
        self.disks.pop(node, None)

    async def wipe(self, node: str) -> None:
        self.calls.append(f"wipe {node}")
        if self.renames:
            self.servers[node] = f"{node}.{self.incarnations[node]}"

    async def damage(self, node: str, kind: DamageKind, seed: int) -> tuple[Damage, str] | None:
        return Damage(kind, "log", seed), "00 became 01"

    async def read_back(self, node: str, damage: Damage | None) -> str:
        return "" if damage is None else "01"

    async def server_id(self, node: str) -> str | None:
        return self.servers[node]

    async def supplant(self, nodes: Sequence[str]) -> None:
        self.strangers |= set(nodes)

    async def restore_place(self, node: str) -> None:
        self.strangers.discard(node)

    async def stranger_status(self, node: str) -> NodeStatus | None:
        if node not in self.strangers:
            return None
        alone = GroupStatus("catalog", "leader", 1, ("other",), "other", 1, 1, 1, 1, True)
        return NodeStatus(node, "master", 1, (alone,))

    async def change_masters(self, add: str | None, remove: str | None, timeout_s: float) -> str | None:
        added = () if add is None or self.servers[add] in self.masters else (self.servers[add],)
        self.masters = tuple(each for each in (*self.masters, *added) if each != remove)
        return None

    async def transfer_leadership(self, leader: str, group: str, target: str, timeout_s: float) -> str | None:
        self.calls.append(f"let {target} lead {group}")
        known, term = self.leaders[group]
        if known != leader:
            return "not-the-leader: this replica does not lead the group"
        self._leads(group, target.partition(".")[0], term + 1)
        return None

    async def written_groups(self) -> frozenset[str] | None:
        return self.written

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
        held = [group for group, voters in self.groups.items() if node in voters and group not in self.deleted]
        groups = tuple(self._replica(group, node) for group in held)
        if node in LEARNERS and LEARNERS[node] not in self.deleted:
            groups = (replace(self._replica(LEARNERS[node], node), role="learner", lease_valid=False),)
        role = next(n.role for n in self.nodes if n.name == node)
        details = {"server_id": self.servers[node]}
        return NodeStatus(node, role, self.incarnations[node], groups, self.wall_ns(node), details)

    def _replica(self, group: str, node: str) -> GroupStatus:
        running = [name for name in self.groups[group] if self.states[name] is ProcessState.RUNNING]
        leader, term = self.leaders.get(group, ("", 0))
        if leader not in running and running:
            leader, term = running[0], term + 1
            self._leads(group, leader, term)
        voters = self.masters if group == "catalog" else self.groups[group]
        follower = GroupStatus(group, "follower", term, voters, leader, 9, 9, 9, term, False, lease_sequence=term)
        return replace(follower, role="leader", lease_valid=True) if node == leader else follower

    def depose(self, group: str) -> None:
        """The next voter in line leads from now on, in a new term."""
        leader, term = self.leaders[group]
        voters = self.groups[group]
        self._leads(group, voters[(voters.index(leader) + 1) % len(voters)], term + 1)

    def _leads(self, group: str, leader: str, term: int) -> None:
        self.leaders[group] = (leader, term)
        self.leaderships.leads(group, term, leader, self.now_ns())

    async def await_ready(self, timeout_s: float) -> None: ...

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None: ...

    async def open_client(self, process: int, timeout_s: float) -> Client:
        raise HarnessError("the fake has no clients")

    async def collect_logs(self) -> Mapping[str, bytes]:
        return {}

    async def teardown(self) -> None: ...
