"""The simulated network: links between machines, listeners, faults, and the port each process uses it through."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from typing import Any, TypeAlias

from harness.ports.api import (
    Address,
    CallLost,
    Channel,
    Handler,
    Hello,
    NotifyHandler,
    Peer,
    Refused,
    Unreachable,
    is_stranger,
)
from harness.ports.eager import begin
from harness.ports.machines import CLIENTS, Impairment, ProbeFlow
from harness.ports.sim.draws import Draws
from harness.ports.sim.incarnation import Incarnation, SimHandle
from harness.ports.sim.link import FlowProbe, Link, LinkOptions, impaired
from harness.ports.sim.loop import NO_LIMIT, SimLoop
from harness.ports.sim.tcp import TcpLink
from harness.ports.sim.trace import CALL, NOTIFY, RECORD, REPLY, Trace

LinkPlan: TypeAlias = Callable[[str, str], LinkOptions]
"""The options of the link between two machines, source and target."""

_PROBE_ATTEMPTS = 3
_FIRST_EPHEMERAL_PORT = 30_000


class SimListener:
    """A listening endpoint of one process. Implements `Listener`."""

    __slots__ = ("_address", "_network", "closed", "context", "on_call", "on_notify", "open_calls", "owner", "port")

    def __init__(
        self,
        network: SimNetwork,
        address: Address,
        owner: Incarnation,
        port: SimNetworkPort,
        on_call: Handler,
        on_notify: NotifyHandler,
        context: Context,
    ) -> None:
        self._network = network
        self._address = address
        self.owner = owner
        self.port = port
        self.on_call = on_call
        self.on_notify = on_notify
        self.context = context
        self.closed = False
        self.open_calls: dict[_Call, None] = {}

    @property
    def address(self) -> Address:
        return self._address

    async def close(self) -> None:
        self._network.close_listener(self)


class _Call:
    """A request under way: who asked, over which links, and the future its answer goes to."""

    __slots__ = ("back", "future", "listener", "out", "port")

    def __init__(
        self,
        port: SimNetworkPort,
        future: asyncio.Future[bytes],
        out: Link,
        back: Link,
        listener: SimListener | None,
    ) -> None:
        self.port = port
        self.future = future
        self.out = out
        self.back = back
        self.listener = listener


class MessageHold:
    """The next message from one machine to another that `wanted` says yes to is kept when it arrives."""

    __slots__ = ("_again", "size", "source", "target", "wanted")

    def __init__(self, source: str, target: str, wanted: Callable[[bytes], bool]) -> None:
        self.source, self.target, self.wanted = source, target, wanted
        self.size = 0
        self._again: Callable[[], None] | None = None

    def takes(self, link: Link, message: bytes, again: Callable[[], None]) -> bool:
        """Whether this message is the one; `again` delivers it, to whoever listens then."""
        if self._again is not None or (link.source, link.target) != (self.source, self.target):
            return False
        if not self.wanted(message):
            return False
        self._again, self.size = again, len(message)
        return True

    def release(self) -> Callable[[], None] | None:
        """What delivers the message that is kept, if there is one; it is kept no more."""
        self.size, again = 0, self._again
        return again


class SimNetwork:
    """Every link of the world. Faults name machines; a link that was never touched has its planned options."""

    def __init__(self, loop: SimLoop, plan: LinkPlan, entropy: random.Random, trace: Trace, draws: Draws) -> None:
        self.plan = plan
        self.delivered = 0
        self._loop = loop
        self._entropy = entropy
        self._words, self._payloads = trace.words, trace.payloads
        self._draws = draws
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[Address, SimListener] = {}
        self._client_cuts: dict[tuple[str, str], None] = {}
        self._impaired: dict[tuple[str, str], Impairment] = {}
        self._next_port = _FIRST_EPHEMERAL_PORT
        self._holds: list[MessageHold] = []

    # ---- faults ----

    def hold(self, source: str, target: str, wanted: Callable[[bytes], bool]) -> MessageHold:
        """Keep the next message over this link that is wanted, when it arrives, until it is released."""
        hold = MessageHold(source, target, wanted)
        self._holds.append(hold)
        return hold

    def release(self, hold: MessageHold) -> None:
        """Deliver what was kept, over a connection of its own; a second time does nothing."""
        if hold in self._holds:
            self._holds.remove(hold)
            if (again := hold.release()) is not None:
                self._loop.post(self._loop.now_ns, again, ())

    def _held(self, link: Link, message: bytes, again: Callable[[], None]) -> bool:
        return any(hold.takes(link, message, again) for hold in self._holds)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether the link is cut; either end may be `CLIENTS`."""
        if CLIENTS in (source, target):
            return (source, target) in self._client_cuts
        return self.link(source, target).cut

    def link(self, source: str, target: str) -> Link:
        """The link in this direction, made at first use."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = self._make_link(source, target, self.plan(source, target))
            if (_party(source), _party(target)) in self._client_cuts:
                link.sever()
        return link

    def _make_link(self, source: str, target: str, options: LinkOptions) -> Link:
        draws = self._draws.link(source, target, self._entropy)
        if options.tcp:
            return TcpLink(source, target, options, self._loop, draws, _break_off)
        return Link(source, target, options, self._loop, draws)

    def cut(self, source: str, target: str) -> None:
        """Drop what goes from source to target, and only that: requests may arrive while answers don't.

        `CLIENTS` stands for the machines of all clients, also of those to come.
        """
        self._set_cut(source, target, True)

    def uncut(self, source: str, target: str) -> None:
        self._set_cut(source, target, False)

    def _set_cut(self, source: str, target: str, cut: bool) -> None:
        if CLIENTS not in (source, target):
            _switch(self.link(source, target), cut)
            return
        if cut:
            self._client_cuts[source, target] = None
        else:
            self._client_cuts.pop((source, target), None)
        for link in self._links.values():
            if (_party(link.source), _party(link.target)) == (source, target):
                _switch(link, cut)

    def heal(self) -> None:
        """Undo every cut and every clog."""
        self._client_cuts.clear()
        for link in self._links.values():
            link.restore()
            link.unclog()

    def clog(self, source: str, target: str) -> None:
        """Queue what goes from source to target, until unclogged."""
        self.link(source, target).clog()

    def unclog(self, source: str, target: str) -> None:
        self.link(source, target).unclog()

    def set_link(self, source: str, target: str, options: LinkOptions | None) -> None:
        """Change how one link treats messages; None for what was planned."""
        self.link(source, target).set_options(options if options is not None else self.plan(source, target))

    def impair(self, links: Mapping[tuple[str, str], Impairment]) -> None:
        """Add these impairments to what was planned, and take back those of all other links."""
        before, self._impaired = self._impaired, dict(links)
        for source, target in dict.fromkeys([*before, *links]):
            link, found = self.link(source, target), links.get((source, target))
            if before.get((source, target)) == found:
                continue
            planned = self.plan(source, target)
            link.set_options(planned if found is None else impaired(planned, found))
            if found is not None and found.clogged:
                link.clog()
            else:
                link.unclog()

    async def flow(self, source: str, target: str, count: int, size: int, over_s: float) -> ProbeFlow:
        """What becomes of datagrams that a probe sends over the link from now on."""
        return await FlowProbe(self._loop, self.link(source, target), size).carry_out(count, over_s)

    @property
    def disturbed(self) -> bool:
        """Whether any link is cut, clogged or impaired, beyond what it does by its plan."""
        return bool(self._client_cuts or self._impaired) or any(link.disturbed for link in self._links.values())

    def reset(self) -> None:
        """Heal, and give every link its planned options again."""
        self.heal()
        for link in self._links.values():
            link.set_options(self.plan(link.source, link.target))

    async def probe(self, source: str, target: str, timeout_s: float = 0.5) -> bool:
        """Whether one of a few messages sent now by the source machine arrives at the target machine in time."""
        return (await self._probe([(source, target)], timeout_s))[source, target]

    async def reachability(self, names: Iterable[str], timeout_s: float = 0.5) -> dict[tuple[str, str], bool]:
        """The result of a probe for every ordered pair of different machines, all sent at once."""
        listed = list(names)
        await asyncio.sleep(0)  # what is ready at this moment goes first
        return await self._probe([(a, b) for a in listed for b in listed if a != b], timeout_s)

    async def _probe(self, pairs: list[tuple[str, str]], timeout_s: float) -> dict[tuple[str, str], bool]:
        """One wait for all of them: looks are frequent, and a task for each would cost more than the messages."""
        missing, over = dict.fromkeys(pairs), self._loop.create_future()

        def arrive(link: Link) -> None:
            if not link.cut:
                missing.pop((link.source, link.target), None)
                if not missing:
                    _settle(over, None)

        for source, target in pairs:
            link = self.link(source, target)
            for _ in range(_PROBE_ATTEMPTS):
                link.send_probe(arrive, (link,))
        timer = self._loop.call_later(timeout_s if pairs else 0.0, _settle, over, None)
        try:
            await over
        finally:
            timer.cancel()
        return {pair: pair not in missing for pair in pairs}

    # ---- listening ----

    def listen(
        self, address: Address, port: SimNetworkPort, owner: Incarnation, on_call: Handler, on_notify: NotifyHandler
    ) -> SimListener:
        name, _, number = address.rpartition(":")
        if name != owner.name:
            raise OSError(f"{owner.name} can't listen at {address}")
        if number == "0":
            self._next_port += 1
            address = f"{name}:{self._next_port}"
        if address in self._listeners:
            raise OSError(f"{address} is in use")
        listener = SimListener(self, address, owner, port, on_call, on_notify, owner.context)
        self._listeners[address] = listener
        return listener

    def close_listener(self, listener: SimListener) -> None:
        """Stop listening; callers whose request was delivered learn that the connection is gone."""
        if listener.closed:
            return
        listener.closed = True
        self._listeners.pop(listener.address, None)
        for call in listener.open_calls:
            self._break(call, "the connection broke")
        listener.open_calls.clear()

    def drop(self, owner: Incarnation) -> None:
        """The process is gone: its listeners close."""
        for listener in list(self._listeners.values()):
            if listener.owner is owner:
                self.close_listener(listener)

    # ---- notifications ----

    def notify_connected(
        self, port: SimNetworkPort, link: Link, address: Address, message: bytes, channel: Channel
    ) -> None:
        """Send to the process that listens now, and to no later one."""
        listener = self._listeners.get(address)
        if listener is not None:
            arguments = (listener, port, link, address, message)
            link.send(self._arrive_connected, arguments, len(message), channel=channel)

    def _arrive_connected(
        self, listener: SimListener, port: SimNetworkPort, link: Link, address: Address, message: bytes
    ) -> None:
        """A connection ends with the process at its other end: what was under way to it reaches no later one."""
        if not listener.closed:
            self.arrive_notify(port, link, address, message)

    def arrive_notify(self, port: SimNetworkPort, link: Link, address: Address, message: bytes) -> None:
        """A message has come to whoever listens at the address."""
        listener = self._listeners.get(address)
        if listener is None or link.cut:
            return
        if self._holds and self._held(link, message, lambda: self.arrive_notify(port, link, address, message)):
            return
        if listener.port.cluster != port.cluster and listener.port.refuses(port):
            return
        owner = listener.owner
        self.delivered += 1
        self._words.append(RECORD - (owner.tag << 4) - NOTIFY)
        self._payloads.append(message)
        if owner.blocked:
            owner.hold(SimHandle(listener.on_notify, (port.peer, message), listener.context, owner))
            return
        try:
            listener.context.run(listener.on_notify, port.peer, message)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the receiving node's, and recorded there
            self._loop.fail(owner, error)

    # ---- calls ----

    def start_call(
        self, port: SimNetworkPort, out: Link, back: Link, address: Address, request: bytes
    ) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = self._loop.create_future()
        call = _Call(port, future, out, back, self._listeners.get(address))
        out.send(self._arrive_call, (call, address, request), len(request))
        return future

    def _arrive_call(self, call: _Call, address: Address, request: bytes) -> None:
        listener = call.listener
        if call.out.cut:
            return
        if self._holds and self._held(call.out, request, lambda: self._arrive_late(call, address, request)):
            return
        if listener is None:
            self._end(call, Unreachable(f"nobody listens at {address}"))
        elif listener.port.cluster != call.port.cluster and listener.port.refuses(call.port):
            self._end(call, Refused(f"{address} belongs to {listener.port.cluster}, not to {call.port.cluster}"))
        elif listener.closed:
            self._break(call, f"the connection to {address} broke")
        else:
            self._deliver(call, listener, request)

    def _arrive_late(self, call: _Call, address: Address, request: bytes) -> None:
        """A request comes to whoever listens by now; who asked has given up, or gets the answer."""
        listener = self._listeners.get(address)
        if listener is not None and not listener.port.refuses(call.port):
            self._deliver(call, listener, request)

    def _deliver(self, call: _Call, listener: SimListener, request: bytes) -> None:
        owner, context = listener.owner, listener.context.copy()
        self.delivered += 1
        self._words.append(RECORD - (owner.tag << 4) - CALL)
        self._payloads.append(request)
        listener.open_calls[call] = None
        if owner.blocked:
            owner.hold(SimHandle(self._begin, (call, listener, request), context, owner))
            return
        try:
            context.run(self._begin, call, listener, request)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the receiving node's, and recorded there
            self._loop.fail(owner, error)

    def _begin(self, call: _Call, listener: SimListener, request: bytes) -> None:
        """Most requests are answered at once; a task goes on with those that have to wait."""
        begun = begin(self._serve(call, listener, request))
        if begun is not None:
            self._loop.create_task(begun)

    async def _serve(self, call: _Call, listener: SimListener, request: bytes) -> None:
        try:
            reply = await listener.on_call(call.port.peer, request)
        except Exception as error:  # noqa: BLE001 - a bug of the node's: recorded there, the caller sees a lost call
            listener.owner.fail(error)
            if listener.open_calls.pop(call, self) is None:
                self._break(call, "the handler failed")
            return
        if listener.open_calls.pop(call, self) is None:
            call.back.send(self._arrive_reply, (call, reply), len(reply))

    def _arrive_reply(self, call: _Call, reply: bytes) -> None:
        future = call.future
        if call.back.cut or future.done() or call.port.owner.dead:
            return
        self.delivered += 1
        self._words.append(RECORD - (call.port.owner.tag << 4) - REPLY)
        self._payloads.append(reply)
        future.set_result(reply)

    def _break(self, call: _Call, reason: str) -> None:
        self._end(call, CallLost(reason))

    def _end(self, call: _Call, error: Exception) -> None:
        call.back.send(self._arrive_end, (call, error), 64)

    def _arrive_end(self, call: _Call, error: Exception) -> None:
        if not (call.back.cut or call.future.done() or call.port.owner.dead):
            call.future.set_exception(error)


class SimNetworkPort:
    """The network as one process uses it. Implements `Network`."""

    __slots__ = (
        "_arrive",
        "_calls",
        "_expires_ns",
        "_expiry",
        "_hello",
        "_loop",
        "_network",
        "_routes",
        "cluster",
        "owner",
        "peer",
    )

    def __init__(self, network: SimNetwork, loop: SimLoop, owner: Incarnation, hello: Hello) -> None:
        self.owner = owner
        self.peer = Peer(hello.node_id, hello.incarnation)
        self.cluster = f"{hello.cluster_id} (version {hello.version})"
        self._hello = hello
        self._network = network
        self._loop = loop
        self._routes: dict[Address, tuple[Link, Link]] = {}
        self._arrive = network.arrive_notify
        self._calls: dict[asyncio.Future[bytes], tuple[int, float]] = {}
        self._expiry: SimHandle | None = None
        self._expires_ns = NO_LIMIT

    def refuses(self, other: SimNetworkPort) -> bool:
        """Whether the handshake with another process fails."""
        return self.cluster != other.cluster and is_stranger(self._hello, other._hello)

    async def listen(self, address: Address, on_call: Handler, on_notify: NotifyHandler) -> SimListener:
        self.owner.require_alive()
        return self._network.listen(address, self, self.owner, on_call, on_notify)

    async def call(self, address: Address, request: bytes, timeout_s: float) -> bytes:
        if self.owner.dead:
            self.owner.require_alive()
        out, back = self._routes.get(address) or self._route(address)
        future = self._network.start_call(self, out, back, address, request)
        deadline_ns = self._loop.now_ns + max(0, round(timeout_s * 1e9))
        self._calls[future] = (deadline_ns, timeout_s)
        if deadline_ns < self._expires_ns:
            self._expire_at(deadline_ns)
        try:
            return await future
        finally:
            del self._calls[future]

    def _expire_at(self, deadline_ns: int) -> None:
        """One timer stands for the deadlines of all calls: nearly all are answered long before."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expires_ns = deadline_ns
        self._expiry = self._loop.schedule(deadline_ns, self._expire, (), self.owner.context, self.owner)

    def _expire(self) -> None:
        """Give up the calls whose deadline has come, and look again at the next one."""
        now_ns, next_ns = self._loop.now_ns, NO_LIMIT
        for future, (deadline_ns, timeout_s) in self._calls.items():
            if future.done():
                continue
            if deadline_ns <= now_ns:
                future.set_exception(CallLost(f"no answer within {timeout_s:.3g} s"))
            elif deadline_ns < next_ns:
                next_ns = deadline_ns
        self._expires_ns = NO_LIMIT
        if next_ns < NO_LIMIT:
            self._expire_at(next_ns)

    def notify(self, address: Address, message: bytes, channel: Channel = Channel.LOG) -> None:
        if self.owner.dead:
            return
        link, _ = self._routes.get(address) or self._route(address)
        if link.connected:
            self._network.notify_connected(self, link, address, message, channel)
        else:
            link.send(self._arrive, (self, link, address, message), len(message), True, channel)

    async def close(self) -> None:
        self._network.drop(self.owner)
        for future in list(self._calls):
            if not future.done():
                future.set_exception(CallLost("the network was closed"))

    def _route(self, address: Address) -> tuple[Link, Link]:
        name = address.rpartition(":")[0]
        route = (self._network.link(self.owner.name, name), self._network.link(name, self.owner.name))
        route[0].connect()
        self._routes[address] = route
        return route


def _break_off(args: tuple[Any, ...]) -> None:
    """A message was lost with its connection: the caller of a request learns it."""
    call = args[0]
    if isinstance(call, _Call) and not (call.future.done() or call.port.owner.dead):
        call.future.set_exception(CallLost("the connection broke"))


def _party(machine: str) -> str:
    """The machine, or `CLIENTS` for that of a client: they are named c and a number."""
    return CLIENTS if machine[:1] == "c" and machine[1:].isdecimal() else machine


def _switch(link: Link, cut: bool) -> None:
    if cut:
        link.sever()
    else:
        link.restore()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
