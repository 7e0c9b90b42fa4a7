"""Workloads on tables that are written and read at levels (Q1): what is torn, goes back, is lost, or differs.

Partition writes and page reads of few hot partitions. A write spans 2 to 50 rows of one partition, or deletes rows, a
range or all of it, under a timestamp that its client has chosen; timestamps are unique, and not always in the order of
real time. A read is one page: the whole partition or a slice, with or without a limit. Each operation states its level,
data centre and replication factors, for judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from random import Random

from msgspec.structs import replace

from harness.errors import UserError
from harness.generators.core import Chance, Context, Generator, chain, child, draw, invoke
from harness.generators.timing import sleep
from harness.history.ops import Mop, Op, delete, page
from harness.levels import LEVELS, ONLY_DATA_CENTRE, demand, replication_text
from workloads.api import Option, Options, Unpromised, WordOption, Workload

READ, WRITE, DELETE = "read", "write", "delete"

_CELLS_OF_A_WRITE = 60
_TICK_BITS = 20
_SPREAD_NS = 30_000_000
"""Clients' timestamps lie up to so far ahead of the time: two writes in a row may bear them the other way round."""

TABLE = WordOption("table", ("legacy", "logged"), "the replication design of the table", ("legacy", "logged"))
_REPAIRS, _ROUTES = ("blocking", "none"), ("random", "near")
READ_REPAIR = WordOption("read-repair", _REPAIRS, "what a read does to replicas that lack what it found")
ROUTE = WordOption("route", _ROUTES, "which replicas are asked: any, or those near the coordinator", _ROUTES)
TABLE_OPTIONS: tuple[Option | WordOption, ...] = (
    TABLE,
    READ_REPAIR,
    ROUTE,
    WordOption("retry", ("no", "yes"), "whether clients send a write again whose outcome is unknown", ("no", "yes")),
    Option("data-centres", 1, 1, 3, "how many data centres the tablet servers are spread over", (1, 1, 2)),
    Option("replication", 3, 1, 7, "how many replicas each data centre has", (3, 3, 3, 5)),
    Option("clustering", 0, 0, 4, "how many clustering columns a row has, 0: as the rows decide", (0, 0, 1, 4)),
)


def level_option(name: str, first: str, description: str) -> WordOption:
    """A consistency level that the user may choose; `first` is the default."""
    words = (first, *(level for level in LEVELS if level != first))
    return WordOption(name, words, description, (first, first, "LOCAL_QUORUM"))


def load_options(keys: int, rows: int, slices: float, limits: float, deletes: float) -> tuple[Option, ...]:
    """What decides the mix of operations."""
    return (
        Option("keys", keys, 1, 1_000_000, "how many partitions there are", (keys, keys, 3, 3 * keys)),
        Option("rows", rows, 2, 1_000, "how many rows a partition may have", (rows, rows, 4, 4 * rows)),
        Option("cells", 0, 0, 20, "how many cells a row has, 0: one to twenty, as the partition draws", (0, 0, 1, 20)),
        Option("reads", 0.6, 0.01, 0.99, "share of the operations that read", (0.4, 0.6, 0.8)),
        Option("slices", slices, 0.0, 1.0, "share of the reads that ask for some of the rows only", (slices, 0.6)),
        Option("limits", limits, 0.0, 1.0, "share of the reads that ask for so many rows at most", (limits, 0.4)),
        Option("pages", 0.0, 0.0, 1.0, "share of the reads that go on behind a page of before", (0.0, 0.3, 0.6)),
        Option(
            "deletes",
            deletes,
            0.0,
            0.9,
            "share of the changes that delete rows, ranges or partitions",
            (deletes, 0.5),
        ),
    )


def factors(options: Options) -> dict[str, int]:
    """Replication factors by data centre."""
    return {f"dc{number}": int(options["replication"]) for number in range(1, int(options["data-centres"]) + 1)}


def columns_of(options: Options, partition: int) -> int:
    """How many cells the rows of a partition have."""
    return int(options["cells"]) or (1, 2, 3, 1, 7, 20)[partition % 6]


