"""Small random histories of every model with verdicts by brute force, each from a model and a seed.

What the histories are and what is wrong with them is said by the naive checkers beside the tests of each family, which
share no code with the kernels: they try every order, every commit time, every set of replicas. They are for histories
of about ten operations. `tests/corpus` is made of these, and `tests.support.fresh` judges as many more as are wanted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

sys.path.extend(str(folder) for folder in (Path(__file__).resolve().parents[1] / "checkers").glob("**/"))

import bruteforce
import etcd_histories
import jepsen_histories
import naive
import naive_catalog
import object_histories
import quorum_histories
import reference_isolation
import register_histories
import session_histories
import test_catalog_search
import test_change_feed
import test_isolation
import test_jepsen_mutations
import test_monotonic_reads
import test_snapshot_reads
import test_write_atomicity
import weak_store
from msgspec.structs import replace as replace_op

from checkers.catalog.calls import CREATE
from checkers.columns.codes import FAILED_CAS, FAILED_WRITE, NEVER
from checkers.made.catalog import corrupted
from checkers.made.catalog import events_of as catalog_events
from checkers.made.objects import FOREIGN_BASE
from checkers.source import Source
from harness.history.ops import Mop, Op
from harness.history.table import to_table


@dataclass(frozen=True, slots=True)
class SmallHistory:
    """A history and what is to be said of it: `true`, `false` or `strongest=LEVEL`.

    `anomalies` are the classes that it shows as far as brute force names them; nothing else may be found then.
    """

    source: Source
    valid: str
    anomalies: frozenset[str] = frozenset()
    events: tuple[Op, ...] = ()


def of_events(
    events: Sequence[Op], right: bool, anomalies: Sequence[str] = (), texts: Sequence[str] = ()
) -> SmallHistory:
    """A history of events in order."""
    return replace(of_table(to_table(events), right, anomalies, texts), events=tuple(events))


def of_table(table: Any, right: bool, anomalies: Sequence[str] = (), texts: Sequence[str] = ()) -> SmallHistory:
    source = Source(Path("small"), "journal", table.num_rows, table=table, dictionary=tuple(texts))
    return SmallHistory(source, "true" if right else "false", frozenset(anomalies))


def a_register(seed: int) -> SmallHistory:
    """A compare-and-set that failed shows nothing unless one says that it does, which here nobody does."""
    random = Random(seed)
    rows = register_histories.random_rows(random, random.randint(1, 8), random.random() < 0.6)
    rows = [(*row[:4], 100 + place) if row[0] == FAILED_WRITE else row for place, row in enumerate(rows)]
    telling = [row for row in rows if row[0] != FAILED_CAS]
    return of_table(register_histories.table([rows]), bruteforce.linearizable(register_histories.columns(telling)))


def an_object(model: str, seed: int) -> SmallHistory:
    random = Random(seed)
    calls = object_histories.random_calls(random, model, random.randint(1, 8))
    start, steps = object_histories.OBJECTS[model]
    if model == "semaphore":
        steps = object_histories.semaphore_of(1)
    texts = object_histories.texts_of([calls])
    return of_events(object_events(model, calls, texts), bruteforce.some_order(calls, start, steps), texts=texts)


NAMES: Final = {"r": "read", "w": "write"}
STRING_NAMES: Final = {"r": "get", "w": "put"}


def object_events(model: str, calls: Sequence[Any], texts: Sequence[str]) -> list[Op]:
    """The calls' events in order, each of a process of its own."""
    placed = []
    for process, (call, begin, end) in enumerate(calls):
        f = call[0] if model == "multi-register" else (STRING_NAMES if texts else NAMES).get(call[0], call[0])
        asked, told = (_mops(model, call, texts, seen) for seen in (False, True))
        owner = call[1] if model in object_histories.LOCKS and model != "semaphore" else None
        op = Op("invoke", process, f, asked, session=owner)
        placed.append((begin, op))
        if end != NEVER:
            placed.append((end, op.complete("ok", mops=told)))
    placed.sort(key=lambda pair: pair[0])
    return [op.complete(op.type, index=index, time=1000 * index) for index, (_, op) in enumerate(placed)]


def _mops(model: str, call: Any, texts: Sequence[str], seen: bool) -> tuple[Mop, ...]:
    f, given, answer = call
    if model == "multi-register":
        answers = answer if seen and answer else given
        return tuple(
            Mop(g[0], g[1], (a[2] if seen else None) if g[0] == "r" else g[2], g[3] if g[0] == "cas" else None)
            for g, a in zip(given, answers, strict=True)
        )
    reads = f in ("r", "dequeue")
    if model in object_histories.LOCKS:
        token = answer if seen and model == "fenced-mutex" and answer != object_histories.UNKNOWN else None
        return (Mop(f, 0, given if model == "semaphore" else token),)
    if model in object_histories.SETS and f == "r":
        return (Mop("r", 0, values=tuple(sorted(answer)) if seen else None),)
    value = (answer if seen and answer != object_histories.UNKNOWN else None) if reads else given
    return (Mop(f, 0, FOREIGN_BASE - 1 - texts.index(value) if isinstance(value, str) else value),)


