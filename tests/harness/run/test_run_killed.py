"""Signals from outside: SIGKILL leaves a history that can be judged, SIGINT ends a run in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from harness.history.journal import read_journal
from harness.history.rundir import open_run
from harness.history.saved import open_saved
from harness.history.table import pairs, write_parquet
from harness.verdict.facts import conclude_run, load_facts

RUNNER = """
import sys
from datetime import datetime
from pathlib import Path
from harness.env.sim import SimEnvironment
from harness.generators import any_of, cycle, delay, draw, invoke, sleep
from tests.support.memory_database import MemoryDatabase, NoNemesis
from harness.history.ops import read, write
from harness.run.life_cycle import Test, run
from harness.history.rundir import create
from harness.ports.sim.world import World

world = World(1)
environment = SimEnvironment(world)
fault = lambda n, step: invoke(step, value={"fault": "kill", "instance": n, "step": step, "targets": ["n1"]})

class Told:
    def stage(self, name): print(name, flush=True)
    def waits(self, what): pass
    def event(self, op):
        if op.index % 1000 == 0: print(op.index, flush=True)

test = Test(
    name="endless", workload="register", environment=environment, database=MemoryDatabase(environment.clock),
    nemesis=NoNemesis(), generator=draw(1, lambda context, chance, n: invoke("write", write(chance.below(5), n))),
    nemesis_generator=[sleep(1), fault(1, "begin"), sleep(1), fault(1, "end"), sleep(1), fault(2, "begin")],
    started=datetime(2026, 1, 1), seed=1, concurrency=5, time_limit_s=1e6, rate_hz=200.0, fs=("write",),
    requested_faults=("kill",),
)
store = Path(sys.argv[1])
world.run(run(test, create(store, "register", test.started), lambda rundir: {}, Told()))
"""


def test_kill_9_in_mid_run_leaves_a_history_that_is_judged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(store)], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    told = ""
    while told != "4000":
        told = runner.stdout.readline().strip()
        assert runner.poll() is None
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    assert not (store / "latest").is_symlink(), "it did not end"
    rundir = open_run(*(store / "register").iterdir())
    assert not rundir.history_parquet.exists()
    reader = read_journal(rundir.journal)
    events = list(reader)
    assert not reader.complete
    assert len(events) > 4000 - 1024, "at most what was not sealed is lost"
    assert [event.index for event in events] == list(range(len(events)))
    facts = load_facts(rundir)
    assert not facts.ended
    assert [(fault.instance, fault.healed_ns is not None) for fault in facts.faults] == [(1, True), (2, False)]
    assert facts.done.counts["write"]["ok"] > 1000
    rows = write_parquet(read_journal(rundir.journal), tmp_path / "prefix.parquet")
    assert rows == sum(1 for _ in pairs(events))
    verdict = conclude_run(rundir, {"register": {"valid": True}})
    assert verdict.overall == "unknown"
    assert "the harness ended before the run did; what it had saved is judged" in verdict.reasons
    assert conclude_run(rundir, {"register": {"valid": False}}).overall == "invalid"


REAL_RUNNER = """
import asyncio, sys, uvloop
from datetime import datetime
from pathlib import Path
from harness.generators import draw, invoke
from tests.support.memory_database import MemoryDatabase, NoNemesis
from harness.history.ops import write
from harness.ports.real.ports import RealClock
from harness.run.life_cycle import Test, run
from harness.history.rundir import create

class Here:
    name, clock, capabilities = "here", RealClock(), frozenset()
    async def setup(self, nodes): pass
    async def heal_network(self): print("healed", flush=True)
    async def teardown(self): print("torn down", flush=True)

class Told:
    def stage(self, name): pass
    def waits(self, what): pass
    def event(self, op):
        if op.index == 100: print("working", flush=True)

here = Here()
test = Test(
    name="endless", workload="register", environment=here, database=MemoryDatabase(here.clock),
    nemesis=NoNemesis(), generator=draw(1, lambda context, chance, n: invoke("write", write(1, n))),
    started=datetime(2026, 1, 1), seed=1, concurrency=5, time_limit_s=600, rate_hz=1000.0, fs=("write",),
)

async def main():
    rundir = create(Path(sys.argv[1]), "register", test.started)
    return await run(test, rundir, lambda rundir: {"register": {"valid": True}}, Told())

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    outcome = runner.run(main())
sys.exit(outcome.verdict.exit_code + 40 * outcome.interrupted)
"""


def test_sigint_ends_a_run_in_order(tmp_path: Path) -> None:
    store = tmp_path / "store"
    runner = subprocess.Popen([sys.executable, "-c", REAL_RUNNER, str(store)], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    assert runner.stdout.readline() == "working\n"
    runner.send_signal(signal.SIGINT)
    runner.send_signal(signal.SIGINT)
    assert runner.stdout.read() == "healed\ntorn down\n"
    assert runner.wait() == 42
    rundir = open_run(store / "latest")
    assert rundir.read_json(rundir.verdict_json)["overall"] == "unknown"
    assert load_facts(rundir).interrupted
    assert open_saved(rundir.history_parquet).manifest.rows >= 50 and not rundir.journal.exists()
