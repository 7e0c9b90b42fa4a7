"""Strong reads of a table that is closed ahead of time, beside changes, by clients in all regions (R6).

Registers as in `register`: every operation is strong, and the whole is judged by linearizability. What is new is who
serves the reads: any replica, as the table's policy is `global`. A change takes about as long as its range is closed
ahead, so there are few, and clients that change something do little else.
"""

from __future__ import annotations

import msgspec

from harness.generators.core import Chance, Context, Generator, Step, child
from harness.history.ops import Op
from harness.verdict.adequacy import FloorOf
from workloads.api import Option, Workload
from workloads.register import RegisterMix, final_reads, window_options

READS = "strong reads of what is closed ahead"
OFF_LEASEHOLDER = "strong reads off the leaseholder"
MOVED = "strong reads that moved to a later time"
COMMIT_WAITS = "changes that were kept back until their time"
WORLD = {
    "side-transport-ms": "200",
    "tablet-lease-ms": "4000",
    "support-ms": "4000",
    "max-clock-offset-ms": "500",
    "hold-ms": "3000",
}
"""Leases outlast the lead, also between far regions; what was laid and forgotten is not long in the way."""


class GlobalMix(msgspec.Struct, frozen=True):
    """The mix of `register`; its reads say that any replica may serve them, a share of its writes that they are laid
    first and committed then."""

    mix: RegisterMix

    def step(self, context: Context) -> Step:
        op, mix = self.mix.step(context)
        if isinstance(op, Op) and op.f == "read":
            op = msgspec.structs.replace(op, mode="global")
        elif isinstance(op, Op) and op.f == "write" and self._holds():
            op = msgspec.structs.replace(op, mode="held")
        return op, msgspec.structs.replace(self, mix=mix)

    def update(self, context: Context, event: Op) -> Generator:
        return msgspec.structs.replace(self, mix=self.mix.update(context, event))

    def _holds(self) -> bool:
        chance = Chance(child(~self.mix.seed, self.mix.count))
        return chance.uniform() < self.mix.options["held"]


WORKLOAD = Workload(
    name="global-reads",
    description="reads, writes and compare-and-sets of registers of a GLOBAL table, read strongly from any replica",
    options=(
        *window_options("registers", keys=12, hot=4, dwell=25),
        Option("readers", 0.6, 0.0, 0.9, "share of the clients that only read", (0.4, 0.6)),
        Option("reads", 0.5, 0.01, 0.98, "share of the other clients' operations that read", (0.25, 0.5)),
        Option("cas", 0.3, 0.01, 0.99, "share of the changes that compare and set", (0.2, 0.4, 0.7)),
        Option("held", 0.3, 0.0, 0.99, "share of the writes that are laid and then committed", (0.1, 0.3)),
        Option("final", 2, 1, 100, "how often each key is read at the end"),
    ),
    generator=lambda options, entropy: GlobalMix(RegisterMix(dict(options), entropy.getrandbits(53))),
    final_generator=final_reads,
    checkers=("register", "stats"),
    operations=frozenset({"r", "w", "cas", "read-at"}),
    fs=("read", "write", "cas"),
    world=WORLD,
    floors={"rate": 0.05, "each_f": 0.002},
    own_floors=(FloorOf(OFF_LEASEHOLDER, 0.5, of=READS), FloorOf(MOVED, 10), FloorOf(COMMIT_WAITS, 10)),
)
