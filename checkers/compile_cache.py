"""Where compiled kernels are kept between processes, and when they are compiled.

numba notices a change only in the very file of a cached function, not in those it calls; so the directory's name is a
digest of all compiled sources of this package, and an update never meets stale code.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "NUMBA_CACHE_DIR"


def use_compile_cache() -> None:
    """Point numba at this version's cache, unless the user chose a place; to be called before numba is imported."""
    if VARIABLE in os.environ:
        return
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=6)
    for source in sorted(package.rglob("*.py")):
        code = source.read_bytes()
        if source.parent.name == "kernels" or b"@njit" in code:
            digest.update(code)
    os.environ[VARIABLE] = str(cache_base() / f"numba-{digest.hexdigest()}")


def cache_base() -> Path:
    """Where to keep what is made once: beside the sources, else in the user's cache, else until the machine stops."""
    homes = (
        Path(__file__).parent / "__pycache__",
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay",
    )
    for base in homes:
        try:
            base.mkdir(parents=True, exist_ok=True)
        except OSError:  # a read-only installation: the next place will do
            continue
        if os.access(base, os.W_OK):
            return base
    return Path(tempfile.gettempdir())


@contextmanager
def compilation_told(tell: Callable[[bool], None]) -> Iterator[None]:
    """Calls `tell` with True whenever this process begins to compile kernels, and with False when it has done so."""
    from numba.core import event

    class Compilation(event.Listener):
        depth = 0

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                tell(True)

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                tell(False)

    with event.install_listener("numba:compile", Compilation()):
        yield
