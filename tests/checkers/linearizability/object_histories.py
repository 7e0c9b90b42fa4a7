"""Small histories of objects that misbehave at random, and what each object may do, for the brute-force reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import numpy as np

from checkers.columns.codes import INFO, NEVER, NIL, OK
from checkers.columns.mops import ADDRESS, Columns
from checkers.linearizability.objects.refute_objects import OBJECT_MODELS

Call = tuple[str, Any, Any]
"""f, what it is given, what it returned (None for nothing, `UNKNOWN` where it did not complete)."""

UNKNOWN = "unknown"
TEXTS = ("", "a", "b", "ab", "ba", "aa", "aab", "aba", "abb", "bab", "c", "ac", "abab")


def mutex(state: Any, call: Call) -> Iterable[Any]:
    return [not state] if state == (call[0] == "release") else []


def owned(state: Any, call: Call) -> Iterable[Any]:
    """(owner, how often, the last token); calls are given their owner."""
    owner, count, token = state
    if call[0] == "release":
        return [(owner if count > 1 else None, count - 1, token)] if owner == call[1] and count else []
    return [(call[1], 1, token)] if not count else []


def reentrant(state: Any, call: Call) -> Iterable[Any]:
    again = call[0] == "acquire" and state[0] == call[1]
    return [(state[0], state[1] + 1, state[2])] if again else owned(state, call)


def fenced(state: Any, call: Call) -> Iterable[Any]:
    found = list(owned(state, call))
    if call[0] == "release" or not found:
        return found
    last, known = state[2], call[2] not in (UNKNOWN, None)
    if last is None:  # What was given out before any known token may have been as low as need be.
        return [(call[1], 1, call[2] if known else None)]
    tokens = range(last + 1, last + 4) if not known else [call[2]] if call[2] > last else []
    return [(call[1], 1, token) for token in tokens]


PERMITS = 2


def semaphore_of(permits: int) -> Callable[[Any, Call], Iterable[Any]]:
    def semaphore(state: Any, call: Call) -> Iterable[Any]:
        taken = state + (call[1] if call[0] == "acquire" else -call[1])
        return [taken] if 0 <= taken <= permits else []

    return semaphore


def fifo(state: Any, call: Call) -> Iterable[Any]:
    if call[0] == "enqueue":
        return [(*state, call[1])]
    if call[2] is None:
        return [] if state else [state]
    return [state[1:]] if state and call[2] in (UNKNOWN, state[0]) else []


def bag(state: Any, call: Call) -> Iterable[Any]:
    if call[0] == "enqueue":
        return [tuple(sorted((*state, call[1])))]
    if call[2] is None:
        return [] if state else [state]
    return [(*state[:i], *state[i + 1 :]) for i, x in enumerate(state) if call[2] in (UNKNOWN, x)]


def members(state: Any, call: Call) -> Iterable[Any]:
    if call[0] == "r":
        return [state] if call[2] == state else []
    return [state | {call[1]} if call[0] == "add" else state - {call[1]}]


def strings(state: Any, call: Call) -> Iterable[Any]:
    if call[0] == "r":
        return [state] if call[2] == state else []
    return [call[1] if call[0] == "w" else state + call[1]]


def registers(state: Any, call: Call) -> Iterable[Any]:
    now = list(state)
    for (f, register, value, expected), seen in zip(call[1], call[2] or call[1], strict=True):
        if f == "r" and call[2] is not None and seen[2] != now[register]:
            return []
        if f == "cas" and now[register] != expected:
            return []
        if f != "r":
            now[register] = value
    return [tuple(now)]


OBJECTS: dict[str, tuple[Any, Callable[[Any, Call], Iterable[Any]]]] = {
    "mutex": (False, mutex),
    "owner-mutex": ((None, 0, 0), owned),
    "reentrant-mutex": ((None, 0, 0), reentrant),
    "fenced-mutex": ((None, 0, None), fenced),
    "semaphore": (0, semaphore_of(PERMITS)),
    "fifo-queue": ((), fifo),
    "lin-queue": ((), bag),
    "lin-set": (frozenset(), members),
    "causal-reverse": (frozenset(), members),
    "kv-append": ("", strings),
    "multi-register": ((None, None, None), registers),
}


LOCKS = ("owner-mutex", "reentrant-mutex", "fenced-mutex", "semaphore")
SETS = ("lin-set", "causal-reverse")


def _asked(random: Random, model: str, number: int, spread: int) -> Call:
    if model == "mutex":
        return random.choice(("acquire", "release")), None, UNKNOWN
    if model in LOCKS:
        return random.choice(("acquire", "release")), random.randint(1, 2), UNKNOWN
    if model in ("fifo-queue", "lin-queue"):
        value = number if spread > 3 else random.randint(1, spread)
        return ("enqueue", value, UNKNOWN) if random.random() < 0.55 else ("dequeue", None, UNKNOWN)
    if model in SETS:
        removes = model == "lin-set" and spread > 2 and random.random() < 0.3
        f = "r" if random.random() < 0.4 else "remove" if removes else "add"
        return f, None if f == "r" else random.randint(1, spread), UNKNOWN
    if model == "kv-append":
        f = random.choice(("r", "append", "append", "w") if spread > 2 else ("r", "append"))
        piece = f"{number}," if spread > 3 else random.choice(("a", "b", "ab", ""))
        return f, piece if f != "r" else None, UNKNOWN
    mops = []
    for _ in range(random.choice((1, 1, 2, 2, 3))):
        value = None if random.random() < 0.05 else random.randint(1, spread)
        expected = random.choice((None, 1, 2))
        mops.append((random.choice(("r", "r", "w", "cas")), random.randrange(3), value, expected))
    return "txn", tuple(mops), UNKNOWN


def _answer(random: Random, model: str, call: Call, state: Any, wrong: bool) -> tuple[Call, Any]:
    """What an object in that state answers, and its next state."""
    f, given, _ = call
    if model in ("fifo-queue", "lin-queue") and f == "dequeue":
        place = 0 if model == "fifo-queue" or not state else random.randrange(len(state))
        seen = random.choice((None, 1, 2, 3)) if wrong else state[place] if state else None
        return (f, given, seen), state if wrong or not state else (*state[:place], *state[place + 1 :])
    if f == "r":
        odd = _odd_text(random, state) if model == "kv-append" else _odd_members(random, state)
        return (f, given, odd if wrong else state), state
    if model == "multi-register":
        now, seen_mops = list(state), []
        for f_, register, value, expected in given:
            if f_ == "cas" and not wrong:
                expected = now[register]
            seen_mops.append((f_, register, random.choice((None, 1, 2)) if wrong else now[register], expected))
            now[register] = now[register] if f_ == "r" else value
        asked = tuple((*mop[:3], seen[3]) for mop, seen in zip(given, seen_mops, strict=True))
        return (f, asked, tuple(seen_mops)), tuple(now)
    after = list(OBJECTS[model][1](state, call))
    if model == "fenced-mutex" and not after and not wrong and state[1]:
        return ("release", state[0], None), (None, 0, state[2])  # else hardly any long one is right
    if model == "fenced-mutex" and f == "acquire" and random.random() < 0.8:
        token = random.randint(1, 5) if wrong else (state[2] or 0) + random.choice((1, 1, 2))
        return (f, given, token), (given, 1, token) if after and not wrong else state
    return (f, given, None), after[0] if after and not wrong else state


def _odd_members(random: Random, state: Any) -> Any:
    """Members that are not the set's, unless by chance; or those with one of them twice."""
    one, other = random.sample(range(1, 4), 2)
    twice = one > other and isinstance(state, frozenset) and state
    return (*sorted(state), min(state)) if twice else frozenset((one, other))


