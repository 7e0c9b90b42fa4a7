"""Same seed, same trace: in two processes with different string hashes, and as the second run of one process."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from harness.ports.api import CallLost, DiskFull, Peer, Ports, Unreachable
from harness.ports.failpoints import Arming
from harness.ports.sim import LinkOptions, World
from tests.support.replay import diverging_seeds

NAMES = ("a", "b", "c", "d")
TROUBLED = LinkOptions(loss=0.05, duplication=0.1, reorder=0.1, slow=0.05, rate_bytes_per_s=10_000_000)


async def gossip(ports: Ports) -> None:
    """A node program that logs what it hears, answers calls from its log and talks to everyone."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_call(peer: Peer, request: bytes) -> bytes:
        await ports.disk.append("wal", request)
        await ports.disk.fsync("wal")
        return request + str(len(await ports.disk.read("wal"))).encode()

    def on_notify(peer: Peer, message: bytes) -> None:
        heard.put_nowait(message)

    async def keep_log() -> None:
        while True:
            try:
                await ports.disk.append("heard", await heard.get())
                await ports.disk.fsync("heard")
            except DiskFull:
                await ports.disk.remove("heard")

    await ports.network.listen(f"{ports.node_id}:1", on_call, on_notify)
    await ports.disk.write_atomic("incarnation", str(ports.incarnation).encode())
    keeper = asyncio.create_task(keep_log())
    try:
        await talk(ports)
    finally:
        keeper.cancel()


async def talk(ports: Ports) -> None:
    others = {name for name in NAMES if name != ports.node_id}
    while True:
        await ports.clock.sleep(ports.entropy.random() * 0.01)
        stamp = b"%d %d" % (ports.clock.wall_ns(), ports.clock.monotonic_ns())
        for name in sorted(others):
            ports.network.notify(f"{name}:1", stamp)
        try:
            await ports.network.call(f"{ports.entropy.choice(sorted(others))}:1", stamp, 0.05)
        except (CallLost, Unreachable):
            ports.failpoints.hit("call-failed")


async def trouble(world: World, chaos: random.Random) -> None:
    """Kill, pause, cut, clog, skew and fill disks, at random."""
    for _ in range(60):
        await asyncio.sleep(chaos.random() * 0.02)
        node, other = (world.node(name) for name in chaos.sample(NAMES, 2))
        fault = chaos.randrange(8)
        if fault == 0:
            node.kill()
            node.start(gossip)
        elif fault == 1:
            node.pause()
            asyncio.get_running_loop().call_later(0.02, node.resume)
        elif fault == 2:
            world.network.cut(node.name, other.name)
        elif fault == 3:
            world.network.clog(node.name, other.name)
        elif fault == 4:
            world.network.heal()
        elif fault == 5:
            node.clock.jump(chaos.randrange(-(10**9), 10**9))
            node.clock.set_drift(chaos.uniform(-0.5, 0.5))
        elif fault == 6:
            node.disk.full = not node.disk.full
        else:
            node.failpoints.arm(Arming("call-failed"))
        for dead in world.nodes:
            if dead.state == "dead":
                dead.start(gossip)


def busy(seed: int) -> str:
    """One short run with every kind of trouble; its trace digest."""
    with World(seed, network=TROUBLED) as world:
        for name in NAMES:
            world.node(name).start(gossip)
        world.run(trouble(world, random.Random(seed)))
        expected = (DiskFull, FileNotFoundError)
        assert [error for node in world.nodes for error in node.errors if not isinstance(error, expected)] == []
        assert world.errors == []
        assert world.network.delivered > 100
        return world.trace_digest()


def test_same_seed_same_trace() -> None:
    assert diverging_seeds(f"{Path(__file__)}:busy", range(24)) == []


def test_another_seed_is_another_run() -> None:
    assert len({busy(seed) for seed in range(5)}) == 5


def leaks_hash_order(seed: int) -> str:
    """A program that is not deterministic: it sends in the order of a set of strings."""
    with World(seed) as world:

        async def main() -> None:
            for name in {"x", "y", "z", "u", "v", "w"}:
                world.harness_ports("h").network.notify("nobody:1", name.encode())
                await world.harness_ports("h").disk.append("f", name.encode())

        world.run(main())
        return world.trace_digest()


def test_a_program_that_leaks_hash_order_is_found_out() -> None:
    assert diverging_seeds(f"{Path(__file__)}:leaks_hash_order", range(3)) != []
