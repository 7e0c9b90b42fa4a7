from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.groups.sessions import SESSION_ENDED, RegisterClient, SessionLimits
from cluster.ranges.lease_record import AcquireLease, HandOverLease, Lease, RenewLease
from cluster.ranges.tablet import AlterSchema, Put, TabletMachine, WriteBatch
from cluster.store.cells import Key, Value
from cluster.store.hlc import ClockReading, Timestamp
from cluster.store.intents import Intent, OpenIntent
from cluster.store.mvcc import LATEST, NotNewest
from cluster.wire.messages import Done, ErrorReply, Reply, RequestId, SessionReply, decode_reply, encode
from tests.cluster.frozen import frozen, restore

KEY: Key = (1, 0, 0)
OTHER: Key = (2, 0, 0)
DURATION = 1_000
RETENTION = 1 << 40
SESSIONS = {"c": 1, "d": 2}
LIMITS = SessionLimits(1 << 40, 10, 100)


class Log:
    """Applies commands one after another to a machine; the first two register the sessions of clients c and d."""

    def __init__(
        self, retention_ns: int = RETENTION, flaws: frozenset[str] = frozenset(), machine: TabletMachine | None = None
    ) -> None:
        self.machine = machine or TabletMachine(retention_ns, flaws)
        self.commands: list[bytes] = []
        if machine is None:
            for session in SESSIONS.values():
                assert self.put(RegisterClient(0, LIMITS)) == SessionReply(session)

    def put(self, command: msgspec.Struct) -> Reply | None:
        self.commands.append(encode(command))
        result = self.machine.apply(len(self.commands), self.commands[-1])
        return decode_reply(result) if result else None

    @property
    def lease(self) -> Lease:
        assert self.machine.lease is not None
        return self.machine.lease

    def value(self, key: Key = KEY) -> Value:
        version = self.machine.read(key, LATEST)
        return None if version is None else version.value


def leased(holder: str = "a", term: int = 1, start: int = 10_000, flaws: frozenset[str] = frozenset()) -> Log:
    log = Log(flaws=flaws)
    log.put(AcquireLease(holder, term, start, DURATION))
    return log


def batch(
    sequence: int,
    at: int,
    *puts: tuple[Key, Value],
    lease: int = 1,
    client: str = "c",
    done_below: int = 0,
    closed: int = 0,
) -> WriteBatch:
    done = encode(Done(bool(puts), None if puts else sequence, at))
    request_id = RequestId(SESSIONS[client], sequence, done_below)
    return WriteBatch(request_id, lease, at, closed, ClockReading(at), DURATION, tuple(Put(*put) for put in puts), done)


def write(sequence: int, at: int, value: int, lease: int = 1) -> WriteBatch:
    return batch(sequence, at, (KEY, value), lease=lease)


def test_a_batch_is_carried_out_as_it_stands_whole_and_at_one_time() -> None:
    log = leased()
    assert log.put(batch(1, 20_000, (KEY, 5), (OTHER, "six"))) == Done(True, None, 20_000)
    assert (log.machine.read(KEY), log.machine.read(OTHER)) == ((20_000, 5), (20_000, "six"))
    assert log.put(batch(2, 20_001)) == Done(False, 2, 20_001)
    assert log.value() == 5


def test_a_retry_gets_the_first_answer_and_takes_no_effect_also_under_a_later_lease() -> None:
    log = leased()
    first = log.put(write(1, 20_000, 5))
    log.put(write(2, 20_001, 9))
    assert log.put(write(1, 20_002, 5)) == first
    log.put(AcquireLease("b", 2, 30_000, DURATION))
    assert log.put(write(1, 40_000, 5, lease=2)) == first
    assert log.value() == 9


def test_with_the_flaw_double_apply_it_takes_effect_again() -> None:
    log = leased(flaws=frozenset({"double-apply"}))
    log.put(write(1, 20_000, 5))
    log.put(write(2, 20_001, 9))
    log.put(write(1, 20_002, 5))
    assert log.value() == 5


def test_a_retry_after_a_snapshot_gets_the_first_answer() -> None:
    log = leased()
    first = log.put(write(1, 20_000, 5))
    restored = TabletMachine(RETENTION)
    restore(restored, frozen(log.machine))
    again = Log(machine=restored)
    again.put(write(2, 20_001, 9))
    assert again.put(write(1, 20_002, 7)) == first
    assert again.value() == 9


