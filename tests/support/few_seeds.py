"""What draws: `make test` runs a few seeds or examples, and `make torture` all."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import settings

EXAMPLES: Final = 40
"""Examples that hypothesis draws for a test in `make test`."""


def few_of(few: int, many: int) -> list[Any]:
    """Parameters 0, 1, … `many` - 1, of which those from `few` on have the marker `campaign`."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(few, many))]


def ranges_of(few: int, many: int) -> list[Any]:
    """The seeds 0, 1, … `many` - 1 in two ranges, of which the second, from `few` on, has the marker `campaign`."""
    return [range(few), pytest.param(range(few, many), marks=pytest.mark.campaign)]


def blocks_of(few: int, many: int, size: int = 2_500) -> list[Any]:
    """As `ranges_of`, but the second range in blocks, so that several processes share them."""
    starts = [few, *range(size, many, size)]
    blocks = [range(start, end) for start, end in zip(starts, [*starts[1:], many], strict=True)]
    return [range(few), *(pytest.param(block, marks=pytest.mark.campaign) for block in blocks)]


def few_examples(few: int) -> settings:
    """Settings for examples that take long: `few` in `make test`, as many as of any other test in `make torture`."""
    usual = settings().max_examples
    return settings(max_examples=few if usual == EXAMPLES else usual)
