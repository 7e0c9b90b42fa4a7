"""Write atomicity from its definition, by trying every match of reads with writes and every order of writes.

Operations read and write registers and lists of one partition in any order; values repeat, outcomes are unknown or
failures, a cell is read or written several times by one operation.
"""

import random
from itertools import product
from typing import NamedTuple

import networkx as nx
from session_histories import Row, intervals

NEVER = 10**9
MOST_MATCHES = 2_000
INITIAL, NOBODY = "initial", "nobody"


class Drawn(NamedTuple):
    rows: list
    lists: set


def drawn(seed):
    chance = random.Random(seed)
    cells, share = range(chance.randint(1, 3)), chance.choice((0, 0, 1, 0.5))
    history = Drawn([], {cell for cell in cells if chance.random() < share})
    held, moods = {cell: [] for cell in cells}, {"late": chance.choice((0.1, 0.3))}
    moods |= {"again": chance.choice((0, 0, 0.15)), "wild": chance.choice((0, 0, 0.2)), "nil": chance.choice((0, 0.1))}
    for begin, end, session in intervals(chance, chance.randint(2, 6), chance.randint(1, 3)):
        status = chance.choices(("ok", "info", "fail"), (8, 1, 1))[0]
        mops = _mops(chance, history, held, moods)
        status = "ok" if all(f == "r" for f, _, _ in mops) else status
        for f, cell, value in mops if status != "fail" else ():
            held[cell] += [value] if f != "r" else []
        history.rows.append(Row(begin, end if status != "info" else None, session, mops, status))
    return history


def _mops(chance, history, held, moods):
    mops, writes = [], chance.choice((0, 0, 0, 1, 1, 0.5))
    for place in range(chance.randint(1, 4)):
        cell = chance.choice(sorted(held))
        mine = [value for f, at, value in mops if f != "r" and at == cell]
        if chance.random() < writes:
            value = 100 * (len(history.rows) + 1) + 10 * place + cell
            if chance.random() < moods["again"]:
                value = chance.choice([other for other in held[cell] if other] or [value])
            elif cell not in history.lists and chance.random() < moods["nil"]:
                value = None
            mops.append(("append" if cell in history.lists else "w", cell, value))
        elif cell in history.lists:
            mops.append(("r", cell, _list(chance, held[cell], mine, moods)))
        else:
            known = [None, *held[cell]][-3 if chance.random() < moods["late"] else -1 :]
            value = mine[-1] if mine and chance.random() < 0.85 else chance.choice(known)
            mops.append(("r", cell, 777 if chance.random() < 0.01 else value))
    return tuple(mops)


def _list(chance, held, mine, moods):
    shown = held[: len(held) - chance.choice((0, 1, 2))] if chance.random() < moods["late"] else list(held)
    shown += mine if chance.random() < 0.85 else []
    if chance.random() < moods["wild"]:
        chance.shuffle(shown)
    if chance.random() < moods["wild"] and shown:
        shown.pop(chance.randrange(len(shown)))
    return tuple(shown) if shown or chance.random() < 0.5 else None


class _Writes(NamedTuple):
    """By operation and cell the places and values that it wrote; by cell and value who wrote it."""

    of_op: dict
    of_value: dict


def _writes(rows):
    writes = _Writes({}, {})
    for number, row in enumerate(rows):
        for place, (f, cell, value) in enumerate(row.mops if row.status != "fail" else ()):
            if f != "r":
                writes.of_op.setdefault(number, {}).setdefault(cell, []).append((place, value))
                writes.of_value.setdefault((cell, value), []).append(number)
    return writes


def is_broken(history):
    """Whether some page is torn however reads are matched with writes, and these are ordered; None if there are too
    many ways to match them."""
    writes, reads = _writes(history.rows), {}
    for number, row in enumerate(history.rows):
        for place, (f, cell, value) in enumerate(row.mops if row.status == "ok" else ()):
            if f == "r" and cell not in history.lists:
                by = sorted(set(writes.of_value.get((cell, value), ())))
                begun = [one for one in by if history.rows[one].begin < row.end] or by
                reads[number, place] = [*begun, *([INITIAL] if value is None else [])] or [NOBODY]
    matches = 1
    for origins in reads.values():
        matches *= len(origins)
    if matches > MOST_MATCHES:
        return None
    return not any(_fits(history, writes, dict(zip(reads, match, strict=True))) for match in product(*reads.values()))


def _fits(history, writes, origin):
    before = set()
    for number, row in enumerate(history.rows):
        if row.status == "ok":
            demands = _demands(history, writes, origin, number)
            if demands is None:
                return False
            before |= demands
    ends = {one: [history.rows[one].end if history.rows[one].status == "ok" else NEVER] for one in writes.of_op}
    for (number, _), writer in origin.items():
        if writer in ends:
            ends[writer].append(history.rows[number].end)
    seen = set(origin.values()) & set(ends)
    there, begin = {one: min(ends[one]) for one in seen}, {one: history.rows[one].begin for one in seen}
    before |= {(one, other) for one in seen for other in seen if there[one] < begin[other] <= there[other]}
    return nx.is_directed_acyclic_graph(nx.DiGraph(before))


def _demands(history, writes, origin, number):
    """Pairs of writes of which a page shows that one is older; None if it is torn."""
    reads = [(place, *mop[1:]) for place, mop in enumerate(history.rows[number].mops) if mop[0] == "r"]
    shown, before = set(), set()
    for place, cell, value in reads:
        if cell in history.lists:
            alone = [writes.of_value.get((cell, element), ()) for element in value or ()]
            shown |= {by[0] for by in alone if len(by) == 1}
        elif origin[number, place] in writes.of_op:
            writer = origin[number, place]
            shown.add(writer)
            if writer != number and writes.of_op[writer][cell][-1][1] != value:
                return None
    for writer in (one for one in shown if _is_partition_write(history, writes, one)):
        for place, cell, value in reads:
            due = [wrote for at, wrote in writes.of_op[writer].get(cell, ()) if writer != number or at < place]
            if cell in history.lists:
                if any(len(writes.of_value[cell, one]) == 1 and one not in (value or ()) for one in due):
                    return None
            elif due and origin[number, place] == INITIAL:
                return None
            elif due and origin[number, place] not in (writer, number, NOBODY):
                before.add((writer, origin[number, place]))
    return before


def _is_partition_write(history, writes, number):
    wrote = writes.of_op[number]
    return len(wrote) > 1 or sum(len(every) for cell, every in wrote.items() if cell in history.lists) > 1
