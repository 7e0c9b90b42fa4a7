"""How long the transactions of a history last, counted piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from checkers.columns.codes import NEVER
from checkers.transactions.mops import Ints, Txns

_LONG: Final = 32


class Times(NamedTuple):
    """Of all client transactions: how many completed, are unknown and failed; of those that completed the sum of their
    durations (in events), the longest and the first completion; and the last invocation."""

    ok: int = 0
    info: int = 0
    fail: int = 0
    total: int = 0
    longest: int = 0
    first: int = NEVER
    last: int = -1

    @property
    def outcomes(self) -> dict[str, int]:
        """How many transactions there are by outcome."""
        return {"ok": self.ok, "info": self.info, "fail": self.fail}

    @property
    def usual(self) -> int:
        """What lasts longer than this is treated like a transaction that never ends."""
        return min(self.longest, _LONG * self.total // max(1, self.ok) + 1)

    @property
    def orderless(self) -> bool:
        """Whether no transaction began after another had completed."""
        return self.last <= self.first


def times_of(txns: Txns) -> Ints:
    """The `Times` of some transactions as an array."""
    ok, info, fail = (int(np.count_nonzero(txns.outcome == code)) for code in range(3))
    completed = txns.outcome == 0
    lasts = (txns.complete - txns.invoke)[completed]
    first = txns.complete[completed].min(initial=NEVER)
    spans = (lasts.sum(), lasts.max(initial=0), first, txns.invoke.max(initial=-1))
    return np.array([ok, info, fail, *spans], np.int64)


def merged_times(parts: Sequence[Any]) -> Times:
    """The times of all, from those of parts."""
    if not parts:
        return Times()
    columns = np.stack(parts).T
    ok, info, fail, total = (int(column.sum()) for column in columns[:4])
    return Times(ok, info, fail, total, int(columns[4].max()), int(columns[5].min()), int(columns[6].max()))
