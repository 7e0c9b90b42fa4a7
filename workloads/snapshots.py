"""Reads at a timestamp beside writes: what was served at a time is looked at again as of that time, once and later on.

Every answer tells the time it was served at. A look asks for the value as of such a time, the newest one or an older
one, or of a time before it, at which nobody may have read; looks at one time must agree, show every commit up to it,
and nothing may be committed there afterwards. A span is one read of all the registers of a partition.
"""

from __future__ import annotations

from random import Random

import msgspec
from msgspec.structs import replace

from harness.generators.core import PENDING, Chance, Context, Generator, Step, child, draw, fill, invoke
from harness.history.ops import Op, cas, read, write
from workloads.api import Option, Options, Workload

RECENT = 64  # times served that are remembered to be looked at
PAST_SHARE = 0.2  # of the looks are at a time before that
PAST_NS = 3_000_000_000
"""How far before."""
NEWEST_SHARE = 0.6  # of the looks are at one of the newest times, the others at any that is remembered


class SnapshotMix(msgspec.Struct, frozen=True):
    """Endless mix; `served` holds (partition, row, time, value) as completions told them, the newest last."""

    options: dict[str, float]
    seed: int
    count: int = 0
    served: tuple[tuple[int, int, int, int | None], ...] = ()

    def step(self, context: Context) -> Step:
        op = fill(self._gapped(self._next(Chance(child(self.seed, self.count)))), context)
        return (PENDING, self) if op is None else (op, replace(self, count=self.count + 1))

    def update(self, context: Context, event: Op) -> Generator:
        if event.type != "ok" or not event.mops or event.served_ts is None:
            return self
        mop = event.mops[0]
        served = (mop.partition, mop.row, event.served_ts, mop.value)
        return replace(self, served=(*self.served[1 - RECENT :], served))

    def _next(self, chance: Chance) -> Op:
        partition, row, kind = chance.below(int(self.options["keys"])), self._row(chance), chance.uniform()
        if kind < self.options["looks"] and self.served:
            return self._look(chance)
        if kind < self.options["looks"] + self.options["reads"]:
            return self._span(partition) if self._spans(chance) else invoke("read", replace(read(partition), row=row))
        if chance.uniform() < self.options["cas"]:
            expected = self._last(partition, row)
            return invoke("cas", replace(cas(partition, expected, self.count + 1), row=row))
        return invoke("write", replace(write(partition, self.count + 1), row=row))

    def _look(self, chance: Chance) -> Op:
        newest = min(len(self.served), 4) if chance.uniform() < NEWEST_SHARE else len(self.served)
        partition, row, time, _ = self.served[-1 - chance.below(newest)]
        mode = "past" if chance.uniform() < PAST_SHARE else "exact"
        if mode == "past":
            time = max(1, time - chance.below(PAST_NS))
        op = self._span(partition) if self._spans(chance) else invoke("look", replace(read(partition), row=row))
        return replace(op, mode=mode, requested_ts=time)

    def _gapped(self, op: Op) -> Op:
        """A span without one of its inner registers, if chance has it so, which is another one than the mix's."""
        if op.f != "span" or len(op.mops) < 3 or not self.options["gaps"]:
            return op
        chance = Chance(child(~self.seed, self.count))
        left_out = 1 + chance.below(len(op.mops) - 2)
        gapped = replace(op, mops=(*op.mops[:left_out], *op.mops[left_out + 1 :]))
        return gapped if chance.uniform() < self.options["gaps"] else op

    def _spans(self, chance: Chance) -> bool:
        return chance.uniform() < self.options["spans"]

    def _span(self, partition: int) -> Op:
        return invoke("span", *(replace(read(partition), row=row) for row in range(int(self.options["rows"]))))

    def _row(self, chance: Chance) -> int:
        return chance.below(int(self.options["rows"]))

    def _last(self, partition: int, row: int) -> int | None:
        known = (value for *cell, _, value in reversed(self.served) if cell == [partition, row])
        return next(known, None)


def final_reads(options: Options, entropy: Random) -> Generator:
    """Every register, twice, by whoever is free."""
    keys, rows = int(options["keys"]), int(options["rows"])

    def nth(n: int) -> Op | None:
        cell = replace(read(n % keys), row=n // keys % rows)
        return invoke("read", cell) if n < 2 * keys * rows else None

    return draw(0, lambda context, chance, n: nth(n))


WORKLOAD = Workload(
    name="snapshots",
    description="reads as of earlier times beside writes of few registers: what was served once stays true",
    options=(
        Option("keys", 6, 1, 1_000_000, "how many partitions there are", (3, 6, 6, 20)),
        Option("rows", 2, 1, 100, "how many registers each of them has", (1, 2, 2, 5)),
        Option("looks", 0.4, 0.01, 0.9, "share of the operations that read as of an earlier time", (0.3, 0.4, 0.5)),
        Option("reads", 0.25, 0.01, 0.9, "share of the operations that read what is there now", (0.1, 0.25)),
        Option("spans", 0.2, 0.01, 0.9, "share of these that read all registers of a partition at once", (0.2, 0.6)),
        Option("cas", 0.3, 0.01, 0.99, "share of the changes that compare and set", (0.1, 0.3, 0.6)),
        Option("gaps", 0.0, 0.0, 1.0, "share of the spans that leave an inner register out", (0.0, 0.5)),
    ),
    generator=lambda options, entropy: SnapshotMix(dict(options), entropy.getrandbits(53)),
    final_generator=final_reads,
    checkers=("snapshot-reads", "stats"),
    operations=frozenset({"r", "w", "cas"}),
    fs=("read", "look", "span", "write", "cas"),
)
