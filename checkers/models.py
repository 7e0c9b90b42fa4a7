"""The models by which histories can be judged, as a table; the code of a model is loaded once it judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
    of the one. `observers` are the micro-operations of which one has to have succeeded, where only they show whether
    a promise was kept. A `timeless` model asks for no real time, or says itself what it does without. Anomalies
    `at_the_end` are of what was never seen: of a history that was cut short they refute nothing. `removal` names the
    rule by which a valid history stays valid with less in it (`checkers.removal.rules`).
    """

    name: str
    summary: str
    function: str
    settings: tuple[str, ...] = ()
    shared: bool = False
    at_the_end: tuple[str, ...] = ()
    observers: tuple[str, ...] = ()
    timeless: bool = False
    removal: str = "nothing, nor the end"

    @property
    def judge(self) -> Judge:
        """The function itself."""
        module, _, name = self.function.partition(":")
        function = getattr(import_module(f"checkers.{module}"), name)
        return partial(function, self.name) if self.shared else function


def _several(
    function: str, *settings: str, removal: str, observers: tuple[str, ...] = (), **summaries: str
) -> tuple[ModelInfo, ...]:
    """Models that one function judges; a dash in a name is an underscore here."""
    told: dict[str, Any] = {"removal": removal, "shared": True, "observers": observers}
    return tuple(
        ModelInfo(name.replace("_", "-"), summary, function, settings, **told) for name, summary in summaries.items()
    )


OWN: Final = ModelInfo(
    "FILE.py:NAME", "a model of the user's own", "transactions.judge_code:judge_code", removal="partitions"
)
"""Stands in no table: only a word of the user's own says which file is run."""

MODELS: Final[dict[str, ModelInfo]] = {
    info.name: info
    for info in (
        *_several(
            "linearizability.registers.refute_registers:judge_register",
            "initial",
            removal="registers",
            observers=("r", "cas"),
            register="linearizable reads, writes and cas of cells",
            cas_register="the same by Knossos's name",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            "initial",
            removal="registers",
            observers=("r", "read", "cas"),
            multi_register="operations on several registers are atomic and linearizable",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            removal="sums",
            mutex="a lock is never acquired while held, nor released while free",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            removal="owners",
            owner_mutex="the same, and released by who holds it alone",
            reentrant_mutex="the same, but who holds it may acquire it again",
            fenced_mutex="a lock with an owner, whose acquires return fencing tokens that grow",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            removal="queues",
            observers=("r", "read", "remove", "dequeue"),
            lin_queue="linearizable queues that may return any element",
            fifo_queue="linearizable queues, first in, first out",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            removal="strings",
            observers=("r", "read", "remove", "dequeue"),
            kv_append="linearizable strings by key: get, put, append (Porcupine's)",
        ),
        *_several(
            "linearizability.objects.refute_objects:judge_objects",
            removal="elements",
            observers=("r", "read", "remove", "dequeue"),
            lin_set="linearizable adds, removes and reads of all members of sets",
            causal_reverse="strict serializability of writes that reads of all show (Jepsen's causal-reverse)",
        ),
        ModelInfo(
            "semaphore",
            "no more permits are held than there are",
            "linearizability.objects.refute_objects:judge_objects",
            ("permits",),
            removal="sums",
            shared=True,
        ),
        ModelInfo(
            "etcd-kv",
            "etcd's puts, deletes, ranges and transactions, by the revisions that its answers state",
            "linearizability.judge_etcd:judge_etcd",
            removal="requests",
        ),
        ModelInfo(
            "list-append",
            "Elle's transactions of reads and appends to lists",
            "transactions.judge_transactions:judge_list_append",
            removal="transactions",
            observers=("r",),
            timeless=True,
        ),
        ModelInfo(
            "rw-register",
            "Elle's transactions of reads and writes",
            "transactions.judge_transactions:judge_rw_register",
            ("linearizable-keys", "sequential-keys", "wfr-keys", "versions", "initial"),
            removal="transactions",
            observers=("r",),
            timeless=True,
        ),
        ModelInfo(
            "isolation",
            "read committed, read atomic, causal: plain transactions",
            "isolation.judge_isolation:judge_isolation",
            ("initial",),
            removal="plain transactions",
            observers=("r",),
            timeless=True,
        ),
        *_several(
            "sessions.judge_sessions:judge_guarantees",
            removal="values",
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
            removal="anything",
            timeless=True,
        ),
        ModelInfo(
            "set",
            "the final read holds all acknowledged elements and no others",
            "jepsen.sets:judge_set",
            removal="elements, last read",
            at_the_end=("lost",),
        ),
        ModelInfo(
            "set-full",
            "no element that was seen or acknowledged is lost",
            "jepsen.set_full:judge_set_full",
            ("linearizable",),
            removal="elements, last read",
            at_the_end=("lost",),
        ),
        ModelInfo(
            "counter",
            "reads lie between what must and what can have been added",
            "jepsen.counter:judge_counter",
            ("initial",),
            removal="sums",
        ),
        ModelInfo(
            "queue",
            "all that goes in comes out, once, and nothing else",
            "jepsen.queues:judge_queue",
            removal="queues, whole",
            shared=True,
            at_the_end=("lost",),
        ),
        ModelInfo(
            "total-queue",
            "the same by Jepsen's measure: duplicates are fine",
            "jepsen.queues:judge_queue",
            removal="queues, whole",
            shared=True,
            at_the_end=("lost",),
        ),
        ModelInfo(
            "long-fork",
            "no two reads see writes in opposite orders",
            "jepsen.long_fork:judge_long_fork",
            ("group-size",),
            removal="groups",
            timeless=True,
        ),
        ModelInfo(
            "unique-ids",
            "no id is given out twice",
            "jepsen.unique_ids:judge_unique_ids",
            removal="anything",
            timeless=True,
        ),
        ModelInfo(
            "convergence",
            "final reads of all nodes agree",
            "jepsen.convergence:judge_convergence",
            removal="final reads",
        ),
        ModelInfo(
            "logs",
            "no panic in the logs of a run's nodes",
            "jepsen.logs:judge_logs",
            ("pattern", "files"),
            timeless=True,
        ),
        ModelInfo(
            "write-atomicity",
            "a partition write is seen whole or not at all in one page",
            "sessions.write_atomicity:judge_write_atomicity",
            removal="values",
        ),
        ModelInfo(
            "durable-rows",
            "nothing acknowledged that reads must see is lost, nothing deleted comes back",
            "quorum.judge_quorum:judge_durable_rows",
            removal="values",
        ),
        ModelInfo(
            "snapshot-reads",
            "reads at a timestamp are final and complete",
            "snapshots.snapshot_reads:judge_snapshot_reads",
            removal="values",
        ),
        ModelInfo(
            "change-feed",
            "every commit once, nothing below a resolved mark",
            "snapshots.change_feed:judge_change_feed",
            removal="feeds",
        ),
        ModelInfo(
            "catalog",
            "tables under names are one linearizable object",
            "catalog.judge:judge_catalog",
            ("ddl-budget",),
            removal="catalogs",
        ),
        ModelInfo(
            "catalog-rows",
            "rows of tables beside a changing catalog are registers",
            "catalog.judge:judge_rows",
            removal="rows",
            observers=("r", "cas", "erase"),
        ),
        ModelInfo(
            "stats",
            "every kind of operation succeeded at least once",
            "jepsen.stats:judge_stats",
            timeless=True,
        ),
    )
}
