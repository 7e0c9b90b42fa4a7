"""Models and analyzers of the user's own: judged as by brute force, refused with file and line, ended by a limit."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from checkers.api import check, judge_source
from checkers.columns.codes import NEVER
from checkers.engines.api import Engine
from checkers.findings import Findings
from checkers.importers.detect import open_source
from checkers.linearizability.driver import Budget
from checkers.linearizability.objects.object_search import search_plainly
from checkers.linearizability.own_model.calls import RawCall
from checkers.linearizability.own_model.search_own import judged, partitions_of
from checkers.options import CheckOptions
from harness.errors import UserError
from harness.own_code import OwnCode, is_own_code, own_code
from tests.support.few_seeds import ranges_of

PAGE = (Path(__file__).parents[3] / "docs" / "own-model.md").read_text()


def block(name: str) -> str:
    """An example of the page, which is tested as it stands there."""
    found = re.search(rf"```python {name}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


SEMAPHORE, LOCK, ANALYZER = map(block, ("semaphore", "lock", "analyzer"))


def code(text: str, name: str = "Model") -> OwnCode:
    return OwnCode("mine.py", name, text, "0" * 64)


def found(text: str, name: str, calls: list[RawCall]) -> Findings:
    answer = judged(code(text, name), calls, Budget(20.0), 2)
    assert isinstance(answer, Findings)
    return answer


def drawn(random: Random, name: str) -> list[RawCall]:
    """A few calls by three processes, in any order, with any outcome."""
    size = random.randrange(1, 7)
    events, calls, idle = itertools.count(), list[RawCall](), [0, 1, 2]
    open_calls: dict[int, tuple[int, str]] = {}
    while len(calls) < size:
        process = random.randrange(3)
        if process in idle:
            open_calls[process] = next(events), random.choice(("acquire", "acquire", "release"))
            idle.remove(process)
            continue
        begun, f = open_calls.pop(process)
        idle.append(process)
        known = random.random() < 0.8
        value = random.randrange(1, 5) if known and f == "acquire" and name == "Lock" else None
        end = next(events)
        calls.append(RawCall(begun, end if known else None, "ok" if known else "info", process, f, 0, value))
    return sorted(calls)


@pytest.mark.parametrize(("name", "text"), [("Semaphore", SEMAPHORE), ("Lock", LOCK)], ids=["Semaphore", "Lock"])
@pytest.mark.parametrize("seeds", ranges_of(150, 5000))
def test_brute_force_says_the_same(name: str, text: str, seeds: range) -> None:
    model = code(text, name).load()()
    verdicts = set()
    for seed in seeds:
        calls = drawn(Random(seed), name)
        spans = [(call.call(), call.invoke, NEVER if call.complete is None else call.complete) for call in calls]
        valid = search_plainly(spans, model.init(), model.step)
        answer = found(text, name, calls)
        assert (not answer.counts, answer.undecided) == (valid, 0), seed
        assert valid or answer.kept[0].facts["states"], "it is said which states were possible"
        verdicts.add(valid)
    assert verdicts == {True, False}


def acquire(place: int, key: Any = 0, process: int = 0) -> RawCall:
    return RawCall(2 * place, 2 * place + 1, "ok", process, "acquire", key, None)


def test_partitions_are_judged_apart_and_named() -> None:
    calls = [acquire(place, key) for place, key in enumerate("abababa")]
    assert partitions_of(code(SEMAPHORE, "Semaphore"), calls) == [0, 1, 0, 1, 0, 1, 0]
    answer = found(SEMAPHORE, "Semaphore", calls)
    assert answer.keys == 2 and answer.counts == {"nonlinearizable": 1}
    assert answer.kept[0].facts["partition"] == "'a'" and answer.kept[0].facts["states"][0]["state"] == "0"


def model(step: str, init: str = "0", more: str = "") -> str:
    return f"class Model:\n  def init(self): return {init}\n  def step(self, state, op):\n    {step}\n{more}"


REFUSED = [
    ("1 +", "mine.py, line 1: SyntaxError"),
    ("import no_such_module", "mine.py, line 1: ModuleNotFoundError"),
    ("exit()", "mine.py, line 1: SystemExit"),
    ("Other = 1", "mine.py defines no Model"),
    ("class Model:\n  def __init__(self, x): ...", "mine.py: TypeError"),
    ("class Model:\n  def init(self): ...", "Model has no step"),
    (model("return [1 / 0]"), "mine.py, line 4: ZeroDivisionError: division by zero"),
    (model("return None"), "step gave None instead of a list"),
    (model("return 'ab'"), "step gave ab instead of a list"),
    (model("return [[1]]"), "has no hash"),
    (model("return [0]", "[]"), "init gave the state \\[\\], which has no hash"),
    (model("state.x += 1; return [state]", "S()", "class S:\n  x = 0"), "changed the state"),
    (
        model("state.append(1); return [1]", "L()", "class L(list):\n  def __hash__(self): return 1"),
        "changed the state",
    ),
    (model("op.value = 1"), "mine.py, line 4: FrozenInstanceError"),
    (model("self.n = getattr(self, 'n', 0) + 1; return [self.n]"), "step gave something else when it was asked again"),
    (model("return [0]", more="  def partition(self, op): return []"), "partition gave \\[\\], which has no hash"),
    ("class Model:\n  def graph(self, ops): return 7", "AttributeError"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_code_that_is_no_model_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        judged(code(text), [acquire(0), acquire(1)], Budget(5.0), 1)
    assert "\n" not in str(caught.value)


def test_only_words_of_that_form_name_code(tmp_path: Path) -> None:
    assert is_own_code("a/mine.py:Model") and not is_own_code("register") and not is_own_code("mine.py:")
    with pytest.raises(UserError, match=r"mine.py can't be read"):
        own_code(f"{tmp_path}/mine.py:Model")
    (tmp_path / "mine.py").write_bytes(b"\xff")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        own_code(f"{tmp_path}/mine.py:Model")
    with pytest.raises(UserError, match="There is no model"):  # only the user's own words name a file
        check(tmp_path / "history.edn", "mine.py:Model")


def history(tmp_path: Path, *events: str) -> Path:
    path = tmp_path / "history.edn"
    path.write_text("\n".join(f"{{{event}}}" for event in events))
    return path


def verdict(tmp_path: Path, text: str, path: Path, seconds: float = 30.0) -> Any:
    (tmp_path / "mine.py").write_text(text)
    own = own_code(f"{tmp_path}/mine.py:Model")
    return check(path, own.spec, engine="local", options=CheckOptions(code=own, time_limit_s=seconds))


ACQUIRED = (":process 0 :type :invoke :f :acquire :value nil", ":process 0 :type :ok :f :acquire :value nil")


def test_a_verdict_names_the_code_and_its_limit_ends_it(tmp_path: Path) -> None:
    path = history(tmp_path, *ACQUIRED)
    told = verdict(tmp_path, model("print('to nobody'); return []"), path)
    assert told.valid is False and len(told.details["code"]["sha256"]) == 64
    assert "Process 0's acquire (invoked at event 0) fits into no order" in told.anomalies["nonlinearizable"][0].message
    endless = verdict(tmp_path, model("while True: pass"), path, 0.1)
    assert endless.valid == "unknown" and "did not come to an end within the limit of 0.1 s" in endless.reason


def test_a_history_without_times_has_no_order_to_judge_by(tmp_path: Path) -> None:
    path = tmp_path / "history.txt"
    path.write_text("w(0,1,0,0)\nr(0,1,1,1)\n")
    told = verdict(tmp_path, model("return [0]"), path)
    assert told.valid == "unknown" and "states no times" in told.reason


def test_where_nothing_succeeded_a_model_that_takes_anything_is_unknown(tmp_path: Path) -> None:
    anything = model("return [0]")
    for events in ((), (ACQUIRED[0], ":process 0 :type :info :f :acquire :value nil")):
        path = history(tmp_path, *events)
        path.write_text(path.read_text() or "[]")
        assert verdict(tmp_path, anything, path).valid == "unknown"


ACQUIRES = [acquire(place) for place in range(3)]
TOKENS = [call._replace(value=token, process=token) for token, call in enumerate(ACQUIRES, 1)]


@pytest.mark.parametrize(
    ("text", "calls", "refusing"),
    [
        (model("return [0]"), ACQUIRES, False),
        (model("return [state + 1]"), ACQUIRES, False),
        (
            model("return [] if op.type == 'info' else [0]"),
            [*ACQUIRES[:2], acquire(2)._replace(type="info", complete=None)],
            False,
        ),
        (SEMAPHORE.replace("Semaphore", "Model"), ACQUIRES[:2], False),
        (SEMAPHORE.replace("Semaphore", "Model"), ACQUIRES, True),
        (model("return [op.value] if op.value > state else []"), TOKENS, True),
        (model("return [op.value] if op.value > state else []"), TOKENS[:1], True),
        (model("return [0] if op.key else [1]", more="  def partition(self, op): return op.key"), ACQUIRES, False),
    ],
)
def test_a_model_that_would_take_any_order_says_nothing(text: str, calls: list[RawCall], refusing: bool) -> None:
    """Two of three permits can be taken in any order, three as well, but in the state after three no fourth can be."""
    answer = found(text, "Model", calls)
    assert (answer.counts, answer.figures) == ({}, {"refusing": int(refusing)})


def test_where_nothing_could_be_refused_the_word_is_unknown(tmp_path: Path) -> None:
    told = verdict(tmp_path, model("return [0]"), history(tmp_path, *ACQUIRED))
    assert told.valid == "unknown" and "nothing was compared" in told.reason


WRITTEN = (
    ":process 0 :type :invoke :f :txn :value [[:w 0 1] [:r 1 nil]]",
    ":process 1 :type :invoke :f :txn :value [[:w 1 2] [:r 0 nil]]",
    ":process 0 :type :ok :f :txn :value [[:w 0 1] [:r 1 2]]",
    ":process 1 :type :ok :f :txn :value [[:w 1 2] [:r 0 1]]",
)


def test_an_analyzer_s_cycles_are_named_and_told_in_its_words(tmp_path: Path) -> None:
    text = ANALYZER.replace("class Analyzer", "class Model")
    told = verdict(tmp_path, text, history(tmp_path, *WRITTEN))
    assert told.valid is False and told.counts == {"G1c": 1} and "read-committed" in told.rules_out
    assert "Event 1 read 1 of 0" in told.anomalies["G1c"][0].message
    nothing = verdict(tmp_path, text, history(tmp_path, *WRITTEN[:1], WRITTEN[2].replace("[:r 1 2]", "[:r 1 nil]")))
    assert nothing.valid == "unknown" and "names no dependency" in nothing.reason


WRONG_GRAPHS = [
    ("g.add_edge(0, 99, kind='wr', why='so')", "the node 99, which is no operation"),
    ("g.add_edge(0, 2, kind='wr')", "it says kind=ww"),
    ("g.add_edge(0, 2, kind='vis', why='so')", "it says kind=ww"),
]


@pytest.mark.parametrize(("step", "words"), WRONG_GRAPHS)
def test_an_edge_that_says_too_little_is_refused(step: str, words: str) -> None:
    text = f"import networkx\nclass Model:\n  def graph(self, ops):\n    g = networkx.MultiDiGraph(); {step}; return g"
    with pytest.raises(UserError, match=words):
        judged(code(text), [acquire(0), acquire(1)], Budget(5.0), 1)


@pytest.mark.spark
def test_spark_says_the_same_of_each_partition(tmp_path: Path, engines: dict[str, Engine]) -> None:
    values = [(key, "acquire") for key in (1, 2, 1, 2, 1, 1)]
    kinds = ("invoke", "ok")
    lines = [f":process 0 :type :{kind} :f :{f} :value [{key} nil]" for key, f in values for kind in kinds]
    path = history(tmp_path, *lines)
    (tmp_path / "mine.py").write_text(SEMAPHORE)
    own = own_code(f"{tmp_path}/mine.py:Semaphore")
    source, options = open_source(path), CheckOptions(code=own)
    one, other = (judge_source(source, own.spec, engine, options) for engine in engines.values())
    assert one.valid is other.valid is False and one.anomalies == other.anomalies and one.details == other.details
