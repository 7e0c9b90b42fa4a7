"""The catalog under concurrent changes: tables are created, altered, renamed and deleted under few names.

Meanwhile they are listed, looked at and located, and the rows of one table, whose schema changes too, are read,
written, scanned and erased. Clients mostly change what they believe to be there, and sometimes what is not: refusals
are answers as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.generators.core import PENDING, Chance, Context, Generator, Step, child, draw, fill, invoke
from harness.generators.threads import phases
from harness.history.ops import Mop, Op, read, write
from workloads.api import Option, Options, Workload

SHARES = (
    ("create", 0.2),
    ("delete", 0.12),
    ("rename", 0.12),
    ("alter", 0.14),
    ("reshape", 0.12),
    ("columns", 0.08),
    ("list", 0.12),
    ("schema", 0.06),
    ("created", 0.04),
    ("altered", 0.04),
    ("locations", 0.08),
    ("tablets", 0.05),
)
"""Of the operations on the catalog."""

ROW_SHARES = (("read", 0.45), ("write", 0.42), ("erase", 0.09), ("scan", 0.04))
"""Of the operations on rows. A scan is some ten calls."""

MOST_SCANNED = 100
"""Of how many rows a scan tells what it found."""

RARE = "reshape"
"""Has no floor of its own, since half of what it asks makes no sense by then; `stats` wants one that succeeded."""

DIRECTED_SHARE = 0.4
"""Of the lists, those that one master is asked for, whichever it is, and that may be old (M13)."""

AGES_NS = (0, 300_000_000, 1_000_000_000, 5_000_000_000)
"""How old (ns) such an answer may be."""

ANYBODY_SHARE = 0.3
"""Of the questions that are put otherwise, those that masters are asked for in turn until one may answer."""

PAGES = (1, 2, 7, 1_000)
"""Rows in a page of a scan that is made otherwise."""

KNOWN_SHARE = 0.8  # of the changes are of what the last answers make seem possible
ALTERED_COLUMNS = 4  # an alteration adds, drops or renames one of so many columns
RESHAPED_COLUMNS = 2  # of the table of rows; fewer, so that many cells of each are written and read
ADD_FIRST, DROP_FIRST, RENAME_FIRST, DROP_SECOND = range(4)
MOST_BUCKETS = 2

ALTERED_SHARE = 0.7
"""Of the reads, writes and scans of rows, those of columns that are altered; the others are of one that stays."""

WISHES = 2 * RESHAPED_COLUMNS
"""Each altered column may be asked for by its first name or by its second one first (`cluster.deploy.row_ops`)."""

NAMELESS = ("list", "tablets", "columns")
"""Questions that name no table."""

QUESTIONS = (*NAMELESS, "schema", "created", "altered", "locations")


class Catalogs(msgspec.Struct, frozen=True):
    """Endless mix; `taken` are the names that tables seem to have, `columns` the altered columns that the table of rows
    seems to have: their numbers, each with 0 for its first name or 1 for its second."""

    options: dict[str, float]
    seed: int
    count: int = 0
    taken: frozenset[int] = frozenset()
    columns: frozenset[tuple[int, int]] = frozenset()

    def step(self, context: Context) -> Step:
        op = fill(self._varied(self._next(Chance(child(self.seed, self.count)))), context)
        return (PENDING, self) if op is None else (op, replace(self, count=self.count + 1))

    def update(self, context: Context, event: Op) -> Generator:
        if event.type != "ok":
            return self
        return replace(self, taken=_taken(self.taken, event), columns=_columns(self.columns, event))

    def _next(self, chance: Chance) -> Op:
        if chance.uniform() < self.options["rows"]:
            return self._of_rows(chance)
        f = _drawn(chance, SHARES)
        if f == "list" and chance.uniform() < DIRECTED_SHARE:
            return list_of(chance.below(MOST_MASTERS), chance.choice(AGES_NS))
        if f in NAMELESS:
            return Op("invoke", 0, f)
        return invoke(f, self._mop(f, chance))

    def _varied(self, op: Op) -> Op:
        """The question or scan otherwise, if chance has it so, which is another one than the mix's."""
        if op.f not in (*QUESTIONS, "scan") or op.value is not None or not self.options["varied"]:
            return op
        chance = Chance(child(~self.seed, self.count))
        if chance.uniform() >= self.options["varied"]:
            return op
        if op.f == "scan":
            return replace(op, value={"page": chance.choice(PAGES)})
        if chance.uniform() < ANYBODY_SHARE:
            return replace(op, value={}, bound=chance.choice(AGES_NS))
        return replace(op, value={"master": chance.below(MOST_MASTERS)}, bound=chance.choice(AGES_NS[1:]))

    def _of_rows(self, chance: Chance) -> Op:
        key = chance.below(int(self.options["keys"]))
        column = -1 - (1 + chance.below(WISHES) if chance.uniform() < ALTERED_SHARE else 0)
        f = _drawn(chance, ROW_SHARES)
        if f == "erase":
            return invoke(f, Mop(f, key))
        if f == "scan":
            return scan(self.options, column)
        return invoke(f, replace(read(key) if f == "read" else write(key, self.count + 1), column=column))

    def _mop(self, f: str, chance: Chance) -> Mop:
        name = self._name(chance, there=f != "create")
        if f == "create":
            return Mop(f, name, column=1 + chance.below(MOST_BUCKETS))
        if f == "rename":
            new = self._name(chance, there=False)
            return Mop(f, name, row=new if new != name else (name + 1) % int(self.options["names"]))
        if f == "reshape":
            return self._reshaping(chance)
        if f == "alter":
            return Mop(f, name, expected=chance.below(ALTERED_COLUMNS), column=chance.below(3))
        return Mop(f, name)

    def _reshaping(self, chance: Chance) -> Mop:
        number = chance.below(RESHAPED_COLUMNS)
        first, second = ((number, name) in self.columns for name in (0, 1))
        likely = [DROP_FIRST, *([] if second else [RENAME_FIRST])] if first else [ADD_FIRST]
        likely += [DROP_SECOND] if second else []
        return Mop(
            "reshape", number, column=chance.choice(likely) if chance.uniform() < KNOWN_SHARE else chance.below(4)
        )

    def _name(self, chance: Chance, there: bool) -> int:
        names = range(int(self.options["names"]))
        likely = [name for name in names if (name in self.taken) == there]
        return chance.choice(likely if likely and chance.uniform() < KNOWN_SHARE else list(names))


