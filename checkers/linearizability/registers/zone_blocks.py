"""The two halves of `zones` for one key by themselves: its blocks, each checked inside, and conflicts among blocks.

Where several tasks judge one key (`split`), a block is built in one of them and compared in another.
"""

from __future__ import annotations

from typing import NamedTuple

from checkers.columns.codes import Ints, RegisterColumns
from checkers.columns.instances import Instances, make_instances
from checkers.compiled import lean
from checkers.linearizability.registers.zones import build_key, check_zones, largest, make_scratch
from harness.errors import HarnessError


class BlockRows(NamedTuple):
    """Rows of each block: the write of its first value, the earliest completion, the latest invocation. -1 stands for
    the unset register's imagined write, which is over before everything."""

    writer: Ints
    first: Ints
    last: Ints


@lean
def _conflicts(ops, scratch, unheard, out):
    made = build_key(ops, 0, scratch, unheard)
    if made >= 0:
        check_zones(ops, 0, made, scratch, out)
    return made


def blocks_inside(ops: RegisterColumns, out: Instances) -> BlockRows | None:
    """The blocks of the only key that some operation of it belongs to; what contradicts real time inside one goes to
    `out`. None where values are not unique."""
    scratch = make_scratch(*largest(ops))
    made = build_key(ops, 0, scratch, out)
    if made < 0:
        return None
    blocks = scratch.blocks
    first, last = blocks.first_row[:made], blocks.last_row[:made]
    writer = scratch.clusters.writer[blocks.root[:made]]
    some = last >= 0
    return BlockRows(*(rows[some].astype("int64") for rows in (writer, first, last)))


def conflicts_among(ops: RegisterColumns, out: Instances) -> None:
    """Which blocks of the only key must each come before the other; what is wrong inside a block is not told."""
    unheard = make_instances(len(out.counts), 1)
    if _conflicts(ops, make_scratch(*largest(ops)), unheard, out) < 0:
        raise HarnessError("Blocks of a register that are to be compared have equal values.")
