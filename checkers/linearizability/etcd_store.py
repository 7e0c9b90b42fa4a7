"""The store of etcd as its key-value interface shows it: pairs by key with revisions, of which some may be unknown.

A put or an effective delete raises the store's revision by one, a transaction all at once. Requests and answers have
the form in which etcd's robustness tests keep them (`docs/checking.md`). Where writes may have happened that nobody saw
the outcome of, a pair, or one of its fields, is unknown, and agrees with any answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq, gt, lt, ne
from typing import Any, Final, NamedTuple


class Pair(NamedTuple):
    """What is under a key; a field that is None is unknown. Without a value there is no pair, and all numbers are 0."""

    value: str | None
    mod: int | None
    create: int | None
    version: int | None


ABSENT: Final = Pair("", 0, 0, 0)
UNKNOWN: Final = Pair(None, None, None, None)

_RESULTS: Final = {"=": eq, "!=": ne, "<": lt, ">": gt}
_TARGETS: Final = ("value", "mod", "create", "version")


def text_of(value: Any) -> str:
    """A value, or the hash of a long one, as text."""
    if isinstance(value, dict):
        return f"hash {value['Hash']}" if value.get("Hash") else str(value.get("Value", ""))
    return str(value)


@dataclass(frozen=True, slots=True)
class KeyValues:
    """`pairs` by key; keys that are not there are absent, or `blind` says that nothing is known of them."""

    pairs: dict[str, Pair] = field(default_factory=dict)
    blind: bool = False

    def get(self, key: str) -> Pair:
        """What is under a key."""
        return self.pairs.get(key, UNKNOWN if self.blind else ABSENT)

    def forgetting(self, keys: Sequence[str]) -> KeyValues:
        """The store, of which nothing is known any more under some keys."""
        return KeyValues(self.pairs | dict.fromkeys(keys, UNKNOWN), self.blind)

    def put(self, key: str, value: str, revision: int) -> KeyValues:
        """The store after a put at a revision."""
        old = self.get(key)
        create = revision if old.version == 0 else old.create
        version = None if old.version is None else old.version + 1
        return KeyValues(self.pairs | {key: Pair(value, revision, create, version)}, self.blind)

    def delete(self, key: str) -> KeyValues:
        """The store without a key."""
        return KeyValues(self.pairs | {key: ABSENT}, self.blind)


def condition_holds(store: KeyValues, condition: Mapping[str, Any]) -> bool | None:
    """Whether a transaction's comparison holds; None where that is unknown.

    It has a `Target` (value, mod, create, version), a `Result` (=, !=, <, >) and a `Value`, or, as the robustness tests
    have it, an `ExpectedVersion` above 0 or else an `ExpectedRevision` of the last modification.
    """
    pair = store.get(condition["Key"])
    if "Target" in condition:
        name, result, wanted = condition["Target"], condition.get("Result", "="), condition["Value"]
        if name == "value" and pair.version == 0:
            return False  # etcd compares values of present keys only
        found = pair[_TARGETS.index(name)]
        wanted = text_of(wanted) if name == "value" else wanted
    else:
        result = "="
        version = condition.get("ExpectedVersion") or 0
        found, wanted = (pair.version, version) if version > 0 else (pair.mod, condition.get("ExpectedRevision") or 0)
    return None if found is None else bool(_RESULTS[result](found, wanted))


def all_hold(store: KeyValues, conditions: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether all of a transaction's comparisons hold; None where that is unknown."""
    told = [condition_holds(store, condition) for condition in conditions]
    return False if False in told else None if None in told else True


def in_range(key: str, asked: Mapping[str, Any]) -> bool:
    """Whether a range covers a key: one key, `[Start, End)`, or all from Start on where End is a zero byte."""
    start, end = asked["Start"], asked.get("End") or ""
    return key == start if not end else key >= start and (end == "\0" or key < end)


def range_agrees(store: KeyValues, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Whether the answer to a range can be what the store holds."""
    shown = [(pair["Key"], pair) for pair in answer.get("KVs") or []]
    several = bool(asked.get("End"))
    held = {key: store.get(key) for key in (store.pairs if several else (asked["Start"],)) if in_range(key, asked)}
    present = sorted(key for key, pair in held.items() if pair.version != 0)
    limit = asked.get("Limit") or 0
    names = [key for key, _ in shown]
    known = not (store.blind and several) and all(pair is not UNKNOWN for pair in held.values())
    if known:
        if names != (present[:limit] if limit else present) or answer.get("Count", len(present)) != len(present):
            return False
    elif names != sorted(set(names)) or not all(in_range(key, asked) for key in names):
        return False
    missed = [key for key in present if key not in names and held[key] is not UNKNOWN]
    return (not missed or limit > 0) and all(_pair_agrees(store.get(key), pair) for key, pair in shown)


def _pair_agrees(held: Pair, shown: Mapping[str, Any]) -> bool:
    names = {"mod": "ModRevision", "create": "CreateRevision", "version": "Version"}
    if held.version == 0 or (held.value is not None and held.value != text_of(shown["Value"])):
        return False
    fields = ((getattr(held, own), shown.get(name)) for own, name in names.items())
    return all(known is None or told is None or known == told for known, told in fields)


def operation_parts(operations: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each operation of a transaction as `range`, `put` or `delete` with what it asks for."""
    for operation in operations or []:
        kind = operation["Type"].removesuffix("-operation")
        yield kind, operation[kind.capitalize()]


def applied(
    store: KeyValues, operations: Sequence[Mapping[str, Any]] | None, revision: int, results: Sequence[Any] | None
) -> tuple[KeyValues, bool, bool]:
    """The store after a transaction's operations at a revision; whether their `results` (None: not known) agree, and
    whether anything was written."""
    agree, wrote = True, False
    for place, (kind, asked) in enumerate(operation_parts(operations)):
        answer = None if results is None else results[place]
        if kind == "range":
            agree &= answer is None or range_agrees(store, asked, answer)
        elif kind == "put":
            store, wrote = store.put(asked["Key"], text_of(asked["Value"]), revision), True
        else:
            version = store.get(asked["Key"]).version
            deleted = bool(version) if answer is None else (answer.get("Deleted") or 0) > 0
            agree &= version is None or deleted == (version > 0)
            store, wrote = store.delete(asked["Key"]), wrote or deleted
    return store, agree, wrote
