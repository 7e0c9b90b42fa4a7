"""A run whose harness is killed with SIGKILL leaves a history that can be judged."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from harness.facts import conclude_run, load_facts
from harness.history.journal import read_journal
from harness.history.table import pairs, write_parquet
from harness.rundir import open_run

RUNNER = """
import sys
from datetime import datetime
from pathlib import Path
from harness.env.sim import SimEnvironment
from harness.generators import any_of, cycle, delay, draw, invoke, sleep
from harness.memory import MemoryDatabase, NoNemesis
from harness.ops import read, write
from harness.run import Test, run
from harness.rundir import create
from harness.sim.world import World

world = World(1)
environment = SimEnvironment(world)
fault = lambda n, step: invoke(step, value={"fault": "kill", "instance": n, "step": step, "targets": ["n1"]})

class Told:
    def stage(self, name): print(name, flush=True)
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
    rundir = open_run(store / "latest")
    assert not rundir.history_parquet.exists()
    reader = read_journal(rundir.journal)
    events = list(reader)
    assert not reader.complete
    assert len(events) > 4000 - 1024, "at most what was not sealed is lost"
    assert [event.index for event in events] == list(range(len(events)))
    facts = load_facts(rundir)
    assert not facts.ended
    assert [(fault.instance, fault.healed_ns is not None) for fault in facts.faults] == [(1, True), (2, False)]
    assert facts.counts["write"]["ok"] > 1000
    rows = write_parquet(read_journal(rundir.journal), tmp_path / "prefix.parquet")
    assert rows == sum(1 for _ in pairs(events))
    verdict = conclude_run(rundir, {"register": {"valid": True}})
    assert verdict.overall == "unknown"
    assert "the harness ended before the run did; what it had saved is judged" in verdict.reasons
    assert conclude_run(rundir, {"register": {"valid": False}}).overall == "invalid"
