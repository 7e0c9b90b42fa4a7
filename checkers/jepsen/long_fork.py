"""The model `long-fork`: single writes to the keys of a group, read together (`jepsen.tests.long-fork`).

Each key is written once, so reads of one group can be put in order by what they show. Two reads of which each shows a
write that the other misses saw the writes in opposite orders: a long fork, which snapshot isolation does not allow.
Whether what reads show was written at all is looked at key by key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from checkers.columns.batches import (
    COLUMNS,
    OBJECT,
    SMALL,
    column,
    flat,
    flat_schema,
    group_starts,
    key_at,
    read_mops,
    read_operations,
    unknown_rows,
)
from checkers.columns.codes import FAIL, OK, READ, UNSUPPORTED, WRITE, Ints, unsupported
from checkers.columns.dense import together
from checkers.engines.api import Engine
from checkers.engines.flows import findings_of
from checkers.explain.conclude import conclude, who
from checkers.explain.speaker import Speaker, listed
from checkers.findings import Finding, Findings, Key, earliest
from checkers.options import CheckOptions, int_setting
from checkers.source import Source
from checkers.verdict import Verdict

LONG_FORK: Final = "long-fork"

SHOWN: Final = 2
"""The kind of a value that a read shows, beside writes of its key."""

_KINDS: Final = {"r": READ, "read": READ, "w": WRITE, "write": WRITE}
_SCHEMA: Final = flat_schema((*OBJECT, "group", "invoke", "value"), kind=SMALL, seen=SMALL)
"""One row a micro-operation; `group` is a digest of the keys read together, or of the key written."""


def _mixed(values: Any) -> Any:
    """A 64-bit finaliser (splitmix64): spreads neighbours over the whole range."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _digests(address: tuple[Ints, ...]) -> Any:
    digest = np.full(len(address[0]), 0x9E3779B97F4A7C15, np.uint64)
    for part in address:
        digest = _mixed(digest * np.uint64(3) + part.astype(np.uint64))
    return digest


@dataclass(frozen=True, slots=True)
class LongForkFlow:
    """See `Flow`: reads of the same keys meet, and so do the writes of one key and what reads show of it."""

    explain: int
    columns: tuple[str, ...] = COLUMNS
    schema: pa.Schema = _SCHEMA
    keys: tuple[str, ...] = ("group",)
    order: tuple[str, ...] = ("kind", "invoke", *OBJECT)

    def flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        operations = read_operations(batch)
        mops = read_mops(batch, operations, operations.outcome != FAIL, _KINDS)
        count = len(operations.row)
        size, writes = np.bincount(mops.of, minlength=count), np.bincount(mops.of[mops.kind == WRITE], minlength=count)
        odd = np.bincount(mops.of[(mops.kind == UNSUPPORTED) | mops.listed], minlength=count)
        unknown = (odd > 0) | ((writes > 0) & (size > 1))
        unknown |= operations.unfit & (operations.outcome == OK)
        kept = ~unknown[mops.of] & ((mops.kind == WRITE) | (operations.outcome[mops.of] == OK))
        digest = _digests(mops.address)
        whole = np.zeros(count, np.uint64)
        np.add.at(whole, mops.of, digest)
        group = np.where(mops.kind == WRITE, digest, _mixed(whole + np.uint64(1))[mops.of])[kept]
        columns = {"group": group.view(np.int64), "kind": mops.kind[kept]}
        columns |= {"invoke": operations.invoke[mops.of[kept]], "seen": ~mops.nil[kept], "value": mops.value[kept]}
        columns |= {name: part[kept] for name, part in zip(OBJECT, mops.address, strict=True)}
        columns["seen"] = columns["seen"].astype(np.int8)
        shown = _shown(digest[kept], columns, (mops.kind[kept] == READ) & ~mops.nil[kept])
        wrong = unknown_rows(_SCHEMA, operations.invoke[unknown])
        return pa.concat_batches([flat(_SCHEMA, columns), flat(_SCHEMA, shown), wrong])

    def judge(self, rows: pa.Table) -> Findings:
        kind, invoke = column(rows, "kind"), column(rows, "invoke")
        problems = unsupported(invoke[kind == UNSUPPORTED], "this is neither a read of several keys nor a write of one")
        if problems or not rows.num_rows:
            return Findings(unsupported=problems)
        rewritten = _rewritten(rows.filter(pa.array(kind == WRITE)))
        reads = rows.filter(pa.array(kind == READ))
        problems = unsupported(_named_twice(reads), "this read names a key twice")
        if problems:
            return Findings(unsupported=problems)
        figures = {"writes": int((kind == WRITE).sum())}
        lowest = {"rewritten": rewritten} if rewritten is not None else {}
        unwritten = _unwritten(rows)
        if unwritten is not None:
            lowest["unwritten"] = unwritten
        if not reads.num_rows:
            return Findings(figures["writes"], figures=figures, lowest=lowest)
        return _judge_reads(reads, self.explain, figures, lowest)


