"""A disk that is full before a command has written all: one sentence, 254, nothing half-written."""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import INVALID, VALID, Answer, assay, files

from assay import pack_command
from checkers.compile_all import compile_for_executors
from checkers.importers import jepsen
from checkers.made.registers import RegisterShape, write_register_history
from tests.mounts import small_disk

FULL = ": No space left on device"
ROOM = "256k"
LOG = "INFO  jepsen.util - 0\t:invoke\t:write\t1\nINFO  jepsen.util - 0\t:ok\t:write\t1\n"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """With a file on it that nobody may touch."""
    with small_disk(tmp_path / "disk", ROOM) as place:
        (place / "kept").write_text("kept")
        yield place


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Larger than the disk, in any format."""
    path = tmp_path_factory.mktemp("history") / "h.parquet"
    write_register_history(RegisterShape(30_000, keys=100), path)
    return path


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_command, "compile_all", lambda processes: 0)
    monkeypatch.setattr(pack_command, "compile_for_executors", lambda folder, told: None)


def contents(disk: Path) -> dict[Path, bytes | None]:
    """All that lies there."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(disk.rglob("*"))}


def fill(disk: Path) -> None:
    """Leave no room."""
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def require_refused(answer: Answer, named: str) -> None:
    assert (answer.code, answer.out) == (254, ""), answer
    assert FULL in answer.complaint and named in answer.complaint


COMMANDS = [
    "import HISTORY --to DISK/copy",
    "import HISTORY --to DISK/copy --part-rows 1000",
    "export HISTORY --to DISK/copy.edn",
    "export HISTORY --to DISK/copy.edn --part-rows 1000",
    "export HISTORY --to DISK/kept --overwrite",
    "generate register --operations 30000 --to DISK/made",
    "generate register --operations 30000 --to DISK/made --part-rows 1000",
    "generate register --operations 30000 --to DISK/made --format edn",
    "generate register --operations 9000 --to DISK/made --format edn",
    "pack --to DISK/archive",
    "pack --to DISK/kept --overwrite",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_room_where_a_command_writes(
    command: str, disk: Path, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(disk)
    words = command.replace("HISTORY", str(history)).replace("DISK", str(disk)).split()
    require_refused(assay(capsys, *words), str(disk))
    assert contents(disk) == before


def test_no_room_for_the_archive_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for its contents, and not for both."""
    contained = tmp_path / "contained"
    contained.write_bytes(random.Random(0).randbytes(150_000))
    monkeypatch.setattr(pack_command, "_files", lambda: iter([(contained, Path("bin/contained"))]))
    monkeypatch.setattr(pack_command, "_write_start", lambda folder: None)
    monkeypatch.setattr(pack_command, "_try_out", lambda content: None)
    with small_disk(tmp_path / "disk", ROOM) as disk:
        require_refused(assay(capsys, "pack", "--to", disk / "archive"), str(disk))
        assert contents(disk) == {}


@pytest.mark.parametrize("command", [COMMANDS[each] for each in (0, 2, 4, -4, -2, -1)])
def test_no_name_is_left_where_a_command_writes(
    command: str, tmp_path: Path, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", "16m", names=1) as disk:
        (disk / "kept").write_text("kept")
        before = contents(disk)
        words = command.replace("HISTORY", str(history)).replace("DISK", str(disk)).split()
        require_refused(assay(capsys, *words), str(disk))
        assert contents(disk) == before


def test_no_room_for_a_report(tmp_path: Path, disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--time-limit", "2", "--rate", "40", "--nodes", "3", "--seed", "1", "--json")
    (run,) = assay(capsys, "run", "register", *arguments, "--store", tmp_path / "store").objects
    valid, invalid = files(tmp_path, valid=VALID, invalid=INVALID)
    fill(disk)
    before = contents(disk)
    require_refused(assay(capsys, "report", run["run"], "--to", disk / "report.html"), str(disk))
    for path, code in ((valid, 254), (invalid, 1)):
        answer = assay(capsys, "check", path, "--model", "register", "--report", disk / "report.html")
        assert answer.code == code and answer.out, "the verdict is told"
        assert FULL in answer.complaint and str(disk) in answer.complaint
    assert contents(disk) == before


@pytest.fixture
def scratch(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The disk is where temporary files go, and long texts are kept there."""
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    monkeypatch.setattr(jepsen, "IN_MEMORY_BYTES", 1_000)
    return disk


@pytest.mark.parametrize(
    "command",
    [
        "check LOG --model register",
        "check TEXT --model register",
        "import TEXT --to HERE/copy",
        "export HISTORY --to HERE/copy.edn",
        "generate register --operations 20000 --to HERE/made --format edn",
    ],
)
def test_no_room_for_temporary_files(
    command: str, tmp_path: Path, scratch: Path, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, log = tmp_path / "h.edn", tmp_path / "h.log"
    text.write_text("".join(VALID for _ in range(10_000)))
    log.write_text(LOG * 10_000)
    before = contents(tmp_path)
    words = {"LOG": log, "TEXT": text, "HISTORY": history, "HERE": tmp_path}
    for word, path in words.items():
        command = command.replace(word, str(path))
    answer = assay(capsys, *command.split())
    require_refused(answer, "set TMPDIR")
    assert answer.complaint.endswith(f"{FULL}."), "another place for the result would not do"
    gc.collect()  # what is kept for a while goes with the source, at the latest when the process ends
    assert contents(tmp_path) == before


def test_no_room_for_compiled_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive without them would have every executor compile for minutes."""
    monkeypatch.setattr(pack_command, "compile_all", lambda processes: 1)
    answer = assay(capsys, "pack", "--to", tmp_path / "archive")
    assert (answer.code, answer.out) == (254, "") and "set NUMBA_CACHE_DIR" in answer.complaint
    assert list(tmp_path.iterdir()) == []


def test_no_room_to_compile_for_executors(
    tmp_path: Path, scratch: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_command, "compile_for_executors", compile_for_executors)
    fill(scratch)
    before = contents(tmp_path)
    require_refused(assay(capsys, "pack", "--to", tmp_path / "archive"), str(scratch))
    assert contents(tmp_path) == before
