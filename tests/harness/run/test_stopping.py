"""Who takes the signals that ask for an end."""

from __future__ import annotations

import signal
import subprocess
import sys

ENDS_IN_A_FINALIZER = """
import os, signal, time
import harness.run.stopping as stopping

stopping.AGAIN_S = 0.05
stopping.end_runs_from_now_on()


class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


with stopping.in_charge().run():
    Finalized()
    print("goes on", flush=True)
    while True:
        pass
"""


def test_an_interrupt_that_a_finalizer_swallows_comes_again_and_nothing_is_said_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_IN_A_FINALIZER], capture_output=True, text=True)
    assert done.stdout == "goes on\n"
    assert done.returncode == -signal.SIGINT and done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in done.stderr, done.stderr
