"""Tests that are scenarios: coroutines, each played in a world of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def played(play: Callable[..., object], **how: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test of a scenario: `play` makes its world, by `how`, and hands it its positional-only parameters.

    Whatever other parameters it has are pytest's.
    """

    def decorate(scenario: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(scenario)
        def test(**given: object) -> None:
            play(scenario=lambda *stage: scenario(*stage, **given), **how)

        signature = inspect.signature(scenario)
        others = [each for each in signature.parameters.values() if each.kind is not each.POSITIONAL_ONLY]
        test.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return test

    return decorate
