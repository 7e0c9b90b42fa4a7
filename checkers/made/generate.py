"""Made histories of every model: valid by construction, or with anomalies of one name injected in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from checkers.made.anomalies import INJECTED, InjectedTxn, history_of
from checkers.made.bases import BASES, HistoryMaker, ValidHistory, empty_catalogs
from checkers.made.examples import ExampleGroup, groups, open_example
from checkers.made.splice import Renamed, Template, spliced
from checkers.source import Source
from harness.errors import UserError
from harness.history.address import Place
from harness.history.columns import SCHEMA
from harness.history.parts import PART_ROWS, write_history

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
    """What to make: operations of a model on so many keys (None: as many as `BASES` says), `info` of the changes of
    unknown outcome, and `anomaly` once half-way, or at `rate` of the operations, evenly."""

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
    told = dict(setting.split("=", 1) for setting in settings)
    if "accounts" in told:  # the example has fewer
        told["accounts"] = ",".join(map(str, range(wanted.keys or base_of(wanted.model).keys)))
    return told


def write_made(wanted: MadeHistory, place: Place, part_rows: int = PART_ROWS) -> int:
    """Make a history and write it, as `harness.history.parts.write_history` does; the number of its operations.

    Memory does not grow with operations, but for what an object of the model holds.
    """
    texts: dict[str, int] = {}
    batches = made_batches(wanted, texts)
    return write_history(batches, place, part_rows=part_rows, dictionary=lambda: msgspec.json.encode(list(texts)))


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
    told = rows.column("mops").to_pylist()
    cell = {"f": "r", "table": 0, "row": 0, "column": 0, "value": _BALANCE, "expected": None, "values": None}
    others = [cell | {"partition": account} for account in range(2, accounts)]
    for mop in (mop for each in told for mop in each or () if mop["partition"] > 1):
        mop["partition"] += accounts  # one that there is not
    mops = [each + others if each and each[0]["f"] == "r" else each for each in told]
    place = rows.column_names.index("mops")
    return rows.set_column(place, SCHEMA.field("mops"), pa.array(mops, SCHEMA.field("mops").type))


@cache
def _sources(model: str) -> dict[str, Callable[[], Source]]:
    """Tiny histories by the name of the anomaly that they show."""
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
    told = {(each.model, each.anomaly) for each in group.examples}
    return {pair for pair in told if pair[0] in others and pair[1] not in besides}


def _of_table(injected: tuple[InjectedTxn, ...]) -> Source:
    rows = history_of(injected)
    return Source(Path("injected"), "parquet", rows.num_rows, table=rows)