def _shown(digest: Any, columns: dict[str, Any], chosen: Any) -> dict[str, Any]:
    """Of the chosen rows each value of a key once, by the group of its writes."""
    rows = np.flatnonzero(chosen)
    ids, count = together([columns[name][rows] for name in ("value", *OBJECT)])
    first = np.empty(count, np.int64)
    first[ids[::-1]] = rows[::-1]
    of = {name: part[first] for name, part in columns.items()}
    return of | {"group": digest[first].view(np.int64), "kind": np.full(count, SHOWN)}


def _unwritten(rows: pa.Table) -> int | None:
    """The first operation that read a value of a key which nobody wrote."""
    kind = column(rows, "kind")
    used = np.flatnonzero((kind == WRITE) | (kind == SHOWN))
    ids, _ = together([column(rows, name)[used] for name in ("value", *OBJECT)])
    written = np.isin(ids, ids[kind[used] == WRITE])
    return None if written.all() else int(column(rows, "invoke")[used[~written]].min())


def _named_twice(reads: pa.Table) -> Ints:
    """The reads that name a key twice; its places stand side by side."""
    columns = [column(reads, name) for name in ("invoke", *OBJECT)]
    same: Ints = columns[0][1:][np.all([part[1:] == part[:-1] for part in columns], axis=0)]
    return same


def _rewritten(writes: pa.Table) -> int | None:
    """The first operation that writes a key which was written before."""
    columns = [column(writes, name) for name in OBJECT]
    invoke = column(writes, "invoke")
    order = np.lexsort((invoke, *columns))
    if not len(order):
        return None
    starts = group_starts([part[order] for part in columns])
    again = np.setdiff1d(np.arange(len(order)), starts)
    return int(invoke[order[again]].min()) if len(again) else None


def _judge_reads(rows: pa.Table, explain: int, figures: dict[str, int], lowest: dict[str, int]) -> Findings:
    group, invoke = column(rows, "group"), column(rows, "invoke")
    address = [column(rows, name) for name in OBJECT]
    ops = group_starts([group, invoke])
    size = np.diff(np.append(ops, len(group)))
    place = np.arange(len(group)) - np.repeat(ops, size)
    first_ops = ops[group_starts([group[ops]])]
    heads = np.repeat(first_ops, np.diff(np.append(first_ops, len(group))))
    twins = np.minimum(heads + place, len(group) - 1)
    alike = np.all([part == part[twins] for part in address], axis=0) & (group[twins] == group)
    alike &= np.repeat(size == size[np.searchsorted(ops, heads[ops])], size)
    doubts = () if alike.all() else ("Two sets of keys have the same digest.",)
    seen = column(rows, "seen") == 1
    revalued = _revalued(rows, seen)
    if revalued is not None:
        lowest = lowest | {"revalued": revalued}
    reads = GroupReads(group[ops], invoke[ops], place, seen, ops)
    bad = reads.forked_groups()
    kept: list[Finding] = []
    count = 0
    for number in bad:
        count += count_forks(reads, number)
        if len(kept) < explain:
            kept += _findings(rows, reads, number, explain - len(kept))
    shown = np.add.reduceat(seen.astype(np.int64), ops)
    figures = figures | {
        "reads": len(ops),
        "groups": len(first_ops),
        "early_reads": int((shown == 0).sum()),
        "late_reads": int((shown == size).sum()),
    }
    sizes = {"group_size": int(size.min())}
    total = len(ops) + figures["writes"]
    highest = {"group_size": int(size.max())}
    return Findings(
        total,
        counts={LONG_FORK: count},
        kept=earliest(kept, explain),
        reasons=doubts,
        figures=figures,
        lowest=lowest | sizes,
        highest=highest,
    )


