"""The JVM's archive of loaded classes, for Spark loads some ten thousand, which takes most of a short session's work.

The first session writes the archive as its JVM ends, later ones map it. It is named after the JVM and Spark; the JVM
itself refuses an archive that does not fit its jars and goes on without.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Final

from checkers.compile_cache import cache_base

_MAGIC: Final = (0xF00BABA8).to_bytes(4, "little")
"""Begins a whole archive; the JVM writes it last."""

_ABANDONED_S: Final = 3600
"""An archive that is not whole after so long will never be."""


_ON_CLASS_PATH: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Directories that Spark puts on its class path, of which a JVM with files in them makes no archive."""


def archive_options(java: Path, spark: Path) -> list[str]:
    """Options for a JVM that runs Spark (the directory of its package): use the archive, or make it."""
    if any(os.environ.get(name) for name in _ON_CLASS_PATH):
        return ["-Xlog:disable"]
    archive = cache_base() / f"spark-{_digest(java.resolve(), spark)}.jsa"
    for part in archive.parent.glob(f"{archive.stem}.*.part"):
        _adopt(part, archive)
    if archive.exists():
        return ["-Xlog:disable", f'"-XX:SharedArchiveFile={archive}"']
    return ["-Xlog:disable", f'"-XX:ArchiveClassesAtExit={archive.with_suffix(f".{os.getpid()}.part")}"']


def _digest(*places: Path) -> str:
    stamps = [f"{place} {place.stat().st_mtime_ns}" for place in places]
    return hashlib.blake2b("\n".join(stamps).encode(), digest_size=6).hexdigest()


def _adopt(part: Path, archive: Path) -> None:
    """Put a whole archive in its place and remove an abandoned one."""
    try:
        with part.open("rb") as file:
            whole = file.read(len(_MAGIC)) == _MAGIC
        if whole:
            part.replace(archive)
        elif time.time() - part.stat().st_mtime > _ABANDONED_S:
            part.unlink()
    except FileNotFoundError:
        return  # another process took it
