"""Valid histories for every model that histories can be judged by, at any size, streamed as batches of the table.

Where a model judges each key by itself, a key's operations are made by themselves, and several keys are at work at
once, as with Jepsen's `independent`: what is valid key by key is valid as a whole (linearizability is local).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from random import Random
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from checkers.made.catalog import events_of
from checkers.made.catalog_calls import CatalogShape, catalog_calls
from checkers.made.jepsen import Shape, stream
from checkers.made.objects import ObjectShape, object_events
from checkers.made.pages import PageShape, page_batches
from checkers.made.registers import RegisterShape, register_batches
from checkers.made.snapshots import feed_events, snapshot_events
from checkers.made.splice import TICK_NS
from checkers.made.transactions import TxnShape, txn_batches
from harness.history.ops import Mop, Op
from harness.history.table import batches as batches_of

Batches: TypeAlias = Iterator[pa.RecordBatch]

_KEYS_AT_ONCE: Final = 5
_CLIENTS: Final = 4
_CELLS: Final = 3
"""Registers of one object of the model `multi-register`."""

_CALLS: Final = 40
"""Of the catalog, in one place; then other names."""


@dataclass(slots=True)
class ValidHistory:
    """A valid history: so many operations of the model on so many keys, of which changes have an unknown outcome with
    probability `info`. `texts` are interned strings, by text, to which the history adds its own; with `quorum` the
    operations of a history of pages say how their table is replicated."""

    model: str
    operations: int
    keys: int
    info: float
    seed: int
    texts: dict[str, int] = field(default_factory=dict)
    quorum: bool = False


@dataclass(frozen=True, slots=True)
class HistoryMaker:
    """How the valid histories of a model are made, and on how many keys unless that is said; `keys_are` what keys are,
    None where the model has none."""

    make: Callable[[ValidHistory], Batches]
    keys: int = 10
    keys_are: str | None = "keys"


def interleaved(streams: Iterable[Iterator[Op]], at_once: int, random: Random) -> Iterator[Op]:
    """The events of several histories, some at a time, as one: their processes get numbers of their own, negative ones
    excepted."""
    waiting, processes, index = iter(streams), 0, 0
    running: list[tuple[Iterator[Op], dict[int, int]]] = [(one, {}) for one in islice(waiting, at_once)]
    while running:
        place = random.randrange(len(running))
        events, numbers = running[place]
        event = next(events, None)
        if event is None:
            following = next(waiting, None)
            running[place : place + 1] = [] if following is None else [(following, {})]
            continue
        if event.process >= 0 and event.process not in numbers:
            numbers[event.process], processes = processes, processes + 1
        process = numbers.get(event.process, event.process)
        yield msgspec.structs.replace(event, process=process, index=index, time=index * TICK_NS)
        index += 1


def _keyed(wanted: ValidHistory, of_key: Callable[[int, int, int], Iterator[Op]]) -> Batches:
    """The history of all keys, `of_key` (key, operations, seed) by `of_key`."""
    random = Random(wanted.seed)
    each, more = divmod(wanted.operations, wanted.keys)
    counts = ((key, each + (key < more)) for key in range(wanted.keys))
    streams = (of_key(key, count, random.getrandbits(60)) for key, count in counts if count)
    return batches_of(interleaved(streams, _KEYS_AT_ONCE, random))


def _registers(wanted: ValidHistory) -> Batches:
    shape = RegisterShape(wanted.operations, wanted.keys, info_share=wanted.info, seed=wanted.seed)
    return register_batches(shape)


def _transactions(wanted: ValidHistory) -> Batches:
    lists = wanted.model == "list-append"
    return txn_batches(
        TxnShape(
            wanted.operations,
            "list-append" if lists else "rw-register",
            active_keys=wanted.keys,
            info_share=wanted.info,
            seed=wanted.seed,
        )
    )


def _pages(wanted: ValidHistory) -> Batches:
    quorum = wanted.quorum or wanted.model == "durable-rows"
    return page_batches(
        PageShape(wanted.operations, wanted.keys, info_share=wanted.info, quorum=quorum, seed=wanted.seed)
    )


def _objects(wanted: ValidHistory) -> Batches:
    cells = _CELLS if wanted.model == "multi-register" else 1
    values = 0 if wanted.model.endswith("queue") else 5

    def of_key(key: int, count: int, seed: int) -> Iterator[Op]:
        shape = ObjectShape(wanted.model, count, _CLIENTS, values, wanted.info, seed=seed)
        for event in object_events(shape, wanted.texts):
            mops = tuple(msgspec.structs.replace(mop, partition=key * cells + mop.partition) for mop in event.mops)
            yield msgspec.structs.replace(event, mops=mops)

    return _keyed(wanted, of_key)


def _of_jepsen(wanted: ValidHistory) -> Batches:
    """Objects of Jepsen's own checkers, one by key."""
    width = 2 if wanted.model == "long-fork" else _CELLS
    return _keyed(
        wanted,
        lambda key, count, seed: stream(wanted.model, Shape(count, _CLIENTS, wanted.info, 0.05, key, width), seed),
    )


