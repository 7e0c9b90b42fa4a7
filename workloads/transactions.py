"""Transactions of any database whose clients offer `transact`: all micro-operations of an operation at once or not.

Lists and registers for Elle's models, single writes that are read together (`long-fork`), and rows of registers that
have to be linearizable. Every value is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from harness.generators.core import Chance, Context, Generator, child, draw, invoke
from harness.history.columns import ModelSettings
from harness.history.ops import Mop, Op, read, write
from workloads.api import MakeGenerator, Option, Options, WordOption, Workload
from workloads.register import hot_key, window_options

CONSISTENCY = WordOption(
    "consistency",
    (
        "strict-serializable",
        "serializable",
        "strong-snapshot-isolation",
        "snapshot-isolation",
        "repeatable-read",
        "read-atomic",
        "read-committed",
        "read-uncommitted",
    ),
    "what must hold",
)
"""The promises that databases make; what else is found is named, and refutes nothing."""

MakeWrite = Callable[[int, int], Mop]
"""Writes a value to a key."""


def append(partition: int, value: int) -> Mop:
    """An append of one element to a list."""
    return Mop("append", partition, value)


def transactions(make_write: MakeWrite) -> MakeGenerator:
    """An endless stream of transactions of up to `longest` reads and writes; those of reads alone are `read`s."""

    def generator(options: Options, entropy: Random) -> Generator:
        longest = int(options["longest"])

        def transaction(context: Context, chance: Chance, n: int) -> Op:
            mops = []
            for place in range(1 + chance.below(longest)):
                key, reads = hot_key(options, n, chance), chance.uniform() < options["reads"]
                mops.append(read(key) if reads else make_write(key, n * longest + place + 1))
            return invoke("read" if all(mop.f == "r" for mop in mops) else "txn", *mops)

        return draw(entropy.getrandbits(53), transaction)

    return generator


def reads_of_all(options: Options, entropy: Random) -> Generator:
    """Every key, by a transaction of one read."""
    keys = int(options["keys"])
    return draw(0, lambda context, chance, n: invoke("read", read(n)) if n < keys else None)


def fork_group(options: Options, n: int) -> tuple[int, int]:
    """The group of keys that the operation of this number is about, and which of the group's operations it is: `hot`
    groups are in use at a time, each for `dwell` operations, and never again."""
    hot, dwell = int(options["hot"]), int(options["dwell"])
    turn, place = divmod(n, hot)
    return turn // dwell * hot + place, turn % dwell


def forks(options: Options, entropy: Random) -> Generator:
    """Reads of all keys of a group, and among them one write of each key."""
    seed, size = entropy.getrandbits(53), int(options["group"])

    def operation(context: Context, chance: Chance, n: int) -> Op:
        group, turn = fork_group(options, n)
        turns = Random(child(seed, group)).sample(range(int(options["dwell"])), size)
        first = group * size
        if turn in turns:
            return invoke("write", write(first + turns.index(turn), n + 1))
        return invoke("read", *(read(key) for key in range(first, first + size)))

    return draw(seed, operation)


def fork_reads(options: Options, entropy: Random) -> Generator:
    """The first groups, each as a whole: how many there were the load alone knows."""
    size, groups = int(options["group"]), int(options["hot"])
    reads = [invoke("read", *(read(group * size + key) for key in range(size))) for group in range(groups)]
    return draw(0, lambda context, chance, n: reads[n] if n < groups else None)


def rows(options: Options, entropy: Random) -> Generator:
    """Reads, writes and both of some registers of one row."""
    size = int(options["registers"])

    def operation(context: Context, chance: Chance, n: int) -> Op:
        first, kind = hot_key(options, n, chance) * size, chance.uniform()
        some = [key for key in range(first, first + size) if chance.below(2)] or [first + chance.below(size)]
        if kind < options["reads"]:
            return invoke("read", *map(read, some))
        mixed = kind < options["reads"] + (1 - options["reads"]) / 2
        mops = [read(key) if mixed and place % 2 else write(key, n + 1) for place, key in enumerate(some)]
        return invoke("txn" if any(mop.f == "r" for mop in mops) else "write", *mops)

    return draw(entropy.getrandbits(53), operation)


def row_reads(options: Options, entropy: Random) -> Generator:
    """Every row, as a whole."""
    count, size = int(options["keys"]), int(options["registers"])
    reads = [invoke("read", *(read(row * size + place) for place in range(size))) for row in range(count)]
    return draw(0, lambda context, chance, n: reads[n] if n < count else None)


def _elle(name: str, description: str, make_write: MakeWrite, f: str, keys: int, dwell: int) -> Workload:
    def settings(options: Options) -> ModelSettings:
        return {name: {"consistency": str(options["consistency"])}}

    return Workload(
        name=name,
        description=description,
        options=(
            CONSISTENCY,
            *window_options("keys", keys, hot=4, dwell=dwell),
            Option("longest", 4, 1, 64, "how many micro-operations a transaction has at most"),
            Option("reads", 0.5, 0.05, 0.95, "share of the micro-operations that read"),
        ),
        generator=transactions(make_write),
        final_generator=reads_of_all,
        checkers=(name, "stats"),
        operations=frozenset({"transact", "r", f}),
        fs=("read", "txn"),
        each_node=False,
        settings=settings,
    )


WORKLOADS = (
    _elle("list-append", "transactions of reads and appends to lists", append, "append", keys=40, dwell=25),
    _elle("rw-register", "transactions of reads and writes of registers", write, "w", keys=40, dwell=25),
    Workload(
        name="long-fork",
        description="single writes, read together: no two reads see them in opposite orders",
        options=(
            Option("group", 2, 2, 16, "how many keys are read together"),
            Option("hot", 3, 1, 100, "how many groups are in use at a time", (1, 3, 6)),
            Option("dwell", 20, 16, 10_000, "how many operations a group has"),
        ),
        generator=forks,
        final_generator=fork_reads,
        checkers=("long-fork", "stats"),
        operations=frozenset({"transact", "r", "w"}),
        fs=("read", "write"),
        each_node=False,
        floors={"final_reads": 0.0},
        settings=lambda options: {"long-fork": {"group-size": str(options["group"])}},
    ),
    Workload(
        name="multi-register",
        description="reads and writes of several registers at once, checked for linearizability",
        options=(
            *window_options("rows of registers", keys=40, hot=4, dwell=25),
            Option("registers", 3, 2, 8, "how many registers a row has"),
            Option("reads", 0.4, 0.05, 0.95, "share of the operations that only read"),
        ),
        generator=rows,
        final_generator=row_reads,
        checkers=("multi-register", "stats"),
        operations=frozenset({"transact", "r", "w"}),
        fs=("read", "write", "txn"),
        each_node=False,
    ),
)
