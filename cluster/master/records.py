"""Catalog records (M1): what the catalog tablet stores, one row per table and one per tablet.

Records are immutable: a change makes a new record with the next `revision`, and the catalog takes it only over the
revision it was made from. Records of removed tables and tablets are kept for ever (appendix A).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from cluster.wire.messages import Column, Partition, Regional, Replica, Replicas, TableInfo, voters_wanted


class TableState(StrEnum):
    UNKNOWN = "UNKNOWN"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    ALTERING = "ALTERING"
    REMOVED = "REMOVED"


class TabletState(StrEnum):
    """`UNKNOWN` is a record under construction (never replicated, never visible, M6); `PREPARING` has no replicas yet;
    `CREATING` waits for a leader to be reported; `REPLACED` and `DELETED` are final."""

    UNKNOWN = "UNKNOWN"
    PREPARING = "PREPARING"
    CREATING = "CREATING"
    RUNNING = "RUNNING"
    REPLACED = "REPLACED"
    DELETED = "DELETED"


FINAL_TABLET_STATES = frozenset({TabletState.REPLACED, TabletState.DELETED})


RAFT = "raft"


class ByPolicy(msgspec.Struct, frozen=True, array_like=True):
    """The design `raft`, with a policy by which ranges are closed (R6)."""

    policy: str


def strategy_of(design: str, policy: str) -> str | ByPolicy:
    """What a table's record says of them."""
    return ByPolicy(policy) if policy else design


class TableRecord(msgspec.Struct, frozen=True, array_like=True):
    """A table. `fully_applied_columns` is the latest schema that every tablet is known to have, of the version
    `fully_applied_version`, while the table is ALTERING; else None.

    `strategy` is how its tablets are replicated (G4), for good, and by which policy they are closed, if by one;
    `replicas` how many there are to be, and where.
    """

    table_id: str
    revision: int
    name: str
    state: TableState
    columns: tuple[Column, ...]
    version: int
    next_column_id: int
    fully_applied_columns: tuple[Column, ...] | None
    replicas: Replicas
    strategy: str | ByPolicy = RAFT
    fully_applied_version: int = 0

    @property
    def design(self) -> str:
        """How its tablets are replicated."""
        return RAFT if isinstance(self.strategy, ByPolicy) else self.strategy

    @property
    def policy(self) -> str:
        """How its ranges are closed (`cluster.ranges.policies`); empty if as knobs say."""
        return self.strategy.policy if isinstance(self.strategy, ByPolicy) else ""

    @property
    def replication_factor(self) -> int:
        """How many voters each tablet is to have."""
        return voters_wanted(self.replicas)

    @property
    def removed(self) -> bool:
        return self.state == TableState.REMOVED


class TabletConfig(msgspec.Struct, frozen=True, array_like=True):
    """A tablet's Raft configuration; the entry (`op_term`, `op_index`) made it, 0 for the one given at creation.

    Members carry the address last known, for a tserver that this master hasn't heard of yet.
    """

    op_index: int
    voters: tuple[Replica, ...]
    learners: tuple[Replica, ...] = ()
    op_term: int = 0

    @property
    def node_ids(self) -> tuple[str, ...]:
        return tuple(voter.node_id for voter in self.voters)

    @property
    def members(self) -> tuple[Replica, ...]:
        """Voters, then learners."""
        return self.voters + self.learners

    def serving(self, wanted: Replicas) -> tuple[Replica, ...]:
        """The members that clients are told of: learners too where the table wants them, for they serve reads."""
        return self.members if isinstance(wanted, Regional) else self.voters

    @property
    def member_ids(self) -> tuple[str, ...]:
        return tuple(member.node_id for member in self.members)


