"""The interpreter: order of events, typed errors, retired processes, hanging clients, cancellation."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DefiniteError, HarnessError, IndefiniteError
from harness.generators import (
    Chance,
    Context,
    Generator,
    Source,
    Step,
    any_of,
    chain,
    clients,
    delay,
    draw,
    invoke,
    limit,
    nemesis,
    sleep,
    stagger,
    time_limit,
)
from harness.history.journal import JournalWriter, read_journal
from harness.history.ops import Op, read
from harness.history.table import pairs
from harness.ports.real.ports import RealClock
from harness.ports.sim.world import World
from harness.run.interpreter import HardLimits, ProcessIds, Recorder, Streak, interpret
from harness.verdict.failures import FailureLog

Behaviour = Callable[[Op], Awaitable[Op]]


class Pool:
    """Clients that all do the same; watches that each is used for one operation at a time and closed once."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.refuse: Exception | None = None

    async def open(self, process: int) -> Any:
        if self.refuse is not None:
            raise self.refuse
        self.opened.append(process)
        return PooledClient(self, process)


class PooledClient:
    def __init__(self, pool: Pool, process: int) -> None:
        self._pool, self._process, self._busy = pool, process, False

    async def invoke(self, op: Op) -> Op:
        assert not self._busy
        assert op.process == self._process
        self._busy = True
        try:
            return await self._pool.behaviour(op)
        finally:
            self._busy = False

    async def close(self) -> None:
        self._pool.closed.append(self._process)


