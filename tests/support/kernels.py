"""Which kernels Python enters, read from the code of all modules of `checkers`: these need machine code of their own,
while those that only other kernels call are part of theirs."""

from __future__ import annotations

import dis
import gc
import importlib
import pkgutil
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, ModuleType

import checkers
from checkers.linking import Kernel

MAKERS = "checkers.made"
"""Makes histories; no check comes there."""

Place = tuple[str, int]
"""The file and the line in which a function begins."""


def entered_kernels() -> dict[str, str]:
    """By name of each kernel that some function of a check calls, one that does."""
    modules = [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(checkers.__path__, "checkers.")
        if not each.ispkg
    ]
    kernels = {begins(each.py_func.__code__) for each in gc.get_objects() if isinstance(each, Kernel)}
    judging = [module for module in modules if not module.__name__.startswith(MAKERS)]
    return {kernel: caller for module in judging for kernel, caller in calls(module, kernels)}


def calls(module: ModuleType, kernels: set[Place]) -> Iterator[tuple[str, str]]:
    """The kernels that functions of a module, kernels excepted, load to call them, and the functions."""
    file = str(module.__file__)
    for code in _functions(compile(Path(file).read_text(), file, "exec")):
        if begins(code) in kernels:
            continue
        for loaded, following in pairwise(dis.get_instructions(code)):
            named = vars(module).get(loaded.argval) if loaded.opname == "LOAD_GLOBAL" else None
            if isinstance(named, Kernel) and following.argval != "py_func":
                yield named._cache.name, f"{module.__name__}.{code.co_name}"


def _functions(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _functions(inner)


def begins(code: CodeType) -> Place:
    """Where the code of a function begins."""
    return code.co_filename, code.co_firstlineno


def packed_kernels(archive: Path) -> set[str]:
    """The names of kernels of which an archive has machine code."""
    with tarfile.open(archive) as content:
        files = [Path(name) for name in content.getnames()]
    return {file.name.rpartition("-")[0] for file in files if file.parent.name == "kernels"}