def at_level(op: Op, level: str, options: Options, chance: Chance) -> Op:
    """The operation at a level, from a client in some data centre."""
    places = factors(options)
    return replace(
        op, mode=level, data_centre=f"dc{1 + chance.below(len(places))}", replication=replication_text(places)
    )


def any_operation(
    options: Options, reads_at: Sequence[str], writes_at: Sequence[str], context: Context, chance: Chance, n: int
) -> Op:
    """The n-th operation: a page read, a write or a deletion, each at one of its levels."""
    partition = chance.below(int(options["keys"]))
    if chance.uniform() < options["reads"]:
        return at_level(read_of(options, partition, chance), chance.choice(reads_at), options, chance)
    if chance.uniform() < options["deletes"]:
        op = invoke(DELETE, deletion(int(options["rows"]), partition, chance))
    else:
        op = invoke(WRITE, *_cells(options, partition, chance, n + 1))
    return at_level(
        replace(op, write_ts=timestamp(context.time_ns, chance, n)), chance.choice(writes_at), options, chance
    )


def going_on(op: Op, options: Options, chance: Chance) -> Op:
    """The operation; reads, as often as is asked, of the page behind that which their client read last of the
    partition, if that was not all."""
    return replace(op, value={"page": "next"}) if op.f == READ and chance.uniform() < options["pages"] else op


def timestamp(time_ns: int, chance: Chance, n: int) -> int:
    """A timestamp near this time that no other of the first million operations gets, in ns since the run's start."""
    ticks = (time_ns + chance.below(_SPREAD_NS)) >> _TICK_BITS
    return (ticks << _TICK_BITS) + n % (1 << _TICK_BITS) + 1


def read_of(options: Options, partition: int, chance: Chance) -> Op:
    """One page of a partition: all of it, or a slice, or its first few rows."""
    rows = int(options["rows"])
    first = last = limit = None
    if chance.uniform() < options["slices"]:
        first = chance.below(rows)
        last = min(rows - 1, first + chance.below(max(1, rows // 2)))
    if chance.uniform() < options["limits"]:
        limit = 1 + chance.below(max(1, rows // 3))
    return invoke(READ, page(partition, first, last, limit))


def whole_partition(partition: int) -> Op:
    """A read of all rows at once."""
    return invoke(READ, page(partition))


def deletion(rows: int, partition: int, chance: Chance) -> Mop:
    """Mostly of a row, sometimes of a range, rarely of the whole partition."""
    kind = chance.uniform()
    first = chance.below(rows)
    if kind < 0.6:
        return delete(partition, first, first)
    if kind < 0.95:
        return delete(partition, first, min(rows - 1, first + chance.below(max(1, rows // 3))))
    return delete(partition)


def _cells(options: Options, partition: int, chance: Chance, value: int) -> list[Mop]:
    """Whole rows, or one of their cells each; one value serves all, since each cell is written once by it."""
    rows, columns = int(options["rows"]), columns_of(options, partition)
    count = 2 + chance.below(min(50, rows) - 1)
    whole = chance.uniform() < 0.5 and count * columns <= _CELLS_OF_A_WRITE
    start, step = chance.below(rows), 1 if chance.uniform() < 0.5 else _coprime(rows, chance)
    chosen = sorted((start + i * step) % rows for i in range(count))
    if whole:
        return [_cell(partition, row, column, value) for row in chosen for column in range(columns)]
    return [_cell(partition, row, chance.below(columns), value) for row in chosen]


def _cell(partition: int, row: int, column: int, value: int) -> Mop:
    return Mop("w", partition, value, row=row, column=column)


def _coprime(rows: int, chance: Chance) -> int:
    """A step that visits every row once before any twice."""
    step = 1 + chance.below(rows)
    while gcd(step, rows) != 1:
        step += 1
    return step


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
        seed = entropy.getrandbits(53)
        return draw(
            seed,
            lambda context, chance, n: going_on(
                any_operation(options, reads_at, writes_at, context, chance, n), options, Chance(child(~seed, n))
            ),
        )

    return generator


FinalReads = Callable[[Options, Random], Generator]


def whole_partitions(options: Options, entropy: Random, level: str, times: int) -> Generator:
    """Reads of every partition, all of its rows, one partition after the other, `times` times."""
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
