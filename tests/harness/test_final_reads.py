"""Final reads of each node in turn: who answered, and what happens to the verdict where somebody did not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from memory_runs import KEYS, KillNemesis, Setup

from harness.errors import DefiniteError
from harness.history.journal import read_journal
from harness.history.summary import summarise_events, summarise_parquet
from harness.memory import MemoryClient, MemoryDatabase
from harness.ops import Op
from harness.protocols import ELSEWHERE
from harness.run import RunOutcome
from harness.verdict import RunVerdict


class DirectedClient(MemoryClient):
    """Keys are served by one node each; `deaf` nodes answer nobody, `idle` ones serve nothing."""

    async def invoke(self, op: Op) -> Op:
        if op.node is None:
            return await super().invoke(op)
        database = self._database
        assert isinstance(database, DirectedDatabase)
        if op.node in database.deaf:
            raise DefiniteError("timeout", f"{op.node} does not answer")
        if op.node in database.idle or op.node != f"n{op.mops[0].partition % 3 + 1}":
            raise DefiniteError(ELSEWHERE, "others serve this")
        return msgspec.structs.replace(await super().invoke(op), node=op.node)


class DirectedDatabase(MemoryDatabase):
    deaf: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    serving_nodes = ("n1", "n2", "n3")

    async def open_client(self, process: int, timeout_s: float) -> Any:
        return DirectedClient(self, self.nodes[process % len(self.nodes)].name)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def run(setup: Setup, deaf: set[str] = frozenset(), idle: set[str] = frozenset()) -> RunOutcome:  # type: ignore[assignment]
    database = DirectedDatabase(setup.environment.clock)
    database.deaf, database.idle = frozenset(deaf), frozenset(idle)
    return setup.run(database=database, nemesis=KillNemesis(database))


def verdict(setup: Setup, **kinds: set[str]) -> RunVerdict:
    return run(setup, **kinds).verdict


def test_every_node_is_asked_for_every_key_and_says_who_serves(setup: Setup) -> None:
    found = verdict(setup)
    assert found.overall == "valid", found.reasons
    assert found.adequacy.details["each_node"] == {
        "reads": dict.fromkeys(("n1", "n2", "n3"), (KEYS, KEYS)),
        "keys": (KEYS, KEYS),
    }


def test_a_node_that_answers_nobody_makes_the_run_vacuous(setup: Setup) -> None:
    found = verdict(setup, deaf={"n2"})
    assert (found.overall, found.adequacy.answer) == ("unknown", False)
    assert found.reasons[0] == "only 2 of 3 nodes answered final reads, not n2"


def test_a_node_that_serves_nothing_of_its_own_leaves_keys_unserved(setup: Setup) -> None:
    found = verdict(setup, idle={"n1"})
    assert found.overall == "unknown"
    assert found.reasons == ("only 2 of 4 keys were served by any node at the end; the floor is 90%",)


def test_the_table_and_the_journal_count_the_same_nodes(setup: Setup) -> None:
    rundir = run(setup, deaf={"n3"}, idle={"n1"}).rundir
    from_events = summarise_events(read_journal(rundir.journal))
    from_table = summarise_parquet(rundir.history_parquet)
    assert from_events.nodes == from_table.nodes
    assert from_events.nodes["each-node"]["n3"] == (KEYS, 0)
    assert from_events.keys == from_table.keys
