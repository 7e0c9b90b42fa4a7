"""Where histories are: paths of this machine, and addresses of file systems that pyarrow reads (`s3://…`, `hdfs://…`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from harness.errors import UserError

_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "hdfs": "hdfs",
    "viewfs": "viewfs",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfss",
}
"""What users write, and what pyarrow calls it."""

_URL: Final = re.compile(r"(\w+):(?://(?=.)|/(?=[^/]))(.+)", re.DOTALL)
"""One slash is what `pathlib.Path` leaves of two. Two without a host behind them (`hdfs:///x`) are of the default."""

_PATIENCE: Final = "retry_limit_seconds"
_PATIENCE_S: Final = 30
"""How long Google's file system tries again; by itself it would for a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Address:
    """A file or folder of another file system, as a URL; settings of the file system may follow a question mark."""

    text: str

    def __str__(self) -> str:
        """As it may be shown: without keys and settings."""
        return re.sub(r"//[^/@]*@", "//", self.text.split("?", 1)[0])

    def __truediv__(self, name: str) -> Address:
        """What is called so in this folder."""
        folder, mark, settings = self.text.partition("?")
        return Address(f"{folder.rstrip('/')}/{name}{mark}{settings}")

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.text.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1]


Place: TypeAlias = Path | Address


def place_of(named: Path | Address | str) -> Place:
    """The place that somebody names by a path or a URL; raises UserError for a URL of an unknown kind."""
    if isinstance(named, Address):
        return named
    text = str(named)
    if text.startswith("file:"):
        return Path(unquote(text.removeprefix("file:").removeprefix("//")))
    url = _URL.fullmatch(text)
    scheme = None if url is None else _SCHEMES.get(url[1].lower())
    if url is None or (scheme is None and "://" not in text):
        return Path(named)
    if scheme is None:
        raise UserError(f"{text}: assay reads paths and {', '.join(f'{each}://' for each in _SCHEMES)}.")
    return Address(f"{scheme}://{url[2]}")


def file_system(place: Place) -> tuple[Any, str]:
    """The pyarrow file system of a place, and the place's path in it; raises UserError if it can't be had here."""
    if isinstance(place, Path):
        return _local(), str(place)
    text, mark, settings = place.text.partition("?")
    scheme, rest = text.split("://", 1)
    if scheme == "gs" and _PATIENCE not in settings:
        mark, settings = "?", "&".join(filter(None, (settings, f"{_PATIENCE}={_PATIENCE_S}")))
    root, _, path = rest.partition("/")
    system, base = _connected(f"{scheme}://{root}{mark}{settings}")
    return system, f"{base.rstrip('/')}/{path}" if path else base


@lru_cache(maxsize=1)
def _local() -> Any:
    return fs.LocalFileSystem()


@lru_cache(maxsize=16)
def _connected(root: str) -> tuple[Any, str]:
    try:
        return fs.FileSystem.from_uri(root)
    except Exception as error:
        shown = str(Address(root))
        if "libjvm" in str(error) or "libhdfs" in str(error):
            raise UserError(f"{shown}: HDFS needs Hadoop's native library libhdfs, which is not here.") from error
        raise UserError(f"{shown} can't be reached: {one_line(error)}.") from error


def exists(place: Place) -> bool:
    """Whether there is anything at a place; raises UserError if that can't be told."""
    return kind_of(place) is not None


def is_folder(place: Place) -> bool:
    """Whether a place is a folder; raises UserError if that can't be told."""
    return kind_of(place) == "folder"


def kind_of(place: Place) -> str | None:
    """`file`, `folder`, or None for nothing; raises UserError if that can't be told."""
    if isinstance(place, Path):
        try:
            return "folder" if place.is_dir() else "file" if place.exists() else None
        except PermissionError as error:
            raise UserError(f"{place} can't be read: {error.strerror}.") from error
    found = info(place).type
    return {fs.FileType.Directory: "folder", fs.FileType.NotFound: None}.get(found, "file")


def info(place: Place) -> Any:
    """What a file system says of a place (`pyarrow.fs.FileInfo`); raises UserError if it can't be asked."""
    system, path = file_system(place)
    try:
        return system.get_file_info(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{place} can't be read: {one_line(error)}.") from error


def names_in(place: Place) -> list[str]:
    """The names of what is in a folder; raises UserError if it can't be read."""
    system, path = file_system(place)
    try:
        return sorted(found.base_name for found in system.get_file_info(fs.FileSelector(path)))
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{place} can't be read: {one_line(error)}.") from error


def opened(place: Place) -> Any:
    """A file for reading at any position (`pyarrow.NativeFile`); OSError if it can't be opened."""
    system, path = file_system(place)
    return system.open_input_file(path)


def one_line(error: BaseException) -> str:
    """The first line of what an error says, without what it adds for those who made the file system."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return first.partition(" error_info={")[0].rstrip(".")
