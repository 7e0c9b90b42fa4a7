"""Compiled steps of making objects ready for the search."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.columns.codes import CAS, FAILED_CAS, NIL, READ, WRITE, Ints
from checkers.compiled import kernel
from checkers.linearizability.objects.kinds import R, W

ODD: Final = -2
"""Kind of what is no operation of one register: at odds with itself, or refused by one of several."""


class Touches(NamedTuple):
    """What operations do to registers, an item a row, an operation's in its order: the operation and the register (by
    number), R, W or C, the value and the expected value; and whether the operation was refused."""

    op: Ints
    register: Ints
    kind: Ints
    value: Ints
    expected: Ints
    refused: npt.NDArray[np.bool_]


@kernel
def project(touches, order, out):
    """What each operation does to each register: kind, value and expected into `out` at its first row, for rows in
    `order` of register and operation; kind ODD where that is no operation of a register."""
    op, register, kind = touches.op, touches.register, touches.kind
    row = 0
    while row < order.shape[0]:
        first = order[row]
        # Over the items of one operation on one register: `need` is what it found there, `now` what it has made of it.
        needs, writes, odd = False, False, False
        need, now = np.int64(NIL), np.int64(NIL)
        while row < order.shape[0] and op[order[row]] == op[first] and register[order[row]] == register[first]:
            at = order[row]
            wanted = touches.value[at] if kind[at] == R else touches.expected[at]
            if kind[at] != W:
                odd |= (needs or writes) and now != wanted
                if not needs and not writes:
                    needs, need, now = True, wanted, wanted
            if kind[at] != R:
                writes, now = True, touches.value[at]
            row += 1
        # A refused transaction found another value somewhere; here only if it compared nothing else.
        if odd or (touches.refused[first] and not (writes and needs)):
            out[first, 0] = ODD
            continue
        if touches.refused[first]:
            out[first, 0], out[first, 1], out[first, 2] = FAILED_CAS, NIL, need
        elif needs and writes:
            out[first, 0], out[first, 1], out[first, 2] = CAS, now, need
        else:
            out[first, 0], out[first, 1], out[first, 2] = (WRITE if writes else READ), now, NIL
