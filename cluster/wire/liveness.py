"""Node liveness (G6): heartbeats between two nodes that stand for those of all quiescent groups between them; pure.

`cluster.raft.quiescence` tells what a group's silence stands on. Between two nodes there is one *support*: it carries
the silence of all groups that one of the two leads and the other follows. Either node *withdraws* it by counting on its
number of withdrawals, which travels with everything that the node sends; then every group between the two wakes. It is
withdrawn when a replica ends its silence against the will of its leader, when a leader is none any more or its replica
stops, and when the other node is silent for an election timeout. A later life of a node supports nothing of what an
earlier one did.

A node whose leaders are silent sends each node that follows them a heartbeat per interval, and gets it echoed, whatever
the number of the groups. CockroachDB's store liveness does the same with epochs.

A heartbeat also says up to where its sender asks for its leases to last, and its echo promises that much for every
group that is silent between the two (G3): the record of no lease has to be renewed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from cluster.raft.types import NodeId, Quiescence, Silence

NEVER_NS = -(1 << 62)

WakeGroup: TypeAlias = Callable[[], None]


class LeaseEnds(Protocol):
    """What a node's clock says of the ends of leases, as data timestamps."""

    def next_end(self) -> int:
        """Up to where this node asks for its leases to last, by its last reading."""

    def before_start(self) -> int | None:
        """No earlier life of this node has promised more; None while the clock has not been proven."""


class NoLeases:
    """Of a node whose groups have no lease records."""

    def next_end(self) -> int:
        """None is ever promised."""
        return 0

    def before_start(self) -> int | None:
        """None was ever promised."""
        return 0


@dataclass(slots=True)
class Support:
    """What stands between this node and another one. Times are of this node's clock."""

    # How often this node has withdrawn its support from the other one.
    withdrawals: int = 0
    # The (incarnation, withdrawals) heard of the other one last. Never falls.
    peer: tuple[int, int] | None = None
    # Silent groups that this node leads and that the other one leads, and since when there are any.
    led: dict[str, WakeGroup] = field(default_factory=dict)
    followed: dict[str, WakeGroup] = field(default_factory=dict)
    led_since_ns: int = NEVER_NS
    followed_since_ns: int = NEVER_NS
    # When its last heartbeat came in; when the newest heartbeat that it has echoed was sent; when the last echo came.
    heard_ns: int = NEVER_NS
    echoed_ns: int = NEVER_NS
    echo_came_ns: int = NEVER_NS
    # The highest ends of leases that this node has echoed, and that the other one has.
    promised: int = 0
    supported: int = 0

    def ends_ns(self, patience_ns: int) -> int | None:
        """When it will have been in vain for too long, if nothing more is heard."""
        ends = []
        if self.led:
            ends.append(max(self.led_since_ns, self.echo_came_ns) + patience_ns)
        if self.followed:
            ends.append(max(self.followed_since_ns, self.heard_ns) + patience_ns)
        return min(ends, default=None)


