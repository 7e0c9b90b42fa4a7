"""Opens a history of any format, named or found out from its first bytes; our own saved ones are streamed by whoever
judges them."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from checkers.importers.blocks import BYTE_ORDER_MARK, Data
from checkers.importers.integrity import COLUMNS, EventOrder, verify_here
from checkers.importers.jepsen import ReadingPlan, open_edn, open_jepsen_log, open_json
from checkers.importers.packed import HEAD_BYTES, codec_of, first_bytes, refuse_foreign, unpacked
from checkers.importers.retold_events import open_jepsen_text, open_json_lines, open_porcupine
from checkers.importers.sessions_of import (
    HIST_HEAD,
    is_cobra,
    open_bincode,
    open_cobra,
    open_dbcop_json,
    open_hist,
)
from checkers.importers.text_parts import has_text_parts, text_of_parts
from checkers.importers.transactions import AWDIT_LINE, PLUME_LINE, open_awdit, open_plume
from checkers.source import Source, times_against_order
from harness.errors import UNDECODABLE, UserError
from harness.history.address import Address, Place, place_of
from harness.history.journal import is_journal, read_journal
from harness.history.rundir import is_run, open_run
from harness.history.saved import dictionary_of, is_history_folder, open_saved
from harness.history.table import to_table

_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_LOOKED_AT: Final = 16
"""First bytes that show whether a text is UTF-16."""


def open_journal(path: Path) -> Source:
    """A journal of ours: the sealed prefix is the history, and the source says so if it ended early."""
    reader = read_journal(path)
    table = to_table(reader)
    cut_short = None
    if not reader.complete:
        cut_short = f"The journal ended early ({reader.ended_early}); its sealed prefix was judged."
    return Source(path, "journal", table.num_rows, table=table, cut_short=cut_short)


def _mapped(path: Path) -> Data:
    """The file's bytes, which the system reads as they are needed."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it can't be mapped to memory"
        raise UserError(f"{path} can't be read: {reason}.") from error


_FROM_BYTES: Final[dict[str, Callable[[Path, Data], Source]]] = {
    "edn": open_edn,
    "json": open_json,
    "json-lines": open_json_lines,
    "jepsen-log": open_jepsen_log,
    "jepsen-text": open_jepsen_text,
    "awdit-text": open_awdit,
    "plume-text": open_plume,
    "dbcop-json": open_dbcop_json,
    "hist": open_hist,
    "bincode": open_bincode,
    "porcupine-json": open_porcupine,
}

FORMATS: Final = ("auto", "journal", "parquet", *_FROM_BYTES, "cobra")

_PLANNED: Final = {"edn": open_edn, "json": open_json, "json-lines": open_json_lines, "jepsen-text": open_jepsen_text}
"""Jepsen's formats, of which completions alone can be read, and fields of operations that only their database has."""

_SUGGESTED: Final = {
    "awdit-text": "isolation",
    "plume-text": "isolation",
    "dbcop-json": "isolation",
    "hist": "isolation",
    "bincode": "isolation",
    "cobra": "isolation",
    "porcupine-json": "register",
}
"""The model that a format is mostly about; Jepsen's formats hold anything."""


def suggested(named: Place | str) -> str | None:
    """A model that the format of a history suggests, or None."""
    path = place_of(named)
    if isinstance(path, Address):
        return None
    try:
        return _SUGGESTED.get("cobra" if path.is_dir() and is_cobra(path) else detected(path))
    except UserError:
        return None


def _require_reachable(path: Path) -> None:
    """Raise UserError where a folder above it may not be entered; that there is nothing is said by whoever reads it."""
    try:
        path.stat()
    except PermissionError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    except OSError:
        return


