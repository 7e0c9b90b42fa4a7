"""Q3: what is not reconciled is found by id, by partition and by time, as a plain list of all would tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.quorum.fence import Fence, decode_fence, encode_fence
from cluster.quorum.ids import MutationId
from cluster.quorum.mutation_log import MutationIndex

IDS = st.builds(MutationId, time=st.integers(1, 12), node=st.sampled_from(["t1", "t2"]))
ADDED = st.tuples(IDS, st.sampled_from([b"a", b"b", b"c"]), st.integers(0, 99))


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
