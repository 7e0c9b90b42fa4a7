"""What one Raft group is made of: its specification, and the roles of its state machine and of the transport."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from zlib import crc32

from cluster.groups.observer import GroupObserver
from cluster.knobs import Knobs
from cluster.log.view import Recovered
from cluster.raft.core import Raft
from cluster.raft.state import RaftConfig
from cluster.raft.types import (
    Entry,
    EntryKind,
    Liveness,
    Message,
    PersistentState,
    Quiescence,
    Role,
    SnapshotMeta,
    SoftState,
)
from cluster.wire.messages import GroupState, Replica
from harness.ports.api import Failpoints, Ports

_MS = 1_000_000
_PART_BYTES = 1 << 16
DISK_FULL = "disk full"
DISK_HANGS = "disk hangs"
"""Reasons for a leader to hand over."""

OnLeadership: TypeAlias = Callable[[SoftState], None]
"""Called at every change of role, term or known leader; it may `submit`."""

OnFailure: TypeAlias = Callable[[BaseException], None]
"""Called once when the group had to stop: MachineFailed concerns this replica alone (G7), anything else the node."""


class MachineFailed(Exception):
    """The state machine raised: this replica can't go on, and neither the node nor its other replicas are to blame."""


class StateMachine(Protocol):
    """What a group replicates; deterministic, and only ever called with committed commands in log order."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Carry a command out; the result goes to whoever proposed it here."""

    def freeze(self, part_bytes: int) -> Iterator[bytes]:
        """The whole state after the last applied command, in parts of about `part_bytes`, one at least.

        Takes a moment however large the state is: parts are encoded as they are taken, while commands are applied that
        don't show in them.
        """

    def restoring(self) -> Callable[[bytes], None]:
        """Empty the state; what is returned takes in the parts of a frozen one, in order."""

    @property
    def digest(self) -> int:
        """64 bits of the state: equal states have equal digests, whether applied or restored (G10)."""


def pass_point(failpoints: Failpoints, spec: GroupSpec, point: str) -> None:
    """Pass one of the group's failpoints (`cluster.failpoints.GROUP_POINTS`): one look where none is armed."""
    if failpoints.armed:
        failpoints.hit(f"{spec.kind}.{point}", spec.group_id)


def apply_entry(machine: StateMachine, entry: Entry) -> bytes:
    """Carry a committed entry out; its result, empty for what is none of the state machine's. Raises MachineFailed."""
    if entry.kind != EntryKind.COMMAND:
        return b""
    try:
        return machine.apply(entry.index, entry.data)
    except Exception as error:
        raise MachineFailed(f"entry {entry.index} can't be applied: {error!r}") from error


def part_taker(machine: StateMachine, meta: SnapshotMeta) -> Callable[[bytes], None]:
    """`StateMachine.restoring` for a snapshot, at its first part; what is returned raises MachineFailed."""
    take: Callable[[bytes], None] | None = None

    def take_part(part: bytes) -> None:
        nonlocal take
        try:
            if take is None:
                take = machine.restoring()
            take(part)
        except Exception as error:
            raise MachineFailed(f"the snapshot up to {meta.index} can't be restored: {error!r}") from error

    return take_part


def part_bytes(knobs: Knobs) -> int:
    """About how large the parts of a snapshot are: none needs several chunks, and none is long to encode."""
    return min(knobs.snapshot_chunk_bytes, _PART_BYTES)


class Transport(Protocol):
    """Sends Raft messages to other nodes; may lose, double and reorder them."""

    def send(self, group: str, messages: tuple[Message, ...]) -> None:
        """Send without waiting."""

    def learn(self, replicas: Iterable[Replica]) -> None:
        """Remember where servers listen."""

    @property
    def liveness(self) -> Liveness:
        """What the heartbeats between the nodes tell."""

    def quiesced(self, group: str, change: Quiescence, wake: Callable[[], None]) -> None:
        """A group falls silent or speaks again; `wake` is called when heartbeats between nodes don't carry it (G6)."""


def nothing_to_do() -> None:
    """Whom nobody needs to call."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Which group this is, and how it is run.

    `node_id` is the server's id in the group. `founders` are the first voters, given to each of them alone: where
    nothing is stored they are what the log begins with. Whoever has none waits to be told by a leader (G1). `kind`
    prefixes the names of its failpoints (`tablet.before_fsync`, …). `observer` is told what happens (G10),
    `on_configured` that another configuration is committed, `on_silence` that a silence begins or ends; `on_tick` is
    called now and then while a leader is awake.
    """

    group_id: str
    node_id: str
    founders: tuple[Replica, ...]
    knobs: Knobs = field(default_factory=Knobs)
    flaws: frozenset[str] = frozenset()
    kind: str = "tablet"
    observer: GroupObserver = field(default_factory=GroupObserver)
    on_configured: Callable[[], None] = nothing_to_do
    on_tick: Callable[[], None] = nothing_to_do
    on_silence: Callable[[], None] = nothing_to_do


def raft_config(spec: GroupSpec) -> RaftConfig:
    """Raft's own configuration for a group."""
    knobs = spec.knobs
    return RaftConfig(
        node_id=spec.node_id,
        election_timeout_ns=knobs.election_timeout_ms * _MS,
        heartbeat_ns=knobs.raft_heartbeat_ms * _MS,
        lease_ns=knobs.lease_ms * _MS,
        max_clock_drift=knobs.max_clock_drift,
        max_batch_entries=knobs.max_batch_entries,
        max_batch_bytes=knobs.max_batch_bytes,
        max_inflight=knobs.max_inflight,
        retained_entries=knobs.retained_entries,
        catch_up_rounds=knobs.catch_up_rounds,
        quiesce_after_ns=knobs.quiesce_after_ms * _MS,
        check_quorum_ns=knobs.check_quorum_ms * _MS,
        flaws=spec.flaws,
    )


def recovered_raft(spec: GroupSpec, found: Recovered, ports: Ports, liveness: Liveness) -> Raft:
    """Raft as it goes on from what is stored."""
    return Raft(
        raft_config(spec),
        PersistentState(found.hard_state, found.snapshot.meta if found.snapshot else None, found.entries),
        ports.clock.monotonic_ns(),
        random.Random(ports.entropy.getrandbits(64)),
        restarted=not found.fresh,
        liveness=liveness,
        stands=found.fresh and spec.node_id == first_to_stand(spec),
    )


def first_to_stand(spec: GroupSpec) -> str | None:
    """Which founder of a new group stands for election at once, while the others wait for their timeouts.

    Nobody can be leading yet, so that to wait would only cost time; that it is one keeps votes from being split, and
    that it depends on the group's name spreads leaders over servers. None where the group is not founded here.
    """
    founders = sorted(founder.node_id for founder in spec.founders)
    return founders[crc32(spec.group_id.encode()) % len(founders)] if founders else None


def group_state(spec: GroupSpec, raft: Raft, applied_index: int, lease_valid: bool, digest: int) -> GroupState:
    """What a replica says of its group to whoever asks for its status."""
    configuration = raft.configuration
    learns = raft.role is Role.FOLLOWER and spec.node_id not in configuration.voter_ids
    return GroupState(
        group=spec.group_id,
        role="learner" if learns else str(raft.role),
        term=raft.term,
        leader=raft.leader,
        commit_index=raft.commit_index,
        applied_index=applied_index,
        last_index=raft.last_index,
        first_index=raft.first_index,
        last_term=raft.last_term,
        lease_valid=lease_valid,
        voters=configuration.voter_ids,
        learners=configuration.learner_ids,
        config_term=configuration.term,
        config_index=configuration.index,
        digest=digest,
    )
