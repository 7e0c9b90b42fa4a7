"""AWDIT's text histories: `w KEY VALUE` and `r KEY VALUE` lines; `-----` ends a transaction, `=====` a session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np

from checkers.importers.blocks import BYTE_ORDER_MARK, Data
from checkers.importers.transactions import Transactions, integers, transactions_source
from checkers.source import Source
from harness.errors import UserError

LINE: Final = re.compile(rb"[ \t]*(?:[rw][ \t]+-?\d+[ \t]+-?\d+|-{5,}|={5,})?[ \t]*\r?")


def open_awdit(path: Path, data: Data) -> Source:
    """A history as AWDIT writes it; raises UserError naming the first line that is none of its lines."""
    kept = []
    for number, line in enumerate(data[:].removeprefix(BYTE_ORDER_MARK).split(b"\n"), 1):
        if LINE.fullmatch(line) is None:
            shown = line[:40].decode(errors="replace")
            raise UserError(f"{path}, line {number}: {shown!r} is not an operation, ----- or =====.")
        if line.strip():
            kept.append(line.strip())
    heads = np.array([line[0] for line in kept], np.uint8)
    told = (heads == ord("r")) | (heads == ord("w"))
    words = b" ".join(line for line, operation in zip(kept, told.tolist(), strict=True) if operation).split()
    transaction_of = np.cumsum(~told)[told]
    session_of = np.cumsum(heads == ord("="))[told]
    _, first, sizes = np.unique(transaction_of, return_index=True, return_counts=True)
    key, value = integers(path, words[1::3]), integers(path, words[2::3])
    write, failed = heads[told] == ord("w"), np.zeros(len(first), np.bool_)
    session = session_of[first].astype(np.int64)
    return transactions_source(path, "awdit-text", Transactions(sizes, session, failed, write, key, value))
