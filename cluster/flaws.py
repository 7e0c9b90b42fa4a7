"""The one literal registry of the bugs that the cluster can be started with.

A flaw changes the one decision that the historical bug got wrong, in the place where the code makes it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flaw:
    """A known bug: the mechanism it breaks, what goes wrong, and the workload and nemesis that find it.

    `world` is what `--world` has to be told for it, if anything, `options` what `-o` has to, and `time_limit_s` what
    suffices. `seen_by` says what shows it: `clients`, through the workload's checkers, or the name of an invariant.
    """

    name: str
    mechanism: str
    consequence: str
    workload: str
    nemesis: str
    world: str = ""
    time_limit_s: float = 20.0
    seen_by: str = "clients"
    options: str = ""


LOGGED = "table=logged"

LONG_TAILS = "max-requests=10000,max-queued-proposals=4096"
"""A leader that is cut off takes in more than one message to a follower carries."""

CLOSE_BEHIND = "closed-lag-ms=0,side-transport-ms=50"
"""Timestamps are closed right behind the clock."""

EARLIER = "earlier=0.5,reads=0.5"
"""Many changes, half of which ask for earlier times than others have, or for what is closed."""

MOVES = "leadership(target=leaseholders,every=1s,for=0.4s)"
"""All leases are given up, over and over."""

AHEAD = "clock-jump(target=all-within)"
"""All clocks jump as far apart as is declared."""

SHORT_S = 10.0
"""Suffices where every fault is the flaw's moment; such commands are run with hundreds of seeds."""

