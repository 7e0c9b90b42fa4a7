"""Final reads of each node in turn: who answered, and what happens to the verdict where somebody did not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.env.sim import SimEnvironment
from harness.errors import ELSEWHERE, DefiniteError, HarnessError
from harness.history.journal import read_journal
from harness.history.ops import Op
from harness.history.summary import summarise_events, summarise_parquet
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World
from harness.protocols import Database
from harness.run import life_cycle
from harness.run.final_reads import suspects
from harness.run.spec import RunOutcome
from harness.verdict.adequacy import Floors, NodesAsked, WorkDone, node_shortfall
from harness.verdict.run_verdict import RunVerdict
from tests.harness.run.memory_runs import KEYS, KillNemesis, Setup
from tests.support.memory_database import MemoryClient, MemoryDatabase


class DirectedClient(MemoryClient):
    """Keys are served by one node each; `deaf` nodes answer nobody, `idle` ones serve nothing."""

    async def invoke(self, op: Op) -> Op:
        if op.node is None:
            return await super().invoke(op)
        database = self._database
        assert isinstance(database, DirectedDatabase)
        if op.node in database.deaf:
            raise DefiniteError("timeout", f"{op.node} does not answer")
        if database.refusals.get(op.node, 0) > 0:
            database.refusals[op.node] -= 1
            raise DefiniteError("clock-unproven", f"{op.node} does not trust its clock yet")
        if op.node in database.idle or op.node != f"n{op.mops[0].partition % 3 + 1}":
            raise DefiniteError(ELSEWHERE, "others serve this")
        return msgspec.structs.replace(await super().invoke(op), node=op.node)


class DirectedDatabase(MemoryDatabase):
    capabilities = MemoryDatabase.capabilities | {"directed-reads"}
    deaf: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    serving_nodes = ("n1", "n2", "n3")

    @cached_property
    def refusals(self) -> dict[str, int]:
        """How many reads each node refuses before it serves."""
        return {}

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


def test_a_node_that_refuses_for_a_while_after_the_last_heal_is_waited_for(setup: Setup) -> None:
    """A node that had its clock set right as the run ended was not waited for, and the run was unknown."""
    database = DirectedDatabase(setup.environment.clock)
    database.refusals["n2"] = 12
    found = setup.run(database=database, nemesis=KillNemesis(database)).verdict
    assert (found.overall, database.refusals["n2"]) == ("valid", 0), found.reasons
    assert found.adequacy.details["each_node"]["reads"]["n2"] == (KEYS, KEYS)
    database.refusals["n2"] = 10_000
    assert setup.run(database=database, nemesis=KillNemesis(database)).verdict.reasons[0].endswith("not n2")


def test_a_node_that_may_be_gone_is_waited_for_once_and_read_if_it_answers(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read of a node that was gone took the whole timeout of an operation."""

    def asked(suspected: set[str], deaf: set[str]) -> object:
        async def suspects(database: Database, nodes: Sequence[str]) -> frozenset[str]:
            return frozenset(suspected)

        monkeypatch.setattr(life_cycle, "suspects", suspects)
        return verdict(setup, deaf=deaf).adequacy.details["each_node"]["reads"]["n2"]

    assert asked({"n2"}, {"n2"}) == (1, 0)
    assert asked({"n2"}, set()) == (KEYS, KEYS), "it answers"
    assert asked(set(), {"n2"}) == (KEYS, 0), "its process runs: it may only be slow"


def test_only_nodes_whose_process_is_dead_or_can_t_be_asked_for_may_be_gone() -> None:
    class Some(MemoryDatabase):
        async def process_state(self, node: str) -> ProcessState:
            if node == "n4":
                raise HarnessError("n4 is gone")
            return {"n1": ProcessState.RUNNING, "n2": ProcessState.DEAD, "n3": ProcessState.PAUSED}[node]

    with World(1) as world:
        found = world.run(suspects(Some(SimEnvironment(world).clock), ("n1", "n2", "n3", "n4")))
    assert found == {"n2", "n4"}


def test_what_a_node_that_is_gone_was_not_asked_counts_as_not_answered() -> None:
    reads = {"n1": (10, 10), "n2": (10, 10), "n3": (1, 0)}
    done = WorkDone((), {}, 1.0, None, each_node=NodesAsked(reads, (10, 10)))
    told = list(node_shortfall(done, Floors(nodes=0.5)))
    assert told == ["nodes answered only 20 of 30 final reads; the floor is 90%"]


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


def test_a_read_that_another_node_answers_is_our_failure_and_counts_for_none(setup: Setup) -> None:
    class StrayingClient(DirectedClient):
        async def invoke(self, op: Op) -> Op:
            done = await super().invoke(op)
            return done if op.node is None else msgspec.structs.replace(done, node="n3")

    class Straying(DirectedDatabase):
        async def open_client(self, process: int, timeout_s: float) -> Any:
            return StrayingClient(self, self.nodes[process % len(self.nodes)].name)

    database = Straying(setup.environment.clock)
    outcome = setup.run(database=database, nemesis=KillNemesis(database))
    assert (outcome.verdict.overall, outcome.verdict.why) == ("unknown", "harness")
    assert any("a read sent to n1 was answered by n3" in failure.error for failure in outcome.failures)
