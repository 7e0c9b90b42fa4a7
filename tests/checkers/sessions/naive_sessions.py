"""The session guarantees from their definitions, by trying every match of reads with writes, and orders of versions.

Operations read and write cells in any order; they overlap in their sessions, values repeat, outcomes are unknown or
failures, a cell is read or written several times by one operation, and some values were written by nobody, or later.
"""

import random
from itertools import product

import networkx as nx
from session_histories import Row, intervals

NEVER = 10**9
MOST_MATCHES = 2_000
INITIAL = "initial"


def drawn(seed):
    chance, rows, written = random.Random(seed), [], 0
    held = {cell: [None] for cell in range(chance.choice((1, 1, 2)))}
    stamped, late, again = chance.random() < 0.3, chance.choice((0.1, 0.3, 0.6)), chance.choice((0, 0, 0, 0.15))
    nil, several, early = chance.choice((0, 0, 0.1)), chance.choice((0, 0, 0.3)), chance.choice((0, 0, 0.05))
    for begin, end, session in intervals(chance, chance.randint(3, 7), chance.randint(1, 3), chance.random() < 0.4):
        status, mops = chance.choices(("ok", "info", "fail"), (8, 1, 1))[0], []
        writes = chance.choice((1, 0, 0, 0.5 if several else 0))
        for _ in range(1 + (chance.random() < several)):
            cell = chance.choice(sorted(held))
            mine = [value for f, at, value in mops if f == "w" and at == cell]
            if chance.random() < writes:
                written, value = written + 1, written + 1
                if chance.random() < again:
                    value = chance.choice([other for other in held[cell] if other] or [value])
                mops.append(("w", cell, None if chance.random() < nil else value))
                held[cell] += [mops[-1][2]] if status != "fail" else []
            else:
                value = mine[-1] if mine else chance.choice(held[cell][-3 if chance.random() < late else -1 :])
                value = written + chance.randint(1, 2) if chance.random() < early else value
                mops.append(("r", cell, 777 if chance.random() < 0.01 else value))
        status = "ok" if all(mop[0] == "r" for mop in mops) else status
        stamp = 10 * begin + chance.choice((0, 0, 0, 25, -25)) if stamped and chance.random() < 0.95 else None
        stamp, end = (None, None) if status == "info" else (stamp, end)
        rows.append(Row(begin, end, session, tuple(mops), status, chance.choice((None, "ONE")), stamp))
    return rows


def is_broken(rows, wanted):
    """Whether some cell breaks one of the wanted guarantees however reads are matched and versions ordered; None if too
    many matches are to be tried."""
    for cell in {mop[1] for row in rows for mop in row.mops}:
        events = [
            (number, place, f, value)
            for number, row in enumerate(rows)
            for place, (f, at, value) in enumerate(row.mops)
            if at == cell and (row.status == "ok" or (f == "w" and row.status == "info"))
        ]
        origins, matches = {}, 1
        for number, place, f, value in events:
            if f == "r":
                origins[number, place] = _origins(rows, events, number, place, value)
                matches *= len(origins[number, place])
        if matches > MOST_MATCHES:
            return None
        every = (dict(zip(origins, match, strict=True)) for match in product(*origins.values()))
        if not any(_fits(rows, events, match, wanted) for match in every):
            return True
    return False


def _origins(rows, events, number, place, value):
    """The writes that a read may show, as (operation, place), or what stands for none."""
    writes = [(op, at) for op, at, f, wrote in events if f == "w" and wrote == value]
    own = [write for write in writes if write[0] == number and write[1] < place]
    begun = [write for write in writes if rows[write[0]].begin < rows[number].end and write[0] != number]
    return own[-1:] or [*begun, *([INITIAL] if value is None else [])] or writes or [f"nobody's {value}"]


def _fits(rows, events, origin, wanted):
    """Whether some order of the versions fits; a version is named by its write."""
    version = {(op, at): origin.get((op, at), (op, at)) for op, at, _, _ in events}
    seen = set(origin.values())
    matter = seen | {version[op, at] for op, at, f, _ in events if f == "w" and rows[op].status == "ok"}
    ends = {one: [NEVER] for one in matter}
    for op, at, _, _ in events:
        if version[op, at] in matter and rows[op].status == "ok":
            ends[version[op, at]].append(rows[op].end)
    there = {one: min(ends[one]) for one in matter}
    stamps = {one: rows[one[0]].served_ts if isinstance(one, tuple) else None for one in matter - {INITIAL}}
    older = _older_by_times(rows, stamps, there)
    before = {(one, other) for one in matter for other in matter if one != other and older(one, other)}
    bound = _bound(wanted)
    for op, at, f, _ in (event for event in events if rows[event[0]].end is not None):
        for later, place, g, _ in (event for event in events if rows[op].end < rows[event[0]].begin):
            one, other = rows[op], rows[later]
            strong = (f, g) == ("r", "r") and one.mode != "ONE" and other.mode != "ONE"
            if (f, g) in bound and (one.session == other.session or strong):
                before.add((version[op, at], version[later, place]))
    return nx.is_directed_acyclic_graph(nx.DiGraph([(one, other) for one, other in before if one != other]))


def _bound(wanted):
    pairs = {"monotonic-reads": "rr", "read-your-writes": "wr", "monotonic-writes": "ww", "writes-follow-reads": "rw"}
    return {tuple(pairs[name]) for name in wanted}


def _older_by_times(rows, stamps, there):
    """By commit timestamps if all versions have some, else by real time, unless what has some contradicts that; within
    an operation by place."""
    timed = bool(stamps) and None not in stamps.values()
    stamped = [one for one, stamp in stamps.items() if stamp is not None]
    open_order = not timed and any(
        stamps[one] > stamps[other] and rows[one[0]].end < rows[other[0]].begin for one in stamped for other in stamped
    )

    def older(one, other):
        if INITIAL in (one, other):
            return one == INITIAL
        if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0] and one[1] < other[1]:
            return True
        if timed:
            return stamps[one] < stamps[other]
        return not open_order and isinstance(other, tuple) and there[one] < rows[other[0]].begin <= there[other]

    return older
