"""`-o versions=FIELD`: versions of registers in the order that their database states, so nothing is left to choose.

What is right is said by `list-append`: there every read shows the versions before its own too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from weak_store import Txn, source_of

from checkers.api import check
from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.transactions.judge_transactions import judge_by_each
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.parts import write_history

BY = {"versions": "served-ts"}
LEVELS = (
    *("read-committed", "read-atomic", "causal-cerone", "update-atomic", "prefix"),
    *("parallel-snapshot-isolation", "snapshot-isolation", "serializable", "strict-serializable"),
    *("strong-session-snapshot-isolation", "strong-snapshot-isolation", "strong-session-serializable"),
)


def stating(txns: Sequence[Txn], stated: Sequence[int | None]) -> Source:
    source = source_of(list(txns))
    assert source.table is not None
    place = source.table.column_names.index("served_ts")
    return replace(source, table=source.table.set_column(place, "served_ts", pa.array(stated, pa.int64())))


def judged(source: Source, *levels: str, engine: Engine | None = None) -> list[Verdict]:
    return judge_by_each("rw-register", source, engine or LocalEngine(), CheckOptions(settings=BY), levels)


def drawn(seed: int) -> tuple[list[Txn], list[int], list[Txn]]:
    """Transactions on registers, what they state, and the same on lists; the last reads all."""
    dice, keys, count = random.Random(seed), range(2), 4
    stated = dice.sample(range(100), count)
    written = {key: [txn for txn in range(count) if dice.random() < 0.6] for key in keys}
    order = {key: sorted(written[key], key=stated.__getitem__) for key in keys}
    times = sorted(range(2 * count), key=lambda _: dice.random())
    registers, lists = list[Txn](), list[Txn]()
    for txn in range(count):
        begin, end = sorted((times.index(2 * txn), times.index(2 * txn + 1)))
        mops, told = list[tuple[str, int, Any]](), list[tuple[str, int, Any]]()
        for key in dice.sample(keys, 2):
            seen = dice.randrange(len(order[key]) + 1)
            if dice.random() < 0.6 and txn not in order[key][:seen]:
                mops.append(("r", key, order[key][seen - 1] + 1 if seen else None))
                told.append(("r", key, tuple(writer + 1 for writer in order[key][:seen])))
        mops += [("w", key, txn + 1) for key in keys if txn in written[key]]
        told += [("append", key, txn + 1) for key in keys if txn in written[key]]
        registers.append(Txn(txn, "ok", begin, end, tuple(mops)))
        lists.append(Txn(txn, "ok", begin, end, tuple(told)))
    last = [("r", key, order[key][-1] + 1 if order[key] else None) for key in keys]
    whole = [("r", key, tuple(writer + 1 for writer in order[key])) for key in keys]
    registers.append(Txn(count, "ok", 2 * count, 2 * count + 1, tuple(last)))
    lists.append(Txn(count, "ok", 2 * count, 2 * count + 1, tuple(whole)))
    by_time = sorted(range(count), key=lambda txn: registers[txn].invoke)
    by_time.append(count)
    return [registers[t] for t in by_time], [[*stated, 100][t] for t in by_time], [lists[t] for t in by_time]


def test_stated_orders_are_judged_as_lists_that_show_them() -> None:
    words = set()
    for seed in range(60):
        registers, stated, lists = drawn(seed)
        mine = judged(stating(registers, stated), *LEVELS)
        theirs = judge_by_each("list-append", source_of(lists), LocalEngine(), CheckOptions(), LEVELS)
        for level, ours, right in zip(LEVELS, mine, theirs, strict=True):
            assert ours.valid == right.valid, (seed, level, ours, right, registers, stated)
            words.add((level, right.valid))
    assert len(words) == 2 * len(LEVELS)


def seen_twice(process: int = 2) -> list[Txn]:
    """Two blind writers of two keys, and reads of both of one of them."""
    return [
        Txn(0, "ok", 0, 1, (("w", 1, 1), ("w", 2, 1))),
        Txn(1, "ok", 2, 3, (("w", 1, 2), ("w", 2, 2))),
        Txn(process, "ok", 4, 5, (("r", 1, 1), ("r", 2, 1))),
    ]


def test_what_is_stated_decides_what_was_open() -> None:
    """The reader began after both had completed: only if the second comes first does it see the latest."""
    for stated, valid in (((5, 3, 9), True), ((3, 5, 9), False)):
        (verdict,) = judged(stating(seen_twice(), stated), "strict-serializable")
        assert verdict.valid is False or valid, verdict  # real time orders the writers too
    fresh = [txn._replace(invoke=place, complete=10 + place) for place, txn in enumerate(seen_twice())]
    fresh[2] = fresh[2]._replace(mops=(("r", 1, 1), ("r", 2, 2)))
    for stated in ((5, 3, 9), (3, 5, 9)):
        (verdict,) = judged(stating(fresh, stated), "serializable")
        assert verdict.valid is False
        assert "no-version-order" not in verdict.counts, verdict.counts  # nothing was left to choose


def test_a_write_of_unknown_outcome_has_its_place_once_it_was_seen() -> None:
    """Nobody knows where one stands that states nothing, which then leaves the key open; one that nobody saw says
    nothing of those that others saw."""
    unknown = Txn(0, "info", 0, None, (("w", 1, 1),))
    later = Txn(1, "ok", 2, 3, (("w", 1, 2),))
    reads = [Txn(2, "ok", 4, 5, (("r", 1, 2),)), Txn(2, "ok", 6, 7, (("r", 1, 1),))]
    for stated, valid in ((None, True), (9, True), (1, False)):
        source = stating([unknown, later, *reads], [stated, 5, None, None])
        (verdict,) = judged(source, "strong-session-serializable")
        assert verdict.valid is valid, (stated, verdict)
    (verdict,) = judged(stating([unknown, later, reads[0]], [9, 5, None]), "strict-serializable")
    assert verdict.valid is True


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ((5, None, 9), r"event 2: this transaction wrote and states no served_ts \(an integer\)"),
        ((5, 5, 9), r"events 0 and 2 write to key 1 and state the same served_ts\.$"),
    ],
)
def test_what_is_not_stated_or_twice_is_refused(stated: tuple[int | None, ...], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        judged(stating(seen_twice(), stated), "serializable")


EDN = """
{{:type :invoke :process 0 :f :txn :value [[:w x 1] [:w y 1]] :time 0}}
{{:type :invoke :process 1 :f :txn :value [[:w x 2] [:w y 2]] :time 1}}
{{:type :invoke :process 2 :f :txn :value [[:r x nil] [:r y nil]] :time 2}}
{{:type :ok :process 0 :f :txn :value [[:w x 1] [:w y 1]] :time 3 :{field} {0}}}
{{:type :ok :process 1 :f :txn :value [[:w x 2] [:w y 2]] :time 4 :{field} {1}}}
{{:type :ok :process 2 :f :txn :value [[:r x 1] [:r y 1]] :time 5}}
{{:type :invoke :process 2 :f :txn :value [[:r x nil] [:r y nil]] :time 6}}
{{:type :ok :process 2 :f :txn :value [[:r x 2] [:r y 2]] :time 7}}
"""


@pytest.mark.parametrize("field", ["commit-ts", "served-ts", "v", "an-even-longer-name-than-all-others"])
def test_any_field_of_jepsen_s_operations_will_do(field: str, tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    for one, other, valid in ((3, 5, True), (5, 3, False)):
        path.write_text(EDN.format(one, other, field=field))
        options = CheckOptions(settings={"versions": field}, consistency="strong-session-serializable")
        assert check(path, "rw-register", options=options).valid is valid, (one, other)
    assert check(path, "rw-register", options=replace(options, settings={})).valid is True


def test_a_field_that_the_history_can_t_have_is_refused(tmp_path: Path) -> None:
    source = stating(seen_twice(), (5, 3, 9))
    options = CheckOptions(settings={"versions": "commit-ts"})
    with pytest.raises(UserError, match="takes served-ts or write-ts, not 'commit-ts'"):
        judge_by_each("rw-register", source, LocalEngine(), options, ["serializable"])
    path = tmp_path / "h.edn"
    path.write_text(EDN.format('"3"', 5, field="commit-ts"))
    with pytest.raises(UserError, match=r"h\.edn, event 0: .* states no commit-ts"):
        check(path, "rw-register", options=options)


def saved(folder: Path, txns: Sequence[Txn], stated: Sequence[int | None]) -> Source:
    table = stating(txns, stated).table
    assert table is not None
    write_history(table.to_batches(), folder / f"{stated}.parquet")
    return open_source(folder / f"{stated}.parquet")


@pytest.mark.spark
def test_engines_agree_on_stated_orders(spark: Engine, tmp_path: Path) -> None:
    for stated in ((3, 5, 9), (5, 5, 9)):
        source, said = saved(tmp_path, seen_twice(), stated), list[str]()
        for engine in (LocalEngine(), spark):
            try:
                (verdict,) = judged(source, "strong-session-snapshot-isolation", engine=engine)
                said.append(f"{verdict.valid} {verdict.counts}")
            except UserError as error:
                said.append(str(error))
        assert said[0] == said[1], said
