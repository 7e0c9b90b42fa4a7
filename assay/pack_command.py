"""`assay pack`: one archive from which Spark's executors judge, on machines that have nothing but Java.

It holds this interpreter and its library, what workers need of our dependencies, our code and the compiled kernels of
all models. Nothing in it refers to a place, so that executors may unpack it anywhere.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import checkers
import harness
from assay.progress import working
from checkers.compile_all import compile_all, compile_for_executors
from checkers.compile_cache import kernels_directory
from harness.atomic_write import atomic_write, scratch_folder
from harness.errors import HarnessError, UnwritableError, UserError
from harness.history.cores import usable_cores

NEEDED: Final = ("pyspark", "numba", "numpy", "pyarrow", "pandas", "msgspec", "python-sat")
"""What workers import, besides what these need."""

_STDLIB_WITHOUT: Final = frozenset(
    ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data")
)
_FILES_WITHOUT: Final = re.compile(
    r"^pyspark/(jars|bin|sbin|examples|data|licenses|pandas|ml|mllib|pipelines)/|/tests?/|\.pyi$|\.a$"
    r"|^pyarrow/(include|src)/"
)
"""Of a dependency's files, by their paths."""

_TRIAL: Final = "import checkers.api, pyspark, pyarrow.parquet, pandas, pysat.solvers, ssl; print(checkers.__file__)"


def pack_command(to: Path, overwrite: bool) -> str:
    """Compile what is not compiled yet, write the archive, and say what it is; raises as `pack` does."""
    _require_place(to, overwrite)
    with working("compiling kernels") as told, scratch_folder("pack") as folder:
        processes = usable_cores()
        if compile_all(processes) and compile_all(processes):  # the second time there is nothing left, if all was kept
            place = kernels_directory()
            raise UnwritableError(
                f"Compiled kernels can't be kept in {place}: set NUMBA_CACHE_DIR to a place for them."
            )
        compile_for_executors(Path(folder), lambda model: told(f"compiling kernels of {model}"))
    size = pack(to, overwrite).stat().st_size
    return f"{to}: {size / 1e6:.0f} MB; use it with: assay check … --spark-master URL --spark-archive {to}"


def pack(to: Path, overwrite: bool) -> Path:
    """Write the archive, try it out in another place, and return its path.

    It appears whole or not at all. Raises UserError where it can't lie, UnwritableError if it can't be written.
    """
    _require_place(to, overwrite)
    with atomic_write(to, f"The archive {to}") as unfinished, scratch_folder("pack", to.parent) as folder:
        content = Path(folder)
        for source, place in _files():
            target = content / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        _write_start(content / "bin")
        _try_out(content)
        with tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
            archive.add(content, arcname=".")
    return to


def _require_place(to: Path, overwrite: bool) -> None:
    if to.exists() and not overwrite:
        raise UserError(f"{to} is there already; --overwrite replaces it.")
    if to.is_dir():
        raise UserError(f"{to} is a directory; name a file with --to.")
    if not to.parent.is_dir():
        raise UserError(f"There is no directory {to.parent} for the archive {to.name}.")


def _files() -> Iterator[tuple[Path, Path]]:
    """Files and where they lie in the archive."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = site = Path("lib") / version  # all in one place, for Spark starts Python without its site-packages
    yield Path(sys.executable).resolve(), Path("bin") / version
    if shared := sysconfig.get_config_var("INSTSONAME" if sysconfig.get_config_var("Py_ENABLE_SHARED") else "NONE"):
        yield Path(sysconfig.get_config_var("LIBDIR")) / shared, Path("lib") / shared
    yield from _tree(Path(sysconfig.get_path("stdlib")), library, _STDLIB_WITHOUT)
    for name in sorted(_with_dependencies(NEEDED)):
        yield from _distribution(name, site)
    for package in (checkers, harness):
        place = Path(str(package.__file__)).parent
        yield from _tree(place, site / place.name, frozenset())
    for kernel in filter(Path.is_file, kernels_directory().iterdir()):
        yield kernel, site / "checkers" / "__pycache__" / "kernels" / kernel.name


def _write_start(folder: Path) -> None:
    """What starts the interpreter with its own library: the path that was built into it is another machine's."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    start = folder / "python3"
    start.write_text(
        '#!/bin/sh\nhere=$(cd "$(dirname "$0")" && pwd)\n'
        f'LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$here/{version}" "$@"\n'
    )
    start.chmod(0o755)
    (folder / version).chmod(0o755)


def _tree(source: Path, target: Path, without: frozenset[str]) -> Iterator[tuple[Path, Path]]:
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        folders[:] = [each for each in folders if each not in without and not each.startswith("config-")]
        if here.name == "__pycache__":
            folders.clear()  # kernels, of all versions
        kept = [name for name in names if not name.endswith((".a", ".jsa", ".part"))]
        yield from ((here / name, target / here.relative_to(source) / name) for name in kept)


def _with_dependencies(names: tuple[str, ...]) -> set[str]:
    """The installed distributions that these need, themselves included."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = re.split(r"[\s;<>=!~\[(]", todo.pop(), maxsplit=1)[0].lower()
        if name in found:
            continue
        found.add(name)
        asked = importlib.metadata.requires(name) or []
        todo += [each for each in asked if "extra ==" not in each and _is_installed(each)]
    return found


def _is_installed(requirement: str) -> bool:
    try:
        importlib.metadata.distribution(re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0])
    except importlib.metadata.PackageNotFoundError:  # for another system or version of Python
        return False
    return True


def _distribution(name: str, site: Path) -> Iterator[tuple[Path, Path]]:
    for file in importlib.metadata.files(name) or ():
        path = str(file)
        located = Path(str(file.locate()))
        if not path.startswith("..") and not _FILES_WITHOUT.search(path) and located.is_file():
            yield located, site / path


def _try_out(content: Path) -> None:
    """Raise HarnessError unless the archive works by itself, with no environment."""
    command = [str(content / "bin" / "python3"), "-S", "-c", _TRIAL]
    ran = subprocess.run(command, env={"HOME": "/nonexistent"}, cwd="/", capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        said = (ran.stderr.strip().splitlines() or ["it does not start"])[-1]
        raise HarnessError(f"this Python can't be packed: {said}")
    if not ran.stdout.startswith(str(content)):
        raise HarnessError(f"this Python can't be packed: it takes our code from {ran.stdout.strip()}")
