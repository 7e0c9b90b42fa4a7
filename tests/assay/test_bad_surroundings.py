"""What a check finds around it: no rights, no place for temporary files. One sentence, 254, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import VALID, Answer, assay

import checkers
from assay import history_commands, pack_command
from checkers.engines import session
from checkers.engines.spark import SparkEngine
from checkers.importers import jepsen
from checkers.importers.detect import open_source
from checkers.made.registers import RegisterShape, register_batches
from harness.errors import UnwritableError, UserError
from harness.history import address
from harness.history.columns import SCHEMA
from harness.history.parts import write_history

HERE = Path(checkers.__file__).parents[1]

WITHOUT_PRIVILEGES = """
import ctypes, os, sys
for capability in (1, 2):  # to read and write whatever the rights; only root has them to lose
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""

ONE_AFTER_THE_OTHER = """
import contextlib, io, json, os, sys
from assay.cli import main
answers = []
rights, commands = json.load(sys.stdin)
for place, arguments in commands:
    before, out, err = os.stat(place).st_mode, io.StringIO(), io.StringIO()
    os.chmod(place, rights)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
    except SystemExit as ended:
        answers.append((ended.code, out.getvalue(), err.getvalue()))
    os.chmod(place, before)
json.dump(answers, sys.stdout)
"""


def unprivileged(rights: int, *commands: tuple[Path, tuple[str | Path, ...]]) -> list[Answer]:
    """`assay ARGUMENTS` for each (place, arguments), while the place has these rights, by a process that may do with
    files what their rights say, even root's."""
    command = [sys.executable, "-c", WITHOUT_PRIVILEGES, ONE_AFTER_THE_OTHER]
    words = json.dumps([rights, [[str(place), [str(word) for word in words]] for place, words in commands]])
    setting = {**os.environ, "PYTHONPATH": str(HERE)}
    ran = subprocess.run(command, input=words, capture_output=True, text=True, env=setting, check=False)
    assert ran.stderr == "", ran.stderr
    return [Answer(*answer) for answer in json.loads(ran.stdout)]


def test_what_nobody_may_read_is_one_sentence(tmp_path: Path) -> None:
    batches = lambda: (  # noqa: E731
        batch.slice(begin, 50)
        for batch in register_batches(RegisterShape(200, keys=2))
        for begin in range(0, batch.num_rows, 50)
    )
    text, whole, parts, inside = (tmp_path / name for name in ("h.edn", "h.parquet", "parts", "folder"))
    text.write_text(VALID)
    write_history(batches(), whole)
    write_history(batches(), parts, part_rows=100)
    inside.mkdir()
    (inside / "h.edn").write_text(VALID)
    asked = {closed: closed for closed in (text, whole, parts)}
    asked |= {parts / name: parts for name in ("part-00001.parquet", "manifest.json")} | {inside: inside / "h.edn"}
    commands = [
        (closed, command)
        for closed, path in asked.items()
        for command in (("check", path, "--model", "register"), ("import", path, "--to", tmp_path / "never"))
    ]
    for (closed, command), ran in zip(commands, unprivileged(0, *commands), strict=True):
        assert (ran.code, ran.out) == (254, ""), (closed, command, ran)
        (line,) = ran.err.splitlines()
        assert ("Permission denied" in line or "is not readable" in line) and str(asked[closed]) in line, line
    assert not (tmp_path / "never").exists()


def test_where_nobody_may_write_nothing_is_left(tmp_path: Path) -> None:
    source = tmp_path / "h.edn"
    source.write_text(VALID)
    export, taken = ("export", source, "--to", tmp_path / "copy.edn"), ("import", source, "--to", tmp_path / "copy")
    for ran in unprivileged(0o555, (tmp_path, export), (tmp_path, taken)):
        assert (ran.code, ran.out) == (254, ""), ran
        (line,) = ran.err.splitlines()
        assert "can't be written: Permission denied" in line
    assert [path.name for path in tmp_path.iterdir()] == ["h.edn"]


@pytest.fixture
def no_scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))


LOG = "INFO  jepsen.util - 0\t:invoke\t:write\t1\nINFO  jepsen.util - 0\t:ok\t:write\t1\n"


