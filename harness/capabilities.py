"""What a database or an environment can take or do, by name: a fault or a power counts only if it is named here."""

from __future__ import annotations

from enum import StrEnum


class Capability(StrEnum):
    """A word of `Database.capabilities` or `Environment.capabilities`, and in `meaning` what it says in a line."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Capability:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member

    # Of any database
    KILL = "kill", "SIGKILL ends all processes of a node at once; what they had written, synced or not, survives"
    STOP = "stop", "a node's processes end gracefully when they are asked to, within some seconds"
    PAUSE = "pause", "all processes of a node stop where they are (SIGSTOP), and go on (SIGCONT)"
    STATUS = "status", "a node says in which life it is, and of which groups it holds replicas, in which role"
    TERMS = "terms", "`GroupStatus.term` grows with each change of leader, and never shrinks"
    WALL_CLOCK = "wall-clock", "`NodeStatus.wall_ns` is its program's clock, and the program lives with a wrong one"
    ZONES = "zones", "its nodes stand in several zones"
    DIRECTED_READS = "directed-reads", "a read that names a node is answered by that node or fails (`Directed`)"
    SHARDS = "shards", "keys are spread over groups that fail one by one (`Sharded`)"
    FAILOVER = "failover", "it says how long a fail-over may take (`FailsOver`)"
    CATCHES_UP = "catches-up", "it tells whether it comes nearer to serving (`CatchesUp`)"
    INVARIANTS = "invariants", "invariants are checked inside while it runs (`Watched`)"
    EXAMINE = "examine", "it can be looked at as a whole at a quiet moment (`Examined`)"
    LEADERSHIPS = "leaderships", "it notes who led which group in which term (`harness.verdict.leaderships.Led`)"
    LEADERSHIP = "leadership", "leaders hand over when they are asked to (`Transferable`)"
    MEMBERSHIP = "membership", "replicas join and leave groups while it serves (`Reconfigurable`)"
    UNSYNCED_LOSS = "unsynced-loss", "a kill loses what was written and not synced, as a power cut would"

    # Of the reference cluster
    MASTERS = "masters", "its roles are `master` and `tserver`, and leaders of tablets hold leases"
    FAILPOINT = "failpoint", "processes act at named points of their code (`Armable`)"
    FLOOD = "flood", "writes beside those of the workload (`Flooding`)"
    DISK = "disk", "disks can be slow, hang, be damaged and wiped (`Disks`)"
    FOREIGN_CLUSTER = "foreign-cluster", "another cluster's programs can take its nodes' places (`Supplantable`)"
    MASTER_MEMBERSHIP = "master-membership", "masters join and leave (`MasterMembership`)"
    DECOMMISSION = "decommission", "a server can be emptied: there is another one for its replicas (`Emptiable`)"
    HELD_MESSAGE = "held-message", "a message between its nodes can be held back (`HoldsMessages`)"
    WRITTEN_GROUPS = "written-groups", "it says which groups clients write to (`PartlyWritten`)"

    # Of the reference cluster, as it is set up and as its workload's tables are
    LEADERLESS = "leaderless", "its tables have no leaders: a coordinator asks replicas"
    LOGGED_TABLES = "logged-tables", "its tables without leaders log mutations"
    TABLES_MADE = "tables-made", "the workload makes tables while it runs"
    READS_ANYWHERE = "reads-anywhere", "the workload reads from whichever replica is near, and each server has one"
    POLICIES = "policies", "the workload's table is closed ahead of time, by a policy that can be altered"
    LASTING_TABLETS = "lasting-tablets", "the workload makes none"
    SPARE_MASTER = "spare-master", "a master can leave, and a group of three is left"
    REPLACEABLE_MASTERS = "replaceable-masters", "two masters are left where one loses its disk"
    REPLACEABLE_VOTERS = "replaceable-voters", "a replica in a lost one's place catches up with clients that write"

    # Of environments
    PARTITION = "partition", "links between nodes can be cut, one way too"
    CLIENT_CUT = "client-cut", "links between nodes and clients can be cut"
    FULL_DISK = "full-disk", "data volumes are small enough to be filled"
    CLOCK = "clock", "wall clocks of single nodes can be wrong (`ClockControl`)"
    CLIENT_CLOCKS = "client-clocks", "wall clocks of clients' machines can be wrong (`ClientClocks`)"
    PACKETS = "packets", "links can be bad without being cut (`PacketShaping`)"
