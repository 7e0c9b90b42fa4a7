"""Cells of tables, as clients, nodes and histories name them."""

from __future__ import annotations

from typing import NamedTuple


class CellAddress(NamedTuple):
    """Where a cell is in its table; a register is the first cell of its partition."""

    partition: int
    row: int = 0
    column: int = 0
