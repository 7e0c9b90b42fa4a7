"""Linearizable registers: reads, writes and compare-and-sets of integer cells, every written value unique.

A few keys are hot at a time, so that operations overlap; the hot window slides over all keys and comes back. Some
clients only read, as in Jepsen's register tests: they stay with whoever answers, while writers look for the leader.
"""

from __future__ import annotations

from random import Random

import msgspec

from harness.generators.core import PENDING, Chance, Context, Generator, Step, child, draw, fill, invoke
from harness.history.ops import Mop, Op, cas, read, write
from workloads.api import Option, Options, Workload

RECENT = 32  # values seen that are remembered as expectations for a cas
FRESH_SHARE = 0.85  # of the cas expect the last value seen of the key, the others some older one


class RegisterMix(msgspec.Struct, frozen=True):
    """Endless mix; `recent` holds (key, value) as completions told them, the newest last."""

    options: dict[str, float]
    seed: int
    count: int = 0
    recent: tuple[tuple[int, int], ...] = ()

    def step(self, context: Context) -> Step:
        chance = Chance(child(self.seed, self.count))
        reader = reads_only(context.free_bit() or 0, self.options["readers"])
        op = fill(self._next(chance, reader), context)
        return (
            (PENDING, self) if op is None else (op, RegisterMix(self.options, self.seed, self.count + 1, self.recent))
        )

    def update(self, context: Context, event: Op) -> Generator:
        if event.type != "ok" or not event.mops or event.mops[0].value is None:
            return self
        seen = (event.mops[0].partition, event.mops[0].value)
        return RegisterMix(self.options, self.seed, self.count, (*self.recent[1 - RECENT :], seen))

    def _next(self, chance: Chance, reader: bool) -> Op:
        key = hot_key(self.options, self.count, chance)
        kind, new = chance.uniform(), self.count + 1
        if reader or kind < self.options["reads"]:
            return invoke("read", read(key))
        if kind >= self.options["reads"] + (1 - self.options["reads"]) * self.options["cas"]:
            return invoke("write", write(key, new))
        return invoke("cas", self._cas(chance, key, new))

    def _cas(self, chance: Chance, key: int, new: int) -> Mop:
        seen: list[int | None] = [value for known, value in self.recent if known == key] or [None]
        return cas(key, seen[-1] if chance.uniform() < FRESH_SHARE else chance.choice(seen), new)


def hot_key(options: Options, count: int, chance: Chance) -> int:
    """A key for the operation of this number: one of `hot` keys, a window that moves on by one every `dwell`
    operations, over all `keys` and round."""
    keys, hot, dwell = (int(options[name]) for name in ("keys", "hot", "dwell"))
    return (count // dwell + chance.below(min(hot, keys))) % keys


def window_options(what: str, keys: int, hot: int, dwell: int) -> tuple[Option, ...]:
    """The settings of `hot_key`, with these defaults."""
    return (
        Option("keys", keys, 1, 1_000_000, f"how many {what} there are", (5, keys, keys, 100)),
        Option("hot", hot, 1, 1_000, "how many of them are in use at a time", (1, hot, 2 * hot)),
        Option("dwell", dwell, 1, 1_000_000, "after how many operations the window of hot ones moves on by one"),
    )


def reads_only(bit: int, share: float) -> bool:
    """Whether the client of this bit only reads: so spread that among any few in a row the share is about right."""
    return int(bit * share) > int((bit - 1) * share)


def final_reads(options: Options, entropy: Random) -> Generator:
    """Every key, `final` times over, by whoever is free."""
    keys, total = int(options["keys"]), int(options["keys"] * options["final"])
    return draw(0, lambda context, chance, n: invoke("read", read(n % keys)) if n < total else None)


WORKLOAD = Workload(
    name="register",
    description="reads, writes and compare-and-sets of many registers, checked for linearizability",
    options=(
        *window_options("registers", keys=30, hot=4, dwell=25),
        Option("readers", 0.4, 0.0, 0.9, "share of the clients that only read", (0.2, 0.4)),
        Option("reads", 0.25, 0.01, 0.98, "share of the other clients' operations that read", (0.1, 0.25, 0.5)),
        Option("cas", 0.4, 0.01, 0.99, "share of the changes that compare and set", (0.2, 0.4, 0.7)),
        Option("final", 2, 1, 100, "how often each key is read at the end"),
    ),
    generator=lambda options, entropy: RegisterMix(dict(options), entropy.getrandbits(53)),
    final_generator=final_reads,
    checkers=("register", "stats"),
    operations=frozenset({"r", "w", "cas"}),
    fs=("read", "write", "cas"),
)
