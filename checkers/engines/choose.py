"""Which engine judges a history."""

from __future__ import annotations

import os
import shutil
from typing import Final

from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.engines.session import SparkOptions
from checkers.engines.spark import SparkEngine
from checkers.source import Source
from harness.errors import UserError

ENGINES: Final = ("auto", "local", "spark")

_BYTES_PER_OPERATION: Final = 160
"""What the local engine takes at its peak for an operation, generously."""


def fits_locally(source: Source) -> bool:
    """Whether the history takes less than half of the machine's memory in-process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return source.rows * _BYTES_PER_OPERATION < memory // 2


def choose_engine(name: str, source: Source, spark: SparkOptions | None = None, cores: int | None = None) -> Engine:
    """The engine of that name; `auto` is Spark where a master is named, else local for what fits comfortably or where
    there is no Java, else Spark. The local one works on so many cores (None: all that this process may use)."""
    if name not in ENGINES:
        raise UserError(f"There is no engine {name!r}; the engines are {', '.join(ENGINES)}.")
    if name == "spark" or (name == "auto" and spark is not None and spark.names_a_master):
        return SparkEngine(spark)
    if name == "auto" and not fits_locally(source) and shutil.which("java") is not None:
        return SparkEngine(spark)
    return LocalEngine(cores)
