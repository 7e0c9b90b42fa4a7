"""Messages between clients, masters and tablet servers, as MessagePack (msgspec tagged unions).

Every request is answered by its reply or by an `ErrorReply`. `WIRE_VERSION` is stated in each connection's handshake.
A message's tag is the name of its class, so that a class can't be renamed without another version.
"""

from __future__ import annotations

from typing import TypeAlias, final

import msgspec

from cluster.raft.types import ChangeKind, Message, OpId
from cluster.store.cells import Value
from cluster.store.schema import Column as Column
from cluster.wire.catalog import AlterTable as AlterTable
from cluster.wire.catalog import AlterTableReply as AlterTableReply
from cluster.wire.catalog import AskFreshness as AskFreshness
from cluster.wire.catalog import CatalogReply as CatalogReply
from cluster.wire.catalog import CatalogRequest as CatalogRequest
from cluster.wire.catalog import CreateTable as CreateTable
from cluster.wire.catalog import CreateTableReply as CreateTableReply
from cluster.wire.catalog import DeleteTable as DeleteTable
from cluster.wire.catalog import DeleteTableReply as DeleteTableReply
from cluster.wire.catalog import DoneReply as DoneReply
from cluster.wire.catalog import FreshnessReply as FreshnessReply
from cluster.wire.catalog import GetTableLocations as GetTableLocations
from cluster.wire.catalog import GetTableSchema as GetTableSchema
from cluster.wire.catalog import GetTabletLocations as GetTabletLocations
from cluster.wire.catalog import IsAlterTableDone as IsAlterTableDone
from cluster.wire.catalog import IsCreateTableDone as IsCreateTableDone
from cluster.wire.catalog import ListMasters as ListMasters
from cluster.wire.catalog import ListTables as ListTables
from cluster.wire.catalog import ListTablesReply as ListTablesReply
from cluster.wire.catalog import ListTabletServers as ListTabletServers
from cluster.wire.catalog import MastersReply as MastersReply
from cluster.wire.catalog import PlaceTable as PlaceTable
from cluster.wire.catalog import TableLocationsReply as TableLocationsReply
from cluster.wire.catalog import TableSchemaReply as TableSchemaReply
from cluster.wire.catalog import TabletLocationsReply as TabletLocationsReply
from cluster.wire.catalog import TabletServersReply as TabletServersReply
from cluster.wire.nouns import Partition as Partition
from cluster.wire.nouns import Regional as Regional
from cluster.wire.nouns import Replica as Replica
from cluster.wire.nouns import Replicas as Replicas
from cluster.wire.nouns import RequestId as RequestId
from cluster.wire.nouns import Seconds
from cluster.wire.nouns import TableInfo as TableInfo
from cluster.wire.nouns import TabletLocation as TabletLocation
from cluster.wire.nouns import voters_wanted as voters_wanted
from cluster.wire.operating import GetRanges, OperatorReply, OperatorRequest, RangesReply
from cluster.wire.rows import GetRow, ScanRows, TypedRequest, TypedRowsReply
from cluster.wire.staleness import Bound, HowServed
from harness.cell_address import CellAddress

WIRE_VERSION = 8

DESIGNS = ("raft", "legacy", "logged")
"""The replication designs that a table can have (G4), all of which tablet servers host."""

LEADERLESS = "LEADERLESS"
"""The state that a replica reports whose design knows no leader: it is there, and takes what coordinators send."""

FAILED = "FAILED"
"""The state that a replica reports whose program failed on what it has stored, which is whole."""

QUARANTINED = "QUARANTINED"
"""Of a replica whose stored data is damaged: only one that begins anew as a learner can take its place (G7)."""

CATALOG_GROUP = "catalog"
"""The masters' Raft group."""

MASTER_PORT = 7051
TSERVER_PORT = 7050


# ---- heartbeats ----


class TabletReport(msgspec.Struct, frozen=True, array_like=True):
    """One replica as its tablet server sees it; the configuration, set at `config_index`, is committed (M9).

    `awaits_index` is that of the configuration to which a change is to add this replica, 0 if none is.
    """

    tablet_id: str
    table_id: str
    state: str
    term: int
    leader: str | None
    voters: tuple[Replica, ...]
    learners: tuple[Replica, ...]
    config_index: int
    schema_version: int
    config_term: int = 0
    awaits_index: int = 0


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """A tablet server's heartbeat to one master (M3); `reports` is full or incremental (M4).

    It holds `TabletReport`s as bytes: a master that doesn't lead never looks at them, however many they are.
    """

    node_id: str
    incarnation: int
    address: str
    zone: str
    sequence: int
    full: bool
    reports: msgspec.Raw


# ---- requests to tablet servers ----


