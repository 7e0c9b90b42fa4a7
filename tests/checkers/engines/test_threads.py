"""The in-process engine on one core and on several: the same verdicts to the byte, and no threads where none help."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from growth import save
from growth_histories import KINDS
from register_histories import columns, hard_rows, random_rows, write_history

from checkers import source as source_of_batches
from checkers.api import check, judge_source
from checkers.engines import grouped, local
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.linearizability import driver
from checkers.linearizability.driver import Budget
from checkers.linearizability.registers import refute_registers
from checkers.made.registers import RegisterShape, write_register_history
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import as_object
from harness.errors import UserError
from harness.history import cores, saved
from tests.support.kernels_alone import judge_search

THREADS = (1, 2, 5)

BY_KEYS = (
    *("register", "cas-register", "monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads"),
    *("sessions", "write-atomicity", "durable-rows"),
)
"""Models of which threads judge slices; of the others they read."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Small histories as if they were large; what threads were given, by the name of the work."""
    monkeypatch.setattr(local, "_FEW_ROWS", 0)
    monkeypatch.setattr(local, "_ROWS_PER_CALL", 100)
    monkeypatch.setattr(local, "_LEAST_JUDGED", 1000)
    monkeypatch.setattr(grouped, "_ROWS_PER_SLICE", 20)
    monkeypatch.setattr(source_of_batches, "BATCH_ROWS", 300)
    monkeypatch.setattr(saved, "_MOST_READ_AT_ONCE", 300)
    monkeypatch.setattr(saved, "_LEAST_BATCH_ROWS", 100)
    monkeypatch.setattr(saved, "BATCH_ROWS", 400)
    given: list[str] = []
    begin = cores._Crew.begin

    def counting(self: Any, part: Any) -> Any:
        given.append(getattr(self._work, "__qualname__", type(self._work).__name__))
        return begin(self, part)

    monkeypatch.setattr(cores._Crew, "begin", counting)
    yield given
    assert not any(each.name == "assay-core" for each in threading.enumerate())


def written_verdict(source: Source, model: str, threads: int, options: CheckOptions = CheckOptions()) -> bytes:  # noqa: B008
    """The verdict as it is written."""
    verdict = judge_source(source, model, LocalEngine(threads), options)
    return msgspec.json.encode(as_object(msgspec.structs.replace(verdict, seconds=0.0)))


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("share", [0.02, pytest.param(0.0, marks=pytest.mark.campaign)])
def test_verdicts_are_the_same_on_any_number_of_cores(
    tmp_path: Path, begun: list[str], model: str, share: float
) -> None:
    kind = KINDS[model]
    place = save(kind.make(2000, share), tmp_path / "h.parquet", 700, kind.dictionary)
    source = open_source(place)
    one, *others = (written_verdict(source, model, threads) for threads in THREADS)
    assert others == [one, one]
    verdict = msgspec.json.decode(one)
    if kind.refuted:
        assert verdict["valid"] is (share == 0), verdict
    judged = [name for name in begun if "judged" in name or "Kernel" in name]
    assert begun and bool(judged) == (model in BY_KEYS), set(begun)


def test_random_registers_are_judged_alike(tmp_path: Path, begun: list[str]) -> None:
    """By zones, by stale reads and by search, valid keys beside refuted ones of every kind."""
    rows = [random_rows(Random(seed), 8, seed % 3 > 0) for seed in range(400)]
    source = open_source(write_history(tmp_path / "h.parquet", rows))
    for explain in (1, 5):
        options = CheckOptions(explain=explain, failed_cas="observed")
        one, *others = (written_verdict(source, "cas-register", threads, options) for threads in THREADS)
        assert others == [one, one]
    verdict = msgspec.json.decode(one)
    assert len(verdict["counts"]) >= 4 and verdict["details"]["keys_searched"] > 0
    assert "RegisterKernel" in begun


