"""The seven steps by themselves: what an operation holds, what it does again, and what it never does (M6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.master.calls import ServerCall
from cluster.master.contract import Mutation, Operation, carry_out
from cluster.master.locks import KeyLocks, LockKey, name_keys
from cluster.master.manager import Refusal
from cluster.wire.messages import DeleteTablet, ErrorReply, Replica, RequestId

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
