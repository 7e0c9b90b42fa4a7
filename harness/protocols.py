"""The roles that meet in a run, as protocols: Client, Database, Environment, Nemesis (Jepsen's nouns)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from harness.capabilities import Capability
from harness.history.ops import Op
from harness.ports.api import Clock
from harness.ports.failpoints import Action, Failpoint
from harness.ports.machines import Daemon, Impairment, ProbeFlow, ProcessState, Skew


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the system under test: name (`m1`, `t3`, …), role (a word of the database's own), zone label."""

    name: str
    role: str
    zone: str = "z1"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One replica's own view of one group, as the node's status call answers it.

    `role` is `leader`, `candidate`, `follower` or `learner`; `term` grows with each change of leader (a Raft term, an
    epoch, a timeline; 0 where there is none); `voters` are the nodes, or server ids (see `node_of`), whose majority
    decides, of the configuration that the entry (`config_term`, `config_index`) set.

    The rest is for who knows it. `last_index`/`last_term` are of its log's end, `first_index` is the lowest that no
    snapshot has replaced; `lease_valid` says whether it may serve reads now, `lease_sequence` is of the last lease
    record it applied, `write_index` of the last entry that changed its data; `digest` is of the state at
    `applied_index`.
    """

    group: str
    role: str
    term: int
    voters: tuple[str, ...]
    leader: str | None = None
    commit_index: int = 0
    applied_index: int = 0
    last_index: int = 0
    last_term: int = 0
    lease_valid: bool = True
    learners: tuple[str, ...] = ()
    first_index: int = 1
    config_term: int = 0
    config_index: int = 0
    digest: int = 0  # unknown
    lease_sequence: int = 0  # none
    write_index: int = 0  # none


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What one node says of itself; an unreachable node has none. `incarnation` grows with each start."""

    node: str
    role: str
    incarnation: int
    groups: tuple[GroupStatus, ...] = ()
    wall_ns: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)


class Client(Protocol):
    """One process's connection to the database; used by one operation at a time.

    Many clients are at work at once, on one event loop: nothing of theirs may block it. A client that leaves its
    deadline behind is given up some seconds later, and never asked again.
    """

    async def invoke(self, op: Op) -> Op:
        """Carry out an invocation and return its completion (`op.complete("ok", mops=…, node=…)`), once, and within the
        deadline.

        Raises DefiniteError (→ `fail`) only where the operation did not and will not take effect: the database refused
        it in words; the connection was lost before anything of it, or before its COMMIT, was sent; any read. Raises
        IndefiniteError (→ `info`) for all else, a timeout above all. Anything else is a mistake of the plugin: the
        operation is `info`, and the run a failure of the harness that names file and line. Nothing is tried again: the
        driver's own retries have to be off.
        """

    async def close(self) -> None:
        """Release what the client holds; never raises."""