class CreateTablet(msgspec.Struct, frozen=True, tag=True):
    """Create a replica on the tablet server `server_id`; creating an existing one is a success.

    The leader master sends it to the founding voters until they report. A replica that is `founding` and among the
    `voters` begins with them as its configuration; any other has none, and they are whom it may hear from (G1).
    `awaits_index` is that of the configuration to which a change is to add it: only a later one can say that it is not
    wanted (M9). `replication_factor` is how many voters there should be, 0 where that is not known. `policy` is how the
    range is closed (`cluster.ranges.policies`), if not as knobs say.
    """

    server_id: str
    founding: bool
    tablet_id: str
    table_id: str
    table_name: str
    partition: Partition
    columns: tuple[Column, ...]
    schema_version: int
    voters: tuple[Replica, ...]
    design: str = "raft"
    awaits_index: int = 0
    replication_factor: int = 0
    policy: str | msgspec.UnsetType = msgspec.UNSET


class AlterTablet(msgspec.Struct, frozen=True, tag=True):
    """Give a tablet this schema and policy through its log, unless it has this version already; sent to its leader.

    The leader master sends it until the tablet reports the version. Answered by `DoneReply` once committed. With
    `only_asks` nothing is changed: it is answered by POLICY_UNMET where the policy could not be kept as things are.
    """

    tablet_id: str
    table_name: str
    columns: tuple[Column, ...]
    schema_version: int
    policy: str | msgspec.UnsetType = msgspec.UNSET
    only_asks: bool | msgspec.UnsetType = msgspec.UNSET


class DeleteTablet(msgspec.Struct, frozen=True, tag=True):
    """Delete a replica of the tablet server `server_id`: for good, or because the configuration that was set at
    `removed_at` has it no more (M9).

    The latter is a compare-and-set: it is refused (CHANGE_REFUSED) by a replica that knows of a later configuration, or
    is to be added to this one. It leaves a tombstone with the replica's vote. Answered by `DoneReply`. Another server
    that has come to the address refuses; masters always name one.
    """

    tablet_id: str
    removed_at: OpId | None = None
    server_id: str = ""


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """A cell of a partition that the message names."""

    row: int
    column: int
    value: Value


class RowRange(msgspec.Struct, frozen=True, array_like=True):
    """Whole rows from `first` (inclusive) to `last` (exclusive; None is the partition's end)."""

    first: int
    last: int | None


class ReadCell(msgspec.Struct, frozen=True, tag=True):
    """A read of one cell: strong, or as of an earlier time, or within a bound.

    A time below 0 is an offset from the clock of who is asked first. A strong read is served at the leaseholder, or by
    any replica of a table that is closed ahead of time; `begun` is when it was begun by the clock of who was asked
    first (R6).
    """

    tablet_id: str
    partition: int
    row: int
    column: int
    as_of: int | None = None
    bound: Bound | msgspec.UnsetType = msgspec.UNSET
    begun: int | msgspec.UnsetType = msgspec.UNSET


class ReadRows(msgspec.Struct, frozen=True, tag=True):
    """A read of rows of one partition, all of them at one time; the time is chosen as by `ReadCell`."""

    tablet_id: str
    partition: int
    ranges: tuple[RowRange, ...]
    as_of: int | None = None
    bound: Bound | msgspec.UnsetType = msgspec.UNSET
    begun: int | msgspec.UnsetType = msgspec.UNSET


class AskReadTime(msgspec.Struct, frozen=True, tag=True):
    """From another replica to the leaseholder: at which time a strong read has to be served. Answered by `ReadTime`."""

    tablet_id: str
    read: ReadCell | ReadRows | GetRow | ScanRows


class WriteCell(msgspec.Struct, frozen=True, tag=True):
    """`requested` is the timestamp that the client would give the change; it gets that or a higher one (G2, R5)."""

    request_id: RequestId
    tablet_id: str
    partition: int
    row: int
    column: int
    value: Value
    requested: int | None = None


@final
class WriteCells(msgspec.Struct, frozen=True, tag=True):
    """Cells of one partition, written together or not at all."""

    request_id: RequestId
    tablet_id: str
    partition: int
    cells: tuple[Cell, ...]
    requested: int | None = None


class CompareAndSet(msgspec.Struct, frozen=True, tag=True):
    request_id: RequestId
    tablet_id: str
    partition: int
    row: int
    column: int
    expected: Value
    value: Value
    requested: int | None = None

    @property
    def cell(self) -> CellAddress:
        return CellAddress(self.partition, self.row, self.column)


@final
class HoldCells(msgspec.Struct, frozen=True, tag=True):
    """Lay what `transaction` will write to cells of one partition, together or not at all: nobody reads or writes there
    until it is settled (R9). Answered by `Done`, whose timestamp may rise until then."""

    request_id: RequestId
    tablet_id: str
    partition: int
    transaction: str
    cells: tuple[Cell, ...]
    requested: int | None = None


