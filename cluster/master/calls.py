"""Requests from the leader master to tablet servers: sent after the commit, never awaited, repeated until done (M6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from cluster.master.tservers import ServerMap
from cluster.wire.messages import (
    AlterTablet,
    ChangeReplicas,
    CreateTablet,
    DeleteTablet,
    DoneReply,
    Replica,
    decode_reply,
    encode,
)
from cluster.wire.operating import TransferLeadership
from harness.ports.api import CallLost, Ports, Refused, Unreachable
from harness.ports.failpoints import InjectedFailure, pass_by

CALL_TIMEOUT_S = 2.0

MOST_IN_FLIGHT = 32
"""Calls to one tserver at a time; a table of a thousand tablets is deleted by hundreds."""

TabletRequest: TypeAlias = CreateTablet | AlterTablet | DeleteTablet | ChangeReplicas | TransferLeadership


class ServerCall(NamedTuple):
    """A request to the tablet server of a replica."""

    replica: Replica
    request: TabletRequest


_Key: TypeAlias = tuple[str, str, str]
"""(Tablet server, tablet, what is asked)."""


class ServerCalls:
    """At most one request of a kind in flight per tserver and tablet, and `MOST_IN_FLIGHT` per tserver; others wait.

    What is lost is sent again by the background scan, as long as reports show that it is needed: of a deletion nothing
    but its acknowledgement shows that it is not.
    """

    def __init__(
        self,
        ports: Ports,
        servers: ServerMap,
        on_sent: Callable[[ServerCall], None] = lambda call: None,
        on_done: Callable[[ServerCall], None] = lambda call: None,
    ) -> None:
        """`on_sent` hears of every call that is sent, `on_done` of those that were carried out."""
        self._ports, self._servers, self._on_sent, self._on_done = ports, servers, on_sent, on_done
        self._in_flight: dict[str, dict[_Key, asyncio.Task[None]]] = {}
        """By tablet server, MOST_IN_FLIGHT at the most."""
        self._waiting: dict[str, dict[_Key, ServerCall]] = {}
        """By tablet server, in order of arrival; none of them is in flight."""

    def send(self, calls: Iterable[ServerCall]) -> None:
        """Send those that are not under way, or have them wait for their turn."""
        for call in calls:
            server, key = call.replica.node_id, _key(call)
            waiting = self._waiting.setdefault(server, {})
            if isinstance(call.request, DeleteTablet):
                waiting.pop((server, key[1], CreateTablet.__name__), None)
                waiting.pop((server, key[1], AlterTablet.__name__), None)
            if key not in self._in_flight.get(server, ()):
                waiting[key] = call
        for server in self._waiting:
            self._go_on(server)

    def forget(self) -> None:
        """Leadership was lost: the next leader finds what is to be done in the reports that it gets (M4)."""
        self._waiting.clear()

    def close(self) -> None:
        self._waiting.clear()
        for calls in self._in_flight.values():
            for task in calls.values():
                task.cancel()

    def _go_on(self, server: str) -> None:
        """Begin with those that wait, in their order, as far as there is room."""
        waiting, in_flight = self._waiting.get(server, {}), self._in_flight.setdefault(server, {})
        while waiting and len(in_flight) < MOST_IN_FLIGHT:
            key = next(iter(waiting))
            call = waiting.pop(key)
            address = self._servers.located(call.replica).address
            if address:
                self._on_sent(call)
                in_flight[key] = asyncio.create_task(self._call(key, call, address), name="master.call")

    async def _call(self, key: _Key, call: ServerCall, address: str) -> None:
        try:
            await pass_by(self._ports.failpoints, "master.before_call")
            if isinstance(call.request, ChangeReplicas):
                await pass_by(self._ports.failpoints, "master.before_change")
            reply = decode_reply(await self._ports.network.call(address, encode(call.request), CALL_TIMEOUT_S))
            await pass_by(self._ports.failpoints, "master.after_call")
            if isinstance(reply, DoneReply):
                self._on_done(call)
        except (Unreachable, CallLost, Refused, InjectedFailure):
            pass  # The tserver's reports tell what was done; the next scan sends again what wasn't.
        finally:
            del self._in_flight[key[0]][key]
            self._go_on(key[0])


def _key(call: ServerCall) -> _Key:
    request = call.request
    tablet_id = request.group if isinstance(request, ChangeReplicas | TransferLeadership) else request.tablet_id
    return call.replica.node_id, tablet_id, type(request).__name__
