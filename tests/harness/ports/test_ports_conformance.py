"""One suite for every twin of the ports: simulated, real on asyncio, real on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import uvloop

from harness.ports.api import CallLost, Channel, Hello, Peer, Ports, Refused, Unreachable
from harness.ports.real import real_ports
from harness.ports.real.disk import RealDisk
from harness.ports.sim import World


class Twin(Protocol):
    """One implementation of the ports, as the suite needs it."""

    def ports(self, name: str, cluster_id: str = "test", version: int = 1) -> Ports: ...

    def crash(self, name: str) -> Ports:
        """Kill the process without a warning and start it again."""

    def address(self, name: str) -> str:
        """Where it may listen, at a port of the system's choice."""

    def twin(self) -> Twin:
        """Another one, of the same seed."""

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None: ...


class SimTwin:
    def __init__(self) -> None:
        self.world = World(seed=7)
        self._started: dict[str, Ports] = {}

    def ports(self, name: str, cluster_id: str = "test", version: int = 1) -> Ports:
        node = self.world.node(name)
        node.cluster_id, node.version = cluster_id, version
        node.start(self._idle(name))
        return self._started[name]

    def crash(self, name: str) -> Ports:
        self.world.node(name).kill()
        return self.ports(name)

    def address(self, name: str) -> str:
        return f"{name}:0"

    def twin(self) -> Twin:
        return SimTwin()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        with self.world as world:
            world.run(coroutine)
            assert [error for node in world.nodes for error in node.errors] == []

    def _idle(self, name: str) -> Callable[[Ports], Coroutine[Any, Any, None]]:
        def main(ports: Ports) -> Coroutine[Any, Any, None]:
            self._started[name] = ports
            return asyncio.Event().wait()  # type: ignore[return-value]

        return main


class RealTwin:
    def __init__(self, directory: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._directory = directory
        self._loop_factory = loop_factory
        self._started: dict[str, Ports] = {}

    def ports(self, name: str, cluster_id: str = "test", version: int = 1) -> Ports:
        started = real_ports(Hello(cluster_id, name, 1, version), self._directory / name, torture=True, seed=7)
        self._started[name] = started
        return started

    def crash(self, name: str) -> Ports:
        disk = self._started[name].disk
        assert isinstance(disk, RealDisk)
        disk.close()
        return self.ports(name)

    def address(self, name: str) -> str:
        return "127.0.0.1:0"

    def twin(self) -> Twin:
        return RealTwin(self._directory / "twin", self._loop_factory)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        async def closing() -> None:
            await coroutine
            for ports in self._started.values():
                await ports.network.close()

        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(closing())


@pytest.fixture(params=["sim", "asyncio", "uvloop"])
def twin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twin]:
    if request.param == "sim":
        yield SimTwin()
    else:
        yield RealTwin(tmp_path, uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop)