class InterpreterRig:
    """One interpretation in a simulated world; `events` is what the journal holds at its end."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.world = World(seed)
        self.clock = self.world.harness_ports("harness").clock
        self.path = folder / f"journal-{seed}-{len(list(folder.iterdir()))}"
        self.journal = JournalWriter(self.path)
        self.log = folder / "harness.log"
        self.failures = FailureLog(self.log)
        self.processes = ProcessIds(0)

    async def sleepy(self, op: Op) -> Op:
        """Succeeds after 1 to 3 ms."""
        await self.clock.sleep(0.001 * (1 + op.index % 3))
        return op.complete("ok")

    async def interpret(self, source: Source, pool: Pool, nemesis: Any = None, **options: Any) -> None:
        self.processes = ProcessIds(options.pop("concurrency", 4))
        recorder = Recorder(self.journal, self.clock)
        await interpret(
            source,
            clients=pool,
            nemesis=nemesis,
            recorder=recorder,
            failures=self.failures,
            processes=self.processes,
            **options,
        )

    def run(self, source: Source, pool: Pool, nemesis: Any = None, **options: Any) -> list[Op]:
        self.world.run(self.interpret(source, pool, nemesis, **options))
        return self.events()

    def events(self) -> list[Op]:
        self.journal.close()
        return list(read_journal(self.path))


@pytest.fixture
def rig(tmp_path: Path) -> InterpreterRig:
    return InterpreterRig(tmp_path)


def reads(seed: int = 0) -> Generator:
    def make(context: Context, chance: Chance, n: int) -> Op:
        return invoke("read", read(chance.below(5)), value=n)

    return draw(seed, make)


def completions(events: list[Op]) -> list[Op]:
    return [event for event in events if event.type != "invoke"]


def check_consistent(events: list[Op]) -> None:
    assert [event.index for event in events] == list(range(len(events)))
    times = [event.time for event in events]
    assert times == sorted(times)
    assert all(completion is not None for _, completion in pairs(events))


def test_every_operation_is_recorded_with_its_completion(rig: InterpreterRig) -> None:
    pool = Pool(rig.sleepy)
    events = rig.run(clients(limit(200, stagger(1, 3000, reads()))), pool)
    check_consistent(events)
    assert Counter(event.type for event in events) == {"invoke": 200, "ok": 200}
    assert {event.process for event in events} == {0, 1, 2, 3}
    assert sorted(pool.opened) == sorted(pool.closed) == [0, 1, 2, 3]
    assert rig.failures.failures() == ()


class Counting:
    """Six operations; `seen` notes how many had completed when each was asked for."""

    def __init__(self, seen: list[int], begun: int = 0, done: int = 0) -> None:
        self._seen, self._begun, self._done = seen, begun, done

    def step(self, context: Context) -> Step:
        op, _ = reads().step(context)
        if self._begun >= 6 or not isinstance(op, Op):
            return (None, None) if self._begun >= 6 else (op, self)
        self._seen.append(self._done)
        return op, Counting(self._seen, self._begun + 1, self._done)

    def update(self, context: Context, event: Op) -> Generator:
        return Counting(self._seen, self._begun, self._done + (event.type == "ok"))


def test_completions_are_handled_before_invocations(rig: InterpreterRig) -> None:
    """Both operations of a round end before the interpreter looks again, and it hears of both before it asks."""
    seen: list[int] = []

    async def at_once(op: Op) -> Op:
        return op.complete("ok")

    events = rig.run(Counting(seen), Pool(at_once), concurrency=2)
    assert seen == [0, 0, 2, 2, 4, 4]
    assert [event.type for event in events] == ["invoke", "invoke", "ok", "ok"] * 3


async def _fail_by_index(op: Op) -> Op:
    outcomes: list[Exception | None] = [
        None,
        DefiniteError("cas-mismatch", "found 3"),
        IndefiniteError("timeout", "no answer"),
        ZeroDivisionError("a bug"),
    ]
    error = outcomes[op.value % 4]
    if error is not None:
        raise error
    return op.complete("ok")


def test_errors_are_recorded_by_their_type(rig: InterpreterRig) -> None:
    events = rig.run(clients(limit(8, reads())), Pool(_fail_by_index), concurrency=1)
    check_consistent(events)
    found = [(event.type, event.error_class) for event in completions(events)]
    assert found == [("ok", None), ("fail", "cas-mismatch"), ("info", "timeout"), ("info", "harness")] * 2
    assert completions(events)[1].error == "found 3"
    assert [(failure.stage, failure.times) for failure in rig.failures.failures()] == [("client", 2)]
    assert "ZeroDivisionError: a bug" in rig.log.read_text()
    assert "Traceback" in rig.log.read_text()


def test_after_info_the_process_is_retired_and_the_client_reopened(rig: InterpreterRig) -> None:
    pool = Pool(_fail_by_index)
    events = rig.run(clients(limit(40, reads())), pool, concurrency=3)
    check_consistent(events)
    ended: set[int] = set()
    for event in events:
        assert event.process not in ended
        if event.type == "info":
            ended.add(event.process)
    assert {process + 3 for process in ended} <= {*pool.opened, *rig.processes.ids}
    assert len(pool.opened) == len(set(pool.opened))
    assert sorted(pool.opened) == sorted(pool.closed)
    assert [process % 3 for process in rig.processes.ids] == [0, 1, 2]


def test_a_client_that_hangs_is_given_up_and_its_late_answer_ignored(rig: InterpreterRig) -> None:
    async def one_hangs(op: Op) -> Op:
        if op.value == 1:
            try:
                await rig.clock.sleep(3600)
            except asyncio.CancelledError:
                return op.complete("ok")
        return await rig.sleepy(op)

    source = clients(time_limit(20, delay(0.1, reads())))
    events = rig.run(source, Pool(one_hangs), concurrency=2, limits=HardLimits(client_s=2))
    check_consistent(events)
    [hung] = [event for event in completions(events) if event.type != "ok"]
    assert (hung.type, hung.error_class, hung.value) == ("info", "hard-limit", 1)
    [invoked] = [event for event in events if event.type == "invoke" and event.value == 1]
    assert hung.time - invoked.time == 2_000_000_000
    during = [event for event in events if invoked.time < event.time < hung.time]
    assert len(during) > 10, "the other thread went on"
    after = [event for event in events if event.time > hung.time]
    assert hung.process + 2 in {event.process for event in after}, "the thread went on as a new process"
    assert [failure.stage for failure in rig.failures.failures()] == ["client"]


@pytest.mark.parametrize(
    ("refusal", "ours"), [(DefiniteError("unreachable"), 0), (IndefiniteError("lost"), 0), (KeyError("bug"), 1)]
)
def test_without_a_client_operations_fail_for_certain(rig: InterpreterRig, refusal: Exception, ours: int) -> None:
    pool = Pool(rig.sleepy)
    pool.refuse = refusal
    events = rig.run(clients(limit(5, reads())), pool)
    assert [(event.type, event.error_class) for event in completions(events)] == [("fail", "no-client")] * 5
    assert len(rig.failures.failures()) == ours


def test_an_answer_that_is_no_completion_is_our_bug(rig: InterpreterRig) -> None:
    async def echo(op: Op) -> Op:
        return op

    events = rig.run(clients(limit(2, reads())), Pool(echo))
    assert [event.type for event in completions(events)] == ["info", "info"]
    assert len(rig.failures.failures()) == 1


def test_a_client_cancelled_from_inside_is_our_bug(rig: InterpreterRig) -> None:
    async def cancelled(op: Op) -> Op:
        raise asyncio.CancelledError

    events = rig.run(clients(limit(3, reads())), Pool(cancelled), concurrency=1)
    assert [(event.type, event.process) for event in completions(events)] == [("info", 0), ("info", 1), ("info", 2)]
    assert [failure.times for failure in rig.failures.failures()] == [3]


class WatchedNemesis:
    """Takes a second for each step, and looks into the journal before it acts."""

    def __init__(self, rig: InterpreterRig) -> None:
        self._bench = rig
        self.sealed: list[str] = []

    async def setup(self) -> None: ...

    async def invoke(self, op: Op) -> Op:
        self.sealed.append([event.f for event in read_journal(self._bench.path)][-1])
        await self._bench.clock.sleep(1)
        if op.f == "break":
            raise HarnessError("no way to the node")
        return op.complete("ok", value={"observed": True})

    async def teardown(self) -> None: ...


def test_the_nemesis_works_beside_the_clients_and_is_journaled_first(rig: InterpreterRig) -> None:
    watched = WatchedNemesis(rig)
    steps = [sleep(0.5), invoke("kill"), sleep(0.5), invoke("restart"), invoke("break")]
    work = time_limit(5, stagger(1, 50, reads()))
    events = rig.run(any_of(clients(work), nemesis(steps)), Pool(rig.sleepy), watched)
    check_consistent(events)
    assert watched.sealed == ["kill", "restart", "break"]
    faults = [event for event in events if event.process < 0]
    assert [(event.f, event.type, event.time // 10**8) for event in faults] == [
        ("kill", "invoke", 5),
        ("kill", "info", 15),
        ("restart", "invoke", 20),
        ("restart", "info", 30),
        ("break", "invoke", 30),
        ("break", "info", 40),
    ]
    during = [event for event in events if faults[0].index < event.index < faults[1].index]
    assert len(during) > 30
    assert [(failure.stage, failure.error) for failure in rig.failures.failures()] == [
        ("nemesis", "HarnessError: no way to the node")
    ]


def test_a_nemesis_that_hangs_is_given_up(rig: InterpreterRig) -> None:
    class Hanging(WatchedNemesis):
        async def invoke(self, op: Op) -> Op:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    source = nemesis([invoke("kill"), invoke("restart")])
    events = rig.run(source, Pool(rig.sleepy), Hanging(rig), limits=HardLimits(nemesis_s=3))
    assert [event.time for event in completions(events)] == [3 * 10**9, 6 * 10**9]
    assert {event.process for event in events} == {-1}


@pytest.mark.parametrize(
    ("steps", "longest"),
    [
        ("a! b! a! b! a!", 3),
        ("a! b a! b a!", 3),
        ("a! a a! a!", 2),
        ("a!x b!x c!x", 3),
        ("a!x b!x c d!x", 1),
        ("a!x b!y c!z", 1),
        ("a! b- a! a- a!", 3),
        ("a!x b- c!x d-", 0),
        ("a!x b- c!x d- e!x", 3),
        ("a b a b", 0),
    ],
)
def test_a_nemesis_is_wedged_when_a_step_fails_again_and_again_or_all_do_in_the_same_words(
    steps: str, longest: int
) -> None:
    """`!` is a failure, in words or its own; `-` a step that found nothing to do."""
    streak, last = Streak(), 0
    for number, step in enumerate(steps.split()):
        f, failed, words = step.partition("!")
        value = {"observed": False} if f.endswith("-") else {"observed": None, "action": "kills t1"}
        done = Op("info", -1, f.rstrip("-"), value=value)
        last = streak.after(
            done.complete("info", error_class="harness", error=words or str(number)) if failed else done
        )
    assert last == longest


def test_cancellation_records_what_was_in_flight(rig: InterpreterRig) -> None:
    async def stopped() -> None:
        work = clients(stagger(1, 1000, reads()))
        task = asyncio.create_task(rig.interpret(work, Pool(rig.sleepy)))
        await rig.clock.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    rig.world.run(stopped())
    events = rig.events()
    check_consistent(events)
    interrupted = [event for event in completions(events) if event.error_class == "interrupted"]
    assert {event.type for event in interrupted} == {"info"}
    assert len(interrupted) <= 4
    assert len(events) > 500


class Rogue:
    """Gives work to a process that is not there, or breaks."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def step(self, context: Context) -> Step:
        if context.time_ns < 10**9:
            op, _ = delay(1, reads()).step(context)
            return op, chain(sleep(1), self)
        if self._error is not None:
            raise self._error
        return Op("invoke", 99, "read", time=context.time_ns), self

    def update(self, context: Context, event: Op) -> Generator:
        return self


