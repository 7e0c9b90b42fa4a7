"""Steps carried out side by side, each to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable

from harness.errors import HarnessError


async def all_to_the_end(steps: Iterable[Awaitable[object]]) -> None:
    """Run the steps side by side, each to its end, then raise HarnessError if any failed."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if failures:
        raise HarnessError("; ".join(f"{type(error).__name__}: {error}" for error in failures)) from failures[0]
