"""The search for objects against a brute-force search over random small histories."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from bruteforce import some_order
from object_histories import OBJECTS, PERMITS, Call, columns, random_calls, texts_of

from checkers.api import check, judge_source
from checkers.columns.codes import NEVER
from checkers.engines.local import LocalEngine
from checkers.linearizability.driver import INVALID, UNDECIDED, VALID, Budget
from checkers.linearizability.objects import object_search
from checkers.linearizability.objects.refute_objects import ObjectKernel
from checkers.made.objects import MODELS, ObjectShape, object_source
from checkers.options import CheckOptions
from checkers.source import Interned
from harness.errors import UserError
from tests.support.few_seeds import ranges_of
from tests.support.kernels_alone import answers_of


def is_compared(model: str, calls: list[tuple[Call, int, int]]) -> bool:
    """Tokens of a fenced lock are compared where one is told."""
    acquired = [call for call in calls if call[0][0] == "acquire" and call[2] != NEVER]
    return model != "fenced-mutex" or not acquired or any(call[0][2] for call in acquired)


@pytest.mark.parametrize(
    ("first", "count", "sizes"),
    [
        pytest.param(0, 1_000, (1, 8), id="small"),
        pytest.param(50_000, 150, (9, 12), id="longer"),
        pytest.param(100_000, 20_000, (1, 8), marks=pytest.mark.campaign, id="many"),
        pytest.param(150_000, 2_000, (9, 12), marks=pytest.mark.campaign, id="many longer"),
    ],
)
@pytest.mark.parametrize("model", OBJECTS)
def test_search_and_brute_force_agree(model: str, first: int, count: int, sizes: tuple[int, int]) -> None:
    """So does the search in plain lines at the top of `object_search`."""
    start, steps = OBJECTS[model]
    seeds = range(first, first + count)
    histories = [random_calls(random := Random(seed), model, random.randint(*sizes)) for seed in seeds]
    seen: Counter[bool] = Counter()
    texts = texts_of(histories)
    found = answers_of(
        ObjectKernel(model, 1, Budget(), Interned(None, tuple(texts)), None, PERMITS), columns(model, histories, texts)
    )
    for number, calls in enumerate(histories):
        truth = some_order(calls, start, steps)
        assert object_search.search_plainly(calls, start, steps) == truth, (number, calls)
        seen[truth] += 1
        width = 3 if model == "multi-register" else 1
        answers = [one for place in range(width) for one in found.get(width * number + place, [])]
        decided = is_compared(model, calls) or not truth
        assert (INVALID not in answers, UNDECIDED not in answers) == (truth, decided), (number, calls)
    assert min(seen[True], seen[False]) > count // 20, seen
    print(f"{model}: {seen[True]} valid and {seen[False]} invalid histories of {sizes[0]} to {sizes[1]} operations")


def test_strings_of_pieces_that_do_not_repeat_are_decided_without_search() -> None:
    shapes = [
        ObjectShape("kv-append", 300, 20, 0, 0.1, corrupted, seed) for seed in range(6) for corrupted in (False, True)
    ]
    for shape in shapes:
        verdict = judge_source(object_source(shape), "kv-append", LocalEngine())
        assert verdict.valid is not shape.corrupted and verdict.details["objects_searched"] == 0, shape


def wide(model: str, seed: int) -> ObjectShape:
    random = Random(seed)
    operations, clients, values = random.randint(10, 80), random.randint(2, 10), random.choice((0, 2, 3, 5))
    return ObjectShape(model, operations, clients, values, random.choice((0.0, 0.1, 0.3)), seed=seed)


@pytest.mark.parametrize("seeds", ranges_of(40, 1_000))
@pytest.mark.parametrize("model", MODELS)
def test_what_is_valid_by_construction_is_never_refuted(model: str, seeds: range) -> None:
    """Histories too long for brute force, with many operations open at once and unknown ones among them."""
    seen: Counter[object] = Counter()
    for seed in seeds:
        shape = wide(model, seed)
        verdict = judge_source(object_source(shape), model, LocalEngine(), CheckOptions(time_limit_s=0.5))
        seen[verdict.valid] += 1
        assert verdict.valid is not False, shape
    assert seen[True] > 5 * len(seeds) // 6, seen


@pytest.mark.parametrize("model", sorted(OBJECTS))
@pytest.mark.parametrize("count", [8, pytest.param(400, marks=pytest.mark.campaign)])
def test_a_narrow_beam_that_goes_back_is_right(model: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that repeat keep queues and strings from being decided without search."""
    start = object_search._start
    monkeypatch.setattr(object_search, "_start", lambda ops, beam: start(ops, min(beam, 2)))
    seen: Counter[object] = Counter()
    for seed in range(count):
        shape = ObjectShape(model, 150, 4, seed % 4 + 2, corrupted=seed % 2 == 1, seed=seed)
        verdict = judge_source(object_source(shape), model, LocalEngine(), CheckOptions(time_limit_s=0.5))
        seen[verdict.valid] += 1
        assert verdict.valid in (not shape.corrupted, "unknown"), shape
    assert seen["unknown"] <= count // 8, seen


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("corrupted", [False, True])
def test_many_clients_on_one_object(model: str, corrupted: bool) -> None:
    shape = ObjectShape(model, 2000, 10, values=0 if model in QUEUES else 5, corrupted=corrupted, seed=3)
    verdict = judge_source(object_source(shape), model, LocalEngine())
    assert verdict.valid is not corrupted
    found = [anomaly for anomalies in verdict.anomalies.values() for anomaly in anomalies]
    assert bool(found) is corrupted and all(anomaly.message and anomaly.ops for anomaly in found)


