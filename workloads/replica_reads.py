"""Reads that any replica may serve, beside writes, by clients in all regions: exact, or within a bound of staleness.

`follower-reads` reads cells and slices as of a time T, most of them near the *frontier*, which is what is closed by
now, some at a T that was served before, to whomever. `bounded-staleness` reads cells, and scans of several ranges, that
may be so old, or no older than what was seen. Both learn from completions: what was served, and what was closed there.
`strong-anywhere` is the mix of `register`, with reads that are strong wherever they are served.
"""

from __future__ import annotations

from random import Random

import msgspec
from msgspec.structs import replace

from harness.generators.bounds import map_ops
from harness.generators.core import PENDING, Chance, Context, Generator, Step, child, draw, fill, invoke
from harness.history.figures import reads_cut_off
from harness.history.ops import Mop, Op, cas, read, write
from harness.verdict.adequacy import FloorOf
from workloads import register
from workloads.api import Option, Options, Workload
from workloads.catalog import PAGES

S = 1_000_000_000
RECENT = 64  # reads served that are remembered
HEARD = 12  # answers of which is remembered how far their replicas had closed
MARGIN_NS = S // 4  # below the frontier: so much later others hear of it
NEAR_NS = S // 2  # and so much further a T lies at the most that is near
AGO_NS = (S, 4 * S, 6 * S, 10 * S)  # before the clock of who is asked first
OLDER_SHARE = 0.8
"""Of the reads at a time that was served before, those at one that was served a while ago."""
HELD_BACK = 10
"""How many reads within a bound have to be older for what was held; until then something is held often."""
LONG_NS, SELDOM, LONG_HELD_NS = 20 * S, 8, (S // 2, 5 * S, 5 * S)
"""The bound of reads of what a transaction holds, for who asks for fresher data has it pushed out of the way; how much
more seldom something is held, so that other reads have other bounds; and for how long, for what is closed has to come
up to it: it lies above what was read strongly."""
STALENESS_NS = (S // 4, S, 4 * S, 6 * S, 10 * S)


TURN_NS = 2 * S
TABLETS = 3
"""The groups of partitions of which one is written to for that long, then the next: what is closed of the others is
told beside the log."""


def written(partition: int, keys: int, now_ns: int) -> int:
    """The partition that is written to instead, for it is not the turn of this one's group."""
    return (partition - partition % TABLETS + now_ns // TURN_NS % TABLETS) % keys


class Frontier(msgspec.Struct, frozen=True):
    """How far what is closed lies from the run's clock (ns), as the last replicas that answered have told it."""

    distances: tuple[int, ...] = ()

    def at(self, now_ns: int) -> int:
        """What most replicas have closed by now, if closing goes on at the pace of the clock; 0 if nobody told."""
        known = sorted(self.distances)
        return known[len(known) // 4] + now_ns if known else 0

    def after(self, event: Op) -> Frontier:
        """With what another completion says."""
        if event.closed_ts is None or event.route is None:
            return self
        return Frontier((*self.distances[1 - HEARD :], event.closed_ts - event.time))


HELD_NS = (S // 2, S, 2 * S, 2 * S)
"""How long transactions hold what they have laid before they commit."""
HOLD_EVERY_NS = S
"""A transaction lays something so often, whatever the rate."""
HELD_SHARE = 0.2
"""Of the reads near the frontier, those of what a transaction holds then, which have to wait; and of the changes those
beside it, which are before it in the log and after it in time."""
EARLIER_NS = S // 20
"""How far below a time that was served, or closed, a change asks for at the most."""


class HeldChange(msgspec.Struct, frozen=True):
    """What a transaction has laid at `laid_ts`, or may have where nobody knows what became of that; it is settled from
    `due_ns` on, in the run's time."""

    transaction: str
    partition: int
    row: int
    value: int
    laid_ts: int | None
    due_ns: int
    commits: bool


class LateChanges(msgspec.Struct, frozen=True):
    """Changes that come out of order of time: what transactions hold, of which the last began at `held_ns` in the run's
    time, for as long as `lasts` says in turn; and what is known of each partition, which changes ask to be before.
    `closed` is the highest time that is known to be closed there, `newest` that of a change, with its row. `settled`:
    one of them has committed; `held_back`: how many reads within a bound were older for what was held."""

    lasts: tuple[int, ...] = HELD_NS
    held: tuple[HeldChange, ...] = ()
    held_ns: int = -HOLD_EVERY_NS
    closed: dict[int, int] = {}
    newest: dict[int, tuple[int, int]] = {}
    settled: bool = False
    held_back: int = 0

    def after(self, event: Op) -> LateChanges:
        """With what an event says."""
        if event.f == "hold":
            return self._laid(event)
        if event.type != "ok" or not event.mops:
            return self
        waits = event.unblocked_ts is not None and event.closed_ts is not None and event.unblocked_ts < event.closed_ts
        known = replace(self, settled=self.settled or event.f == "settle", held_back=self.held_back + waits)
        mop = event.mops[0]
        if event.f != "scan" and event.closed_ts is not None and event.route is not None:
            highest = max(event.closed_ts, self.closed.get(mop.partition, 0))
            known = replace(known, closed=self.closed | {mop.partition: highest})
        if mop.f in ("w", "cas") and event.served_ts is not None:
            highest_row = max((event.served_ts, mop.row), self.newest.get(mop.partition, (0, 0)))
            known = replace(known, newest=self.newest | {mop.partition: highest_row})
        return known

    def _laid(self, event: Op) -> LateChanges:
        if event.type == "invoke":
            return replace(self, held_ns=event.time)
        if event.type == "fail":
            return self
        named = event.value
        lasts, *others = self.lasts
        commits = event.type == "ok"
        left = HeldChange(**named, laid_ts=event.served_ts, due_ns=event.time + lasts, commits=commits)
        return replace(self, lasts=(*others, lasts), held=(*self.held, left))

    def due(self, now_ns: int) -> HeldChange | None:
        """What is to be settled now."""
        return next((each for each in self.held if each.due_ns <= now_ns), None)

    def without(self, held: HeldChange | None) -> LateChanges:
        """Once that is being settled."""
        return self if held is None else replace(self, held=tuple(each for each in self.held if each is not held))

    def holds(self, partition: int, row: int = 0) -> bool:
        """Whether a transaction holds this, so that whoever changes it has to wait."""
        return any(each.partition == partition and each.row == row for each in self.held)

    def may_hold(self, now_ns: int, times: int = 1) -> bool:
        """Whether it is time for a transaction to lay something, which one does every `times` HOLD_EVERY_NS."""
        return now_ns - self.held_ns >= times * HOLD_EVERY_NS

    def hold(self, mop: Mop) -> Op:
        """Lay a write for a transaction of its own, at the earliest time that may be had: reads come upon it soon."""
        named = {"transaction": f"x{mop.value}", "partition": mop.partition, "row": mop.row, "value": mop.value}
        closed = self.closed.get(mop.partition)
        return replace(invoke("hold", value=named), requested_ts=closed, closed_ts=closed)

    def settle(self, held: HeldChange, column: int = 0) -> Op:
        """Commit what is held, or let go what may be."""
        named = {"transaction": held.transaction, "partition": held.partition, "commits": held.commits}
        mop = replace(write(held.partition, held.value), row=held.row, column=column)
        return invoke("settle", mop, value={"seen": self._seen(held.partition)} | named)

    def earlier(self, chance: Chance, change: Op) -> Op:
        """The change at an earlier time than it would have: below what is closed, or than another row's last change."""
        partition, row = change.mops[0].partition, change.mops[0].row
        closed, (time, of_row) = self.closed.get(partition), self.newest.get(partition, (0, row))
        if chance.uniform() < 0.5 or of_row == row:
            time = closed or 0
        if not time:
            return change
        told = replace(change, value={"seen": self._seen(partition)}, closed_ts=closed)
        return replace(told, requested_ts=max(1, time - chance.below(EARLIER_NS)))

    def _seen(self, partition: int) -> int:
        return self.newest.get(partition, (0, 0))[0]


class ReadsAtTimes(msgspec.Struct, frozen=True):
    """Endless mix; `served` holds (partition, row, time) of reads and changes, `older` some of them for longer, `left`
    (partition, row, value) that changes left, the newest last."""

    options: dict[str, float]
    seed: int
    count: int = 0
    served: tuple[tuple[int, int, int], ...] = ()
    older: tuple[tuple[int, int, int], ...] = ()
    left: tuple[tuple[int, int, int | None], ...] = ()
    frontier: Frontier = Frontier()
    late: LateChanges = LateChanges()

    def step(self, context: Context) -> Step:
        due = self.late.due(context.time_ns)
        chance = Chance(child(self.seed, self.count))
        op = fill(self._next(chance, context.time_ns) if due is None else self.late.settle(due), context)
        if op is None:
            return PENDING, self
        return op, replace(self, count=self.count + 1, late=self.late.without(due).after(op))

    def update(self, context: Context, event: Op) -> Generator:
        if event.type == "invoke":
            return self
        return replace(self, late=self.late.after(event))._learnt(event)

    def _learnt(self, event: Op) -> ReadsAtTimes:
        if event.type != "ok" or not event.mops or event.served_ts is None:
            return self
        mop = event.mops[0]
        served = (*self.served[1 - RECENT :], (mop.partition, mop.row, event.served_ts))
        changed = ((mop.partition, mop.row, mop.value),) if mop.f in ("w", "cas") else ()
        left = (*self.left, *changed)[-RECENT:]
        older = self.older if self.count % SELDOM else (*self.older[1 - RECENT :], served[-1])
        return replace(self, served=served, older=older, left=left, frontier=self.frontier.after(event))

    def _next(self, chance: Chance, now_ns: int) -> Op:
        keys, rows = int(self.options["keys"]), int(self.options["rows"])
        partition, row = chance.below(keys), chance.below(rows)
        if chance.uniform() >= self.options["reads"]:
            turn = written(partition, keys, now_ns)
            if self.late.held and chance.uniform() < HELD_SHARE:
                turn = chance.choice(self.late.held).partition
            others = (each % rows for each in range(row, row + rows))
            free = next((each for each in others if not self.late.holds(turn, each)), None)
            if free is not None:
                return self._change(chance, turn, free, now_ns)
        kind = chance.uniform()
        if kind < self.options["again"] and self.served:
            # What is old is served by who is cut off, too.
            among = self.older if self.older and chance.uniform() < OLDER_SHARE else self.served
            partition, row, time = among[-1 - chance.below(len(among))]
            return replace(self._read(chance, partition, row), mode="exact", requested_ts=time)
        if kind < self.options["again"] + self.options["ago"] or not self.frontier.distances:
            return replace(self._read(chance, partition, row), mode="ago", bound=chance.choice(AGO_NS))
        time = self.frontier.at(now_ns) - MARGIN_NS - chance.below(NEAR_NS)
        if self.late.held and chance.uniform() < HELD_SHARE:
            held = chance.choice(self.late.held)
            partition, row, time = held.partition, held.row, max(time, held.laid_ts or 0)
        return replace(self._read(chance, partition, row), mode="exact", requested_ts=time)

    def _read(self, chance: Chance, partition: int, row: int) -> Op:
        if chance.uniform() < self.options["slices"]:
            return invoke("span", *(replace(read(partition), row=each) for each in range(int(self.options["rows"]))))
        return invoke("look", replace(read(partition), row=row))

    def _change(self, chance: Chance, partition: int, row: int, now_ns: int) -> Op:
        mop = replace(write(partition, self.count + 1), row=row)
        if self.late.may_hold(now_ns):
            return self.late.hold(mop)
        if chance.uniform() < self.options["cas"]:
            expected = next((value for *cell, value in reversed(self.left) if cell == [partition, row]), None)
            return invoke("cas", replace(cas(partition, expected, self.count + 1), row=row))
        change = invoke("write", mop)
        return self.late.earlier(chance, change) if chance.uniform() < self.options["earlier"] else change


BASE = 2
"""The id of the column of values of typed rows, behind those of the key."""


class ReadsWithinBounds(msgspec.Struct, frozen=True):
    """Endless mix; `seen` are times that reads were served at and writes committed at, the newest last."""

    options: dict[str, float]
    seed: int
    count: int = 0
    seen: tuple[int, ...] = ()
    late: LateChanges = LateChanges(LONG_HELD_NS)

    def step(self, context: Context) -> Step:
        due = self.late.due(context.time_ns)
        chance = Chance(child(self.seed, self.count))
        made = self._varied(self._next(chance, context.time_ns)) if due is None else self.late.settle(due, BASE)
        op = fill(made, context)
        if op is None:
            return PENDING, self
        return op, replace(self, count=self.count + 1, late=self.late.without(due).after(op))

    def update(self, context: Context, event: Op) -> Generator:
        if event.type == "invoke":
            return self
        after = replace(self, late=self.late.after(event))
        if event.type != "ok" or event.served_ts is None or not event.mops:
            return after
        return replace(after, seen=(*self.seen[1 - RECENT :], event.served_ts))

    def _next(self, chance: Chance, now_ns: int) -> Op:
        key = chance.below(int(self.options["keys"]))
        if chance.uniform() >= self.options["reads"] and not self.late.holds(key):
            mop = replace(write(key, self.count + 1), column=BASE)
            seldom = SELDOM if self.late.settled and self.late.held_back >= HELD_BACK else 1
            return self.late.hold(mop) if self.late.may_hold(now_ns, seldom) else invoke("write", mop)
        if self.late.held and chance.uniform() < HELD_SHARE:
            key = chance.choice(self.late.held).partition
        op = self._scan() if chance.uniform() < self.options["scans"] else _row(key)
        if any(self.late.holds(mop.partition) for mop in op.mops):
            return replace(op, mode="staleness", bound=LONG_NS)
        if self.seen and chance.uniform() < self.options["minimum"]:
            return replace(op, mode="minimum", min_ts=self.seen[-1 - chance.below(len(self.seen))])
        mode = "nearest" if chance.uniform() < self.options["nearest"] else "staleness"
        return replace(op, mode=mode, bound=chance.choice(STALENESS_NS))

    def _varied(self, op: Op) -> Op:
        """The scan in pages of another size, and a read at just a time that was seen, if chance has it so, which is
        another one than the mix's."""
        if op.f not in ("read", "scan") or not self.options["varied"]:
            return op
        chance = Chance(child(~self.seed, self.count))
        if op.f == "scan" and chance.uniform() < self.options["varied"]:
            op = replace(op, value={"page": chance.choice(PAGES)})
        if self.seen and op.bound != LONG_NS and chance.uniform() < self.options["varied"] / 2:
            time = self.seen[-1 - chance.below(len(self.seen))]
            op = replace(op, mode="exact", requested_ts=time, bound=None, min_ts=None)
        return op

    def _scan(self) -> Op:
        return invoke("scan", *(replace(read(key), column=BASE) for key in range(int(self.options["keys"]))))


def _row(key: int) -> Op:
    return invoke("read", replace(read(key), column=BASE))


MODES = ("change", "strong", "exact", "staleness", "minimum", "anywhere")
"""How operations of `mixed-modes` are asked for."""
ELSEWHERE_SHARE = 0.1
"""Of the operations, those that go on with another register."""
PAIRS = tuple(f"{later} after {earlier}" for earlier in MODES for later in MODES)


class Past(msgspec.Struct, frozen=True):
    """What a process did last: how, on which partition, and at which time; `highest` of all its times."""

    mode: str
    partition: int
    time: int
    highest: int


class MixedModes(msgspec.Struct, frozen=True):
    """Endless mix of pairs: what a process does next is what was done least after such as it did last, on the same
    register. The invocation says after what (`value`); `pairs` counts those that succeeded or may yet."""

    options: dict[str, float]
    seed: int
    count: int = 0
    past: dict[int, Past] = {}
    pairs: dict[str, int] = {}

    def step(self, context: Context) -> Step:
        process = context.free_process()
        if process is None:
            return PENDING, self
        op = self._next(Chance(child(self.seed, self.count)), self.past.get(process))
        after = self._counted(op, 1)
        return replace(op, process=process, time=context.time_ns), replace(after, count=self.count + 1)

    def update(self, context: Context, event: Op) -> Generator:
        if event.type == "invoke":
            return self
        if event.type != "ok" or event.served_ts is None or not event.mops:
            past = {key: each for key, each in self.past.items() if key != event.process}
            return replace(self._counted(event, -1), past=past)
        known = self.past.get(event.process)
        highest = max(event.served_ts, 0 if known is None else known.highest)
        past_op = Past(_mode_of(event), event.mops[0].partition, event.served_ts, highest)
        return replace(self, past=self.past | {event.process: past_op})

    def _counted(self, op: Op, number: int) -> MixedModes:
        """The mix after an operation was begun (1), or has failed (-1), that is the second of a pair."""
        if op.value is None:
            return self
        pair = f"{_mode_of(op)} after {op.value['after']}"
        return replace(self, pairs=self.pairs | {pair: self.pairs.get(pair, 0) + number})

    def _next(self, chance: Chance, past: Past | None) -> Op:
        if past is None or chance.uniform() < ELSEWHERE_SHARE:
            partition = chance.below(int(self.options["keys"]))
            return _in_mode(chance.choice(("change", "strong")), partition, self.count, 0)
        likely = [(self.pairs.get(f"{mode} after {past.mode}", 0), chance.uniform(), mode) for mode in MODES]
        mode = min(likely)[2]
        time = past.time if mode == "exact" else past.highest
        return replace(_in_mode(mode, past.partition, self.count, time), value={"after": past.mode})


def _mode_of(op: Op) -> str:
    return "change" if op.f == "write" else op.mode or "strong"


def _in_mode(mode: str, partition: int, count: int, time: int) -> Op:
    if mode == "change":
        return invoke("write", write(partition, count + 1))
    op = replace(invoke("read", read(partition)), mode=None if mode == "strong" else mode)
    if mode == "exact":
        return replace(op, requested_ts=time)
    if mode == "minimum":
        return replace(op, min_ts=time)
    return replace(op, bound=STALENESS_NS[2]) if mode == "staleness" else op


def strong_anywhere(options: Options, entropy: Random) -> Generator:
    """The mix of `register`; its reads are strong, and any replica may serve them (R8)."""
    return map_ops(
        lambda op: replace(op, mode="anywhere") if op.f == "read" else op, register.WORKLOAD.generator(options, entropy)
    )


def final_cells(options: Options, entropy: Random) -> Generator:
    """Every register, twice, by whoever is free."""
    rows, cells = int(options["rows"]), int(options["keys"]) * int(options["rows"])
    return _each_twice([replace(read(n // rows), row=n % rows) for n in range(cells)])


def final_rows(options: Options, entropy: Random) -> Generator:
    """Every row, twice, by whoever is free."""
    return _each_twice([replace(read(key), column=BASE) for key in range(int(options["keys"]))])


def _each_twice(reads: list[Mop]) -> Generator:
    return draw(0, lambda context, chance, n: invoke("read", reads[n % len(reads)]) if n < 2 * len(reads) else None)


CUT_OFF = "region-partition"
"""The faults under which replicas serve that see no other."""
OFF_LEASEHOLDER = "reads off the leaseholder"
READS = "reads that any replica may serve"
WORLD = {"side-transport-ms": "200", "version-retention-ms": "60000"}
"""Ranges that nothing is written to are closed, and versions last longer than it takes until they are."""

_KEYS = Option("keys", 6, 1, 1_000_000, "how many partitions there are", (3, 6, 6, 20))
_EARLIER = Option("earlier", 0.3, 0.0, 0.5, "share of the writes that ask for a time before others, or closed by now")
_READS = Option("reads", 0.75, 0.01, 0.99, "share of the operations that read", (0.6, 0.75, 0.9))

WORKLOADS = (
    Workload(
        name="follower-reads",
        description="cells and slices as of a time, by clients of all regions, from whichever replica is near",
        options=(
            _KEYS,
            Option("rows", 2, 1, 100, "how many registers each of them has", (2, 2, 5)),
            _READS,
            _EARLIER,
            Option("again", 0.25, 0.01, 0.9, "share of the reads at a time that was served before", (0.1, 0.3)),
            Option("ago", 0.2, 0.01, 0.9, "share of the reads whose time the first node's clock fixes", (0.1, 0.2)),
            Option("slices", 0.25, 0.01, 0.99, "share of the reads that read all registers of a partition", (0.2, 0.6)),
            Option("cas", 0.1, 0.01, 0.99, "share of the changes that compare and set", (0.1, 0.3)),
        ),
        generator=lambda options, entropy: ReadsAtTimes(dict(options), entropy.getrandbits(53)),
        final_generator=final_cells,
        checkers=("snapshot-reads", "stats"),
        operations=frozenset({"r", "w", "cas", "read-at", "hold", "settle"}),
        fs=("look", "span", "write"),
        world=WORLD,
        own_floors=(
            FloorOf(OFF_LEASEHOLDER, 0.4, of=READS),
            FloorOf("reads that the side transport made possible", 0.1, of=OFF_LEASEHOLDER),
            FloorOf("reads within 1 s of what was closed", 0.5, of=READS),
            FloorOf("reads that waited for what was open", 10),
            FloorOf("changes that were pushed above what was known to be closed", 20),
            FloorOf("changes at an earlier time than one before them", 5),
            FloorOf(reads_cut_off(CUT_OFF), 10, nemesis=CUT_OFF),
        ),
    ),
    Workload(
        name="bounded-staleness",
        description="rows, and scans of several ranges, that may be so old and are as fresh as can be had at once",
        options=(
            _KEYS,
            _READS,
            Option("scans", 0.2, 0.01, 0.9, "share of the reads that scan the whole table", (0.2, 0.3)),
            Option("minimum", 0.35, 0.01, 0.9, "share of the reads that are no older than what was seen", (0.35, 0.5)),
            Option("nearest", 0.2, 0.01, 0.9, "share of the others that the nearest replica alone serves", (0.1, 0.3)),
            Option(
                "varied",
                0.0,
                0.0,
                1.0,
                "share of the scans in pages of another size; half as often reads are at just a time that was seen",
                (0.0, 0.2, 0.5),
            ),
        ),
        generator=lambda options, entropy: ReadsWithinBounds(dict(options), entropy.getrandbits(53)),
        final_generator=final_rows,
        checkers=("snapshot-reads", "stats"),
        operations=frozenset({"r", "w", "read-at", "hold", "settle"}),
        fs=("read", "scan", "write"),
        world=WORLD,
        own_floors=(
            FloorOf(OFF_LEASEHOLDER, 0.3, of=READS),
            FloorOf("scans of several ranges at a time above the least", 10),
            FloorOf("reads within a bound that what was open held back", HELD_BACK),
        ),
        each_node=False,
    ),
    Workload(
        name="mixed-modes",
        description="sessions that write registers and read them in all ways in turn, each pair of ways alike often",
        options=(Option("keys", 12, 1, 1_000_000, "how many registers there are", (6, 12, 20)),),
        generator=lambda options, entropy: MixedModes(dict(options), entropy.getrandbits(53)),
        final_generator=lambda options, entropy: _each_twice([read(key) for key in range(int(options["keys"]))]),
        checkers=("snapshot-reads", "stats"),
        operations=frozenset({"r", "w", "read-at"}),
        fs=("read", "write"),
        world=WORLD,
        own_floors=tuple(FloorOf(pair, 20) for pair in PAIRS),
    ),
    Workload(
        name="strong-anywhere",
        description="registers that are read strongly, from whichever replica is near, checked for linearizability",
        options=register.WORKLOAD.options,
        generator=strong_anywhere,
        final_generator=register.final_reads,
        checkers=("register", "snapshot-reads", "stats"),
        operations=register.WORKLOAD.operations | {"read-at"},
        fs=register.WORKLOAD.fs,
        world=WORLD,
        own_floors=(
            FloorOf(OFF_LEASEHOLDER, 0.4, of=READS),
            FloorOf("strong reads that waited for the log", 10),
        ),
    ),
)
