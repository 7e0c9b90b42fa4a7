"""Signals that ask for an end, and who takes them: a run that heals and judges first, or whoever waits for many."""

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
    `ended` is set from the first signal on.
    """

    def __init__(self) -> None:
        self.ended = False
        self._running = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.ended = True
        if self._running:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
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
    """STOPPING end the runs of this process for as long as it lives."""
    _handle(EndsRuns())


def take_no_signals() -> None:
    """From now on STOPPING end whatever is under way, but a run takes them while it lasts, for what it made has to be
    removed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    _handle(end)


def _handle(handler: Handler) -> None:
    for number in STOPPING:
        signal.signal(number, handler)


@contextmanager
def signals_held() -> Iterator[None]:
    """Within it STOPPING wait; in the main thread."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class AskedToEnd:
    """The handler of a process that others work for: it is `heard`, as KeyboardInterrupt, only while that waits for
    them, so that nothing is torn. `say` is called, at once, of each time with its number."""

    def __init__(self, say: Callable[[int], None] = lambda times: None) -> None:
        self._say = say
        self._times = self._answered = 0
        self._listening = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._times += 1
        self._say(self._times)
        if self._listening:
            raise KeyboardInterrupt

    def answered(self) -> None:
        """What was asked so far is being done; only what comes after it is heard."""
        self._answered = self._times

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Raises KeyboardInterrupt within as soon as it is asked, or was before."""
        self._listening = True
        try:
            if self._times > self._answered:
                raise KeyboardInterrupt
            yield
        finally:
            self._listening = False

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """Within it this takes STOPPING, and over what another of its kind was asked before; only in the main thread,
        and as before it afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = [(number, signal.signal(number, self)) for number in STOPPING]
        self._times += sum(earlier._times for _, earlier in before[:1] if isinstance(earlier, AskedToEnd))
        try:
            yield
        finally:
            for number, earlier in before:
                signal.signal(number, earlier)
