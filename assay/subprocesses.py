"""How a process that works for another begins: it leaves signals to that one, and ends when that one is gone."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading


def begin_subprocess() -> None:
    """The initializer of every pool of ours. Ctrl-c, a closed terminal and `timeout` tell the whole process group to
    end; but what was found until then is still to be judged."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed tells nobody: without this its children would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
