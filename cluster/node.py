"""The node program: a master or a tablet server on the ports it is handed; the same in containers and simulator."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cluster.config import NodeConfig
from cluster.group import OnFailure
from cluster.nodelog import node_logger
from harness.ports import Peer, Ports


class NodeServer(Protocol):
    """What a role's server offers its node; made with (ports, config, on_failure)."""

    async def start(self) -> None:
        """Recover from disk and begin; raises when what is found can't be trusted."""

    async def close(self) -> None:
        """Stop; requests in flight fail."""

    async def on_call(self, peer: Peer, payload: bytes) -> bytes:
        """Answer one request."""

    def on_notify(self, peer: Peer, payload: bytes) -> None:
        """Take one one-way message."""


def make_server(ports: Ports, config: NodeConfig, on_failure: OnFailure) -> NodeServer:
    """The server of the configured role."""
    if config.role == "master":
        from cluster.master.master import Master

        return Master(ports, config, on_failure)
    from cluster.tserver.server import TabletServer

    return TabletServer(ports, config, on_failure)


async def run_node(ports: Ports, config: NodeConfig) -> None:
    """Run a node until cancelled (a graceful stop); raises what makes it unfit to go on (a panic)."""
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: BaseException) -> None:
        if not failure.done():
            failure.set_exception(error)

    log = node_logger(config.node_id)
    log.info("starting as %s, incarnation %d", config.role, ports.incarnation)
    server = make_server(ports, config, fail)
    await server.start()
    listener = await ports.network.listen(config.listen, server.on_call, server.on_notify)
    log.info("listening at %s", listener.address)
    try:
        await failure
    finally:
        await listener.close()
        await server.close()
        await ports.network.close()
        log.info("stopped")