class Database(Protocol):
    """The system under test on one environment; faults act on it only through here and the Environment.

    Calls for different nodes come at once, those for one node one after the other, but `status` and `process_state`,
    which come at any time. What a call waits for is bounded: by seconds where nothing else is said. A failure of the
    tools raises HarnessError.
    """

    @property
    def name(self) -> str: ...

    @property
    def nodes(self) -> tuple[Node, ...]: ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Faults that its processes can take, and powers it has (`harness.capabilities.Capability`)."""

    @property
    def operations(self) -> frozenset[str]:
        """The micro-operations its clients can do: `r`, `w`, `cas`, …"""

    def facts(self) -> Mapping[str, Any]:
        """What the database says of itself for `run.json`, JSON-able: version, settings, …; asked once it serves."""
        return {}

    async def install(self) -> None:
        """Put programs and configuration on every node; may take minutes."""

    async def first_start(self) -> None:
        """Start every node for the first time; all at once, unless one has to come first. May take a minute."""
        await start_all(self.start, self.nodes)

    async def start(self, node: str) -> None:
        """Start the node's processes; a no-op if they run. Does not wait until they serve."""

    async def stop(self, node: str) -> None:
        """Stop them gracefully, and wait until they are gone."""

    async def kill(self, node: str) -> None:
        """SIGKILL to all of them, and wait until they are gone. What was written survives, also what was not synced
        (without the capability `unsynced-loss`)."""

    async def pause(self, node: str) -> None:
        """SIGSTOP to all of them, children too, and wait until all have stopped."""

    async def resume(self, node: str) -> None:
        """Let stopped processes go on (SIGCONT)."""

    async def process_state(self, node: str) -> ProcessState:
        """Of all processes of the node together, probed from inside it, now: `dead` if none is left, `paused` if all
        have stopped."""

    async def status(self, node: str) -> NodeStatus | None:
        """The node's own status, or None if it does not answer within about a second; its incarnation grows with each
        start of its processes."""

    async def await_ready(self, timeout_s: float) -> None:
        """Wait until the whole database serves its clients (observed, not slept for); raises TimeoutError that says
        what is missing. Never returns sooner: an operation right after it has to succeed."""

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
        """Create what the workload needs (tables, …), empty; raises UserError for a workload it can't serve."""

    async def open_client(self, process: int, timeout_s: float) -> Client:
        """A new client for a process; `timeout_s` is its deadline per operation. Raises what `Client.invoke` does."""

    async def collect_logs(self) -> Mapping[str, bytes]:
        """Log files by `NODE/NAME`, as far as they can be had."""

    async def teardown(self) -> None:
        """Stop everything; never raises for what is already gone."""


@runtime_checkable
class Reconfigurable(Protocol):
    """The power of a database with the capability `membership`: replicas of its groups come and go while it serves."""

    async def change_replicas(
        self, leader: str, group: str, change: str, server: str, expected: tuple[int, int], timeout_s: float
    ) -> str | None:
        """Ask the node `leader` to `add-learner`, `promote`, `demote` or `remove` a server of the group it leads.

        `expected` is (`config_term`, `config_index`) of the configuration that is to be changed. None once the change
        is committed, else why it was refused; raises IndefiniteError where that isn't known.
        """


class Breach(msgspec.Struct, frozen=True):
    """A broken invariant: what, when and where.

    `time_ns` is virtual time since the simulated world began, `step` the number of its step: with the same options and
    seed both come again. Outside the simulator both are 0: nobody sees the steps there. `nodes` are those whose facts
    contradict each other; `group` is a Raft group, if it is of one.
    """

    invariant: str
    message: str
    time_ns: int
    step: int
    nodes: tuple[str, ...]
    group: str | None = None


class InvariantsRecord(msgspec.Struct, frozen=True):
    """`invariants.json`: how often each invariant was put to the test, how often it broke, and the first breaches."""

    checked: dict[str, int]
    broken: dict[str, int] = {}
    breaches: tuple[Breach, ...] = ()


class Examination(msgspec.Struct, frozen=True):
    """The whole system at a quiet moment: a sentence for everything that is wrong, and the report, JSON-able."""

    problems: tuple[str, ...]
    report: Any


@runtime_checkable
class Watched(Protocol):
    """The power of a database with the capability `invariants`: its inner ones are checked while it runs."""

    async def invariants(self) -> InvariantsRecord:
        """What was checked and what broke, from its start to now."""


@runtime_checkable
class Examined(Protocol):
    """The power of a database with the capability `examine`: at a quiet moment it is looked at as a whole, as an
    operator would."""

    async def examine(self, timeout_s: float) -> Examination:
        """What is wrong with it once it has had so long to come to rest."""


