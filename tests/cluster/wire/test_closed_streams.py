"""The side transport's streams: nothing that a receiver holds for closed is ever written under."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.wire import closing
from cluster.wire.closing import ClosedAt, ClosedIn, ClosedOut, ClosedUpdate, QuietAt

RANGES = ("a", "b")
TICK = 10


class Pair:
    """A sender with two ranges, and a receiver that messages come to, late, in any order or never."""

    def __init__(self, *flaws: str) -> None:
        self.out, self.arriving = ClosedOut("s", 1), ClosedIn(frozenset(flaws))
        self.closed = 0
        self.quiet: dict[str, None] = {}
        self.written = {each: [0] for each in RANGES}
        """By range the time of each write, by write index."""
        self.way: list[ClosedUpdate] = []
        self.kept: list[ClosedAt] = []

    def write(self, range_id: str) -> None:
        """As low as may be: just above what is closed, which the range leaves its group with."""
        if range_id in self.quiet:
            del self.quiet[range_id]
            self.out.leave(range_id)
        self.written[range_id].append(self.closed + 1)

    def tick(self) -> None:
        self.closed += TICK
        for each in RANGES:
            if each not in self.quiet:
                self.quiet[each] = None
                self.out.join(each, QuietAt(0, len(self.written[each]) - 1))
        self.send()

    def send(self) -> None:
        update = self.out.message({0: self.closed})
        if update is not None:
            self.way.append(update)

    def deliver(self, at: int, heeds: bool = True) -> None:
        if self.way:
            kept, broken = self.arriving.take(self.way.pop(at % len(self.way)))
            self.kept += kept
            if broken and heeds:
                self.out.afresh()

    def wrong(self) -> list[ClosedAt]:
        """What the receiver holds for closed, and was written to at or below that beyond the write index."""
        told = [*self.kept, *filter(None, map(self.arriving.known, RANGES))]
        return [
            each
            for each in told
            if any(at <= each.closed for at in self.written[each.range_id][each.write_index + 1 :])
        ]


STEPS = st.lists(st.tuples(st.sampled_from(["write", "tick", "deliver", "late", "lose", "deaf"]), st.integers(0, 3)))


@given(steps=STEPS)
def test_nothing_is_written_under_what_a_receiver_holds_for_closed(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    for step, choice in steps:
        if step == "write":
            pair.write(RANGES[choice % 2])
        elif step == "tick":
            pair.tick()
        elif step == "lose":
            del pair.way[:1]
        else:
            pair.deliver(choice if step == "late" else 0, heeds=step != "deaf")
        assert pair.wrong() == []


@given(steps=STEPS)
def test_once_messages_arrive_the_receiver_knows_all_that_is_closed(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    for step, choice in steps:
        {"write": lambda at: pair.write(RANGES[at % 2]), "tick": lambda _: pair.tick()}.get(step, pair.deliver)(choice)
    pair.way.clear()
    for _ in range(3):  # one that shows that something is missing, the one that was asked for, and one that goes on
        pair.tick()
        pair.deliver(0)
    for each in RANGES:
        assert pair.arriving.known(each) == ClosedAt(each, len(pair.written[each]) - 1, pair.closed)


@pytest.mark.parametrize("flaw", [None, "removed-takes-new-time", "side-transport-delta-lost", "old-epoch-counts"])
def test_with_its_flaw_a_receiver_takes_what_was_written_under_for_closed(flaw: str | None) -> None:
    pair = Pair(*filter(None, [flaw]))
    pair.tick()
    pair.deliver(0)
    if flaw in (None, "side-transport-delta-lost"):  # the message is lost in which the range leaves
        pair.write("a")
        pair.closed += TICK
        pair.send()
        pair.way.clear()
        pair.closed += TICK
        pair.send()
        pair.deliver(0)
    if flaw in (None, "old-epoch-counts"):  # a message comes when the stream has begun anew, without the range
        pair.write("a")
        pair.tick()
        pair.out.afresh()
        pair.write("a")
        pair.closed += TICK
        pair.send()
        pair.deliver(1)
        pair.deliver(0)
        pair.closed += TICK
        pair.send()
        pair.deliver(0)
    if flaw in (None, "removed-takes-new-time"):
        pair.write("a")
        pair.closed += TICK
        pair.send()
        pair.deliver(0)
    assert bool(pair.wrong()) == (flaw is not None)


def test_many_ranges_come_with_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "MOST_ADDED", 1)
    pair = Pair()
    pair.tick()
    pair.write("b")
    pair.tick()
    pair.deliver(0)
    assert pair.arriving.known("b") is None and pair.arriving.known("a") is not None
    pair.deliver(0)
    assert pair.arriving.known("b") == ClosedAt("b", 1, pair.closed) and pair.wrong() == []
