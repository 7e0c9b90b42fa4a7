"""The one registry of the node program's failpoints: names at the steps that must be atomic, before and after them.

Those of Raft groups come twice, for tablets (`tablet.before_fsync`) and for the masters' catalog
(`catalog.before_fsync`). The code passes points by name; `harness.ports.failpoints` says what can happen there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harness.ports.failpoints import READING, SYNC, Failpoint

ASIDE = "tserver.before_closing"
"""Armed by a nemesis of its own alone: what fails there is a message that is lost, what waits there overtakes none."""

MASTER, TSERVER = "master", "tserver"
KINDS: Mapping[str, str] = MappingProxyType({MASTER: "catalog", TSERVER: "tablet"})
"""What the groups of a role's nodes are called in the names of their points."""

LOG_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "before_append": "records of the node's groups are about to be appended to its log",
        "before_fsync": "they are appended, and not durable",
        "after_fsync": "they are durable, and nobody has been told",
        "before_roll": "the log is about to begin a new segment",
        "after_roll": "the new segment is durable, and the first record is not in it",
        "before_snapshot": "a snapshot, own or received, is about to be written",
        "after_snapshot": "its file is durable, and the log does not name it",
        "before_collect": "a segment or snapshot that no group needs is about to be removed",
        "after_collect": "it is removed",
    }
)
"""Passed by the node's log, where something may wait while others go on."""

GROUP_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "before_vote": "a vote is granted; nothing is durable, no answer has left",
        "after_vote": "the vote is durable, and has left",
        "before_accept": "a follower took a leader's entries in; they are not durable, nor acknowledged",
        "before_install": "a follower has a leader's whole snapshot; its log does not name it, nor is it acknowledged",
        "after_install": "the log names the snapshot, and it has replaced the state",
        "before_send": "messages are about to leave for other replicas",
        "after_send": "they have left",
        "before_commit": "entries are known to be committed, and nothing has come of it",
        "after_commit": "others were told how far the log is committed, and nothing is applied",
        "before_apply": "committed entries are about to be applied",
        "after_apply": "they are applied, and whoever proposed them is about to be told",
        "before_configuration": "another configuration has come into force; it is not durable",
        "after_configuration": "another configuration is committed and applied",
    }
)
"""Passed by each Raft group in the midst of a step, where nothing may wait: the whole process does."""

TSERVER_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "tablet.evaluating": "a change has its latches, and is about to be evaluated",
        "tablet.before_propose": "its outcome is decided, and it is about to enter the log",
        "tserver.before_serve": "a client's request has arrived",
        "tserver.after_serve": "it is carried out, and the answer has not left",
        "tserver.before_create": "a replica is about to be created; nothing is stored",
        "tserver.after_create": "its record is durable, and it does not run",
        "tserver.before_tombstone": "a replica is about to be deleted; nothing is stored",
        "tserver.after_tombstone": "its tombstone is durable, and its data is there",
        "tserver.before_heartbeat": "a heartbeat is about to leave for a master",
        "tserver.after_heartbeat": "a master has answered, and nothing has come of it",
        ASIDE: "a message of the side transport is about to leave for another node",
    }
)

QUORUM_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "quorum.before_write": "a coordinator has located a write's replicas, and sent it to nobody",
        "quorum.after_id": "a write of a logged table has its id, and was sent to nobody",
        "quorum.before_send": "a coordinator is about to send a write to one replica",
        "quorum.after_write": "a write's outcome is known, and its client does not know it",
        "quorum.before_store": "a coordinator's mutation has arrived at a replica; nothing of it is durable",
        "quorum.after_store": "it is durable and visible there, and the coordinator does not know",
        "quorum.before_hint": "replicas have missed a write, and nobody makes up for that yet",
        "quorum.before_read": "a coordinator has located a read's replicas, and asked nobody",
        "quorum.after_read": "it has the answer, and its client does not",
        "quorum.before_repair": "a read is about to send one replica what it lacks",
        "quorum.after_rows": "a replica of a logged table has read rows, and has not sent them",
        "quorum.before_stream": "a replica is about to send others partitions that differ",
        "quorum.before_fence": "a replica is about to raise its fence",
        "quorum.after_fence": "it is raised, and whoever reconciles does not know",
        "quorum.before_deliver": "a replica is about to send another what it lacks",
        "quorum.before_bound": "a replica is about to raise its low bound",
        "quorum.before_fencing": "a reconciliation is about to have a replica raise its fence",
        "quorum.before_comparing": "fences are raised, if any are to be, and a replica is about to hash its ids",
        "quorum.before_collecting": "replicas differ, and one is about to list its ids",
        "quorum.before_delivering": "what some lack is known, and one is about to send another what it lacks",
        "quorum.before_raising": "all have everything below the bound, and a replica is about to be told",
        "quorum.before_follow_up": "a short read is about to ask a replica for rows behind those that it sent",
    }
)
"""Passed by tablet servers that coordinate reads and writes of quorum tables, and by their replicas."""