def transactions(lists: bool, seed: int) -> SmallHistory:
    """By all pairs and all cycles, for strict serializability."""
    random = Random(f"transactions {seed}")
    history = weak_store.random_history(seed, lists)
    if lists:
        anomalies, kinds = naive.list_anomalies(history)
        naive.add_orders(history, kinds, 2)
        found = anomalies | naive.cycle_classes(kinds)
    else:
        history = weak_store.with_strange_reads(history, random, random.choice([0.0, 0.2, 0.5]))
        found = naive.register_classes(history)
    table = weak_store.source_of(history).table
    return of_table(table, not found, sorted(found))


def isolation(seed: int) -> SmallHistory:
    history = test_isolation.random_history(seed)
    events = []
    for number, (session, status, mops) in enumerate(history):
        asked = tuple(Mop(f, key, value if f == "w" else None) for f, key, value in mops)
        told = tuple(Mop(f, key, value) for f, key, value in mops)
        call = Op("invoke", number, "txn", asked, index=2 * number, time=2 * number, session=session)
        events += [call, call.complete(status, mops=told, index=2 * number + 1, time=2 * number + 1)]
    level = reference_isolation.strongest(history)
    small = of_events(events, level == "causal")
    return replace(small, valid=f"strongest={level}")


GUARANTEES: Final = {"read-your-writes": "wr", "monotonic-writes": "ww", "writes-follow-reads": "rw"}


def session_guarantee(model: str, seed: int) -> SmallHistory:
    """Of one cell; every other history is of a quorum table, for the models that judge those."""
    if seed % 2 and model in QUORUM_MODELS:
        return quorum_table(model, seed)
    rows = test_monotonic_reads.random_registers(seed, timed=seed % 4 == 0)
    broken = {name for name, kind in GUARANTEES.items() if test_monotonic_reads.breaks(rows, *kind)}
    if not test_monotonic_reads.some_order_fits(rows):
        broken.add("monotonic-reads")
    right = model not in broken if model != "sessions" else not broken
    return of_events(session_histories.events_of(rows), right)


QUORUM_MODELS: Final = ("write-atomicity", "monotonic-reads", "read-your-writes", "sessions", "durable-rows")


def quorum_table(model: str, seed: int) -> SmallHistory:
    calls = quorum_histories.random_history(seed)
    return of_events(quorum_histories.events_of(calls), model not in quorum_histories.faults(calls))


def pages(seed: int) -> SmallHistory:
    if seed % 2:
        return quorum_table("write-atomicity", seed)
    rows = test_write_atomicity.random_partition(seed, timed=seed % 4 == 0)
    return of_events(session_histories.events_of(rows), test_write_atomicity.some_order_fits(rows))


ONLY: Final = {"set-full": ("lost", "duplicated"), "total-queue": ("lost", "unexpected")}
"""Which of what the naive checkers count makes a history invalid, where not all does."""


def jepsens(model: str, seed: int) -> SmallHistory:
    events = jepsen_histories.random_history(model, seed)
    counts = test_jepsen_mutations.NAIVE[model](events)
    wrong = [name for name, count in (counts or {}).items() if count and name in ONLY.get(model, counts or {})]
    return of_events(events, not wrong, wrong)


def snapshot_reads(seed: int) -> SmallHistory:
    rows = test_snapshot_reads.random_cell(seed)
    return of_events(session_histories.events_of(rows), test_snapshot_reads.right(rows))


def change_feed(seed: int) -> SmallHistory:
    steps = test_change_feed.random_feed(seed)
    return of_events(test_change_feed.history(*steps), test_change_feed.kept_its_promise(steps))


def catalog(seed: int) -> SmallHistory:
    calls = test_catalog_search.small(seed)
    changed = corrupted(calls, seed) if calls and seed % 3 else calls
    if not any(call.kind == CREATE and any(seen.absent for seen in call.seen) for call in changed):
        calls = changed  # no master refuses to create a table because it is not there
    return of_events(catalog_events(calls), naive_catalog.linearizable(calls))


def etcd(seed: int) -> SmallHistory:
    calls = etcd_histories.random_calls(Random(seed), 6, moved=False)
    events = [replace_op(event, index=i, time=i) for i, event in enumerate(etcd_histories.events_of(calls))]
    return of_events(events, etcd_histories.some_order(calls))


def _each(make: Callable[[str, int], SmallHistory], *models: str) -> dict[str, Callable[[int], SmallHistory]]:
    return {model: lambda seed, model=model: make(model, seed) for model in models}  # type: ignore[misc]


SMALL: Final[dict[str, Callable[[int], SmallHistory]]] = {
    "register": a_register,
    "cas-register": a_register,
    "catalog-rows": a_register,
    **_each(an_object, *object_histories.OBJECTS),
    "list-append": lambda seed: transactions(True, seed),
    "rw-register": lambda seed: transactions(False, seed),
    "isolation": isolation,
    **_each(session_guarantee, "monotonic-reads", "sessions", *GUARANTEES),
    **_each(jepsens, *test_jepsen_mutations.NAIVE),
    "write-atomicity": pages,
    "durable-rows": lambda seed: quorum_table("durable-rows", seed),
    "snapshot-reads": snapshot_reads,
    "change-feed": change_feed,
    "etcd-kv": etcd,
    "catalog": catalog,
    "stats": lambda seed: replace(a_register(seed), valid="true"),
}
"""By model, the history of a seed; `logs` judges no histories, and `stats` never calls one invalid."""
