"""The simulated world: one seed makes one run, byte for byte (`ARCHITECTURE.md`, "One node program, two worlds")."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from harness.errors import HarnessError
from harness.ports.api import Hello, Ports
from harness.ports.failpoints import ProcessFailpoints
from harness.ports.sim.clock import SimClock
from harness.ports.sim.disk import DiskOptions, SimDisk, SimDiskPort
from harness.ports.sim.draws import Draws
from harness.ports.sim.incarnation import Incarnation
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.loop import SimLoop, SimulationStuck
from harness.ports.sim.network import LinkPlan, SimNetwork, SimNetworkPort
from harness.ports.sim.node import MachineOptions, SimBody, SimNode
from harness.ports.sim.trace import Trace

T = TypeVar("T")

_GC_THRESHOLD = 20_000


class World:
    """Machines, their network and the harness, on one virtual-time loop. Use it as a context manager, or close it.

    `observers` are called with the world after every step; what they raise ends the run. All that the
    simulator itself decides comes from `draws`. `machines` sets some apart from the others, by name. After `step_limit`
    steps `run` gives up.
    """

    def __init__(
        self,
        seed: int,
        *,
        network: LinkOptions | LinkPlan | None = None,
        disk: DiskOptions | None = None,
        machines: Mapping[str, MachineOptions] | None = None,
        version: int = 1,
        step_limit: int | None = None,
        draws: Draws | None = None,
    ) -> None:
        self.seed = seed
        self.cluster_id = "sim"
        self.version = version
        self.disk_options = disk if disk is not None else DiskOptions()
        self.machines = machines if machines is not None else {}
        self.entropy = random.Random(seed)
        self.trace = Trace()
        self.draws = draws or Draws()
        self.harness = Incarnation("harness", 0, self.trace.new_tag())
        self.loop = SimLoop(self.trace, self.harness, step_limit)  # type: ignore[abstract]
        self.loop.subject = self
        loop = self.loop
        self.draws.now_ns = lambda: loop.now_ns
        network_entropy = random.Random(f"{seed}/network")
        self.network = SimNetwork(self.loop, _plan(network), network_entropy, self.trace, self.draws)
        self._nodes: dict[str, SimNode] = {}
        self._harness_ports: dict[str, Ports] = {}
        self._helpers: list[Incarnation] = []

    # ---- who is in it ----

    def node(self, name: str) -> SimNode:
        """The machine of that name, made at first use."""
        node = self._nodes.get(name)
        if node is None:
            if name in self._harness_ports:
                raise ValueError(f"{name} is the harness's own")
            node = self._nodes[name] = SimNode(self, name)
        return node

    @property
    def nodes(self) -> tuple[SimNode, ...]:
        """Every machine, in the order they were made."""
        return tuple(self._nodes.values())

    def harness_ports(self, name: str, cluster_id: str | None = None) -> Ports:
        """Ports for code of the harness's own, as a machine of that name, never killed or paused; its clock is right
        unless the machine was told to have another.

        `cluster_id` is what it says in handshakes from its first use on (None: the world's).
        """
        ports = self._harness_ports.get(name)
        if ports is None:
            ports = self._harness_ports[name] = self._make_harness_ports(name, cluster_id or self.cluster_id)
        return ports

    def _make_harness_ports(self, name: str, cluster_id: str) -> Ports:
        if name in self._nodes:
            raise ValueError(f"{name} is a node")
        helper = Incarnation(name, 0, self.trace.new_tag())
        self._helpers.append(helper)
        disk = SimDisk(self.loop, self.disk_options, f"{self.seed}/disk/{name}", self.trace, self.draws)
        clock = self.machines[name].clock if name in self.machines else None
        failpoints = ProcessFailpoints(SimBody(_no_such_fault, _no_such_fault, _no_such_fault))
        return Ports(
            node_id=name,
            incarnation=0,
            clock=SimClock(self.loop, clock, self.draws.generator(f"{self.seed}/clock/{name}")),
            network=SimNetworkPort(self.network, self.loop, helper, Hello(cluster_id, name, 0, self.version)),
            disk=SimDiskPort(disk, helper, failpoints),
            entropy=random.Random(f"{self.seed}/harness/{name}"),
            failpoints=failpoints,
        )

    # ---- running ----

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the harness's main coroutine to completion in virtual time; may be called again.

        Raises what the coroutine, an observer or a callback of the harness raised, and SimulationStuck.
        """
        if self.loop.is_closed():
            coroutine.close()
            raise HarnessError("the world has ended")
        task: asyncio.Task[T] = self.loop.create_task(coroutine, context=self.harness.context.copy())
        try:
            with _rare_garbage_collection():
                result: T = self.loop.run_until_complete(task)
        except SimulationStuck as stuck:
            raise SimulationStuck(f"{stuck} ({self._describe_nodes()})") from None
        return result

    def _describe_nodes(self) -> str:
        states = [f"{node.name} {node.state.value}" for node in self._nodes.values()]
        return "nodes: " + (", ".join(states) or "none")

    @property
    def observers(self) -> list[Callable[[Any], None]]:
        """Called with the world after every step; append to it to observe."""
        return self.loop.observers

    @property
    def errors(self) -> list[BaseException]:
        """What nothing handled: exceptions of the harness's own tasks, and of futures that nobody awaited."""
        helpers = [error for helper in self._helpers for error in helper.errors()]
        return [*self.harness.errors(), *helpers, *self.loop.loose_errors]

    def trace_digest(self) -> str:
        """The digest of every step so far: equal for equal seeds and programs."""
        return self.trace.digest()

    def close(self) -> None:
        """End the world: nothing runs any more, and what never finished is let go of quietly."""
        if self.loop.is_closed():
            return
        self.loop.close()
        outer = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(self.loop)
        try:
            for node in self._nodes.values():
                node.bury()
            for helper in (self.harness, *self._helpers):
                helper.die()
                helper.bury()
        finally:
            asyncio.events._set_running_loop(outer)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Look for garbage cycles seldom while a world runs: most objects die by reference count."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _GC_THRESHOLD), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _plan(network: LinkOptions | LinkPlan | None) -> LinkPlan:
    if callable(network):
        return network
    options = network if network is not None else LinkOptions()
    return lambda _source, _target: options


def _no_such_fault(*_: object) -> None:
    raise ValueError("the harness's own machines take no faults")
