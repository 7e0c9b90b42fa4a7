"""Loading modules: what they are made of is no garbage, and to look through it again and again takes long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading(for_good: bool) -> Iterator[None]:
    """Nothing is collected within, where modules are loaded and nothing else is done.

    `for_good`: all that there is afterwards stays until the process ends, and collections never look at it again. That
    is for processes which are ours alone: in any other, somebody's garbage would stay too.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if for_good:
            gc.freeze()
        if enabled:
            gc.enable()
