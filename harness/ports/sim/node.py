"""One simulated machine: its disk and clock outlive the incarnations of the process that runs on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.ports.api import Crashed, Hello, Ports
from harness.ports.failpoints import ProcessFailpoints, SlowPlaces
from harness.ports.machines import ProcessState
from harness.ports.sim.clock import ClockOptions, SimClock
from harness.ports.sim.disk import DiskOptions, SimDisk, SimDiskPort
from harness.ports.sim.incarnation import Incarnation, Processor, SlowIncarnation
from harness.ports.sim.network import SimNetworkPort
from harness.ports.sim.trace import CRASH, END, KILL, PAUSE, RESUME, START

if TYPE_CHECKING:
    from harness.ports.sim.world import World


class SimBody:
    """The process on a machine, through what the machine can do to it. Implements `harness.ports.failpoints.Body`.

    `acted` counts, over all lives of the machine's processes, how often each point acted. A process that stops ends
    its present step first: what it does before its next wait is done.
    """

    __slots__ = ("_block", "_kill", "_pause", "acted")

    def __init__(self, kill: Callable[[], None], pause: Callable[[], None], block: Callable[[float], None]) -> None:
        self._kill, self._pause, self._block = kill, pause, block
        self.acted: dict[str, int] = {}

    def crash(self, point: str) -> None:
        self._kill()
        raise Crashed(point)

    def stop(self) -> None:
        self._pause()

    def block(self, seconds: float) -> None:
        self._block(seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def note(self, point: str) -> None:
        self.acted[point] = self.acted.get(point, 0) + 1


Main = Callable[[Ports], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What sets a machine apart: how its clocks go, its disk (None: the world's), what steps cost on it, and at which
    points of their code its processes are slow (`harness.ports.failpoints.SlowPlaces`)."""

    clock: ClockOptions | None = None
    disk: DiskOptions | None = None
    processor: Processor = field(default_factory=Processor)
    slow_places: Mapping[str, float] = field(default_factory=dict)


_ORDINARY = MachineOptions()


