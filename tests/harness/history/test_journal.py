"""The journal keeps every sealed block, whatever happens to the file's end or to the process that writes it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import HarnessError, UserError
from harness.history.journal import (
    JOURNAL_VERSION,
    MAX_UNSEALED_EVENTS,
    MAX_UNSEALED_NS,
    JournalWriter,
    is_journal,
    read_journal,
)
from harness.history.ops import Mop, Op, cas, read, write
from harness.run.interpreter import Recorder
from tests.support.few_seeds import few_examples

INT64 = st.integers(-(2**63), 2**63 - 1)
MOPS = st.lists(
    st.builds(
        Mop,
        st.sampled_from(["r", "w", "cas", "append"]),
        INT64,
        st.none() | INT64,
        st.none() | INT64,
        st.none() | st.lists(INT64, max_size=3).map(tuple),
    ),
    max_size=3,
).map(tuple)
JSONABLE = st.none() | st.booleans() | st.text(max_size=5) | st.dictionaries(st.text(max_size=3), INT64, max_size=2)
EVENTS = st.lists(
    st.builds(
        Op,
        st.sampled_from(["invoke", "ok", "fail", "info"]),
        st.integers(-2, 100),
        st.sampled_from(["read", "write", "kill"]),
        MOPS,
        JSONABLE,
        index=INT64,
        time=st.integers(0, 10 * MAX_UNSEALED_NS),
        node=st.none() | st.text(max_size=4),
        error=st.none() | st.text(max_size=8),
        served_ts=st.none() | INT64,
    ),
    max_size=40,
)


def event(index: int, time_ns: int = 0) -> Op:
    return Op("invoke", index % 7, "write", (write(index, index),), index=index, time=time_ns)


def write_journal(path: Path, events: list[Op], block: int = 3, close: bool = True) -> None:
    journal = JournalWriter(path)
    for number, one in enumerate(events, 1):
        journal.append(one)
        if number % block == 0:
            journal.seal()
    if close:
        journal.close()
    else:
        journal.seal()


@given(events=EVENTS)
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, events: list[Op]) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    write_journal(path, events)
    reader = read_journal(path)
    assert list(reader) == events
    assert reader.complete
    assert reader.ended_early is None
    assert list(reader) == events, "a reader can be iterated over again"


@few_examples(30)
@given(gaps=st.lists(st.integers(0, MAX_UNSEALED_NS), max_size=300), burst=st.integers(0, 3 * MAX_UNSEALED_EVENTS))
def test_bounded_number_and_age_stay_unsealed(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], burst: int
) -> None:
    journal = JournalWriter(tmp_path_factory.mktemp("journal") / "j")
    now_ns, oldest = 0, []
    for index, gap in enumerate([*gaps, *([0] * burst)]):
        now_ns += gap
        journal.append(event(index, now_ns))
        oldest = [*oldest, now_ns][-journal.unsealed :] if journal.unsealed else []
        assert journal.unsealed < MAX_UNSEALED_EVENTS
        assert not oldest or now_ns - oldest[0] < MAX_UNSEALED_NS


def test_a_quiet_journal_is_sealed_when_a_second_has_passed(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "j")
    journal.append(event(0, 5))
    journal.seal_due(MAX_UNSEALED_NS)
    assert journal.unsealed == 1
    journal.seal_due(MAX_UNSEALED_NS + 5)
    assert journal.unsealed == 0
    assert len(list(read_journal(tmp_path / "j"))) == 1


def test_a_journal_cut_anywhere_yields_its_sealed_prefix(tmp_path: Path) -> None:
    events = [event(index) for index in range(10)]
    write_journal(tmp_path / "whole", events)
    whole = (tmp_path / "whole").read_bytes()
    empty = tmp_path / "empty"
    JournalWriter(empty)
    header = empty.stat().st_size
    lengths = set()
    for end in range(header, len(whole)):
        cut = tmp_path / "cut"
        cut.write_bytes(whole[:end])
        reader = read_journal(cut)
        found = list(reader)
        assert found == events[: len(found)]
        assert not reader.complete
        assert reader.ended_early
        lengths.add(len(found))
    assert lengths == {0, 3, 6, 9, 10}


END_MARK_BYTES = 12


def test_damage_before_the_end_is_refused_and_never_changes_an_event(tmp_path: Path) -> None:
    events = [event(index) for index in range(9)]
    write_journal(tmp_path / "whole", events)
    whole = (tmp_path / "whole").read_bytes()
    for position in range(len(whole)):
        damaged = tmp_path / "damaged"
        damaged.write_bytes(whole[:position] + bytes([whole[position] ^ 0x40]) + whole[position + 1 :])
        if position < len(whole) - END_MARK_BYTES:
            with pytest.raises(UserError, match="damaged"):
                list(read_journal(damaged))
            continue
        reader = read_journal(damaged)
        found = list(reader)
        assert found == events[: len(found)]
        assert not reader.complete


@pytest.mark.parametrize("content", [b"", b"x", b"not a journal at all", b"ASSAYJNL", b"ASSAYJNL" + b"\0" * 12])
def test_what_is_no_journal_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "strange.journal"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"strange\.journal") as refused:
        list(read_journal(path))
    assert "\n" not in str(refused.value)


def test_missing_and_unwritable_files_are_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent"):
        list(read_journal(tmp_path / "absent"))
    with pytest.raises(UserError, match="nowhere"):
        JournalWriter(tmp_path / "nowhere" / "j")
    JournalWriter(tmp_path / "j").close()
    with pytest.raises(UserError, match="j can't be written"):
        JournalWriter(tmp_path / "j")
    assert is_journal(tmp_path / "j")
    assert not is_journal(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", [])
    content = (tmp_path / "j").read_bytes()
    marker = f'"version":{JOURNAL_VERSION}'.encode()
    assert marker in content
    import struct
    import zlib

    length, _, _ = struct.unpack_from("<III", content, 8)
    header = content[20 : 20 + length].replace(marker, b'"version":9')
    (tmp_path / "k").write_bytes(content[:8] + struct.pack("<III", len(header), zlib.crc32(header), 0) + header)
    with pytest.raises(UserError, match="version 9"):
        list(read_journal(tmp_path / "k"))


def test_a_disk_that_refuses_is_our_failure(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "j")
    journal.append(event(0))
    os.close(journal._file)
    with pytest.raises(HarnessError, match="can't be written any more"):
        journal.seal()


def test_after_a_write_that_failed_nothing_more_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(tmp_path / "j")
    journal.append(event(0))
    journal.seal()

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal.append(event(1))
    with monkeypatch.context() as patched, pytest.raises(HarnessError, match="No space left"):
        patched.setattr(os, "write", full)
        journal.seal()
    journal.append(event(2))
    with pytest.raises(HarnessError, match="No space left"):
        journal.seal()
    with pytest.raises(HarnessError, match="No space left"):
        journal.close()
    reader = read_journal(tmp_path / "j")
    assert list(reader) == [event(0)]
    assert not reader.complete


class StillClock:
    def wall_ns(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return 0

    def times_ns(self) -> tuple[int, int]:
        return 0, 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def test_a_nemesis_step_is_sealed_before_it_is_carried_out(tmp_path: Path) -> None:
    recorder = Recorder(JournalWriter(tmp_path / "j"), StillClock())
    recorder.invoked(Op("invoke", 3, "read", (read(1),)), 0)
    assert list(read_journal(tmp_path / "j")) == []
    recorder.invoked(Op("invoke", -1, "kill", value={"targets": ["n1"]}), 0)
    assert [one.f for one in read_journal(tmp_path / "j")] == ["read", "kill"]


def test_the_recorder_numbers_events_and_stamps_the_phase(tmp_path: Path) -> None:
    journal = JournalWriter(tmp_path / "j")
    seen: list[Op] = []
    recorder = Recorder(journal, StillClock(), seen.append)
    invoked = recorder.invoked(Op("invoke", 0, "cas", (cas(1, 2, 3),)), 7)
    recorder.phase = "final"
    recorder.completed(invoked.complete("ok"), 9)
    recorder.invoked(Op("invoke", 1, "read"), 9)
    assert [(one.index, one.time, one.type, one.phase) for one in seen] == [
        (0, 7, "invoke", "main"),
        (1, 9, "ok", "main"),
        (2, 9, "invoke", "final"),
    ]
    journal.close()
    assert list(read_journal(tmp_path / "j")) == seen


WRITER = """
import sys
from pathlib import Path
from harness.history.journal import JournalWriter
from harness.history.ops import Op, write
journal = JournalWriter(Path(sys.argv[1]))
index = 0
while True:
    journal.append(Op("invoke", 0, "write", (write(1, index),), index=index, time=index))
    index += 1
    if index % 5000 == 0:
        journal.seal()
        print(index, flush=True)
"""


def test_kill_9_loses_no_sealed_block(tmp_path: Path) -> None:
    path = tmp_path / "j"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    sealed = [int(writer.stdout.readline()) for _ in range(3)][-1]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    reader = read_journal(path)
    indices = [one.index for one in reader]
    assert len(indices) >= sealed
    assert indices == list(range(len(indices)))
    assert not reader.complete


def test_damage_in_the_middle_of_a_journal_that_was_never_closed_is_no_early_end(tmp_path: Path) -> None:
    """Sealed blocks stand behind it: taking the prefix for the whole would judge a part and call it the run."""
    path = tmp_path / "journal"
    journal = JournalWriter(path)
    header = path.stat().st_size
    for block in range(4):
        for index in range(3):
            journal.append(event(3 * block + index))
        journal.seal()
    whole = path.read_bytes()
    last = len(whole) - (len(whole) - header) // 4
    for position in range(header, last):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x01]) + whole[position + 1 :])
        with pytest.raises(UserError, match="damaged at byte"):
            list(read_journal(path))
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 0x01]))
    reader = read_journal(path)
    assert len(list(reader)) == 9 and not reader.complete