class Server:
    """Answers with the request reversed; `hang` never answers, `fail` raises; remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.peers: list[Peer] = []
        self.told = asyncio.Event()

    async def on_call(self, peer: Peer, request: bytes) -> bytes:
        self.heard.append(request)
        self.peers.append(peer)
        if request == b"hang":
            await asyncio.Event().wait()
        return request[::-1]

    def on_notify(self, peer: Peer, message: bytes) -> None:
        self.heard.append(message)
        self.peers.append(peer)
        self.told.set()

    async def until_heard(self, count: int) -> None:
        while len(self.heard) < count:
            self.told.clear()
            await self.told.wait()


async def serve(twin: Twin, ports: Ports, server: Server) -> str:
    listener = await ports.network.listen(twin.address(ports.node_id), server.on_call, server.on_notify)
    return listener.address


async def notify_until_heard(
    ports: Ports, address: str, message: bytes, server: Server, channel: Channel = Channel.LOG
) -> None:
    """A notification may be dropped while there is no connection."""
    while message not in server.heard:
        ports.network.notify(address, message, channel)
        await ports.clock.sleep(0.01)


# ---- clock and entropy ----


async def test_monotonic_time_passes_during_sleep(twin: Twin) -> None:
    clock = twin.ports("a").clock
    wall_ns, monotonic_ns = clock.wall_ns(), clock.monotonic_ns()
    await clock.sleep(0.02)
    assert clock.monotonic_ns() - monotonic_ns >= 19_000_000
    assert clock.wall_ns() > wall_ns > 1_600_000_000 * 10**9


async def test_sleepers_wake_in_the_order_of_their_deadlines(twin: Twin) -> None:
    clock = twin.ports("a").clock
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    await asyncio.gather(*(sleeper(seconds) for seconds in (0.2, 0.0, 0.1)))
    assert woken == [0.0, 0.1, 0.2]


async def test_entropy_is_seeded(twin: Twin) -> None:
    entropy, again = twin.ports("a").entropy, twin.twin().ports("a").entropy
    drawn = [entropy.getrandbits(64) for _ in range(5)]
    assert drawn == [again.getrandbits(64) for _ in range(5)]
    assert len(set(drawn)) == 5


# ---- network ----


async def test_call_is_answered_and_knows_the_caller(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    address = await serve(twin, a, server)
    assert await b.network.call(address, b"abc", 60) == b"cba"
    assert server.peers == [Peer("b", b.incarnation)]


async def test_a_node_can_call_itself_and_send_nothing(twin: Twin) -> None:
    a, server = twin.ports("a"), Server()
    address = await serve(twin, a, server)
    assert await a.network.call(address, b"", 60) == b""


async def test_concurrent_calls_get_their_own_answers(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    address = await serve(twin, a, server)
    requests = [b"request %d" % number for number in range(300)]
    answers = await asyncio.gather(*(b.network.call(address, request, 60) for request in requests))
    assert answers == [request[::-1] for request in requests]
    assert server.heard == requests


async def test_notifications_and_calls_arrive_in_order(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    address = await serve(twin, a, server)
    await b.network.call(address, b"first", 60)
    sent = [b"%d" % number for number in range(500)]
    for message in sent[:-1]:
        b.network.notify(address, message)
    await b.network.call(address, sent[-1], 60)
    assert server.heard == [b"first", *sent]


async def test_order_is_kept_within_each_channel(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    address = await serve(twin, a, server)
    for channel in Channel:
        await notify_until_heard(b, address, b"%d" % channel, server, channel)
    server.heard.clear()
    for number in range(200):
        for channel in Channel:
            b.network.notify(address, b"%d:%d" % (channel, number), channel)
    await server.until_heard(600)
    for channel in Channel:
        heard = [message for message in server.heard if message.startswith(b"%d:" % channel)]
        assert heard == [b"%d:%d" % (channel, number) for number in range(200)]


async def test_frames_of_5_mb_pass(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    address = await serve(twin, a, server)
    big = bytes(range(256)) * (5 * 4096)
    assert await b.network.call(address, big, 60) == big[::-1]
    b.network.notify(address, big)
    await server.until_heard(2)
    assert server.heard == [big, big]


async def test_an_unanswered_call_is_lost_at_its_deadline_and_others_go_on(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    address = await serve(twin, a, server)
    with pytest.raises(CallLost):
        await b.network.call(address, b"hang", 0.05)
    assert await b.network.call(address, b"on", 60) == b"no"


async def test_nobody_listening_is_unreachable_until_somebody_does(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    listener = await a.network.listen(twin.address("a"), server.on_call, server.on_notify)
    address = listener.address
    await listener.close()
    with pytest.raises(Unreachable):
        await b.network.call(address, b"abc", 60)
    await a.network.listen(address, server.on_call, server.on_notify)
    assert await b.network.call(address, b"abc", 60) == b"cba"
    assert server.heard == [b"abc"]
    for none in ("", ":", ":1", "paper", "x:paper", "127.0.0.1:99999999", "\x00:1", "x" * 300 + ":1"):
        b.network.notify(none, b"no address at all")
        with pytest.raises(Unreachable):
            await b.network.call(none, b"abc", 60)


async def test_a_listener_that_closes_breaks_open_calls(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    listener = await a.network.listen(twin.address("a"), server.on_call, server.on_notify)
    call = asyncio.create_task(b.network.call(listener.address, b"hang", 60))
    while not server.heard:
        await a.clock.sleep(0.01)
    await listener.close()
    with pytest.raises(CallLost):
        await call


async def test_notifications_reach_a_listener_that_came_later(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    listener = await a.network.listen(twin.address("a"), server.on_call, server.on_notify)
    await notify_until_heard(b, listener.address, b"one", server)
    await listener.close()
    b.network.notify(listener.address, b"into the void")
    await b.clock.sleep(0.05)
    await a.network.listen(listener.address, server.on_call, server.on_notify)
    await notify_until_heard(b, listener.address, b"two", server)
    assert b"into the void" not in server.heard


@pytest.mark.parametrize("stranger", [{"cluster_id": "other"}, {"version": 2}])
async def test_strangers_are_refused(twin: Twin, stranger: dict[str, Any]) -> None:
    a, b, server = twin.ports("a"), twin.ports("b", **stranger), Server()
    address = await serve(twin, a, server)
    for _ in range(2):
        with pytest.raises(Refused):
            await b.network.call(address, b"abc", 60)
    b.network.notify(address, b"abc")
    await a.clock.sleep(0.05)
    assert server.heard == []


async def test_an_address_is_listened_at_once_only(twin: Twin) -> None:
    a, server = twin.ports("a"), Server()
    address = await serve(twin, a, server)
    with pytest.raises(OSError):
        await a.network.listen(address, server.on_call, server.on_notify)


async def test_closing_the_network_loses_open_calls(twin: Twin) -> None:
    a, b, server = twin.ports("a"), twin.ports("b"), Server()
    address = await serve(twin, a, server)
    call = asyncio.create_task(b.network.call(address, b"hang", 60))
    while not server.heard:
        await a.clock.sleep(0.01)
    await b.network.close()
    with pytest.raises(CallLost):
        await call


# ---- disk ----


async def test_what_was_appended_can_be_read_at_once(twin: Twin) -> None:
    disk = twin.ports("a").disk
    await disk.append("wal/1", b"one")
    await disk.append("wal/1", b"two")
    assert await disk.read("wal/1") == b"onetwo"
    await disk.fsync("wal/1")
    await disk.append("wal/1", b"three")
    assert await disk.read("wal/1") == b"onetwothree"


async def test_missing_files(twin: Twin) -> None:
    disk = twin.ports("a").disk
    with pytest.raises(FileNotFoundError):
        await disk.read("none")
    with pytest.raises(FileNotFoundError):
        await disk.fsync("none")
    with pytest.raises(FileNotFoundError):
        await disk.rename("none", "other")
    await disk.remove("none")
    assert disk.list("") == []


async def test_list_is_sorted_and_by_prefix(twin: Twin) -> None:
    disk = twin.ports("a").disk
    for path in ("b/2", "b/10", "a", "b2"):
        await disk.append(path, b"x")
    await disk.fsync("b/2")
    assert disk.list("") == ["a", "b/10", "b/2", "b2"]
    assert disk.list("b/") == ["b/10", "b/2"]


async def test_a_crash_keeps_what_was_synced_and_at_most_a_torn_tail(twin: Twin) -> None:
    disk = twin.ports("a").disk
    for number in range(20):
        path = f"wal/{number}"
        await disk.append(path, b"synced")
        await disk.fsync(path)
        await disk.append(path, b"unsynced")
    after = twin.crash("a").disk
    kept = [await after.read(f"wal/{number}") for number in range(20)]
    assert all(data.startswith(b"synced") and b"syncedunsynced".startswith(data) for data in kept)
    assert any(data != b"syncedunsynced" for data in kept)


async def test_fsync_covers_appends_before_it_only(twin: Twin) -> None:
    disk = twin.ports("a").disk
    await disk.append("f", b"before")
    syncing = asyncio.ensure_future(disk.fsync("f"))
    await asyncio.sleep(0)
    await disk.append("f", b"after")
    await syncing
    assert await disk.read("f") == b"beforeafter"
    assert (await twin.crash("a").disk.read("f")).startswith(b"before")


async def test_rename_truncate_and_remove_survive_a_crash(twin: Twin) -> None:
    disk = twin.ports("a").disk
    for path in ("old", "target", "long", "gone"):
        await disk.append(path, path.encode() * 100)
        await disk.fsync(path)
    await disk.rename("old", "target")
    await disk.truncate("long", 6)
    await disk.remove("gone")
    assert disk.list("") == ["long", "target"]
    after = twin.crash("a").disk
    assert after.list("") == ["long", "target"]
    assert await after.read("target") == b"old" * 100
    assert await after.read("long") == b"longlo"


async def test_appends_go_on_after_truncate_and_rename(twin: Twin) -> None:
    disk = twin.ports("a").disk
    await disk.append("f", b"abcdef")
    await disk.truncate("f", 4)
    await disk.append("f", b"XY")
    await disk.rename("f", "folder/g")
    await disk.append("folder/g", b"Z")
    await disk.fsync("folder/g")
    assert await twin.crash("a").disk.read("folder/g") == b"abcdXYZ"


async def test_write_atomic_replaces_durably(twin: Twin) -> None:
    disk = twin.ports("a").disk
    await disk.append("state", b"appended")
    await disk.write_atomic("state", b"one")
    await disk.write_atomic("state", b"two")
    await disk.append("state", b"+")
    assert await disk.read("state") == b"two+"
    assert disk.list("") == ["state"]
    assert (await twin.crash("a").disk.read("state")) in (b"two", b"two+")


async def test_a_megabyte_appended_in_pieces_is_whole(twin: Twin) -> None:
    disk = twin.ports("a").disk
    piece = bytes(range(256)) * 64
    for _ in range(64):
        await disk.append("big", piece)
    await disk.fsync("big")
    assert await twin.crash("a").disk.read("big") == piece * 64