class SimNode:
    """A machine and the process on it.

    `error` is how the process ended if it crashed by itself (a panic), `errors` everything that nothing in it handled
    (a failed task counts until somebody awaits it). `cluster_id` and `version` are what its next incarnation says in
    handshakes. `disk`, `clock` and `failpoints` are also the handles for faults; `body` counts what failpoints did.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.cluster_id = world.cluster_id
        self.version = world.version
        options = world.machines.get(name, _ORDINARY)
        self.clock = SimClock(world.loop, options.clock, world.draws.generator(f"{world.seed}/clock/{name}"))
        self.body = SimBody(self._crash, self.pause, self._block)
        slow = SlowPlaces(options.slow_places, world.draws.generator(f"{world.seed}/slow/{name}"))
        self.failpoints = ProcessFailpoints(self.body, slow)
        self.error: BaseException | None = None
        self.incarnation = 0
        self._world = world
        self._entropy = random.Random(f"{world.seed}/node/{name}")
        disk = options.disk or world.disk_options
        self.disk = SimDisk(world.loop, disk, f"{world.seed}/disk/{name}", world.trace, world.draws)
        self._processor = options.processor
        self._lives: list[Incarnation] = []
        self._main: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def state(self) -> ProcessState:
        if not self._lives or self._lives[-1].dead:
            return ProcessState.DEAD
        return ProcessState.PAUSED if self._lives[-1].paused else ProcessState.RUNNING

    @property
    def disturbed(self) -> bool:
        """Whether its process does not run, or somebody does something to it, its disk or its clock."""
        running = self.state is ProcessState.RUNNING and not self.failpoints.disturbed
        return not running or self.disk.disturbed or self.clock.skewed

    @property
    def errors(self) -> list[BaseException]:
        """Exceptions that nothing in any incarnation handled; `error` is among them."""
        found = [error for life in self._lives for error in life.errors()]
        return found if self.error is None or self.error in found else [*found, self.error]

    def start(self, main: Main) -> None:
        """Begin a new incarnation that runs `main`; raises ValueError if one is alive."""
        if self.state is not ProcessState.DEAD:
            raise ValueError(f"{self.name} is {self.state.value} already")
        world = self._world
        self.incarnation += 1
        self.error = None
        life = self._new_life(world.trace.new_tag())
        self._lives.append(life)
        world.trace.record(START, life.tag, self.name.encode())
        self._main = world.loop.create_task(main(self._ports(life)), context=life.context)
        self._main.add_done_callback(lambda task: self._main_ended(life, task), context=world.harness.context)

    def kill(self) -> None:
        """SIGKILL: nothing of the process ever runs again, unsynced writes are lost or torn; no-op if it is dead."""
        self._end(KILL)

    def stop(self) -> None:
        """Cancel the main task; the process is dead when it has ended (see `wait_dead`)."""
        if self._main is not None and self.state is not ProcessState.DEAD:
            self._main.cancel()

    async def wait_dead(self) -> None:
        """Wait until no process runs."""
        if self.state is not ProcessState.DEAD:
            waiter: asyncio.Future[None] = self._world.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def pause(self) -> None:
        """SIGSTOP: hold back whatever the process would do; no-op unless it runs."""
        if self.state is ProcessState.RUNNING:
            self._lives[-1].pause()
            self._world.trace.record(PAUSE, self._lives[-1].tag, b"")

    def resume(self) -> None:
        """SIGCONT: what was held back runs now, in order; no-op unless it is paused."""
        if self.state is ProcessState.PAUSED:
            life = self._lives[-1]
            life.resume(self._world.loop)
            self._world.trace.record(RESUME, life.tag, b"")

    def _block(self, seconds: float) -> None:
        """Stop the process for a time, unless it stands still for another reason."""
        if self.state is ProcessState.RUNNING:
            life = self._lives[-1]
            self.pause()
            self._world.loop.post(self._world.loop.now_ns + int(seconds * 1e9), self._unblock, (life,))

    def _unblock(self, life: Incarnation) -> None:
        if life is self._lives[-1]:
            self.resume()

    def exchange_disk(self, disk: SimDisk | None = None) -> SimDisk:
        """Put another disk (None: a new one) into the machine, which is dead; the one that it had until now."""
        if self.state is not ProcessState.DEAD:
            raise ValueError(f"{self.name} is {self.state.value}")
        world, had = self._world, self.disk
        key = f"{world.seed}/disk/{self.name}/{self.incarnation}"
        self.disk = disk or SimDisk(world.loop, had.options, key, world.trace, world.draws)
        return had

    def bury(self) -> None:
        """The world has ended: let go of everything without a sound."""
        for life in self._lives:
            life.die()
            life.bury()

    def _new_life(self, tag: int) -> Incarnation:
        if not self._processor.instant:
            entropy = self._world.draws.generator(f"{self._world.seed}/turns/{self.name}/{self.incarnation}")
            return SlowIncarnation(self.name, self.incarnation, tag, self._world.loop, self._processor, entropy)
        return Incarnation(self.name, self.incarnation, tag)

    def _ports(self, life: Incarnation) -> Ports:
        hello = Hello(self.cluster_id, self.name, self.incarnation, self.version)
        return Ports(
            node_id=self.name,
            incarnation=self.incarnation,
            clock=self.clock,
            network=SimNetworkPort(self._world.network, self._world.loop, life, hello),
            disk=SimDiskPort(self.disk, life, self.failpoints),
            entropy=random.Random(self._entropy.getrandbits(64)),
            failpoints=self.failpoints,
        )

    def _main_ended(self, life: Incarnation, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if not life.dead:
            self.error = error
            if error is not None:
                life.fail(error)
            self._end(END)

    def _crash(self) -> None:
        self._end(CRASH)

    def _end(self, kind: int) -> None:
        if self.state is ProcessState.DEAD:
            return
        life = self._lives[-1]
        life.die()
        self._world.trace.record(kind, life.tag, b"")
        self._world.network.drop(life)
        self.disk.crash()
        self.failpoints.forget()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
