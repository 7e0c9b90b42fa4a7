"""Workloads on tables that are written and read at levels (Q1): what is torn, goes back, is lost, or differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from harness.errors import UserError
from harness.generators.core import Generator, chain, draw
from harness.generators.timing import sleep
from harness.levels import ONLY_DATA_CENTRE, demand
from workloads.api import Option, Options, Unpromised, WordOption, Workload
from workloads.partitions import (
    DELETE,
    READ,
    TABLE_OPTIONS,
    WRITE,
    any_operation,
    at_level,
    factors,
    level_option,
    load_options,
    whole_partition,
)

MIXED_READS = ("ONE", "TWO", "QUORUM", "LOCAL_QUORUM", "ALL", "LOCAL_ONE", "QUORUM", "QUORUM")
MIXED_WRITES = ("QUORUM", "ONE", "LOCAL_QUORUM", "QUORUM", "EACH_QUORUM", "ALL")
"""Levels as often as they are drawn; the judges know which of them bind which."""

_LEVELS: tuple[Option | WordOption, ...] = (
    level_option("write-level", "QUORUM", "the level of writes"),
    level_option("read-level", "QUORUM", "the level of reads"),
)
_FINAL_READS_OF_EACH = 2


def one_level(options: Options) -> tuple[Sequence[str], Sequence[str]]:
    """The levels of reads and of writes that the user has chosen; raises UserError where replicas are too few."""
    for level in (options["read-level"], options["write-level"]):
        demand(level, ONLY_DATA_CENTRE, factors(options))
    return (options["read-level"],), (options["write-level"],)


def mixed_levels(options: Options) -> tuple[Sequence[str], Sequence[str]]:
    """Any levels; those of which three replicas are needed in one data centre are left out where there are fewer."""
    few = int(options["replication"]) * int(options["data-centres"]) < 2
    return tuple(level for level in MIXED_READS if not (few and level == "TWO")), MIXED_WRITES


Levels = Callable[[Options], tuple[Sequence[str], Sequence[str]]]


def load(levels: Levels) -> Callable[[Options, Random], Generator]:
    """The endless mix of operations."""

    def generator(options: Options, entropy: Random) -> Generator:
        if options["table"] == "logged" and options["read-repair"] == "none":
            raise UserError("A logged table has no read repair to leave out (read-repair=none is for table=legacy).")
        reads_at, writes_at = levels(options)
        return draw(
            entropy.getrandbits(53),
            lambda context, chance, n: any_operation(options, reads_at, writes_at, context, chance, n),
        )

    return generator


FinalReads = Callable[[Options, Random], Generator]


def whole_partitions(options: Options, entropy: Random, level: str, times: int) -> Generator:
    """Reads of every partition, all of its rows, one partition after the other, so many times."""
    keys = int(options["keys"])
    return draw(
        entropy.getrandbits(53),
        lambda context, chance, n: (
            at_level(whole_partition(n % keys), level, options, chance) if n < times * keys else None
        ),
    )


def final_reads(options: Options, entropy: Random) -> Generator:
    """Every partition, whole, at the level whose reads see most: each replica has to answer."""
    return whole_partitions(options, entropy, "ALL", _FINAL_READS_OF_EACH)


def untouched_reads(options: Options, entropy: Random) -> Generator:
    """Every partition from one replica, and once more when all had time to become equal: the last look counts.

    Reads of several replicas would repair what they find to differ, and hide it.
    """
    looks = [whole_partitions(options, entropy, "ONE", 1) for _ in range(2)]
    return chain(looks[0], sleep(options["settle"]), looks[1])


def unpromised(options: Options) -> Unpromised:
    """What a legacy table breaks by its design (`quorum.md`, "What holds and what breaks"); a logged one nothing."""
    if options["table"] == "logged":
        return {}
    because: dict[str, str] = {
        "convergence": "a legacy table promises it after a repair only, for a hint can be lost with its coordinator"
    }
    repairs, limited = options["read-repair"] == "blocking", options["limits"] > 0
    if repairs and (limited or options["slices"] > 0):
        because["write-atomicity"] = (
            "a legacy table does not promise it, a logged one does: read repair sends other replicas the "
            "rows that were read, and not the rest of their write"
        )
    if not repairs and limited:
        because["write-atomicity"] = (
            "a legacy table does not promise it, a logged one does: a page with a limit may join two answers of one "
            "replica, from before a write and after it"
        )
    if not repairs:
        because["monotonic-reads"] = (
            "a legacy table without read repair does not promise it: what a read finds at one replica the others go "
            "on without"
        )
    return because


def _workload(
    name: str,
    description: str,
    levels: Levels,
    options: tuple[Option | WordOption, ...],
    checkers: tuple[str, ...],
    final: FinalReads = final_reads,
) -> Workload:
    return Workload(
        name=name,
        description=description,
        options=(*TABLE_OPTIONS, *options),
        generator=load(levels),
        final_generator=final,
        checkers=checkers,
        operations=frozenset({"r", "w", "page", "delete"}),
        fs=(READ, WRITE, DELETE),
        unpromised=unpromised,
    )


WORKLOADS = (
    _workload(
        "write-atomicity",
        "writes of many rows of few partitions, read in slices and with limits: each is seen whole or not at all",
        one_level,
        (*_LEVELS, *load_options(keys=3, rows=12, slices=0.5, limits=0.4, deletes=0.25)),
        ("write-atomicity", "stats"),
    ),
    _workload(
        "monotonic-reads",
        "reads at any levels: what was seen is not unseen later, where the two levels promise it",
        mixed_levels,
        load_options(keys=3, rows=8, slices=0.3, limits=0.2, deletes=0.2),
        ("monotonic-reads", "stats"),
    ),
    _workload(
        "durable-rows",
        "writes and deletions at any levels: nothing acknowledged is lost, nothing deleted comes back",
        mixed_levels,
        load_options(keys=12, rows=8, slices=0.2, limits=0.1, deletes=0.3),
        ("durable-rows", "stats"),
    ),
    _workload(
        "convergence",
        "writes at any levels; at the end all replicas hold the same rows",
        mixed_levels,
        (
            Option("settle", 10, 0, 25, "seconds for hints, repair and reconciliation before replicas are compared"),
            *load_options(keys=8, rows=8, slices=0.2, limits=0.1, deletes=0.3),
        ),
        ("convergence", "stats"),
        untouched_reads,
    ),
)
