"""Failpoints: named points in node code where a process can be made to crash, stop, wait or fail; free when off.

One mechanism for both twins of the ports; what ends or stops a process is the twin's (`Body`). Points are armed at run
time; what is armed ends with the process.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol, TypeAlias, get_args

Action: TypeAlias = Literal["crash", "stop", "delay", "hang", "fail", "record"]
"""`crash` kills the process there; `stop` stops it, as SIGSTOP would, until it is continued (SIGCONT).

`delay` and `hang` let what passes wait, for some time or until the point is disarmed; where nothing may wait, the whole
process does (see `ProcessFailpoints.hit`). `fail` raises InjectedFailure. `record` only counts.
"""

SYNC = "disk.before_sync"
"""Passed by the disk itself, before it makes anything durable."""

READING = "disk.reading"
"""A wait of the disk's own: something was asked of it to be read."""

ANY = "*"
"""Stands for every point of a process that is not armed by its own name."""

ACTIONS: tuple[str, ...] = get_args(Action)

Call: TypeAlias = Callable[[str], Awaitable[None] | None]
"""What a test arms a point of a simulated node with; what it returns is awaited where something may wait."""


class InjectedFailure(OSError):
    """What `fail` raises: it looks like a disk or a connection that fails."""

    def __init__(self, point: str) -> None:
        super().__init__(errno.EIO, f"the failpoint {point} fails")


