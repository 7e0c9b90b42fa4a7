"""The addressable log of a replica and its index, against plain lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.quorum.fence import Fence, decode_fence, encode_fence
from cluster.quorum.ids import MutationId
from cluster.quorum.mutation_log import MutationIndex, MutationLog
from cluster.quorum.summaries import summarize
from tests.cluster.quorum.mutations import has_applied

INDEXED = st.builds(MutationId, time=st.integers(1, 12), node=st.sampled_from(["t1", "t2"]))
ADDED = st.tuples(INDEXED, st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 99))


@given(st.lists(ADDED | st.integers(0, 13), max_size=40), st.integers(0, 13), st.integers(0, 13))
def test_it_knows_what_a_plain_list_knows(
    steps: list[tuple[MutationId, bytes, int] | int], low: int, high: int
) -> None:
    index, plain = MutationIndex[int](), {}
    for step in steps:
        if isinstance(step, int):
            gone = index.forget_below(step)
            assert [(each, *found) for each, found in gone] == sorted(
                (each, *found) for each, found in plain.items() if each.time < step
            )
            plain = {each: found for each, found in plain.items() if each.time >= step}
        else:
            each, partition, place = step
            partition = plain[each][0] if each in plain else partition  # an id is of one partition for ever
            assert index.add(each, partition, place) == (each not in plain)
            plain.setdefault(each, (partition, place))
    assert len(index) == len(plain) and all(index.place(each) == place for each, (_, place) in plain.items())
    assert index.between(low, high) == sorted(each for each in plain if low <= each.time < high)
    for partition in (b"a", b"b", b"c"):
        assert sorted(index.of_partition(partition)) == sorted(id for id, (of, _) in plain.items() if of == partition)
    assert MutationId(99, "t1") not in index and index.get(MutationId(99, "t1")) is None


def test_a_fence_comes_back_from_its_bytes() -> None:
    fence = Fence(fence=5, low_bound=3)
    assert decode_fence(encode_fence(fence)) == fence


TIMES = st.integers(1, 9)
IDS = st.builds(MutationId, time=TIMES, node=st.sampled_from(["t1", "t2"]))
STORED = st.tuples(IDS, st.sampled_from([b"a", b"b"]))
STEPS = st.lists(STORED | TIMES, max_size=24)


class Applied:
    """A log, and all that it was ever told, by place."""

    def __init__(self) -> None:
        self.log = MutationLog()
        self.places: dict[int, tuple[MutationId, bytes]] = {}
        self.forgotten = self.last = 0

    def step(self, step: tuple[MutationId, bytes] | int) -> None:
        """A mutation that is stored, or a bound: whatever comes to be after it lies above."""
        if isinstance(step, int):
            self.log.forget_below(step)
            gone = [place for place, (each, _) in self.places.items() if each.time < step]
            self.forgotten = max([self.forgotten, *gone])
        elif step[0].time >= self.log.low_bound and step[0] not in [each for each, _ in self.places.values()]:
            self.last += 1
            self.places[self.last] = step
            self.log.stored(self.last, *step)

    def ids(self, partition: bytes, low: int, behind: int = 0, upto: int = 1 << 30) -> list[MutationId]:
        """Of a partition, with times from `low` on, at places above `behind`, as far as `upto`."""
        found = [(place, each) for place, (each, of) in self.places.items() if of == partition and each.time >= low]
        return [each for place, each in found if behind < place <= upto]


@given(STEPS, st.integers(0, 10), st.integers(0, 24))
def test_a_log_tells_what_was_applied_at_a_moment_or_that_it_can_t(
    steps: list[tuple[MutationId, bytes] | int], bound: int, as_of: int
) -> None:
    applied = Applied()
    for step in steps:
        applied.step(step)
    log, low = applied.log, applied.log.low_bound
    kept = [place for place, (each, _) in applied.places.items() if each.time >= low]
    assert log.needs_from == min(kept, default=None)
    assert log.needed(as_of) == [(place, *applied.places[place]) for place in kept if place <= as_of]
    for each, _ in applied.places.values():
        assert has_applied(log, each)
    assert all(has_applied(log, MutationId(time, "t3")) == (time < low) for time in range(12))
    for partition in (b"a", b"b"):
        assert log.summary(partition) == summarize(applied.ids(partition, low), low)
        for detail in (0, 6):
            from_bound = max(bound, low)
            now = summarize(applied.ids(partition, from_bound), from_bound, detail)
            assert log.summary_of(partition, bound, detail, None) == now
            then = log.summary_of(partition, bound, detail, as_of)
            later = applied.ids(partition, 0, behind=as_of)
            if any(each.time < from_bound for each in later) or applied.forgotten > as_of:
                assert then is None
            else:
                assert then == summarize(applied.ids(partition, from_bound, upto=as_of), from_bound, detail)
        if applied.forgotten > as_of:
            assert log.newer(partition, as_of) is None
        else:
            assert log.newer(partition, as_of) == tuple(applied.ids(partition, 0, behind=as_of))