def test_a_late_double_of_a_request_the_client_is_done_with_takes_no_effect() -> None:
    log = leased()
    log.put(write(1, 20_000, 1))
    log.put(batch(2, 20_001, (KEY, 2), done_below=2))
    reply = log.put(write(1, 20_002, 1))
    assert isinstance(reply, ErrorReply)
    assert not reply.definite
    assert log.value() == 2


def test_a_request_of_a_session_that_ended_is_not_carried_out_again() -> None:
    for flaws in (frozenset[str](), frozenset({"double-apply"})):
        log = leased(flaws=flaws)
        limits = SessionLimits(1_000, 10, 100)
        assert log.put(RegisterClient(19_000, limits)) == SessionReply(4)
        request = msgspec.structs.replace(write(1, 19_001, 5), request_id=RequestId(4, 1, 1))
        log.put(request)
        assert log.put(RegisterClient(19_500, limits)) == SessionReply(6)
        log.put(msgspec.structs.replace(batch(1, 20_002, (KEY, None)), request_id=RequestId(6, 1, 1)))
        assert log.put(msgspec.structs.replace(request, timestamp=20_003)) == decode_reply(SESSION_ENDED)
        assert log.value() is None


def test_commands_of_another_lease_are_refused_for_good_and_close_nothing() -> None:
    log = Log()
    before = log.put(batch(1, 20_000, (KEY, 1), closed=15_000))
    assert isinstance(before, ErrorReply) and before.definite
    log.put(AcquireLease("a", 1, 10_000, DURATION))
    log.put(AcquireLease("b", 2, 11_000, DURATION))
    stale = log.put(batch(1, 20_000, (KEY, 1), closed=15_000))
    assert isinstance(stale, ErrorReply) and stale.definite and stale.leader == "b"
    assert (log.value(), log.machine.closed) == (None, 0)
    assert isinstance(log.put(batch(1, 20_000, (KEY, 1), lease=2, closed=15_000)), Done)
    assert log.machine.closed == 15_000


def test_with_the_flaw_any_lease_sequence_a_batch_of_another_lease_is_carried_out() -> None:
    log = leased(flaws=frozenset({"any-lease-sequence"}))
    log.put(AcquireLease("b", 2, 11_000, DURATION))
    assert isinstance(log.put(write(1, 10_500, 5)), Done)
    assert log.machine.read(KEY) == (10_500, 5), "below what the second lease's reads may have been served at"


def test_a_double_closes_nothing() -> None:
    log = leased()
    log.put(batch(1, 20_000, (KEY, 1), closed=100))
    log.put(batch(1, 20_001, (KEY, 1), closed=200))
    assert log.machine.closed == 100


def test_with_the_flaw_closed_of_refused_what_is_not_carried_out_closes() -> None:
    for stamped in (batch(1, 20_001, (KEY, 1), closed=200), batch(2, 20_001, (KEY, 1), lease=7, closed=200)):
        log = leased(flaws=frozenset({"closed-of-refused"}))
        log.put(batch(1, 20_000, (KEY, 1), closed=100))
        before = log.machine.write_index
        log.put(stamped)
        assert (log.machine.closed, log.machine.write_index) == (200, before)


def test_timestamps_need_not_rise_along_the_log_but_those_of_one_cell_do() -> None:
    log = leased()
    log.put(batch(1, 20_005, (KEY, 1)))
    assert isinstance(log.put(batch(2, 20_001, (OTHER, 2))), Done)
    assert (log.value(), log.value(OTHER), log.machine.last_write) == (1, 2, 20_005)
    with pytest.raises(NotNewest):
        log.put(batch(3, 20_004, (KEY, 3)))


def test_what_is_collected_is_closed_and_older_than_the_retention() -> None:
    log = Log(1_000)
    log.put(AcquireLease("a", 1, 10_000, DURATION))
    log.put(batch(1, 20_000, (KEY, 1), closed=0))
    assert log.machine.threshold == 0
    log.put(batch(2, 30_000, (KEY, 2), closed=25_000))
    assert log.machine.threshold == 25_000
    log.put(batch(3, 31_000, (KEY, 3), closed=30_999))
    assert log.machine.threshold == 30_000


