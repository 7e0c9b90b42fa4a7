"""What the reference cluster is to the harness wherever it runs: the shared part of its `Database`."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, ClassVar

from cluster.client import operating
from cluster.client.client import ClusterClient, MakeChange
from cluster.deploy.adapter import (
    DATABASE_NAME,
    DEFAULT_BUCKETS,
    OPERATIONS,
    POLICIES,
    REGISTER_TABLE,
    REPLICATION_FACTOR,
    ROWS_WORKLOADS,
    ClusterOpClient,
    create_registers,
    everywhere,
    node_status,
)
from cluster.deploy.layout import MASTER_ROLE, TSERVER_ROLE, is_foreign, own_status
from cluster.deploy.message_kinds import SIDE
from cluster.deploy.partitions import (
    QUORUM_OPERATIONS,
    QUORUM_WORKLOADS,
    QuorumOpClient,
    RunTimestamps,
    create_partitions,
)
from cluster.deploy.readiness import await_ready
from cluster.deploy.row_ops import COLUMNS
from cluster.deploy.timed_reads import GLOBAL_WORKLOADS, TIMED_WORKLOADS, ClientPlace
from cluster.failpoints import ASIDE, FAILPOINTS, PROTOCOLS, name_at
from cluster.health.check import ClusterReport, look
from cluster.inspection import PROBE_PATH
from cluster.knobs import Knobs
from cluster.log.node import ASIDE_PATH
from cluster.log.segments import parse_path
from cluster.log.snapshots import SNAPSHOTS_PATH
from cluster.raft.types import ChangeKind, Member
from cluster.ranges.policies import LAG
from cluster.store.clock_guard import ClockLimits
from cluster.store.schema import encode_key
from cluster.wire.catalog import GLOBAL
from cluster.wire.messages import (
    CATALOG_GROUP,
    ArmedReply,
    ArmFailpoint,
    ChangeReplicas,
    ConfigurationReply,
    Regional,
    Request,
    RequestId,
    TabletLocation,
    WriteCell,
)
from cluster.wire.rows import ChangeRow
from harness.capabilities import Capability
from harness.errors import DefiniteError, HarnessError, IndefiniteError
from harness.ports.api import Clock, Ports, node_of
from harness.ports.failpoints import ANY, Action, Failpoint
from harness.ports.machines import ProcessState
from harness.protocols import (
    Client,
    Damage,
    DamageKind,
    DiskState,
    Emptying,
    Examination,
    Node,
    NodeStatus,
    Tuning,
    start_all,
)

# ---- damage ----
# What of a dead node's files can be damaged: synced data whose loss the node notices, and redundancy repairs (G7). A
# bit may flip in any file. Files are cut short where that is told from a crash: snapshots, and segments of the log
# that are not its last. The end of that one can not be, for what is missing there may never have been
# (`docs/design/log.md`). Where there is nothing else, the second copy in a small file is cut short
# (`cluster.log.envelope.twice`).


_NOT_READ = (f"{ASIDE_PATH}/", PROBE_PATH)
"""Nobody reads these."""


def choose_damage(kind: DamageKind, sizes: Mapping[str, int], entropy: Random) -> Damage | None:
    """Where to damage a disk with these files; None if it has nothing that may be damaged so."""
    files = {path: size for path, size in sorted(sizes.items()) if size and not path.startswith(_NOT_READ)}
    if not files:
        return None
    if kind == "truncate":
        return _cut_short(files, entropy)
    path = entropy.choice(list(files))
    return Damage(kind, path, entropy.randrange(8 * files[path]))


def _cut_short(files: Mapping[str, int], entropy: Random) -> Damage | None:
    closed = [path for path in files if path in _closed(files)]
    if closed:
        path = entropy.choice(closed)
        return Damage("truncate", path, entropy.randrange(files[path]))
    doubled = [path for path in files if parse_path(path) is None]
    if not doubled:
        return None
    path = entropy.choice(doubled)
    return Damage("truncate", path, entropy.randrange(files[path] // 2, files[path]))


def _closed(files: Mapping[str, int]) -> frozenset[str]:
    segments = sorted((each.number, path) for path in files if (each := parse_path(path)) is not None)
    snapshots = (path for path in files if path.startswith(f"{SNAPSHOTS_PATH}/"))
    return frozenset((*(path for _, path in segments[:-1]), *snapshots))


# ---- floods ----
# Changes beside those of the workload: a tablet's log grows, and nobody sees them. Registers are written at keys far
# above those of any workload. Of typed rows, which scans tell, rows that are not there are erased: that is evaluated,
# replicated and remembered like any change, and leaves no row behind.


FLOODED_KEYS = 1 << 40
"""Partition keys, and numbers of rows, from here on belong to no workload."""


def register_writes(tablet: TabletLocation, count: int) -> Sequence[MakeChange]:
    """Writes of `count` registers of the tablet, one each."""
    bucket, buckets = tablet.partition.bucket, tablet.partition.buckets
    return [_write((FLOODED_KEYS + i) * buckets + bucket) for i in range(count)]


def row_erasures(table_id: str, tablet: TabletLocation, count: int) -> Sequence[MakeChange]:
    """Erasures of `count` rows that the tablet does not have."""
    keys = (encode_key(COLUMNS, {"row": FLOODED_KEYS + i, "salt": 0}) for i in range(count))
    return [_erasure(table_id, tablet.partition.bucket, key) for key in keys]


def _write(key: int) -> MakeChange:
    def make(request_id: RequestId, tablet_id: str, requested: int | None) -> Request:
        return WriteCell(request_id, tablet_id, key, 0, 0, 0, requested)

    return make


def _erasure(table_id: str, bucket: int, key: bytes) -> MakeChange:
    def make(request_id: RequestId, tablet_id: str, requested: int | None) -> Request:
        return ChangeRow(request_id, tablet_id, table_id, bucket, key, "delete", (), 0, requested)

    return make


# ---- the database ----


CAPABILITIES = frozenset(
    {
        *("kill", "pause", "stop", "status", "failpoint", "flood", "membership", "disk"),
        *("foreign-cluster", "master-membership", "leadership", "terms", "masters", "directed-reads", "shards"),
        "wall-clock",
        *("failover", "catches-up", "invariants", "examine", "leaderships", "written-groups", "unsynced-loss"),
    }
)
RAFT_ONLY = frozenset({"flood", "membership"})
"""What tables without leaders don't have; they have `leaderless` instead."""

