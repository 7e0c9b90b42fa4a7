"""Histories for these checkers, valid by construction: clients of a small atomic store whose operations overlap.

Every operation takes effect at one moment between its invocation and its completion; some fail without effect, some
end indeterminate with or without it (dequeues without: an element that an unknown dequeue took counts as lost).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

from harness.errors import UserError
from harness.history.ops import Mop, Op

_NS_PER_EVENT: Final = 1_000_000
NODES: Final = ("n1", "n2", "n3")


@dataclass(frozen=True, slots=True)
class Shape:
    """`operations` by `clients` at once, of which shares end indeterminate or failed; `key` is the object's partition
    (of the keyed models), `width` how many accounts, keys of a group or registers there are."""

    operations: int = 40
    clients: int = 4
    info_share: float = 0.1
    fail_share: float = 0.1
    key: int = 0
    width: int = 3


class AtomicStore:
    """The state of one model: what clients do next, and what an operation does when it takes effect."""

    def __init__(self, model: str, shape: Shape, random: Random) -> None:
        self.shape, self.random, self.count = shape, random, 0
        self.values: dict[int, int] = {}
        self.items: list[int] = []
        self._model = MODELS[model]
        self._model.begin(self)

    def next(self) -> tuple[str, tuple[Mop, ...], Any]:
        """The next operation: its f, its micro-operations and its value."""
        return self._model.next(self)

    def effect(self, op: Op) -> tuple[Mop, ...] | None:
        """Let an operation take effect: its completed micro-operations, or None if it can't (it fails then)."""
        return self._model.effect(self, op)

    def fresh(self) -> int:
        """A number that was not used before."""
        self.count += 1
        return self.count


@dataclass(frozen=True, slots=True)
class Model:
    """How one kind of store begins, what is done to it and what that does; `last` are operations at the end."""

    begin: Callable[[AtomicStore], None]
    next: Callable[[AtomicStore], tuple[str, tuple[Mop, ...], Any]]
    effect: Callable[[AtomicStore, Op], tuple[Mop, ...] | None]
    last: Callable[[AtomicStore], list[tuple[str, tuple[Mop, ...]]]]


@dataclass(slots=True)
class _RunningOp:
    op: Op
    fate: str
    takes_effect: bool
    mops: tuple[Mop, ...] | None = None
    done: bool = field(default=False)


def history(model: str, shape: Shape, seed: int) -> list[Op]:
    """The events of a valid history of the model; raises UserError for a model that has no generator."""
    return list(stream(model, shape, seed))


def stream(model: str, shape: Shape, seed: int) -> Iterator[Op]:
    """The events of a valid history of the model, one after the other; memory is bounded by what the store holds."""
    if model not in MODELS:
        raise UserError(f"There is no generator for the model {model!r}; there is one for {', '.join(MODELS)}.")
    random, place = Random(seed), count()
    for event in _unplaced(model, AtomicStore(model, shape, random), random):
        yield _placed(event, next(place))


def _unplaced(model: str, store: AtomicStore, random: Random) -> Iterator[Op]:
    clients = store.shape.clients
    running: dict[int, _RunningOp] = {}
    free, begun = list(range(clients)), 0
    while begun < store.shape.operations or running:
        if free and begun < store.shape.operations and (not running or random.random() < 0.5):
            process = free.pop(random.randrange(len(free)))
            running[process] = _begin(store, process)
            yield running[process].op
            begun += 1
            continue
        process = random.choice(list(running))
        done = _advance(store, running[process])
        if done is not None:
            yield done
            fate = running.pop(process).fate
            free.append(process + clients if fate == "info" else process)
    for f, mops in MODELS[model].last(store):
        for process in sorted(free):
            last = _RunningOp(Op("invoke", process, f, mops, phase="final"), "ok", True)
            yield last.op
            _advance(store, last)
            done = _advance(store, last)
            assert done is not None
            yield done
            if model != "convergence":
                break


def _begin(store: AtomicStore, process: int) -> _RunningOp:
    f, mops, value = store.next()
    draw = store.random.random()
    fate = "info" if draw < store.shape.info_share else "ok"
    if store.shape.info_share <= draw < store.shape.info_share + store.shape.fail_share:
        fate = "fail"
    lasting = fate == "info" and f != "dequeue"
    takes_effect = fate == "ok" or (lasting and store.random.random() < 0.5)
    return _RunningOp(Op("invoke", process, f, mops, value=value, phase="main"), fate, takes_effect)


def _advance(store: AtomicStore, running: _RunningOp) -> Op | None:
    """The operation's next step: its effect (None), then its completion."""
    if running.takes_effect and not running.done:
        running.done, running.mops = True, store.effect(running.op)
        if running.mops is None and running.fate == "ok":
            running.fate = "fail"
        return None
    node = NODES[running.op.process % len(NODES)]
    mops = running.mops if running.fate == "ok" and running.mops is not None else running.op.mops
    return running.op.complete(running.fate, mops=mops, node=node)  # type: ignore[arg-type]


def _placed(op: Op, index: int) -> Op:
    return msgspec.structs.replace(op, index=index, time=index * _NS_PER_EVENT)


def _no_last(store: AtomicStore) -> list[tuple[str, tuple[Mop, ...]]]:
    return []


def _final_read(store: AtomicStore) -> list[tuple[str, tuple[Mop, ...]]]:
    return [("read", (Mop("r", store.shape.key),))]


def _nothing(store: AtomicStore) -> None:
    """The store begins empty."""