def _odd_text(random: Random, state: Any) -> str:
    """A string that is not the object's, unless by chance; of pieces that are there, if pieces have numbers."""
    if not isinstance(state, str) or "," not in state:
        return random.choice(TEXTS)
    pieces = state.split(",")[:-1]
    return "".join(f"{piece}," for piece in random.sample(pieces, random.randint(0, len(pieces))))


def random_calls(random: Random, model: str, operations: int) -> list[tuple[Call, int, int]]:
    """Calls in order of invocation, with invocation and completion (NEVER: unknown); failed ones are left out."""
    calls: list[list[Any]] = []
    state, opened, done, event = OBJECTS[model][0], [], set(), 0
    info, wrong, spread = random.choice((0, 0.15, 0.4)), random.choice((0, 0.1, 0.4)), random.randint(1, 5)
    most_open = random.randint(1, 5)
    while len(calls) < operations or opened:
        event += 1
        if len(calls) < operations and (not opened or (len(opened) < most_open and random.random() < 0.5)):
            opened.append(len(calls))
            calls.append([_asked(random, model, len(calls) + 1, spread), event, NEVER])
            continue
        number = random.choice(opened)
        if number not in done:
            done.add(number)
            unknown = random.random() < info
            answered, after = _answer(random, model, calls[number][0], state, random.random() < wrong)
            state = after if not unknown or random.random() < 0.7 else state
            if unknown:
                opened.remove(number)
                continue
            calls[number][0] = answered
            if random.random() < 0.5:
                continue
        opened.remove(number)
        calls[number][2] = event
    return [_plain(*call) for call in calls if call[2] != NEVER or call[0][0] != "r"]