def list_of(master: int, age_ns: int) -> Op:
    """A list of tables by one master, at most so old; followers answer too, unless it may have no age."""
    return Op("invoke", 0, "list", value={"master": master}, bound=age_ns)


def scan(options: Mapping[str, Any], column: int) -> Op:
    """A scan of the table of rows: a read of each row's wished column."""
    rows = range(min(int(options["keys"]), MOST_SCANNED))
    return invoke("scan", *(replace(read(key), column=column) for key in rows))


def _drawn(chance: Chance, shares: Sequence[tuple[str, float]]) -> str:
    at = chance.uniform() * sum(share for _, share in shares)
    for f, share in shares:
        at -= share
        if at < 0:
            return f
    return shares[-1][0]


def _columns(columns: frozenset[tuple[int, int]], event: Op) -> frozenset[tuple[int, int]]:
    if event.f != "reshape":
        return columns
    number, step = event.mops[0].partition, event.mops[0].column
    first, second = (number, 0), (number, 1)
    if step == ADD_FIRST:
        return columns | {first}
    return (
        columns - {second}
        if step == DROP_SECOND
        else (columns - {first}) | ({second} if step == RENAME_FIRST else set())
    )


def _taken(taken: frozenset[int], event: Op) -> frozenset[int]:
    if event.f == "list":
        return frozenset(mop.partition for mop in event.mops)
    if event.f not in ("create", "delete", "rename"):
        return taken
    mop = event.mops[0]
    gone = taken - {mop.partition} if event.f != "create" else taken
    return gone | {mop.row if event.f == "rename" else mop.partition} if event.f != "delete" else gone


FINAL_FS = ("list", "schema", "locations", "created", "altered", "tablets")


FINAL_TABLES = 2
"""How many tables are made, altered, renamed and deleted once all is healed, under names that nobody used before."""

MOST_MASTERS = 5


def final_reads(options: Options, entropy: Random) -> Generator:
    """What there is, name by name, and the rows, by whoever is free; then whether changes work again, each within its
    budget; then what each master shows, and at last the leader."""
    names = int(options["names"])
    fresh = range(names, names + 2 * FINAL_TABLES, 2)
    changes = (
        [invoke("create", Mop("create", name, column=MOST_BUCKETS)) for name in fresh],
        [invoke("alter", Mop("alter", name, expected=0, column=0)) for name in fresh],
        [invoke("rename", Mop("rename", name, row=name + 1)) for name in fresh],
        [invoke("delete", Mop("delete", name + 1)) for name in fresh],
    )
    masters = [list_of(n, AGES_NS[-1]) for n in range(MOST_MASTERS)]
    parts = (final_questions(options), *changes, masters, [Op("invoke", 0, "list")])
    return phases(*(_each_once(part) for part in parts))


def _each_once(ops: list[Op]) -> Generator:
    return draw(0, lambda context, chance, n: ops[n] if n < len(ops) else None)


def final_questions(options: Options) -> list[Op]:
    """About every name and every row."""
    names, keys = int(options["names"]), int(options["keys"])
    asked = [
        Op("invoke", 0, f) if f in NAMELESS else invoke(f, Mop(f, name)) for name in range(names) for f in FINAL_FS
    ]
    wishes = (-1, *range(-2, -2 - WISHES, -2))
    cells = [invoke("read", replace(read(key), column=wish)) for key in range(keys) for wish in wishes]
    return [*asked, Op("invoke", 0, "columns"), *cells, *(scan(options, wish) for wish in wishes)]


WORKLOAD = Workload(
    name="catalog",
    description="tables created, altered, renamed and deleted under few names, beside rows read, written and erased",
    options=(
        Option("names", 5, 1, 1_000, "how many names of tables there are", (4, 5, 5, 12)),
        Option("rows", 0.5, 0.01, 0.9, "share of the operations that are of rows", (0.4, 0.5, 0.5)),
        Option("keys", 12, 1, 1_000_000, "how many rows there are", (3, 12, 12, 40)),
        Option(
            "varied",
            0.0,
            0.0,
            1.0,
            "share of the questions that any master is asked and may answer by an older catalog, and of the scans in "
            "pages of another size",
            (0.0, 0.3, 0.7),
        ),
    ),
    generator=lambda options, entropy: Catalogs(dict(options), entropy.getrandbits(53)),
    final_generator=final_reads,
    checkers=("catalog", "catalog-rows", "stats"),
    operations=frozenset({"r", "w", "erase", *(f for f, _ in SHARES)}),
    fs=(*(f for f, _ in ROW_SHARES), *(f for f, _ in SHARES if f != RARE)),
    each_node=False,
)
