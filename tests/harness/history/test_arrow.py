"""pyarrow without pandas: a list becomes an array, and frames still work once they are asked for."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from harness.history.arrow import without_pandas
without_pandas()
import pyarrow as pa
assert pa.array(["a", None]).to_pylist() == ["a", None]
assert "pandas" not in sys.modules
assert pa.table({"a": [1, 2]}).to_pandas()["a"].sum() == 3
import pandas as pd
assert pa.Table.from_pandas(pd.DataFrame({"a": [4]})).column("a").to_pylist() == [4]
"""


def test_lists_import_no_pandas_and_frames_do() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
