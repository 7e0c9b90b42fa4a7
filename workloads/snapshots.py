"""Reads at a timestamp beside writes: what was served at a time is looked at again as of that time, once and later on.

Every answer tells the time it was served at. A look asks for the value as of such a time, the newest one or an older
one; looks at one time must agree, show every commit up to it, and nothing may be committed there afterwards.
"""

from __future__ import annotations

from random import Random

import msgspec
from msgspec.structs import replace

from harness.generators.core import PENDING, Chance, Context, Generator, Step, child, draw, fill, invoke
from harness.history.ops import Op, cas, read, write
from workloads.api import Option, Options, Workload

RECENT = 64  # times served that are remembered to be looked at
NEWEST_SHARE = 0.6  # of the looks are at one of the newest times, the others at any that is remembered


class SnapshotMix(msgspec.Struct, frozen=True):
    """Endless mix; `served` holds (key, time, value) as completions told them, the newest last."""

    options: dict[str, float]
    seed: int
    count: int = 0
    served: tuple[tuple[int, int, int | None], ...] = ()

    def step(self, context: Context) -> Step:
        op = fill(self._next(Chance(child(self.seed, self.count))), context)
        return (PENDING, self) if op is None else (op, replace(self, count=self.count + 1))

    def update(self, context: Context, event: Op) -> Generator:
        if event.type != "ok" or not event.mops or event.served_ts is None:
            return self
        served = (event.mops[0].partition, event.served_ts, event.mops[0].value)
        return replace(self, served=(*self.served[1 - RECENT :], served))

    def _next(self, chance: Chance) -> Op:
        key, kind = chance.below(int(self.options["keys"])), chance.uniform()
        if kind < self.options["looks"] and self.served:
            newest = min(len(self.served), 4) if chance.uniform() < NEWEST_SHARE else len(self.served)
            known, time, _ = self.served[-1 - chance.below(newest)]
            return replace(invoke("look", read(known), mode="exact"), requested_ts=time)
        if kind < self.options["looks"] + self.options["reads"]:
            return invoke("read", read(key))
        if chance.uniform() < self.options["cas"]:
            return invoke("cas", cas(key, self._last(key), self.count + 1))
        return invoke("write", write(key, self.count + 1))

    def _last(self, key: int) -> int | None:
        return next((value for known, _, value in reversed(self.served) if known == key), None)


def final_reads(options: Options, entropy: Random) -> Generator:
    """Every key, twice, by whoever is free."""
    keys = int(options["keys"])
    return draw(0, lambda context, chance, n: invoke("read", read(n % keys)) if n < 2 * keys else None)


WORKLOAD = Workload(
    name="snapshots",
    description="reads as of earlier times beside writes of few registers: what was served once stays true",
    options=(
        Option("keys", 6, 1, 1_000_000, "how many registers there are"),
        Option("looks", 0.4, 0.01, 0.9, "share of the operations that read as of an earlier time"),
        Option("reads", 0.25, 0.01, 0.9, "share of the operations that read what is there now"),
        Option("cas", 0.3, 0.01, 0.99, "share of the changes that compare and set"),
    ),
    generator=lambda options, entropy: SnapshotMix(dict(options), entropy.getrandbits(53)),
    final_generator=final_reads,
    checkers=("snapshot-reads", "stats"),
    operations=frozenset({"r", "w", "cas"}),
    fs=("read", "look", "write", "cas"),
)
