"""Objects that databases offer by themselves: accounts of a bank, sets, locks, feeds of changes.

A client is asked for the operation of that name, and for nothing of a database.
"""

from __future__ import annotations

from random import Random

import msgspec
from msgspec.structs import replace

from harness.generators import chain, cycle, each_process, limit, repeat, sleep, until_ok
from harness.generators.core import PENDING, Chance, Context, Generator, Step, child, draw, fill, invoke
from harness.history.columns import ModelSettings
from harness.history.ops import Mop, Op, read, write
from workloads.api import Option, Options, Workload
from workloads.register import reads_only


def bank(options: Options, entropy: Random) -> Generator:
    """Transfers between two accounts, and reads of all of them at once."""
    accounts, most = int(options["accounts"]), int(options["most"])

    def operation(context: Context, chance: Chance, n: int) -> Op:
        if chance.uniform() < options["reads"]:
            return _read_accounts(accounts)
        source, step = chance.below(accounts), 1 + chance.below(accounts - 1)
        moved = {"from": source, "to": (source + step) % accounts, "amount": 1 + chance.below(most)}
        return invoke("transfer", value=moved)

    return draw(entropy.getrandbits(53), operation)


def bank_reads(options: Options, entropy: Random) -> Generator:
    """All accounts, some times over."""
    return draw(0, lambda context, chance, n: _read_accounts(int(options["accounts"])) if n < 5 else None)


def bank_settings(options: Options) -> ModelSettings:
    """What all accounts hold together, and which there are."""
    accounts, balance = int(options["accounts"]), int(options["balance"])
    return {"bank": {"total": str(accounts * balance), "accounts": ",".join(map(str, range(accounts)))}}


def _read_accounts(accounts: int) -> Op:
    return invoke("read", *map(read, range(accounts)))


def sets(options: Options, entropy: Random) -> Generator:
    """Elements, each added once to one of some sets, and now and then a read of all members of one."""

    def operation(context: Context, chance: Chance, n: int) -> Op:
        chosen = chance.below(int(options["keys"]))
        if chance.uniform() < options["reads"]:
            return invoke("read", read(chosen))
        return invoke("add", Mop("add", chosen, n))

    return draw(entropy.getrandbits(53), operation)


def set_reads(options: Options, entropy: Random) -> Generator:
    """Every set, twice over."""
    keys = int(options["keys"])
    return draw(0, lambda context, chance, n: invoke("read", read(n % keys)) if n < 2 * keys else None)


TURNS = 16
"""Locks that a process takes one after the other before it begins anew."""


def locks(options: Options, entropy: Random) -> Generator:
    """Each process acquires some lock, holds it for a while and releases it, again and again."""
    seed, keys = entropy.getrandbits(53), int(options["locks"])

    def one_of(f: str, turn: int) -> Generator:
        def operation(context: Context, chance: Chance, n: int) -> Op:
            return invoke(f, Mop(f, child(child(seed, context.free_process() or 0), turn) % keys))

        return draw(seed, operation)

    turns = [
        chain(until_ok(repeat(one_of("acquire", turn))), sleep(options["hold"]), limit(1, one_of("release", turn)))
        for turn in range(TURNS)
    ]
    return each_process(cycle(chain(*turns)))


class WatchMix(msgspec.Struct, frozen=True):
    """Writes by some clients; the others watch, each from where its own feed has got to (`marks`, by process)."""

    options: dict[str, float]
    seed: int
    count: int = 0
    marks: dict[int, int] = {}

    def step(self, context: Context) -> Step:
        bit = context.free_bit()
        if bit is None:
            return PENDING, self
        op = fill(self._watch(context.process_at(bit)) if self._watches(bit) else self._write(), context)
        return (PENDING, self) if op is None else (op, replace(self, count=self.count + 1))

    def update(self, context: Context, event: Op) -> Generator:
        if event.type != "ok" or event.f != "watch" or event.session is None or event.served_ts is None:
            return self
        return replace(self, marks={**self.marks, event.session: event.served_ts})

    def _watches(self, bit: int) -> bool:
        return reads_only(bit, self.options["watchers"])

    def _watch(self, process: int) -> Op:
        return replace(invoke("watch"), session=process, requested_ts=self.marks.get(process))

    def _write(self) -> Op:
        chance = Chance(child(self.seed, self.count))
        return invoke("write", write(chance.below(int(self.options["keys"])), self.count + 1))


def whole_feeds(options: Options, entropy: Random) -> Generator:
    """Feeds of their own, each from the beginning to what is there now."""

    def watch(context: Context, chance: Chance, n: int) -> Op | None:
        session = (1 << 32) + context.time_ns * 8 + n
        return replace(invoke("watch"), session=session) if n < 4 else None

    return draw(0, watch)


WORKLOADS = (
    Workload(
        name="bank",
        description="transfers between accounts: every read of all shows the same total",
        options=(
            Option("accounts", 8, 2, 1_000, "how many accounts there are"),
            Option("balance", 10, 1, 1_000_000, "what each holds at the beginning"),
            Option("most", 5, 1, 1_000_000, "the most that a transfer moves"),
            Option("reads", 0.5, 0.05, 0.95, "share of the operations that read"),
        ),
        generator=bank,
        final_generator=bank_reads,
        checkers=("bank", "stats"),
        operations=frozenset({"transact", "r", "transfer"}),
        fs=("read", "transfer"),
        each_node=False,
        floors={"success": 0.1},
        settings=bank_settings,
    ),
    Workload(
        name="set",
        description="elements added to sets: none that was acknowledged or seen is lost",
        options=(
            Option("keys", 2, 1, 10_000, "how many sets there are"),
            Option("reads", 0.05, 0.01, 0.9, "share of the operations that read a whole set"),
        ),
        generator=sets,
        final_generator=set_reads,
        checkers=("set-full", "set", "stats"),
        operations=frozenset({"r", "add"}),
        fs=("read", "add"),
        each_node=False,
    ),
    Workload(
        name="mutex",
        description="locks that clients hold for a while: never two at a time",
        options=(
            Option("locks", 4, 1, 1_000, "how many locks there are"),
            Option("hold", 0.05, 0.0, 60.0, "seconds for which a lock is held"),
        ),
        generator=locks,
        final_generator=None,
        checkers=("mutex", "stats"),
        operations=frozenset({"acquire", "release"}),
        fs=("acquire", "release"),
        each_node=False,
        floors={"rate": 0.0, "success": 0.02, "each_f": 0.005},
    ),
    Workload(
        name="watch",
        description="writes, and feeds of changes that tell each of them once and in order",
        options=(
            Option("keys", 10, 1, 1_000_000, "how many keys are written"),
            Option("watchers", 0.4, 0.1, 0.9, "share of the clients that watch"),
        ),
        generator=lambda options, entropy: WatchMix(dict(options), entropy.getrandbits(53)),
        final_generator=whole_feeds,
        checkers=("change-feed", "stats"),
        operations=frozenset({"w", "watch"}),
        fs=("write", "watch"),
        each_node=False,
        floors={"final_reads": 0.0},
    ),
)