@runtime_checkable
class Armable(Protocol):
    """The power of a database with the capability `failpoint`: its processes act at named points of their code.

    Its points are where moments can be made long enough to act in, between what is received and what is durable, and
    where steps that must be atomic can be broken off. What can happen there says `harness.ports.failpoints.Action`.
    """

    @property
    def failpoints(self) -> tuple[Failpoint, ...]:
        """Every point there is."""

    @property
    def protocols(self) -> Mapping[str, Sequence[str]]:
        """Protocols of several steps, each with the points between them."""

    async def arm(
        self, node: str, point: str, action: Action, group: str = "", times: int = 1, seconds: float = 0.0
    ) -> bool:
        """Have the node's process act there, see `harness.ports.failpoints.Arming`; False: it has not answered.

        It may have acted all the same: a process that stops or ends there does not answer any more (see `acted`).

        The kind of a group's point may be left out (`before_vote`). Replaces what that point was armed with, and is
        gone with the process. A node that has stopped itself is `paused` to `process_state`. Raises ValueError.
        """

    async def disarm(self, node: str, point: str = "") -> None:
        """Forget a point (or all) of the node, and let its process go on if it has stopped; raises HarnessError."""

    async def passed(self, node: str, seconds: float) -> Mapping[str, int]:
        """The points, not armed, that the node's process passes within so long; none where it does not answer."""

    async def acted(self, node: str) -> Mapping[str, int]:
        """How often each point has acted on this node so far, as its processes noted; raises HarnessError."""


@runtime_checkable
class TellsAside(Protocol):
    """The power of a database with the capability `reads-anywhere`: what its nodes tell each other beside their logs,
    of what is closed, can be lost or late at a failpoint of its own."""

    @property
    def side_point(self) -> str:
        """The point at which such a message is about to leave for another node."""

    @property
    def side_kind(self) -> str:
        """What such messages are called where they can be held back (`HoldsMessages`)."""


@runtime_checkable
class Relocatable(Protocol):
    """The power of a database with the capability `reads-anywhere`: where its table's replicas stand can be changed."""

    async def relocate(self, turn: int) -> None:
        """Have the voters stand `turn` zones further on than at first; raises HarnessError where that is refused."""

    async def wants_turn(self) -> int | None:
        """How many zones further on voters are to stand by now; None where nobody tells."""

    async def astray(self) -> tuple[str, ...]:
        """What does not stand, or is not led, where it should be, in sentences."""


@runtime_checkable
class Alterable(Protocol):
    """The power of a database with the capability `policies`: how its table's ranges are closed can be altered."""

    @property
    def policies(self) -> Sequence[str]:
        """The policies that there are; the first one is what the table begins with."""

    async def alter_policy(self, policy: str) -> None:
        """Have the table closed so; raises HarnessError where that is refused."""

    async def policies_in_force(self) -> Mapping[str, Sequence[str]]:
        """By node that answers how it says that the tablets are closed which it leads."""


class Emptying(NamedTuple):
    """Whether a server is to be emptied, and how many replicas committed configurations have on it."""

    leaving: bool
    replicas: int


@runtime_checkable
class Emptiable(Protocol):
    """The power of a database with the capability `decommission`: servers are emptied, or stay after all."""

    async def decommission(self, server: str, leaving: bool, timeout_s: float) -> str | None:
        """Ask for that, by the server's id; may be repeated. None once it is noted, else why it is not known to be."""

    async def left_on(self, server: str) -> Emptying | None:
        """How far it is; None where nobody tells."""


@runtime_checkable
class HoldsMessages(Protocol):
    """The power of a database with the capability `held-message`: a message between its nodes can be held back."""

    async def hold_message(self, source: str, target: str, kind: str) -> int:
        """Hold the next message of this kind from one node to the other back when it arrives; the number of the hold.
        Raises ValueError for a kind that there is not."""

    async def held_bytes(self, hold: int) -> int:
        """How long the message is that is held now; 0 where none is."""

    async def release_message(self, hold: int) -> None:
        """Let it arrive, at whichever process listens there by now, and hold nothing any more."""


DamageKind: TypeAlias = Literal["bit-flip", "truncate"]


@dataclass(frozen=True, slots=True)
class Damage:
    """A bit of a file flipped (`at` counts bits, 0 is the lowest of the first byte), or its bytes from `at` on lost."""

    kind: DamageKind
    path: str
    at: int


