"""Links between simulated machines: cuts, loss, duplication, reordering, clogs, rates, and probes that tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from harness.ports.api import CallLost, Channel, Peer, Ports
from harness.ports.sim import LinkOptions, World
from harness.ports.sim.draws import RecordedDraws

MS = 1_000_000


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as world:
        yield world
        assert world.errors == []


def hear(world: World, name: str = "a") -> tuple[list[bytes], Callable[[], None]]:
    """A node that remembers notifications and answers calls, and the action that starts it."""
    heard: list[bytes] = []

    async def on_call(peer: Peer, request: bytes) -> bytes:
        heard.append(request)
        return request

    async def program(ports: Ports) -> None:
        await ports.network.listen(f"{name}:1", on_call, lambda peer, message: heard.append(message))
        await asyncio.Event().wait()

    return heard, lambda: world.node(name).start(program)


def send_all(world: World, options: LinkOptions, count: int = 400) -> list[int]:
    """What arrives, in order, of that many numbered notifications sent within a second over such a link."""
    heard, start = hear(world)

    async def main() -> None:
        start()
        world.network.set_link("c", "a", options)
        network = world.harness_ports("c").network
        await asyncio.sleep(0.01)
        for number in range(count):
            network.notify("a:1", b"%d" % number)
            await asyncio.sleep(1 / count)
        await asyncio.sleep(30)

    world.run(main())
    return [int(message) for message in heard]


async def test_a_one_way_cut_drops_answers_and_lets_requests_through(world: World) -> None:
    heard, start = hear(world)
    start()
    await asyncio.sleep(0.01)
    network = world.harness_ports("c").network
    world.network.cut("a", "c")
    with pytest.raises(CallLost):
        await network.call("a:1", b"answer lost", 1)
    world.network.uncut("a", "c")
    world.network.cut("c", "a")
    with pytest.raises(CallLost):
        await network.call("a:1", b"request lost", 1)
    assert await world.network.reachability(["a", "c"]) == {("a", "c"): True, ("c", "a"): False}
    world.network.heal()
    assert await network.call("a:1", b"healed", 1) == b"healed"
    assert await world.network.reachability(["a", "c"]) == {("a", "c"): True, ("c", "a"): True}
    assert heard == [b"answer lost", b"healed"]


async def test_a_cut_also_drops_what_is_under_way(world: World) -> None:
    heard, start = hear(world)
    start()
    await asyncio.sleep(0.01)
    network = world.harness_ports("c").network
    network.notify("a:1", b"under way")
    call = asyncio.create_task(network.call("a:1", b"under way too", 1))
    await asyncio.sleep(0)
    world.network.cut("c", "a")
    with pytest.raises(CallLost, match="no answer"):
        await call
    assert heard == []


def test_an_untroubled_link_keeps_order_and_everything(world: World) -> None:
    assert send_all(world, LinkOptions(delay_ns=(0, 50 * MS))) == list(range(400))


def test_loss_is_partial_and_recorded() -> None:
    draws = RecordedDraws()
    with World(1, draws=draws) as world:
        arrived = send_all(world, LinkOptions(loss=0.5))
    assert 100 < len(arrived) < 300
    assert arrived == sorted(arrived)
    losses = draws.streams["link/c>a/log/lost"]
    assert sum(drawn < 0.5 for drawn in losses) == 400 - len(arrived)


def test_duplication_delivers_some_twice(world: World) -> None:
    arrived = send_all(world, LinkOptions(duplication=0.5))
    assert sorted(set(arrived)) == list(range(400))
    assert 100 < len(arrived) - 400 < 300


def test_reordering_changes_the_order_only(world: World) -> None:
    arrived = send_all(world, LinkOptions(reorder=0.3))
    assert arrived != list(range(400))
    assert sorted(arrived) == list(range(400))


def test_a_clogged_link_delivers_in_a_burst(world: World) -> None:
    heard, start = hear(world)

    async def main() -> None:
        start()
        await asyncio.sleep(0.01)
        world.network.clog("c", "a")
        for number in range(10):
            world.harness_ports("c").network.notify("a:1", b"%d" % number)
        assert await world.network.probe("c", "a") is False
        assert heard == []
        world.network.unclog("c", "a")
        await asyncio.sleep(0.01)

    world.run(main())
    assert heard == [b"%d" % number for number in range(10)]


def test_a_rate_limit_spreads_messages_out(world: World) -> None:
    heard, start = hear(world)

    async def main() -> list[int]:
        start()
        await asyncio.sleep(0.01)
        world.network.set_link("c", "a", LinkOptions(rate_bytes_per_s=10_000))
        for _ in range(10):
            world.harness_ports("c").network.notify("a:1", bytes(1_000))
        counts = []
        for _ in range(4):
            await asyncio.sleep(0.3)
            counts.append(len(heard))
        return counts

    counts = world.run(main())
    assert 1 <= counts[0] <= 3 and counts[0] < counts[1] < counts[2] < counts[3] == 10


async def test_urgent_channels_do_not_wait_for_the_bytes_of_others(world: World) -> None:
    heard, start = hear(world)
    start()
    await asyncio.sleep(0.01)
    world.network.set_link("c", "a", LinkOptions(rate_bytes_per_s=10_000))
    network = world.harness_ports("c").network
    for _ in range(10):
        network.notify("a:1", bytes(1_000), Channel.BULK)
    network.notify("a:1", b"log", Channel.LOG)
    network.notify("a:1", b"control", Channel.CONTROL)
    await asyncio.sleep(2)
    assert heard[:2] == [b"control", b"log"] or heard[:2] == [b"log", b"control"]
    assert len(heard) == 12


async def test_reset_ends_an_old_delay(world: World) -> None:
    heard, start = hear(world)
    start()
    await asyncio.sleep(0.01)
    network = world.harness_ports("c").network
    world.network.set_link("c", "a", LinkOptions(delay_ns=(60_000 * MS, 60_000 * MS)))
    network.notify("a:1", b"late")
    world.network.reset()
    assert await network.call("a:1", b"prompt", 1) == b"prompt"
    assert heard == [b"prompt"]