FLAWS: dict[str, Flaw] = {
    flaw.name: flaw
    for flaw in (
        Flaw("raft-ack-before-fsync", "R1", "an acknowledged write is lost with a crash", "register", "power-cut"),
        Flaw(
            "raft-forget-vote",
            "R1",
            "a voter votes twice in a term: two leaders",
            "register",
            "rotate-majority",
        ),
        Flaw(
            "raft-commit-old-term",
            "R1",
            "a committed entry is overwritten (figure 8)",
            "register",
            "leader-returns",
            LONG_TAILS,
            seen_by="commits-own-term",
        ),
        Flaw(
            "forget-request-ids",
            "G8",
            "snapshots lose the answers: a retried change takes effect twice",
            "register",
            "lost-answer",
            world="snapshot-entries=2",
        ),
        Flaw(
            "raft-unsafe-membership",
            "G1",
            "a leader changes the voters before it has committed in its term: two majorities that don't meet",
            "register",
            "membership",
        ),
        Flaw(
            "apply-uncommitted",
            "R1",
            "replicas carry out what a later leader may replace",
            "register",
            "leader-returns",
            LONG_TAILS,
        ),
        Flaw(
            "vote-before-fsync",
            "R1",
            "a vote leaves before it is durable: a crash lets the voter vote twice in a term",
            "register",
            "rotate-majority",
        ),
        Flaw(
            "vote-stale-log",
            "R1",
            "a leader lacks committed entries",
            "register",
            "unheard-commit",
        ),
        Flaw(
            "snapshot-loses-last",
            "R1",
            "a snapshot is taken for one entry more than it holds",
            "register",
            "power-cut",
            world="snapshot-entries=2",
        ),
        Flaw(
            "torn-frame-is-damage",
            "G5",
            "a frame that a crash tore is taken for damage where its first page is lost and its last is not",
            "register",
            "power-cut",
            world="disk-tear=pages",
            seen_by="no-panic",
        ),
        Flaw(
            "voters-ignore-lease",
            "R2",
            "a leader is elected within another's lease: stale reads",
            "register",
            "stale-lease",
            time_limit_s=30.0,
            seen_by="leases-disjoint",
        ),
        Flaw(
            "no-restart-silence",
            "R2",
            "a restarted voter elects within the lease that it had acknowledged: stale reads",
            "register",
            "stale-lease",
            time_limit_s=30.0,
            seen_by="leases-disjoint",
        ),
        Flaw(
            "read-before-own-term",
            "R1",
            "a new leader serves reads before it knows what is committed",
            "register",
            "unheard-commit",
        ),
        Flaw(
            "lease-by-wall-clock",
            "R2",
            "the holder times its lease by its wall clock: stale reads while that lags",
            "register",
            "clock-jump(target=all-within),partition(target=leaseholder)",
            world="clock=none,tablet-lease-ms=1000,max-clock-offset-ms=10000,check-quorum-ms=20000",
            time_limit_s=40.0,
            options="readers=0.9,hot=120",
        ),
        Flaw(
            "double-apply",
            "G8",
            "a retry that meets its first attempt in flight is carried out twice",
            "register",
            "late-acks",
        ),
        Flaw(
            "any-lease-sequence",
            "R2",
            "a batch is carried out under a later lease than it was evaluated under: a write under served reads",
            "snapshots",
            "late-batch",
            options="keys=20,reads=0.5,looks=0.3",
        ),
        Flaw(
            "wipe-keeps-id",
            "G1",
            "a server whose disk is new comes back under its old id: it forgets votes and acknowledgements",
            "register",
            "wipe",
            seen_by="durable-log-kept",
        ),
        Flaw("no-timestamp-cache", "R3", "a write under an already served read", "snapshots", "partition"),
        Flaw(
            "closed-ignores-inflight",
            "R5",
            "a timestamp is closed over writes in flight: they are applied below it",
            "register",
            "failpoint(target=delay,points=tablet.before_propose)",
            world="closed-lag-ms=0",
            seen_by="closed-is-kept",
        ),
        Flaw(
            "side-transport-unapplied",
            "R4",
            "a range is closed though changes of it are on their way through the log: followers miss them",
            "snapshots",
            "partition(target=leaseholder)",
            world=CLOSE_BEHIND,
            options="keys=20,reads=0.3,looks=0.5",
        ),
        Flaw(
            "removed-takes-new-time",
            "R4",
            "what has left the quiet ranges gets the time of the message that says so: it was written to by then",
            "snapshots",
            "pause",
            world=CLOSE_BEHIND,
            options="keys=20,reads=0.3,looks=0.5",
        ),
        Flaw(
            "side-transport-delta-lost",
            "R4",
            "a lost message is not missed: a range that left its group goes on to be closed with it",
            "snapshots",
            "packets",
            world=f"{CLOSE_BEHIND},loss=0.05",
            seen_by="served-when-closed",
            options="keys=20,reads=0.3,looks=0.5",
        ),
        Flaw(
            "closed-past-lease",
            "R4",
            "a holder closes beyond the end of its lease, where its successor writes",
            "snapshots",
            "partition(target=leaseholder)",
            world=f"{CLOSE_BEHIND},check-quorum-ms=5000",
            seen_by="closed-within-the-lease",
            options="keys=20,reads=0.3,looks=0.5",
        ),
        Flaw(
            "follower-skips-closed",
            "R7",
            "a replica serves any time, closed or not: it misses what it has not applied",
            "snapshots",
            "partition",
            world=CLOSE_BEHIND,
            options="keys=20,reads=0.3,looks=0.5",
        ),
        Flaw(
            "snapshot-forgets-closed",
            "R4",
            "a snapshot is without what is closed: the promise is forgotten with the log that it stands for",
            "snapshots",
            "snapshot-race",
            seen_by="state-digest",
        ),
        Flaw(
            "staleness-unbounded",
            "R7",
            "a bound of staleness is not turned into a least time: older data than it allows",
            "bounded-staleness",
            "partition",
        ),
        Flaw(
            "nearest-skips-check",
            "R7",
            "the nearest replica serves what it has, whatever the bound: older data than it allows",
            "bounded-staleness",
            "partition",
        ),
        Flaw(
            "closed-goes-back",
            "R4",
            "a range that is quiet no more goes on from what it had closed before: it is written under what was told",
            "follower-reads",
            "leadership",
            seen_by="closed-is-kept",
            options=EARLIER,
        ),
        Flaw(
            "handover-forgets-reads",
            "G3",
            "who gives a lease up does not say what was read under it: the next holder writes below that",
            "follower-reads",
            MOVES,
            options=EARLIER,
        ),
        Flaw(
            "cache-low-water-back",
            "R3",
            "of the pages of reads that were dropped only the last counts: a write under what the others held",
            "snapshots",
            "leadership",
            world="wall=within,max-clock-offset-ms=2000,closed-lag-ms=10000,read-spans=2",
        ),
        Flaw(
            "failed-cas-unrecorded",
            "R3",
            "what a compare-and-set found that was not applied is not remembered: a write under it",
            "snapshots",
            "leadership",
            seen_by="reads-are-kept",
            options="cas=0.6",
        ),
        Flaw(
            "closed-of-refused",
            "R4",
            "a change that is refused, or a double, closes what it was stamped with: at one write index states differ",
            "register",
            "late-acks",
            seen_by="data-at-write-index",
        ),
        Flaw(
            "tracker-wrong-bucket",
            "R5",
            "a write below all that are in flight is tracked above them: a timestamp is closed over it",
            "follower-reads",
            "failpoint(target=delay,points=tablet.before_propose)",
            world="exact-tracker=0,slow-places=16",
            seen_by="closed-below-what-is-under-way",
            options=EARLIER,
        ),
        Flaw(
            "span-reads-unlatched",
            "G2",
            "a read of a span waits for no change in flight: it misses what is written below it",
            "follower-reads",
            "failpoint(target=delay,points=tablet.before_propose)",
            seen_by="latches-exclude",
            options="slices=0.6",
        ),
        Flaw(
            "idle-never-closes",
            "R4",
            "a lease under which nothing is written is left to end while a member is down: nothing is closed any more",
            "register",
            "tserver-kill(target=one,every=34s,for=26s)",
            world="side-transport-ms=200",
            seen_by="nothing-stands-still",
            time_limit_s=40.0,
            options="keys=3,hot=1,dwell=1300",
        ),
        Flaw(
            "negotiate-ignores-intents",
            "R7",
            "the time of a read within a bound is chosen over what transactions hold: it waits where it need not",
            "bounded-staleness",
            "pause",
        ),
        Flaw(
            "index-before-latches",
            "R8",
            "the position that another replica waits for is from before the changes in flight: it misses them",
            "strong-anywhere",
            "leadership",
        ),
        Flaw(
            "strong-unrecorded",
            "R8",
            "the time of a strong read elsewhere is not remembered: changes are written under it",
            "strong-anywhere",
            "leadership",
        ),
        Flaw(
            "global-no-commit-wait",
            "R6",
            "answers leave before their time: strong reads whose clock is behind miss what was acknowledged",
            "global-reads",
            AHEAD,
        ),
        Flaw(
            "wait-by-policy",
            "R6",
            "answers wait only while the table is closed ahead of time, not for what was written ahead of time",
            "global-reads",
            "policy-change",
            seen_by="answers-after-their-times",
        ),
        Flaw(
            "global-limit-ignored",
            "R6",
            "a strong read finds what lies below its begin only: a begin by a slow clock misses what was acknowledged",
            "global-reads",
            AHEAD,
        ),
        Flaw(
            "intent-hides-uncertain",
            "R6",
            "where an intent lies above what a strong read asks for, nothing below it is taken for uncertain",
            "global-reads",
            AHEAD,
        ),
        Flaw(
            "low-water-not-inherited",
            "R4",
            "a lease forgets what earlier holders closed ahead of the clock: it is written under",
            "global-reads",
            MOVES,
            world="side-transport-ms=2000,tablet-lease-ms=8000,support-ms=8000",
            time_limit_s=40.0,
            options="reads=0.85",
        ),
        Flaw(
            "support-not-waited-out",
            "G3",
            "a new leader begins its lease within what members promised to the old one: a write under served reads",
            "snapshots",
            "clock-jump(target=all-within),partition(target=leaseholder)",
            world="clock=none,tablet-lease-ms=3000,max-clock-offset-ms=10000,check-quorum-ms=20000,quiesce-after-ms=100,"
            "support-ms=3000",
            time_limit_s=40.0,
            seen_by="lease-records",
            options="reads=0.67,looks=0.3,cas=0.4",
        ),
        Flaw(
            "read-without-lease",
            "R2",
            "a deposed leader serves stale reads",
            "register",
            "deposed-leader",
            seen_by="served-within-the-lease",
        ),
        Flaw(
            "cold-replica-map",
            "M2",
            "tablets are where this leader heard of them: none are located after an election (KUDU-1353)",
            "catalog",
            "master-kill",
        ),
        Flaw(
            "abort-on-failed-replication",
            "M10",
            "a deposed master crashes (KUDU-495)",
            "catalog",
            "master-partition",
            seen_by="no-panic",
            time_limit_s=SHORT_S,
        ),
        Flaw(
            "deposed-master-serves",
            "M2",
            "stale answers about tables",
            "catalog",
            "master-partition",
            time_limit_s=SHORT_S,
        ),
        Flaw(
            "create-visible-early",
            "M6",
            "clients see tables that never came to be",
            "catalog",
            "master-partition",
            time_limit_s=SHORT_S,
        ),
        Flaw(
            "delete-rpc-early",
            "M6",
            "replicas are deleted for a DeleteTable that never committed",
            "catalog",
            "master-partition",
            seen_by="calls-are-committed",
            time_limit_s=SHORT_S,
        ),
        Flaw("unbatched-catalog", "M7", "a table with some of its tablets after a fail-over", "catalog", "master-kill"),
        Flaw(
            "no-full-report",
            "M4",
            "a new leader gets changes only: deletions and alterations are lost with the old one (KUDU-1374)",
            "catalog",
            "heartbeat-loss,master-kill",
            seen_by="end-state",
            time_limit_s=SHORT_S,
        ),
        Flaw(
            "weak-summary",
            "Q4",
            "summaries are compared by their counts: replicas that differ call themselves equal",
            "durable-rows",
            "partition",
            world="poll-period-ms=0,reconcile-period-ms=0",
            options=LOGGED,
        ),
        Flaw(
            "sketch-overflow-is-equal",
            "Q4",
            "what a sketch is too small to tell counts for nothing: replicas that differ are left so",
            "monotonic-reads",
            "partition",
            world="summary-cells=1",
            options=LOGGED,
        ),
        Flaw(
            "repair-reply-first",
            "Q5",
            "the client is answered before others have what it was shown: it may be unseen again",
            "monotonic-reads",
            "partial-write",
            world="loss=0.03,poll-period-ms=0",
            options=LOGGED,
        ),
        Flaw(
            "reconcile-read-rows-only",
            "Q5",
            "of missing mutations only the rows that were read are delivered, under the id of the whole: torn reads",
            "write-atomicity",
            "partial-write",
            options=LOGGED,
        ),
        Flaw(
            "hints-replayed-as-new",
            "Q2",
            "a hint is written anew when it is replayed: what was missed wins over what was written since",
            "durable-rows",
            "kill",
        ),
        Flaw(
            "accept-below-bound",
            "Q7",
            "a replica takes a write below a bound that all have reached: nobody ever looks for it at the others",
            "convergence",
            "replica-away",
            world="write-timeout-ms=300,reconcile-margin-ms=0,reconcile-period-ms=300",
            options="table=logged,keys=100",
        ),
        Flaw(
            "purge-unreconciled",
            "Q8",
            "a deletion is forgotten after its grace period, though a replica has not heard of it: rows come back",
            "durable-rows",
            "replica-away",
            world="wall=none,jumps=none,deletion-grace-ms=1000,memtable-bytes=2000",
            seen_by="purged-below-bound",
            options="table=logged,keys=100",
        ),
        Flaw(
            "heartbeat-leader-only",
            "M3",
            "tablet servers follow the leader: a new one knows none of them, and CreateTable fails (KUDU-1358)",
            "catalog",
            "master-kill(target=leader)",
            world="tserver-heartbeat-ms=300",
            seen_by="end-state",
            time_limit_s=SHORT_S,
        ),
        Flaw(
            "replacement-visible-early",
            "M6",
            "clients see tablets that never came to be",
            "catalog",
            "unheard-tablets",
            world="tablet-creation-ms=1000,election-timeout-ms=300,latency=lan",
            time_limit_s=SHORT_S,
        ),
        Flaw(
            "delete-orphans",
            "M9",
            "masters delete what they don't know, and nobody checks the cluster: a foreign one deletes live data",
            "register",
            "foreign-cluster",
            seen_by="deletions-are-committed",
            time_limit_s=12.0,
        ),
        Flaw(
            "no-config-cas",
            "M9",
            "two masters both change a configuration: too many replicas, or too few for a quorum",
            "register",
            "late-call",
            world="replica-dead-ms=3000,tserver-heartbeat-ms=300",
            seen_by="not-over-replicated",
            time_limit_s=20.0,
        ),
        Flaw(
            "mutation-id-reuse",
            "Q3",
            "a restarted node makes ids by its clock, which may go back: two writes have one id, and one is lost",
            "durable-rows",
            "restart-clock-back",
            world="max-clock-offset-ms=4000",
            options="table=logged,reads=0.3,keys=6",
        ),
        Flaw(
            "summary-after-data",
            "Q5",
            "the summary is taken after the data: a mutation between them is missed",
            "durable-rows",
            "split-snapshot",
            options=LOGGED,
        ),
    )
}
"""Each is found by the named run, which is valid without it (`tests/assay/test_campaigns.py` has the seeds)."""
