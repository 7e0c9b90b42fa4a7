"""A history that could not take its place leaves nothing behind that keeps the next one away."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UnwritableError
from harness.history.ops import Op, write
from harness.history.parts import write_history
from harness.history.table import to_table


@pytest.mark.parametrize("part_rows", [1, 10])
def test_a_history_that_may_not_replace_a_folder_leaves_no_parts(tmp_path: Path, part_rows: int) -> None:
    mops = (write(1, 5),)
    events = [Op("invoke" if at % 2 == 0 else "ok", 0, "write", mops, index=at, time=at) for at in range(6)]  # type: ignore[arg-type]
    place = tmp_path / "h.parquet"
    place.mkdir()
    (place / "mine").write_text("kept")
    for _ in range(2):
        with pytest.raises(UnwritableError, match=r"h\.parquet can't be written"):
            write_history(to_table(events).to_batches(), place, part_rows=part_rows)
        assert [each.name for each in tmp_path.iterdir()] == ["h.parquet"]
    assert (place / "mine").read_text() == "kept"
