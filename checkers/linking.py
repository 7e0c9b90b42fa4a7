"""How kernels become one program with those that they call, and how its machine code is kept: by internals of numba.

A program is optimised once, where Python enters it. numba alone would optimise it again at each level of calls, and
compile a kernel again for each combination of widths and constants of the whole numbers that it is handed; here its
callers widen them. However many processes need a kernel at once, one of them compiles it.

Nothing else in the product knows numba's internals; with a numba that has others, `checkers.compiled` does without.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from llvmlite.binding import parse_bitcode
from numba import __version__
from numba.core import sigutils
from numba.core import types as numba_types
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import Environment, _rebuild_env, lookup_environment
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from checkers.compile_cache import code_digest, kernels_directory, only_compiler

types: Any = numba_types

_WIDENED: Final = (types.int8, types.int16, types.int32, types.uint8, types.uint16, types.uint32)


_LINKED: Final = {"nopython": True, "nogil": True, "no_cfunc_wrapper": True}


def linked(function: Callable[..., Any], *, lean: bool = False, inline: bool = False) -> Kernel:
    """Compile a function as part of the programs that it is called from; `lean` and `inline` as in
    `checkers.compiled`."""
    options: dict[str, Any] = {"_nrt": False} if lean else {}
    return Kernel(function, targetoptions=_LINKED | options | ({"forceinline": True} if inline else {}))


class _Kept(CPUDispatcher):
    """A function whose machine code is kept in files, and that one process at a time compiles."""

    def enable_caching(self) -> None:
        self._cache = _KernelCache(self.py_func)

    def compile(self, sig: Any) -> Any:
        with global_compiler_lock:
            if tuple(sigutils.normalize_signature(sig)[0]) in self.overloads or self._cache.holds(sig, self.targetctx):
                return super().compile(sig)
            with only_compiler(self._cache.name), _nothing_collected():
                return super().compile(sig)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """To look for garbage among what the compiler makes, nearly all of which stays, took an eighth of compiling."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Kernel(_Kept):
    """A kernel as Python calls it; `part` is what other kernels call."""

    def __init__(self, py_func: Callable[..., Any], locals: Any = None, targetoptions: Any = None) -> None:
        super().__init__(py_func, locals, targetoptions)
        self.enable_caching()

    @cached_property
    def part(self) -> _Part:
        """The kernel as others call it, which takes no part in running what was compiled before."""
        part = _Part(self.py_func, self.locals, self.targetoptions | {"no_cpython_wrapper": True}, _PartCompiler)
        part.enable_caching()
        return part

    def add_overload(self, cres: Any) -> None:
        for environment in cres._find_referenced_environments():  # of the parts
            cres.codegen.set_env(environment.env_name, environment)
        super().add_overload(cres)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        widened = {name: _canonical(kind) for name, kind in dict(kws).items()}
        return self.part.get_call_template([_canonical(kind) for kind in args], widened)

    def get_overload(self, sig: Any) -> Any:
        return self.part.get_overload(sig)


def _canonical(kind: Any) -> Any:
    """The type of an argument that a kernel is compiled for; values of the given type fit in it."""
    kind = types.unliteral(kind)
    if kind in _WIDENED:
        return types.int64
    if isinstance(kind, types.BaseTuple) and not isinstance(kind, types.BaseNamedTuple):
        return types.Tuple([_canonical(part) for part in kind])
    return kind


class _NotLoaded:
    """The code generator as code sees it that is never loaded, so that it has nowhere to keep its environment."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class _PartLibrary(JITCodeLibrary):
    """Code that is there to be linked into that of its callers, and optimised with it."""

    @property
    def codegen(self) -> Any:
        return _NotLoaded(self._codegen)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> Any:
        return self.serialize_using_bitcode()

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> _PartLibrary:
        name, _, bitcode = state
        library = cls(codegen, name)
        library._final_module = parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


class _PartCompiler(Compiler):
    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        super().__init__(typingctx, targetctx, _PartLibrary(targetctx.codegen(), "part"), *rest)


class _Part(_Kept):
    """A kernel as other kernels call it."""

    def enable_caching(self) -> None:
        self._cache = _PartCache(self.py_func)

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.py_func.__qualname__} is called from kernels only")


def _environment(module: str, constants: list[Any], name: str) -> Environment:
    """What a function was compiled to find its constants in. The globals of its module are for Python's objects, of
    which a kernel knows none; so the module, often one of numba's own, need not be loaded."""
    found = lookup_environment(name)
    if found is None:
        found = Environment({"__name__": module})
        found.consts[:] = constants
        found.env_name = name
        Environment._memo[name] = found
    return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (_rebuild_env.__module__, _rebuild_env.__qualname__):
            return _environment
        return super().find_class(module, name)


class _KernelCache(FunctionCache):
    """A file for each kernel and types of its arguments, whose name says all that its machine code depends on; so
    processes never disturb each other, and the directory can be taken elsewhere."""

    _suffix = ""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}{self._suffix}"
        self._module = function.__module__
        self._py_func = function
        self._enabled = True

    @property
    def cache_path(self) -> str:
        return str(kernels_directory())

    def flush(self) -> None:
        """Nothing is kept in memory."""

    def holds(self, sig: Any, context: Any) -> bool:
        """Whether there is machine code for such arguments."""
        return self._file(sig, context.codegen()).exists()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled is linked with numba's runtime alone; its registries, which take longer to load than all
        kernels of a model, are for compiling, which loads them itself."""
        rtsys.initialize(target_context)
        try:
            data = self._file(sig, target_context.codegen()).read_bytes()
        except OSError:
            return None
        return self._rebuilt(target_context, _Unpickler(BytesIO(data)).load())

    def save_overload(self, sig: Any, data: Any) -> None:
        if data.library.has_dynamic_globals:  # addresses of this very process
            return
        file = self._file(sig, data.codegen)
        part = file.with_suffix(f".{os.getpid()}.part")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(dumps(data._reduce()))
            part.replace(file)
        except OSError:  # a full disk or no right to write there: it is compiled again next time
            part.unlink(missing_ok=True)

    def _rebuilt(self, target_context: Any, payload: Any) -> Any:
        return CompileResult._rebuild(target_context, *payload)

    def _file(self, sig: Any, codegen: Any) -> Path:
        code = self._py_func.__code__.co_code
        modules = sorted({self._module, *_modules_of_tuples(sigutils.normalize_signature(sig)[0])})
        key = (__version__, sys.version, [code_digest(module) for module in modules], code, sig, codegen.magic_tuple())
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8)
        return kernels_directory() / f"{self.name}-{digest.hexdigest()}"


def _modules_of_tuples(kinds: Iterable[Any]) -> Iterator[str]:
    """The modules of the named tuples among these types, which a kernel reads by their fields and need not import."""
    for kind in kinds:
        if isinstance(kind, types.BaseNamedTuple):
            yield kind.instance_class.__module__
        if isinstance(kind, types.BaseTuple):
            yield from _modules_of_tuples(kind.types)


class _PartCache(_KernelCache):
    _suffix = ".part"

    def _rebuilt(self, target_context: Any, payload: Any) -> Any:
        codegen = target_context.codegen()
        codegen._library_class = _PartLibrary
        try:
            return super()._rebuilt(target_context, payload)
        finally:
            del codegen._library_class
