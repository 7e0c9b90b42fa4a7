"""Plume's text histories: `r(KEY,VALUE,SESSION,TRANSACTION)` and `w(…)`, one a line; transaction -1 is aborted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np

from checkers.importers.blocks import BYTE_ORDER_MARK, Data
from checkers.importers.transactions import Ints, Transactions, integers, transactions_source
from checkers.source import Source
from harness.errors import UserError

LINE: Final = re.compile(rb"[ \t]*(?:[rw]\([ \t]*-?\d+(?:[ \t]*,[ \t]*-?\d+){3}[ \t]*\)[ \t]*)?\r?")

_ABORTED: Final = -1
_SEPARATORS: Final = bytes.maketrans(b"(),", b"   ")


def open_plume(path: Path, data: Data) -> Source:
    """A history as Plume writes it; raises UserError naming the first line that is no operation."""
    data = data[:].removeprefix(BYTE_ORDER_MARK)
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if LINE.fullmatch(line) is None:
            shown = line[:40].decode(errors="replace")
            raise UserError(f"{path}, line {number}: {shown!r} is not r(KEY,VALUE,SESSION,TRANSACTION) or w(…).")
    words = data.translate(_SEPARATORS).split()
    write = np.array([word == b"w" for word in words[::5]], np.bool_)
    columns = [integers(path, words[place::5]) for place in range(1, 5)]
    return transactions_source(path, "plume-text", _grouped(write, *columns))


def _grouped(write: np.ndarray, key: Ints, value: Ints, session: Ints, transaction: Ints) -> Transactions:
    """A transaction is its session's operations of one number; each run of aborted ones in a session is its own."""
    places = np.arange(len(key))
    by_session = np.argsort(session, kind="stable")
    run_begins = np.ones(len(key), bool)
    ordered_session, ordered_transaction = session[by_session], transaction[by_session]
    run_begins[1:] = (ordered_session[1:] != ordered_session[:-1]) | (
        ordered_transaction[1:] != ordered_transaction[:-1]
    )
    run = np.empty(len(key), np.int64)
    run[by_session] = np.cumsum(run_begins)
    aborted = transaction == _ABORTED
    keys = np.stack((session, np.where(aborted, 0, transaction), np.where(aborted, run, 0), aborted), axis=1)
    _, first, ids = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    transaction_of = rank[ids.reshape(-1)]
    order = np.lexsort((places, transaction_of))
    firsts = np.sort(first)
    sizes = np.bincount(transaction_of, minlength=len(first))
    return Transactions(sizes, session[firsts], aborted[firsts], write[order], key[order], value[order])
