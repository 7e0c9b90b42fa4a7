"""Workloads that ask for nothing of a database: on one in memory, which is right, broken, or idle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from assay.compose import make_test
from assay.judging import judge_saved_run
from assay.options import RunOptions
from checkers.api import check_run
from checkers.verdict import as_object
from harness.env.sim import SimEnvironment
from harness.errors import DefiniteError, UserError
from harness.generators import limit
from harness.generators.simulate import simulate
from harness.history.ops import Mop, Op, watched
from harness.history.rundir import create
from harness.ports.sim.world import World
from harness.protocols import Client
from harness.run.life_cycle import run
from harness.run.spec import RunOutcome
from tests.support.memory_database import MemoryDatabase
from workloads import objects, transactions
from workloads.api import check_operations, resolve_options
from workloads.registry import WORKLOADS

NAMES = [workload.name for workload in (*transactions.WORKLOADS, *objects.WORKLOADS)]
BETWEEN_STEPS_S = 0.05


class Store:
    """What all clients share: lists, registers, accounts and locks by key, and the log of commits."""

    def __init__(self, flaw: str) -> None:
        self.flaw = flaw
        self.lists: dict[int, tuple[int, ...]] = {}
        self.values: dict[int, int | None] = {}
        self.versions: list[tuple[dict[int, tuple[int, ...]], dict[int, int | None]]] = []
        self.held: set[int] = set()
        self.commits: list[tuple[int, int, int | None]] = []
        self.seen_by: dict[str, dict[int, int | None]] = {}
        self.count = 0


class StoreClient:
    """Implements `Client`; `flaw` says what its store does wrong."""

    def __init__(self, database: MemoryDatabase, node: str, store: Store) -> None:
        self.database, self.node, self.store = database, node, store

    async def invoke(self, op: Op) -> Op:
        await self.database.clock.sleep(self.database.latency_s)
        store = self.store
        store.count += 1
        if store.flaw == "idle" and op.phase == "main":
            raise DefiniteError("refused", "it is idle")
        return await {"transfer": self.transfer, "watch": self.watch}.get(op.f, self.mops)(op)

    async def mops(self, op: Op) -> Op:
        store, done = self.store, []
        lists, values = store.lists, store.values
        if store.flaw == "stale" and op.f == "read" and store.count % 5 == 0 and store.versions:
            lists, values = store.versions[-min(len(store.versions), 20)]
        for place, mop in enumerate(op.mops):
            if store.flaw == "fractured" and place:
                await self.database.clock.sleep(BETWEEN_STEPS_S)
            done.append(self.one(mop, lists, values))
        store.versions.append((dict(store.lists), dict(store.values)))
        served = len(store.commits) if op.f == "write" else None
        return op.complete("ok", mops=tuple(done), node=self.node, served_ts=served)

    def one(self, mop: Mop, lists: dict[int, tuple[int, ...]], values: dict[int, int | None]) -> Mop:
        store, key = self.store, mop.partition
        lost = store.flaw == "lost" and store.count % 10 == 0
        if mop.f in ("append", "add") and not lost:
            lists[key] = (*lists.get(key, ()), mop.value or 0)
        if mop.f == "w" and not lost:
            values[key] = mop.value
            store.commits.append((len(store.commits) + 1, key, mop.value))
        if mop.f in ("acquire", "release"):
            self.lock(mop)
        if mop.f != "r":
            return mop
        if self.database.workload in ("list-append", "set"):
            return replace(mop, values=lists.get(key, ()))
        if store.flaw == "forked":
            return replace(mop, value=values.get(key) if key % 2 == int(self.node[1:]) % 2 else self.late(key))
        return replace(mop, value=values.get(key))

    def late(self, key: int) -> int | None:
        """The value as some versions ago."""
        return self.store.versions[-min(len(self.store.versions), 40)][1].get(key) if self.store.versions else None

    def lock(self, mop: Mop) -> None:
        held, key = self.store.held, mop.partition
        if mop.f == "release":
            held.discard(key)
        elif key in held and not (self.store.flaw == "two-holders" and self.store.count % 20 == 0):
            raise DefiniteError("held", "somebody holds it")
        held.add(key) if mop.f == "acquire" else None

    async def transfer(self, op: Op) -> Op:
        values, moved = self.store.values, op.value
        if values[moved["from"]] < moved["amount"]:
            raise DefiniteError("too-little", "the account holds less")
        values[moved["from"]] -= moved["amount"]
        if self.store.flaw == "fractured":
            await self.database.clock.sleep(BETWEEN_STEPS_S)
        if not (self.store.flaw == "lost" and self.store.count % 10 == 0):
            values[moved["to"]] += moved["amount"]
        return op.complete("ok", node=self.node)

    async def watch(self, op: Op) -> Op:
        rows = [row for row in self.store.commits if row[0] > (op.requested_ts or 0)]
        if self.store.flaw == "deaf" and len(rows) > 3:
            rows.pop(1)
        if self.store.flaw == "repeating" and rows:
            rows.append(rows[-1])
        return watched(op, rows, len(self.store.commits))

    async def close(self) -> None:
        """Nothing to release."""


class StandIn(MemoryDatabase):
    """A `MemoryDatabase` whose clients share a store."""

    name = "stand-in"
    operations = frozenset({"r", "w", "append", "add", "transact", "transfer", "acquire", "release", "watch"})
    workload = ""

    def __init__(self, environment: SimEnvironment, store: Store) -> None:
        make: Callable[[MemoryDatabase, str], Client] = lambda database, node: StoreClient(database, node, store)  # noqa: E731
        super().__init__(environment.clock, make_client=make)
        self.store = store

    async def setup_workload(self, workload: str, options: dict[str, int]) -> None:  # type: ignore[override]
        self.workload = workload
        if workload == "bank":
            self.store.values = dict.fromkeys(range(options["accounts"]), options["balance"])


def played(folder: Path, name: str, flaw: str, **given: str) -> RunOutcome:
    """Ten seconds of a workload on a stand-in with a flaw."""
    options = RunOptions(name, time_limit=10.0, seed=3, store=folder, workload_options=given)
    with World(3) as world:
        environment = SimEnvironment(world)
        started = datetime(2026, 1, 2, tzinfo=UTC)
        test = make_test(options, environment, StandIn(environment, Store(flaw)), started)
        return world.run(run(test, create(folder, name, started), judge_saved_run))


@pytest.mark.parametrize("name", NAMES)
def test_a_database_that_keeps_its_word_is_valid(name: str, tmp_path: Path) -> None:
    verdict = played(tmp_path, name, "none").verdict
    assert verdict.overall == "valid", verdict.reasons


@pytest.mark.parametrize(
    ("name", "flaw", "anomaly"),
    [
        ("list-append", "stale", "G-single-item-realtime"),
        ("list-append", "lost", "lost-update"),
        ("list-append", "fractured", "G1b"),
        ("rw-register", "stale", "G-single-item-realtime"),
        ("rw-register", "fractured", "G1b"),
        ("long-fork", "forked", "long-fork"),
        ("multi-register", "stale", "nonlinearizable"),
        ("multi-register", "fractured", "nonlinearizable"),
        ("bank", "fractured", "wrong-total"),
        ("bank", "lost", "wrong-total"),
        ("set", "lost", "lost"),
        ("mutex", "two-holders", "nonlinearizable"),
        ("watch", "deaf", "missing-row"),
        ("watch", "repeating", "duplicate-row"),
    ],
)
def test_what_is_broken_is_refuted(name: str, flaw: str, anomaly: str, tmp_path: Path) -> None:
    verdict = played(tmp_path, name, flaw).verdict
    found = {each for checker in verdict.checkers.values() for each in checker.get("anomalies", ())}
    assert (verdict.overall, verdict.why) == ("invalid", "refuted"), verdict.reasons
    assert anomaly in found


@pytest.mark.parametrize("name", NAMES)
def test_a_load_that_did_nothing_is_vacuous(name: str, tmp_path: Path) -> None:
    verdict = played(tmp_path, name, "idle").verdict
    assert (verdict.overall, verdict.why) == ("unknown", "vacuous"), verdict.reasons
    assert {f"no {f} succeeded" for f in WORKLOADS[name].fs} <= set(verdict.reasons)


@pytest.mark.parametrize("consistency", ["serializable", "strict-serializable"])
def test_what_must_hold_is_saved_with_the_run_and_its_history(consistency: str, tmp_path: Path) -> None:
    outcome = played(tmp_path, "list-append", "stale", consistency=consistency)
    by_itself = as_object(check_run(outcome.rundir.history_parquet, ("list-append",))["list-append"])
    for found in (outcome.verdict.checkers["list-append"], by_itself):
        assert found["valid"] is (consistency == "serializable")


@pytest.mark.parametrize("name", NAMES)
def test_each_is_refused_where_clients_lack_what_it_asks_for(name: str) -> None:
    lacking = sorted(WORKLOADS[name].operations)[0]
    with pytest.raises(UserError, match=rf"needs {lacking}, which other does not offer"):
        check_operations(WORKLOADS[name], "other", WORKLOADS[name].operations - {lacking})


@pytest.mark.parametrize("name", NAMES)
def test_each_draws_the_same_load_from_the_same_seed_and_writes_no_value_twice(name: str) -> None:
    workload = WORKLOADS[name]

    def ops() -> list[Op]:
        load = limit(400, workload.generator(resolve_options(workload, {}), Random(5)))
        return [event for event in simulate(load, concurrency=5) if event.type == "invoke"]

    assert ops() == ops()
    written = [(mop.f, mop.partition, mop.value) for op in ops() for mop in op.mops if mop.f in ("w", "append", "add")]
    assert len(set(written)) == len(written)
    assert {op.f for op in ops()} == set(workload.fs)