TABLE_MAKERS = ("catalog",)
"""Workloads that make tables while they run."""

RELOCATION_S = 8.0
"""How long masters may take to say where a table's replicas are to stand."""

LEAST_MASTERS = 3

ADMIN = "admin"
"""The harness's own machine: statuses and readiness are asked from there; no fault touches it."""

ARM_TIMEOUT_S = 0.5
PROBE_PATIENCE_S = 0.5
PROBE_ATTEMPTS = 3
ARM_ATTEMPTS = 4
DISARM_ATTEMPTS = 20
FLOOD_TIMEOUT_S = 2.0
FLOOD_WAIT_S = 0.25

READINESS_CALL_TIMEOUT_S = 2.0


def steps_down_ms(knobs: Knobs) -> int:
    """How long a leader that hears nobody takes itself for one."""
    return knobs.check_quorum_ms or 4 * knobs.election_timeout_ms


def lease_ms(knobs: Knobs) -> int:
    """How long others wait before they serve in its place."""
    return (knobs.tablet_lease_ms or knobs.election_timeout_ms) + knobs.max_clock_offset_ms


def outlives_s(knobs: Knobs) -> float:
    """How long a leader without a quorum stays one after another that was elected may serve in its place."""
    return (steps_down_ms(knobs) - lease_ms(knobs) - knobs.election_timeout_ms) / 1e3


def failover_s(knobs: Knobs) -> float:
    """How long a leader that hears nobody may keep others from its place, with an election and another that fails."""
    return (max(steps_down_ms(knobs), lease_ms(knobs)) + 2 * knobs.election_timeout_ms) / 1e3


REPLACEABLE = 4
ENTRY_BYTES = 100
"""About what an entry with a small value takes."""