@final
class SettleHold(msgspec.Struct, frozen=True, tag=True):
    """Commit what a transaction holds in a tablet, at the timestamp that it has by then, or abort it.

    Answered by `Done`: not applied where nothing is held, as after `hold_ms`.
    """

    request_id: RequestId
    tablet_id: str
    partition: int
    transaction: str
    commits: bool
    requested: int | None = None


@final
class PushHold(msgspec.Struct, frozen=True, tag=True):
    """From a replica whose reader waits, to the leaseholder: have what a transaction holds lie above a time, or end if
    it was held for too long.

    Answered by `Done`: not applied where nothing is held.
    """

    tablet_id: str
    transaction: str
    above: int


@final
class RegisterSession(msgspec.Struct, frozen=True, tag=True):
    """Begin a session with a tablet (`group` is its id) or with the masters' `catalog`; changes name it (G8)."""

    group: str


class ChangeReplicas(msgspec.Struct, frozen=True, tag=True):
    """An operator's change of a group's configuration, to its leader: `group` is a tablet's id or `catalog` (G1).

    It is carried out if the configuration is the one that the entry (`config_term`, `config_index`) set. Adding a
    learner of a tablet creates the replica at `address` first. Answered by a `ConfigurationReply` once committed.
    """

    group: str
    change: ChangeKind
    server_id: str
    address: str
    config_term: int
    config_index: int
    timeout_s: Seconds


class GetStatus(msgspec.Struct, frozen=True, tag=True):
    """To any node: its own `harness.protocols.NodeStatus`, with one entry per Raft group."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """To a tablet server: answer at once, so that a client knows how far away it is. Answered by `DoneReply`."""


class ArmFailpoint(msgspec.Struct, frozen=True, tag=True):
    """To any node: act at this point from now on, as long as you live (`harness.ports.failpoints.Arming`).

    An empty action disarms the point, or all where the point is empty too. Requests are numbered in the order in which
    they were made, from 1: one that others overtook, or that arrives again, changes nothing. 0: it has no number.
    Answered by `ArmedReply`.
    """

    point: str
    action: str
    group: str = ""
    times: int = 1
    seconds: Seconds = 0.0
    number: int = 0


class ProbeDisk(msgspec.Struct, frozen=True, tag=True):
    """To any node: make something durable, and say within `patience_s` how it went. Answered by `DiskReply`."""

    patience_s: Seconds


RowRequest: TypeAlias = (
    ReadCell
    | ReadRows
    | AskReadTime
    | WriteCell
    | WriteCells
    | CompareAndSet
    | HoldCells
    | SettleHold
    | PushHold
    | TypedRequest
    | RegisterSession
)
"""What clients ask of one tablet."""

Request: TypeAlias = (
    CatalogRequest
    | Heartbeat
    | CreateTablet
    | AlterTablet
    | DeleteTablet
    | RowRequest
    | ChangeReplicas
    | OperatorRequest
    | GetRanges
    | GetStatus
    | Ping
    | ArmFailpoint
    | ProbeDisk
)

# ---- replies ----


@final
class ErrorReply(msgspec.Struct, frozen=True, tag=True):
    """A refusal. `definite` says that the request took no effect and never will (else its outcome is unknown).

    `kind`: NOT_THE_LEADER (with `leader`, a node id or None), NO_LEASE, CLOCK_FENCED, NOT_FOUND, ALREADY_PRESENT,
    INVALID, TRY_AGAIN (too few tablet servers are live as yet), UNKNOWN_ZONE and TOO_FEW_NODES (in a zone),
    UNSUPPORTED_DESIGN, POLICY_UNMET (leases are too short to close so far ahead), TIMED_OUT, OVERLOADED,
    SHUTTING_DOWN, CHANGE_REFUSED, SCHEMA_BEHIND, SCHEMA_CHANGED (see `cluster.wire.rows`), SESSION_ENDED, FORGOTTEN,
    STRANGER, TOO_STALE, NOT_CAUGHT_UP, INTENT_OPEN; of reads TWO_BOUNDS, NEGATIVE_BOUND, FUTURE_TIME, TOO_OLD,
    NOT_CLOSED; between nodes CLOCK_OFFSET. `leader_address` is given by masters: clients know them by their addresses
    only. `served` is told of reads whose time was fixed here.
    """

    kind: str
    message: str
    definite: bool
    leader: str | None = None
    leader_address: str | None = None
    served: HowServed | msgspec.UnsetType = msgspec.UNSET


class HeartbeatReply(msgspec.Struct, frozen=True, tag=True):
    """`leader_term` is set by a leader master only: a tserver that sees a new one sends it a full report (M4)."""

    node_id: str
    leader_term: int | None
    need_full_report: bool


class SessionReply(msgspec.Struct, frozen=True, tag=True):
    session: int


class ConfigurationReply(msgspec.Struct, frozen=True, tag=True):
    """The configuration of a group that the entry (`config_term`, `config_index`) set."""

    voters: tuple[Replica, ...]
    learners: tuple[Replica, ...]
    config_term: int
    config_index: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """The change took effect; `applied` is false for a compare-and-set that found `found` instead.

    `waited_ns` is how long the answer was kept back until the clock had passed its timestamp, where it was (R6).
    """

    applied: bool
    found: Value
    timestamp: int
    waited_ns: int | msgspec.UnsetType = msgspec.UNSET


class ReadReply(msgspec.Struct, frozen=True, tag=True):
    """The cell's value (None if never written) and the HLC timestamp the read was served at.

    `served` says how, but of strong reads at the leaseholder.
    """

    value: Value
    timestamp: int
    served: HowServed | msgspec.UnsetType = msgspec.UNSET


class RowsReply(msgspec.Struct, frozen=True, tag=True):
    """The cells that hold a value, range by range and in order, and the HLC timestamp the read was served at."""

    cells: tuple[Cell, ...]
    timestamp: int
    served: HowServed | msgspec.UnsetType = msgspec.UNSET


class ReadTime(msgspec.Struct, frozen=True, tag=True):
    """Who has applied everything up to the log index `index` finds at `timestamp` what the leaseholder finds, for the
    spans that were asked for and for ever (R8)."""

    timestamp: int
    index: int


class DiskReply(msgspec.Struct, frozen=True, tag=True):
    """How long it took to make something durable, or has taken so far; `full`: there was no room for it."""

    sync_ms: float
    ended: bool
    full: bool


class ArmedReply(msgspec.Struct, frozen=True, tag=True):
    """The points that are armed now, and how often each was passed in this life of the process while it was armed."""

    armed: tuple[str, ...]
    passed: dict[str, int] = {}


class GroupState(msgspec.Struct, frozen=True, array_like=True):
    """One replica's own view of its group; the configuration, by server ids, is the last in its log.

    `digest` is of its state at `applied_index` (G10); `schema_version` is the one in a tablet's log (M5),
    `lease_sequence` that of the last lease record it has applied (R2), and `write_index` that of the last entry applied
    that changed what reads find (G6), 0 where there is none.
    """

    group: str
    role: str
    term: int
    leader: str | None
    commit_index: int
    applied_index: int
    last_index: int
    last_term: int
    lease_valid: bool
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    config_term: int
    config_index: int
    first_index: int
    digest: int
    schema_version: int = 0
    lease_sequence: int = 0
    write_index: int = 0


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """How many messages of a peer's stream did not arrive."""

    peer: str
    channel: str
    lost: int


