"""Commands that are told to end, while a simulation spins: they say at once what they do, and leave nothing hidden."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import assay

from tests.support.patience import until

SPINNING = """
import os
import sys
from pathlib import Path

import assay.runner as runner
import cluster.deploy.database_sim as simulated

STORE, SPINNERS = Path(os.environ["SPINNING"]), int(os.environ["SPINNERS"])


async def spin(self, timeout_s):
    (STORE / f"spins-{os.getpid()}").touch()
    while True:
        pass


def run_in(scratch, options, *more):
    return real(scratch, options, *more) if options.seed <= SPINNERS else runner.RunResult(options, "valid")


real = runner._run_in
simulated.SimDatabase.await_ready, runner._run_in = spin, run_in
if __name__ == "__main__":
    from assay.cli import main

    sys.argv = ["assay", "run", "register", "--seeds", "1..6", *sys.argv[1:]]
    main()
"""
IDLE_S = 3.0
"""By then the other seeds have ended."""


def spinning(store: Path, count: int) -> list[int]:
    """The processes that spin, once there are that many."""
    until(lambda: len(list(store.glob("spins-*"))) >= count)
    return [int(path.name.removeprefix("spins-")) for path in store.glob("spins-*")]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("jobs", "spinners", "number", "group"),
    [
        (1, 1, signal.SIGTERM, False),
        (2, 2, signal.SIGTERM, False),
        (2, 2, signal.SIGTERM, True),
        (2, 1, signal.SIGINT, True),
        pytest.param(1, 1, signal.SIGHUP, True, marks=pytest.mark.campaign),
        pytest.param(2, 2, signal.SIGINT, True, marks=pytest.mark.campaign),
    ],
)
def test_a_simulation_that_spins_keeps_nobody_from_ending(
    tmp_path: Path, jobs: int, spinners: int, number: signal.Signals, group: bool
) -> None:
    """Nor from hearing what came of the others."""
    script, store = tmp_path / "spinning.py", tmp_path / "store"
    script.write_text(SPINNING)
    store.mkdir()
    runner = subprocess.Popen(
        [sys.executable, str(script), "--jobs", str(jobs), "--store", str(store)],
        env={**os.environ, "SPINNING": str(store), "SPINNERS": str(spinners)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        processes = spinning(store, spinners)
        time.sleep(IDLE_S if spinners < jobs else 0.0)
        (os.killpg if group else os.kill)(runner.pid, number)
        out, err = runner.communicate()
    except BaseException:
        os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()
        raise
    assert runner.returncode == 2, (out, err)
    ended = 6 - spinners if spinners < jobs else 0
    assert f"assay: stopped: {ended} of 6 seeds had ended; what was under way is removed." in err.splitlines()
    assert err.startswith("assay: stopping: the runs under way are thrown away")
    assert "Traceback" not in err, err
    assert f"UNKNOWN: {ended} of 6 seeds" in out
    assert not any(map(is_alive, processes))
    assert [path.name for path in store.iterdir() if not path.name.startswith("spins-")] == ["nights"]


HEALING = """
import sys, time
from harness.run.life_cycle import RunStages

async def heal(self):
    while True:
        time.sleep(0.01)

RunStages.heal = heal
from assay.cli import main
sys.argv = ["assay", "run", "register", "--time-limit", "100000", "--store", *sys.argv[1:]]
main()
"""

JOURNAL_BYTES = 40_000
"""So much has only a run under load."""


def test_ctrl_c_is_answered_at_once_and_the_second_one_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "a store"
    run = subprocess.Popen([sys.executable, "-c", HEALING, str(store)], stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    until(lambda: any(each.stat().st_size > JOURNAL_BYTES for each in store.glob("register/*/history.journal")))
    run.send_signal(signal.SIGINT)
    told = ""
    while not told.startswith("assay: "):
        told = run.stderr.readline()
    what = "faults are healed, the history is judged, all is taken down"
    assert told == f"assay: stopping (load): {what}: some seconds as a rule; ctrl-c once more ends it at once.\n"
    run.send_signal(signal.SIGINT)
    last = run.stderr.read().splitlines()[-1]
    assert run.wait() == 255
    (folder,) = (each for each in (store / "register").iterdir() if not each.is_symlink())
    judge = f"`assay check '{folder}'` judges it."
    assert last == f"assay: ended at once: the history so far lies in {folder / 'history.journal'}; {judge}"
    answer = assay(capsys, "check", folder)
    assert answer.code == 2 and "the harness ended before the run did" in answer.out