def _revalued(rows: pa.Table, seen: Any) -> int | None:
    """The first read that shows another value of a key than an earlier one of its group did."""
    rows = rows.filter(pa.array(seen))
    columns = [column(rows, name) for name in ("group", *OBJECT)]
    value, invoke = column(rows, "value"), column(rows, "invoke")
    order = np.lexsort((invoke, *columns))
    if not len(order):
        return None
    starts = group_starts([part[order] for part in columns])
    firsts = np.repeat(value[order[starts]], np.diff(np.append(starts, len(order))))
    differ = order[value[order] != firsts]
    return int(invoke[differ].min()) if len(differ) else None


def _findings(rows: pa.Table, reads: GroupReads, number: int, explain: int) -> list[Finding]:
    kept = []
    for one, other in find_forks(reads, number, explain):
        mine = [slice(int(reads.starts[i]), int(reads.starts[i]) + reads.size(i)) for i in (one, other)]
        a, b = (reads.seen[part] for part in mine)
        keys = {
            "first_only": [key_at(rows, mine[0].start + int(i)) for i in np.flatnonzero(a & ~b)[:4]],
            "second_only": [key_at(rows, mine[0].start + int(i)) for i in np.flatnonzero(b & ~a)[:4]],
        }
        ops = (int(reads.invoke[one]), int(reads.invoke[other]))
        kept.append(Finding(LONG_FORK, max(ops), keys["first_only"][0], ops, keys))
    return kept


