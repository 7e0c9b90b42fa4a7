"""Steps carried out to their end: side by side, or whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from harness.errors import HarnessError

T = TypeVar("T")


async def to_the_end(step: Awaitable[T]) -> T:
    """Carry a step out; who is cancelled meanwhile waits for its end first.

    A command that a machine was sent can't be called back: left alone, it might be carried out after what undoes it.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


async def all_to_the_end(steps: Iterable[Awaitable[object]]) -> None:
    """Run the steps side by side, each to its end, then raise HarnessError if any failed."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if failures:
        raise HarnessError("; ".join(f"{type(error).__name__}: {error}" for error in failures)) from failures[0]
