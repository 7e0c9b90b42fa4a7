"""The archive of the JVM's classes: made once, taken when whole, made again for another JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkers.engines import session
from checkers.engines.session import archive_options

WHOLE = (0xF00BABA8).to_bytes(4, "little") + b"classes"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setattr(session, "cache_base", lambda: tmp_path)
    for name in session._ON_CLASS_PATH:
        monkeypatch.delenv(name, raising=False)
    java, spark = tmp_path / "java", tmp_path / "pyspark"
    java.write_text("")
    spark.mkdir()
    return java, spark


def written(places: tuple[Path, Path]) -> Path:
    """Where a JVM is told to write its archive."""
    option = archive_options(*places)[-1]
    assert option.startswith('"-XX:ArchiveClassesAtExit=')
    return Path(option.strip('"').split("=", 1)[1])


def test_a_whole_archive_is_used_until_java_changes(places: tuple[Path, Path]) -> None:
    written(places).write_bytes(WHOLE)
    option = archive_options(*places)[-1]
    assert option.startswith('"-XX:SharedArchiveFile=')
    assert Path(option.strip('"').split("=", 1)[1]).read_bytes() == WHOLE
    os.utime(places[0], (1, 1))
    written(places)


def test_an_archive_that_is_being_written_is_left_alone_and_an_abandoned_one_removed(places: tuple[Path, Path]) -> None:
    part = written(places)
    part.write_bytes(bytes(8))
    written(places)
    assert part.exists()
    os.utime(part, (1, 1))
    written(places)
    assert not part.exists()


def test_settings_in_directories_of_the_user_are_no_part_of_an_archive(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM that was to write it would end with two lines about a directory that is not empty."""
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert archive_options(*places) == ["-Xlog:disable"]
