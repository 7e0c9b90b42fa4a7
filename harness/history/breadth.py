"""How broad operations are: whoever reads, splits or judges a history plans memory by micro-operations and elements of
lists, for an operation may have any number of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa

_LEAVES: Final = ("mops.list.element.f", "mops.list.element.values.list.element")

_MOST_MOPS: Final = 1 << 20
_MOST_VALUES: Final = 1 << 24
"""About as many micro-operations and elements are read or written at once at most, more only of one operation."""


class Breadth(NamedTuple):
    """How many operations there are, micro-operations in them and elements of lists; one where there are none."""

    rows: int = 0
    mops: int = 0
    values: int = 0

    def beside(self, other: Breadth) -> Breadth:
        """How broad both are together."""
        return Breadth(*(mine + more for mine, more in zip(self, other, strict=True)))

    def rows_at_once(self, rows: int) -> int:
        """Up to `rows` operations, fewer where they are broad, one at least."""
        most = (room * self.rows // max(1, count) for room, count in ((_MOST_MOPS, self.mops), (_MOST_VALUES, self[2])))
        return max(1, min(rows, *most)) if self.rows else max(1, rows)


def breadth_of_file(footer: Any, groups: Iterable[int] | None = None) -> Breadth:
    """How broad the operations of some row groups of a Parquet file, or all, are, by its footer alone."""
    names = [footer.schema.column(place).path for place in range(footer.num_columns)]
    chosen = [footer.row_group(group) for group in (range(footer.num_row_groups) if groups is None else groups)]
    counts = [sum(group.column(names.index(leaf)).num_values for group in chosen) for leaf in _LEAVES]
    return Breadth(sum(group.num_rows for group in chosen), *counts)


def breadth_of_rows(rows: pa.RecordBatch | pa.Table) -> Breadth:
    """How broad operations in memory are."""
    column = rows.column("mops")
    found = Breadth(rows.num_rows)
    for mops in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        each = mops.flatten()
        values = len(each.field("values").flatten()) if len(each) else 0
        # As Parquet counts: an operation without any, or a micro-operation without a list, takes a place too.
        found = found.beside(Breadth(0, max(len(mops), len(each)), max(len(mops), len(each), values)))
    return found