QUEUE_PATTERNS = {
    "no enqueue of 7 had begun": "0 enqueue 1; 0 ok 1; 1 dequeue; 1 ok 7",
    "and taken out by process 1's dequeue of 1": "0 enqueue 1; 0 ok 1; 1 dequeue; 1 ok 1; 2 dequeue; 2 ok 1",
    "1 was put in before 2": "0 enqueue 1; 0 ok 1; 0 enqueue 2; 0 ok 2; 1 dequeue; 1 ok 2; 1 dequeue; 1 ok 1",
    "and 1 never came out": "0 enqueue 1; 0 ok 1; 0 enqueue 2; 0 ok 2; 1 dequeue; 1 ok 2",
    "found the queue of key 0 empty from": "0 enqueue 1; 0 ok 1; 1 dequeue; 1 ok nil",
    "only 1 dequeue of unknown outcome": (
        "0 enqueue 1; 0 ok 1; 0 enqueue 2; 0 ok 2; 0 enqueue 3; 0 ok 3; 2 dequeue; 2 info nil; 1 dequeue; 1 ok 3"
    ),
}


def edn(path: Path, text: str) -> Path:
    """A history of one queue, an event an item: an invocation (`0 enqueue 1`) or a completion (`0 ok 1`)."""
    running: dict[str, str] = {}
    lines = []
    for event in text.split("; "):
        process, word, value, *_ = [*event.split(), "nil"]
        kind = word if word in ("ok", "info") else "invoke"
        running[process] = word if kind == "invoke" else running[process]
        lines.append(f"{{:process {process} :type :{kind} :f :{running[process]} :value {value}}}")
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("words", QUEUE_PATTERNS)
def test_a_queue_is_refuted_by_what_went_wrong_in_it(tmp_path: Path, words: str) -> None:
    verdict = check(edn(tmp_path / "h.edn", QUEUE_PATTERNS[words]), "fifo-queue", engine="local")
    (anomaly,) = verdict.anomalies["nonlinearizable"]
    assert words in anomaly.message, anomaly.message
    assert "stuck" in anomaly.details and anomaly.ops


QUEUES = ("fifo-queue", "lin-queue")


def answer(model: str, calls: list[tuple[Call, int, int]], budget: Budget) -> set[int]:
    texts = texts_of([calls])
    found = answers_of(ObjectKernel(model, 1, budget, Interned(None, tuple(texts))), columns(model, [calls], texts))
    return {one for answers in found.values() for one in answers}


def mutate(model: str, number: int) -> Call:
    """A distinct mutation, as open writes are."""
    if model == "multi-register":
        mops = (("w", 0, 100 + number, None), ("w", 1, number, None))
        return "txn", mops, mops
    f = {"lin-set": "add", "kv-append": "append"}.get(model, "enqueue")
    return f, f"<{number}>" if f == "append" else 100 + number, None


