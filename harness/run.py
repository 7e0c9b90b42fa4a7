"""The life cycle of a run: set up, load, heal, recover, final reads, save, judge, tear down (`runs.md`)."""

from __future__ import annotations

from harness.course import Course
from harness.rundir import RunDir
from harness.spec import Judge, Progress, RunOutcome, Silent, Test

__all__ = ["Judge", "Progress", "RunOutcome", "Silent", "Test", "run"]


async def run(test: Test, rundir: RunDir, judge: Judge, progress: Progress | None = None) -> RunOutcome:
    """Make one run and return what came of it.

    Healing, saving, judging and tearing down are done whatever failed before, also after SIGINT, SIGTERM or SIGHUP and
    when the caller cancels. Raises UserError if the user asked for something impossible (nothing is left in the store
    then) and HarnessError if the options can't be saved; everything else ends in the verdict.
    """
    course = Course(test, rundir, progress or Silent())
    course.save_options()
    with course.stopping_on_signals():
        await course.set_up()
        await course.load()
        await course.heal()
        await course.recover()
        await course.final_reads()
        await course.look_again()
        await course.examine()
        await course.check_invariants()
        await course.collect_logs()
        course.save()
        course.judge(judge)
        await course.tear_down()
    return RunOutcome(rundir, course.save_verdict(), course.interrupted, course.failures.failures())
