"""The cores that this process may use, and work on parts of something by as many threads, whose results come in order.

Compiled kernels, numpy and Arrow let other threads run while they work; so threads share what they read, and nothing is
sent. They live no longer than the work does, for a process with several threads can't be forked safely.
"""

from __future__ import annotations

import math
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Final, Generic, TypeVar

P = TypeVar("P")
R = TypeVar("R")

_ROOT: Final = Path("/")


def usable_cores(root: Path = _ROOT) -> int:
    """How many cores this process may use: by its affinity, and by the quota of its control groups, as the JVM counts
    them."""
    return max(1, min([len(os.sched_getaffinity(0)), *(math.ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """The cores that each control group around this process may use, where it has a limit."""
    groups = root / "sys/fs/cgroup"
    for line in filter(None, _words(root / "proc/self/cgroup", "\n")):
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = groups / "cpu" if controllers else groups
        place = top / path.strip("/")
        while place.is_relative_to(top):
            if controllers:
                told = [*_words(place / "cpu.cfs_quota_us"), *_words(place / "cpu.cfs_period_us")]
            else:
                told = _words(place / "cpu.max")
            if len(told) == 2 and all(word.isdigit() for word in told) and int(told[1]):  # else `max` or -1
                yield int(told[0]) / int(told[1])
            place = place.parent


def _words(path: Path, apart: str | None = None) -> list[str]:
    try:
        return path.read_text().strip().split(apart)
    except OSError:
        return []


def _never(part: object) -> bool:
    return False


def in_order(
    work: Callable[[P], R],
    parts: Iterable[P],
    threads: int,
    ahead: int | None = None,
    alone: Callable[[P], bool] = _never,
) -> Iterator[R]:
    """What `work` makes of each part, in order; by `threads` at once where there are several parts.

    At most `ahead` parts (None: any number) are begun whose result was not taken yet. While a part that is to be
    `alone` is worked on, no other is. The first part in order whose work raises ends it by that, as with one thread; a
    keyboard interrupt waits for no thread.
    """
    rest = iter(parts)
    first = deque(islice(rest, 2 if threads > 1 else 0))
    every = chain(_emptied(first), rest)
    if len(first) < 2:
        yield from map(work, every)
        return
    crew, waiting, wait = _Crew(work, threads), deque[Future[R]](), True
    try:
        for part in every:
            if alone(part):
                yield from _results(waiting, 0)
                yield work(part)
                continue
            if ahead is not None:
                yield from _results(waiting, ahead - 1)
            waiting.append(crew.begin(part))
        yield from _results(waiting, 0)
    except BaseException as error:
        wait = isinstance(error, Exception)
        raise
    finally:
        crew.end(wait)


def _emptied(parts: deque[P]) -> Iterator[P]:
    while parts:
        yield parts.popleft()


def _results(waiting: deque[Future[R]], left: int) -> Iterator[R]:
    """The results of the first that are waited for, until `left` of them are left."""
    while len(waiting) > left:
        yield waiting.popleft().result()


class _Crew(Generic[P, R]):
    """At most `most` threads, which end with the process whatever they are at."""

    def __init__(self, work: Callable[[P], R], most: int) -> None:
        self._work, self._most = work, most
        self._asked: queue.SimpleQueue[tuple[P, Future[R]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def begin(self, part: P) -> Future[R]:
        """Have some thread work on a part, once one is free."""
        future: Future[R] = Future()
        self._asked.put((part, future))
        if len(self._threads) < self._most:
            thread = threading.Thread(target=self._toil, name="assay-core", daemon=True)
            thread.start()
            self._threads.append(thread)
        return future

    def end(self, wait: bool) -> None:
        """Begin nothing more, and wait for what was begun, or leave it."""
        with suppress(queue.Empty):
            while True:
                self._asked.get_nowait()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._asked.put(None)
        for thread in threads if wait else ():
            thread.join()

    def _toil(self) -> None:
        while (asked := self._asked.get()) is not None:
            part, future = asked
            try:
                future.set_result(self._work(part))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
                future.set_exception(error)
            del asked, part, future  # what they hold is freed before the next part is waited for