@dataclass(frozen=True, slots=True)
class DiskState:
    """What a node found when it made something durable: the time it took, or (not `ended`) has taken so far.

    `full`: there was no room for it.
    """

    sync_ms: float
    ended: bool
    full: bool


@runtime_checkable
class Disks(Protocol):
    """The power of a database with the capability `disk`: its nodes' disks can be hurt, and looked at.

    Slow and hung disks are failpoints (`disk.before_sync`, see `Armable`).
    """

    async def probe_disk(self, node: str) -> DiskState | None:
        """What the node's own program finds now, within half a second; None if it does not answer."""

    async def fill_disk(self, node: str) -> None:
        """Leave no room on the node's data volume; with the capability `full-disk`."""

    async def free_disk(self, node: str) -> None:
        """Give the room back; no error if nothing was taken."""

    async def wipe(self, node: str) -> None:
        """Lose every file of a dead node's database, as with a new disk."""

    async def damage(self, node: str, kind: DamageKind, seed: int) -> tuple[Damage, str] | None:
        """Corrupt synced data of a dead node, where redundancy can repair it: what, and what reading it back shows.

        None: nothing there may be damaged so. The seed chooses. Raises HarnessError if reading it back shows nothing.
        """

    async def read_back(self, node: str, damage: Damage | None) -> str:
        """What is read now at a place that was damaged, of a dead node; of none: empty if there is no file at all."""

    async def server_id(self, node: str) -> str | None:
        """The id under which the node runs; another one after it was wiped. None if it does not answer."""


@runtime_checkable
class Directed(Protocol):
    """The power of a database with the capability `directed-reads`: a read whose `node` is set goes there and nowhere
    else, and its completion names in `node` who answered.

    A node that does not serve what is read says so: the read fails with the class `ELSEWHERE`.
    """

    @property
    def serving_nodes(self) -> tuple[str, ...]:
        """The nodes that hold what clients read."""


@runtime_checkable
class Sharded(Protocol):
    """The power of a database with the capability `shards`: keys are spread over groups, by partition key modulo
    `shards`, that fail one by one."""

    @property
    def shards(self) -> int: ...


@runtime_checkable
class Flooding(Protocol):
    """The power of a database with the capability `flood`: writes beside those of the workload."""

    async def flood(self, node: str, group: str, writes: int) -> bool:
        """Send `writes` writes to a group's replica on this node, all at once, whatever comes of them.

        They go to keys that no workload reads. The first to a group must find its leader, to open a session. False if
        the group takes none (the catalog), or can't be found.
        """


@runtime_checkable
class ClockControl(Protocol):
    """The power of an environment with the capability `clock`: wall clocks of single machines can be made wrong.

    Monotonic clocks stay true, and so do the clocks of the host and of all other machines. Whether a node's program
    sees it is for the node to say (`NodeStatus.wall_ns`).
    """

    async def skew_clock(self, node: str, skew: Skew | None) -> None:
        """Have the machine's wall clock go like this from now on; None: as it goes by itself. Raises HarnessError."""

    def due_offset_ns(self, node: str) -> int:
        """How far ahead of the harness's the machine's wall clock should be now, by what was asked of it."""


@runtime_checkable
class ClientClocks(Protocol):
    """The power of an environment with the capability `client-clocks`: clients' wall clocks can be wrong."""

    @property
    def client_machines(self) -> tuple[str, ...]:
        """The machines that clients are on."""

    async def skew_client_clock(self, machine: str, skew: Skew | None) -> None:
        """Have a machine's wall clock go like this from now on; None: as it goes by itself."""

    async def client_offset_ns(self, machine: str) -> int:
        """How far ahead of true time the machine's clock shows to be; 0 where it goes as it does by itself."""