def test_the_write_index_follows_what_changes_data_and_nothing_else() -> None:
    log = leased()
    assert log.machine.write_index == 0, "sessions and a lease came before"
    moving = (
        write(1, 20_000, 5),
        batch(2, 20_001, closed=15_000),
        AlterSchema(1, ()),
        batch(3, 20_003, (OTHER, 1)),
    )
    quiet = (
        RenewLease(1, 20_500, DURATION),
        write(1, 20_002, 5),
        write(9, 20_002, 5, lease=7),
        AlterSchema(1, ()),
        RegisterClient(20_000, LIMITS),
        HandOverLease(1, ClockReading(20_600), Timestamp(0), Timestamp(0)),
        AcquireLease("b", 2, 30_000, DURATION),
    )
    for command in moving:
        log.put(command)
        assert log.machine.write_index == len(log.commands), command
    data, state = log.machine.written_state, log.machine.digest
    for command in quiet:
        log.put(command)
        assert log.machine.written_state == data, command
    assert log.machine.digest != state
    restored = TabletMachine(RETENTION)
    restore(restored, frozen(log.machine))
    assert restored.written_state == data


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_snapshots_hold_open_intents_and_the_local_times_of_versions(part_bytes: int) -> None:
    log = leased()
    log.put(msgspec.structs.replace(batch(1, 20_000, (KEY, 5), (OTHER, b"6")), reading=ClockReading(19_000)))
    log.put(batch(2, 20_001, ((3, 0, 0), 1)))
    store, others = log.machine._store, [(1, 5, 0), (2, 5, 0)]
    for number, key in enumerate(others):
        store.lay(key, Intent("t", 21_000 + number, "value", 19_500))
    restored = TabletMachine(RETENTION)
    restored._store.lay(KEY, Intent("gone", 1, 1, 1))
    restore(restored, frozen(log.machine, part_bytes))
    assert restored.digest == log.machine.digest
    assert frozen(restored) == frozen(log.machine)
    assert list(restored.open_intents) == others
    copy = restored._store
    assert [copy.written_at(key, 20_000) for key in (KEY, OTHER)] == [19_000, 19_000]
    assert copy.written_at((3, 0, 0), 20_001) == 20_001
    for number, key in enumerate(others):
        assert copy.read(key, 20_999 + number) is None
        with pytest.raises(OpenIntent):
            restored.read(key)
        assert copy.resolve(key, "t", 22_000)
    assert (restored.read(KEY), restored.read((2, 5, 0))) == ((20_000, 5), (22_000, "value"))
    assert copy.written_at((2, 5, 0), 22_000) == 19_500


def test_a_batch_that_meets_an_intent_at_apply_is_refused_loudly() -> None:
    """Evaluation has let it through: latches, or who laid the intent, are wrong."""
    log = leased()
    log.machine._store.lay(KEY, Intent("t", 20_000, 5, 20_000))
    with pytest.raises(OpenIntent):
        log.put(write(1, 30_000, 6))


def test_a_snapshot_of_another_format_version_is_refused_in_one_sentence() -> None:
    head = msgspec.msgpack.decode(frozen(leased().machine)[0])
    for older in ([head[0], 5, *head[2:-1]], [head[0], 7, *head[2:], "more"]):
        with pytest.raises(ValueError, match=r"^tablet snapshot of format version \d; this program reads 6$"):
            restore(TabletMachine(RETENTION), [encode(older)])


def test_writes_and_renewals_move_the_expiration_and_nothing_moves_it_back() -> None:
    log = leased()
    assert log.lease.expiration == 11_000
    log.put(write(1, 20_000, 1))
    assert log.lease.expiration == 21_000
    log.put(RenewLease(1, 20_500, DURATION))
    assert log.lease.expiration == 21_500
    log.put(RenewLease(1, 100, DURATION))
    log.put(RenewLease(7, 90_000, DURATION))
    assert log.lease.expiration == 21_500


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from("cd"), st.integers(1, 6), st.integers(0, 3)), max_size=30
    ),
    cut=st.integers(0, 30),
)
def test_a_machine_from_a_snapshot_goes_on_exactly_like_the_one_it_was_taken_of(
    steps: list[tuple[int, str, int, int]], cut: int
) -> None:
    log = leased()
    copy = Log()
    for number, (kind, client, sequence, value) in enumerate(steps):
        if number == min(cut, len(steps) - 1):
            restore(copy.machine, frozen(log.machine))
            copy.commands = log.commands.copy()
        at = 20_000 + number
        lease = log.lease.sequence
        command: msgspec.Struct
        if kind == 0:
            command = AcquireLease(client, number + 2, at, DURATION)
        else:
            puts = ((KEY, value), (OTHER, sequence))[: kind - 1]
            command = batch(sequence, at, *puts, lease=lease, client=client, closed=at - 100 * kind)
        expected = log.put(command)
        if number >= min(cut, len(steps) - 1):
            assert copy.put(command) == expected
    if steps:
        assert frozen(copy.machine) == frozen(log.machine)
