"""The life cycle of a run: set up, load, heal, recover, final reads, save, judge, tear down (`runs.md`).

Each stage records its failures and lets the next ones go on.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, TypeVar, cast

import msgspec

from harness.capabilities import Capability
from harness.errors import HarnessError, UserError
from harness.generators import Source, clients, cycle, delay, nemesis, time_limit, until_ok
from harness.history.columns import Purpose
from harness.history.journal import JournalWriter, read_journal
from harness.history.ops import Op
from harness.history.rundir import RunDir
from harness.history.table import difference, write_parquet
from harness.protocols import (
    CatchesUp,
    Database,
    Directed,
    Examination,
    Examined,
    Inspected,
    InvariantsRecord,
    Sharded,
    Watched,
)
from harness.run.allowances import LONGEST, overload_of, wearing_off_s
from harness.run.extended_load import load_of
from harness.run.final_reads import reads_of_each, suspects, until_each_answers
from harness.run.first_look import check_plugin, facts_of, last_words
from harness.run.interpreter import ProcessIds, Recorder, interpret
from harness.run.provenance import provenance
from harness.run.spec import Judge, RunListener, RunOutcome, Silent, Test
from harness.run.stopping import STOPPING, in_charge
from harness.run.system_state import SystemState, disturbances, system_state
from harness.run.workers import DatabaseClients
from harness.verdict.adequacy import WorkDone
from harness.verdict.facts import (
    EACH_NODE,
    OutcomeRecord,
    RunAccount,
    RunRecord,
    account_of,
    conclude_run,
    write_verdict,
)
from harness.verdict.failures import FailureLog
from harness.verdict.faults import Fault, faults_of, served_while_down
from harness.verdict.leaderships import leaderships_of, since
from harness.verdict.run_seal import seal_run
from harness.verdict.run_verdict import AFTERMATH, Facts, Recovery, RunVerdict, conclude, with_examination

A = TypeVar("A")
B = TypeVar("B")

_PROBE_GAP_S = 0.1
_LOOK_S = 0.1
_DISTURBANCE_LOOK_S = 3.0
_PATIENCE_S = 1.0
"""What `await_ready` gets beyond the longest that it may wait, to say in its own words what was missing."""
_HEAL_LIMIT_S = 120.0
_TEARDOWN_LIMIT_S = 120.0
_ENDING_S = {"heal": _HEAL_LIMIT_S, "heal for certain": 2 * _HEAL_LIMIT_S, "tear down": 2 * _TEARDOWN_LIMIT_S}
"""How long the stages may take that a run goes through although the user wishes to stop it."""


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
        stages.point_latest()
    verdict = stages.save_verdict()
    return RunOutcome(rundir, verdict, stages.interrupted, stages.failures.failures(), stages.account())


class RunStages:
    """One run under way. The stages are called in the order of `run`; each is skipped where an earlier
    failure, or the user's wish to stop, leaves nothing for it to do."""

    def __init__(self, test: Test, rundir: RunDir, progress: RunListener) -> None:
        self.interrupted = False
        self._test = test
        self._rundir = rundir
        self._progress: RunListener = progress
        self._clock = test.environment.clock
        self._begun_ns = self._clock.monotonic_ns()
        self.failures = FailureLog(rundir.harness_log, self._now)
        self._stages: list[tuple[str, int, int]] = []
        self._under_way = "set up"
        self._processes = ProcessIds(test.concurrency)
        self._journal: JournalWriter | None = None
        self._record: RunRecord | None = None
        self._faults: tuple[Fault, ...] = ()
        self._saved_ns = self._begun_ns
        self._recorder: Recorder | None = None
        self._history_start_ns = 0
        self._load_s = 0.0
        self._last_asked_ns = 0
        self._first_ok_ns: dict[str, int] = {}
        self._healed = False
        self._budget_s = test.recovery_budget_s
        self._recovery = Recovery(None, test.recovery_budget_s)
        self._invariants: InvariantsRecord | None = None
        self._examination: Examination | None = None
        self._verdict: RunVerdict | None = None
        self._serving_nodes = _serving_nodes(test.database) if test.each_node else ()
        watched = Capability.INVARIANTS in test.database.capabilities
        self._watched = test.database if watched and isinstance(test.database, Watched) else None

    # ---- the stages ----

    def save_options(self) -> None:
        """`run.json` and an empty journal, before anything is started; raises UserError, and leaves nothing then."""
        test = self._test
        self._record = RunRecord(
            name=test.name,
            workload=test.workload,
            fs=test.fs,
            concurrency=test.concurrency,
            time_limit_s=test.time_limit_s,
            rate_hz=test.rate_hz,
            floors=test.floors,
            own_floors=test.own_floors,
            recovery_budget_s=test.recovery_budget_s,
            requested_faults=test.requested_faults,
            final_reads=test.final_generator is not None,
            environment=test.environment.name,
            database=test.database.name,
            options=dict(test.options),
            world=dict(test.world),
            started=test.started.astimezone(UTC).isoformat(),
            provenance=provenance(),
            watched=self._watched is not None,
            logs_left=test.logs_left,
            unpromised=dict(test.unpromised),
            settings=test.settings,
            plugin=dict(test.plugin),
            shards=_shards(test.database),
            serving_nodes=self._serving_nodes,
        )
        try:
            self._rundir.write_json(self._rundir.run_json, self._record)
            self._journal = JournalWriter(self._rundir.journal)
        except (HarnessError, UserError) as error:
            self._rundir.discard()
            raise UserError(f"{error} Make room there, or name another store with --store.") from error

    async def set_up(self) -> None:
        """Machines, programs, processes, tables. What the user can't have ends the run here, and leaves nothing."""
        refusals: list[UserError] = []
        if await self._stage("set up", self._set_up(refusals), stoppable=True) and not refusals:
            self._recorder = Recorder(self._opened(), self._clock, self._on_event)
            self._history_start_ns = self._clock.monotonic_ns() - self._begun_ns
        elif not refusals and not self.interrupted:
            await self._stage("logs", self._tell_last_words())
        if refusals:
            await self.tear_down()
            self._opened().close()
            self._rundir.discard()
            raise refusals[0]

    async def load(self) -> None:
        """Clients work while the nemesis does, for longer than was asked where too little was seen by then, and no
        longer than it can do anything."""
        if self._recorder is None:
            return
        began_ns = self._recorder.now_ns()
        await self._stage("load", self._load(), stoppable=True)
        asked_ns = max(int(self._test.time_limit_s * 1e9), self._last_asked_ns - began_ns)
        self._load_s = min(asked_ns, self._recorder.now_ns() - began_ns) / 1e9

    async def heal(self) -> None:
        """End every fault: by the nemesis' own last steps, so that they are in the history, and then for certain."""
        if self._recorder is None:
            return
        steps = time_limit(_HEAL_LIMIT_S, nemesis(self._test.heal_generator))
        await self._stage("heal", self._interpret("heal", steps))
        self._healed = await self._stage("heal for certain", self._heal_for_certain())

    async def recover(self) -> None:
        """Wait until the database serves again, or its budget is over."""
        if self._recorder is None:
            return
        if self.interrupted or not self._healed:
            reason = "the run was stopped" if self.interrupted else "healing failed"
            self._recovery = Recovery(None, self._budget_s, None, reason)
            return
        self._budget_s += wearing_off_s(self._test.nemesis, self._clock.monotonic_ns())
        await self._stage("recover", self._recover(self._recorder), stoppable=True)

    async def final_reads(self) -> None:
        """Read everything once more: from whoever serves it, and then from each node in turn."""
        test = self._test
        if self._recorder is None or self.interrupted or test.final_generator is None:
            return
        source = time_limit(test.final_limit_s, clients(test.final_generator))
        await self._stage("final reads", self._interpret("final", source), stoppable=True)
        if self._serving_nodes:
            reads = self._read_each_node(self._serving_nodes, test.final_generator)
            await self._stage("final reads of each node", reads, stoppable=True)

    async def _read_each_node(self, nodes: Sequence[str], reads: Source) -> None:
        source = reads_of_each(nodes, await suspects(self._test.database, nodes), reads)
        await self._interpret(EACH_NODE, time_limit(self._test.final_limit_s, clients(source)))

    async def look_again(self) -> None:
        """Whether all that was up before the final reads still is."""
        if self._recorder is not None and not self.interrupted and self._recovery.recovered:
            await self._stage("look again", self._look_again(), stoppable=True)

    async def examine(self) -> None:
        """The whole system as an operator would look at it, once it has recovered, where it has that power."""
        database = self._test.database
        if self._recorder is None or self.interrupted or Capability.EXAMINE not in database.capabilities:
            return
        if isinstance(database, Examined):
            await self._stage("examine", self._examine(database), stoppable=True)

    async def check_invariants(self) -> None:
        """What was found to be broken inside the database while it ran, where it has that power: also while it was set
        up, for a node that panics then is the reason why it can't be."""
        if self._watched is not None and not (self._recorder is None and self.interrupted):
            await self._stage("invariants", self._check_invariants(self._watched))

    async def collect_logs(self) -> None:
        """The nodes' logs, as far as they can be had."""
        await self._stage("logs", self._collect_logs())

    def save(self) -> None:
        """Close the journal; write the table, the faults and the outcome. The journal goes once all of it is saved."""
        self._begin_stage("save")
        rundir = self._rundir
        self._attempt("save", self._opened().close)
        self._attempt("save", self._save_table)
        self._attempt("save", self._save_faults)
        if self._invariants is not None:
            self._attempt("save", lambda: rundir.write_json(rundir.invariants_json, self._invariants))
        if (leaderships := leaderships_of(self._test.database)) is not None:
            led = since(leaderships.all(), self._begun_ns + self._history_start_ns)
            self._attempt("save", lambda: rundir.write_json(rundir.leaders_json, led))
        self._saved_ns = self._clock.monotonic_ns()
        self._save_outcome()
        if not self._test.keep_journal and all(failure.stage != "save" for failure in self.failures.failures()):
            self._attempt("save", rundir.drop_journal)

    def judge(self, judge: Judge) -> None:
        """Ask the checkers, answer the four questions, and save the verdict."""
        self._begin_stage("judge")
        checkers: Mapping[str, Any] = {}
        try:
            checkers = judge(self._rundir)
        except Exception as error:  # noqa: BLE001  a checker that crashes gives unknown, never a lost run
            self.failures.record("judge", error)
        self._save_outcome()
        try:
            self._verdict = conclude_run(self._rundir, checkers, self._outcome())
        except Exception as error:  # noqa: BLE001  the checkers' findings stand even if nothing else can be read
            self.failures.record("judge", error)
            self._verdict = conclude(self._bare_facts(), checkers)
        self.save_verdict()

    async def tear_down(self) -> None:
        """Stop and remove everything."""
        await self._stage("tear down", self._tear_down())

    def point_latest(self) -> None:
        """Be the latest run: the one that ended last."""
        self._attempt("tear down", self._rundir.point_latest)

    def save_verdict(self) -> RunVerdict:
        """Write `verdict.json` with all that is known by now, and return it."""
        verdict = self._verdict
        if verdict is None:
            raise HarnessError("a run has no verdict before it was judged")
        aftermath = tuple(failure for failure in self.failures.failures() if failure.stage in AFTERMATH)
        verdict = self._verdict = msgspec.structs.replace(verdict, aftermath=aftermath)
        self._attempt("save", lambda: write_verdict(self._rundir, verdict, self.account()))
        return verdict

    def account(self) -> RunAccount:
        """What the run says of itself beside its verdict."""
        if self._record is None:
            raise HarnessError("the options of the run were not saved first")
        return account_of(self._record, self._faults, (self._saved_ns - self._begun_ns) / 1e9)

    # ---- what the stages do ----

    async def _set_up(self, refusals: list[UserError]) -> None:
        test = self._test
        try:
            async with asyncio.timeout(test.setup_timeout_s):
                nodes = f"{len(test.database.nodes)} nodes"
                await self._waiting(f"{nodes} to be made", test.environment.setup(test.database.nodes))
                await self._waiting(f"the program on {nodes}", test.database.install())
                await self._waiting(f"{nodes} to start", test.database.first_start())
                await self._waiting(f"{nodes} to be ready", test.database.await_ready(test.ready_timeout_s))
                tables = test.database.setup_workload(test.workload, test.workload_options)
                await self._waiting(f"the tables of {test.workload}", tables)
                await self._waiting("the means of making faults", test.nemesis.setup())
                await self._note_facts()
                if test.plugin:
                    await check_plugin(test.database)
        except UserError as error:
            refusals.append(error)

    async def _note_facts(self) -> None:
        """What the database says of itself, in `run.json`."""
        assert self._record is not None
        self._record = msgspec.structs.replace(self._record, facts=await facts_of(self._test))
        self._rundir.write_json(self._rundir.run_json, self._record)

    async def _tell_last_words(self) -> None:
        """What the nodes' logs end with, where a database could not be set up."""
        for sentence in last_words(await self._test.database.collect_logs()):
            self.failures.record("set up", HarnessError(sentence))

    async def _waiting(self, what: str, work: Awaitable[None]) -> None:
        self._tell(lambda: self._progress.waits(what))
        await work

    async def _load(self) -> None:
        """Until its end, or until a machine is taken away: what happens from then on says nothing."""
        environment, load = self._test.environment, self._interpret("main", load_of(self._test))
        if not isinstance(environment, Inspected):
            return await load
        work = asyncio.create_task(load)
        watch = asyncio.create_task(self._end_on_disturbance(environment, work))
        try:
            await work
        except asyncio.CancelledError:
            if watch.done() and not watch.cancelled():
                raise HarnessError(f"the load was ended: {watch.result()}") from None
            raise
        finally:
            watch.cancel()

    async def _end_on_disturbance(self, environment: Inspected, load: asyncio.Task[None]) -> str:
        """End the load once a machine was found gone, or started anew, by two looks in turn; says which."""
        found: tuple[str, ...] = ()
        while True:
            await self._clock.sleep(_DISTURBANCE_LOOK_S)
            before, found = found, await environment.disturbed()
            if before and found:
                load.cancel()
                return "; ".join(found)

    async def _interpret(self, phase: str, source: Source) -> None:
        recorder, test = self._recorder, self._test
        assert recorder is not None
        recorder.phase = phase
        await interpret(
            source,
            clients=DatabaseClients(test.database, test.op_timeout_s),
            nemesis=test.nemesis,
            recorder=recorder,
            failures=self.failures,
            processes=self._processes,
            limits=test.limits if phase == "main" else replace(test.limits, alike=None),
        )

    async def _recover(self, recorder: Recorder) -> None:
        """All is up, and the database serves again. What we are to blame for is not held against it."""
        budget_s = self._budget_s
        self._recovery = Recovery(None, budget_s, None, "the wait for it failed or was stopped")
        recovery, found = await _both(self._serves_again(recorder), self._system_state(statuses=False))
        if self.interrupted:
            return
        ours, theirs = self._record_ours("after the last heal", found), found.theirs()
        if theirs is not None:
            recovery = Recovery(False, budget_s, recovery.seconds, theirs)
        elif not recovery.recovered and (excuse := ours or overload_of(self._test.environment)) is not None:
            recovery = Recovery(None, budget_s, recovery.seconds, excuse)
        self._recovery = recovery
        if recovery.recovered and self._serving_nodes:
            await self._each_node_serves(self._serving_nodes)

    async def _each_node_serves(self, nodes: Sequence[str]) -> None:
        """What the cluster as a whole does earlier; the final reads tell which node does not."""
        if (reads := self._test.final_generator) is not None:
            waits = until_each_answers(nodes, await suspects(self._test.database, nodes), reads, _PROBE_GAP_S)
            await self._interpret("recover", time_limit(self._budget_s, clients(waits)))

    async def _serves_again(self, recorder: Recorder) -> Recovery:
        """Ready by its own word, and then by one client operation that succeeds: within the budget, or within another
        if it was ready late, as it came nearer to that all the time."""
        test, began_ns = self._test, recorder.now_ns()
        budget_s, database = self._budget_s, test.database
        able = Capability.CATCHES_UP in database.capabilities
        catching_up = database if able and isinstance(database, CatchesUp) else None
        nears = catching_up is not None
        try:
            async with asyncio.timeout((LONGEST if nears else 1) * budget_s + _PATIENCE_S):
                await (catching_up.await_recovered if catching_up is not None else database.await_ready)(budget_s)
        except TimeoutError as error:
            return Recovery(False, budget_s, None, str(error) or "it was not ready in time")
        ready_s = (recorder.now_ns() - began_ns) / 1e9
        due_s = ready_s + budget_s if nears and ready_s > budget_s else budget_s
        recovered_ns: int | None = recorder.now_ns()
        if test.final_generator is not None:
            probes = until_ok(delay(_PROBE_GAP_S, cycle(test.final_generator)))
            await self._interpret("recover", time_limit(max(due_s - ready_s, _PROBE_GAP_S), clients(probes)))
            recovered_ns = self._first_ok_ns.get("recover")
        seconds = None if recovered_ns is None else (recovered_ns - began_ns) / 1e9
        if seconds is None or seconds > due_s:
            return Recovery(False, budget_s, seconds, "it said it was ready, but no operation succeeded")
        return Recovery(True, budget_s, seconds)

    async def _system_state(self, statuses: bool) -> SystemState:
        test = self._test
        return await system_state(test.database, test.environment, self._budget_s, statuses)

    def _record_ours(self, when: str, found: SystemState) -> str | None:
        ours = found.ours()
        if ours is not None:
            self.failures.record("heal", HarnessError(f"{when} {ours}"))
        return ours

    async def _look_again(self) -> None:
        found = await self._system_state(statuses=True)
        self._record_ours("after the final reads", found)
        if (theirs := found.theirs()) is not None:
            recovery = self._recovery
            reason = f"after the final reads {theirs}"
            strain = None if found.dead else overload_of(self._test.environment)
            word = False if strain is None else None
            self._recovery = Recovery(word, recovery.budget_s, recovery.seconds, strain or reason)

    async def _examine(self, database: Examined) -> None:
        """No more is said of a system that did not recover, nor of one of which somebody took a machine away."""
        recovered = bool(self._recovery.recovered)
        found = await database.examine(self._budget_s if recovered else 0.0)
        self._rundir.write_json(self._rundir.cluster_json, found.report)
        ours = self._record_ours("at the end", SystemState(disturbed=await disturbances(self._test.environment)))
        self._examination = found if recovered and ours is None else None

    async def _check_invariants(self, database: Watched) -> None:
        record = await database.invariants()
        found = self._examination
        self._invariants = record if found is None else with_examination(record, found)

    async def _collect_logs(self) -> None:
        self._rundir.write_logs(await self._test.database.collect_logs())

    async def _heal_for_certain(self) -> None:
        try:
            await self._limited(self._test.nemesis.teardown(), _HEAL_LIMIT_S)
        finally:
            await self._limited(self._test.environment.heal_network(), _HEAL_LIMIT_S)

    async def _tear_down(self) -> None:
        try:
            await self._limited(self._test.database.teardown(), _TEARDOWN_LIMIT_S)
        finally:
            await self._limited(self._test.environment.teardown(), _TEARDOWN_LIMIT_S)

    async def _limited(self, work: Coroutine[Any, Any, None], limit_s: float) -> None:
        async with asyncio.timeout(limit_s):
            await work

    def _on_event(self, op: Op) -> None:
        if op.type == "invoke" and op.process >= 0:
            self._last_asked_ns = op.time
        if op.type == "ok" and op.phase not in self._first_ok_ns:
            self._first_ok_ns[op.phase or ""] = op.time
        self._tell(lambda: self._progress.event(op))

    def _tell(self, telling: Callable[[], None]) -> None:
        """Who watches must not be able to break the run, say by closing the pipe."""
        try:
            telling()
        except Exception as error:  # noqa: BLE001
            self.failures.record("progress", error)
            self._progress = Silent()

    # ---- how a stage is carried out ----

    async def _stage(self, name: str, work: Coroutine[Any, Any, None], stoppable: bool = False) -> bool:
        """Carry a stage out to its end and say whether it succeeded; its failure is recorded, not raised.

        A wish to stop (a signal, or the caller's cancellation) cancels a stoppable stage, and lets others end.
        """
        if stoppable and self.interrupted:
            work.close()
            return False
        self._begin_stage(name)
        began_ns = self._clock.monotonic_ns()
        task = asyncio.create_task(work)
        watcher = asyncio.create_task(self._stop_when_wished(task)) if stoppable else None
        try:
            await self._outlast(task)
        except asyncio.CancelledError:
            if not self.interrupted:
                self.failures.record(name, HarnessError("it was cancelled from inside, by nobody's wish"))
            return False
        except Exception as error:  # noqa: BLE001  whatever failed, the later stages have to be carried out
            self.failures.record(name, error)
            return False
        finally:
            if watcher is not None:
                watcher.cancel()
            ended_ns = self._clock.monotonic_ns()
            self._stages.append((name, began_ns - self._begun_ns, ended_ns - self._begun_ns))
        return True

    def _begin_stage(self, name: str) -> None:
        self._under_way = name
        self._tell(lambda: self._progress.stage(name))

    async def _outlast(self, task: asyncio.Task[None]) -> None:
        """Await a task, turning cancellation of the caller into a wish to stop."""
        while True:
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.done():
                    raise
                self.interrupted = True
                self._forget_cancellation()
            else:
                return

    def _forget_cancellation(self) -> None:
        current = asyncio.current_task()
        if current is not None:
            current.uncancel()

    async def _stop_when_wished(self, task: asyncio.Task[None]) -> None:
        """Looks rather than being called: a signal handler may touch no loop, and the simulated one least of all."""
        while not self.interrupted:
            await self._clock.sleep(_LOOK_S)
        task.cancel()

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Within it STOPPING are a wish to stop. Python delivers signals to the main thread only.

        A second ctrl-c ends the run where it is, if who watches does that; else a simulated one, which may spin and
        never look.
        """
        if threading.current_thread() is not threading.main_thread() or in_charge() is not None:
            yield
            return

        def on_signal(number: int, frame: FrameType | None) -> None:
            again, self.interrupted = self.interrupted, True
            if not again:
                self._tell(lambda: self._progress.stopping(self._under_way, self._longest_end_s()))
            elif number == signal.SIGINT:
                self._tell(lambda: self._progress.given_up(self._rundir, self._test.logs_left))
                if self._is_simulated():
                    raise KeyboardInterrupt

        before = [(number, signal.signal(number, on_signal)) for number in STOPPING]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def _now(self) -> datetime:
        """By the clock of the run, which in a simulation is virtual: from where `run.json` says that it started."""
        return self._test.started + timedelta(microseconds=(self._clock.monotonic_ns() - self._begun_ns) // 1000)

    def _is_simulated(self) -> bool:
        return self._test.environment.name == "sim"

    def _longest_end_s(self) -> float | None:
        """How long what is left may take at most; None in virtual time, which tells nothing of that."""
        done = {name for name, _, _ in self._stages}
        return None if self._is_simulated() else sum(limit for name, limit in _ENDING_S.items() if name not in done)

    # ---- saving ----

    def _attempt(self, stage: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  what can't be saved must not cost what can
            self.failures.record(stage, error)

    def _save_table(self) -> None:
        """Write the table and read it back; one that does not say what the journal says is no history."""
        test, rundir = self._test, self._rundir
        purpose = Purpose(test.workload, test.models, test.settings)
        write_parquet(read_journal(rundir.journal), rundir.history_parquet, purpose=purpose)
        try:
            unlike = difference(read_journal(rundir.journal), rundir.history_parquet)
        except UserError as error:
            unlike = str(error)
        if unlike is not None:
            rundir.set_table_aside()
            raise HarnessError(f"the table is not what the journal says, which is kept and judged instead: {unlike}")

    def _save_faults(self) -> None:
        self._faults = faults_of(read_journal(self._rundir.journal))
        self._rundir.write_json(self._rundir.faults_json, self._faults)
        if self._test.plugin:
            for sentence in served_while_down(self._faults, read_journal(self._rundir.journal)):
                self.failures.record("load", HarnessError(sentence))

    def _save_outcome(self) -> None:
        self._attempt("save", lambda: self._rundir.write_json(self._rundir.outcome_json, self._outcome()))
        self._attempt("save", lambda: seal_run(self._rundir))

    def _outcome(self) -> OutcomeRecord:
        return OutcomeRecord(
            **msgspec.structs.asdict(self.account()),
            recovery=self._recovery,
            load_s=self._load_s,
            interrupted=self.interrupted,
            failures=self.failures.failures(),
            stages=tuple(self._stages),
            history_start_ns=self._history_start_ns,
        )

    def _bare_facts(self) -> Facts:
        """What is known without reading anything back."""
        test = self._test
        return Facts(
            done=WorkDone(test.fs, {}, self._load_s, test.rate_hz),
            floors=test.floors,
            requested_faults=test.requested_faults,
            faults=(),
            recovery=self._recovery,
            failures=self.failures.failures(),
            interrupted=self.interrupted,
            invariants=self._invariants,
            unpromised=test.unpromised,
        )

    def _opened(self) -> JournalWriter:
        if self._journal is None:
            raise HarnessError("the options of the run were not saved first")
        return self._journal


def _shards(database: Database) -> int:
    able = Capability.SHARDS in database.capabilities
    return database.shards if able and isinstance(database, Sharded) else 1


def _serving_nodes(database: Database) -> tuple[str, ...]:
    """The nodes that reads can be sent to; none where they can't."""
    able = Capability.DIRECTED_READS in database.capabilities
    return database.serving_nodes if able and isinstance(database, Directed) else ()


async def _both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Both at once; a failure is raised when both have ended, or one would go on into the next stage."""
    for result in (results := await asyncio.gather(first, second, return_exceptions=True)):
        if isinstance(result, BaseException):
            raise result
    return cast(tuple[A, B], tuple(results))
