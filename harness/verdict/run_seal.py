"""The seal of a saved run: a digest of each of its files, so that files that don't fit together are told.

`seal.json` is written after everything that a verdict is made of. It keeps files from being edited, cut, lost or mixed
with those of another run unnoticed; who makes a new seal for what he forged is not kept from it. `verdict.json` comes
later and has a seal of its own, of what it says and of `seal.json`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import HarnessError, UserError
from harness.history.rundir import LARGEST_JSON_BYTES, RunDir
from harness.history.seal import sealed_checksum

_VERSION = 1


class RunSeal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`seal.json`: the digest of each file that was there when the run was saved, by its name."""

    version: int
    files: Mapping[str, str]


def seal_run(rundir: RunDir) -> None:
    """Write the seal of what is saved now; raises HarnessError."""
    try:
        files = _digests((*rundir.judged_files, rundir.nodes))
    except OSError as error:
        raise HarnessError(f"{rundir.path} can't be sealed: {error.strerror}") from error
    rundir.write_json(rundir.seal_json, RunSeal(_VERSION, files))


def broken_seal(rundir: RunDir, logs: bool = False) -> tuple[str, ...]:
    """A sentence's part for each file that is not as it was when the run was saved; raises UserError for no seal file
    of ours, or for files that can't be read. The nodes' `logs` count where they are judged: those that could not be had
    before may come later (`harness.env.docker.leftovers`)."""
    saved = rundir.read_json(rundir.seal_json)
    if saved is None:
        return (f"{rundir.seal_json.name} is missing",)
    files = (*rundir.judged_files, rundir.nodes) if logs else rundir.judged_files
    try:
        was = msgspec.convert(saved, RunSeal).files
        now = _digests(files)
    except msgspec.ValidationError as error:
        raise UserError(f"{rundir.seal_json} is not what a run of this version saves: {error}.") from error
    except OSError as error:
        raise UserError(f"{rundir.path} can't be read: {error.strerror}.") from error
    names = [path.name for path in files]
    words = {name: _difference(was.get(name), now.get(name)) for name in {**was, **now} if name in names}
    return tuple(f"{name} {word}" for name, word in words.items() if word is not None)


def sealed_verdict(rundir: RunDir, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict with a `seal` that says of which files it is the verdict, and what it said of them."""
    return {**verdict, "seal": _verdict_digest(rundir, verdict)}


def is_verdict_of(rundir: RunDir, saved: Mapping[str, Any]) -> bool:
    """Whether a saved verdict is one on these very files, word for word."""
    told = {name: value for name, value in saved.items() if name != "seal"}
    return saved.get("seal") == _verdict_digest(rundir, told)


def _verdict_digest(rundir: RunDir, verdict: Mapping[str, Any]) -> str:
    """Of the verdict as JSON holds it, and of the run's seal."""
    saved = msgspec.json.decode(msgspec.json.encode(verdict))
    words = msgspec.json.encode(saved, order="deterministic")
    seal = rundir.seal_json.read_bytes() if rundir.seal_json.is_file() else b""
    return hashlib.sha256(b"%d " % len(seal) + seal + words).hexdigest()


def _difference(was: str | None, now: str | None) -> str | None:
    if was == now:
        return None
    if was is None:
        return "was added"
    return "is missing" if now is None else "was changed"


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {path.name: _digest(path) for path in files if path.exists()}


def _digest(path: Path) -> str:
    """Of a history that has a seal of its own, which is checked whenever it is read, that and its size."""
    if path.is_dir():
        parts = [f"{part.relative_to(path)} {_digest(part)}" for part in sorted(path.rglob("*")) if part.is_file()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
    checksum = sealed_checksum(path) if path.suffix == ".parquet" and path.is_file() else None
    if checksum is not None:
        return f"crc32 {checksum:08x} of {path.stat().st_size} bytes"
    if not path.is_file() or (path.suffix == ".json" and path.stat().st_size > LARGEST_JSON_BYTES):
        return "none: no file that a run has saved"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
