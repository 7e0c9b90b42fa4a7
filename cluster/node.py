"""The node program: a master or a tablet server on the ports it is handed; the same in containers and simulator."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from cluster.config import NodeConfig, load_config
from cluster.groups.spec import OnFailure
from cluster.log.envelope import CorruptLog, read_twice, twice
from cluster.log.frames import OtherVersion
from cluster.log.paced import until_space
from cluster.log.segments import check_version
from cluster.nodelog import ClockFormatter, node_logger
from cluster.observer import UNOBSERVED, Observer
from cluster.store.clock_guard import ClockLimits
from cluster.store.node_clock import NodeClock
from cluster.wire.clocked import ClockedNetwork
from cluster.wire.identity import ForeignDisk, format_disk, identify, named_cluster, read_identity
from cluster.wire.known_masters import KnownMasters, telling
from cluster.wire.messages import WIRE_VERSION
from harness.errors import UserError
from harness.ports.api import Address, Clock, DiskFull, Hello, Listener, Peer, Ports
from harness.ports.real.disk import RealDisk
from harness.ports.real.ports import RealClock, real_ports

INCARNATION_FILE = "incarnation"

T = TypeVar("T")

_YOUNG_OBJECTS, _YOUNG_PASSES = 700, 10
_GARBAGE_S, _LONG_S = 0.25, 0.002
_INCARNATION_KIND = 18

_UNUSABLE: tuple[tuple[type[Exception], int, str], ...] = (
    (OtherVersion, 254, "start the program that wrote it, or give the node an empty data_dir"),
    (ForeignDisk, 254, "give the node a data_dir of its own"),
    (CorruptLog, 1, "keep the directory aside and give the node an empty one, on which it begins as a new server"),
)
"""What is wrong with a data directory, with the exit code and what to do."""


class NodeServer(Protocol):
    """What a role's server offers its node; made with (ports, config, on_failure, observer)."""

    async def start(self) -> None:
        """Recover from disk and begin; raises when what is found can't be trusted."""

    async def close(self) -> None:
        """Stop; requests in flight fail."""

    async def on_call(self, peer: Peer, payload: bytes) -> bytes:
        """Answer one request."""

    def on_notify(self, peer: Peer, payload: bytes) -> None:
        """Take one one-way message."""

    def masters(self) -> KnownMasters:
        """Who the masters are, as far as is known here (G1)."""


def make_server(
    ports: Ports, config: NodeConfig, on_failure: OnFailure, observer: Observer, clock: NodeClock
) -> NodeServer:
    """The server of the configured role."""
    if config.role == "master":
        from cluster.master.master import Master

        return Master(ports, config, on_failure, observer, clock)
    from cluster.tserver.server import TabletServer

    return TabletServer(ports, config, on_failure, observer, clock)


async def run_node(ports: Ports, config: NodeConfig, observer: Observer = UNOBSERVED) -> None:
    """Run a node until cancelled (a graceful stop); raises what makes it unfit to go on (a panic).

    Everything in it goes by the server id that its disk says. `observer` is told of the decisive events of this life.
    """
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: BaseException) -> None:
        if not failure.done():
            failure.set_exception(error)

    server_id = await _once_there_is_room(
        lambda: identify(ports.disk, config.cluster_id, config.node_id, ports.entropy, config.flaws),
        ports.clock,
        config,
    )
    ports, config = replace(ports, node_id=server_id), msgspec.structs.replace(config, node_id=server_id)
    log = node_logger(server_id)
    log.info("starting as %s, incarnation %d", config.role, ports.incarnation)
    limits = ClockLimits.of(config.knobs)
    clock = NodeClock(ports.clock, limits, config.node_id)
    observer.clock_made(clock.readings, limits.max_offset_ns)
    ports = replace(ports, network=ClockedNetwork(ports.network, clock, ports.failpoints))
    server = make_server(ports, config, fail, observer, clock)
    await server.start()
    listener = await _listen(ports, config.listen, server)
    log.info("listening at %s", listener.address)
    try:
        await failure
    finally:
        await listener.close()
        await server.close()
        await ports.network.close()
        log.info("stopped")


async def _once_there_is_room(store: Callable[[], Awaitable[T]], clock: Clock, config: NodeConfig) -> T:
    """What storing gives; a disk that is full is waited for (G7), and the log says so."""
    try:
        return await store()
    except DiskFull:
        node_logger(config.node_id).warning("the disk is full: the node starts once there is room")
        retry_s = config.knobs.disk_retry_ms / 1e3
        await clock.sleep(retry_s)
        return await until_space(store, clock, retry_s)


async def _listen(ports: Ports, address: Address, server: NodeServer) -> Listener:
    try:
        return await ports.network.listen(address, telling(server.on_call, server.masters), server.on_notify)
    except OSError as error:
        raise UserError(f"The node can't listen at {address}: {error.strerror or error}.") from error
    except (ValueError, OverflowError) as error:
        raise UserError(f"The node can't listen at {address}: that is not HOST:PORT.") from error


