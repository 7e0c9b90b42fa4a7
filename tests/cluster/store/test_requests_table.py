from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.store.requests import RequestTable
from cluster.wire.messages import RequestId


def test_the_first_answer_is_kept_until_the_client_is_done_with_it() -> None:
    table = RequestTable()
    table.record(RequestId("c", 1, 1), b"one")
    table.record(RequestId("c", 2, 1), b"two")
    assert table.lookup(RequestId("c", 1, 1)) == b"one"
    table.record(RequestId("c", 3, 3), b"three")
    assert table.lookup(RequestId("c", 1, 1)) is None
    assert table.stale(RequestId("c", 2, 1))
    assert not table.stale(RequestId("c", 3, 3))
    assert table.lookup(RequestId("c", 3, 3)) == b"three"
    assert not table.stale(RequestId("d", 1, 1))


RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20), st.integers(0, 15)), max_size=40)


@settings(deadline=None)
@given(records=RECORDS)
def test_a_snapshot_answers_every_request_as_the_table_did(records: list[tuple[str, int, int]]) -> None:
    table = RequestTable()
    for client, sequence, done_below in records:
        request_id = RequestId(client, sequence, min(done_below, sequence))
        if not table.stale(request_id) and table.lookup(request_id) is None:
            table.record(request_id, b"%d" % sequence)
    copy = RequestTable.from_rows(table.rows())
    assert copy.rows() == table.rows()
    for client in "abc":
        for sequence in range(21):
            request_id = RequestId(client, sequence, 0)
            assert copy.lookup(request_id) == table.lookup(request_id)
            assert copy.stale(request_id) == table.stale(request_id)


@settings(deadline=None)
@given(records=RECORDS)
def test_a_request_is_never_both_forgotten_and_new(records: list[tuple[str, int, int]]) -> None:
    table = RequestTable()
    seen: set[tuple[str, int]] = set()
    for client, sequence, done_below in records:
        request_id = RequestId(client, sequence, min(done_below, sequence))
        known = table.stale(request_id) or table.lookup(request_id) is not None
        assert known or (client, sequence) not in seen
        if not known:
            table.record(request_id, b"r")
            seen.add((client, sequence))