def test_a_set_in_which_nothing_ever_was_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    path.write_text("{:process 0 :type :invoke :f :read :value nil} {:process 0 :type :ok :f :read :value []}")
    verdict = check(path, "lin-set", engine="local")
    assert verdict.valid is True, verdict.reason


STALE: dict[str, Call] = {
    "fifo-queue": ("dequeue", None, None),
    "lin-queue": ("dequeue", None, None),
    "lin-set": ("r", None, frozenset()),
    "kv-append": ("r", None, ""),
    "multi-register": ("txn", (("r", 0, None, None),), (("r", 0, None, None),)),
}


@pytest.mark.parametrize("model", STALE)
def test_a_stale_read_among_24_open_writes_is_refuted(model: str) -> None:
    """The first mutation has completed, so what it left can't be unseen."""
    calls: list[tuple[Call, int, int]] = [(mutate(model, 0), 1, 2)]
    calls += [(mutate(model, 1 + i), 3 + i, 200 + i) for i in range(24)]
    calls += [(mutate(model, 30 + i), 40 + i, NEVER) for i in range(24)]
    valid = [*calls, *[(mutate(model, 60 + i), 300 + i, 400 + i) for i in range(24)]]
    assert answer(model, valid, Budget(20)) <= {VALID}
    assert answer(model, [*calls, (STALE[model], 150, 151)], Budget(20)) == {INVALID}


def test_a_search_past_its_budget_is_undecided() -> None:
    adds: list[tuple[Call, int, int]] = [(("add", i, None), 1 + i, 500 + i) for i in range(24)]
    adds += [(("remove", i, None), 30 + i, 600 + i) for i in range(24)]
    reads = [(("r", None, frozenset(range(0, 24, 2))), 100, 101), (("r", None, frozenset((77,))), 102, 103)]
    assert answer("lin-set", [*adds, *reads], Budget(1.0, 1 << 22)) <= {UNDECIDED, INVALID}


def test_a_stuck_search_is_explained_with_states_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    path.write_text(
        "{:process 0 :type :invoke :f :acquire} {:process 0 :type :ok :f :acquire}\n"
        "{:process 1 :type :invoke :f :acquire} {:process 2 :type :invoke :f :release}\n"
        "{:process 3 :type :invoke :f :acquire} {:process 1 :type :ok :f :acquire}\n"
        "{:process 3 :type :ok :f :acquire} {:process 2 :type :ok :f :release}\n"
    )
    verdict = check(path, "mutex", engine="local")
    assert verdict.valid is False and verdict.counts == {"nonlinearizable": 1}
    (anomaly,) = verdict.anomalies["nonlinearizable"]
    assert "Process 3's acquire" in anomaly.message and "held" in anomaly.message
    assert anomaly.details["stuck"] == 3 and anomaly.details["open"] == [2]
    assert anomaly.details["before"] == [1]
    assert anomaly.details["states"] == [
        {"state": "held", "done": [2], "why": "a lock that is held can't be acquired, and nothing else is open"}
    ]


@pytest.mark.parametrize(
    ("model", "event"),
    [
        ("mutex", ":f :read"),
        ("fifo-queue", ":f :enqueue :value nil"),
        ("lin-set", ":f :read :value 3"),
        ("kv-append", ":f :append"),
        ("lin-queue", ":f :dequeue :value [1 2 3]"),
        ("multi-register", ":f :frob :value 1"),
    ],
)
def test_what_a_model_does_not_know_is_refused(tmp_path: Path, model: str, event: str) -> None:
    path = tmp_path / "h.edn"
    path.write_text(f"{{:process 0 :type :invoke {event}}} {{:process 0 :type :ok {event}}}")
    with pytest.raises(UserError, match=r"event 0: not an? "):
        check(path, model, engine="local")


@pytest.mark.parametrize("model", ["multi-register", "lin-set", "kv-append"])
def test_who_wants_no_examples_gets_the_same_answers(model: str) -> None:
    """Objects were refuted by the first of the examples that their registers had kept, of which there was none."""
    random = Random(1)
    histories = [random_calls(random, model, 12) for _ in range(40)]
    texts = texts_of(histories)
    bare, usual = (
        answers_of(ObjectKernel(model, explain, Budget(), Interned(None, texts)), columns(model, histories, texts))
        for explain in (0, 1)
    )
    assert bare == usual and any(INVALID in answers for answers in bare.values())
