"""How hot kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def lean(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates nothing, without reference counts for the arrays it is handed.

    Counting them at every call between kernels took two thirds of their time (numba 0.68).
    """
    return njit(cache=True, _nrt=False)(function)


def lean_inline(function: Callable[..., Any]) -> Any:
    """The same, and put into its callers."""
    return njit(cache=True, _nrt=False, forceinline=True)(function)
