"""Judging: kernels over columns, the pipeline around them, verdicts, explanations and history importers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkers.compile_cache import use_portable_cpu

if TYPE_CHECKING:
    from checkers.api import check as check
    from checkers.importers.detect import open_source as load

__all__ = ["check", "load"]

use_portable_cpu()


def __getattr__(name: str) -> Any:
    """`check` and `load`, which bring numba and pyarrow with them, are imported when they are used."""
    if name == "check":
        from checkers.api import check

        return check
    if name == "load":
        from checkers.importers.detect import open_source

        return open_source
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
