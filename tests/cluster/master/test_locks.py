"""Locks of the catalog (M6, step 1): readers together, writers alone, in order of arrival, whoever is cancelled."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from cluster.master.locks import KeyLocks, LockClass, LockKey, name_keys, table_keys, tablet_keys
from harness.sim.world import World


async def test_locks_are_taken_in_one_order_and_for_writing_where_both_are_asked_for() -> None:
    taken: list[LockKey] = []

    class Noting(KeyLocks):
        async def acquire(self, key: LockKey) -> None:
            taken.append(key)
            await super().acquire(key)

    async with Noting().hold(
        *tablet_keys("ba"), *table_keys("t", shared=True), *name_keys("n"), *table_keys("t"), *tablet_keys("a")
    ):
        pass
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


async def test_a_lock_that_is_granted_to_who_is_cancelled_in_the_same_step_is_free() -> None:
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