MASTER_POINTS: Mapping[str, str] = MappingProxyType(
    {
        "master.before_commit": "a change of the catalog is about to be proposed",
        "master.after_commit": "it is committed and applied, and whoever asked for it has not been told",
        "master.before_call": "the leader master is about to call a tablet server",
        "master.after_call": "the tablet server has answered",
        "master.before_change": "the leader master is about to ask for a change of a tablet's configuration",
    }
)

DISK_POINTS: Mapping[str, str] = MappingProxyType({SYNC: "something is about to be made durable"})
"""Passed by the disk of every node, by whatever it makes durable: slow and hung disks are made of it."""


WAITS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "": {
            READING: "something is about to be read from the disk",
            "peer.answered": "another node has answered, and who asked it does not go on",
            "request.admitted": "a request is taken in, and nothing was done about it",
            "group.confirmed": "a quorum still follows this leader, or it has applied enough to serve",
        },
        MASTER: {"master.locked": "a change of the catalog has all its locks"},
        TSERVER: {"tablet.reading": "a read has its latches, and is not served"},
    }
)
"""By role (empty: any) kinds of waits that no failpoint stands at: what passes one may be slow, and nothing else."""


def _all() -> tuple[Failpoint, ...]:
    found = []
    for role, kind in KINDS.items():
        own = MASTER_POINTS if role == MASTER else {**TSERVER_POINTS, **QUORUM_POINTS}
        found += [Failpoint(f"{kind}.{point}", role, meaning) for point, meaning in LOG_POINTS.items()]
        found += [Failpoint(f"{kind}.{point}", role, meaning, alone=False) for point, meaning in GROUP_POINTS.items()]
        found += [Failpoint(name, role, meaning) for name, meaning in own.items()]
    return (*found, *(Failpoint(name, "", meaning) for name, meaning in DISK_POINTS.items()))


FAILPOINTS: Mapping[str, Failpoint] = MappingProxyType({point.name: point for point in _all()})
"""Every failpoint by its name."""


def _of_groups(*points: str) -> tuple[str, ...]:
    return tuple(f"{kind}.{point}" for kind in KINDS.values() for point in points)


PROTOCOLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "reconciliation": (
            *(f"quorum.before_{step}" for step in ("fencing", "comparing", "collecting", "delivering", "raising")),
            *("quorum.before_fence", "quorum.after_fence", "quorum.before_deliver", "quorum.before_bound"),
        ),
        "repair": ("quorum.before_hint", "quorum.before_repair", "quorum.before_stream"),
        "hand-over": _of_groups("before_vote", "after_vote"),
        "members": (
            *("master.before_change", "tserver.before_create", "tserver.after_create"),
            *("tserver.before_tombstone", "tserver.after_tombstone"),
            *_of_groups("before_configuration", "after_configuration"),
        ),
        "snapshot": _of_groups("before_snapshot", "after_snapshot", "before_install", "after_install"),
        "ddl": tuple(name for name in MASTER_POINTS if name != "master.before_change"),
    }
)
"""Protocols of several steps and parties, each with the points that lie between its steps."""


def waiting_points(role: str) -> tuple[str, ...]:
    """The points of nodes of a role at which what passes may wait while others go on."""
    own = (point for point in FAILPOINTS.values() if point.role in ("", role) and point.name != ASIDE)
    return tuple(point.name for point in own if point.alone)


def slow_waits(role: str) -> tuple[str, ...]:
    """The waits of nodes of a role that may be slow."""
    return (*WAITS[""], *WAITS.get(role, ()))


def name_at(role: str, point: str) -> str:
    """The name of a point on nodes of a role: of a group's points the kind may be left out; raises KeyError."""
    name = point if "." in point else f"{KINDS[role]}.{point}"
    if FAILPOINTS[name].role not in ("", role):
        raise KeyError(name)
    return name
