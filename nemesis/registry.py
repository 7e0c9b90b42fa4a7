"""The one literal registry of nemeses: families of plain faults, and scripts.

Scripts go on for as long as they are let; the schedule ends the episode, and what is left in effect is healed. They
cut links between the voters of one group only, so that the masters and the other groups go on.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.capabilities import Capability
from nemesis.kinds import (
    client_clocks,
    clocks,
    damage,
    decommission,
    disks,
    failpoint,
    held,
    leadership,
    masters,
    packets,
    partition,
    placement,
    policies,
    process,
    regions,
    roles,
    scripted,
    side_transport,
    steps,
)
from nemesis.kinds.api import Family, FaultKind, Suits, always
from nemesis.scripts.catalogs import TABLES_MADE, late_call, unheard_tablets
from nemesis.scripts.elections import leader_returns, lonely_leader, long_tails, new_leader_partition, rotate_majority
from nemesis.scripts.leases import idle_bridge, late_batch, lost_answer, skewed_lease, stale_lease
from nemesis.scripts.membership import membership, voters_come
from nemesis.scripts.quorum import (
    LEADERLESS,
    LOGGED,
    coordinator_kill,
    partial_write,
    replica_away,
    restart_clock_back,
    short_read,
    short_reads,
    split_snapshot,
)
from nemesis.scripts.scene import Script
from nemesis.scripts.storage import power_cut, short_log, snapshot_race
from nemesis.scripts.successors import deposed_leader, late_acks, outlived_leader, unheard_commit


@dataclass(frozen=True, slots=True)
class ScriptInfo:
    """A script, what it is in one line, the capabilities it needs, and the colour (CSS) it is drawn in.

    Where the cluster is not set up as `suits` wants it, its core can't be reached, or hardly: `all` leaves it out then.
    """

    script: Script
    description: str
    needs: frozenset[str]
    color: str
    suits: Suits = always

    def __post_init__(self) -> None:
        """All look for leaders; nearly all know how the reference cluster elects them."""
        where = {Capability.TERMS} if self.script is new_leader_partition else {Capability.TERMS, Capability.MASTERS}
        object.__setattr__(self, "needs", self.needs | where)


SCRIPTS: dict[str, ScriptInfo] = {
    "new-leader-partition": ScriptInfo(
        new_leader_partition,
        "waits for a leader to be elected, cuts it off at once, and moves on to the next one",
        frozenset({"partition", "status"}),
        "#7a5195",
    ),
    "lonely-leader": ScriptInfo(
        lonely_leader,
        "cuts leaders off as they are elected, before they can say a word; clients find them, and the others elect",
        frozenset({"partition", "failpoint", "status"}),
        "#8c6d31",
    ),
    "rotate-majority": ScriptInfo(
        rotate_majority,
        "lets one majority of a group elect a lonely leader, restarts the voter, and lets the other majority elect",
        frozenset({"partition", "kill", "pause", "failpoint", "status"}),
        "#2f8f7f",
    ),
    "power-cut": ScriptInfo(
        power_cut,
        "kills all replicas of a group, or its leader and a majority, just as they store what the leader sent",
        frozenset({"partition", "kill", "failpoint", "flood", "status"}),
        "#b5651d",
    ),
    "leader-returns": ScriptInfo(
        leader_returns,
        "brings a leader back that was cut off with a tail of its own, around a lonely leader of a later term",
        frozenset({"partition", "failpoint", "flood", "status"}),
        "#4b6cb7",
        long_tails,
    ),
    "lost-answer": ScriptInfo(
        lost_answer,
        "drops a leader's answers to clients until it commits, then kills it, so that clients try again elsewhere",
        frozenset({"partition", "client-cut", "kill", "status"}),
        "#a05195",
    ),
    "stale-lease": ScriptInfo(
        stale_lease,
        "keeps followers' echoes from a leader that believes in its lease, while another stands",
        frozenset({"partition", "client-cut", "kill", "failpoint", "status"}),
        "#5f8f3f",
    ),
    "skewed-lease": ScriptInfo(
        skewed_lease,
        "sets clocks apart as far as is allowed, and cuts leaseholders off whose clock is behind their followers'",
        frozenset({"partition", "clock", "status"}),
        "#a3742f",
    ),
    "late-batch": ScriptInfo(
        late_batch,
        "holds an evaluated batch at a leaseholder until that has handed its lease over and got the next but one",
        frozenset({"leadership", "failpoint", "status"}),
        "#4f6f9a",
    ),
    "idle-bridge": ScriptInfo(
        idle_bridge,
        "lets two halves of a quiet group see each other only through one follower",
        frozenset({"partition", "status"}),
        "#6b7a8f",
    ),
    "snapshot-race": ScriptInfo(
        snapshot_race,
        "cuts a follower off until it needs a snapshot, and hits it while it installs one",
        frozenset({"partition", "kill", "pause", "failpoint", "flood", "status"}),
        "#c05a7a",
        short_log,
    ),
    "deposed-leader": ScriptInfo(
        deposed_leader,
        "cuts a leader off until its successor commits what clients write; clients stay with both",
        frozenset({"partition", "status"}),
        "#b0893a",
        outlived_leader,
    ),
    "unheard-commit": ScriptInfo(
        unheard_commit,
        "kills a leader that has answered clients before its followers hear that anything is committed",
        frozenset({"partition", "kill", "failpoint", "status"}),
        "#3f7f8f",
    ),
    "late-acks": ScriptInfo(
        late_acks,
        "keeps acknowledgements from a leader until clients ask again, so that the two attempts meet",
        frozenset({"failpoint", "status"}),
        "#9a6b4f",
    ),
    "membership": ScriptInfo(
        membership,
        "has an operator add learners, promote them and remove voters, while leaders are cut off and restarted",
        frozenset({"partition", "kill", "failpoint", "membership", "status"}),
        "#7d8b1f",
        voters_come,
    ),
    "late-call": ScriptInfo(
        late_call,
        "stops the leader master as it is about to ask for a new replica, until its successor has seen to that",
        frozenset({"kill", "pause", "failpoint", "membership", "status", Capability.REPLACEABLE_MASTERS}),
        "#5c7a8f",
        voters_come,
    ),
    "unheard-tablets": ScriptInfo(
        unheard_tablets,
        "keeps from the leader master that tables came up, and has its changes wait as it replaces their tablets",
        frozenset({"partition", "failpoint", "status", TABLES_MADE}),
        "#8f5c3a",
    ),
    "partial-write": ScriptInfo(
        partial_write,
        "lets a write of a table without leaders reach one replica, and kills its coordinator before it leaves hints",
        frozenset({"partition", "kill", "pause", "failpoint", "status", LEADERLESS}),
        "#8a4f7d",
    ),
    "short-read": ScriptInfo(
        short_read,
        "lets a replica miss deletions, and holds a coordinator that is about to ask a replica for more rows",
        frozenset({"partition", "pause", "failpoint", "status", LEADERLESS}),
        "#4f7d8a",
        short_reads,
    ),
    "replica-away": ScriptInfo(
        replica_away,
        "sends a write late, and cuts a replica off from the others longer than they remember what it misses",
        frozenset({"partition", "pause", "failpoint", "status", LEADERLESS}),
        "#6a8a4f",
    ),
    "coordinator-kill": ScriptInfo(
        coordinator_kill,
        "kills who coordinates a write, a read or a reconciliation of a table without leaders, at each of its steps",
        frozenset({"partition", "kill", "pause", "failpoint", "status", LEADERLESS}),
        "#a04f5d",
    ),
    "restart-clock-back": ScriptInfo(
        restart_clock_back,
        "restarts a tablet server with its clock moved back, within the bound, so that it lives a time anew",
        frozenset({"kill", "clock", "status", LEADERLESS}),
        "#7d6a3f",
    ),
    "split-snapshot": ScriptInfo(
        split_snapshot,
        "lets a replica take writes late, and wait with each answer between reading rows and telling of them",
        frozenset({"failpoint", "status", LEADERLESS, LOGGED}),
        "#4f6a8a",
    ),
}


FAMILIES: tuple[Family, ...] = (
    partition.FAMILY,
    process.FAMILY,
    process.RESTARTS,
    clocks.FAMILY,
    packets.FAMILY,
    failpoint.FAMILY,
    disks.FAMILY,
    damage.FAMILY,
    scripted.REQUESTS,
    masters.STRANGERS,
    masters.FAMILY,
    scripted.DELAYS,
    leadership.FAMILY,
    held.FAMILY,
    steps.FAMILY,
    side_transport.FAMILY,
    placement.FAMILY,
    policies.FAMILY,
    client_clocks.FAMILY,
    decommission.FAMILY,
)
"""A family a line; the order is that in which faults are listed."""

AIMED: tuple[str, ...] = tuple(kind.name for kind in roles.KINDS)
"""Kinds that do at one role what others do anywhere; `all` leaves them out."""

JOINING: tuple[str, ...] = tuple(kind.name for kind in decommission.FAMILY.kinds)
"""Kinds that take another's place in some of the runs with `all`, each by a stream of its own: what a seed draws of the
others does not depend on there being these."""

KINDS: dict[str, FaultKind] = {
    kind.name: kind for kinds in (*(family.kinds for family in FAMILIES), regions.KINDS, roles.KINDS) for kind in kinds
}
"""The plain faults by name."""


NEMESES: dict[str, FaultKind | ScriptInfo] = {**KINDS, **SCRIPTS}
"""Every name that `--nemesis` takes, but for `all` and `none`."""
