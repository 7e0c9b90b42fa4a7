"""Naive versions of Jepsen's checkers: one pass over events after the other, with dictionaries and sets.

Each takes the events of one history (all on one object, but for bank, long-fork, unique-ids and convergence) and gives
how many anomalies there are of each class.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from checkers.columns.codes import NEVER
from harness.history.ops import Op

Counts = dict[str, int]


def completed(events: list[Op]) -> list[tuple[Op, Op | None]]:
    open_ops: dict[int, int] = {}
    found: list[tuple[Op, Op | None]] = []
    for op in events:
        if op.type == "invoke":
            open_ops[op.process] = len(found)
            found.append((op, None))
        else:
            place = open_ops.pop(op.process)
            found[place] = (found[place][0], op)
    return found


def is_ok(completion: Op | None) -> bool:
    return completion is not None and completion.type == "ok"


def failed(completion: Op | None) -> bool:
    return completion is not None and completion.type == "fail"


def naive_bank(events: list[Op], accounts: set[int] | None = None, negative_allowed: bool = False) -> Counts:
    reads = [done for _, done in completed(events) if is_ok(done) and done.f == "read"]
    totals = [sum(mop.value or 0 for mop in read.mops) for read in reads]
    votes = Counter(totals)
    expected = max(votes, key=lambda total: (votes[total], -totals.index(total))) if votes else 0
    counts: Counter[str] = Counter()
    for read, total in zip(reads, totals, strict=True):
        if accounts is not None and not all(mop.partition in accounts for mop in read.mops):
            counts["unexpected-key"] += 1
        elif any(mop.value is None for mop in read.mops):
            counts["nil-balance"] += 1
        elif total != expected:
            counts["wrong-total"] += 1
        elif not negative_allowed and any((mop.value or 0) < 0 for mop in read.mops):
            counts["negative-value"] += 1
    return dict(counts)


def naive_set(events: list[Op]) -> Counts | None:
    """None where the set was never read."""
    attempts = {op.mops[0].value for op, done in completed(events) if op.f == "add" and not failed(done)}
    reads = [(begun, done) for begun, done in completed(events) if done and done.type == "ok" and done.f == "read"]
    begun, done = max(reads, key=lambda read: read[1].index, default=(None, None))
    if begun is None or done is None or done.mops[0].values is None:
        return None
    final = set(done.mops[0].values)
    added = {op.mops[0].value for op in events if op.type == "ok" and op.f == "add" and op.index < begun.index}
    return {"lost": len(added - final), "unexpected": len(final - attempts)}


def naive_set_full(events: list[Op]) -> Counts:
    """How many elements are duplicated, and how many stable, stale, lost or never read."""
    state: dict[int, dict[str, int]] = {}
    duplicated: set[int] = set()
    opened: dict[int, Op] = {}
    undone = {begun.index for begun, done in completed(events) if failed(done)}
    for op in events:
        if op.type == "invoke":
            opened[op.process] = op
            if op.f == "add" and op.index not in undone:
                state[op.mops[0].value or 0] = {"known": -1, "present": -1, "absent": -1}
        elif op.type == "ok" and op.f == "add":
            mine = state[op.mops[0].value or 0]
            mine["known"] = op.index if mine["known"] < 0 else mine["known"]
        elif op.type == "ok":
            shown = Counter(op.mops[0].values or ())
            duplicated |= {value for value, times in shown.items() if times > 1}
            begun = opened[op.process].index
            for value, mine in state.items():
                if value in shown:
                    mine["known"] = op.index if mine["known"] < 0 else mine["known"]
                    mine["present"] = max(mine["present"], begun)
                else:
                    mine["absent"] = max(mine["absent"], begun)
    counts: Counter[str] = Counter({"duplicated": len(duplicated)})
    for mine in state.values():
        if mine["present"] >= 0 and mine["absent"] < mine["present"]:
            counts["stable"] += 1
            counts["stale"] += mine["absent"] > mine["known"]
        elif 0 <= mine["known"] < mine["absent"] and mine["present"] < mine["absent"]:
            counts["lost"] += 1
        else:
            counts["never_read"] += 1
    return dict(counts)


def naive_counter(events: list[Op]) -> Counts:
    counts: Counter[str] = Counter()
    adds = [(a, d) for a, d in completed(events) if a.f == "add" and (d is None or d.type != "fail")]
    within: list[tuple[Op, Op]] = []
    for begun, done in completed(events):
        if begun.f != "read" or done is None or done.type != "ok":
            continue
        low = high = 0
        for add, added in adds:
            amount = add.mops[0].value or 0
            if is_ok(added) and added.index < begun.index:
                low, high = low + amount, high + amount
            elif add.index < done.index:
                low, high = low + min(amount, 0), high + max(amount, 0)
        counts["below-bounds"] += (done.mops[0].value or 0) < low
        counts["above-bounds"] += (done.mops[0].value or 0) > high
        within += [(begun, done)] if low <= (done.mops[0].value or 0) <= high else []
    for read in within:
        counts["went-back"] += any(_went_back(earlier, read, adds) for earlier in within)
    return dict(counts)


def _went_back(earlier: tuple[Op, Op], later: tuple[Op, Op], adds: list[tuple[Op, Op | None]]) -> bool:
    """Whether a read shows what no changes between can have made of what an earlier one had shown."""
    if earlier[1].index > later[0].index:
        return False
    between = [
        add.mops[0].value or 0
        for add, added in adds
        if add.index < later[1].index and not (is_ok(added) and added is not None and added.index < earlier[0].index)
    ]
    change = (later[1].mops[0].value or 0) - (earlier[1].mops[0].value or 0)
    return not sum(min(n, 0) for n in between) <= change <= sum(max(n, 0) for n in between)


def naive_queue(events: list[Op]) -> Counts:
    """An enqueue that failed is no attempt, and only what was put in before the queue was seen to be empty is lost."""
    whole = completed(events)
    failed = {begun.index for begun, done in whole if done and (done.f, done.type) == ("enqueue", "fail")}
    drained = [begun.index for begun, done in whole if done and (done.f, done.type) == ("drain", "ok")]
    return naive_total_queue([op for op in events if op.index not in failed], max(drained, default=-1))


def naive_total_queue(events: list[Op], drained: int = NEVER) -> Counts:
    attempts: Counter[int | None] = Counter()
    acked: Counter[int | None] = Counter()
    out: Counter[int | None] = Counter()
    debt: Counter[int | None] = Counter()
    deepest: Counter[int | None] = Counter()
    for op in events:
        if op.f == "enqueue" and op.type == "invoke":
            attempts[op.mops[0].value] += 1
            debt[op.mops[0].value] -= 1
        elif op.f == "enqueue" and op.type == "ok":
            acked[op.mops[0].value] += op.index < drained
        elif op.type == "ok":
            values = [op.mops[0].value] if op.f == "dequeue" else list(op.mops[0].values or ())
            for value in values:
                out[value] += 1
                debt[value] += 1
                deepest[value] = max(deepest[value], debt[value])
    lost = sum((acked - out).values())
    crashed = sum({"invoke": 1, "info": 0}.get(op.type, -1) for op in events if op.f == "dequeue")
    duplicated = {value: out[value] - attempts[value] for value in out if attempts[value]}
    return {
        "lost": lost if lost > crashed else 0,
        "unexpected": sum(count for value, count in out.items() if not attempts[value]),
        "duplicated": sum(max(0, count) for count in duplicated.values()),
        "premature": sum(deepest[value] - max(0, count) for value, count in duplicated.items()),
    }


def naive_long_fork(events: list[Op]) -> Counts:
    reads = [done for _, done in completed(events) if is_ok(done) and all(mop.f == "r" for mop in done.mops)]
    forks = 0
    for one, other in combinations(reads, 2):
        a = {mop.partition: mop.value for mop in one.mops}
        b = {mop.partition: mop.value for mop in other.mops}
        if set(a) == set(b):
            ahead = any(a[key] is not None and b[key] is None for key in a)
            behind = any(a[key] is None and b[key] is not None for key in a)
            forks += ahead and behind
    return {"long-fork": forks}


def naive_unique_ids(events: list[Op]) -> Counts:
    ids = Counter(op.mops[0].value for op in events if op.type == "ok")
    return {"duplicate-id": sum(times > 1 for times in ids.values())}


def naive_convergence(events: list[Op]) -> Counts:
    last: dict[tuple[int, str | None], tuple[int, int | None]] = {}
    for begun, done in completed(events):
        if is_ok(done) and begun.phase == "final":
            cell = (done.mops[0].partition, done.node)
            last[cell] = max(last.get(cell, (-1, None)), (begun.index, done.mops[0].value))
    shown: dict[int, set[int | None]] = {}
    for (cell, _), (_, value) in last.items():
        shown.setdefault(cell, set()).add(value)
    return {"divergence": sum(len(values) > 1 for values in shown.values())}
