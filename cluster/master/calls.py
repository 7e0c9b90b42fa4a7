"""Requests from the leader master to tablet servers: sent after the commit, never awaited, repeated by nudges (M6)."""

from __future__ import annotations

import asyncio

from cluster.master.tservers import ServerMap
from cluster.wire.messages import CreateTablet, DeleteTablet, Replica, encode
from harness.failpoints import InjectedFailure, pass_by
from harness.ports import CallLost, Ports, Refused, Unreachable

CALL_TIMEOUT_S = 2.0


class ServerCalls:
    """At most one request in flight per tserver and tablet; what fails is sent again by the next scan or report."""

    def __init__(self, ports: Ports, servers: ServerMap) -> None:
        self._ports = ports
        self._servers = servers
        self._in_flight: dict[tuple[str, str], asyncio.Task[None]] = {}

    def create(self, replica: Replica, request: CreateTablet) -> None:
        self._send(replica, request.tablet_id, encode(request))

    def delete(self, replica: Replica, tablet_id: str) -> None:
        self._send(replica, tablet_id, encode(DeleteTablet(tablet_id)))

    def close(self) -> None:
        for task in self._in_flight.values():
            task.cancel()

    def _send(self, replica: Replica, tablet_id: str, payload: bytes) -> None:
        key = (replica.node_id, tablet_id)
        address = self._servers.located(replica).address
        if address and key not in self._in_flight:
            self._in_flight[key] = asyncio.create_task(self._call(key, address, payload))

    async def _call(self, key: tuple[str, str], address: str, payload: bytes) -> None:
        try:
            await pass_by(self._ports.failpoints, "master.before_call")
            await self._ports.network.call(address, payload, CALL_TIMEOUT_S)
            await pass_by(self._ports.failpoints, "master.after_call")
        except (Unreachable, CallLost, Refused, InjectedFailure):
            pass  # The tserver's reports tell what was done; the next scan sends again what wasn't.
        finally:
            del self._in_flight[key]
