"""Histories of registers, locks, queues, sets and strings, valid by construction or with one answer corrupted.

Clients of one object run operations that overlap at random; each takes effect at one moment between its events. The
corrupted answer, past the middle, can't have been given: a value that was replaced for good, an element taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from checkers.source import Source
from harness.errors import UserError
from harness.history.columns import FOREIGN_BASE
from harness.history.ops import Mop, Op, OpType
from harness.history.table import to_table


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """`operations` by `clients` at once on one object of the model; written values or elements are drawn from `values`
    many, or never repeat if that is 0; `info_share` of what changes something has an unknown outcome."""

    model: str
    operations: int
    clients: int = 10
    values: int = 5
    info_share: float = 0.0
    corrupted: bool = False
    seed: int = 0


@dataclass(slots=True)
class _Store:
    """The object, what was ever taken out of it, and whether the next answer is to be a wrong one."""

    shape: ObjectShape
    random: Random
    cells: dict[int, int | None] = field(default_factory=dict)
    items: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    held: dict[int, int] = field(default_factory=dict)
    count: int = 0
    text: str = ""
    texts: dict[str, int] = field(default_factory=dict)
    pieces: dict[int, str] = field(default_factory=dict)
    corrupt: bool = False
    process: int = 0

    def value(self) -> int:
        self.count += 1
        return self.random.randrange(self.shape.values) if self.shape.values else self.count

    def wrong(self) -> bool:
        """Whether to answer wrongly, which is done once."""
        corrupt, self.corrupt = self.corrupt, False
        return corrupt

    def code(self, text: str) -> int:
        return FOREIGN_BASE - 1 - self.texts.setdefault(text, len(self.texts))

    def piece(self) -> int:
        """The code of a string that is to be written, which `pieces` tells."""
        text = f"{self.value()} "
        code = self.code(text)
        self.pieces[code] = text
        return code


_CELLS: Final = 3
_READ: Final = 0.4


def _register_next(store: _Store, process: int) -> tuple[str, tuple[Mop, ...]]:
    if store.random.random() < _READ:
        return "read", (Mop("r", 0),)
    if store.shape.model == "cas-register" and store.random.random() < 0.5:
        return "cas", (Mop("cas", 0, store.value(), store.random.randrange(store.shape.values or 1)),)
    return "write", (Mop("w", 0, store.value()),)


def _rows_next(store: _Store, process: int) -> tuple[str, tuple[Mop, ...]]:
    cells = store.random.sample(range(_CELLS), store.random.randint(1, _CELLS))
    if store.random.random() < _READ:
        return "txn", tuple(Mop("r", cell) for cell in cells)
    return "txn", tuple(Mop("w", cell, store.value()) for cell in cells)


def _cells_effect(store: _Store, mops: tuple[Mop, ...]) -> tuple[Mop, ...] | None:
    if any(mop.f == "cas" and store.cells.get(mop.partition) != mop.expected for mop in mops):
        return None
    seen = tuple(msgspec.structs.replace(m, value=store.cells.get(m.partition)) if m.f == "r" else m for m in mops)
    store.cells.update({mop.partition: mop.value for mop in mops if mop.f != "r"})
    if (
        mops[0].f == "r"
        and len(store.cells) == (_CELLS if store.shape.model == "multi-register" else 1)
        and store.wrong()
    ):
        return (msgspec.structs.replace(mops[0], value=None), *seen[1:])
    return seen


def _lock_next(store: _Store, process: int) -> tuple[str, tuple[Mop, ...]]:
    holds = store.cells.get(0) == process
    return ("release" if holds else "acquire"), (Mop("release" if holds else "acquire", 0, process),)


def _lock_effect(store: _Store, mops: tuple[Mop, ...]) -> tuple[Mop, ...] | None:
    free = store.cells.get(0) is None
    if mops[0].f == "acquire" and not free and not store.wrong():
        return None
    if mops[0].f == "release" or free:
        store.cells[0] = mops[0].value if free else None
    return mops


def _held_next(store: _Store, process: int) -> tuple[str, tuple[Mop, ...]]:
    """Who holds a lock may acquire it again where that is allowed, and gives it back else."""
    again = store.shape.model == "reentrant-mutex" and store.random.random() < 0.3
    f = "release" if store.held.get(process) and not again else "acquire"
    return f, (Mop(f, 0),)


def _held_effect(store: _Store, mops: tuple[Mop, ...]) -> tuple[Mop, ...] | None:
    others = sum(count for process, count in store.held.items() if process != store.process)
    mine, fenced = store.held.get(store.process, 0), store.shape.model == "fenced-mutex"
    if mops[0].f == "release":
        store.held[store.process] = mine - 1
        return mops
    again = mine and store.shape.model == "owner-mutex"
    taken = others + mine if store.shape.model == "semaphore" else others
    if taken or again:
        return mops if others and store.wrong() else None
    store.held[store.process] = mine + 1
    store.count += 1
    return (Mop("acquire", 0, store.count),) if fenced else mops


def _queue_next(store: _Store, process: int) -> tuple[str, tuple[Mop, ...]]:
    if store.random.random() < 0.5:
        return "dequeue", (Mop("dequeue", 0),)
    return "enqueue", (Mop("enqueue", 0, store.value()),)


def _queue_effect(store: _Store, mops: tuple[Mop, ...]) -> tuple[Mop, ...]:
    if mops[0].f == "enqueue":
        store.items.append(mops[0].value or 0)
        return mops
    if store.gone and store.wrong():
        return (Mop("dequeue", 0, store.gone[0] if not store.shape.values else store.shape.values),)
    if not store.items:
        return (Mop("dequeue", 0),)
    first = store.shape.model == "fifo-queue"
    store.gone.append(store.items.pop(0 if first else store.random.randrange(len(store.items))))
    return (Mop("dequeue", 0, store.gone[-1]),)


def _set_next(store: _Store, process: int) -> tuple[str, tuple[Mop, ...]]:
    if store.random.random() < _READ:
        return "read", (Mop("r", 0),)
    if store.shape.model == "causal-reverse":
        store.count += 1
        return "write", (Mop("w", 0, store.count),)
    f = "remove" if store.shape.values and store.random.random() < 0.4 else "add"
    return f, (Mop(f, 0, store.value()),)


def _set_effect(store: _Store, mops: tuple[Mop, ...]) -> tuple[Mop, ...]:
    value = mops[0].value or 0
    if mops[0].f == "r":
        wrong = (-1,) if store.wrong() else ()
        return (Mop("r", 0, values=(*store.items, *wrong)),)
    store.items = [item for item in store.items if item != value] + ([value] if mops[0].f != "remove" else [])
    return mops


def _string_next(store: _Store, process: int) -> tuple[str, tuple[Mop, ...]]:
    draw = store.random.random()
    if draw < _READ:
        return "get", (Mop("r", 0),)
    f, mop = ("put", "w") if draw > 0.97 else ("append", "append")
    return f, (Mop(mop, 0, store.piece()),)


def _string_effect(store: _Store, mops: tuple[Mop, ...]) -> tuple[Mop, ...]:
    if mops[0].f == "r":
        shown = store.text[1:] if store.text and store.wrong() else store.text
        return (Mop("r", 0, store.code(shown)),)
    piece = store.pieces[mops[0].value or 0]
    store.text = piece if mops[0].f == "w" else store.text + piece
    return mops


_Next = Callable[[_Store, int], tuple[str, tuple[Mop, ...]]]
_Effect = Callable[[_Store, tuple[Mop, ...]], tuple[Mop, ...] | None]

MODELS: Final[dict[str, tuple[_Next, _Effect]]] = {
    "register": (_register_next, _cells_effect),
    "cas-register": (_register_next, _cells_effect),
    "multi-register": (_rows_next, _cells_effect),
    "mutex": (_lock_next, _lock_effect),
    **dict.fromkeys(("owner-mutex", "reentrant-mutex", "fenced-mutex", "semaphore"), (_held_next, _held_effect)),
    "causal-reverse": (_set_next, _set_effect),
    "fifo-queue": (_queue_next, _queue_effect),
    "lin-queue": (_queue_next, _queue_effect),
    "lin-set": (_set_next, _set_effect),
    "kv-append": (_string_next, _string_effect),
}


@dataclass(slots=True)
class _RunningCall:
    op: Op
    info: bool
    seen: tuple[Mop, ...] | None = None
    done: bool = False


def object_source(shape: ObjectShape) -> Source:
    """The history as the checkers read it; raises UserError for a model that has no generator."""
    if shape.model not in MODELS:
        raise UserError(f"There is no generator for the model {shape.model!r}; there is one for {', '.join(MODELS)}.")
    texts: dict[str, int] = {}
    table = to_table(object_events(shape, texts))
    return Source(Path("synthetic"), "journal", table.num_rows, table=table, dictionary=tuple(texts))


def object_events(shape: ObjectShape, texts: dict[str, int]) -> Iterator[Op]:
    """The events in order; `texts` interns strings by their number, and takes those that the history has besides."""
    store, place = _Store(shape, Random(shape.seed), texts=texts), count()
    random = store.random
    following, effect = MODELS[shape.model]
    free, running, begun = list(range(shape.clients)), list[_RunningCall](), 0
    while begun < shape.operations or running:
        if free and begun < shape.operations and (not running or random.random() < 0.5):
            process = free.pop(random.randrange(len(free)))
            f, mops = following(store, process)
            changes = f not in ("read", "get", "acquire", "release") and mops[0].f != "r"
            at = next(place)
            op = Op("invoke", process, f, mops, index=at, time=at * 1000)
            running.append(_RunningCall(op, changes and random.random() < shape.info_share))
            yield op
            begun += 1
            store.corrupt |= shape.corrupted and begun == shape.operations // 2
            continue
        chosen = random.randrange(len(running))
        one = running[chosen]
        if not one.done:
            one.done, store.process = True, one.op.process
            one.seen = effect(store, one.op.mops) if not one.info or random.random() < 0.5 else one.op.mops
            continue
        running[chosen] = running[-1]
        running.pop()
        free.append(one.op.process + (shape.clients if one.info else 0))
        fate: OpType = "info" if one.info else "fail" if one.seen is None else "ok"
        mops = one.op.mops if one.info or one.seen is None else one.seen
        at = next(place)
        yield one.op.complete(fate, mops=mops, index=at, time=at * 1000)
