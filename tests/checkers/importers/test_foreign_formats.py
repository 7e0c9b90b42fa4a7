"""Everybody's histories: known by their content, also compressed, and read as what they say."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from checkers.api import check
from checkers.importers.detect import detected, open_source, suggested
from checkers.options import CheckOptions
from checkers.source import Source
from harness.errors import UserError
from tests.checkers.importers.foreign_files import EDN, FILES, cobra


def operations_of(source: Source) -> list[tuple[Any, ...]]:
    """Each operation: session or process, outcome, f, and its micro-operations as f, key and value."""
    assert source.table is not None
    return [
        (
            row["process"],
            row["type"],
            *((mop["f"], source.shown(mop["partition"]), mop["value"]) for mop in row["mops"] or ()),
        )
        for row in source.table.to_pylist()
    ]


SAYS: dict[str, list[tuple[Any, ...]]] = {
    "json-lines": [(0, "ok", ("w", "0", 1))],
    "jepsen-text": [(0, "ok", ("w", "0", 1)), (-1, "info"), (1, "fail", ("r", "0", None))],
    "dbcop-json": [
        (0, "ok", ("w", "0", 1), ("w", "1", 2)),
        (0, "ok", ("r", "1", 2), ("w", "0", 3)),
        (1, "ok", ("r", "0", 1), ("w", "1", 4)),
    ],
    "hist": [
        (0, "ok", ("w", "x", 1), ("w", "y", 2)),
        (0, "ok", ("r", "y", 2), ("w", "x", 3)),
        (1, "ok", ("r", "x", 1), ("w", "y", 4)),
    ],
    "bincode": [
        (0, "ok", ("w", "7", 1), ("r", "8", None)),
        (0, "fail", ("w", "7", 2)),
        (1, "ok", ("r", "7", 1)),
    ],
    "porcupine-json": [
        (11, "ok", ("r", "key0", None)),
        (11, "ok", ("w", "key7", -(2**62) - 3)),
        (11, "ok", ("r", "key5", None)),
        (11, "ok", ("r", "key0", -(2**62) - 5)),
    ],
}


@pytest.mark.parametrize("format", FILES)
def test_each_format_is_known_and_read_also_compressed(tmp_path: Path, format: str) -> None:
    data, path = FILES[format], tmp_path / "history"
    path.write_bytes(data)
    plain = open_source(path)
    assert detected(path) == plain.format == format and plain.rows
    if format in SAYS:
        assert operations_of(plain) == SAYS[format]
    path.write_bytes(gzip.compress(data))
    assert detected(path) == format and operations_of(open_source(path)) == operations_of(plain)
    path.write_bytes(pa.compress(data, "zstd", asbytes=True))
    assert detected(path) == format and operations_of(open_source(path)) == operations_of(plain)


def test_cobra_s_logs_are_a_session_each(tmp_path: Path) -> None:
    source = open_source(cobra(tmp_path / "logs"))
    assert operations_of(source) == [(0, "ok", ("w", "-7", 11)), (1, "ok", ("r", "-7", 11), ("r", "8", None))]
    assert suggested(tmp_path / "logs") == "isolation"


def test_a_directory_of_jepsen_s_store_is_its_history(tmp_path: Path) -> None:
    (tmp_path / "history.txt").write_bytes(FILES["jepsen-text"])
    assert open_source(tmp_path).format == "jepsen-text"
    (tmp_path / "history.edn").write_bytes(EDN)
    assert check(tmp_path, "register").valid is True
    for name in ("history.edn", "history.txt"):
        (tmp_path / name).unlink()
    (tmp_path / "test.jepsen").write_bytes(b"JEPSEN\0\0")
    with pytest.raises(UserError, match=r"has no history.edn, and test.jepsen is Jepsen's own binary form"):
        open_source(tmp_path)


def operation(client: int, input: Any, call: int, output: Any, end: int) -> bytes:
    return msgspec.json.encode({"ClientId": client, "Input": input, "Call": call, "Output": output, "Return": end})


def test_operations_of_porcupine_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(operation(1, {"op": 1}, 5, {"v": 2}, 9) + b"\n" + operation(0, {"op": 0}, 3, None, 5))
    rows = open_source(path).table.to_pylist()  # type: ignore[union-attr]
    assert [(row["process"], row["type"], row["value"]) for row in rows] == [
        (0, "info", '{"input":{"op":0}}'),
        (1, "ok", '{"input":{"op":1},"output":{"v":2}}'),
    ]
    assert rows[0]["complete_index"] > rows[1]["invoke_index"], "what ends when another begins is concurrent with it"


def test_completions_alone_are_concurrent(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_bytes(b"{:process 0 :type :ok :f :read :value 1}\n{:process 0 :type :ok :f :write :value 1}\n")
    with pytest.raises(UserError, match="completes an operation that it has not invoked"):
        check(path, "register")
    verdict = check(path, "register", options=CheckOptions(alone=True))
    assert verdict.valid is True and "all taken as concurrent" in verdict.details["note"]
    path.write_bytes(EDN)
    with pytest.raises(UserError, match="line 1: this is an invocation"):
        check(path, "register", options=CheckOptions(alone=True))