def test_one_key_beside_small_ones_is_judged_alone(tmp_path: Path, begun: list[str]) -> None:
    rows = [random_rows(Random(seed), 8, True) for seed in range(200)]
    rows.insert(70, random_rows(Random(1000), 900, True))
    source = open_source(write_history(tmp_path / "h.parquet", rows))
    one, *others = (written_verdict(source, "cas-register", threads) for threads in THREADS)
    assert others == [one, one] and "RegisterKernel" in begun


def test_an_imported_history_is_judged_alike(tmp_path: Path, begun: list[str]) -> None:
    path = tmp_path / "h.edn"
    lines = []
    for number in range(600):
        for kind in ("invoke", "ok"):
            value = f"[[:append {number % 9} {number}] [:r {number % 7} nil]]"
            lines.append(f"{{:process {number % 5} :type :{kind} :f :txn :value {value}}}")
    path.write_text("\n".join(lines))
    source = open_source(path)
    one, *others = (written_verdict(source, "list-append", threads) for threads in THREADS)
    assert others == [one, one] and begun


def test_what_a_model_does_not_know_is_refused_alike(tmp_path: Path, begun: list[str]) -> None:
    path = save(KINDS["rw-register"].make(2000, 0.0), tmp_path / "h.parquet", 700)
    sentences = set()
    for threads in THREADS:
        with pytest.raises(UserError) as refused:
            judge_source(open_source(path), "list-append", LocalEngine(threads))
        sentences.add(str(refused.value))
    assert len(sentences) == 1 and begun


def test_a_crash_in_a_thread_is_an_unknown_verdict(
    tmp_path: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.parquet"
    write_register_history(RegisterShape(3000, keys=50), path)
    source = open_source(path)

    def crashing(*arguments: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(refute_registers, "judge_zones", crashing)
    one, *others = (written_verdict(source, "register", threads) for threads in THREADS)
    assert others == [one, one] and "RegisterKernel" in begun
    verdict = msgspec.json.decode(one)
    assert verdict["valid"] == "unknown" and verdict["reason"].endswith("crashed: MemoryError: no room")


def test_where_no_thread_can_be_started_the_verdict_is_unknown(
    tmp_path: Path, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason was that a thread can't be joined which had not begun."""

    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    path = tmp_path / "h.parquet"
    write_register_history(RegisterShape(3000, keys=50), path)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    verdict = judge_source(open_source(path), "register", LocalEngine(2))
    assert begun and verdict.valid == "unknown" and "can't start new thread" in str(verdict.reason)


def test_a_small_history_begins_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> None:
        raise AssertionError("a thread was begun")

    path = tmp_path / "h.parquet"
    write_register_history(RegisterShape(20_000, keys=500), path)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(local, "usable_cores", refuse)
    for model in ("register", "sessions", "stats"):
        assert check(path, model, engine="local").valid is True


@pytest.mark.parametrize("memory_bytes", [1 << 14, 1 << 18, 1 << 22])
def test_searches_at_once_take_turns_to_take_much_memory(memory_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each is given is what it would be given alone, and only one at a time has more than its share."""
    history = columns(hard_rows(9))
    alone = judge_search(history, Budget(600.0, memory_bytes))
    much, lock, most = 0, threading.Lock(), 0
    make_room, end = driver._Turn.make_room, driver._Turn.end

    def counting(self: Any, run: Any, answer: int) -> bool:
        nonlocal much, most
        had, found = self._mine, make_room(self, run, answer)
        with lock:
            much += self._mine and not had
            most = max(most, much)
        return found

    def ending(self: Any) -> None:
        nonlocal much
        with lock:
            much -= self._mine
        end(self)

    monkeypatch.setattr(driver._Turn, "make_room", counting)
    monkeypatch.setattr(driver._Turn, "end", ending)
    for found in cores.in_order(lambda _: judge_search(history, Budget(600.0, memory_bytes)), range(4), 3):
        assert found.answers.tolist() == alone.answers.tolist() and found.why == alone.why
    assert most == 1 and much == 0
