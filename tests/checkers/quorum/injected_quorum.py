"""Longer histories of quorum tables as a table that keeps its promises gives them, and ways to corrupt one of them."""

import random
from dataclasses import dataclass, replace

from quorum_histories import Call, effect

PARTITIONS, ROWS, SESSIONS = 6, 8, 12
_LOST = 4


@dataclass(frozen=True)
class Plan:
    """How long, how many clients; `anomaly` is what is spoilt, past the middle."""

    operations: int = 1500
    seed: int = 0
    anomaly: str = "none"


def _write(chance, call, number):
    rows = chance.sample(range(ROWS), chance.randint(2, 5))
    gone, puts = (), {(row, 0): 100 * number + row for row in rows}
    if chance.random() < 0.25:
        first = chance.randrange(ROWS)
        gone = chance.choice((((first, first),), ((first, None),), ((None, None),)))
        puts = {cell: v for cell, v in puts.items() if effect(replace(call, gone=gone), cell) == "nothing"}
    stamp = 10 * number + chance.randint(-40, 40) * 10
    return replace(call, ts=max(stamp, 0) * 10_000 + number, puts=tuple(sorted(puts.items())), gone=gone)


def _calls(plan, chance):
    """(call, when it takes effect), not yet answered."""
    free = dict.fromkeys(range(SESSIONS), 0.0)
    for number in range(1, plan.operations + 1):
        session = min(free, key=free.get)
        begin = free[session] + chance.random()
        end = begin + 0.1 + chance.random()
        free[session] = end
        level = chance.choice(("QUORUM", "QUORUM", "QUORUM", "ONE", "LOCAL_QUORUM"))
        call = Call(begin, end, session, partition=chance.randrange(PARTITIONS), level=level, node=f"n{number % 3}")
        moment = begin + (end - begin) * chance.random()
        if chance.random() < 0.4:
            call = _write(chance, call, number)
            if chance.random() < 0.05:
                call = replace(call, status="info", end=chance.choice((end, None)))
                moment = chance.choice((moment, end + 5, 1e9))
        yield call, moment


class _Table:
    """What all have, last write wins; `history` has every cell's (moment, timestamp, value)."""

    def __init__(self):
        self.cells = {}
        self.deleted = {}

    def apply(self, call):
        for row in range(ROWS):
            cell, done = (row, 0), effect(call, (row, 0))
            if done != "nothing":
                self.cells.setdefault((call.partition, cell), []).append((call.ts, done, call))

    def now(self, partition):
        """By cell the (timestamp, value, call) that wins."""
        held = {}
        for row in range(ROWS):
            found = self.cells.get((partition, (row, 0)))
            if found:
                held[row, 0] = max(found, key=lambda version: version[0])
        return held

    def before(self, partition, cell, ts):
        """The newest value below a timestamp, None for none."""
        older = [version for version in self.cells[partition, cell] if version[0] < ts]
        return max(older, key=lambda version: version[0])[1] if older else None


def _page(chance, call, held):
    first, last = sorted(chance.sample(range(ROWS), 2))
    bounds = chance.choice(((None, None), (first, last), (first, None)))
    low, high = bounds[0] or 0, ROWS - 1 if bounds[1] is None else bounds[1]
    shown = [(cell, value) for cell, (_, value, _) in sorted(held.items()) if value is not None]
    shown = [(cell, value) for cell, value in shown if low <= cell[0] <= high]
    limit = chance.choice((None, None, 2, 4))
    end = shown[limit - 1][0][0] if limit is not None and len(shown) >= limit else None
    shown = [(cell, value) for cell, value in shown if end is None or cell[0] <= end]
    return replace(call, shown=tuple(shown), bounds=((*bounds, limit, end),))


def _torn(call, held, table):
    """One cell of a write that shows in several as it was before, at a level that promises nothing else."""
    shown = dict(call.shown)
    for cell in shown:
        ts = held[cell][0]
        mates = [other for other in shown if other != cell and held[other][0] == ts]
        if mates:
            older = table.before(call.partition, cell, ts)
            rest = [(c, v) for c, v in call.shown if c != cell]
            rest += [] if older is None else [(cell, older)]
            return replace(call, shown=tuple(sorted(rest)), level="ONE")
    return None


def _back(call, held, old):
    """The whole page as it was long ago."""
    if old is None or old.get(call.partition, {}) == held:
        return None
    return _page(random.Random(call.begin), call, old.get(call.partition, {}))


def history(plan):
    """The calls in order of invocation; with an anomaly one read is spoilt, or a few writes (some of them may be
    overwritten before anybody looks)."""
    chance = random.Random(plan.seed)
    made = list(_calls(plan, chance))
    table, done, old, spoilt, lost = _Table(), [], None, plan.anomaly == "none", 0
    half = made[len(made) // 2][0].begin
    for call, _ in sorted(made, key=lambda pair: pair[1]):
        late = call.begin > half and not spoilt
        if call.ts is not None:
            if late and call.level == "QUORUM" and call.status == "ok" and _is_to_be_lost(plan, call, table):
                lost += 1
                spoilt = lost == _LOST
            else:
                table.apply(call)
            done.append(call)
            continue
        held = table.now(call.partition)
        page = _page(chance, call, held)
        changed = _spoilt(plan, page, held, table, old) if late else None
        spoilt |= changed is not None
        done.append(changed or page)
        if old is None and call.begin > half / 2:
            old = {partition: table.now(partition) for partition in range(PARTITIONS)}
    assert spoilt
    return sorted(done, key=lambda call: call.begin)


def _is_to_be_lost(plan, call, table):
    """Whether this write is the one that is acknowledged and never there: one that would win, or would delete."""
    held = table.now(call.partition)
    wins = [cell for cell, (ts, value, _) in held.items() if ts < call.ts and value is not None]
    if plan.anomaly == "lost-write":
        return any(effect(call, cell) not in ("nothing", None) for cell in wins)
    return plan.anomaly == "lost-deletion" and any(effect(call, cell) is None for cell in wins) and not call.puts


def _spoilt(plan, page, held, table, old):
    if plan.anomaly == "torn":
        return _torn(page, held, table)
    if plan.anomaly == "went-back" and page.level == "QUORUM":
        return _back(page, held, old)
    if plan.anomaly == "went-back-at-one" and page.level == "ONE":
        return _back(page, held, old)
    if plan.anomaly == "made-up" and page.shown:
        return replace(page, shown=((page.shown[0][0], -7), *page.shown[1:]))
    return None
