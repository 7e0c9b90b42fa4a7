"""Seeds of which `make test` runs a few, and `make torture` all."""

from __future__ import annotations

from typing import Any

import pytest


def few_of(few: int, many: int) -> list[Any]:
    """Parameters 0, 1, … `many` - 1, of which those from `few` on have the marker `campaign`."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.campaign) for seed in range(few, many))]


def ranges_of(few: int, many: int) -> list[Any]:
    """The seeds 0, 1, … `many` - 1 in two ranges, of which the second, from `few` on, has the marker `campaign`."""
    return [range(few), pytest.param(range(few, many), marks=pytest.mark.campaign)]
