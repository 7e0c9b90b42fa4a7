"""What is whole of a damaged table is judged, refutes where it can, and is never valid."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers.api import check, check_source
from checkers.importers.detect import open_source
from checkers.importers.whole_groups import open_what_is_whole
from checkers.made.generate import MadeHistory, write_made
from harness.errors import UserError
from harness.history.columns import SCHEMA, Purpose
from harness.history.ops import Mop, Op, read, write
from harness.history.parts import write_history
from harness.history.table import to_table

PURPOSE: Final = Purpose("somebody's", ("register",))
ROWS: Final = 20


def in_groups(table: pa.Table, path: Path, dictionary: bytes = b"[]", part_rows: int = 10_000) -> Path:
    """The history in row groups of a few operations each."""
    batches = table.combine_chunks().to_batches(max_chunksize=ROWS)
    write_history(batches, path, part_rows=part_rows, dictionary=dictionary, purpose=PURPOSE)
    return path


def made(model: str, path: Path, **more: object) -> Path:
    write_made(MadeHistory(model, 100, info=0.05, seed=3, **more), path)  # type: ignore[arg-type]
    source = open_source(path)
    table = pa.Table.from_batches([batch.cast(SCHEMA) for batch in source.batches(SCHEMA.names)])
    return in_groups(table, path, msgspec.json.encode(source.dictionary))


def flip(path: Path, at: int, bit: int = 8) -> None:
    whole = bytearray(path.read_bytes())
    whole[at] ^= bit
    path.write_bytes(whole)


def pages_of(path: Path, group: int) -> int:
    """Where a page of some column of a row group begins."""
    return int(pq.read_metadata(path).row_group(group).column(3).data_page_offset)


@pytest.mark.parametrize(
    "model", ["register", "list-append", "lin-queue", "set", "set-full", "total-queue", "sessions", "snapshot-reads"]
)
def test_a_valid_history_that_is_damaged_is_unknown_wherever_that_is(model: str, tmp_path: Path) -> None:
    """What completes behind the last whole group shows what was written there, and has to count for nothing; and what
    was added and is not seen by then is not lost."""
    path = made(model, tmp_path / "history.parquet")
    footer, whole = pq.read_metadata(path), path.read_bytes()
    assert footer.num_row_groups >= 5 and open_what_is_whole(path) is None and check(path, model).valid is True
    for group in range(1, footer.num_row_groups):
        path.write_bytes(whole)
        flip(path, pages_of(path, group) + 3)
        found = open_what_is_whole(path)
        assert found is not None
        assert found[0].rows == sum(footer.row_group(before).num_rows for before in range(group))
        verdict = check_source(found[0], (model,), engine="local")[model]
        assert (verdict.valid, verdict.strongest, verdict.details["note"]) == ("unknown", None, found[0].cut_short)
        assert f"row group {group}, damaged" in str(verdict.details["note"])


def register_history() -> Iterator[Op]:
    """A stale read at the beginning, then writes by turns, each read while it is under way by who invoked first."""
    stale = [(0, write(0, 1), None), (0, write(0, 2), None), (0, read(0), 1)]
    index = 0
    for process, mop, answer in stale:
        op = Op("invoke", process, "write" if mop.f == "w" else "read", (mop,))
        yield msgspec.structs.replace(op, index=index, time=index)
        done = (mop,) if answer is None else (Mop("r", mop.partition, answer),)
        yield op.complete("ok", mops=done, index=index + 1, time=index + 1)
        index += 2
    for n in range(40):
        seen, written = Op("invoke", 1, "read", (read(1),)), Op("invoke", 2, "write", (write(1, n),))
        yield msgspec.structs.replace(seen, index=index, time=index)
        yield msgspec.structs.replace(written, index=index + 1, time=index + 1)
        yield written.complete("ok", index=index + 2, time=index + 2)
        yield seen.complete("ok", mops=(Mop("r", 1, n),), index=index + 3, time=index + 3)
        index += 4


def test_what_whole_groups_refute_stands_and_nothing_else_does(tmp_path: Path) -> None:
    path = in_groups(to_table(register_history()), tmp_path / "history.parquet")
    whole = path.read_bytes()
    flip(path, pages_of(path, 2))
    flip(path, pages_of(path, 4))
    found = open_what_is_whole(path)
    assert found is not None and found[1] == PURPOSE
    verdict = check_source(found[0], ("register",), engine="local")["register"]
    assert verdict.valid is False and verdict.counts == {"stale-read": 1}
    assert str(verdict.details["note"]).endswith(
        "is damaged: 40 operations in row groups 0 to 1 of 5 were judged, up to event 78; left out: row groups 2, 4, "
        "damaged, and row group 3, whole but behind that."
    )
    harms = {pages_of(path, 0): "nothing before its first", len(whole) - 9: "its end", -300: "its end"}
    for harm, words in harms.items():
        path.write_bytes(whole)
        flip(path, harm)
        with pytest.raises(UserError, match=words):
            open_what_is_whole(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match="its end"):
        open_what_is_whole(path)


def test_every_byte_that_is_damaged_is_noticed_and_nothing_is_made_of_it(tmp_path: Path) -> None:
    """Wherever a bit is turned over, what is judged is as it was before, and never all of the history."""
    table = to_table(list(register_history())[6:])
    path = in_groups(table, tmp_path / "history.parquet")
    whole = path.read_bytes()
    sealed, checksum = whole.index(b"ASSAYGRP"), whole.index(b"ASSAYCRC") + 8
    outcomes = set()
    for at in (checksum, *range(4, sealed, len(whole) // 61), *range(sealed - 100, len(whole), 97)):
        path.write_bytes(whole)
        flip(path, at)
        try:
            found = open_what_is_whole(path)
        except UserError:
            outcomes.add(0)
            continue
        assert found is not None and found[0].cut_short and found[0].table is not None
        rows = found[0].rows
        ended = [row for row in found[0].table.to_pylist() if row["complete_index"] is not None]
        assert all(row == before for row, before in zip(ended, table.to_pylist(), strict=False)), at
        outcomes.add(rows)
    assert outcomes == {0, 20, 40, 60, 80}


def test_a_part_that_is_lost_or_damaged_leaves_those_before_it(tmp_path: Path) -> None:
    folder = in_groups(to_table(register_history()), tmp_path / "history", part_rows=2 * ROWS)
    assert open_what_is_whole(folder) is None
    flip(folder / "part-00001.parquet", pages_of(folder / "part-00001.parquet", 1))
    (folder / "part-00002.parquet").unlink()
    found = open_what_is_whole(folder)
    assert (
        found is not None and found[1] == PURPOSE and "left out: row groups 3 to 4, damaged." in str(found[0].cut_short)
    )
    assert check_source(found[0], ("register",), engine="local")["register"].valid is False
    (folder / "part-00000.parquet").unlink()
    with pytest.raises(UserError, match="nothing before its first"):
        open_what_is_whole(folder)