def open_source(
    named: Place | str, format: str = "auto", *, verify: bool = True, alone: bool = False, stated: str | None = None
) -> Source:
    """The history that a path or address names: a file, a folder of parts, or a run directory (its saved history, or
    its journal if the run ended early).

    Raises UserError, naming file, line and reason, for what is not a whole history of that format. Unless `verify`,
    what is within a saved history is left for an engine to look at (`Engine.verify`). With `alone` the history has
    completions only, and all of its operations are taken as concurrent. A field `stated` of Jepsen's operations is read
    as `served_ts`; formats whose operations have no fields of their own leave it.
    """
    if format not in FORMATS:
        raise UserError(f"There is no format {format!r}; the formats are {', '.join(FORMATS)}.")
    path = place_of(named)
    if isinstance(path, Path):
        _require_reachable(path)
        path = _in_store(path)
    if isinstance(path, Address):
        if format not in ("auto", "parquet"):
            raise UserError(f"{path}: at an address assay reads its own histories only, not {format}; import it first.")
        return open_parquet(path, verify)
    if has_text_parts(path):
        return _ordered(_of_text_parts(path, format, stated))
    unfinished = None
    if path.is_dir() and format in ("auto", "cobra") and is_cobra(path):
        return _ordered(open_cobra(path))
    if path.is_dir() and not is_history_folder(path):
        unfinished = _unfinished(path, format)
        path = _in_run(path)
    if is_history_folder(path):
        format = _require_parquet(path, format)
    else:
        require_file(path)
    if format == "auto":
        format = detected(path)
    if alone and format not in _PLANNED:
        raise UserError(f"{path} is {format}, of which completions are never alone; leave --completions-alone out.")
    source = open_parquet(path, verify) if format == "parquet" else _opened(path, format, alone, stated)
    if unfinished is not None and source.cut_short is None:
        source = replace(source, cut_short=unfinished)
    return _ordered(source)


def _ordered(source: Source) -> Source:
    """The source, with a note if its times contradict the order of its events, where they are in memory; raises
    UserError unless they have one order."""
    if source.table is None:
        return source
    EventOrder(source.path, source.rows).check(source.batches(COLUMNS))
    if wrong := times_against_order([source.table]):
        source = replace(source, note=wrong if source.note is None else f"{source.note} {wrong}")
    return source


def _of_text_parts(path: Path, format: str, stated: str | None) -> Source:
    if format not in ("auto", "edn"):
        raise UserError(f"{path} is a history as EDN in parts, not {format}; leave --format out.")
    data = text_of_parts(path)
    return open_edn(path, data, ReadingPlan.first(data, False, stated))


def _require_parquet(path: Path, format: str) -> str:
    if format not in ("auto", "parquet"):
        raise UserError(f"{path} is a history of assay in parts, not {format}; leave --format out.")
    return "parquet"


def require_file(path: Path) -> None:
    """Raise UserError for a directory, pipe or device: an input is read more than once, and a pipe might never end."""
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file in it.")
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file but a pipe or a device; save it to a file first.")


def _opened(path: Path, format: str, alone: bool, stated: str | None) -> Source:
    if format == "journal":
        return open_journal(path)
    if format == "cobra":
        raise UserError(f"{path} is a file; a history of Cobra's is the folder of its sessions' logs.")
    data = unpacked(path, _mapped(path))
    refuse_foreign(path, bytes(data[:HEAD_BYTES]))
    _refuse_utf_16(path, bytes(data[:_LOOKED_AT]))
    if format in _PLANNED:
        return _PLANNED[format](path, data, ReadingPlan.first(data, alone, stated))
    return _FROM_BYTES[format](path, data)


_STORES: Final = ("history.edn", "history.txt")
"""What Jepsen keeps of a test in its directory in the store, the better one first."""


def _in_store(path: Path) -> Path:
    """The history in a directory of Jepsen's store; any other path as it is."""
    if not path.is_dir() or is_run(path):
        return path
    for name in _STORES:
        if (path / name).is_file():
            return path / name
    binary = sorted([*path.glob("*.jepsen"), *path.glob("*.fressian")])
    if binary:
        raise UserError(
            f"{path} has no history.edn, and {binary[0].name} is Jepsen's own binary form, which only it reads."
        )
    return path


def _refuse_utf_16(path: Path, head: bytes) -> None:
    """With a mark, or without: a history begins with ASCII, of which every other byte is zero then."""
    even, odd = set(head[:_LOOKED_AT:2]), set(head[1:_LOOKED_AT:2])
    if head.startswith(_UTF16_MARKS) or ({0} in (even, odd) and not even & odd):
        raise UserError(f"{path} is UTF-16; assay reads UTF-8. Convert it first: iconv -f UTF-16 -t UTF-8.")