class StatusReply(msgspec.Struct, frozen=True, tag=True):
    """`policies` tells of each tablet here whose table has one how it is closed, and why not so where that can't be."""

    node_id: str
    role: str
    incarnation: int
    wall_ns: int
    groups: tuple[GroupState, ...]
    streams: tuple[StreamState, ...] = ()
    policies: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


Reply: TypeAlias = (
    ErrorReply
    | CatalogReply
    | HeartbeatReply
    | SessionReply
    | ConfigurationReply
    | OperatorReply
    | Done
    | ReadReply
    | RowsReply
    | ReadTime
    | TypedRowsReply
    | RangesReply
    | StatusReply
    | ArmedReply
    | DiskReply
)

# ---- one-way messages ----


class GroupMessages(msgspec.Struct, frozen=True, array_like=True):
    """Raft messages of one group, in order."""

    group: str
    messages: tuple[Message, ...]


class PeerEnvelope(msgspec.Struct, frozen=True, array_like=True):
    """One message of the stream from one node to another on one channel (G6).

    `source` is the sending server, `epoch` its incarnation; `sequence` counts what it has sent to this server on this
    channel, from 0, and `withdrawals` how often it has withdrawn its support (`cluster.wire.liveness`). A heartbeat of
    the node says when it was sent in `heartbeat_ns`, the answer repeats it in `echo_ns`; 0 for none. Both carry
    `until`: up to where leases of the node that sent the heartbeat may last, a data timestamp.
    """

    source: str
    epoch: int
    channel: int
    sequence: int
    groups: tuple[GroupMessages, ...]
    withdrawals: int = 0
    heartbeat_ns: int = 0
    echo_ns: int = 0
    until: int = 0


encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
decode_envelope = msgspec.msgpack.Decoder(PeerEnvelope).decode

decode_reports = msgspec.msgpack.Decoder(tuple[TabletReport, ...]).decode


def encode_reports(reports: tuple[TabletReport, ...]) -> msgspec.Raw:
    """Reports as a heartbeat carries them."""
    return msgspec.Raw(encode(reports))
