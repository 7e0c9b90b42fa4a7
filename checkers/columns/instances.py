"""How compiled kernels report anomalies: all are counted, the first few of each class (by invocation) are kept.

Verdicts go by the counts, so what is not kept is never hidden."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean

OPS_PER_INSTANCE: Final = 4


class Instances(NamedTuple):
    """`counts[c]` anomalies of class c; `kept[c, i]` is (order, key, four rows or -1) of those explained."""

    counts: npt.NDArray[np.int64]
    kept: npt.NDArray[np.int64]


def make_instances(classes: int, explain: int) -> Instances:
    """Room for `explain` instances of each class."""
    return Instances(np.zeros(classes, np.int64), np.full((classes, max(1, explain), 2 + OPS_PER_INSTANCE), -1))


@lean
def record(instances, anomaly, order, key, rows):
    """Count an anomaly and keep it if its `order` is among the lowest seen of its class; `rows` are four (-1: none)."""
    kept = instances.kept[anomaly]
    place = instances.counts[anomaly]
    instances.counts[anomaly] += 1
    if place >= kept.shape[0]:
        place = 0
        for i in range(1, kept.shape[0]):
            if kept[i, 0] > kept[place, 0]:
                place = i
        if kept[place, 0] <= order:
            return
    kept[place, 0] = order
    kept[place, 1] = key
    kept[place, 2], kept[place, 3], kept[place, 4], kept[place, 5] = rows