def _one_of_jepsen(wanted: ValidHistory) -> Batches:
    """A bank of so many accounts, or one source of ids."""
    shape = Shape(wanted.operations, _CLIENTS, wanted.info, 0.05, width=wanted.keys)
    return batches_of(stream(wanted.model, shape, wanted.seed))


def _snapshots(wanted: ValidHistory) -> Batches:
    return _keyed(wanted, lambda key, count, seed: snapshot_events(key, count, wanted.info, Random(seed)))


def _feeds(wanted: ValidHistory) -> Batches:
    return _keyed(wanted, lambda key, count, seed: feed_events(key + 1, count, wanted.info, Random(seed)))


def _catalog(wanted: ValidHistory) -> Batches:
    """Calls on a few names for a while, then on others. Nobody asks for a list, for what is injected is in it."""
    return batches_of(interleaved(_plays(wanted), 1, Random(wanted.seed)))


def empty_catalogs(wanted: ValidHistory) -> list[int]:
    """Events of a catalog's history before which there is no table, so that a list may show what is injected alone."""
    return [0, *accumulate(sum(1 for _ in play) for play in _plays(wanted))]


def _plays(wanted: ValidHistory) -> Iterator[Iterator[Op]]:
    random = Random(wanted.seed)
    for number, first in enumerate(range(0, wanted.operations, _CALLS)):
        yield _calls(number, min(_CALLS, wanted.operations - first), wanted, random.getrandbits(60))


def _calls(number: int, count: int, wanted: ValidHistory, seed: int) -> Iterator[Op]:
    names = wanted.keys
    shape = CatalogShape(count, names=names, unknown=wanted.info, empties=True)
    for event in events_of([call for call in catalog_calls(shape, seed) if not call.total]):
        yield msgspec.structs.replace(event, mops=tuple(_elsewhere(mop, number * names, number) for mop in event.mops))


def _elsewhere(mop: Mop, names: int, number: int) -> Mop:
    changed: dict[str, Any] = {"partition": mop.partition + names}
    if mop.value is not None:
        changed["value"] = mop.value + number * 10 * _CALLS
    if mop.f == "rename":
        changed["row"] = mop.row + names
    return msgspec.structs.replace(mop, **changed)


_CELL_MODELS: Final = ("sessions", "monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads")
BASES: Final[dict[str, HistoryMaker]] = {
    **dict.fromkeys(("register", "cas-register", "catalog-rows", "stats"), HistoryMaker(_registers, 100)),
    **dict.fromkeys(
        ("mutex", "lin-set", "lin-queue", "fifo-queue", "kv-append", "multi-register"), HistoryMaker(_objects)
    ),
    **dict.fromkeys(
        ("list-append", "rw-register", "isolation"), HistoryMaker(_transactions, 30, "keys in use at once")
    ),
    **dict.fromkeys((*_CELL_MODELS, "write-atomicity", "durable-rows"), HistoryMaker(_pages, 100, "partitions")),
    **dict.fromkeys(("set", "set-full", "counter", "queue", "total-queue"), HistoryMaker(_of_jepsen)),
    "long-fork": HistoryMaker(_of_jepsen, 10, "groups of keys"),
    "convergence": HistoryMaker(_of_jepsen, 10, "groups of registers"),
    "bank": HistoryMaker(_one_of_jepsen, 8, "accounts"),
    "unique-ids": HistoryMaker(_one_of_jepsen, 1, None),
    "snapshot-reads": HistoryMaker(_snapshots),
    "change-feed": HistoryMaker(_feeds, 10, "tables, each with a feed"),
    "catalog": HistoryMaker(_catalog, 3, "names in use at once"),
}
"""By model; `logs` has none, for it judges no history but what nodes wrote."""