@dataclass(frozen=True, slots=True)
class Failpoint:
    """A named point in the code of nodes of a role (empty: of any); `meaning` says what has happened there.

    `alone` says that only what passes it waits there; else the whole process does.
    """

    name: str
    role: str
    meaning: str
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Arming:
    """A point is armed for a Raft group (empty: for any) after `skip` passes, for `times` more (0: until disarmed).

    `seconds` is how long `delay` lasts. What only counts, and a test's own call, stay until they are disarmed.
    """

    point: str
    action: Action | Call = "crash"
    group: str = ""
    skip: int = 0
    times: int = 1
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SlowPlaces:
    """Where a process is slow for all of its life: what passes one of these points, or waits, waits alone, longer.

    `seconds` has by point the longest time; each pass takes another one, which `entropy` draws.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    entropy: Random = field(default_factory=lambda: Random(0))


class Body(Protocol):
    """What a failpoint does to its process."""

    def crash(self, point: str) -> None:
        """End it here and now; in the simulator raises Crashed."""

    def stop(self) -> None:
        """Stop it until it is continued."""

    def block(self, seconds: float) -> None:
        """Stop it for so long."""

    async def sleep(self, seconds: float) -> None:
        """Let the caller alone wait."""

    def note(self, point: str) -> None:
        """Keep, where it outlives the process, that a point acted."""


class Passable(Protocol):
    """What passing a point needs, see `harness.ports.api.Failpoints`."""

    @property
    def armed(self) -> Mapping[str, object]: ...

    def rest(self, name: str, group: str = "") -> Awaitable[None] | None: ...

    def longer(self, wait: str) -> Awaitable[None] | None: ...


class ProcessFailpoints:
    """The failpoints of one process. Implements `harness.ports.api.Failpoints`.

    `armed` is empty when all are off; `hits` counts passes of armed points, also of those that were skipped. Points of
    `slow` are armed whenever nothing else is there; they are no faults, and count nothing.
    """

    __slots__ = ("_body", "_entropy", "_gates", "_slow", "armed", "hits")

    def __init__(self, body: Body, slow: SlowPlaces = SlowPlaces()) -> None:
        self._body = body
        self._gates: dict[str, asyncio.Future[None]] = {}
        self._slow = {name: Arming(name, "delay", times=0, seconds=most_s) for name, most_s in slow.seconds.items()}
        self._entropy = slow.entropy
        self.armed: dict[str, Arming] = dict(self._slow)
        self.hits: dict[str, int] = {}

    @property
    def disturbed(self) -> bool:
        """Whether somebody has armed a point; what is slow by itself is no fault."""
        return any(arming is not self._slow.get(name) for name, arming in self.armed.items())

    def arm(self, arming: Arming) -> None:
        """Act at a point, instead of what it was armed with before."""
        self._open(arming.point)
        self.armed[arming.point] = arming

    def disarm(self, point: str = "") -> None:
        """Forget one point, or all; what waits there goes on."""
        for name in [point] if point else list(self.armed):
            self._end(name)
            self._open(name)
        if not point:
            for name in list(self._gates):
                self._open(name)

    def forget(self) -> None:
        """The process has ended, and nothing of it ever goes on."""
        self.armed.clear()
        self.armed.update(self._slow)
        self._gates.clear()

    def hit(self, name: str, group: str = "") -> None:
        """Pass a point at which nothing may wait: to hang is to stop the process, to delay it is to block it."""
        if self.armed and (arming := self._due(name, group)) is not None:
            if arming.action == "delay":
                self._body.block(arming.seconds)
            elif arming.action == "hang":
                self._body.stop()
            else:
                self._act(arming)

    def rest(self, name: str, group: str = "") -> Awaitable[None] | None:
        """Pass a point at which the caller may wait: what it has to await, or None."""
        if not self.armed or (arming := self._due(name, group)) is None:
            return None
        if arming.action == "delay":
            slow = arming is self._slow.get(name)
            return self._body.sleep(self._entropy.uniform(0.0, arming.seconds) if slow else arming.seconds)
        if arming.action == "hang":
            return self._gate(name)
        acted = self._act(arming)
        # What follows a stop is another step: one that a stopped process does not take.
        return self._body.sleep(0.0) if arming.action == "stop" else acted

    def longer(self, wait: str) -> Awaitable[None] | None:
        """What has to be awaited besides at a wait that may be slow, where nothing else can happen, or None."""
        slow = self._slow.get(wait)
        return None if slow is None else self._body.sleep(self._entropy.uniform(0.0, slow.seconds))

    def _due(self, name: str, group: str) -> Arming | None:
        """What is to be done in this pass, which is counted."""
        arming = self.armed.get(name)
        if arming is None or arming is self._slow.get(name):
            arming = self.armed.get(ANY, arming)
        if arming is None or arming.group not in ("", group):
            return None
        if arming is self._slow.get(name):
            return arming
        self.hits[name] = self.hits.get(name, 0) + 1
        if arming.skip:
            self.armed[arming.point] = _less(arming, skip=1)
            return None
        if arming.action == "record" or callable(arming.action):
            return arming
        if arming.times == 1:
            self._end(arming.point)
        elif arming.times:
            self.armed[arming.point] = _less(arming, times=1)
        self._body.note(name)
        return arming

    def _end(self, name: str) -> None:
        """A point acts no more; it is as slow as it is."""
        self.armed.pop(name, None)
        if name in self._slow:
            self.armed[name] = self._slow[name]

    def _act(self, arming: Arming) -> Awaitable[None] | None:
        if arming.action == "crash":
            self._body.crash(arming.point)
        elif arming.action == "stop":
            self._body.stop()
        elif arming.action == "fail":
            raise InjectedFailure(arming.point)
        elif callable(arming.action):
            return arming.action(arming.point)
        return None

    def _gate(self, name: str) -> asyncio.Future[None]:
        """All that hangs at a point waits for one thing; whoever is cancelled there leaves it to the others."""
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = asyncio.get_running_loop().create_future()
        return asyncio.shield(gate)

    def _open(self, name: str) -> None:
        gate = self._gates.pop(name, None)
        if gate is not None and not gate.done():
            gate.set_result(None)


def _less(arming: Arming, skip: int = 0, times: int = 0) -> Arming:
    return Arming(arming.point, arming.action, arming.group, arming.skip - skip, arming.times - times, arming.seconds)


async def linger(failpoints: Passable, wait: str) -> None:
    """Wait longer where this process is slow."""
    if failpoints.armed and (more := failpoints.longer(wait)) is not None:
        await more


async def pass_by(failpoints: Passable, name: str, group: str = "") -> None:
    """Pass a point where the caller may wait."""
    if failpoints.armed and (rest := failpoints.rest(name, group)) is not None:
        await rest
