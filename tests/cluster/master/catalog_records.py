"""Records of the catalog as tests of masters hand them over: a table whose only tablet is on three servers."""

from __future__ import annotations

from cluster.master.records import TabletConfig, TabletRecord, TabletState, new_table
from cluster.store.schema import Column
from cluster.wire.messages import Partition, Replica

COLUMNS = (Column(0, "value", "int64"),)
TABLE = new_table("table", "orders", COLUMNS, 3)


def replica(name: str) -> Replica:
    return Replica(name, f"{name}:7050")


VOTERS = tuple(map(replica, ("t1", "t2", "t3")))


def tablet_record(state: TabletState = TabletState.CREATING, op_index: int = 0, op_term: int = 0) -> TabletRecord:
    """The first revision of TABLE's only tablet, whose configuration that entry made."""
    config = TabletConfig(op_index, VOTERS, (), op_term)
    return TabletRecord("tablet", 1, TABLE.table_id, Partition(0, 1), state, config, ())
