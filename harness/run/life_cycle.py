"""The life cycle of a run: set up, load, heal, recover, final reads, save, judge, tear down (`runs.md`)."""

from __future__ import annotations

from harness.history.rundir import RunDir
from harness.run.spec import Judge, RunListener, RunOutcome, Silent, Test
from harness.run.stages import RunStages

__all__ = ["Judge", "RunListener", "RunOutcome", "Silent", "Test", "run"]


async def run(test: Test, rundir: RunDir, judge: Judge, progress: RunListener | None = None) -> RunOutcome:
    """Make one run and return what came of it.

    Healing, saving, judging and tearing down are done whatever failed before, also after SIGINT, SIGTERM or SIGHUP and
    when the caller cancels. Raises UserError if the user asked for something impossible (nothing is left in the store
    then) and HarnessError if the options can't be saved; everything else ends in the verdict.
    """
    stages = RunStages(test, rundir, progress or Silent())
    stages.save_options()
    with stages.stopping_on_signals():
        await stages.set_up()
        await stages.load()
        await stages.heal()
        await stages.recover()
        await stages.final_reads()
        await stages.look_again()
        await stages.examine()
        await stages.check_invariants()
        await stages.collect_logs()
        stages.save()
        stages.judge(judge)
        await stages.tear_down()
    return RunOutcome(rundir, stages.save_verdict(), stages.interrupted, stages.failures.failures())
