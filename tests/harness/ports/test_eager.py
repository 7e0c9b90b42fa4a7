"""Coroutines that are begun at once: one that does not wait needs no task, one that does goes on in one."""

from __future__ import annotations

import asyncio

import pytest

from harness.ports.eager import Begun, begin


def test_what_does_not_wait_has_ended_when_begin_returns() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("all of it")

    assert begin(work()) is None and done == ["all of it"]


def test_what_raises_before_its_first_wait_raises_from_begin() -> None:
    async def work() -> None:
        raise KeyError("early")

    with pytest.raises(KeyError, match="early"):
        begin(work())


async def test_a_task_goes_on_where_it_waits_and_waits_again() -> None:
    first, second = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
    seen: list[object] = []

    async def work() -> None:
        seen.append("begun")
        seen.append(await first)
        seen.append(await second)

    begun = begin(work())
    assert isinstance(begun, Begun) and seen == ["begun"]
    task = asyncio.create_task(begun)
    first.set_result(1)
    await asyncio.sleep(0.01)
    assert seen == ["begun", 1] and not task.done()
    second.set_result(2)
    await task
    assert seen == ["begun", 1, 2]


@pytest.mark.parametrize("turns", [0, 1], ids=["before its first turn", "while it waits"])
async def test_a_task_that_is_cancelled_ends_the_coroutine_where_it_waits(turns: int) -> None:
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append("finally")

    begun = begin(work())
    assert begun is not None
    task = asyncio.create_task(begun)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["finally"]


async def test_closing_it_unwinds_the_coroutine_also_before_its_task_ran() -> None:
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append("finally")

    begun = begin(work())
    assert begun is not None
    begun.close()
    assert ends == ["finally"]
