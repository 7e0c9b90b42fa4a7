"""Small histories of quorum tables, and what is wrong with them by definition: every set of mutations, every set of
replicas and every order of deletions is tried. Knows nothing of the kernels."""

import random
from dataclasses import dataclass, replace
from itertools import chain, combinations, product

from harness.history.ops import Mop, Op, delete, page
from harness.history.table import to_table

ROWS = (0, 1, 2)
REPLICATIONS = ("a:3", "a:3,b:3", "a:2,b:1")
LEVELS = ("ONE", "TWO", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL")


@dataclass(frozen=True)
class Call:
    """One operation: events `begin` and `end` (None: never), its session, and either a write (`ts`; `puts` by cell,
    None deletes it; `gone` as bounds of rows) or a read (`shown` by cell, `bounds` as (first, last, limit, end))."""

    begin: int
    end: int | None
    session: int
    status: str = "ok"
    ts: int | None = None
    puts: tuple = ()
    gone: tuple = ()
    shown: tuple = ()
    bounds: tuple = ()
    level: str = "QUORUM"
    here: str | None = "a"
    replication: str = "a:3"
    node: str | None = None
    phase: str | None = None
    partition: int = 0
    replicas: str | None = None


def _mops(call):
    write = [Mop("w", call.partition, value, row=row, column=column) for (row, column), value in call.puts]
    write += [delete(call.partition, first, last) for first, last in call.gone]
    read = [Mop("r", call.partition, value, row=row, column=column) for (row, column), value in call.shown]
    return tuple(write + [page(call.partition, *bound) for bound in call.bounds] + read)


def events_of(calls, first_index=0, process_base=0):
    """The calls' events in order, each of a process of its own."""
    marks = []
    for number, call in enumerate(calls):
        fields = {"session": process_base + call.session, "mode": call.level, "data_centre": call.here}
        fields |= {"replication": call.replication, "phase": call.phase, "write_ts": call.ts}
        invoked = Op("invoke", 1000 * process_base + number, "txn", _mops(call), **fields)
        marks.append((call.begin, invoked))
        if call.end is not None:
            marks.append((call.end, invoked.complete(call.status, node=call.node, replicas=call.replicas)))
    marks.sort(key=lambda mark: mark[0])
    return [
        event.complete(event.type, index=first_index + place, time=1000 * (first_index + place))
        for place, (_, event) in enumerate(marks)
    ]


def side_by_side(histories):
    """One table with each history in its own partition and with its own sessions."""
    events = []
    for number, calls in enumerate(histories):
        moved = [replace(call, partition=number) for call in calls]
        events += events_of(moved, len(events), process_base=100 * number)
    return to_table(events)


# What is wrong, by definition.


def is_write(call):
    return call.ts is not None


def effect(write, cell):
    """What a write does to a cell: a value, None for a deletion, or "nothing"."""
    for where, value in write.puts:
        if where == cell:
            return value
    for first, last in write.gone:
        if (first is None or first <= cell[0]) and (last is None or cell[0] <= last):
            return None
    return "nothing"


def merged(writes, cell):
    """What last-write-wins leaves in a cell."""
    held = None
    for write in sorted(writes, key=lambda write: write.ts):
        done = effect(write, cell)
        held = held if done == "nothing" else done
    return held


def cells_of(calls):
    return sorted({where for call in calls for where, _ in (*call.puts, *call.shown)})


def covers(call, cell):
    """Whether a page says anything about a cell."""
    return cell in dict(call.shown) or any(
        (first is None or first <= cell[0]) and (last is None or cell[0] <= last) and (end is None or cell[0] <= end)
        for first, last, _, end in call.bounds
    )


def possible(read, calls):
    return [w for w in calls if is_write(w) and w.status != "fail" and w.begin < read.end]


def is_whole(read, calls):
    """Whether some set of whole writes gives just that page."""
    writes = possible(read, calls)
    shown, cells = dict(read.shown), [cell for cell in cells_of(calls) if covers(read, cell)]
    sets = chain.from_iterable(combinations(writes, size) for size in range(len(writes) + 1))
    return any(all(merged(chosen, cell) == shown.get(cell) for cell in cells) for chosen in sets)


def replicas(replication):
    return [(part.split(":")[0], i) for part in replication.split(",") for i in range(int(part.split(":")[1]))]


def satisfies(answered, level, here, everyone):
    local = [r for r in everyone if r[0] == here]
    majority = {
        name: 2 * sum(r[0] == name for r in answered) > sum(r[0] == name for r in everyone) for name, _ in everyone
    }
    return {
        "ONE": len(answered) >= 1,
        "TWO": len(answered) >= 2,
        "QUORUM": 2 * len(answered) > len(everyone),
        "LOCAL_QUORUM": 2 * len(answered & set(local)) > len(local),
        "EACH_QUORUM": all(majority.values()),
        "ALL": len(answered) == len(everyone),
    }[level]


_BINDING = {}


def binds(one, other):
    """Whether all sets of replicas of the one meet all of the other."""
    key = (one.level, one.here, one.replication, other.level, other.here, other.replication)
    if key not in _BINDING:
        everyone = replicas(one.replication)
        subsets = [set(s) for n in range(len(everyone) + 1) for s in combinations(everyone, n)]
        mine = [s for s in subsets if satisfies(s, one.level, one.here, everyone)]
        theirs = [s for s in subsets if satisfies(s, other.level, other.here, everyone)]
        _BINDING[key] = one.replication == other.replication and all(a & b for a in mine for b in theirs)
    return _BINDING[key]


def candidates(read, cell, calls):
    """Timestamps that what a page shows of a cell may have; none for what nobody can have written."""
    shown, writes = dict(read.shown).get(cell), possible(read, calls)
    if shown is None:
        return [float("-inf"), *(w.ts for w in writes if effect(w, cell) is None)]
    return [w.ts for w in writes if effect(w, cell) == shown]


def settled(read, cell, calls):
    """The candidates; of an absence, those after all acknowledged writes that bind the read, if there are any."""
    possible, acked = candidates(read, cell, calls), [w for w in calls if is_write(w) and w.status == "ok"]
    seen = [w.ts for w in acked if effect(w, cell) != "nothing" and w.end < read.begin and binds(w, read)]
    if dict(read.shown).get(cell) is not None or not seen:
        return possible
    return [ts for ts in possible if ts >= max(seen)] or possible


def is_garbage(read, calls):
    return any(not candidates(read, cell, calls) for cell, _ in read.shown)


def is_monotonic(calls):
    """Whether what absent cells stand for can be chosen so that no read omits what one that binds it saw."""
    reads = [call for call in calls if not is_write(call) and call.status == "ok"]
    for cell in cells_of(calls):
        mine = [read for read in reads if covers(read, cell)]
        pairs = [
            (i, j)
            for i, one in enumerate(mine)
            for j, other in enumerate(mine)
            if one.end < other.begin and binds(one, other)
        ]
        choices = product(*(settled(read, cell, calls) for read in mine))
        if not any(all(chosen[i] <= chosen[j] for i, j in pairs) for chosen in choices):
            return False
    return True


def shows_what_it_must(read, calls, sources):
    """Whether a page reaches, cell by cell, all acknowledged writes among the sources that bind it."""
    for cell in cells_of(calls):
        if not covers(read, cell):
            continue
        floor = [w.ts for w in sources if effect(w, cell) != "nothing" and w.end < read.begin and binds(w, read)]
        if floor and max(candidates(read, cell, calls)) < max(floor):
            return False
    return True


def faults(calls):
    """The models that a history breaks."""
    reads = [call for call in calls if not is_write(call) and call.status == "ok"]
    acked = [call for call in calls if is_write(call) and call.status == "ok"]
    if any(is_garbage(read, calls) for read in reads):
        return {"write-atomicity", "monotonic-reads", "read-your-writes", "sessions", "durable-rows"}
    found = set()
    if not all(is_whole(read, calls) for read in reads):
        found.add("write-atomicity")
    if not is_monotonic(calls):
        found |= {"monotonic-reads", "sessions"}
    for read in reads:
        own = [w for w in acked if w.session == read.session]
        if not shows_what_it_must(read, calls, own):
            found |= {"read-your-writes", "sessions"}
        if not shows_what_it_must(read, calls, acked):
            found.add("durable-rows")
    return found


# Histories.


def _intervals(chance, count, sessions):
    """(begin, end, session), sequential within sessions, overlapping across them."""
    events, open_by_session, made = 0, {}, []
    while len(made) < count or open_by_session:
        session = chance.randrange(sessions)
        if session in open_by_session:
            made.append((open_by_session.pop(session), events, session))
        elif len(made) + len(open_by_session) < count:
            open_by_session[session] = events
        else:
            continue
        events += 1
    return sorted(made)


def _write(chance, call, number, columns):
    """A mutation of a few cells and bounds, that touches none twice."""
    cells = [(row, column) for row in ROWS for column in range(columns)]
    puts, gone = {}, []
    if chance.random() < 0.35:
        bounds = [(row, row) for row in ROWS] + [(0, 1), (1, 2), (None, 1), (1, None), (None, None)]
        gone += chance.sample(bounds, chance.choice((1, 1, 1, 2)))
    if not gone or chance.random() < 0.5:
        for cell in chance.sample(cells, chance.randint(1, len(cells))):
            if effect(replace(call, gone=tuple(gone)), cell) == "nothing":
                puts[cell] = None if chance.random() < 0.1 else 10 * number + cell[0] + 3 * cell[1]
    return replace(call, puts=tuple(sorted(puts.items())), gone=tuple(gone))


def _page(chance, call, calls, columns):
    """A page that shows what some of the writes leave, sometimes with a cell changed."""
    writes = [w for w in calls if is_write(w) and (w.status != "fail" or chance.random() < 0.02)]
    early = [w for w in writes if w.begin < call.end]
    pool = writes if chance.random() < 0.03 else early
    behind = chance.random()
    chosen = [w for w in pool if chance.random() > 0.8 * behind]
    shown = {}
    for row in ROWS:
        for column in range(columns):
            shown[row, column] = merged(chosen, (row, column))
            if chance.random() < 0.1:
                shown[row, column] = merged(chance.sample(pool, chance.randint(0, len(pool))), (row, column))
            elif chance.random() < 0.003:
                shown[row, column] = 999
    return _as_page(chance, call, shown)


def _as_page(chance, call, shown):
    if chance.random() < 0.5:
        picked = chance.sample(sorted(shown), chance.randint(1, len(shown)))
        return replace(call, shown=tuple((cell, shown[cell]) for cell in sorted(picked)))
    first, last = chance.choice(((None, None), (0, 1), (1, 2), (None, 1), (1, None), (2, 2)))
    rows = [r for r in ROWS if (first is None or first <= r) and (last is None or r <= last)]
    there = [r for r in rows if any(value is not None for (row, _), value in shown.items() if row == r)]
    limit = chance.choice((None, None, 1, 2))
    end = there[limit - 1] if limit is not None and len(there) >= limit else None
    rows = [r for r in rows if end is None or r <= end]
    listed = tuple((cell, shown[cell]) for cell in sorted(shown) if cell[0] in rows and shown[cell] is not None)
    spans = ((first, last, limit, end),)
    if limit is None and (first, last) == (2, 2) and chance.random() < 0.5:
        return _two_spans(call, shown, spans)
    return replace(call, shown=listed, bounds=spans)


def _two_spans(call, shown, spans):
    """A page of the first row and of the last, with one between them that it says nothing of."""
    listed = tuple((cell, shown[cell]) for cell in sorted(shown) if cell[0] != 1 and shown[cell] is not None)
    return replace(call, shown=listed, bounds=((0, 0, None, None), *spans))


def random_history(seed):
    """A few writes and pages of one partition, of which about half break something."""
    chance = random.Random(seed)
    replication = chance.choice(REPLICATIONS)
    spread = chance.choice((("QUORUM",), ("QUORUM", "ONE"), LEVELS))
    columns, calls, blanks = chance.choice((1, 1, 2)), [], []
    names = sorted({name for name, _ in replicas(replication)})
    times = [10 * place + 3 for place in range(16)]
    chance.shuffle(times)
    for begin, end, session in _intervals(chance, chance.randint(4, 10), chance.randint(1, 3)):
        level = {"level": chance.choice(spread), "here": chance.choice(names), "replication": replication}
        call = Call(begin, end, session, **level)
        if chance.random() < 0.5 and len(calls) < 6:
            status = chance.choices(("ok", "info", "fail"), (8, 3, 1))[0]
            ts = 10 * begin + 5 if chance.random() < 0.7 else 10 * chance.randint(0, 16)
            ts = ts if all(c.ts != ts for c in calls) else times.pop()
            ended = None if status == "info" and chance.random() < 0.5 else end
            call = replace(call, status=status, end=ended, ts=ts)
            calls.append(_write(chance, call, len(calls) + 1, columns))
        else:
            blanks.append(call)
    return sorted([*calls, *(_page(chance, call, calls, columns) for call in blanks)], key=lambda call: call.begin)
