"""The seven steps by themselves: what an operation holds, what it does again, and what it never does (M6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.master.calls import ServerCall
from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.locks import KeyLocks, LockClass, LockKey, name_keys, table_keys, tablet_keys
from cluster.master.manager import Refusal
from cluster.wire.messages import DeleteTablet, ErrorReply, Replica, RequestId
from harness.ports.sim.world import World

# ---- locks ----


def test_locks_are_taken_in_one_order_and_for_writing_where_both_are_asked_for() -> None:
    taken: list[LockKey] = []

    class Noting(KeyLocks):
        async def acquire(self, key: LockKey) -> None:
            taken.append(key)
            await super().acquire(key)

    async def main() -> None:
        async with Noting().hold(
            *tablet_keys("ba"), *table_keys("t", shared=True), *name_keys("n"), *table_keys("t"), *tablet_keys("a")
        ):
            pass

    asyncio.run(main())
    assert taken == [*name_keys("n"), *table_keys("t"), *tablet_keys("ab")]


Plan = list[tuple[bool, int, int, int | None]]
"""(For reading, begins at, holds for, is cancelled after) in ticks."""

PLANS: st.SearchStrategy[Plan] = st.lists(
    st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 5), st.none() | st.integers(0, 6)), max_size=8
)


@given(PLANS)
def test_readers_share_writers_do_not_and_whoever_is_not_cancelled_gets_in(plan: Plan) -> None:
    locks, holders, served = KeyLocks(), dict[int, bool](), list[int]()
    with World(1) as world:
        clock = world.harness_ports("h").clock

        async def client(number: int, shared: bool, begin: int, length: int) -> None:
            await clock.sleep(begin)
            async with locks.hold(LockKey(LockClass.TABLE, "t", shared)):
                assert not holders or (shared and all(holders.values()))
                holders[number] = shared
                try:
                    await clock.sleep(length)
                finally:
                    del holders[number]
            served.append(number)

        async def main() -> None:
            tasks = []
            for number, (shared, begin, length, ends) in enumerate(plan):
                tasks.append(asyncio.create_task(client(number, shared, begin, length)))
                if ends is not None:
                    asyncio.get_running_loop().call_later(begin + ends, tasks[-1].cancel)
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() or task.exception() is None for task in tasks)

        world.run(main())
    assert {number for number, each in enumerate(plan) if each[3] is None} <= set(served)
    assert len(locks) == 0


def test_a_writer_is_not_overtaken_by_readers_for_ever() -> None:
    order: list[str] = []
    locks = KeyLocks()

    async def use(name: str, shared: bool) -> None:
        async with locks.hold(LockKey(LockClass.TABLE, "t", shared)):
            order.append(name)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(use("r1", True), use("w", False), use("r2", True), use("r3", True))

    asyncio.run(main())
    assert order == ["r1", "w", "r2", "r3"]


def test_a_lock_that_is_granted_to_who_is_cancelled_in_the_same_step_is_free() -> None:
    async def scenario() -> None:
        locks, key = KeyLocks(), name_keys("a")
        held = locks.hold(*key)
        await held.__aenter__()
        waiting = asyncio.create_task(locks.hold(*key).__aenter__())
        await asyncio.sleep(0)
        await held.__aexit__(None, None, None)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        async with asyncio.timeout(1.0), locks.hold(*key):
            pass
        assert waiting.cancelled() and len(locks) == 0

    asyncio.run(scenario())


# ---- the contract ----


CALL = ServerCall(Replica("t1", "t1:1"), DeleteTablet("x"))
REQUEST = RequestId(1, 1, 1)
LEADERSHIP: Any = SimpleNamespace()
A, B = name_keys(("a",)), name_keys(("b",))


class NotedLocks(KeyLocks):
    """Locks that tell who of them is held."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[str] = []

    async def acquire(self, key: LockKey) -> None:
        await super().acquire(key)
        self.held.append(key.key)

    def release(self, key: LockKey) -> None:
        self.held.remove(key.key)
        super().release(key)