def judge_long_fork(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """No two reads of one group saw its writes in opposite orders."""
    part = findings_of(engine, source, LongForkFlow(options.explain), options.explain)
    doubts = _illegal(source, part)
    if doubts:
        part = replace(part, counts={}, kept=())
    if "unwritten" in part.lowest:
        doubts += (f"Event {part.lowest['unwritten']} read a value of a key that no operation wrote.",)
    sizes = {part.lowest.get("group_size", 0), part.highest.get("group_size", 0)}
    wanted = int_setting(options, "group-size")
    if not part.figures.get("reads"):
        sizes = {0}
        doubts += ("No read of several keys succeeded, so nothing was compared.",)
    elif wanted is not None and sizes != {wanted}:
        doubts += (f"Every read should name {wanted} keys, but there are reads of {' and '.join(map(str, sizes))}.",)
    elif len(sizes) > 1:
        doubts += (f"Reads name different numbers of keys ({min(sizes)} to {max(sizes)}), so groups can't be told.",)
    elif sizes == {1}:
        doubts += ("Reads name one key each, and one key alone shows no order of two writes.",)
    elif part.figures["reads"] == part.figures["groups"]:
        doubts += ("No group of keys was read twice, so no two reads were compared.",)
    details = {"group_size": max(sizes)} if len(sizes) == 1 else {}
    return conclude("long-fork", source, engine, part, _SENTENCES, doubts, details)


def _illegal(source: Source, part: Findings) -> tuple[str, ...]:
    """Why the history is none that this checker is made for."""
    found = []
    if "rewritten" in part.lowest:
        found.append(f"Event {part.lowest['rewritten']} writes a key that another operation wrote already.")
    if "revalued" in part.lowest:
        found.append(f"Event {part.lowest['revalued']} read another value of a key than an earlier read.")
    if found:
        found.append("Long forks can be told only where every key is written once.")
    return tuple(found)


def _long_fork(speaker: Speaker, finding: Finding) -> str:
    one, other = finding.ops
    first = listed([speaker.key(Key(*key)) for key in finding.facts["first_only"]])
    second = listed([speaker.key(Key(*key)) for key in finding.facts["second_only"]])
    return (
        f"{who(speaker, one, f'saw the write of {first} but not that of {second}')}, so that of {first} came first; "
        f"{who(speaker, other, f'saw the write of {second} but not that of {first}')}, so it came last: "
        "no one order of the writes explains both reads."
    )


_SENTENCES: Final = {LONG_FORK: _long_fork}


_MOST_BITS: Final = 62
"""Keys of which sets are kept as machine integers."""


class GroupReads:
    """Reads as sets of keys seen, in order of (group, invocation): those of a group are a chain by inclusion, or
    forked.

    `seen` has a flag for each key of each read, in the order of the group's
    keys; read i's begin at `starts[i]`."""

    def __init__(self, group: Ints, invoke: Ints, place: Ints, seen: Any, starts: Ints) -> None:
        self.group, self.invoke, self.starts, self.seen = group, invoke, starts, seen
        self._stops = np.append(starts[1:], len(seen))
        bits = place.astype(object) if int(place.max(initial=0)) > _MOST_BITS else place
        one = np.ones(len(place), np.int64).astype(bits.dtype)
        masks = np.where(seen, one << bits, 0).astype(bits.dtype)
        self.masks: Any = np.add.reduceat(masks, starts)
        self._firsts = group_starts([group])

    def size(self, read: int) -> int:
        """How many keys it names."""
        return int(self._stops[read] - self.starts[read])

    def of_group(self, number: int) -> slice:
        """The reads of the number-th group."""
        stop = self._firsts[number + 1] if number + 1 < len(self._firsts) else len(self.group)
        return slice(int(self._firsts[number]), int(stop))

    def forked_groups(self) -> list[int]:
        """The numbers of groups whose reads are no chain: ordered by size, some read does not include the one before.

        Where every neighbour includes the one before, all reads are comparable, since inclusion is transitive.
        """
        counts = np.add.reduceat(self.seen.astype(np.int64), self.starts)
        numbers = np.cumsum(np.isin(np.arange(len(self.group)), self._firsts)) - 1
        order = np.lexsort((counts, numbers))
        masks, mine = self.masks[order], numbers[order]
        missing = ((masks[:-1] & ~masks[1:]) != 0).astype(np.bool_) & (mine[:-1] == mine[1:])
        return sorted(set(mine[:-1][missing].tolist()))


def count_forks(reads: GroupReads, number: int) -> int:
    """How many pairs of reads of a group are incomparable; linear in the reads, quadratic in their distinct states."""
    masks, times = np.unique(reads.masks[reads.of_group(number)], return_counts=True)
    total = 0
    for i in range(len(masks) - 1):
        total += int(times[i]) * int(times[i + 1 :][_incomparable(masks[i], masks[i + 1 :])].sum())
    return total


def _incomparable(mask: Any, others: Any) -> Any:
    return ((others & ~mask) != 0).astype(np.bool_) & ((mask & ~others) != 0).astype(np.bool_)


def find_forks(reads: GroupReads, number: int, explain: int) -> list[tuple[int, int]]:
    """The first incomparable pairs of reads of a group, by the later of the two."""
    span = reads.of_group(number)
    masks = reads.masks[span]
    found: list[tuple[int, int]] = []
    for later in range(len(masks)):
        for earlier in np.flatnonzero(_incomparable(masks[later], masks[:later])).tolist():
            found.append((span.start + earlier, span.start + later))
            if len(found) >= explain:
                return found
    return found
