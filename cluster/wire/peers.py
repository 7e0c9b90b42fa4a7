"""Peer streams: how Raft messages travel between two nodes (G6).

Control messages (votes, heartbeats, answers) have a channel of their own and never wait for log entries, nor these for
snapshots. Heartbeats of all groups to one node are gathered for a moment and travel as one message, and so do the
answers to them. Snapshot chunks wait in a bounded queue and leave below a rate.

A heartbeat on a channel of its own could overtake the entries that it comes after, and would be refused as a gap. So
while entries to a follower are unanswered, the heartbeat follows them on their channel, where it tells whether they
were lost, and only the leader's presence travels on the control channel: it agrees with any log.

Groups that are quiescent send nothing; heartbeats between the nodes stand for theirs (`cluster.wire.liveness`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

import msgspec

from cluster.alarm import Alarm
from cluster.knobs import Knobs
from cluster.nodelog import node_logger
from cluster.raft.types import AppendEntries, AppendReply, Message, Quiescence, SnapshotChunk
from cluster.wire.closing import MARK
from cluster.wire.identity import PeerCheck
from cluster.wire.liveness import LeaseEnds, NodeLiveness, WakeGroup
from cluster.wire.messages import (
    GroupMessages,
    PeerEnvelope,
    Replica,
    StreamState,
    decode_envelope,
    encode,
)
from harness.errors import UNDECODABLE
from harness.ports.api import Address, Channel, Peer, Ports, node_of

T = TypeVar("T")

_MS = 1_000_000
_IDLE_NS = 3_600_000 * _MS
_BURST_NS = 50 * _MS
"""An idle queue saves up what it may send in this time, not more."""


class BulkQueue(Generic[T]):
    """Bytes that can wait: at most `limit_bytes` do, none longer than `patience_ns`.

    They leave below `rate_bytes_per_s`, the rate of a token bucket (RFC 2697).
    `dropped` counts what was refused for want of room or has waited too long.
    """

    def __init__(self, rate_bytes_per_s: int, limit_bytes: int, patience_ns: int) -> None:
        self._rate, self._limit, self._patience_ns = rate_bytes_per_s, limit_bytes, patience_ns
        self._waiting: deque[tuple[int, int, T]] = deque()
        self._bytes = 0
        self._free_ns = 0
        self.dropped = 0

    def put(self, item: T, size: int, now_ns: int) -> None:
        """Queue an item of `size` bytes; one alone is always taken."""
        if self._waiting and self._bytes + size > self._limit:
            self.dropped += 1
            return
        self._waiting.append((now_ns + self._patience_ns, size, item))
        self._bytes += size

    def release(self, now_ns: int) -> list[T]:
        """What may leave now, in order."""
        leaving = []
        while self._waiting and (self._free_ns <= now_ns or self._waiting[0][0] <= now_ns):
            deadline_ns, size, item = self._waiting.popleft()
            self._bytes -= size
            if deadline_ns <= now_ns:
                self.dropped += 1
                continue
            leaving.append(item)
            self._free_ns = max(self._free_ns, now_ns - _BURST_NS) + size * 1_000_000_000 // self._rate
        return leaving

    @property
    def next_ns(self) -> int | None:
        """When `release` has something to do, if anything waits."""
        return min(self._free_ns, self._waiting[0][0]) if self._waiting else None


Deliver: TypeAlias = Callable[[str, tuple[Message, ...]], None]
"""Takes the messages of one group in."""

Gathered: TypeAlias = dict[str, list[GroupMessages]]
"""Messages that travel together, by target."""


def presence(heartbeat: AppendEntries) -> AppendEntries:
    """The heartbeat without its claim about the log."""
    return msgspec.structs.replace(heartbeat, prev_index=0, prev_term=0, commit=0)


def spoken(batch: GroupMessages) -> GroupMessages:
    """Messages that say nothing of silence any more: they were sent before support was withdrawn."""
    return GroupMessages(batch.group, tuple(map(_spoken, batch.messages)))


def _spoken(message: Message) -> Message:
    if isinstance(message, AppendEntries) and message.quiesce:
        return msgspec.structs.replace(message, quiesce=False)
    if isinstance(message, AppendReply) and message.quiesced:
        return msgspec.structs.replace(message, quiesced=False)
    return message


class Followers:
    """What the leaders on this node sent to followers: decides how a heartbeat travels; pure."""

    def __init__(self) -> None:
        self._unanswered: dict[tuple[str, str], int] = {}
        self._rounds: dict[tuple[str, str], int] = {}

    def sent(self, group: str, message: AppendEntries) -> None:
        """Entries have left."""
        key = (group, message.target)
        self._unanswered[key] = message.entries[-1].index
        self._rounds[key] = message.read_round

    def answered(self, group: str, reply: AppendReply) -> None:
        """A follower holds everything up to `match`."""
        key = (group, reply.source)
        if reply.success and reply.match >= self._unanswered.get(key, reply.match + 1):
            del self._unanswered[key]

    def awaits_answer(self, group: str, target: str) -> bool:
        """Whether entries to this follower are unanswered: a heartbeat must not overtake them."""
        return (group, target) in self._unanswered

    def may_wait(self, group: str, heartbeat: AppendEntries) -> bool:
        """Whether a heartbeat may be gathered with others: one that begins a round of reads must leave at once."""
        key = (group, heartbeat.target)
        old = self._rounds.get(key, 0) == heartbeat.read_round
        self._rounds[key] = heartbeat.read_round
        return old


class Arrivals:
    """Counts what is missing in the stream of one peer on one channel; a later life of the peer begins a new one.

    `next` is the number that is due in this `epoch`, the life.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.next = 0
        self.lost = 0

    def take(self, epoch: int, sequence: int) -> None:
        """A message has come; one that comes late, after it was counted as lost, is counted back."""
        if epoch != self.epoch:
            self.epoch, self.next = epoch, sequence
        if sequence >= self.next:
            self.lost += sequence - self.next
            self.next = sequence + 1
        else:
            self.lost = max(0, self.lost - 1)