class Master:
    """A manager that notes what it is asked for, in order; `outcome` is what a replication comes to."""

    def __init__(self, outcome: bytes | Refusal = b"done") -> None:
        self.locks, self.flaws = NotedLocks(), frozenset[str]()
        self.ports = SimpleNamespace(failpoints=SimpleNamespace(armed={}))
        self.noted: list[str] = []
        self.answers: dict[RequestId, bytes] = {}
        self.leads = True
        self._outcome = outcome
        self.undecided = SimpleNamespace(add=lambda *change: self.noted.append("undecided"))

    def answered(self, request_id: RequestId | None) -> bytes | None:
        return None if request_id is None else self.answers.get(request_id)

    def require(self, leadership: object) -> None:
        if not self.leads:
            raise refusal(definite=True)

    def holds(self, leadership: object) -> bool:
        return self.leads

    def tell(self, leadership: object, calls: Iterable[ServerCall]) -> None:
        self.noted.extend("call" for _ in calls if self.leads)

    async def replicate(self, *batch: object) -> bytes:
        self.noted.append("replicate")
        await asyncio.sleep(0)
        if isinstance(self._outcome, Refusal):
            raise self._outcome
        return self._outcome


def refusal(definite: bool) -> Refusal:
    return Refusal(ErrorReply("NOT_THE_LEADER" if definite else "TIMED_OUT", "no", definite))


def operation(
    locks: Callable[[], tuple[LockKey, ...]] = lambda: A, note: Callable[[], None] = lambda: None
) -> Operation:
    def mutate(leadership: object) -> Mutation:
        note()
        return Mutation(calls=(CALL,), reply=b"done")

    return Operation("test", lambda leadership: locks(), mutate, REQUEST)


async def beside(master: Any, what: Operation, meanwhile: Callable[[], None]) -> bytes | None:
    """Carry it out while somebody else holds the lock of `a`, and lets go of it after `meanwhile`."""
    async with master.locks.hold(*A):
        waiting = asyncio.create_task(carry_out(master, LEADERSHIP, what))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        meanwhile()
    return await waiting


def test_what_is_replicated_is_told_after_that() -> None:
    master: Any = Master()
    assert asyncio.run(carry_out(master, LEADERSHIP, operation())) == b"done"
    assert master.noted == ["replicate", "call"] and len(master.locks) == 0


async def test_locks_are_asked_for_anew_where_others_are_needed_by_then() -> None:
    master: Any = Master()
    wanted, held = [A], list[str]()
    changing = operation(lambda: wanted[0], lambda: held.extend(master.locks.held))
    await beside(master, changing, lambda: wanted.__setitem__(0, B))
    assert held == ["b"] and master.locks.held == []


async def test_a_term_that_ended_while_locks_were_waited_for_changes_nothing() -> None:
    master: Any = Master()
    with pytest.raises(Refusal, match="NOT_THE_LEADER"):
        await beside(master, operation(), lambda: setattr(master, "leads", False))
    assert master.noted == [] and len(master.locks) == 0


async def test_a_request_that_was_carried_out_while_locks_were_waited_for_is_answered_from_that() -> None:
    master: Any = Master()
    assert await beside(master, operation(), lambda: master.answers.update({REQUEST: b"first"})) == b"first"
    assert master.noted == []


@pytest.mark.parametrize(("definite", "noted"), [(True, ["replicate"]), (False, ["replicate", "undecided"])])
def test_only_what_may_yet_take_effect_is_undecided(definite: bool, noted: list[str]) -> None:
    master: Any = Master(refusal(definite))
    with pytest.raises(Refusal):
        asyncio.run(carry_out(master, LEADERSHIP, operation()))
    assert master.noted == noted and len(master.locks) == 0


@pytest.mark.parametrize("outcome", [b"done", refusal(definite=False)])
async def test_a_term_that_ended_meanwhile_leaves_it_to_its_successor_to_tell(outcome: bytes | Refusal) -> None:
    """A deposed master had tablets founded that its successor had deleted (`catalog --nemesis all --swarm`, seed 9)."""
    master: Any = Master(outcome)
    carried_out = asyncio.create_task(carry_out(master, LEADERSHIP, operation()))
    await asyncio.sleep(0)
    master.leads = False
    await asyncio.gather(carried_out, return_exceptions=True)
    assert master.noted == ["replicate"] and len(master.locks) == 0


def test_what_was_answered_otherwise_at_apply_tells_nobody_anything() -> None:
    master: Any = Master(b"this session has ended")
    assert asyncio.run(carry_out(master, LEADERSHIP, operation())) == b"this session has ended"
    assert master.noted == ["replicate"]
