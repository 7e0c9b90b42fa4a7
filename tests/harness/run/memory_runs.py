"""Whole runs of a database in memory, in the simulator, ready to be changed and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from harness.env.sim import SimEnvironment
from harness.errors import HarnessError
from harness.generators import Chance, Context, Source, draw, invoke, limit, mix, sleep
from harness.history.ops import Mop, Op, cas, read, write
from harness.history.rundir import RunDir, create
from harness.ports.machines import ProcessState
from harness.ports.sim.world import World
from harness.run.life_cycle import run
from harness.run.spec import RunOutcome, Silent, Test
from tests.support.memory_database import MemoryDatabase, apply_mop

NOW = datetime(2026, 1, 2, tzinfo=UTC)
KEYS = 4


def register_work() -> Source:
    def a_read(context: Context, chance: Chance, n: int) -> Op:
        return invoke("read", read(chance.below(KEYS)))

    def a_write(context: Context, chance: Chance, n: int) -> Op:
        return invoke("write", write(chance.below(KEYS), n))

    def a_cas(context: Context, chance: Chance, n: int) -> Op:
        return invoke("cas", cas(chance.below(KEYS), None if chance.below(2) else n, -1 - n))

    return mix(1, draw(1, a_read), draw(2, a_write), draw(3, a_cas))


def judge_values(rundir: RunDir) -> Mapping[str, Any]:
    """A checker that suffices here: what a read saw, somebody wrote (and final reads of one key agree)."""
    rows = pq.read_table(rundir.history_parquet).to_pylist()
    written = {mop["value"] for row in rows for mop in row["mops"] or [] if mop["f"] != "r"} | {None}
    seen = [mop["value"] for row in rows for mop in row["mops"] or [] if mop["f"] == "r" and row["type"] == "ok"]
    return {"values": {"valid": all(value in written for value in seen), "reads": len(seen)}}


class KillNemesis:
    """Kills a node and starts it again; `blind` sees no effect, `clumsy` can't heal."""

    def __init__(self, database: MemoryDatabase, blind: bool = False, clumsy: bool = False) -> None:
        self._database, self._blind, self._clumsy = database, blind, clumsy
        self.killed: list[str] = []

    async def setup(self) -> None: ...

    async def invoke(self, op: Op) -> Op:
        node = op.value["targets"][0]
        if op.value["step"] == "begin":
            self.killed.append(node)
            await self._database.kill(node)
            observed = await self._database.process_state(node) is ProcessState.DEAD
        else:
            await self.teardown()
            observed = await self._database.process_state(node) is ProcessState.RUNNING
        return op.complete("info", value={**op.value, "observed": observed and not self._blind})

    async def teardown(self) -> None:
        if self._clumsy:
            raise HarnessError("no way to the node")
        while self.killed:
            await self._database.start(self.killed.pop())


def kill(step: str, instance: int = 1) -> Op:
    value = {"fault": "kill", "variant": "one", "instance": instance, "step": step, "targets": ["n2"]}
    return invoke(step, value=value)


class Setup:
    """A world and a test that is ready to be changed and run."""

    def __init__(self, folder: Path, seed: int = 7, apply: Callable[..., Mop] = apply_mop) -> None:
        self.world = World(seed)
        self.environment = SimEnvironment(self.world)
        self.database = MemoryDatabase(self.environment.clock, apply=apply)
        self.nemesis = KillNemesis(self.database)
        self.store = folder / "store"
        self.test = Test(
            name="memory register",
            workload="register",
            environment=self.environment,
            database=self.database,
            nemesis=self.nemesis,
            generator=register_work(),
            final_generator=limit(KEYS, draw(0, lambda context, chance, n: invoke("read", read(n)))),
            nemesis_generator=[sleep(2), kill("begin"), sleep(3), kill("end"), sleep(1), kill("begin", 2)],
            heal_generator=kill("end", 2),
            started=NOW,
            seed=seed,
            concurrency=5,
            time_limit_s=10,
            rate_hz=100.0,
            fs=("read", "write", "cas"),
            requested_faults=("kill",),
            options={"seed": seed, "flaw": None},
            models=("register", "stats"),
            keep_journal=True,
        )

    def run(self, judge: Any = judge_values, progress: Silent | None = None, **changes: Any) -> RunOutcome:
        rundir = create(self.store, "register", NOW)
        return self.world.run(run(replace(self.test, **changes), rundir, judge, progress))
