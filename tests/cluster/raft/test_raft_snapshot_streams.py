"""Snapshots in chunks, as pure state: resumed, superseded, lost and doubled on the way, begun anew after a crash."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from raft_streams import MemoryStreams, Snapshot

from cluster.raft.snapshots import StreamOptions
from cluster.raft.types import SendSnapshot, SnapshotAck, SnapshotChunk, SnapshotMeta, SnapshotSent
from tests.cluster.raft.raft_rig import MS, founded

OPTIONS = StreamOptions(chunk_bytes=10, window_chunks=3, retry_ns=100 * MS, give_up_ns=1_000 * MS)
DATA = bytes(range(95))


def snapshot(index: int = 7, data: bytes = DATA) -> Snapshot:
    return Snapshot(SnapshotMeta(index, 2, founded("ab")), data)


def order(index: int = 7, term: int = 3) -> SendSnapshot:
    return SendSnapshot("b", term, snapshot(index).meta)


class Pair:
    """A sender `a` and a receiver `b`, with what is under way between them."""

    def __init__(self) -> None:
        self.sender, self.receiver = MemoryStreams("a", OPTIONS), MemoryStreams("b", OPTIONS)
        self.now_ns = 0
        self.flights: list[SnapshotChunk | SnapshotAck] = []
        self.ended: list[SnapshotSent] = []
        self.received: list[Snapshot] = []

    def poll(self) -> None:
        chunks, ended = self.sender.poll(self.now_ns)
        self.flights += chunks
        self.ended += ended

    def deliver(self, message: SnapshotChunk | SnapshotAck) -> None:
        if isinstance(message, SnapshotAck):
            self.sender.on_ack(message, self.now_ns)
            self.poll()
            return
        done = max((snapshot.meta.index for snapshot in self.received), default=0)
        ack, received = self.receiver.on_chunk(message, done)
        self.flights.append(ack)
        if received is not None:
            self.received.append(received)

    def settle(self) -> None:
        while self.flights:
            self.deliver(self.flights.pop(0))

    def wait(self) -> None:
        self.now_ns += OPTIONS.retry_ns
        self.poll()


def test_a_stream_offers_then_fills_its_window_and_ends_when_all_is_there() -> None:
    pair = Pair()
    pair.sender.begin(order(), snapshot(), 0)
    pair.poll()
    assert [(each.offset, each.data) for each in pair.flights if isinstance(each, SnapshotChunk)] == [(0, b"")]
    pair.deliver(pair.flights.pop())
    pair.deliver(pair.flights.pop())
    assert [each.offset for each in pair.flights] == [0, 10, 20]
    pair.settle()
    assert pair.received == [snapshot()]
    assert pair.ended == [SnapshotSent("b", 7, True)]
    assert pair.sender.next_wake_ns() is None


def test_a_stream_that_was_cut_goes_on_where_it_was() -> None:
    pair = Pair()
    pair.sender.begin(order(), snapshot(), 0)
    pair.poll()
    for _ in range(8):
        pair.deliver(pair.flights.pop(0))
    pair.flights.clear()
    again = MemoryStreams("a", OPTIONS)
    again.begin(order(term=4), snapshot(), 0)
    pair.sender = again
    pair.poll()
    offsets = []
    while pair.flights:
        message = pair.flights.pop(0)
        offsets += [message.offset] if isinstance(message, SnapshotChunk) and message.data else []
        pair.deliver(message)
    assert min(offsets) > 0, "what the receiver has is not sent again"
    assert pair.received == [snapshot()]


def test_a_receiver_that_crashed_gets_it_from_the_start() -> None:
    pair = Pair()
    pair.sender.begin(order(), snapshot(), 0)
    pair.poll()
    for _ in range(8):
        pair.deliver(pair.flights.pop(0))
    pair.receiver = MemoryStreams("b", OPTIONS)
    pair.settle()
    assert pair.received == []
    pair.wait()
    pair.settle()
    assert pair.received == [snapshot()]


def test_a_newer_snapshot_replaces_one_on_its_way_and_late_chunks_of_the_old_one_do_no_harm() -> None:
    pair = Pair()
    pair.sender.begin(order(), snapshot(), 0)
    pair.poll()
    for _ in range(6):
        pair.deliver(pair.flights.pop(0))
    late = [each for each in pair.flights if isinstance(each, SnapshotChunk)]
    pair.sender.begin(order(9), snapshot(9, DATA + DATA), 0)
    pair.poll()
    while pair.flights:
        pair.deliver(pair.flights.pop(0))
        if late:
            pair.flights.append(late.pop())
    assert pair.received == [snapshot(9, DATA + DATA)]


def test_a_stream_nobody_answers_is_given_up() -> None:
    pair = Pair()
    pair.sender.begin(order(), snapshot(), 0)
    while not pair.ended:
        pair.wait()
        pair.flights.clear()
    assert pair.ended == [SnapshotSent("b", 7, False)]
    assert pair.now_ns == OPTIONS.give_up_ns


def test_who_has_it_all_committed_wants_none_of_it() -> None:
    pair = Pair()
    ack, received = pair.receiver.on_chunk(SnapshotChunk("a", "b", 3, snapshot().meta, 0, b"", False), 7)
    assert (ack.done, received) == (True, None)


@given(st.data())
def test_whatever_the_network_does_what_arrives_is_what_was_sent(data: st.DataObject) -> None:
    pair = Pair()
    pair.sender.begin(order(), snapshot(), 0)
    pair.poll()
    for _ in range(data.draw(st.integers(0, 60))):
        action = data.draw(st.sampled_from(("deliver", "deliver", "double", "drop", "wait", "crash")))
        if action == "wait":
            pair.wait()
        elif action == "crash":
            pair.receiver = MemoryStreams("b", OPTIONS)
        elif pair.flights:
            chosen = data.draw(st.integers(0, len(pair.flights) - 1))
            message = pair.flights[chosen] if action == "double" else pair.flights.pop(chosen)
            if action != "drop":
                pair.deliver(message)
    for _ in range(30):
        pair.settle()
        if pair.ended == [SnapshotSent("b", 7, False)]:
            # It gave up for want of answers: Raft is told, and begins anew.
            pair.ended.clear()
            pair.sender.begin(order(), snapshot(), pair.now_ns)
            pair.poll()
        elif pair.ended:
            break
        else:
            pair.wait()
    assert pair.received and all(each == snapshot() for each in pair.received)
    assert pair.ended == [SnapshotSent("b", 7, True)]
