"""Made histories of every model, at any size, streamed as batches of the table: valid by construction, or with
anomalies of one name injected in them.

Where a model judges each key by itself, a key's operations are made by themselves, and several keys are at work at
once, as with Jepsen's `independent`: what is valid key by key is valid as a whole (linearizability is local).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from checkers.linearizability.objects.locks import RULES
from checkers.made.catalog import CatalogShape, catalog_calls, events_of
from checkers.made.examples import ExampleGroup, groups, open_example
from checkers.made.injection import INJECTED, TICK_NS, InjectedTxn, Renamed, Template, history_of, spliced
from checkers.made.jepsen import Shape, stream
from checkers.made.objects import ObjectShape, object_events
from checkers.made.pages import PageShape, page_batches
from checkers.made.registers import RegisterShape, register_batches
from checkers.made.snapshots import etcd_events, feed_events, snapshot_events
from checkers.made.transactions import TxnShape, txn_batches
from checkers.source import Source
from harness.errors import UserError
from harness.history.address import Place
from harness.history.columns import SCHEMA, Purpose
from harness.history.ops import Mop, Op
from harness.history.parts import PART_ROWS, write_history
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
    """A valid history: `operations` of the model on `keys`, of which changes have an unknown outcome with probability
    `info`. `texts` are interned strings, by text, to which the history adds its own; with `quorum` the
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
    """A bank whose accounts are the keys, or one source of ids."""
    shape = Shape(wanted.operations, _CLIENTS, wanted.info, 0.05, width=wanted.keys)
    return batches_of(stream(wanted.model, shape, wanted.seed))


def _snapshots(wanted: ValidHistory) -> Batches:
    return _keyed(wanted, lambda key, count, seed: snapshot_events(key, count, wanted.info, Random(seed)))


def _feeds(wanted: ValidHistory) -> Batches:
    return _keyed(wanted, lambda key, count, seed: feed_events(key + 1, count, wanted.info, Random(seed)))


def _etcd(wanted: ValidHistory) -> Batches:
    """One store, for its revisions order all keys."""
    events = etcd_events(wanted.keys, wanted.operations, wanted.info, Random(wanted.seed))
    return batches_of(interleaved([events], 1, Random(wanted.seed)))


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
        ("mutex", *RULES, "lin-set", "lin-queue", "fifo-queue", "kv-append", "multi-register", "causal-reverse"),
        HistoryMaker(_objects),
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
    "etcd-kv": HistoryMaker(_etcd),
    "change-feed": HistoryMaker(_feeds, 10, "tables, each with a feed"),
    "catalog": HistoryMaker(_catalog, 3, "names in use at once"),
}
"""By model; `logs` has none, for it judges no history but what nodes wrote."""


_ALL_VALUES: Final = Renamed(keys=False, values=True)
_RENAMED: Final = {
    "bank": Renamed(keys=False),
    "unique-ids": _ALL_VALUES,
    "catalog": Renamed(values=True),
    "change-feed": Renamed(keys=False, tables=True),
}
"""What is injected has keys of its own, unless a model's keys mean more than themselves."""

_GUARANTEES: Final = ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads")
_SHARES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "cas-register": (("register",), ()),
    "catalog-rows": (("register",), ()),
    "sessions": (_GUARANTEES, ()),
    "total-queue": (("queue",), ("duplicated", "premature")),
}
"""Models that find the anomalies of others, and which of these they don't."""

_BALANCE: Final = 10
"""Of an account in the beginning, in the examples and in `checkers.made.jepsen`."""


@dataclass(frozen=True, slots=True)
class MadeHistory:
    """What to make: `operations` of a model on `keys` (None: as many as `BASES` says), `info` of the changes of unknown
    outcome, and `anomaly` once half-way, or at `rate` of the operations, evenly."""

    model: str
    operations: int
    keys: int | None = None
    anomaly: str | None = None
    rate: float | None = None
    info: float = 0.01
    seed: int = 0


def base_of(model: str) -> HistoryMaker:
    """How the model's valid histories are made; raises UserError where there is no such model, or no history of it."""
    if model == "logs":
        raise UserError("The model logs judges what nodes wrote, not a history; there is nothing to generate.")
    if model not in BASES:
        raise UserError(f"There is no model {model!r}; histories can be generated for {', '.join(BASES)}.")
    return BASES[model]


@cache
def anomalies(model: str) -> tuple[str, ...]:
    """The anomalies that can be injected in a history of the model."""
    return tuple(_sources(model))


def settings_of(wanted: MadeHistory) -> dict[str, str]:
    """The settings of the model with which it finds the injected anomaly, if by default it passes it over."""
    mine = [example for group in groups() for example in group.examples if example.model == wanted.model]
    settings = [setting for example in mine if example.anomaly == wanted.anomaly for setting in example.settings]
    stated = dict(setting.split("=", 1) for setting in settings)
    if "accounts" in stated:  # the example has fewer
        stated["accounts"] = ",".join(map(str, range(wanted.keys or base_of(wanted.model).keys)))
    return stated


