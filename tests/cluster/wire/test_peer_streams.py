"""Peer streams between simulated nodes (G6): what travels on which channel, what is gathered, what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from cluster.knobs import Knobs
from cluster.raft.types import AppendEntries, AppendReply, Entry, EntryKind, Message, RequestVote
from cluster.wire.messages import Replica, decode_envelope
from cluster.wire.peers import Arrivals, Followers, PeerStreams, presence
from harness.ports.api import Peer, Ports
from harness.ports.sim import LinkOptions, World

NAMES = ("a", "b")
PLACES = tuple(Replica(name, f"{name}:1") for name in NAMES)


def heartbeat(prev_index: int = 5, read_round: int = 0, sent_ns: int = 1) -> AppendEntries:
    return AppendEntries("a", "b", 3, prev_index, 2, (), prev_index, sent_ns, read_round)


def append(first: int, data: bytes = b"x", read_round: int = 0) -> AppendEntries:
    entry = Entry(3, first, EntryKind.COMMAND, data)
    return AppendEntries("a", "b", 3, first - 1, 2, (entry,), 0, 1, read_round)


def reply(match: int) -> AppendReply:
    return AppendReply("b", "a", 3, True, match, 0, 0, 1, 0)


class Pair:
    """Two nodes with streams to each other; `heard` is what b took in, by group, and `frames` how many messages."""

    def __init__(self, world: World, knobs: Knobs) -> None:
        self.world, self.knobs = world, knobs
        self.streams: dict[str, PeerStreams] = {}
        self.heard: list[tuple[str, Message]] = []
        self.frames: list[int] = []
        for name in NAMES:
            world.node(name).start(lambda ports, name=name: self._main(ports, name))  # type: ignore[misc]

    async def _main(self, ports: Ports, name: str) -> None:
        def deliver(group: str, messages: tuple[Message, ...]) -> None:
            if name == "a":
                return
            self.heard += [(group, message) for message in messages]
            if all(isinstance(message, AppendEntries) for message in messages):
                self.streams["b"].send(group, (reply(7),))

        def on_notify(peer: Peer, payload: bytes) -> None:
            if name == "a":
                self.frames.append(len(decode_envelope(payload).groups))
            streams.receive(peer, payload)

        async def on_call(peer: Peer, payload: bytes) -> bytes:
            return b""

        streams = self.streams[name] = PeerStreams(ports, self.knobs, deliver, PLACES)
        await ports.network.listen(f"{name}:1", on_call, on_notify)
        await asyncio.Event().wait()

    def inside(self, action: Callable[[PeerStreams], None]) -> None:
        """Let node a do something with its streams, in its own process."""
        node = self.world.node("a")
        node._lives[-1].context.run(action, self.streams["a"])


def play(scenario: Callable[[Pair], Awaitable[None]], knobs: Knobs | None = None) -> None:
    with World(1) as world:
        pair = Pair(world, knobs or Knobs())

        async def main() -> None:
            await asyncio.sleep(0.01)
            await scenario(pair)

        world.run(main())
        assert [error for node in world.nodes for error in node.errors] == []


def test_heartbeats_of_all_groups_travel_together_and_so_do_their_answers() -> None:
    async def scenario(pair: Pair) -> None:
        for number in range(50):
            pair.inside(lambda streams, number=number: streams.send(f"g{number}", (heartbeat(),)))  # type: ignore[misc]
        await asyncio.sleep(0.1)
        assert [group for group, _ in pair.heard] == [f"g{number}" for number in range(50)]
        assert pair.frames == [50]

    play(scenario)


def test_a_heartbeat_that_begins_a_round_of_reads_leaves_at_once() -> None:
    followers = Followers()
    assert followers.may_wait("g", heartbeat(read_round=0))
    assert not followers.may_wait("g", heartbeat(read_round=1))
    assert followers.may_wait("g", heartbeat(read_round=1))
    assert not followers.may_wait("h", heartbeat(read_round=1)), "another group has rounds of its own"


def test_entries_are_unanswered_until_the_follower_holds_the_last_of_them() -> None:
    followers = Followers()
    followers.sent("g", append(6))
    followers.sent("g", append(7))
    followers.answered("g", reply(6))
    assert followers.awaits_answer("g", "b")
    followers.answered("h", reply(7))
    assert followers.awaits_answer("g", "b")
    followers.answered("g", reply(7))
    assert not followers.awaits_answer("g", "b")


def test_a_heartbeat_never_overtakes_the_entries_that_it_comes_after() -> None:
    """On a slow link entries wait; the leader's presence arrives at once, its claim about the log after the entries."""

    async def scenario(pair: Pair) -> None:
        pair.world.network.set_link("a", "b", LinkOptions(rate_bytes_per_s=100_000))
        pair.inside(lambda streams: streams.send("g", (append(6, bytes(100_000)), heartbeat(prev_index=6))))
        await asyncio.sleep(0.1)
        assert [message for _, message in pair.heard] == [presence(heartbeat(prev_index=6))]
        await asyncio.sleep(3)
        prev = [message.prev_index for _, message in pair.heard if isinstance(message, AppendEntries)]
        assert prev == [0, 5, 6]

    play(scenario)


def test_votes_do_not_wait_for_entries() -> None:
    async def scenario(pair: Pair) -> None:
        pair.world.network.set_link("a", "b", LinkOptions(rate_bytes_per_s=100_000))
        pair.inside(lambda streams: streams.send("g", (append(6, bytes(200_000)),)))
        pair.inside(lambda streams: streams.send("g", (RequestVote("a", "b", 4, 6, 3, False),)))
        await asyncio.sleep(0.1)
        assert [type(message) for _, message in pair.heard] == [RequestVote]

    play(scenario)


def test_gaps_are_counted_and_what_comes_late_is_counted_back() -> None:
    arrivals = Arrivals()
    for sequence in (0, 1, 4, 2):
        arrivals.take(1, sequence)
    assert arrivals.lost == 1
    arrivals.take(2, 0)
    arrivals.take(2, 1)
    assert arrivals.lost == 1, "a later life of the peer begins a new stream"


def test_losses_show_in_the_status_of_the_receiver() -> None:
    async def scenario(pair: Pair) -> None:
        pair.inside(lambda streams: streams.send("g", (append(6),)))
        await asyncio.sleep(0.05)
        pair.world.network.cut("a", "b")
        for index in range(7, 10):
            pair.inside(lambda streams, index=index: streams.send("g", (append(index),)))  # type: ignore[misc]
        await asyncio.sleep(0.05)
        pair.world.network.heal()
        pair.inside(lambda streams: streams.send("g", (append(10),)))
        await asyncio.sleep(0.05)
        assert [(state.peer, state.channel, state.lost) for state in pair.streams["b"].states()] == [("a", "LOG", 3)]

    play(scenario)
