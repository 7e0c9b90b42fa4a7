"""Signals that ask for an end, and who takes them: a run that heals and judges first, or whoever makes many runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask for an end: the keyboard, the system, a terminal that was closed."""

AGAIN_S = 1.0

Handler: TypeAlias = Callable[[int, FrameType | None], None]


class EndsRuns:
    """The handler of a process whose simulated runs are thrown away when it is to end: no run takes it over.

    The one under way ends where it is, by KeyboardInterrupt; again and again, should something there have caught it.
    `ended` is set from the first signal on. A `worker` between two runs is left to whoever gives it work.
    """

    def __init__(self, worker: bool = False) -> None:
        self.ended = False
        self._worker, self._running = worker, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.ended = True
        if self._running:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        if self._running or not self._worker:
            raise KeyboardInterrupt

    @contextmanager
    def run(self) -> Iterator[None]:
        """Within it a run is under way; raises KeyboardInterrupt at once where the end was asked for before."""
        if self.ended:
            raise KeyboardInterrupt
        self._running = True
        before, told = signal.signal(signal.SIGALRM, self), sys.unraisablehook

        def tell(lost: UnraisableHookArgs) -> None:
            """An interrupt that came where none can be raised, as in a finalizer, comes again in a moment."""
            if not (self.ended and isinstance(lost.exc_value, KeyboardInterrupt)):
                told(lost)

        sys.unraisablehook = tell
        try:
            yield
        finally:
            sys.unraisablehook = told
            self._running = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def in_charge() -> EndsRuns | None:
    """The handler that nobody takes the signals from, where there is one; signals are the main thread's."""
    handler = signal.getsignal(signal.SIGTERM)
    here = threading.current_thread() is threading.main_thread()
    return handler if here and isinstance(handler, EndsRuns) else None


def end_runs_from_now_on() -> None:
    """STOPPING end the runs of this process, a pool's worker, for as long as it lives."""
    ends = EndsRuns(worker=True)
    for number in STOPPING:
        signal.signal(number, ends)


@contextmanager
def signals_held() -> Iterator[None]:
    """Within it STOPPING wait; in the main thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def between_runs(number: int, frame: FrameType | None) -> None:
    """The handler of a process whose runs take the signals while they last, for what they made has to be removed."""
    raise KeyboardInterrupt


@contextmanager
def ending_runs(simulated: bool) -> Iterator[None]:
    """Within it STOPPING end the runs that are made there; only in the main thread, and as before it afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler: Handler = EndsRuns() if simulated else between_runs
    before = [(number, signal.signal(number, handler)) for number in STOPPING]
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)
