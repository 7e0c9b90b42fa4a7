"""What each consistency model asks of a history, as data: the condition on its dependencies, and the form's order.

Conditions (Adya 1999; Cerone, Bernardi and Gotsman 2015; Biswas and Enea 2019), with D for wr, ww and the form's
order: which edges of a graph of events may close no cycle. An event graph has one node a transaction, or two, its begin
and its commit; wr and the form's order lead from a commit to a begin, rw from a begin to a commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from checkers.transactions.polygraph.history_polygraph import PLAIN, REALTIME, SESSIONS


class Condition(NamedTuple):
    """What closes no cycle. `chosen` unless there are no choices: then `demands` says which writers are demanded to
    come before what was read (`seen`: those the reader saw itself; `causal`: those before it; none)."""

    name: str
    chosen: bool = True
    split: bool = False  # whether begin and commit are two events
    ww_to_commit: bool = False  # ww leads to the later writer's commit, else to its begin
    chains: bool = True  # who reads and writes a key follows what it read, nobody between
    rw_edges: bool = True  # rw is part of cycles; else a single rw may not be closed by …
    one_edge: bool = False  # … one edge of D, else by any path of D
    wr_edges: bool = True
    demands: str = ""


WRITES: Final = Condition("writes", chosen=False, wr_edges=False)
READS: Final = Condition("reads", chosen=False)
SEEN: Final = Condition("seen", chosen=False, demands="seen")
CAUSAL: Final = Condition("causal", chosen=False, demands="causal")
UPDATES: Final = Condition("updates", rw_edges=False, one_edge=True)
PARALLEL: Final = Condition("parallel", rw_edges=False)
PREFIX: Final = Condition("prefix", split=True, ww_to_commit=True, chains=False)
SNAPSHOT: Final = Condition("snapshot", split=True)
SERIAL: Final = Condition("serial")

CONDITIONS: Final[Mapping[str, tuple[Condition, int]]] = {
    "read-uncommitted": (WRITES, PLAIN),
    "read-committed": (READS, PLAIN),
    "read-atomic": (SEEN, PLAIN),
    "causal-cerone": (CAUSAL, PLAIN),
    "update-atomic": (UPDATES, PLAIN),
    "consistent-view": (PARALLEL, PLAIN),
    "parallel-snapshot-isolation": (PARALLEL, PLAIN),
    "prefix": (PREFIX, PLAIN),
    "snapshot-isolation": (SNAPSHOT, PLAIN),
    "repeatable-read": (SERIAL, PLAIN),
    "serializable": (SERIAL, PLAIN),
    "strong-session-read-uncommitted": (WRITES, SESSIONS),
    "strong-session-read-committed": (READS, SESSIONS),
    "strong-session-snapshot-isolation": (SNAPSHOT, SESSIONS),
    "strong-session-serializable": (SERIAL, SESSIONS),
    "strong-read-uncommitted": (WRITES, REALTIME),
    "strong-read-committed": (READS, REALTIME),
    "strong-snapshot-isolation": (SNAPSHOT, REALTIME),
    "strong-serializable": (SERIAL, REALTIME),
}
"""Consistency model → condition and form. Of other models the lattice says what follows from these."""