@pytest.mark.usefixtures("no_scratch")
def test_no_place_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, log = tmp_path / "h.edn", tmp_path / "h.log"
    text.write_text(VALID)
    log.write_text(LOG)
    source = open_source(text)
    assert assay(capsys, "check", text, "--model", "register").code == 0  # a short history needs none
    monkeypatch.setattr(jepsen, "IN_MEMORY_BYTES", 10)
    for path in (text, log):
        answer = assay(capsys, "check", path, "--model", "register")
        assert (answer.code, answer.out) == (254, "") and "set TMPDIR to a place for them" in answer.complaint
    with pytest.raises(UnwritableError, match="set TMPDIR"), SparkEngine().reader(source):
        pass
    with pytest.raises(UnwritableError, match="set TMPDIR"):
        session._quiet_start({"spark.master": "local[1]"})


def test_a_history_that_fails_while_it_is_copied_is_not_called_unwritable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(_: object) -> Iterator[object]:
        yield from source.batches(SCHEMA.names)
        raise OSError(errno.EIO, "Input/output error")

    path, copy = tmp_path / "h.parquet", tmp_path / "copy"
    write_history(register_batches(RegisterShape(100)), path)
    source = open_source(path)
    broken = SimpleNamespace(path=path, cut_short=None, independent=False, saved=source.saved, batches=batches)
    monkeypatch.setattr(history_commands, "open_source", lambda *_: broken)
    with pytest.raises(UserError, match=r"h\.parquet can't be read: .*Input/output error"):
        list(history_commands.import_history(path, copy, "auto"))
    assert [each.name for each in tmp_path.iterdir()] == ["h.parquet"]


@pytest.mark.parametrize(
    ("place", "said", "complaint"),
    [
        ("hdfs://name:8020/h", "Unable to load libjvm: libjvm.so: cannot open shared object file", "libhdfs, which is"),
        ("hdfs://name:8020/h", "Unable to load libhdfs: libhdfs.so: cannot open it\n(and more)", "libhdfs, which is"),
        ("s3a://bucket/h", "Got S3 URI but Arrow compiled without S3 support", "without S3 support."),
        ("abfs://box/h", "Got abfs URI but Arrow compiled without Azure support", "without Azure support."),
    ],
)
def test_an_address_without_its_connector(
    place: str, said: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(root: str) -> None:
        raise OSError(said)

    lacking = SimpleNamespace(FileSystem=SimpleNamespace(from_uri=refuse), FileType=address.fs.FileType)
    monkeypatch.setattr(address, "fs", lacking)
    for engine in ("local", "spark"):
        answer = assay(capsys, "check", place, "--model", "register", "--engine", engine)
        assert (answer.code, answer.out) == (254, "") and complaint in answer.complaint


def test_addresses_come_from_the_command_line_as_they_were_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `Path` has one slash where an address has two or three."""
    asked: list[str] = []

    def refuse(root: str) -> None:
        asked.append(root)
        raise UserError("no file system here")

    monkeypatch.setattr(address, "_connected", refuse)
    never = tmp_path / "never"
    for named, root in (("hdfs:///user/h", "hdfs://"), ("S3://b/x", "s3://b"), ("viewfs://c/h", "viewfs://c")):
        for command in (("check", named, "--model", "register"), ("export", named), ("import", named, "--to", never)):
            assert assay(capsys, *command).code == 254
        assert assay(capsys, "generate", "register", "--to", named).code == 254
        assert asked == [root] * 4
        asked.clear()
    for command in (("check", "abc://b/x", "--model", "register"), ("generate", "register", "--to", "abc://b/x")):
        answer = assay(capsys, *command)
        assert answer.code == 254 and "abc://b/x: assay reads paths and s3://" in answer.complaint
    source = tmp_path / "h.parquet"
    write_history(register_batches(RegisterShape(10)), source)
    answer = assay(capsys, "export", source, "--to", "s3://b/x.edn")
    assert answer.code == 254 and "EDN is written to a path, not to an address" in answer.complaint


def test_without_hadoop_s_library_hdfs_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "check", "hdfs://127.0.0.1:1/h", "--model", "register")
    assert (answer.code, answer.out) == (254, "") and "hdfs://127.0.0.1:1" in answer.complaint


def test_an_archive_s_place_is_looked_at_before_anything_is_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_command, "compile_all", lambda processes: pytest.fail("it was too late"))
    taken = tmp_path / "taken"
    taken.write_text("")
    for words, complaint in (
        ((taken,), "is there already; --overwrite replaces it"),
        ((tmp_path, "--overwrite"), "is a directory"),
        ((tmp_path / "nowhere" / "archive",), "There is no directory"),
    ):
        answer = assay(capsys, "pack", "--to", *words)
        assert (answer.code, answer.out) == (254, "") and complaint in answer.complaint
