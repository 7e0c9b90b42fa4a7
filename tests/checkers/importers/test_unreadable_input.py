"""What is no history is refused by every importer, with one sentence that names it."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from checkers.importers.detect import open_source
from harness.errors import UserError
from tests.checkers.importers.foreign_files import COBRA, FILES, cobra


def _zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("history.edn", data)
    return out.getvalue()


def _tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("history.edn")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def _mixed(data: bytes) -> bytes:
    other = FILES["plume-text"] if data != FILES["plume-text"] else FILES["awdit-text"]
    return data.rstrip(b"\n") + b"\n" + other


BAD: dict[str, Callable[[bytes], bytes]] = {
    "binary": lambda data: bytes(range(1, 256)) * 3,
    "zeros": lambda data: bytes(200),
    "wrong encoding": lambda data: data.decode("latin-1").encode("utf-16"),
    "wrong encoding, no mark": lambda data: data.decode("latin-1").encode("utf-16-le"),
    "not UTF-8": lambda data: data[: len(data) // 2] + b"\xe4\xff" + data[len(data) // 2 :],
    "mixed": _mixed,
    "zip": _zip,
    "tar": _tar,
    "tar.gz": lambda data: gzip.compress(_tar(data)),
    "gzip, cut off": lambda data: gzip.compress(data)[:-9],
    "zstd, cut off": lambda data: pa.compress(data, "zstd", asbytes=True)[:-5],
    "gzip, damaged": lambda data: gzip.compress(data)[:20] + b"\0\0" + gzip.compress(data)[22:],
}


def refused(path: Path, format: str) -> str:
    with pytest.raises(UserError) as caught:
        open_source(path, format)
    sentence = str(caught.value)
    assert "\n" not in sentence and str(path) in sentence and sentence.endswith("."), sentence
    return sentence


@pytest.mark.parametrize("named", [False, True], ids=["auto", "named"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("format", FILES)
def test_bad_input_is_refused(tmp_path: Path, format: str, bad: str, named: bool) -> None:
    path = tmp_path / "history"
    if format == "jepsen-log" and bad in ("mixed", "not UTF-8"):
        pytest.skip("lines that are none of the log's own are skipped")
    path.write_bytes(BAD[bad](FILES[format]))
    refused(path, format if named else "auto")


CUT = {"awdit-text", "plume-text", "hist"}
"""Formats of which a shorter text is a whole one wherever a line or a word of it ends."""


@pytest.mark.parametrize("format", sorted(FILES.keys() - CUT))
def test_a_truncated_file_is_refused(tmp_path: Path, format: str) -> None:
    path, data = tmp_path / "history", FILES[format].rstrip()
    for size in range(1, len(data) - 1, max(1, len(data) // 40)):
        path.write_bytes(data[:size])
        try:
            rows = open_source(path, format).rows
        except UserError as error:
            assert "\n" not in str(error) and str(path) in str(error)
        else:
            assert data[size - 1 : size + 1].strip() in (b"}", b"\n") or data[:size].endswith((b"}", b"\n")), (
                size,
                rows,
            )


@pytest.mark.parametrize("format", FILES)
def test_a_directory_is_refused(tmp_path: Path, format: str) -> None:
    refused(tmp_path, format)


def test_cobra_s_logs_that_are_none_are_refused(tmp_path: Path) -> None:
    folder = cobra(tmp_path / "logs")
    log = folder / "T1.log"
    for size in range(1, len(COBRA["T1.log"])):
        log.write_bytes(COBRA["T1.log"][:size])
        assert str(log) in refused(folder, "cobra")
    log.write_bytes(COBRA["T1.log"].replace(b"R", b"Q", 1))
    assert "neither a read nor a write" in refused(folder, "auto").replace(str(log), str(folder))
    assert "is a file" in refused(log, "cobra")