class NodeLiveness:
    """All supports of one node. Times are ns of its monotonic clock; implements `cluster.raft.types.Liveness`.

    `before_withdrawal` is called with a server before the number of withdrawals from it rises: what was said before
    must leave under the old one. `ends` says what the heartbeats of this node offer.
    """

    def __init__(
        self,
        interval_ns: int,
        patience_ns: int,
        before_withdrawal: Callable[[NodeId], None],
        ends: LeaseEnds | None = None,
    ) -> None:
        self._ends: LeaseEnds = ends or NoLeases()
        self.next_end = self._ends.next_end
        """What a heartbeat of this node offers."""
        self._interval_ns, self._patience_ns = interval_ns, patience_ns
        self._before_withdrawal = before_withdrawal
        self._supports: dict[NodeId, Support] = {}
        self._asked: dict[str, tuple[NodeId, ...]] = {}
        """Whom each group led here has ever asked for silence: they may be bound still."""
        self._due_ns = NEVER_NS

    def _support(self, server: NodeId) -> Support:
        support = self._supports.get(server)
        if support is None:
            support = self._supports[server] = Support()
        return support

    # ---- what groups ask and tell ----

    def heard_ns(self, server: NodeId) -> int:
        """When the last heartbeat of that node came in."""
        return self._support(server).heard_ns

    def echoed_ns(self, server: NodeId) -> int:
        """When the newest heartbeat was sent that the other node has answered since support was withdrawn last."""
        return self._support(server).echoed_ns

    def promised(self, server: NodeId) -> int:
        """The highest end that this node has echoed to the other one, in this life."""
        return self._support(server).promised

    def supported(self, server: NodeId) -> int:
        """The highest end that the other node has echoed since support was withdrawn last."""
        return self._support(server).supported

    def before_start(self) -> int | None:
        """No earlier life of this node has promised more; None while its clock has not been proven."""
        return self._ends.before_start()

    def changed(self, group: str, change: Quiescence, wake: WakeGroup, now_ns: int) -> None:
        """A group's silence begins or ends; `wake` is called once if its support ends first."""
        match change.silence:
            case Silence.LEADS:
                self._asked[group] = change.servers
                for server in change.servers:
                    support = self._support(server)
                    if not support.led:
                        support.led_since_ns = self._due_ns = now_ns
                    support.led[group] = wake
            case Silence.FOLLOWS:
                for server in change.servers:
                    support = self._support(server)
                    if not support.followed:
                        support.followed_since_ns = now_ns
                    support.followed[group] = wake
            case Silence.RESUMED:
                self._forget(group)
            case Silence.WITHDRAWN:
                followed = [server for server, support in self._supports.items() if group in support.followed]
                self._forget(group)
                for server in (*self._asked.pop(group, ()), *followed):
                    self._withdraw(server)

    def _forget(self, group: str) -> None:
        for support in self._supports.values():
            support.led.pop(group, None)
            support.followed.pop(group, None)

    def _withdraw(self, server: NodeId) -> None:
        self._before_withdrawal(server)
        support = self._support(server)
        support.withdrawals += 1
        self._end(support)

    def _end(self, support: Support) -> None:
        """Every group between the two nodes wakes; first each counts the echoes that were given until now, but
        not the ends of leases in them: less is used then."""
        groups = [*support.led.values(), *support.followed.values()]
        support.led.clear()
        support.followed.clear()
        for wake in groups:
            wake()
        support.echoed_ns, support.supported = NEVER_NS, 0

    # ---- what the streams ask and tell ----

    def withdrawals(self, server: NodeId) -> int:
        """What everything that is sent to this server must carry."""
        return (self._supports.get(server) or self._support(server)).withdrawals

    def take_in(self, server: NodeId, incarnation: int, withdrawals: int) -> bool:
        """What a message from this server carries; False if it is older than what was heard: it says nothing of now."""
        support, peer = self._supports.get(server) or self._support(server), (incarnation, withdrawals)
        if peer == support.peer:
            return True
        if support.peer is not None and peer < support.peer:
            return False
        support.peer = peer
        self._end(support)
        return True

    def on_heartbeat(self, server: NodeId, now_ns: int, until: int) -> None:
        """A heartbeat came in that was not older; the caller echoes it, which promises `until`."""
        support = self._support(server)
        support.heard_ns = now_ns
        if until > support.promised:
            support.promised = until

    def on_echo(self, server: NodeId, sent_ns: int, now_ns: int, until: int) -> None:
        """The echo, not older, of the heartbeat that was sent then and offered `until`."""
        support = self._support(server)
        if sent_ns > support.echoed_ns:
            support.echoed_ns = sent_ns
        if until > support.supported:
            support.supported = until
        support.echo_came_ns = now_ns

    def poll(self, now_ns: int) -> list[NodeId]:
        """Withdraw support from who is silent; whom to send a heartbeat now."""
        for server, support in list(self._supports.items()):
            ends_ns = support.ends_ns(self._patience_ns)
            if ends_ns is not None and ends_ns <= now_ns:
                self._withdraw(server)
        if now_ns < self._due_ns:
            return []
        self._due_ns = now_ns + self._interval_ns
        return [server for server, support in self._supports.items() if support.led]

    def next_ns(self) -> int | None:
        """When `poll` has something to do, if ever."""
        times = [end for each in self._supports.values() if (end := each.ends_ns(self._patience_ns)) is not None]
        if any(support.led for support in self._supports.values()):
            times.append(self._due_ns)
        return min(times, default=None)
