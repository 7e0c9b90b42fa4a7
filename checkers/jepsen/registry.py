"""What this package adds to the models: name, a line of meaning, the function that judges, the settings it knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from checkers.engines.api import Engine
from checkers.jepsen import bank, convergence, counter, logs, long_fork, set_full, sets, unique_ids
from checkers.jepsen.queues import judge_queue
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict

Entry = tuple[str, str, Callable[[Source, Engine, CheckOptions], Verdict], tuple[str, ...]]

ENTRIES: Final[tuple[Entry, ...]] = (
    ("bank", "every read of all accounts shows the same total", bank.judge_bank, bank.SETTINGS),
    ("set", "the final read holds all acknowledged elements and no others", sets.judge_set, ()),
    ("set-full", "no element that was seen or acknowledged is lost", set_full.judge_set_full, set_full.SETTINGS),
    ("counter", "reads lie between what must and what can have been added", counter.judge_counter, counter.SETTINGS),
    ("queue", "all that goes in comes out, once, and nothing else", partial(judge_queue, "queue"), ()),
    (
        "total-queue",
        "the same by Jepsen's measure: duplicates are fine",
        partial(judge_queue, "total-queue"),
        (),
    ),
    ("long-fork", "no two reads see writes in opposite orders", long_fork.judge_long_fork, long_fork.SETTINGS),
    ("unique-ids", "no id is given out twice", unique_ids.judge_unique_ids, ()),
    ("convergence", "final reads of all nodes agree", convergence.judge_convergence, ()),
    ("logs", "no panic in the logs of a run's nodes", logs.judge_logs, logs.SETTINGS),
)
