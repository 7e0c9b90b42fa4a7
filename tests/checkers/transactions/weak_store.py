"""Small random transactional histories from stores whose isolation is weakened at random, each from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from checkers.source import Source
from harness.history.columns import SCHEMA
from harness.history.parts import schema


class Txn(NamedTuple):
    """One transaction; micro-operations are (f, key, value), reads carry a list, a value or None."""

    process: int
    outcome: str
    invoke: int
    complete: int | None
    mops: tuple[tuple[str, int, Any], ...]


@dataclass
class Flaws:
    """How likely each weakness is, for one store."""

    stale: float = 0.0
    unrepeatable: float = 0.0
    lost: float = 0.0
    dirty_abort: float = 0.0
    shuffled: float = 0.0
    doubled: float = 0.0
    torn: float = 0.0
    info: float = 0.1
    fail: float = 0.1

    @classmethod
    def any(cls, dice: random.Random) -> Flaws:
        chosen = cls()
        for name in dice.sample(["stale", "unrepeatable", "lost", "dirty_abort", "shuffled", "doubled", "torn"], 2):
            setattr(chosen, name, dice.choice([0.0, 0.1, 0.3]))
        return chosen


@dataclass
class Store:
    """Committed states, the newest last."""

    lists: bool
    flaws: Flaws
    dice: random.Random
    states: list[dict[int, tuple[int, ...]]] = field(default_factory=lambda: [{}])

    def run(self, mops: list[tuple[str, int, Any]], applied: bool, visible: bool) -> tuple[tuple[str, int, Any], ...]:
        now, flaws, dice = self.states[-1], self.flaws, self.dice
        back = dice.randrange(min(4, len(self.states))) if dice.random() < flaws.stale else 0
        view, done = dict(self.states[-1 - back]), []
        after = dict(now)
        for f, key, value in mops:
            if f == "r":
                if dice.random() < flaws.unrepeatable:
                    view = dict(dice.choice(self.states[-4:]))
                seen = self._read(view.get(key, ()))
                done.append((f, key, seen if visible else None))
                continue
            view[key] = (*view.get(key, ()), value)
            if dice.random() >= flaws.lost:
                held = after.get(key, ())
                place = dice.randrange(len(held) + 1) if dice.random() < flaws.shuffled else len(held)
                copies = 2 if dice.random() < flaws.doubled else 1
                after[key] = (*held[:place], *(value,) * copies, *held[place:])
            done.append((f, key, value))
            if dice.random() < flaws.torn:
                self.states.append(dict(after))
        if applied:
            self.states.append(after)
        return tuple(done)

    def _read(self, held: tuple[int, ...]) -> Any:
        if self.lists:
            return held
        return held[-1] if held else None


def random_history(seed: int, lists: bool, txns: int = 8, keys: int = 2, mops: int = 3) -> list[Txn]:
    """A history in order of invocation."""
    dice = random.Random(seed)
    flaws = Flaws.any(dice)
    store, counter = Store(lists, flaws, dice), 0
    open_by: dict[int, tuple[int, list[tuple[str, int, Any]]]] = {}
    processes, found, event, begun, next_process = [0, 1, 2], [], 0, 0, 3
    while begun < txns or open_by:
        idle = [p for p in processes if p not in open_by]
        if begun < txns and idle and (not open_by or dice.random() < 0.5):
            wanted: list[tuple[str, int, Any]] = []
            for _ in range(dice.randint(1, mops)):
                counter += 1
                write = ("append" if lists else "w", dice.randrange(keys), counter)
                wanted.append(write if dice.random() < 0.5 else ("r", dice.randrange(keys), None))
            open_by[dice.choice(idle)] = (event, wanted)
            begun += 1
        else:
            process = dice.choice(sorted(open_by))
            invoke, wanted = open_by.pop(process)
            chance = dice.random()
            outcome = "info" if chance < flaws.info else "fail" if chance < flaws.info + flaws.fail else "ok"
            applied = outcome == "ok" or dice.random() < (0.5 if outcome == "info" else flaws.dirty_abort)
            done = store.run(wanted, applied, outcome == "ok")
            found.append(Txn(process, outcome, invoke, None if outcome == "info" else event, done))
            if outcome == "info":
                processes[processes.index(process)] = next_process
                next_process += 1
        event += 1
    return sorted(found, key=lambda txn: txn.invoke)


def hard_to_place(history: list[Txn], dice: random.Random) -> list[Txn]:
    """The same history, but most transactions that only write have no known outcome, and now and then nothing begins
    or ends for long, so that a few transactions last far longer than most and many have no place in time."""
    chance, every, gap = dice.choice([0.3, 0.7, 1.0]), dice.randint(5, 40), dice.choice([0, 300, 5_000])

    def moved(event: int) -> int:
        return event + gap * (event // every)

    found = []
    for txn in history:
        blind = all(f != "r" for f, _, _ in txn.mops) and txn.outcome == "ok" and dice.random() < chance
        complete = None if blind or txn.complete is None else moved(txn.complete)
        outcome = "info" if blind else txn.outcome
        found.append(txn._replace(outcome=outcome, invoke=moved(txn.invoke), complete=complete))
    return found


def with_strange_reads(history: list[Txn], dice: random.Random, chance: float) -> list[Txn]:
    """The same history of registers, but some reads return any value that was ever written to the key, or unset."""
    written: dict[int, list[Any]] = {}
    for txn in history:
        for f, key, value in txn.mops:
            written.setdefault(key, [None]).extend([value] if f != "r" else [])

    def strange(mop: tuple[str, int, Any]) -> tuple[str, int, Any]:
        return (*mop[:2], dice.choice(written[mop[1]])) if mop[0] == "r" and dice.random() < chance else mop

    return [txn._replace(mops=tuple(strange(mop) for mop in txn.mops)) for txn in history]


def source_of(history: list[Txn]) -> Source:
    """The history as a source in memory."""
    rows = []
    for op, txn in enumerate(history):
        mops = []
        for f, key, value in txn.mops:
            is_list = isinstance(value, tuple)
            mop = {"f": f, "table": 0, "partition": key, "row": 0, "column": 0}
            mops.append(mop | {"value": None if is_list else value, "values": list(value) if is_list else None})
        row = {"op": op, "invoke_index": txn.invoke, "complete_index": txn.complete, "type": txn.outcome, "f": "txn"}
        complete_time = None if txn.complete is None else txn.complete * 1000
        times = {"invoke_time": txn.invoke * 1000, "complete_time": complete_time}
        rows.append(row | times | {"process": txn.process, "mops": mops})
    table = pa.Table.from_pylist(rows, schema=SCHEMA).replace_schema_metadata(schema().metadata)
    return Source(Path("random"), "test", len(rows), table=table)