def write_made(wanted: MadeHistory, place: Place, part_rows: int = PART_ROWS) -> int:
    """Make a history and write it, as `harness.history.parts.write_history` does; the number of its operations.

    Memory does not grow with operations, but for what an object of the model holds.
    """
    texts: dict[str, int] = {}
    batches = made_batches(wanted, texts)
    purpose = Purpose(models=(wanted.model,))
    return write_history(
        batches, place, part_rows=part_rows, dictionary=lambda: msgspec.json.encode(list(texts)), purpose=purpose
    )


def made_batches(wanted: MadeHistory, texts: dict[str, int]) -> Iterator[pa.RecordBatch]:
    """The history in batches of its table. `texts` are its interned strings by their numbers, in order, complete once
    all batches are made. Raises UserError for what can't be made."""
    base = base_of(wanted.model)
    if wanted.operations < 1:
        raise UserError(f"A history has operations, not {wanted.operations}.")
    if wanted.keys is not None and base.keys_are is None:
        raise UserError(f"The model {wanted.model} has no keys; leave them out.")
    keys = base.keys if wanted.keys is None else wanted.keys
    if keys < 1 or (keys < 2 and wanted.model in ("bank", "catalog")):
        raise UserError(f"The model {wanted.model} needs more {base.keys_are} than {keys}.")
    template = _template(wanted, keys, texts)
    quorum = template is not None and template.rows.column("replication").null_count < template.rows.num_rows
    valid = ValidHistory(wanted.model, wanted.operations, keys, wanted.info, wanted.seed, texts, quorum)
    if template is None:
        return base.make(valid)
    places = _places(wanted)
    if wanted.model == "catalog":
        empty = np.array(empty_catalogs(valid))
        places = np.unique(empty[np.searchsorted(empty, places).clip(max=len(empty) - 1)])
    return spliced(base.make(valid), template, places)


def _places(wanted: MadeHistory) -> np.ndarray:
    """Before which events anomalies are injected; an operation has two events."""
    rate = wanted.rate
    count = 1 if rate is None else max(1, round(rate * wanted.operations))
    return np.unique((np.arange(count) * 2 + 1) * wanted.operations // count)


def _template(wanted: MadeHistory, keys: int, texts: dict[str, int]) -> Template | None:
    if wanted.anomaly is None:
        return None
    known = _sources(wanted.model)
    if wanted.anomaly not in known:
        raise UserError(
            f"{wanted.anomaly!r} can't be injected in a history of {wanted.model}; "
            + (f"what can: {', '.join(known)}." if known else "nothing can, for it knows no anomalies.")
        )
    source = known[wanted.anomaly]()
    for text in source.dictionary:
        texts.setdefault(text, len(texts))
    rows = pa.Table.from_batches([batch.cast(SCHEMA) for batch in source.batches(SCHEMA.names)], schema=SCHEMA)
    rows = rows.set_column(rows.column_names.index("clock"), "clock", pa.nulls(len(rows), pa.string()))
    if wanted.model == "bank":
        rows = _of_all_accounts(rows, keys)
    return Template(rows, _RENAMED.get(wanted.model, Renamed()))


def _of_all_accounts(rows: pa.Table, accounts: int) -> pa.Table:
    """Reads of a bank show two accounts in the examples; here all others as they were in the beginning."""
    stated = rows.column("mops").to_pylist()
    cell = {"f": "r", "table": 0, "row": 0, "column": 0, "value": _BALANCE, "expected": None, "values": None}
    others = [cell | {"partition": account} for account in range(2, accounts)]
    for mop in (mop for each in stated for mop in each or () if mop["partition"] > 1):
        mop["partition"] += accounts  # one that there is not
    mops = [each + others if each and each[0]["f"] == "r" else each for each in stated]
    place = rows.column_names.index("mops")
    return rows.set_column(place, SCHEMA.field("mops"), pa.array(mops, SCHEMA.field("mops").type))


@cache
def _sources(model: str) -> dict[str, Callable[[], Source]]:
    """Tiny histories by the name of the anomaly that they show; none where one order of revisions is that of all."""
    if model == "etcd-kv":
        return {}
    found: dict[str, Callable[[], Source]] = {}
    for name, injected in INJECTED.get(model, {}).items():
        found[name] = partial(_of_table, injected)
    for group in groups():
        for example in group.examples if model in group.models else ():
            if example.model == model or (example.model, example.anomaly) in _shared(model, group):
                found.setdefault(example.anomaly, partial(open_example, example.path))
    return found


def _shared(model: str, group: ExampleGroup) -> set[tuple[str, str]]:
    """The examples of other models of its group that this one finds too."""
    others, besides = _SHARES.get(model, ((), ()))
    stated = {(each.model, each.anomaly) for each in group.examples}
    return {pair for pair in stated if pair[0] in others and pair[1] not in besides}


def _of_table(injected: tuple[InjectedTxn, ...]) -> Source:
    rows = history_of(injected)
    return Source(Path("injected"), "parquet", rows.num_rows, table=rows)
