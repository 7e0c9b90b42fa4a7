"""Links that behave as TCP does, clogs, outages, and networks over regions."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from harness.env.sim import SimEnvironment
from harness.ports.api import CallLost, Ports
from harness.ports.sim import LinkOptions, World
from harness.ports.sim.tcp import BREAK_NS
from harness.ports.sim.worlds import WAN_REGIONS, PhysicalWorld, region_of

MS, SECOND = 10**6, 10**9
TCP = LinkOptions(delay_ns=(MS, 2 * MS), tcp=True)


class Receiver:
    """A node that writes down what it hears and when, and answers calls with what they say."""

    def __init__(self, world: World, name: str = "b") -> None:
        self.world = world
        self.name = name
        self.heard: list[tuple[int, int]] = []
        self.called: list[int] = []

    async def program(self, ports: Ports) -> None:
        async def on_call(_peer: object, request: bytes) -> bytes:
            self.called.append(int(request))
            return request

        await ports.network.listen(f"{self.name}:1", on_call, self._on_notify)
        await asyncio.Event().wait()

    def _on_notify(self, _peer: object, message: bytes) -> None:
        self.heard.append((int(message), self.world.loop.now_ns))

    def numbers(self) -> list[int]:
        return [number for number, _ in self.heard]


async def started(world: World) -> tuple[Receiver, Ports]:
    receiver = Receiver(world)
    world.node("b").start(receiver.program)
    await asyncio.sleep(0.1)
    return receiver, world.harness_ports("a")


async def count_up(sender: Ports, count: int, pause_s: float = 0.001) -> None:
    for number in range(count):
        sender.network.notify("b:1", str(number).encode())
        await asyncio.sleep(pause_s)


def test_loss_delays_and_blocks_what_follows_but_loses_nothing() -> None:
    async def main(world: World) -> None:
        receiver, sender = await started(world)
        begin_ns = world.loop.now_ns
        await count_up(sender, 500)
        await asyncio.sleep(10)
        assert receiver.numbers() == list(range(500))
        lateness = [at - begin_ns - number * MS for number, at in receiver.heard]
        assert max(lateness) > 200 * MS, "a retransmission timeout"
        bursts = [at for _, at in receiver.heard]
        assert len(set(bursts)) < 400, "what was blocked arrives together"

    with World(1, network=LinkOptions(delay_ns=(MS, 2 * MS), tcp=True, loss=0.03)) as world:
        world.run(main(world))


def test_a_short_cut_delivers_late_and_in_order() -> None:
    async def main(world: World) -> None:
        receiver, sender = await started(world)
        world.network.cut("a", "b")
        await count_up(sender, 100, 0.01)
        assert receiver.heard == []
        world.network.uncut("a", "b")
        await asyncio.sleep(3)
        assert receiver.numbers() == list(range(100))

    with World(1, network=TCP) as world:
        world.run(main(world))


def test_a_long_cut_breaks_the_connection_and_loses_what_was_under_way() -> None:
    async def main(world: World) -> None:
        receiver, sender = await started(world)
        world.network.cut("a", "b")
        calling = asyncio.create_task(sender.network.call("b:1", b"1", 60))
        await asyncio.sleep(BREAK_NS / SECOND + 1)
        begin_ns = world.loop.now_ns
        world.network.heal()
        with pytest.raises(CallLost, match="the connection broke"):
            await calling
        sender.network.notify("b:1", b"7")
        await asyncio.sleep(1)
        assert receiver.called == [] and receiver.numbers() == [7]
        assert receiver.heard[0][1] - begin_ns >= 7 * MS, "a handshake comes first"

    with World(1, network=TCP) as world:
        world.run(main(world))


def test_a_broken_connection_loses_requests_and_answers_and_says_so() -> None:
    async def main(world: World) -> tuple[int, int, int]:
        receiver, sender = await started(world)
        answered = lost = 0

        async def ask(number: int) -> None:
            nonlocal answered, lost
            await asyncio.sleep(number * 0.0005)
            try:
                await sender.network.call("b:1", str(number).encode(), 60)
                answered += 1
            except CallLost:
                lost += 1

        await asyncio.gather(*(ask(number) for number in range(1000)))
        assert world.loop.now_ns < 10 * SECOND, "callers need not wait for their deadlines"
        return answered, lost, len(receiver.called)

    with World(1, network=LinkOptions(delay_ns=(MS, 2 * MS), tcp=True, breaks=0.02)) as world:
        answered, lost, called = world.run(main(world))
    assert answered + lost == 1000 and lost > 10
    assert answered < called < 1000, "some were carried out though the caller lost them, some never arrived"


def test_what_was_sent_to_a_dead_process_never_reaches_the_next() -> None:
    async def main(world: World) -> list[int]:
        receiver, sender = await started(world)
        world.network.cut("a", "b")
        await count_up(sender, 10)
        world.node("b").kill()
        world.node("b").start(receiver.program)
        await asyncio.sleep(0.01)
        world.network.uncut("a", "b")
        await asyncio.sleep(1)
        sender.network.notify("b:1", b"99")
        await asyncio.sleep(1)
        return receiver.numbers()

    with World(1, network=TCP) as world:
        assert world.run(main(world)) == [99]


def test_probes_see_a_cut_and_its_end_at_once() -> None:
    async def main(world: World) -> None:
        assert await world.network.probe("a", "b")
        world.network.cut("a", "b")
        assert not await world.network.probe("a", "b", 0.05)
        await asyncio.sleep(2)
        world.network.uncut("a", "b")
        assert await world.network.probe("a", "b", 0.05)

    with World(1, network=TCP) as world:
        world.run(main(world))


@pytest.mark.parametrize("tcp", [False, True])
def test_a_clog_ends_in_a_burst(tcp: bool) -> None:
    async def main(world: World) -> None:
        receiver, sender = await started(world)
        await count_up(sender, 2000)
        await asyncio.sleep(3)
        assert receiver.numbers() == list(range(2000))
        instants = [at for _, at in receiver.heard]
        assert max(instants.count(at) for at in set(instants)) > 50

    with World(2, network=LinkOptions(delay_ns=(MS, MS), tcp=tcp, clog=0.002)) as world:
        world.run(main(world))


def test_an_outage_loses_a_stretch() -> None:
    async def main(world: World) -> None:
        receiver, sender = await started(world)
        await count_up(sender, 10_000)
        await asyncio.sleep(3)
        heard = set(receiver.numbers())
        missing = [number for number in range(10_000) if number not in heard]
        assert len(missing) >= 200 and missing != list(range(10_000))
        runs = 1 + sum(after != before + 1 for before, after in pairwise(missing))
        assert len(missing) / runs >= 100, "one after the other, not here and there"

    with World(2, network=LinkOptions(delay_ns=(MS, MS), outage=0.0005)) as world:
        world.run(main(world))


def test_only_links_of_clients_have_outages() -> None:
    physical = PhysicalWorld(client_outages=0.1)
    assert physical.link_options("c0", "t1").outage == physical.link_options("t1", "c4").outage == 0.1
    assert physical.link_options("t2", "t1").outage == physical.link_options("admin", "t1").outage == 0


def test_five_regions_have_their_round_trips() -> None:
    physical = PhysicalWorld(latency="wan5")
    assert [region_of(name) for name in ("t1", "t5", "t6", "m2", "admin", "c1")] == [0, 4, 0, 1, 0, 0]
    assert len(WAN_REGIONS) == 5
    for one in range(1, 6):
        for other in range(1, 6):
            there = physical.link_options(f"t{one}", f"m{other}").delay_ns
            assert there == physical.link_options(f"m{other}", f"t{one}").delay_ns
            assert (there[1] < 3 * MS) == (one == other)

    async def main(world: World) -> int:
        receiver = Receiver(world, "t5")
        world.node("t5").start(receiver.program)
        await asyncio.sleep(1)
        network = world.harness_ports("c3").network
        await network.call("t5:1", b"1", 5)  # waits for the connection
        begin_ns = world.loop.now_ns
        await network.call("t5:1", b"2", 5)
        return world.loop.now_ns - begin_ns

    with World(1, network=physical.link_options) as world:
        assert 255 * MS <= world.run(main(world)) <= 290 * MS


def test_clients_can_be_cut_off() -> None:
    async def main(world: World) -> None:
        environment = SimEnvironment(world)
        receiver = Receiver(world)
        world.node("b").start(receiver.program)
        await asyncio.sleep(0.1)
        await environment.cut(frozenset({("b", "c0")}))
        with pytest.raises(CallLost):
            await world.harness_ports("c0").network.call("b:1", b"1", 0.5)
        assert receiver.called == [1], "the answer was lost, not the request"
        await environment.heal_network()
        assert await world.harness_ports("c0").network.call("b:1", b"2", 0.5) == b"2"

    with World(1) as world:
        world.run(main(world))
