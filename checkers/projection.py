"""Operations on single objects as flat columns: which history columns they come from and how.

A projection is literal data; the local engine evaluates it here on Arrow batches, the Spark engine as native column
expressions. Both give the columns of FLAT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from checkers.kernels.columns import NEVER, NIL, Ints

UNSUPPORTED: Final = 127
"""Kind of an operation that the model does not know: other than one micro-operation, or of the reserved value NIL."""

MISMATCH: Final = "cas-mismatch"
"""Error class of a compare-and-set that completed and found another value."""

KEY_COLUMNS: Final = ("table", "partition", "row", "column")

FLAT: Final = pa.schema(
    [
        *(pa.field(name, pa.int64(), nullable=False) for name in KEY_COLUMNS),
        pa.field("invoke", pa.int64(), nullable=False),
        pa.field("complete", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("expected", pa.int64(), nullable=False),
    ]
)
"""`complete` is NEVER where the outcome is unknown, `value` and `expected` are NIL for nil."""


@dataclass(frozen=True, slots=True)
class Projection:
    """How the micro-operations of a model become kinds.

    `kinds` gives the kind of each; `only_ok` are those that say nothing unless they completed; `failed` gives the kind
    of failed ones (left out where there is none) and `mismatched` of those that failed on a mismatch (error class
    MISMATCH or none).
    """

    kinds: Mapping[str, int]
    only_ok: frozenset[str] = frozenset()
    failed: Mapping[str, int] = field(default_factory=dict)
    mismatched: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The Parquet columns that are read."""
        leaves = [f"mops.list.element.{name}" for name in ("f", *KEY_COLUMNS, "value", "expected")]
        always = ["invoke_index", "complete_index", "type", "process", *leaves]
        return [*always, "error_class"] if self.mismatched else always


class Flat(NamedTuple):
    """The columns of FLAT as numpy arrays, in order of invocation; `address` has one row per key column."""

    address: tuple[Ints, Ints, Ints, Ints]
    invoke: Ints
    complete: Ints
    kind: npt.NDArray[np.int8]
    value: Ints
    expected: Ints


DROPPED: Final = -1


def _text_codes(column: pa.Array) -> tuple[npt.NDArray[np.int32], list[str]]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, column.dictionary.to_pylist()


def _kind_table(projection: Projection, f: str) -> tuple[int, int, int, int]:
    """Kinds of one micro-operation when ok, indeterminate, failed, failed on a mismatch."""
    if f not in projection.kinds:
        return (UNSUPPORTED,) * 4
    kind = projection.kinds[f]
    failed = projection.failed.get(f, DROPPED)
    return kind, DROPPED if f in projection.only_ok else kind, failed, projection.mismatched.get(f, failed)


def _outcomes(batch: pa.RecordBatch, projection: Projection) -> npt.NDArray[np.int8]:
    """0 ok, 1 unknown, 2 failed, 3 failed on a mismatch."""
    codes, names = _text_codes(batch.column("type"))
    outcome = np.array([{"ok": 0, "info": 1}.get(name, 2) for name in names] + [1], np.int8)[codes]
    if projection.mismatched:
        errors = batch.column("error_class")
        missed = pc.or_kleene(pc.is_null(errors), pc.equal(errors, MISMATCH)).fill_null(True)
        outcome[(outcome == 2) & missed.to_numpy(zero_copy_only=False)] = 3
    return outcome


def _ints(column: pa.Array, null: int) -> Ints:
    filled: Ints = column.cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)
    return filled


def flatten(batch: pa.RecordBatch, projection: Projection) -> Flat:
    """Evaluate the projection on a batch of the history table; nemesis operations are left out."""
    clients = np.flatnonzero(_ints(batch.column("process"), 0) >= 0)
    mops = batch.column("mops")
    lengths = _ints(pc.list_value_length(mops), 0)
    elements, starts = mops.flatten(), np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    single = lengths[clients] == 1
    if not len(elements):
        elements = pa.nulls(1, elements.type)
    place = np.minimum(starts[clients], len(elements) - 1)
    fields = {name: elements.field(i) for i, name in enumerate(f.name for f in elements.type)}
    codes, names = _text_codes(fields["f"])
    table = np.array([_kind_table(projection, name) for name in names] + [(UNSUPPORTED,) * 4], np.int8)
    kind = np.where(single, table[codes[place], _outcomes(batch, projection)[clients]], np.int8(UNSUPPORTED))
    kept = kind != DROPPED
    clients, place, kind = clients[kept], place[kept], kind[kept]
    value, expected = (_ints(fields[name], NIL)[place] for name in ("value", "expected"))
    for name, column in (("value", value), ("expected", expected)):
        if (column == NIL).any():
            kind[(column == NIL) & fields[name].is_valid().to_numpy(zero_copy_only=False)[place]] = UNSUPPORTED
    finished = _outcomes(batch, projection)[clients] != 1
    complete = _ints(batch.column("complete_index"), NEVER)[clients]
    t, p, r, c = (_ints(fields[name], 0)[place] for name in KEY_COLUMNS)
    return Flat(
        (t, p, r, c),
        _ints(batch.column("invoke_index"), 0)[clients],
        np.where(finished, complete, NEVER),
        kind,
        value,
        expected,
    )


def concatenated(parts: list[Flat]) -> Flat:
    """The parts one after the other."""
    if not parts:
        nothing = np.empty(0, np.int64)
        return Flat((nothing,) * 4, nothing, nothing, np.empty(0, np.int8), nothing, nothing)
    t, p, r, c = (np.concatenate([part.address[i] for part in parts]) for i in range(4))
    rest = [np.concatenate([part[i] for part in parts]) for i in range(1, 6)]
    return Flat((t, p, r, c), *rest)