# ---- the real entry ----


@contextmanager
def sole_process(directory: Path) -> Iterator[None]:
    """Keep every other process out of the data directory, as long as this one lives; raises UserError if one is in."""
    descriptor = _opened(directory)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"Another process uses the data directory {directory}.") from None
    finally:
        os.close(descriptor)


def _opened(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"The data directory {directory} can't be used: {error.strerror}.") from error


async def next_incarnation(directory: Path) -> int:
    """Count this start in the node's data directory; durable when it returns.

    An empty directory counts on from the microseconds since the epoch: above every incarnation that the node had
    before its disk was replaced, which peers remember.
    """
    with closing(RealDisk(directory)) as disk:
        known = INCARNATION_FILE in disk.list(INCARNATION_FILE)
        before = RealClock().wall_ns() // 1_000
        if known:
            before = int(await read_twice(disk, INCARNATION_FILE, _INCARNATION_KIND))
        incarnation = before + 1
        await disk.write_atomic(INCARNATION_FILE, twice(_INCARNATION_KIND, b"%d" % incarnation))
    return incarnation


async def tend_garbage() -> None:
    """Collect garbage, for ever; a state so large that this begins to take long is left out from then on.

    A full collection takes 20 ms for each 65 536 cells, in one turn of the event loop, and finds nothing there.
    """
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_PASSES, 1_000_000_000)
    while True:
        began_s = time.thread_time()
        gc.collect()
        if time.thread_time() - began_s > _LONG_S:
            gc.freeze()
        await asyncio.sleep(_GARBAGE_S)


async def run_process(config: NodeConfig) -> None:
    """Run a node on the machine it is started on until SIGTERM or SIGINT."""
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        await _run_on_machine(config)
    except asyncio.CancelledError:
        return


async def _run_on_machine(config: NodeConfig) -> None:
    with closing(RealDisk(Path(config.data_dir))) as disk:
        # Nothing is counted on a disk that is another's, or of another version.
        await read_identity(disk, config.cluster_id, config.node_id)
        await check_version(disk)
    incarnation = await _once_there_is_room(lambda: next_incarnation(Path(config.data_dir)), RealClock(), config)
    hello = Hello(named_cluster(config.cluster_id, config.flaws), config.node_id, incarnation, WIRE_VERSION)
    seed = random.Random(f"{config.seed}/{config.node_id}/{incarnation}").getrandbits(64)
    ports = real_ports(hello, config.data_dir, config.torture, seed)
    tending = asyncio.create_task(tend_garbage())
    try:
        await run_node(ports, config)
    finally:
        tending.cancel()


async def format_process(config: NodeConfig) -> None:
    """Format the data directory, as part of the node's installation."""
    with closing(RealDisk(Path(config.data_dir))) as disk:
        await format_disk(disk, config.cluster_id, config.node_id)


def main(arguments: Sequence[str]) -> int:
    """`python -m cluster.node [--format] CONFIG.json`; 0 after a graceful stop, 1 after a panic, 254 for bad input.

    `--format` makes the data directory that of this node and ends.
    """
    formats, arguments = arguments[:1] == ["--format"], [each for each in arguments if each != "--format"]
    handler = logging.StreamHandler()
    handler.setFormatter(ClockFormatter(RealClock()))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    log = logging.getLogger("cluster")
    import uvloop  # the simulator, which comes here too, has a loop of its own

    try:
        config = _read_config(arguments)
    except UserError as error:
        log.error("%s", error)
        return 254
    try:
        with sole_process(Path(config.data_dir)):
            uvloop.run(format_process(config) if formats else run_process(config))
    except UserError as error:
        log.error("%s", error)
        return 254
    except tuple(kind for kind, _, _ in _UNUSABLE) as error:
        return _tell_unusable(log, config, error)
    except Exception:  # whatever it was, the node is unfit to go on: say so in its log and end as a crash
        log.exception("%s: the node stops", config.node_id)
        return 1
    return 0


def _tell_unusable(log: logging.Logger, config: NodeConfig, error: Exception) -> int:
    code, remedy = next((code, remedy) for kind, code, remedy in _UNUSABLE if isinstance(error, kind))
    log.error("%s: in the data directory %s, %s; %s.", config.node_id, config.data_dir, error, remedy)
    return code


def _read_config(arguments: Sequence[str]) -> NodeConfig:
    if len(arguments) != 1:
        raise UserError("Give one argument: the node's configuration file.")
    try:
        config = load_config(Path(arguments[0]).read_bytes())
    except OSError as error:
        raise UserError(f"The configuration {arguments[0]} can't be read: {error.strerror}.") from error
    if not config.data_dir:
        raise UserError("The configuration names no data_dir.")
    return config


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
