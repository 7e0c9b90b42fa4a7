"""Compiled steps of making objects ready for the search."""

from __future__ import annotations

from typing import Final

import numpy as np

from checkers.kernels.columns import CAS, FAILED_CAS, NIL, READ, WRITE
from checkers.kernels.compiled import kernel
from checkers.kernels.objects import R, W

ODD: Final = -2
"""Kind of what is no operation of one register: at odds with itself, or refused by one of several."""


@kernel
def _find(parents, register):
    while parents[register] != register:
        parents[register] = parents[parents[register]]
        register = parents[register]
    return register


@kernel
def unite(op, register, parents):
    """Let `parents[r]` be one of the registers touched together with r, directly or not; rows in operation order."""
    for row in range(1, op.shape[0]):
        if op[row] == op[row - 1]:
            parents[_find(parents, register[row])] = _find(parents, register[row - 1])
    for number in range(parents.shape[0]):
        parents[number] = _find(parents, number)


@kernel
def project(op, register, kind, value, expected, refused, order, out):
    """What each operation does to each register: kind, value and expected into `out` at its first row, for rows in
    `order` of register and operation; kind ODD where that is no operation of a register."""
    row = 0
    while row < order.shape[0]:
        first = order[row]
        needs, writes, odd = False, False, False
        need, now = np.int64(NIL), np.int64(NIL)
        while row < order.shape[0] and op[order[row]] == op[first] and register[order[row]] == register[first]:
            at = order[row]
            wanted = value[at] if kind[at] == R else expected[at]
            if kind[at] != W:
                odd |= (needs or writes) and now != wanted
                if not needs and not writes:
                    needs, need, now = True, wanted, wanted
            if kind[at] != R:
                writes, now = True, value[at]
            row += 1
        if odd or (refused[first] and not (writes and needs)):
            out[first, 0] = ODD
            continue
        if refused[first]:
            out[first, 0], out[first, 1], out[first, 2] = FAILED_CAS, NIL, need
        elif needs and writes:
            out[first, 0], out[first, 1], out[first, 2] = CAS, now, need
        else:
            out[first, 0], out[first, 1], out[first, 2] = (WRITE if writes else READ), now, NIL


@kernel
def last_without(first, last, items, invoke, order, key, elements, element_key, late):
    """For each element the last invocation of a read of its object that lacks it; `order` is by invocation, falling."""
    present = np.full(late.shape[0], -1)
    undecided = elements.copy()
    for at in range(order.shape[0]):
        read = order[at]
        for item in range(first[read], last[read]):
            present[items[item]] = read
        left = 0
        for place in range(undecided.shape[0]):
            element = undecided[place]
            if element_key[element] == key[read] and present[element] != read:
                late[element] = invoke[read]
            else:
                undecided[left] = element
                left += 1
        undecided = undecided[:left]
