"""The models by which histories can be judged, as a table; the code of a model is loaded once it judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from checkers.engines.api import Engine
    from checkers.options import CheckOptions
    from checkers.source import Source
    from checkers.verdict import Verdict

    Judge: TypeAlias = Callable[[Source, Engine, CheckOptions], Verdict]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A way to judge a history: its name, what it says in a line, the function that does it (`module:function`, in this
    package), and which `CheckOptions.settings` it knows. A `shared` function judges by several models and gets the name
    of the one."""

    name: str
    summary: str
    function: str
    settings: tuple[str, ...] = ()
    shared: bool = False

    @property
    def judge(self) -> Judge:
        """The function itself."""
        module, _, name = self.function.partition(":")
        function = getattr(import_module(f"checkers.{module}"), name)
        return partial(function, self.name) if self.shared else function


def _several(function: str, *settings: str, **summaries: str) -> tuple[ModelInfo, ...]:
    """Models that one function judges; a dash in a name is an underscore here."""
    return tuple(
        ModelInfo(name.replace("_", "-"), summary, function, settings, shared=True)
        for name, summary in summaries.items()
    )


OWN: Final = ModelInfo("FILE.py:NAME", "a model of the user's own", "transactions.judge_code:judge_code")
"""Stands in no table: only a word of the user's own says which file is run."""

MODELS: Final[dict[str, ModelInfo]] = {
    info.name: info
    for info in (
        *_several(
            "linearizability.registers.refute_registers:judge_register",
            "initial",
            register="linearizable reads, writes and cas of cells",
            cas_register="the same by Knossos's name",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            "initial",
            multi_register="operations on several registers are atomic and linearizable",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            mutex="a lock is never acquired while held, nor released while free",
            lin_set="linearizable adds, removes and reads of all members of sets",
            lin_queue="linearizable queues that may return any element",
            fifo_queue="linearizable queues, first in, first out",
            kv_append="linearizable strings by key: get, put, append (Porcupine's)",
        ),
        ModelInfo(
            "list-append",
            "Elle's transactions of reads and appends to lists",
            "transactions.judge_transactions:judge_list_append",
        ),
        ModelInfo(
            "rw-register",
            "Elle's transactions of reads and writes",
            "transactions.judge_transactions:judge_rw_register",
            ("linearizable-keys", "sequential-keys", "wfr-keys", "initial"),
        ),
        ModelInfo(
            "isolation",
            "read committed, read atomic, causal: plain transactions",
            "isolation.judge_isolation:judge_isolation",
            ("initial",),
        ),
        *_several(
            "sessions.judge_sessions:judge_guarantees",
            monotonic_reads="no read omits what an earlier one of the session, or a strong one in real time, saw",
            read_your_writes="reads show what their session wrote before",
            monotonic_writes="a session's writes come in their order",
            writes_follow_reads="a session's writes come after what it had read",
            sessions="all four session guarantees",
        ),
        ModelInfo(
            "bank",
            "every read of all accounts shows the same total",
            "jepsen.bank:judge_bank",
            ("total", "accounts", "negative-balances"),
        ),
        ModelInfo("set", "the final read holds all acknowledged elements and no others", "jepsen.sets:judge_set"),
        ModelInfo(
            "set-full",
            "no element that was seen or acknowledged is lost",
            "jepsen.set_full:judge_set_full",
            ("linearizable",),
        ),
        ModelInfo(
            "counter",
            "reads lie between what must and what can have been added",
            "jepsen.counter:judge_counter",
            ("initial",),
        ),
        ModelInfo("queue", "all that goes in comes out, once, and nothing else", "jepsen.queues:judge_queue", (), True),
        ModelInfo(
            "total-queue", "the same by Jepsen's measure: duplicates are fine", "jepsen.queues:judge_queue", (), True
        ),
        ModelInfo(
            "long-fork",
            "no two reads see writes in opposite orders",
            "jepsen.long_fork:judge_long_fork",
            ("group-size",),
        ),
        ModelInfo("unique-ids", "no id is given out twice", "jepsen.unique_ids:judge_unique_ids"),
        ModelInfo("convergence", "final reads of all nodes agree", "jepsen.convergence:judge_convergence"),
        ModelInfo("logs", "no panic in the logs of a run's nodes", "jepsen.logs:judge_logs", ("pattern", "files")),
        ModelInfo(
            "write-atomicity",
            "a partition write is seen whole or not at all in one page",
            "sessions.write_atomicity:judge_write_atomicity",
        ),
        ModelInfo(
            "durable-rows",
            "nothing acknowledged that reads must see is lost, nothing deleted comes back",
            "quorum.judge_quorum:judge_durable_rows",
        ),
        ModelInfo(
            "snapshot-reads",
            "reads at a timestamp are final and complete",
            "snapshots.snapshot_reads:judge_snapshot_reads",
        ),
        ModelInfo(
            "change-feed", "every commit once, nothing below a resolved mark", "snapshots.change_feed:judge_change_feed"
        ),
        ModelInfo(
            "catalog",
            "tables under names are one linearizable object",
            "catalog.judge:judge_catalog",
            ("ddl-budget",),
        ),
        ModelInfo("catalog-rows", "rows of tables beside a changing catalog are registers", "catalog.judge:judge_rows"),
        ModelInfo("stats", "every kind of operation succeeded at least once", "jepsen.stats:judge_stats"),
    )
}