def _unfinished(path: Path, format: str) -> str | None:
    """Why the history of a run directory is not that of a whole run, or None; raises UserError for a foreign format."""
    if format not in ("auto", "journal", "parquet"):
        raise UserError(f"{path} is a run of assay, whose history is not {format}; leave --format out.")
    if is_run(path) and not open_run(path).outcome_json.exists():
        return "The run did not come to its end; what it had saved was judged."
    return None


def _in_run(path: Path) -> Path:
    if not is_run(path):
        raise UserError(f"{path} is a directory but not a run of assay: it has no run.json.")
    run = open_run(path)
    if run.history_parquet.exists():
        return run.history_parquet
    if run.journal.exists():
        return run.journal
    raise UserError(f"The run {path} has no history: neither {run.history_parquet.name} nor {run.journal.name}.")


def detected(path: Path) -> str:
    """The format of a file by its first bytes and its name, whether it is compressed or not; raises UserError for none
    that is known."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    if head.startswith(MAGIC):
        return "parquet"
    if is_journal(path):
        return "journal"
    codec = codec_of(head)
    if codec is not None:
        head = first_bytes(path, codec)
    refuse_foreign(path, head)
    found = _by_bytes(head, Path(path.stem).suffix if codec is not None else path.suffix)
    if found is None:
        raise UserError(
            f"{path}, line 1: this is none of the formats {', '.join(FORMATS[1:])}; name one with --format."
        )
    return found


_BINCODE_BYTES: Final = 5 * 8 + 3 * 8 + 8
"""The fewest bytes that a history.bincode has."""

_JEPSEN_TEXT: Final = re.compile(rb"\S+\t:(?:invoke|ok|fail|info)\t\S+\t")


def _by_bytes(head: bytes, suffix: str) -> str | None:
    if b"jepsen.util" in head:
        return "jepsen-log"
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    first = text.split(b"\n", 1)[0]
    if _JEPSEN_TEXT.match(text):
        return "jepsen-text"
    if HIST_HEAD.match(text):
        return "hist"
    if suffix == ".edn":
        return "edn"
    if text[:1] in (b"{", b"[") and (found := _kind_of_json(text)) is not None:
        return found
    if suffix == ".json":
        return "json"
    if first and PLUME_LINE.fullmatch(first):
        return "plume-text"
    if first and AWDIT_LINE.fullmatch(first):
        return "awdit-text"
    if text.startswith((b"{:", b"[", b"(", b";", b"#")):
        return "edn"
    return "bincode" if suffix == ".bincode" or (b"\0" in head and len(head) >= _BINCODE_BYTES) else None


_SESSIONS: Final = re.compile(rb'(?:\{.*?"data"\s*:\s*)?\[\s*\[\s*\{\s*"(?:events|committed)"', re.DOTALL)


def _kind_of_json(text: bytes) -> str | None:
    """Which JSON begins so, or None for what is none."""
    if _SESSIONS.match(text):
        return "dbcop-json"
    inside = text[1:].lstrip() if text[:1] == b"[" else text
    if inside[:1] != b"{" or not inside[1:].lstrip().startswith(b'"'):
        return None
    if b'"ClientId"' in text and b'"Call"' in text:
        return "porcupine-json"
    return "json" if text[:1] == b"[" else "json-lines"


MAGIC = b"PAR1"


def open_parquet(place: Place, verify: bool = True) -> Source:
    """A source over a saved history, a file or a folder of parts; raises UserError for anything that is not one, whole
    and of this version. Unless `verify`, what is within it is left for an engine to look at (`Engine.verify`)."""
    place = place_of(place)
    reader = open_saved(place)
    try:
        dictionary = dictionary_of(reader.manifest)
    except (*UNDECODABLE, TypeError) as error:
        raise UserError(f"{place} has a dictionary of foreign values that can't be read: {error}.") from error
    source = Source(place, "parquet", reader.manifest.rows, saved=reader, dictionary=dictionary)
    if verify:
        verify_here(source)
    return source
