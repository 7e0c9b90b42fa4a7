"""Links made bad and clocks made wrong while a world runs: what probes see of it, and that it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from harness.env.sim import SimEnvironment
from harness.ports.machines import Impairment, ProbeFlow, Skew
from harness.ports.sim import LinkOptions, World
from harness.ports.sim.clock import ClockOptions
from harness.ports.sim.node import MachineOptions
from harness.protocols import ClockControl, Node, PacketShaping

SECOND = 1_000_000_000
NODES = tuple(Node(name, "server") for name in ("a", "b", "c"))
LINK, OTHER = ("a", "b"), ("b", "a")
DATAGRAMS, SIZE = 200, 1_000


def median_s(flow: ProbeFlow) -> float:
    return flow.delays_s[len(flow.delays_s) // 2]


SEEN: dict[str, tuple[Impairment, Callable[[ProbeFlow], bool]]] = {
    "delay": (Impairment(delay_s=0.1), lambda flow: 0.1 <= median_s(flow) <= 0.11),
    "jitter": (Impairment(jitter_s=0.2), lambda flow: flow.delays_s[-1] - flow.delays_s[0] > 0.04),
    "loss": (Impairment(loss=0.4), lambda flow: 0.25 < flow.lost < 0.55),
    "corruption": (Impairment(corruption=0.4), lambda flow: 0.25 < flow.lost < 0.55),
    "duplication": (Impairment(duplication=0.4), lambda flow: 0.25 < flow.duplicated < 0.55),
    "reorder": (Impairment(reorder=0.4), lambda flow: flow.overtaken > 0.1),
    "rate": (Impairment(rate_bytes_per_s=100_000), lambda flow: 90_000 < flow.rate_bytes_per_s < 110_000),
    "clog": (Impairment(clogged=True), lambda flow: flow.lost == 1),
}


@pytest.mark.parametrize("tcp", [False, True], ids=["datagram", "tcp"])
@pytest.mark.parametrize("name", SEEN)
def test_an_impairment_is_seen_on_its_link_alone_and_ends(name: str, tcp: bool) -> None:
    impairment, seen = SEEN[name]

    async def look(environment: SimEnvironment) -> dict[tuple[str, str], bool]:
        flows = await environment.flows([LINK, OTHER], DATAGRAMS, SIZE, 0.5)
        return {link: seen(flow) for link, flow in flows.items()}

    async def main(world: World) -> None:
        environment = SimEnvironment(world)
        assert isinstance(environment, PacketShaping)
        await environment.setup(NODES)
        assert await look(environment) == {LINK: False, OTHER: False}
        await environment.impair({LINK: impairment})
        assert await look(environment) == {LINK: True, OTHER: False}
        await environment.impair({})
        await asyncio.sleep(1)
        assert await look(environment) == {LINK: False, OTHER: False}
        assert world.network.link(*LINK).options == world.network.plan(*LINK)

    with World(3, network=LinkOptions(tcp=tcp)) as world:
        world.run(main(world))


def test_a_flow_tells_what_was_overtaken() -> None:
    assert ProbeFlow((0.0, 0.1, 0.2), (0.5, 0.6, 0.7), 3, 1).overtaken == 0
    assert ProbeFlow((0.0, 0.1, 0.2), (0.5, None, 0.4), 2, 1).overtaken == pytest.approx(1 / 3)
    assert ProbeFlow((0.0, 0.1, 0.2), (0.9, 0.8, 0.7), 3, 1).overtaken == pytest.approx(2 / 3)
    assert ProbeFlow((0.0, 0.1), (0.2, 0.2), 4, 1).duplicated == 1


def test_what_waits_in_a_clog_arrives_in_a_burst() -> None:
    async def main(world: World) -> None:
        environment = SimEnvironment(world)
        await environment.impair({LINK: Impairment(clogged=True)})
        arrived: list[int] = []
        for _ in range(20):
            world.network.link(*LINK).send(lambda: arrived.append(world.loop.now_ns), (), 100)
            await asyncio.sleep(0.1)
        assert arrived == []
        await environment.impair({})
        await asyncio.sleep(0.1)
        assert len(arrived) == 20
        assert arrived[-1] - arrived[0] < SECOND // 100

    with World(3) as world:
        world.run(main(world))


def test_messages_of_a_connection_stay_in_order_when_its_link_gets_better() -> None:
    async def main(world: World) -> None:
        environment = SimEnvironment(world)
        await environment.impair({LINK: Impairment(delay_s=0.5)})
        arrived: list[int] = []
        for number in range(10):
            world.network.link(*LINK).send(arrived.append, (number,), 100)
        await environment.impair({})
        for number in range(10, 20):
            world.network.link(*LINK).send(arrived.append, (number,), 100)
        await asyncio.sleep(2)
        assert arrived == list(range(20))

    with World(3, network=LinkOptions(tcp=True)) as world:
        world.run(main(world))


@pytest.mark.parametrize("skew", [Skew(3 * SECOND), Skew(-SECOND, 0.05), Skew(0, -0.2)])
def test_a_skewed_clock_is_wrong_as_asked_and_no_other_is(skew: Skew) -> None:
    async def main(world: World) -> None:
        environment = SimEnvironment(world)
        assert isinstance(environment, ClockControl)
        await environment.setup(NODES)
        skewed, other = world.node("a").clock, world.node("b").clock
        await environment.skew_clock("a", skew)
        for elapsed_s in range(4):
            due_ns = skew.offset_ns + round(skew.rate * elapsed_s * SECOND)
            assert skewed.wall_ns() - environment.clock.wall_ns() == due_ns == environment.due_offset_ns("a")
            assert other.wall_ns() == environment.clock.wall_ns()
            assert skewed.monotonic_ns() == other.monotonic_ns() == world.loop.now_ns
            await asyncio.sleep(1)
        await environment.skew_clock("a", None)
        assert skewed.offset_ns() == environment.due_offset_ns("a") == 0

    with World(3) as world:
        world.run(main(world))


def test_a_clock_that_wanders_by_itself_wanders_on_after_a_skew() -> None:
    async def main(world: World) -> None:
        environment = SimEnvironment(world)
        wandering = world.node("a").clock
        await environment.skew_clock("a", Skew(SECOND // 10))
        await asyncio.sleep(30)
        assert wandering.offset_ns() == SECOND // 10, "a skew is exact, whatever the clock would do by itself"
        await environment.teardown()
        assert wandering.offset_ns() == wandering.own_offset_ns() == environment.due_offset_ns("a") != SECOND // 10

    options = MachineOptions(ClockOptions(wander_ns=SECOND // 4))
    with World(3, machines={"a": options}) as world:
        world.run(main(world))
