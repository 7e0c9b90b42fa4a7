"""What only the real twins can show: SIGKILL in torture mode, fragments on the wire, reconnection, a full disk."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ports.api import CallLost, Channel, DiskFull, Hello, Peer, Ports, Unreachable
from harness.ports.real import real_ports
from harness.ports.real.disk import RealDisk
from harness.ports.real.network import FrameKind, FrameProtocol
from harness.ports.real.ports import VARIABLE, real_failpoints

PROGRAM = """
import asyncio, sys
from harness.ports.api import Hello
from harness.ports.real import real_ports

async def main(directory, torture):
    ports = real_ports(Hello("test", "a", 1, 1), directory, torture == "torture", seed=1)
    await ports.disk.append("wal", b"synced")
    await ports.disk.fsync("wal")
    await ports.disk.append("wal", b"unsynced")
    await ports.disk.append("new", b"unsynced")
    ports.failpoints.hit("after-append")
    ports.failpoints.hit("after-append")
    await ports.disk.fsync("wal")

asyncio.run(main(*sys.argv[1:]))
"""


def run_program(directory: Path, torture: str, failpoints: str) -> int:
    environment = {**os.environ, VARIABLE: failpoints, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PROGRAM, str(directory), torture]
    return subprocess.run(command, env=environment, check=False).returncode


def read(directory: Path, path: str) -> bytes:
    return asyncio.run(RealDisk(directory).read(path))


def test_sigkill_in_torture_mode_loses_unsynced_writes(tmp_path: Path) -> None:
    assert run_program(tmp_path, "torture", "after-append=crash@2") == -signal.SIGKILL
    assert read(tmp_path, "wal") == b"synced"
    assert RealDisk(tmp_path).list("") == ["wal"]


def test_sigkill_without_torture_mode_loses_nothing_that_was_written(tmp_path: Path) -> None:
    assert run_program(tmp_path, "plain", "after-append=crash") == -signal.SIGKILL
    assert read(tmp_path, "wal") == b"syncedunsynced"
    assert read(tmp_path, "new") == b"unsynced"


def test_failpoints_that_are_not_reached_do_nothing(tmp_path: Path) -> None:
    assert run_program(tmp_path, "torture", "after-append=crash@3,other=crash,after-append2=record") == 0
    assert read(tmp_path, "wal") == b"syncedunsynced"


def test_failpoints_count_passes() -> None:
    failpoints = real_failpoints({VARIABLE: "a=record"})
    for name in ("a", "b", "a"):
        failpoints.hit(name)
    assert failpoints.hits == {"a": 2}


@pytest.mark.parametrize("text", ["a", "a=explode", "=crash", "a=crash@soon"])
def test_unreadable_failpoints_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        real_failpoints({VARIABLE: text})


def test_leftovers_of_an_atomic_write_are_removed(tmp_path: Path) -> None:
    (tmp_path / "state.0.new").write_bytes(b"half")
    disk = RealDisk(tmp_path)
    assert disk.list("") == []
    assert not (tmp_path / "state.0.new").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_paths_stay_inside_the_directory(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="no path"):
        asyncio.run(RealDisk(tmp_path).append(path, b"x"))


async def test_a_full_disk_keeps_nothing_of_an_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write

    def write_half(fd: int, data: bytes | memoryview) -> int:
        if len(data) > 4:
            return real_write(fd, bytes(data)[:4])
        raise OSError(errno.ENOSPC, "no space left on device")

    disk = RealDisk(tmp_path)
    await disk.append("wal", b"kept")
    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(DiskFull):
        await disk.append("wal", b"12345678")
    with pytest.raises(DiskFull):
        await disk.write_atomic("state", b"12345678")
    assert await disk.read("wal") == b"kept"
    assert disk.list("") == ["wal"]


# ---- wire ----


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True


def make_connection(frames: list[tuple[int, int, bytes]]) -> tuple[FrameProtocol, FakeTransport]:
    protocol = FrameProtocol(lambda _, *frame: frames.append(cast(tuple[int, int, bytes], frame)), lambda _: None)
    transport = FakeTransport()
    protocol._transport = transport
    return protocol, transport


@given(
    sent=st.lists(st.tuples(st.sampled_from(FrameKind), st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=8),
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=20),
)
def test_frames_survive_any_fragmentation(sent: list[tuple[FrameKind, int, bytes]], cuts: list[int]) -> None:
    async def main() -> None:
        received: list[tuple[int, int, bytes]] = []
        protocol, transport = make_connection(received)
        for frame in sent:
            assert protocol.send(*frame)
        protocol._flush()
        stream, turn = transport.written, 0
        while stream:
            cut = cuts[turn % len(cuts)]
            protocol.data_received(stream[:cut])
            stream, turn = stream[cut:], turn + 1
        assert received == sent

    asyncio.run(main())


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 20, b"\xff" * 20])
async def test_a_stream_that_is_not_ours_ends_the_connection(garbage: bytes) -> None:
    received: list[tuple[int, int, bytes]] = []
    protocol, transport = make_connection(received)
    protocol.data_received(garbage)
    assert transport.aborted
    assert received == []


async def echo(peer: Peer, request: bytes) -> bytes:
    if request == b"fail":
        raise RuntimeError("a bug in the handler")
    return request


def ignore(peer: Peer, message: bytes) -> None:
    if message == b"fail":
        raise RuntimeError("a bug in the handler")


def start(tmp_path: Path, name: str, incarnation: int = 1) -> Ports:
    return real_ports(Hello("test", name, incarnation, 1), tmp_path / name, seed=1)


async def test_a_connection_without_a_hello_gets_no_service(tmp_path: Path) -> None:
    listener = await start(tmp_path, "a").network.listen("127.0.0.1:0", echo, ignore)
    host, _, port = listener.address.rpartition(":")
    no_text = b"\x84\xaacluster_id\xa2\xff\xfe"
    no_text += b"\xa7node_id\xa1x\xabincarnation\x01\xa7version\x01"
    for first in (
        b"\x00\x00\x00\x0a\x01" + bytes(8) + b"x",
        b"\x00\x00\x00\x0a\x00" + bytes(8) + b"x",
        (len(no_text) + 9).to_bytes(4) + bytes(9) + no_text,
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(first)
        assert await reader.read() == b""
        writer.close()
    await listener.close()


async def test_calls_work_again_after_the_server_came_back(tmp_path: Path) -> None:
    server, client = start(tmp_path, "a"), start(tmp_path, "b")
    listener = await server.network.listen("127.0.0.1:0", echo, ignore)
    assert await client.network.call(listener.address, b"1", 60) == b"1"
    await server.network.close()
    with pytest.raises((Unreachable, CallLost)):
        await client.network.call(listener.address, b"2", 60)
    again = start(tmp_path, "a", 2)
    await again.network.listen(listener.address, echo, ignore)
    assert await client.network.call(listener.address, b"3", 60) == b"3"
    await client.network.close()
    await again.network.close()


async def test_a_handler_that_raises_loses_its_call_only_and_is_reported(tmp_path: Path) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    server, client = start(tmp_path, "a"), start(tmp_path, "b")
    address = (await server.network.listen("127.0.0.1:0", echo, ignore)).address
    good = asyncio.create_task(client.network.call(address, b"good", 60))
    with pytest.raises(CallLost):
        await client.network.call(address, b"fail", 60)
    client.network.notify(address, b"fail")
    assert await good == b"good"
    assert await client.network.call(address, b"good", 60) == b"good"
    assert [type(error) for error in reported] == [RuntimeError, RuntimeError]
    await client.network.close()
    await server.network.close()


async def test_bytes_that_wait_above_the_limit_drop_no_heartbeats(tmp_path: Path) -> None:
    """G6: above a limit of queued bytes even heartbeats were dropped."""
    heard: list[int] = []
    server, client = start(tmp_path, "a"), start(tmp_path, "b")
    listener = await server.network.listen("127.0.0.1:0", echo, lambda peer, message: heard.append(len(message)))
    while 1 not in heard or 2 not in heard:
        client.network.notify(listener.address, bytes(1), Channel.CONTROL)
        client.network.notify(listener.address, bytes(2), Channel.BULK)
        await asyncio.sleep(0.01)
    for _ in range(100):
        client.network.notify(listener.address, bytes(1 << 20), Channel.BULK)
    client.network.notify(listener.address, bytes(3), Channel.CONTROL)
    while 3 not in heard or 1 << 20 not in heard:
        await asyncio.sleep(0.01)
    assert heard.count(1 << 20) < 20
    await client.network.close()
    await server.network.close()


async def test_closing_while_connecting_is_unreachable_not_cancelled(tmp_path: Path) -> None:
    taken: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda reader, writer: taken.append(writer), "127.0.0.1", 0)
    client = start(tmp_path, "b")
    call = asyncio.create_task(client.network.call(f"127.0.0.1:{silent.sockets[0].getsockname()[1]}", b"x", 60))
    while not taken:
        await asyncio.sleep(0.001)
    await client.network.close()
    with pytest.raises(Unreachable, match="closed"):
        await call
    taken[0].close()
    silent.close()


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_server_that_does_not_greet_is_unreachable(tmp_path: Path, hangs_up: bool) -> None:
    taken: list[asyncio.StreamWriter] = []

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        if hangs_up:
            writer.close()

    silent = await asyncio.start_server(take, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    client = start(tmp_path, "b")
    with pytest.raises(Unreachable):
        await client.network.call(f"127.0.0.1:{port}", b"x", 0.2)
    await client.network.close()
    for writer in taken:
        writer.close()
    silent.close()


def test_a_hello_is_readable_whatever_its_version() -> None:
    hello = Hello("c", "n", 3, 99)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(hello), type=Hello) == hello