def _bank_begin(store: AtomicStore) -> None:
    store.values = dict.fromkeys(range(store.shape.width), 10)


def _bank_next(store: AtomicStore) -> tuple[str, tuple[Mop, ...], Any]:
    if store.random.random() < 0.5:
        return "read", (), None
    source, target = store.random.sample(range(store.shape.width), 2)
    return "transfer", (), {"from": source, "to": target, "amount": store.random.randint(1, 5)}


def _bank_effect(store: AtomicStore, op: Op) -> tuple[Mop, ...] | None:
    if op.f == "read":
        return tuple(Mop("r", account, balance) for account, balance in store.values.items())
    amount = op.value["amount"]
    if store.values[op.value["from"]] < amount:
        return None
    store.values[op.value["from"]] -= amount
    store.values[op.value["to"]] += amount
    return ()


def _set_next(store: AtomicStore) -> tuple[str, tuple[Mop, ...], Any]:
    if store.random.random() < 0.4:
        return "read", (Mop("r", store.shape.key),), None
    return "add", (Mop("add", store.shape.key, store.fresh()),), None


def _set_effect(store: AtomicStore, op: Op) -> tuple[Mop, ...] | None:
    if op.f == "read":
        return (Mop("r", store.shape.key, values=tuple(store.items)),)
    store.items.append(op.mops[0].value or 0)
    return op.mops


def _counter_next(store: AtomicStore) -> tuple[str, tuple[Mop, ...], Any]:
    if store.random.random() < 0.4:
        return "read", (Mop("r", store.shape.key),), None
    return "add", (Mop("add", store.shape.key, store.random.randint(-3, 5)),), None


def _counter_effect(store: AtomicStore, op: Op) -> tuple[Mop, ...] | None:
    if op.f == "read":
        return (Mop("r", store.shape.key, sum(store.items)),)
    store.items.append(op.mops[0].value or 0)
    return op.mops


def _queue_next(store: AtomicStore) -> tuple[str, tuple[Mop, ...], Any]:
    if store.random.random() < 0.4:
        return "dequeue", (Mop("dequeue", store.shape.key),), None
    return "enqueue", (Mop("enqueue", store.shape.key, store.fresh()),), None


def _queue_effect(store: AtomicStore, op: Op) -> tuple[Mop, ...] | None:
    if op.f == "enqueue":
        store.items.append(op.mops[0].value or 0)
        return op.mops
    if op.f == "drain":
        values, store.items = tuple(store.items), []
        return (Mop("drain", store.shape.key, values=values),)
    return (Mop("dequeue", store.shape.key, store.items.pop(0)),) if store.items else None


def _drain(store: AtomicStore) -> list[tuple[str, tuple[Mop, ...]]]:
    return [("drain", (Mop("drain", store.shape.key),))]


def _fork_next(store: AtomicStore) -> tuple[str, tuple[Mop, ...], Any]:
    first = store.shape.key * 1_000_000
    if store.random.random() < 0.5 or not store.count:
        return "txn", (Mop("w", first + store.fresh() - 1, 1),), None
    group = store.random.randrange(store.count) // store.shape.width * store.shape.width
    keys = [first + group + i for i in range(store.shape.width)]
    store.random.shuffle(keys)
    return "txn", tuple(Mop("r", key) for key in keys), None


def _fork_effect(store: AtomicStore, op: Op) -> tuple[Mop, ...] | None:
    if op.mops[0].f == "w":
        store.values[op.mops[0].partition] = 1
        return op.mops
    return tuple(Mop("r", mop.partition, store.values.get(mop.partition)) for mop in op.mops)


def _ids_next(store: AtomicStore) -> tuple[str, tuple[Mop, ...], Any]:
    return "generate", (Mop("generate", 0),), None


def _ids_effect(store: AtomicStore, op: Op) -> tuple[Mop, ...] | None:
    return (Mop("generate", 0, store.shape.key * 1_000_000 + store.fresh()),)


def _register_next(store: AtomicStore) -> tuple[str, tuple[Mop, ...], Any]:
    cell = store.shape.key * 1_000 + store.random.randrange(store.shape.width)
    if store.random.random() < 0.4:
        return "read", (Mop("r", cell),), None
    return "write", (Mop("w", cell, store.fresh()),), None


def _register_effect(store: AtomicStore, op: Op) -> tuple[Mop, ...] | None:
    cell = op.mops[0].partition
    if op.f == "read":
        return (Mop("r", cell, store.values.get(cell)),)
    store.values[cell] = op.mops[0].value or 0
    return op.mops


def _read_all(store: AtomicStore) -> list[tuple[str, tuple[Mop, ...]]]:
    return [("read", (Mop("r", store.shape.key * 1_000 + cell),)) for cell in range(store.shape.width)]


_SETS: Final = Model(_nothing, _set_next, _set_effect, _final_read)
_QUEUES: Final = Model(_nothing, _queue_next, _queue_effect, _drain)
MODELS: Final = {
    "bank": Model(_bank_begin, _bank_next, _bank_effect, _no_last),
    "set": _SETS,
    "set-full": _SETS,
    "counter": Model(_nothing, _counter_next, _counter_effect, _no_last),
    "queue": _QUEUES,
    "total-queue": _QUEUES,
    "long-fork": Model(_nothing, _fork_next, _fork_effect, _no_last),
    "unique-ids": Model(_nothing, _ids_next, _ids_effect, _no_last),
    "convergence": Model(_nothing, _register_next, _register_effect, _read_all),
}