@pytest.mark.parametrize(("error", "raised"), [(None, HarnessError), (ValueError("oops"), ValueError)])
def test_a_broken_generator_ends_the_interpretation(rig: InterpreterRig, error: Exception | None, raised: type) -> None:
    pool = Pool(rig.sleepy)
    with pytest.raises(raised):
        rig.run(Rogue(error), pool)
    events = rig.events()
    check_consistent(events)
    assert len(events) == 2
    assert sorted(pool.opened) == sorted(pool.closed)


def test_equal_seeds_make_equal_histories(tmp_path: Path) -> None:
    def history(seed: int) -> list[Op]:
        rig = InterpreterRig(tmp_path, seed)
        return rig.run(clients(time_limit(3, stagger(seed, 500, reads(seed)))), Pool(rig.sleepy), concurrency=7)

    assert history(5) == history(5)
    assert history(5) != history(6)


def test_virtual_hours_cost_nothing_and_still_seal(rig: InterpreterRig) -> None:
    events = rig.run(clients(chain(invoke("read"), sleep(7200), invoke("read"))), Pool(rig.sleepy))
    assert events[2].time == 7200 * 10**9


def test_it_runs_on_an_ordinary_loop_too(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = JournalWriter(path)

    async def at_once(op: Op) -> Op:
        return op.complete("ok")

    source = clients(limit(300, stagger(1, 2000, reads())))
    recorder, failures = Recorder(journal, RealClock()), FailureLog()
    pool = Pool(at_once)
    processes = ProcessIds(10)
    asyncio.run(
        interpret(source, clients=pool, nemesis=None, recorder=recorder, failures=failures, processes=processes)
    )
    journal.close()
    events = list(read_journal(path))
    check_consistent(events)
    assert len(events) == 600
    values = [event.value for event in events if event.type == "invoke"]
    assert all(earlier < later for earlier, later in itertools.pairwise(values))


def test_steps_of_the_nemesis_take_no_client_out_of_turn(rig: InterpreterRig) -> None:
    """At a low rate every step of the nemesis would otherwise send the next operation to the first client again."""
    steps = [step for _ in range(20) for step in (sleep(0.1), invoke("kill"))]
    work = time_limit(25, stagger(1, 1, reads()))
    events = rig.run(any_of(clients(work), nemesis(steps)), Pool(rig.sleepy), WatchedNemesis(rig))
    asked = [event.process for event in events if event.type == "invoke" and event.process >= 0]
    assert len(asked) > 12
    assert asked == [place % 4 for place in range(len(asked))]
