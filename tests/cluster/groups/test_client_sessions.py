"""Client sessions (G8) against the plainest model of exactly-once: a record of what was ever carried out."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cluster.groups.sessions import FORGOTTEN, SESSION_ENDED, RegisterClient, SessionLimits, Sessions
from cluster.wire.messages import RequestId
from tests.cluster.frozen import session_rows, sessions_of

LIMITS = SessionLimits(silence_ns=100, sessions=3, answers=4)


def opened(
    *sessions: int, at: int = 0, limits: SessionLimits = LIMITS, flaws: frozenset[str] = frozenset()
) -> Sessions:
    table = Sessions(flaws)
    for session in sessions:
        table.register(session, RegisterClient(0, limits))
    return table


def test_the_first_answer_is_kept_until_the_client_is_done_with_it() -> None:
    table = opened(1, 2)
    assert table.answered(RequestId(1, 1, 1)) is None
    table.record(RequestId(1, 1, 1), b"one")
    table.record(RequestId(1, 2, 1), b"two")
    assert table.answered(RequestId(1, 1, 1)) == b"one"
    table.record(RequestId(1, 3, 3), b"three")
    assert table.answered(RequestId(1, 1, 1)) == FORGOTTEN
    assert table.answered(RequestId(1, 3, 3)) == b"three"
    assert table.answered(RequestId(2, 1, 1)) is None


def test_an_ended_session_differs_from_a_new_one() -> None:
    table = opened(1)
    table.record(RequestId(1, 1, 1), b"one")
    table.register(2, RegisterClient(101, LIMITS))
    assert table.answered(RequestId(1, 1, 1)) == SESSION_ENDED
    assert table.answered(RequestId(1, 2, 1)) == SESSION_ENDED
    assert table.answered(RequestId(99, 1, 1)) == SESSION_ENDED
    assert table.answered(RequestId(2, 1, 1)) is None


def test_a_session_lives_as_long_as_it_is_used_and_no_clock_that_goes_back_prolongs_it() -> None:
    table = opened(1, 2)
    for time in (90, 180, 270, 50, 300):
        table.advance(time)
        if table.answered(RequestId(1, time, time)) is None:
            table.record(RequestId(1, time, time), b"")
    assert table.time == 300
    assert table.answered(RequestId(1, 301, 1)) is None
    assert table.answered(RequestId(2, 1, 1)) == SESSION_ENDED


def test_the_least_recently_used_session_makes_room() -> None:
    table = opened(1, 2, 3)
    table.record(RequestId(1, 1, 1), b"one")
    table.register(4, RegisterClient(0, LIMITS))
    assert table.answered(RequestId(2, 1, 1)) == SESSION_ENDED
    assert table.answered(RequestId(1, 1, 1)) == b"one"
    assert len(table) == 3


def test_answers_are_bounded_also_where_the_client_is_never_done() -> None:
    table = opened(1)
    for sequence in range(1, 10):
        table.record(RequestId(1, sequence, 1), b"%d" % sequence)
    assert [table.answered(RequestId(1, sequence, 1)) for sequence in (1, 5)] == [FORGOTTEN, FORGOTTEN]
    assert table.answered(RequestId(1, 6, 1)) == b"6"
    assert len(session_rows(table).sessions[0][3]) == LIMITS.answers


def test_clients_that_are_gone_leave_nothing_behind() -> None:
    """G8: request ids of clients that are gone were kept for ever, in memory and in snapshots."""
    table = Sessions()
    limits = SessionLimits(silence_ns=1_000, sessions=1_000, answers=10)
    for client in range(1, 5_000):
        table.register(client, RegisterClient(client * 10, limits))
        for sequence in range(1, 4):
            table.record(RequestId(client, sequence, 1), b"answer")
    assert len(table) <= 101
    assert len(session_rows(table).sessions) == len(table)


def test_the_flaw_forgets_answers_in_snapshots_but_keeps_the_sessions() -> None:
    table = opened(1, flaws=frozenset({"forget-request-ids"}))
    table.record(RequestId(1, 1, 1), b"one")
    assert sessions_of(session_rows(table)).answered(RequestId(1, 1, 1)) is None
    assert sessions_of(session_rows(opened(1))).answered(RequestId(1, 1, 1)) is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.integers(0, 60), st.just(0), st.just(0)),
        st.tuples(st.just("request"), st.integers(0, 60), st.integers(0, 6), st.integers(1, 9)),
        st.tuples(st.just("restore"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=60,
)


class Model:
    """Replicas that apply one log, of which one is restored from its own snapshots, and what was ever carried out."""

    def __init__(self) -> None:
        self.replicas = [Sessions(), Sessions()]
        self.time = 0
        self.index = 0
        self.sessions: list[int] = [404]
        self.carried_out: dict[tuple[int, int], bytes] = {}

    def register(self, passed: int) -> None:
        self.time += passed
        self.index += 1
        for replica in self.replicas:
            replica.register(self.index, RegisterClient(self.time, LIMITS))
        self.sessions.append(self.index)

    def request(self, passed: int, choice: int, sequence: int) -> None:
        self.time += passed
        self.index += 1
        session = self.sessions[choice % len(self.sessions)]
        request_id = RequestId(session, sequence, max(1, sequence - 2))
        answers = [self._apply(replica, request_id) for replica in self.replicas]
        assert answers[0] == answers[1]
        if answers[0] in (SESSION_ENDED, FORGOTTEN):
            return
        first = self.carried_out.setdefault((session, sequence), answers[0])
        assert answers[0] == first, "carried out twice"

    def restore(self) -> None:
        self.replicas[1] = sessions_of(session_rows(self.replicas[1]))
        assert session_rows(self.replicas[0]) == session_rows(self.replicas[1])
        assert self.replicas[0].digest == self.replicas[1].digest

    def _apply(self, replica: Sessions, request_id: RequestId) -> bytes:
        replica.advance(self.time)
        answer = replica.answered(request_id)
        if answer is not None:
            return answer
        replica.record(request_id, b"at %d" % self.index)
        return b"at %d" % self.index


@given(steps=STEPS)
def test_no_request_is_ever_carried_out_twice_and_replicas_agree(steps: Sequence[tuple[str, int, int, int]]) -> None:
    model = Model()
    for kind, passed, choice, sequence in steps:
        if kind == "register":
            model.register(passed)
        elif kind == "request":
            model.request(passed, choice, sequence)
        else:
            model.restore()
    live = [session for session in model.sessions if model.replicas[0].answered(RequestId(session, 99, 1)) is None]
    assert len(live) == len(model.replicas[0]) <= LIMITS.sessions


def test_a_frozen_view_shows_nothing_of_what_is_recorded_forgotten_or_ended_later() -> None:
    table = opened(1, 2, 3)
    for session in (1, 2, 3):
        table.record(RequestId(session, 1, 1), b"first")
    before, view = session_rows(table), table.freeze()
    table.record(RequestId(2, 2, 2), b"second")
    table.record(RequestId(1, 5, 5), b"fifth")
    table.register(9, RegisterClient(10**15, LIMITS))
    parts = list(view.parts(1))
    assert [row for part in parts for row in part.sessions] == list(before.sessions)
    assert len(parts) == 3 and {(part.time, part.limits) for part in parts} == {(before.time, before.limits)}
    assert len(table) == 1, "the others have ended meanwhile"