def _plain(call: Call, invoke: int, complete: int) -> tuple[Call, int, int]:
    """An unknown transaction's reads say nothing."""
    if call[0] == "txn" and complete == NEVER:
        return (call[0], tuple(mop for mop in call[1] if mop[0] != "r"), None), invoke, complete
    return call, invoke, complete


def texts_of(histories: list[list[tuple[Call, int, int]]]) -> tuple[str, ...]:
    """All strings in the histories, as a history's dictionary."""
    said = {part for calls in histories for call, _, _ in calls for part in call[1:] if isinstance(part, str)}
    return tuple(sorted(said))


def columns(model: str, histories: list[list[tuple[Call, int, int]]], texts: tuple[str, ...] = ()) -> Columns:
    """Histories as the rows that a kernel gets, one object each (rows of three registers for `multi-register`)."""
    rows: list[dict[str, int]] = []
    last = 0
    for key, calls in enumerate(histories):
        for call, invoke, complete in calls:
            done = NEVER if complete == NEVER else last + complete
            rows += _rows(model, key, call, last + invoke, done, texts)
        last += max((max(c[1], c[2] if c[2] != NEVER else 0) for c in calls), default=0) + 1
    projection = OBJECT_MODELS[model].projection
    return {name: np.array([row[name] for row in rows], np.int64) for name in projection.names}


def _rows(model: str, key: int, call: Call, invoke: int, complete: int, texts: tuple[str, ...]) -> list[dict[str, int]]:
    f, given, seen = call
    projection = OBJECT_MODELS[model].projection
    base = dict.fromkeys((*ADDRESS, "place", "expected"), 0) | {"partition": key, "invoke": invoke, "chain": -1}
    base |= {"complete": complete, "status": INFO if complete == NEVER else OK, "size": 1}
    if model == "multi-register":
        mops = [(g[0], g[1], s[2] if g[0] == "r" else g[2], g[3]) for g, s in zip(given, seen or given, strict=True)]
        return [
            base
            | {"partition": 3 * key + register, "place": place, "size": len(mops), "kind": projection.kinds[name]}
            | {"value": NIL if value is None else value, "expected": NIL if expected is None else expected}
            for place, (name, register, value, expected) in enumerate(mops)
        ]
    if model in LOCKS:
        value = seen if model == "fenced-mutex" and seen != UNKNOWN else given if model == "semaphore" else None
        return [base | {"kind": projection.kinds[f], "session": given, "value": NIL if value is None else value}]
    if model in SETS and f == "r":
        kinds = projection.list_kinds
        assert kinds is not None
        head = base | {"kind": kinds[0], "value": len(seen), "chain": invoke}
        return [head] + [
            base | {"kind": kinds[1], "value": x, "chain": invoke, "place": i} for i, x in enumerate(sorted(seen))
        ]
    value = seen if f in ("dequeue", "r") and seen != UNKNOWN else given
    if isinstance(value, str):
        value = -(2**62) - 1 - texts.index(value)
    return [base | {"kind": projection.kinds[f], "value": NIL if value is None else int(value)}]
