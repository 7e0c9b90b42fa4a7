"""How functions of numbers and arrays are compiled: kernels, which Python calls and which call each other.

Where numba is the one whose internals `checkers.linking` knows, kernels that call each other become one program, and
what is compiled is kept in files that any machine can use. Under any other numba each is a plain `njit(cache=True)`:
verdicts are the same, and the first call of each kernel takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numba
import numpy as np

from checkers.compile_cache import kernels_directory, sources_digest

IS_LINKED: Final = numba.__version__.startswith("0.68.")
"""Whether `checkers.linking` knows this numba's internals."""

if IS_LINKED:
    from checkers.linking import linked


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function of numbers and arrays; its machine code is kept."""
    return linked(function) if IS_LINKED else _plain(function)


def lean(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates nothing, without reference counts for the arrays it is handed.

    Counting them at every call between kernels took two thirds of their time (numba 0.68).
    """
    return linked(function, lean=True) if IS_LINKED else _plain(function)


def lean_inline(function: Callable[..., Any]) -> Any:
    """Compile a function as `lean` does, and put it into its callers."""
    return linked(function, lean=True, inline=True) if IS_LINKED else _plain(function)


def lean_in(module: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile, as `lean` does, a function that another one made for a module, of kernels that are there: it counts as
    one of that module's, of which each has a name of its own."""

    def adopted(function: Callable[..., Any]) -> Any:
        function.__module__, function.__qualname__ = module, function.__name__
        return lean(function)

    return adopted


def _plain(function: Callable[..., Any]) -> Any:
    """numba alone sees a change only in the very file of a function, not in those that it calls; so its files lie in a
    directory that is named by all sources."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_plain_directory())
    try:
        return numba.njit(cache=True, nogil=True)(function)
    finally:
        numba.config.CACHE_DIR = before


@cache
def _plain_directory() -> Path:
    return kernels_directory() / f"plain-{sources_digest()}"


def make_record(names: Sequence[str]) -> np.record:
    """Whole numbers by name, all 0, which kernels that are handed them read and write in place."""
    columns = np.dtype([(name, np.int64) for name in names], align=True)
    record: np.record = np.zeros(1, columns).view(np.recarray)[0]
    return record
