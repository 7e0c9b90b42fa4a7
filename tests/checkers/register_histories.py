"""Small register histories for tests: written down by hand, or made by a register that misbehaves at random."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.columns.codes import CAS, FAILED_CAS, FAILED_WRITE, NEVER, NIL, READ, WRITE, RegisterColumns
from harness.history.parts import schema

Row = tuple[int, int, int, int, int]
"""(kind, value, expected, invocation index, completion index)"""

MOP_F = {READ: "r", WRITE: "w", CAS: "cas", FAILED_CAS: "cas", FAILED_WRITE: "w"}
TYPE = {FAILED_CAS: "fail", FAILED_WRITE: "fail"}


def columns(rows: list[Row]) -> RegisterColumns:
    """One key's columns; rows in order of invocation."""
    data = np.array(rows, np.int64).reshape(-1, 5)
    value, expected, invoke, complete = (data[:, i].copy() for i in range(1, 5))
    return RegisterColumns(np.array([0, len(data)]), data[:, 0].astype(np.uint8), value, expected, invoke, complete)


def hard_rows(width: int) -> list[Row]:
    """Every subset of the open compare-and-sets may have happened: the sets of configurations double with each."""
    rows: list[Row] = [(WRITE, 0, NIL, 0, 1), (WRITE, 0, NIL, 2, 3)]
    rows += [(CAS, 10 + i, 0, 4 + i, 10_000 + i) for i in range(width)]
    rows += [(CAS, 0, 10 + i, 100 + i, 20_000 + i) for i in range(width)]
    return [*rows, (WRITE, 77, NIL, 300, 301), (READ, 88, NIL, 302, 303)]


def joined(histories: list[RegisterColumns]) -> RegisterColumns:
    """Many keys, one a history."""
    offsets = np.concatenate(([0], np.cumsum([len(h.kind) for h in histories])))
    kind = np.concatenate([h.kind for h in histories])
    value, expected, invoke, complete = (np.concatenate([h[i] for h in histories]) for i in range(2, 6))
    return RegisterColumns(offsets, kind, value, expected, invoke, complete)


def random_rows(random: Random, operations: int, unique: bool) -> list[Row]:
    """A history of a register with stale reads, wrong compare-and-sets, unknown and failed operations."""
    rows: list[list[int]] = []
    state, linearized, opened, event, started = NIL, set(), [], 0, 0
    info, wrong = random.choice((0, 0.1, 0.3)), random.choice((0, 0.1, 0.3, 1.0))
    most_open, few = random.randint(1, 6), random.randint(1, 4)
    while started < operations or opened:
        if started < operations and (not opened or (len(opened) < most_open and random.random() < 0.5)):
            kind = random.choice((READ, READ, WRITE, WRITE, CAS, CAS, FAILED_CAS if random.random() < 0.3 else READ))
            written = [row[1] for row in rows if row[0] in (WRITE, CAS)]
            value = NIL if kind not in (WRITE, CAS) else started + 1 if unique else random.randint(1, few)
            expected = random.choice([*written[-4:], NIL]) if kind in (CAS, FAILED_CAS) else NIL
            rows.append([kind, value, expected, event, NEVER])
            opened.append(started)
            started += 1
        else:
            number = random.choice(opened)
            if number not in linearized:
                linearized.add(number)
                state = _take_effect(random, rows, rows[number], state, wrong)
                if random.random() < 0.5:
                    continue
            opened.remove(number)
            if rows[number][0] == FAILED_CAS or random.random() >= info:
                rows[number][4] = event
            elif rows[number][0] != READ and random.random() < 0.2:
                rows[number][0] = FAILED_WRITE
        event += 1
    return [tuple(row) for row in rows if row[0] != READ or row[4] != NEVER]  # type: ignore[misc]


def _take_effect(random: Random, rows: list[list[int]], row: list[int], state: int, wrong: float) -> int:
    erring = random.random() < wrong
    if row[0] == READ:
        written = [other[1] for other in rows if other[0] in (WRITE, CAS)]
        row[1] = random.choice([*written, NIL, 99 if random.random() < 0.2 else NIL]) if erring else state
    elif row[0] == WRITE:
        return row[1]
    elif row[0] == CAS:
        row[2] = row[2] if erring else state
        return row[1] if row[2] == state or random.random() < 0.5 else state
    return state


def table(histories: list[list[Row]]) -> pa.Table:
    """The history table of several keys, each history's events behind the one before."""
    rows, first = [], 0
    for key, history in enumerate(histories):
        for kind, value, expected, invoke, complete in history:
            done = complete != NEVER
            mop = {
                "f": MOP_F[kind],
                "table": 0,
                "partition": key,
                "row": 0,
                "column": 0,
                "value": None if value == NIL else value,
                "expected": None if expected == NIL else expected,
                "values": None,
            }
            rows.append(
                {
                    "op": len(rows),
                    "invoke_index": first + invoke,
                    "complete_index": first + complete if done else None,
                    "invoke_time": (first + invoke) * 10_000_000,
                    "complete_time": (first + complete) * 10_000_000 if done else None,
                    "type": TYPE.get(kind, "ok") if done else "info",
                    "process": len(rows),
                    "f": {"r": "read", "w": "write", "cas": "cas"}[mop["f"]],
                    "mops": [mop],
                    "node": "t2",
                }
            )
        first += 2 * len(history) + 8 * max((row[3] for row in history), default=0) + 8
    for row in rows:
        for field in schema():
            row.setdefault(field.name, None)
    return pa.Table.from_pylist(rows, schema=schema())


def write_history(path: Path, histories: list[list[Row]]) -> Path:
    """The table as Parquet, in several row groups."""
    pq.write_table(table(histories), path, row_group_size=64)
    return path