class TabletRecord(msgspec.Struct, frozen=True, array_like=True):
    """A tablet. `confirmed` are the replicas that were reported at least once: a replica is created by a nudge only
    until then, so that one that lost its disk never comes back empty under its old name. `leader` was reported last to
    lead it, in the Raft term `leader_term`; None where nobody ever was."""

    tablet_id: str
    revision: int
    table_id: str
    partition: Partition
    state: TabletState
    config: TabletConfig | None
    confirmed: tuple[str, ...]
    leader: str | None = None
    leader_term: int = 0

    @property
    def final(self) -> bool:
        return self.state in FINAL_TABLET_STATES

    @property
    def unconfirmed(self) -> tuple[Replica, ...]:
        """Replicas that nobody has reported yet."""
        if self.config is None or self.final:
            return ()
        return tuple(voter for voter in self.config.voters if voter.node_id not in self.confirmed)


class ServerRecord(msgspec.Struct, frozen=True, array_like=True):
    """What operators have said of a tablet server: `leaving`, it is to be emptied and gets nothing new (M11)."""

    server_id: str
    revision: int
    leaving: bool


def changed_table(record: TableRecord, **changes: object) -> TableRecord:
    """The record's next revision."""
    return msgspec.structs.replace(record, revision=record.revision + 1, **changes)


def changed_tablet(record: TabletRecord, **changes: object) -> TabletRecord:
    """The record's next revision."""
    return msgspec.structs.replace(record, revision=record.revision + 1, **changes)


def new_table(
    table_id: str,
    name: str,
    columns: tuple[Column, ...],
    replicas: Replicas,
    design: str = "raft",
    policy: str = "",
) -> TableRecord:
    """The first committed revision of a table: RUNNING, with its tablets still PREPARING (appendix B)."""
    next_column_id = 1 + max((column.id for column in columns), default=-1)
    state = TableState.RUNNING
    strategy = strategy_of(design, policy)
    return TableRecord(table_id, 1, name, state, columns, 0, next_column_id, None, replicas, strategy)


def new_tablet(tablet_id: str, table_id: str, partition: Partition) -> TabletRecord:
    """The first committed revision of a tablet: PREPARING, with no replicas yet."""
    return TabletRecord(tablet_id, 1, table_id, partition, TabletState.PREPARING, None, ())


def altered_table(
    record: TableRecord, name: str, columns: tuple[Column, ...], next_column_id: int, policy: str | None = None
) -> TableRecord:
    """The record of a table that has this schema, and this policy if one is named, once its tablets have followed
    (appendix B, "Altering a table").

    A table that is altered again meanwhile keeps what every tablet is known to have.
    """
    already = record.state == TableState.ALTERING
    return changed_table(
        record,
        name=name,
        columns=columns,
        next_column_id=next_column_id,
        strategy=record.strategy if policy is None else strategy_of(record.design, policy),
        version=record.version + 1,
        state=TableState.ALTERING,
        fully_applied_columns=record.fully_applied_columns if already else record.columns,
        fully_applied_version=record.fully_applied_version if already else record.version,
    )


def settled_table(record: TableRecord) -> TableRecord:
    """The record of a table whose tablets all have its latest schema."""
    return changed_table(record, state=TableState.RUNNING, fully_applied_columns=None, fully_applied_version=0)


def removed_table(record: TableRecord) -> TableRecord:
    """The record of a table that is gone for good, kept for ever."""
    return changed_table(record, state=TableState.REMOVED, fully_applied_columns=None, fully_applied_version=0)


def deleted_tablet(record: TabletRecord) -> TabletRecord:
    """The record of a tablet that is gone for good: it says so and no more, so that any table fits one batch (M7)."""
    return changed_tablet(record, state=TabletState.DELETED, config=None, confirmed=(), leader=None, leader_term=0)


def table_info(record: TableRecord) -> TableInfo:
    return TableInfo(record.table_id, record.name, str(record.state), record.version, record.design)


def creation_done(tablets: Iterable[TabletRecord]) -> bool:
    """IsCreateTableDone: every tablet that is not final runs, and there is one at least."""
    live = [tablet for tablet in tablets if not tablet.final]
    return bool(live) and all(tablet.state == TabletState.RUNNING for tablet in live)
