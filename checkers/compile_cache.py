"""Where the machine code of kernels is kept between processes, and when it is compiled.

numba notices a change only in the very file of a cached function, not in those it calls; so the files' names contain a
digest of all sources that a kernel may be made of, and an update never meets stale code. Nothing in them depends on
where the package lies or on the very model of the processor, so that they can be taken to another machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "NUMBA_CACHE_DIR"

PORTABLE_CPU: Final = "x86-64-v3"
"""Kernels for it are as fast as for the very processor, and run on nearly all of the last ten years."""

_CPU_VARIABLE: Final = "NUMBA_CPU_NAME"
_PORTABLE_FLAGS: Final = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"])
"""What Linux calls the features of x86-64-v3 beyond those that every machine with AVX2 has."""


def use_portable_cpu() -> None:
    """Have kernels compiled for the portable processor where this one can run them, unless the user chose one; to be
    called before numba is imported."""
    if _CPU_VARIABLE not in os.environ and _can_run_portable():
        os.environ[_CPU_VARIABLE] = PORTABLE_CPU
        os.environ.setdefault("NUMBA_CPU_FEATURES", "")


def _can_run_portable() -> bool:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return os.uname().machine == "x86_64" and _PORTABLE_FLAGS.issubset(flags)


@cache
def code_digest(module: str) -> str:
    """A digest of a module and of all of `checkers` and `harness` that it imports, directly or not, wherever in it."""
    digest, todo, seen = hashlib.blake2b(digest_size=6), [module], {module}
    while todo:
        code, imported = _code_and_imports(todo.pop())
        digest.update(code)
        todo += sorted(imported - seen)
        seen |= imported
    return digest.hexdigest()


@cache
def _code_and_imports(module: str) -> tuple[bytes, frozenset[str]]:
    place = _ROOT.joinpath(*module.split("."))
    try:
        code = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_bytes()
    except OSError:  # a text that only looks like an import
        return b"", frozenset()
    imported = set[str]()
    for package, names, whole in _IMPORTS.findall(code):
        imported |= {(package or whole).decode(), *_modules_among(package.decode(), names.decode())}
    return code, frozenset(imported)


def _modules_among(package: str, names: str) -> Iterator[str]:
    """The names that are modules of a package; others are in its `__init__`."""
    place = _ROOT.joinpath(*package.split("."))
    if package and place.is_dir():
        for name in _NAME.findall(names):
            if (place / name).is_dir() or (place / f"{name}.py").exists():
                yield f"{package}.{name}"


_ROOT: Final = Path(__file__).parents[1]

_OURS: Final = rb"(?:checkers|harness)[\w.]*"
_IMPORTS: Final = re.compile(
    rb"^[ \t]*(?:from (%b) import (\([^)]*\)|[^\n]*)|import (%b))" % (_OURS, _OURS), re.MULTILINE
)
_NAME: Final = re.compile(r"\w+")


def sources_digest() -> str:
    """A digest of all sources that any kernel may be made of."""
    digest = hashlib.blake2b(digest_size=6)
    for package in ("checkers", "harness"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def kernels_directory() -> Path:
    """Where compiled kernels are kept: below NUMBA_CACHE_DIR, else below `cache_base`."""
    chosen = os.environ.get(VARIABLE)
    return (Path(chosen) if chosen else cache_base()) / "kernels"


def cache_base() -> Path:
    """Where to keep what is made once: beside the sources, else in the user's cache, else until the machine stops."""
    places = (
        Path(__file__).parent / "__pycache__",
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay",
    )
    for base in places:
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError:  # a read-only installation: the next place will do
            continue
        if os.access(base, os.W_OK):
            return base
    return Path(tempfile.gettempdir())


@contextmanager
def only_compiler(name: str) -> Iterator[None]:
    """Waits until no other process compiles the kernel of that name, and keeps others from it meanwhile.

    Who compiles a kernel waits for those it calls, never for one that calls it, so nobody waits in a circle.
    """
    place = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=5).digest(), "little")
    try:
        lock = _lock_file()
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, place)
    except OSError:  # no right to write there: then each compiles for itself
        yield
        return
    try:
        yield
    finally:
        fcntl.lockf(lock, fcntl.LOCK_UN, 1, place)


_locks: dict[int, int] = {}


def _lock_file() -> int:
    """The process's handle on the file whose bytes are locks; it stays open, for closing it would give up all."""
    process = os.getpid()
    if process not in _locks:
        kernels_directory().mkdir(parents=True, exist_ok=True)
        _locks[process] = os.open(kernels_directory() / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    return _locks[process]


@contextmanager
def compilation_reported(report: Callable[[bool], None]) -> Iterator[None]:
    """Calls `report` with True whenever this process begins to compile kernels, and with False when it has done so."""
    from numba.core import event

    class CompilationListener(event.Listener):
        depth = 0

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                report(True)

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                report(False)

    with event.install_listener("numba:compile", CompilationListener()):
        yield