@runtime_checkable
class PacketShaping(Protocol):
    """The power of an environment with the capability `packets`: links can be made bad without being cut.

    The capabilities `packet-delay`, `packet-loss`, … say which fields of an `Impairment` it can do.
    """

    async def impair(self, links: Mapping[tuple[str, str], Impairment]) -> None:
        """Treat what goes over these one-way links between nodes like this from now on, and all others as usual.

        Where an environment can only treat everything that leaves a node alike, the links of a node must be impaired
        alike. Raises HarnessError.
        """

    async def flows(
        self, links: Iterable[tuple[str, str]], count: int, size: int, over_s: float
    ) -> Mapping[tuple[str, str], ProbeFlow]:
        """What becomes of `count` datagrams of `size` bytes that are sent over each link in the next `over_s` seconds.

        They are waited for up to a second after that (`harness.ports.machines`).
        """


async def start_all(start: Callable[[str], Awaitable[None]], nodes: Iterable[Node]) -> None:
    """Start every node at once; the first failure is raised when all have ended."""
    works = (start(node.name) for node in nodes)
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


class Fleet(Protocol):
    """A root shell on each of an environment's machines. Raises HarnessError for what can't be done."""

    async def check(self, name: str, command: str, stdin: bytes = b"", timeout_s: float | None = None) -> str:
        """What a shell command prints on the machine of this node; it has to end with 0."""

    async def check_each(self, commands: Mapping[str, str]) -> Mapping[str, str]:
        """The same on several, in parallel; all are tried."""

    async def upload(self, name: str, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file on a node, its directory made if it is missing."""


class Environment(Protocol):
    """Where nodes live (simulator, Docker, hosts over SSH): machines, their network and what can be done to it."""

    @property
    def name(self) -> str: ...

    @property
    def clock(self) -> Clock:
        """The harness's own clock: virtual in the simulator, true elsewhere; no fault touches it."""

    @property
    def capabilities(self) -> frozenset[str]:
        """Faults it can do (`harness.capabilities.Capability`), such as `partition`; what it can't is refused in one
        sentence before the run starts."""

    @property
    def fleet(self) -> Fleet:
        """Shells on the machines, once they are set up; the simulator has none, and raises HarnessError."""

    def data_address(self, node: str) -> str:
        """Where a node is reached, by the others and by clients: an IP address, or a machine's name in the simulator.
        Faults act on what goes there."""

    async def process_state(self, node: str, program: Daemon) -> ProcessState:
        """How the daemon is on a node, with all its children, as the node's kernel says now."""

    async def incarnation(self, node: str, program: Daemon) -> int | None:
        """A number that grows with each start of the daemon there; None while it does not run."""

    async def setup(self, nodes: tuple[Node, ...]) -> None:
        """Make the machines and networks."""

    async def cut(self, links: frozenset[tuple[str, str]]) -> None:
        """Drop what goes from `source` to `target` for each (source, target), instead of what was cut here before.

        A link that was cut and is to stay cut is open at no moment in between. One end may be `CLIENTS`, with the
        capability `client-cut`.
        """

    async def heal_network(self) -> None:
        """Undo every cut that `cut` made, and nothing else."""

    async def reachability(self) -> Mapping[tuple[str, str], bool]:
        """For every ordered pair of nodes whether a probe sent from inside `source` arrives at `target` now; `CLIENTS`
        is among them once it was cut off from a node."""

    async def teardown(self) -> None:
        """Remove everything that setup made; safe to call twice and after a partial setup."""


@runtime_checkable
class Inspected(Protocol):
    """The power of an environment that can tell when somebody else had his hands on its machines."""

    async def disturbed(self) -> tuple[str, ...]:
        """A sentence for each machine that is gone, or was started anew, since setup; none if all is well."""


class Nemesis(Protocol):
    """Carries out the fault operations of the history (process -1)."""

    async def setup(self) -> None: ...

    async def invoke(self, op: Op) -> Op:
        """Carry out one fault step; the completion's `value` tells what was done and what was observed."""

    async def teardown(self) -> None:
        """Heal everything that is still in effect, whatever failed before."""


@runtime_checkable
class Supplantable(Protocol):
    """The power of a database with the capability `foreign-cluster`: another cluster's programs can take its nodes'
    places, on their machines and at their addresses."""

    async def supplant(self, nodes: Sequence[str]) -> None:
        """Run the masters of one new cluster in the place of these dead nodes, whose files are kept as they are."""

    async def restore_place(self, node: str) -> None:
        """End the stranger in a node's place and remove its files; the node stays dead. A no-op if there is none."""

    async def stranger_status(self, node: str) -> NodeStatus | None:
        """What the stranger in the node's place says to one of its own cluster; None if it does not answer."""


@runtime_checkable
class MasterMembership(Protocol):
    """The power of a database with the capability `master-membership`: masters join and leave while it serves."""

    async def change_masters(self, add: str | None, remove: str | None, timeout_s: float) -> str | None:
        """Have the server on the node `add` made a master, and the server id `remove` cease to be one.

        None once all of it is committed, else why not, as far as is known; asking again is harmless.
        """


@runtime_checkable
class Transferable(Protocol):
    """The power of a database with the capability `leadership`: leaders hand over to voters of their groups when they
    are asked to."""

    async def transfer_leadership(self, leader: str, group: str, target: str, timeout_s: float) -> str | None:
        """Ask the node `leader`, once, to let the server `target` lead a group; it gives its lease up with that.

        None once `target` leads in a later term, else why it does not, as far as is known.
        """


@runtime_checkable
class FailsOver(Protocol):
    """The power of a database with the capability `failover`: it says how long its timeouts and leases let one take."""

    @property
    def failover_s(self) -> float:
        """How long a group may be without a leader that serves after it lost the one that it had."""


def failover_of(database: Database) -> float:
    """How long a group of the database may be without a leader, s; 0 where it does not say."""
    able = Capability.FAILOVER in database.capabilities
    return database.failover_s if able and isinstance(database, FailsOver) else 0.0


class Tuning(msgspec.Struct, frozen=True):
    """How the reference cluster is set up, as far as scripts ask whether their core can be reached at all.

    `spare_servers`: tablet servers beyond those that a tablet stands on. Entries: `under_way` may be on their way to
    one follower, `message` are carried by one message, `taken_in` by a leader that can commit nothing, `kept` make a
    snapshot needed by who lacks them. `outlives_s`: for how long a leader that is cut off takes itself for one after
    another may serve in its place, less an election. `limits`: share of the reads that have one. `stepping`: protocols
    of several steps run all the time. `learners`: how many a tablet has for good.
    """

    spare_servers: int = 0
    under_way: int = 0
    message: int = 0
    taken_in: int = 0
    kept: int = 0
    outlives_s: float = 0.0
    limits: float = 0.0
    logged: bool = False
    stepping: bool = False
    learners: int = 0


@runtime_checkable
class Tuned(Protocol):
    """What scripts of the reference cluster ask it before they are drawn."""

    @property
    def tuning(self) -> Tuning:
        """How it is set up."""


def tuning_of(database: Database) -> Tuning | None:
    """How the reference cluster is set up; None for another database."""
    able = Capability.MASTERS in database.capabilities
    return database.tuning if able and isinstance(database, Tuned) else None


@runtime_checkable
class CatchesUp(Protocol):
    """The power of a database with the capability `catches-up`: it tells whether it comes nearer to serving, as its
    replicas do."""

    async def await_recovered(self, patience_s: float) -> None:
        """Wait until the whole database serves its clients, `patience_s` since it came nearer to that than ever, and at
        most `harness.run.allowances.LONGEST` times that; raises TimeoutError."""


@runtime_checkable
class PartlyWritten(Protocol):
    """The power of a database with the capability `written-groups`: it has groups that clients don't write to, or that
    come and go while it serves."""

    async def written_groups(self) -> frozenset[str] | None:
        """The groups that clients write to for as long as it serves, the masters' among them if they write to it; None
        where they write to all but that one, or nobody can tell."""
