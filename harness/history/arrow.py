"""pyarrow and pandas: the first list that becomes an array has pyarrow import pandas, only to see that it is no frame.

That import takes longer than a run of a minute takes to be judged.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _Absent:
    """A finder by which there is no pandas."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ImportError("pandas was not asked for")
        return None


def without_pandas() -> None:
    """Let pyarrow take pandas for absent from now on in this process, until it is asked for a frame.

    For processes that hand no pandas object to pyarrow; where pandas is imported already nothing changes.
    """
    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(absent)