class PeerStreams:
    """The streams of one node to and from all its peers; what goes to an unknown server is dropped."""

    def __init__(
        self,
        ports: Ports,
        knobs: Knobs,
        deliver: Deliver,
        replicas: Iterable[Replica] = (),
        ends: LeaseEnds | None = None,
    ) -> None:
        self._network, self._clock, self._epoch = ports.network, ports.clock, ports.incarnation
        self._log = node_logger(ports.node_id)
        self._server_id = ports.node_id
        self._deliver = deliver
        self._check = PeerCheck(ports.node_id)
        self._heard = self._check.heard
        self._gather_ns = knobs.heartbeat_gather_ms * _MS
        self._addresses: dict[str, Address] = {}
        self._sequences: dict[str, list[int]] = {}
        """By target, the number of the next message on each channel."""
        self._arrivals: dict[tuple[str, int], Arrivals] = {}
        self._followers = Followers()
        self._heartbeats: Gathered = {}
        self._answers: Gathered | None = None
        self.on_aside: Callable[[Peer, bytes], None] = lambda peer, message: None
        """Takes messages of the side transport in."""
        self._bulk: BulkQueue[tuple[str, GroupMessages]] = BulkQueue(
            knobs.bulk_bytes_per_s, knobs.bulk_queue_bytes, knobs.bulk_patience_ms * _MS
        )
        self._liveness = NodeLiveness(
            knobs.raft_heartbeat_ms * _MS, knobs.election_timeout_ms * _MS, self._flush_to, ends
        )
        self._liveness_alarm = Alarm(ports.clock, self._beat)
        self._flush_alarm = Alarm(ports.clock, self._flush)
        self._bulk_alarm = Alarm(ports.clock, self._release)
        self.learn(replicas)

    def post_aside(self, target: str, message: bytes) -> None:
        """Send a message of the side transport to a server, in order with what else is urgent."""
        address = self._addresses.get(target) or self._addresses.get(node_of(target))
        if address is not None:
            self._network.notify(address, MARK + message, Channel.CONTROL)

    def supported(self, server: str) -> int:
        """Up to where that server lets leases of this node's silent groups last (G3)."""
        return self._liveness.supported(server)

    def refuses(self, peer: Peer, source: str) -> bool:
        """Whether this peer can't speak for that server (G9)."""
        return self._check.refusal(peer, [source]) is not None

    @property
    def check(self) -> PeerCheck:
        """Who may speak to this node, for its calls as for its streams (G9)."""
        return self._check

    @property
    def liveness(self) -> NodeLiveness:
        """What the heartbeats between the nodes tell, for the groups that are quiescent."""
        return self._liveness

    def quiesced(self, group: str, change: Quiescence, wake: WakeGroup) -> None:
        """A group falls silent or speaks again; `wake` is called when heartbeats between nodes don't carry it."""
        self._liveness.changed(group, change, wake, self._clock.monotonic_ns())
        self._rearm_liveness()

    @property
    def addresses(self) -> Mapping[str, Address]:
        """Address by server id, as learnt."""
        return self._addresses

    def learn(self, replicas: Iterable[Replica]) -> None:
        """Remember where servers listen; a later address replaces an earlier one.

        A server that nobody has told of is looked for where its node is: it came up there with a new disk.
        """
        for replica in replicas:
            self._addresses[replica.node_id] = replica.address

    def states(self) -> tuple[StreamState, ...]:
        """What was lost on the way from each peer and channel, for the node's status."""
        return tuple(
            StreamState(peer, Channel(channel).name, arrivals.lost)
            for (peer, channel), arrivals in self._arrivals.items()
            if arrivals.lost
        )

    @property
    def dropped(self) -> int:
        """How many snapshot chunks found no room or waited too long here."""
        return self._bulk.dropped

    def close(self) -> None:
        """Send nothing more by itself."""
        self._flush_alarm.cancel()
        self._liveness_alarm.cancel()
        self._bulk_alarm.cancel()

    # ---- sending ----

    def send(self, group: str, messages: tuple[Message, ...]) -> None:
        """Send each message to its target; in order on each channel."""
        for message in messages:
            if type(message) is AppendEntries:
                self._send_append(group, message)
            elif type(message) is SnapshotChunk:
                self._send_bulk(group, message)
            elif self._answers is not None:
                _gather(self._answers, group, message)
            else:
                self._post(message.target, Channel.CONTROL, (GroupMessages(group, (message,)),))

    def _send_append(self, group: str, message: AppendEntries) -> None:
        alone = (GroupMessages(group, (message,)),)
        if message.entries:
            self._followers.sent(group, message)
            self._post(message.target, Channel.LOG, alone)
            return
        heartbeat = message
        if self._followers.awaits_answer(group, message.target):
            self._post(message.target, Channel.LOG, alone)
            heartbeat = presence(message)
        if self._followers.may_wait(group, heartbeat) and self._gather_ns:
            if not self._heartbeats:
                self._flush_alarm.set(self._clock.monotonic_ns() + self._gather_ns)
            _gather(self._heartbeats, group, heartbeat)
        else:
            self._post(message.target, Channel.CONTROL, (GroupMessages(group, (heartbeat,)),))

    def _send_bulk(self, group: str, chunk: SnapshotChunk) -> None:
        now_ns = self._clock.monotonic_ns()
        self._bulk.put((chunk.target, GroupMessages(group, (chunk,))), len(chunk.data), now_ns)
        self._release()

    def _release(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for target, batch in self._bulk.release(now_ns):
            self._post(target, Channel.BULK, (batch,))
        next_ns = self._bulk.next_ns
        self._bulk_alarm.set(now_ns + _IDLE_NS if next_ns is None else next_ns)

    def _post_all(self, gathered: Gathered) -> None:
        for target, batch in gathered.items():
            self._post(target, Channel.CONTROL, tuple(batch))

    def _flush(self) -> None:
        heartbeats, self._heartbeats = self._heartbeats, {}
        self._post_all(heartbeats)
        self._flush_alarm.set(self._clock.monotonic_ns() + _IDLE_NS)

    def _flush_to(self, target: str) -> None:
        """Send what waits for others, before what comes next says something else about silence."""
        for gathered in (self._heartbeats, self._answers or {}):
            if batch := gathered.pop(target, None):
                self._post(target, Channel.CONTROL, tuple(batch))

    def _beat(self) -> None:
        """Tell those that follow silent groups from here that this node is alive."""
        now_ns = self._clock.monotonic_ns()
        for server in self._liveness.poll(now_ns):
            self._post(server, Channel.CONTROL, (), now_ns, 0, self._liveness.next_end())
        self._rearm_liveness()

    def _rearm_liveness(self) -> None:
        next_ns = self._liveness.next_ns()
        self._liveness_alarm.set(self._clock.monotonic_ns() + _IDLE_NS if next_ns is None else next_ns)

    def _post(
        self,
        target: str,
        channel: Channel,
        groups: tuple[GroupMessages, ...],
        heartbeat_ns: int = 0,
        echo_ns: int = 0,
        until: int = 0,
    ) -> None:
        address = self._addresses.get(target) or self._addresses.get(node_of(target))
        if address is None:
            return
        sequences = self._sequences.get(target)
        if sequences is None:
            sequences = self._sequences[target] = [0] * len(Channel)
        sequence = sequences[channel]
        sequences[channel] = sequence + 1
        withdrawals = self._liveness.withdrawals(target)
        envelope = PeerEnvelope(
            self._server_id, self._epoch, channel, sequence, groups, withdrawals, heartbeat_ns, echo_ns, until
        )
        self._network.notify(address, encode(envelope), channel)

    # ---- receiving ----

    def receive(self, peer: Peer, payload: bytes) -> None:
        """Take one message of a peer in; refused is a peer that can't be who it says (G9), and what is no message."""
        if payload[:1] == MARK:
            self.on_aside(peer, payload[1:])
            return
        try:
            envelope = decode_envelope(payload)
        except UNDECODABLE as error:
            self._log.warning("a message of %s is no envelope: %s", peer.node_id, error)
            return
        source, groups = envelope.source, envelope.groups
        welcome = source == peer.node_id and self._heard.get(source) == peer.incarnation
        for batch in groups:
            for message in batch.messages:
                if message.source != source:
                    welcome = False
        if not welcome and self._refuses(peer, envelope):
            return
        arrivals = self._arrivals.get((peer.node_id, envelope.channel))
        if arrivals is None:
            arrivals = self._arrivals[peer.node_id, envelope.channel] = Arrivals()
        if arrivals.next == envelope.sequence and arrivals.epoch == envelope.epoch:
            arrivals.next += 1
        else:
            arrivals.take(envelope.epoch, envelope.sequence)
        current = self._liveness.take_in(source, envelope.epoch, envelope.withdrawals)
        if current and (envelope.heartbeat_ns or envelope.echo_ns):
            self._on_beat(envelope)
        self._answers = {} if len(groups) > 1 else None
        try:
            for batch in groups if current else map(spoken, groups):
                for message in batch.messages:
                    if type(message) is AppendReply:
                        self._followers.answered(batch.group, message)
                self._deliver(batch.group, batch.messages)
        finally:
            answers, self._answers = self._answers, None
            if answers:
                self._post_all(answers)

    def _refuses(self, peer: Peer, envelope: PeerEnvelope) -> bool:
        sources = [message.source for batch in envelope.groups for message in batch.messages]
        return self._check.refusal(peer, [*sources, envelope.source]) is not None

    def _on_beat(self, envelope: PeerEnvelope) -> None:
        now_ns = self._clock.monotonic_ns()
        if envelope.heartbeat_ns:
            self._liveness.on_heartbeat(envelope.source, now_ns, envelope.until)
            self._post(envelope.source, Channel.CONTROL, (), 0, envelope.heartbeat_ns, envelope.until)
        else:
            self._liveness.on_echo(envelope.source, envelope.echo_ns, now_ns, envelope.until)


def _gather(gathered: Gathered, group: str, message: Message) -> None:
    gathered.setdefault(message.target, []).append(GroupMessages(group, (message,)))