def under_way(knobs: Knobs) -> int:
    """How many entries may be on their way to one follower: what it gets in a round trip, however many come."""
    batch = min(knobs.max_batch_entries, max(1, knobs.max_batch_bytes // ENTRY_BYTES))
    return batch * knobs.max_inflight


class ReferenceDatabase(ABC):
    """Masters `m1`…, tablet servers `t1`…, one process each; where it runs adds processes, statuses and clients.

    `workload` and its `workload_options` are to be set to what is to be run on it: what its tables can take depends on
    that.
    """

    setup_timeout_s: ClassVar[float]

    def __init__(self, nodes: tuple[Node, ...], knobs: Knobs | None) -> None:
        self._nodes = nodes
        self._knobs = Knobs() if knobs is None else knobs
        self._flooder: ClusterClient | None = None
        self._written: frozenset[str] | None = None
        self._partitions: Mapping[str, Any] | None = None
        self._timestamps = RunTimestamps()
        self._armings = count(1)
        self.workload = ""
        self.workload_options: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        return DATABASE_NAME

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self._nodes

    @property
    def capabilities(self) -> frozenset[str]:
        """What its processes can take; `zones`, if its nodes are spread over several; `tables-made`, if the workload
        makes tables while it runs, and `lasting-tablets`, if it does not; `reads-anywhere`, if it reads from any
        replica; `policies`, if its table is closed ahead of time; `spare-master`, if a master can leave and a group of
        three is left, `replaceable-masters`, if two are left without one; `replaceable-voters`, if a new member catches
        up with clients that write, also where its round trip is the longest, and `decommission`, if there is a server
        for one as well; `logged-tables`, if the workload's table
        is of that design."""
        zones = {node.zone for node in self._nodes}
        masters = [node for node in self._nodes if node.role == MASTER_ROLE]
        quorum = self.workload in QUORUM_WORKLOADS
        found = (CAPABILITIES - RAFT_ONLY) | {"leaderless"} if quorum else CAPABILITIES
        if quorum and len(masters) == 1:
            found -= {"leadership"}  # No group has a second voter to hand over to.
        replaceable = under_way(self._knobs) >= REPLACEABLE
        extra = {
            "zones": len(zones) > 1,
            "tables-made": self.workload in TABLE_MAKERS,
            "reads-anywhere": self.workload in TIMED_WORKLOADS,
            "policies": self.workload in GLOBAL_WORKLOADS,
            "lasting-tablets": self.workload not in TABLE_MAKERS,
            "spare-master": len(masters) > LEAST_MASTERS,
            "replaceable-masters": len(masters) >= LEAST_MASTERS,
            "replaceable-voters": replaceable,
            "decommission": replaceable and not quorum and self._spare_servers > 0,
            "logged-tables": quorum and self.workload_options.get("table") == "logged",
        }
        return found | {name for name, offered in extra.items() if offered}

    @property
    def _spare_servers(self) -> int:
        """How many tablet servers there are beyond those that a tablet stands on."""
        servers = sum(node.role != MASTER_ROLE for node in self._nodes)
        return 0 if self.workload in TIMED_WORKLOADS else servers - REPLICATION_FACTOR

    @property
    def tuning(self) -> Tuning:
        """How its knobs and its workload are set (`harness.protocols.Tuned`)."""
        knobs = self._knobs
        return Tuning(
            spare_servers=self._spare_servers,
            learners=sum(node.role != MASTER_ROLE for node in self._nodes) - REPLICATION_FACTOR - self._spare_servers,
            under_way=under_way(knobs),
            message=knobs.max_batch_entries,
            taken_in=min(knobs.max_requests, knobs.max_queued_proposals),
            kept=knobs.snapshot_entries + knobs.retained_entries,
            outlives_s=outlives_s(knobs),
            limits=float(self.workload_options.get("limits", 0.0)),
            logged=self.workload_options.get("table") == "logged",
            stepping=self.workload in TABLE_MAKERS
            or (Capability.LOGGED_TABLES in self.capabilities and knobs.poll_period_ms > 0),
        )

    @property
    def failover_s(self) -> float:
        """How long a leader that hears nobody may keep others from its place, s (`harness.protocols.FailsOver`)."""
        return failover_s(self._knobs)

    @property
    def operations(self) -> frozenset[str]:
        return OPERATIONS | QUORUM_OPERATIONS

    @property
    def serving_nodes(self) -> tuple[str, ...]:
        """`harness.protocols.Directed`: tablet servers. Strong reads are served by leaseholders only."""
        return tuple(node.name for node in self._nodes if node.role != MASTER_ROLE)

    @property
    def shards(self) -> int:
        """`harness.protocols.Sharded`: hash buckets of a table, each a Raft group."""
        return DEFAULT_BUCKETS

    def facts(self) -> Mapping[str, Any]:
        """How many nodes of each role, in which zones (`harness.protocols.Database`)."""
        roles = [node.role for node in self._nodes]
        counts = {"masters": roles.count(MASTER_ROLE), "tservers": len(roles) - roles.count(MASTER_ROLE)}
        return {**counts, "zones": len({node.zone for node in self._nodes})}

    async def first_start(self) -> None:
        await start_all(self.start, self._nodes)

    @abstractmethod
    async def start(self, node: str) -> None:
        """Start a node's process (`harness.protocols.Database`)."""

    @abstractmethod
    def _status_client(self) -> ClusterClient:
        """Who asks nodes for their statuses."""

    @abstractmethod
    def _heard(self, status: NodeStatus) -> None:
        """Take in what a node has just said of itself."""

    async def status(self, node: str) -> NodeStatus | None:
        """What a node says of itself; None where it does not answer, or a stranger does in its place."""
        found = await self._answer_at(node, self._status_client())
        status = None if found is None else own_status(node, found)
        if status is not None:
            self._heard(status)
        return status

    async def _stranger_at(self, node: str, client: ClusterClient) -> NodeStatus | None:
        found = await self._answer_at(node, client)
        return found if found is not None and is_foreign(found) else None

    async def _answer_at(self, node: str, client: ClusterClient) -> NodeStatus | None:
        """What whoever listens where a node should says of itself."""
        try:
            reply = await client.status(self.address(node))
        except DefiniteError:
            return None
        return node_status(reply, ClockLimits.of(self._knobs).max_offset_ns)

    @abstractmethod
    def admin_client(self, timeout_s: float) -> ClusterClient:
        """A client of the harness's own, on a machine that no fault touches."""

    def op_client(self, ports: Ports, masters: Sequence[str], timeout_s: float) -> Client:
        """A client of the workload's, on the machine whose ports these are."""
        if self._partitions is not None:
            return QuorumOpClient(ports, masters, timeout_s, self.address, self._partitions, self._timestamps)
        place = self.client_place(ports.node_id) if self.workload in TIMED_WORKLOADS else None
        return ClusterOpClient(ports, masters, timeout_s, self.address, place=place)

    def client_place(self, machine: str) -> ClientPlace:
        """Where a client's machine stands: in a zone by its number, in turn, as nodes do."""
        zones = list(dict.fromkeys(node.zone for node in self._nodes))
        number = machine[len(machine.rstrip("0123456789")) :]
        region = zones[(int(number) - 1) % len(zones)] if number else zones[0]
        return ClientPlace(region, self._knobs.max_clock_offset_ms * 1_000_000, self.workload in ROWS_WORKLOADS)

    @abstractmethod
    def admin_clock(self) -> Clock:
        """The clock of the machine that asks."""

    @abstractmethod
    def address(self, node: str) -> str:
        """Where a node listens."""

    async def change_replicas(
        self, leader: str, group: str, change: str, server: str, expected: tuple[int, int], timeout_s: float
    ) -> str | None:
        """`harness.protocols.Reconfigurable`: an operator's call to the leader of a tablet or of the catalog."""
        request = ChangeReplicas(
            group, ChangeKind(change), server, self.address(node_of(server)), *expected, timeout_s=timeout_s
        )
        self._operates(request)
        try:
            await self._operator(timeout_s).ask_once(self.address(leader), request, ConfigurationReply)
        except DefiniteError as error:
            return str(error)
        return None

    async def change_masters(self, add: str | None, remove: str | None, timeout_s: float) -> str | None:
        """`harness.powers.MasterMembership`: an operator's call to the leader master (M12)."""
        newcomer = None
        if add is not None:
            server_id = await self.server_id(add)
            if server_id is None:
                return f"{add} does not answer"
            newcomer = Member(server_id, self.address(add))
        try:
            await operating.change_masters(self.admin_client(timeout_s), newcomer, remove)
        except (DefiniteError, IndefiniteError) as error:
            return str(error)
        return None

    async def decommission(self, server: str, leaving: bool, timeout_s: float) -> str | None:
        """`harness.protocols.Emptiable`: an operator's call to the leader master (M11)."""
        try:
            await operating.decommission(self.admin_client(timeout_s), server, leaving)
        except (DefiniteError, IndefiniteError) as error:
            return str(error)
        return None

    async def left_on(self, server: str) -> Emptying | None:
        """By the leader master's catalog."""
        try:
            told = await operating.decommission_state(self.admin_client(READINESS_CALL_TIMEOUT_S), server)
        except (DefiniteError, IndefiniteError):
            return None
        return Emptying(told.leaving, told.replicas)

    async def transfer_leadership(self, leader: str, group: str, target: str, timeout_s: float) -> str | None:
        """`harness.powers.Transferable`: an operator's call to the leader of a tablet or of the catalog (§3.10)."""
        client, address = self._operator(timeout_s), self.address(leader)
        try:
            reply = await operating.transfer_leadership(client, address, group, target, timeout_s)
        except (DefiniteError, IndefiniteError) as error:
            return f"{error.kind}: {error}"
        if reply.leader == target:
            return None
        return f"not-taken-over: {reply.leader} leads {group} in the term {reply.term}"

    def _operator(self, timeout_s: float) -> ClusterClient:
        """Asks one node once, and leaves it so long to carry something out."""
        return self.admin_client(timeout_s + READINESS_CALL_TIMEOUT_S)

    @abstractmethod
    def _operates(self, request: ChangeReplicas) -> None:
        """An operator is about to change a group's configuration."""

    @abstractmethod
    async def supplant(self, nodes: Sequence[str]) -> None:
        """Start masters of another cluster in these nodes' places (`harness.protocols.Supplantable`)."""

    @abstractmethod
    async def restore_place(self, node: str) -> None:
        """Remove the stranger from a node's place, with all that it wrote."""

    @abstractmethod
    async def stranger_status(self, node: str) -> NodeStatus | None:
        """What a stranger in a node's place says of itself; None where none answers."""

    @abstractmethod
    async def process_state(self, node: str) -> ProcessState:
        """What the node's process does now, probed."""

    @abstractmethod
    async def resume(self, node: str) -> None:
        """Have a paused process go on (SIGCONT)."""

    @property
    def failpoints(self) -> tuple[Failpoint, ...]:
        return tuple(point for point in FAILPOINTS.values() if point.name != ASIDE)

    @property
    def side_point(self) -> str:
        """Where messages of the side transport are about to leave."""
        return ASIDE

    @property
    def side_kind(self) -> str:
        """What these messages are called."""
        return SIDE

    @property
    def protocols(self) -> Mapping[str, tuple[str, ...]]:
        return PROTOCOLS

    async def arm(
        self, node: str, point: str, action: Action, group: str = "", times: int = 1, seconds: float = 0.0
    ) -> bool:
        request = ArmFailpoint(self._point(node, point), action, group, times, seconds, next(self._armings))
        return await self._ask_to_arm(node, request) is not None

    async def disarm(self, node: str, point: str = "") -> None:
        """Have a node forget failpoints; one that stops at one meanwhile goes on, and is asked again."""
        name = self._point(node, point) if point else ""
        for _ in range(DISARM_ATTEMPTS):
            if await self.process_state(node) is ProcessState.DEAD:
                return
            await self.resume(node)
            if await self._ask_to_arm(node, ArmFailpoint(name, "", number=next(self._armings)), attempts=1) is not None:
                return
        raise HarnessError(f"{node} could not be told to forget {name or 'its failpoints'}")

    async def passed(self, node: str, seconds: float) -> Mapping[str, int]:
        """All points count for so long."""
        before = await self._ask_to_arm(node, ArmFailpoint(ANY, "record", times=0, number=next(self._armings)))
        if before is None:
            return {}
        await self.admin_clock().sleep(seconds)
        after = await self._ask_to_arm(node, ArmFailpoint(ANY, "", number=next(self._armings)), attempts=1)
        counts = {} if after is None else after.passed
        return {name: count for name, count in counts.items() if count > before.passed.get(name, 0)}

    @abstractmethod
    async def acted(self, node: str) -> Mapping[str, int]:
        """How often each failpoint acted on a node (`harness.protocols.Armable`)."""

    async def _ask_to_arm(self, node: str, request: ArmFailpoint, attempts: int = ARM_ATTEMPTS) -> ArmedReply | None:
        client, address = self.admin_client(ARM_TIMEOUT_S), self.address(node)
        for _ in range(attempts):
            if (reply := await client.arm(address, request)) is not None:
                return reply
        return None

    def _point(self, node: str, point: str) -> str:
        try:
            return name_at(self._role(node), point)
        except KeyError:
            raise ValueError(f"{node} passes no failpoint {point!r}") from None

    async def probe_disk(self, node: str) -> DiskState | None:
        """Asked again where no answer comes: links lose messages, and whoever asks again hears of the same attempt."""
        client, address = self.admin_client(PROBE_PATIENCE_S + ARM_TIMEOUT_S), self.address(node)
        for _ in range(PROBE_ATTEMPTS):
            reply = await client.probe_disk(address, PROBE_PATIENCE_S)
            if reply is not None:
                return DiskState(reply.sync_ms, reply.ended, reply.full)
        return None

    @abstractmethod
    async def fill_disk(self, node: str) -> None:
        """Leave no room on a node's disk (`harness.protocols.Disks`)."""

    @abstractmethod
    async def free_disk(self, node: str) -> None:
        """Give the room back that `fill_disk` took."""

    @abstractmethod
    async def wipe(self, node: str) -> None:
        """Remove every file of a dead node's database."""

    async def damage(self, node: str, kind: DamageKind, seed: int) -> tuple[Damage, str] | None:
        chosen = choose_damage(kind, await self.file_sizes(node), random.Random(seed))
        return None if chosen is None else (chosen, await self.corrupt(node, chosen))

    @abstractmethod
    async def file_sizes(self, node: str) -> Mapping[str, int]:
        """The files of a dead node's database."""

    @abstractmethod
    async def corrupt(self, node: str, damage: Damage) -> str:
        """Damage a file, and say what was read there before and after; raises HarnessError if that is equal."""

    async def read_back(self, node: str, damage: Damage | None) -> str:
        if damage is None:
            return " ".join(sorted(await self.file_sizes(node)))
        return await self.read_damaged(node, damage)

    @abstractmethod
    async def read_damaged(self, node: str, damage: Damage) -> str:
        """What is read at that place."""

    async def server_id(self, node: str) -> str | None:
        status = await self.status(node)
        return None if status is None else str(status.details["server_id"])

    def _role(self, node: str) -> str:
        return next(each.role for each in self._nodes if each.name == node)

    async def flood(self, node: str, group: str, writes: int) -> bool:
        """Of what no workload asks for (`cluster.deploy.database`)."""
        if self._flooder is None:
            self._flooder = self.admin_client(FLOOD_TIMEOUT_S)
        try:
            found = await self._flooder.table_locations(REGISTER_TABLE)
            tablet = next((each for each in found.tablets if each.tablet_id == group), None)
            if tablet is None:
                return False
            rows = self.workload in ROWS_WORKLOADS
            changes = row_erasures(found.table_id, tablet, writes) if rows else register_writes(tablet, writes)
            await self._flooder.flood(REGISTER_TABLE, tablet, self.address(node), changes, FLOOD_WAIT_S)
        except (DefiniteError, IndefiniteError):
            return False
        return True

    async def written_groups(self) -> frozenset[str] | None:
        """`harness.powers.PartlyWritten`: the tablets of the table that was made before the run; they stay the same.
        And the catalog, which every change of a table is written to."""
        if self.workload not in TABLE_MAKERS or self._written is not None:
            return self._written
        try:
            found = await self.admin_client(FLOOD_TIMEOUT_S).table_locations(REGISTER_TABLE)
        except (DefiniteError, IndefiniteError):
            return None
        self._written = frozenset({CATALOG_GROUP, *(tablet.tablet_id for tablet in found.tablets)})
        return self._written

    async def statuses(self) -> dict[str, NodeStatus | None]:
        """Every node's status, asked at once."""
        answers = await asyncio.gather(*(self.status(node.name) for node in self._nodes))
        return {node.name: answer for node, answer in zip(self._nodes, answers, strict=True)}

    async def await_ready(self, timeout_s: float) -> None:
        await self._await_ready(timeout_s, nears=False)

    async def await_recovered(self, patience_s: float) -> None:
        """Wait until it serves, as long as replicas come nearer to that (`harness.protocols.CatchesUp`)."""
        await self._await_ready(patience_s, nears=True)

    async def _await_ready(self, timeout_s: float, nears: bool) -> None:
        client = self.admin_client(min(READINESS_CALL_TIMEOUT_S, timeout_s))
        await await_ready(client, self._nodes, self.statuses, self.admin_clock(), timeout_s, nears)

    async def relocate(self, turn: int) -> None:
        """Have the table's voters stand some zones further on than at first (`harness.protocols.Relocatable`)."""
        try:
            await self.admin_client(RELOCATION_S).catalog.place_table(self._placed(turn), REGISTER_TABLE)
        except (DefiniteError, IndefiniteError) as error:
            raise HarnessError(f"the table is not placed otherwise: {error}") from error

    async def wants_turn(self) -> int | None:
        """How far on they are to stand by the catalog."""
        try:
            wanted = (await self.admin_client(READINESS_CALL_TIMEOUT_S).catalog.table_schema(REGISTER_TABLE)).replicas
        except (DefiniteError, IndefiniteError):
            return None
        zones = len({node.zone for node in self._nodes})
        return next((turn for turn in range(zones) if self._placed(turn) == wanted), None)

    @property
    def policies(self) -> tuple[str, ...]:
        """Ahead of time, and by lags of which no range that is well lies further behind than by that of the knobs."""
        most_ms = self._knobs.closed_lag_ms
        return GLOBAL, *(f"{LAG}{lag_ms}" for lag_ms in dict.fromkeys((most_ms, most_ms // 3)))

    async def alter_policy(self, policy: str) -> None:
        """Alter how the table is closed (`harness.protocols.Alterable`)."""
        try:
            await self.admin_client(RELOCATION_S).catalog.alter_table(REGISTER_TABLE, policy=policy)
        except (DefiniteError, IndefiniteError) as error:
            raise HarnessError(f"the table is not closed otherwise: {error}") from error

    async def policies_in_force(self) -> dict[str, list[str]]:
        """What the nodes say of the tablets that they lead."""
        told: dict[str, list[str]] = {}
        for name, status in (await self.statuses()).items():
            if status is not None and self._role(name) == TSERVER_ROLE:
                policies = status.details.get(POLICIES, {})
                told[name] = [policies.get(each.group, "") for each in status.groups if each.role == "leader"]
        return told

    async def astray(self) -> tuple[str, ...]:
        """Which tablets do not stand where their table wants them."""
        problems = (await self.look(READINESS_CALL_TIMEOUT_S)).problems
        return tuple(f"{each.subject} {each.message}" for each in problems if each.section == "tablets")

    def _placed(self, turn: int) -> Regional:
        servers = [node.zone for node in self._nodes if node.role == TSERVER_ROLE]
        return everywhere(servers, self.workload_options.get("home", ""), turn)

    async def look(self, timeout_s: float) -> ClusterReport:
        """What `assay cluster check` says of it, once it is healthy or time is over."""
        client = self.admin_client(READINESS_CALL_TIMEOUT_S)
        return await look(client, self._nodes, self.status, self.admin_clock(), timeout_s)

    async def examine(self, timeout_s: float) -> Examination:
        """What is wrong with it once it had time to heal (`harness.protocols.Examined`)."""
        report = await self.look(timeout_s)
        problems = tuple(f"{each.section}: {each.subject} {each.message}" for each in report.problems)
        return Examination(problems, report)

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
        """Create the workload's tables and wait until they serve."""
        client = self.admin_client(self.setup_timeout_s)
        if workload in QUORUM_WORKLOADS:
            self._partitions = dict(options)
            await create_partitions(client, options)
        else:
            await create_registers(client, workload, options, self.admin_clock())
        await self.await_ready(self.setup_timeout_s)
