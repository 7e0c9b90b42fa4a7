"""Small random histories of an etcd, right and wrong, and by brute force whether etcd can have been so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from harness.history.ops import Op

KEYS = "xyz"


class Etcd(NamedTuple):
    """A revision and the pairs at each: key to (value, mod, create, version)."""

    states: tuple[dict[str, tuple[str, int, int, int]], ...] = ({}, {})

    @property
    def revision(self) -> int:
        return len(self.states) - 1


class Call(NamedTuple):
    """A request with when it began and ended; no `output` where nobody knows."""

    begin: int
    end: int
    input: dict[str, Any]
    output: dict[str, Any] | None


def shown(state: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    names = sorted(key for key in state if key == asked["Start"] or asked["Start"] <= key < asked["End"])
    pairs = [dict(zip(("Value", "ModRevision", "CreateRevision", "Version"), state[key], strict=True)) for key in names]
    return {"KVs": [{"Key": key} | pair for key, pair in zip(names, pairs, strict=True)], "Count": len(names)}


def step(store: Etcd, asked: dict[str, Any]) -> tuple[Etcd, dict[str, Any]]:
    """The store after a request, and its answer."""
    if asked["Type"] == "range":
        at = asked["Range"]["Revision"] or store.revision
        answer = shown(store.states[at], asked["Range"]) if at <= store.revision else None
        return store, {"Revision": store.revision, "Range": answer}
    state, results, wrote = dict(store.states[-1]), [], False
    absent = ("", 0, 0, 0)
    holds = all(
        state.get(one["Key"], absent)[{"value": 0, "mod": 1, "version": 3}[one["Target"]]] == one["Value"]
        for one in asked["Txn"]["Conditions"]
    )
    for part in asked["Txn"]["OperationsOnSuccess" if holds else "OperationsOnFailure"]:
        result: dict[str, Any] = {}
        if part["Type"] == "range-operation":
            result = shown(state, part["Range"])
        elif part["Type"] == "put-operation":
            key, (_, _, create, version) = part["Put"]["Key"], state.get(part["Put"]["Key"], absent)
            now = store.revision + 1
            state[key], wrote = (part["Put"]["Value"], now, create or now, version + 1), True
        else:
            gone = state.pop(part["Delete"]["Key"], None)
            result, wrote = {"Deleted": int(gone is not None)}, wrote or gone is not None
        results.append(result)
    store = Etcd((*store.states, state)) if wrote else store
    return store, {"Revision": store.revision, "Txn": {"Failure": not holds, "Results": results}}


def a_range(random: Random) -> dict[str, Any]:
    return {"Start": random.choice(KEYS), "End": random.choice(["", "", "~"])}


def a_part(random: Random) -> dict[str, Any]:
    key, kind = random.choice(KEYS), random.choice(["put", "put", "delete", "range"])
    asked = {"put": {"Key": key, "Value": str(random.randrange(3))}, "delete": {"Key": key}, "range": a_range(random)}
    return {"Type": f"{kind}-operation", kind.capitalize(): asked[kind]}


def a_request(random: Random) -> dict[str, Any]:
    if random.random() < 0.4:
        late = {"Serializable": True} if random.random() < 0.3 else {}
        revision = random.choice([0, 0, 0, 2, 3]) if not late else 0
        return {"Type": "range", "Range": a_range(random) | {"Revision": revision} | late}
    target, wanted = random.choice([("mod", 0), ("mod", 2), ("version", 1), ("value", "1")])
    conditions = [{"Key": random.choice(KEYS), "Target": target, "Value": wanted}] if random.random() < 0.4 else []
    success, failure = ([a_part(random) for _ in range(count)] for count in (random.choice([1, 1, 2]), 1))
    txn = {"Conditions": conditions, "OperationsOnSuccess": success, "OperationsOnFailure": failure}
    return {"Type": "txn", "Txn": txn}


def random_calls(random: Random, size: int, unknown: float = 0.0, moved: bool = True) -> list[Call]:
    """Calls that took effect one after another; an answer of most is changed, its revision only if `moved`."""
    store, calls = Etcd(), list[Call]()
    for place in range(size):
        asked = a_request(random)
        before = store
        store, output = step(store, asked)
        if asked.get("Range", {}).get("Serializable"):
            output = step(Etcd(store.states[: random.randint(2, len(store.states))]), asked)[1]
        if output.get("Range", {}) is None:
            continue
        begin, end = 100 * place - random.choice([0, 150]), 100 * place + random.choice([30, 170])
        lost = random.random() < unknown
        if lost and random.random() < 0.5:
            store = before
        calls.append(Call(begin, end, asked, None if lost else output))
    if calls and random.random() < 0.6:
        place = random.randrange(len(calls))
        calls[place] = calls[place]._replace(output=changed(calls[place].output, random, moved))
    return calls


def changed(output: Any, random: Random, moved: bool) -> Any:
    """Another answer: of another revision, of none of the keys, or of another value."""
    if output is None:
        return None
    text = json.dumps(output)
    revision = output["Revision"]
    other = json.loads(text.replace('"Value": "1"', '"Value": "2"').replace('"Value": "0"', '"Value": "1"'))
    elsewhere = json.loads(text) | {"Revision": max(2, revision + random.choice([-1, 1]))}
    return random.choice([other, elsewhere]) if moved else other


def some_order(calls: Sequence[Call]) -> bool:
    """Whether etcd can have given these answers in some order that real time allows; unknown outcomes may be none."""

    def go(left: frozenset[int], store: Etcd) -> bool:
        if all(calls[place].output is None for place in left):
            return True
        first_end = min(calls[place].end for place in left if calls[place].output is not None)
        return any(calls[place].begin <= first_end and after(left, place, store) for place in left)

    def after(left: frozenset[int], place: int, store: Etcd) -> bool:
        call = calls[place]
        if call.output is None:
            return go(left - {place}, step(store, call.input)[0])
        if call.input.get("Range", {}).get("Serializable"):
            late = Etcd(store.states[: call.output["Revision"] + 1])
            return step(late, call.input)[1] == call.output and go(left - {place}, store)
        later, answer = step(store, call.input)
        return answer == call.output and go(left - {place}, later)

    return go(frozenset(range(len(calls))), Etcd())


def events_of(calls: Sequence[Call]) -> list[Op]:
    """The events of calls, each of a process of its own."""
    placed = []
    for process, call in enumerate(calls):
        asked = {"input": call.input}
        told = asked if call.output is None else asked | {"output": call.output}
        placed.append((call.begin, 0, Op("invoke", process, "call", value=asked)))
        placed.append((call.end, 1, Op("info" if call.output is None else "ok", process, "call", value=told)))
    return [event for *_, event in sorted(placed, key=lambda each: each[:2])]
