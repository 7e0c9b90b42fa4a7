"""Anomalies of transactions in sentences: what each transaction did, and why one comes before the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from checkers.columns.codes import NIL
from checkers.explain.speaker import Speaker, key_in, opening
from checkers.findings import Finding, Key
from checkers.source import Source
from checkers.transactions.graph.cycle_anomalies import ORDERS
from checkers.transactions.graph.edges import PROCESS, REALTIME, RW, WR, WW
from checkers.verdict import Anomaly

_SHOWN: Final = 6
"""Lists longer than this are shown by their ends."""


@dataclass(frozen=True, slots=True)
class TxnSpeaker:
    """Names the transactions of one anomaly T7, T12, … by number; `rows` are history rows by invocation index."""

    speaker: Speaker
    rows: dict[int, dict[str, Any]]
    names: dict[int, str]

    @classmethod
    def of(cls, source: Source, rows: dict[int, dict[str, Any]], ops: Sequence[int]) -> TxnSpeaker:
        names = {index: f"T{rows[index]['op']}" for index in dict.fromkeys(ops)}
        return cls(Speaker(source, rows), rows, names)

    def name(self, index: int) -> str:
        return self.names[index]

    def introduced(self, index: int) -> str:
        """`T1 is process 3's transaction of 0.012 s`."""
        when = self.speaker.when(index, "invoke")
        return f"{self.names[index]} is process {self.rows[index]['process']}'s transaction of {when}"

    def began(self, index: int, upper: bool = True) -> str:
        """`Process 3's transaction of 0.012 s`."""
        noun = f"rocess {self.rows[index]['process']}'s transaction of {self.speaker.when(index, 'invoke')}"
        return ("P" if upper else "p") + noun

    def plain_key(self, key: Key) -> Any:
        """A key for the verdict: as the history wrote it, with its whole address if it has more than a partition."""
        return self.speaker.source.shown_key(key)

    def shown(self, value: Any) -> str:
        """A value, or an element of a list, which may be nil."""
        return self.speaker.source.shown(None if value == NIL else value)

    def listed(self, values: Sequence[int] | None) -> str:
        """`[1 2 3]`, long ones as `[1 2 … 255 256]`."""
        values = values or ()
        long = len(values) > _SHOWN
        items = [self.shown(value) for value in ((*values[:2], *values[-3:]) if long else values)]
        return f"[{' '.join([*items[:2], '…', *items[2:]] if long else items)}]"

    def mops(self, index: int, key: Key) -> list[dict[str, Any]]:
        return [mop for mop in self.rows[index]["mops"] or () if key_in(mop) == key]

    def written(self, index: int, key: Key) -> list[str]:
        """The values that a transaction wrote or appended to a key, in order."""
        return [self.shown(mop["value"]) for mop in self.mops(index, key) if mop["f"] != "r"]

    def reads(self, index: int, key: Key) -> list[dict[str, Any]]:
        return [mop for mop in self.mops(index, key) if mop["f"] == "r"]

    def read_shown(self, mop: dict[str, Any]) -> str:
        if mop["values"] is None and mop["value"] is not None:
            return self.shown(mop["value"])
        return "nil" if mop["values"] is None else self.listed(mop["values"])

    def first_read(self, index: int, key: Key) -> str:
        reads = self.reads(index, key)
        return self.read_shown(reads[0]) if reads else "nil"

    def found_at(self, index: int, key: Key) -> str:
        """The version of a register at which a transaction found it: what it read first, else what it wrote."""
        mops = self.mops(index, key)
        if mops and mops[0]["f"] == "r":
            return self.read_shown(mops[0])
        return self.left_at(index, key)

    def left_at(self, index: int, key: Key) -> str:
        """The version of a register at which a transaction left it: what it wrote last, else what it read."""
        written = self.written(index, key)
        return written[-1] if written else self.first_read(index, key)

    def is_register(self, source: int, target: int, key: Key) -> bool:
        """Whether either transaction writes the key instead of appending."""
        return any(mop["f"] == "w" for index in (source, target) for mop in self.mops(index, key))

    def read_of(self, reader: int, writer: int, key: Key) -> tuple[str, str]:
        """A list that ends with what another transaction appended, and that element."""
        theirs = {mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"}
        for mop in self.reads(reader, key):
            if mop["values"] and mop["values"][-1] in theirs:
                return self.listed(mop["values"]), self.shown(mop["values"][-1])
        return self.first_read(reader, key), "?"

    def read_without(self, reader: int, writer: int, key: Key) -> tuple[str, str | None, str]:
        """A list that lacks what another transaction appended, its last element, and the first append that it lacks."""
        theirs = [mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"]
        for mop in self.reads(reader, key):
            values = mop["values"] or []
            held = set(values)
            missed = next((value for value in theirs if value not in held), None)
            if missed is not None:
                last = self.shown(values[-1]) if values else None
                return self.listed(values), last, self.shown(missed)
        return self.first_read(reader, key), "it", self.shown(theirs[0]) if theirs else "?"

    def seen_from(self, reader: int, writer: int, key: Key) -> list[str]:
        """The values of one transaction that another one read, in order."""
        theirs = [mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"]
        seen = {value for mop in self.reads(reader, key) for value in (*(mop["values"] or ()), mop["value"])}
        return [self.shown(value) for value in theirs if value in seen]

    def last_seen(self, reader: int, writer: int, key: Key) -> str:
        """The value of `writer` that a read of `reader` ends with, and that is not its final one."""
        theirs = [mop["value"] for mop in self.mops(writer, key) if mop["f"] != "r"][:-1]
        for mop in self.reads(reader, key):
            last = mop["values"][-1] if mop["values"] else mop["value"]
            if last in theirs:
                return self.shown(last)
        return self.shown(theirs[0]) if theirs else "?"

    def mop_value(self, index: int, place: int) -> str:
        return self.shown(self.rows[index]["mops"][place]["value"])

    def history_in(self, index: int, key: Key, place: int) -> tuple[str, str]:
        """What a transaction did with a key before the micro-operation at `place`, and what it read there."""
        before = [mop for mop in self.rows[index]["mops"][:place] if key_in(mop) == key]
        verbs = {"r": "read", "w": "wrote", "append": "appended"}
        told = [
            f"{verbs[mop['f']]} {self.read_shown(mop) if mop['f'] == 'r' else self.shown(mop['value'])}"
            for mop in before
        ]
        return ", ".join(told), self.read_shown(self.rows[index]["mops"][place])

    def duplicate(self, index: int, key: Key) -> tuple[str, str]:
        """An element that a read list holds twice, and the list."""
        for mop in self.reads(index, key):
            seen: set[int] = set()
            for value in mop["values"] or ():
                if value in seen:
                    return self.shown(value), self.listed(mop["values"])
                seen.add(value)
        return "an element", self.first_read(index, key)

    def clash(self, index: int, other: int, key: Key) -> tuple[str, str]:
        """Two lists of which neither is a prefix of the other, cut to what shows it."""
        longest = max((mop["values"] or [] for mop in self.reads(other, key)), key=len, default=[])
        for mop in self.reads(index, key):
            values = mop["values"] or []
            for place, (mine, theirs) in enumerate(zip(values, longest, strict=False)):
                if mine != theirs:
                    return self._around(values, place), self._around(longest, place)
        return self.first_read(index, key), self.listed(longest)

    def _around(self, values: Sequence[int], place: int) -> str:
        if len(values) <= _SHOWN:
            return self.listed(values)
        low = max(0, place - 2)
        items = [self.shown(value) for value in values[low : place + 2]]
        return f"[{'… ' if low else ''}{' '.join(items)}{' …' if place + 2 < len(values) else ''}]"


KIND_NAMES: Final = {WW: "ww", WR: "wr", RW: "rw", PROCESS: "process", REALTIME: "realtime"}

_SENSE: Final = {
    "G0": "their writes can't be put in one order (write cycle)",
    "G1c": "each depends on what the other wrote (circular information flow)",
    "G-single-item": "one of them saw the other's effects only in part (read skew)",
    "G-nonadjacent-item": "they saw the same writes in different orders (long fork)",
    "G2-item": "each missed what the other wrote (anti-dependency cycle, as in write skew)",
}

_MOST_CYCLES: Final = 6
"""Cycles of one refutation that are put into words."""

_MOST_STEPS: Final = 4
"""Steps of a cycle that are put into words."""

Explain: TypeAlias = Callable[[TxnSpeaker, Finding], str]


def explain_all(source: Source, findings: Sequence[Finding]) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations, by class; reads just those operations from the source."""
    rows = source.operations([index for finding in findings for index in finding.ops])
    explained: dict[str, tuple[Anomaly, ...]] = {}
    for finding in findings:
        speaker = TxnSpeaker.of(source, rows, finding.ops)
        ops = tuple(rows[index] for index in dict.fromkeys(finding.ops))
        if "kinds" in finding.facts or "cycles" in finding.facts:
            message, steps = (_cycle if "kinds" in finding.facts else _several_cycles)(speaker, finding)
            anomaly = Anomaly(message, None, ops, steps)
        else:
            anomaly = Anomaly(_EXPLAIN[finding.anomaly](speaker, finding), speaker.plain_key(finding.key), ops)
        explained[finding.anomaly] = (*explained.get(finding.anomaly, ()), anomaly)
    return explained


def _cycle(speaker: TxnSpeaker, finding: Finding) -> tuple[str, tuple[dict[str, Any], ...]]:
    ops = finding.ops
    steps = []
    for source, target, kind, address in zip(
        ops, (*ops[1:], ops[0]), finding.facts["kinds"], finding.facts["keys"], strict=True
    ):
        key = Key(*address) if address is not None else None
        why = (
            f"{_why(speaker, source, target, kind, key)}, so {speaker.name(source)} comes before {speaker.name(target)}"
        )
        ends = {"source": speaker.rows[source]["op"], "target": speaker.rows[target]["op"]}
        about = {} if key is None else {"key": speaker.plain_key(key)}
        steps.append(ends | {"kind": KIND_NAMES[kind], "why": why} | about)
    who = "; ".join(speaker.introduced(index) for index in ops[:_MOST_STEPS])
    told = [opening(step["why"]) for step in steps]
    if len(told) > _MOST_STEPS:
        told = [*told[: _MOST_STEPS - 1], f"and so on over {len(told) - _MOST_STEPS} more", told[-1]]
    base = finding.anomaly.removesuffix("-process").removesuffix("-realtime")
    sense = _SENSE.get(base, "they can't be put in one order")
    end = "" if len(ops) <= _MOST_STEPS else "; …"
    return f"{'. '.join(told)}: a cycle; {sense}. {who}{end}.", tuple(steps)


def _several_cycles(speaker: TxnSpeaker, finding: Finding) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Why no choice is possible: for each cycle the choices that it hangs on, then its steps."""
    told, steps, cycles = list[str](), dict[tuple[Any, ...], dict[str, Any]](), finding.facts["cycles"]
    for cycle in cycles:
        reasons = []
        for step in cycle:
            why = _told_step(speaker, step)
            reasons.append(f"{why}, so {speaker.name(step['source'])} comes before {speaker.name(step['target'])}")
            key = None if step["key"] is None else Key(*step["key"])
            ends = {name: speaker.rows[step[name]]["op"] for name in ("source", "target")}
            about = {} if key is None else {"key": speaker.plain_key(key)}
            drawn = ends | {"kind": KIND_NAMES[step["kind"]], "why": reasons[-1]} | about
            steps.setdefault((step["source"], step["target"], step["kind"], key), drawn)
        told.append(_told_cycle(speaker, cycle, reasons))
    shown = told if len(told) <= _MOST_CYCLES else [*told[:_MOST_CYCLES], f"So it is with {len(told)} choices in all."]
    level = finding.facts["level"]
    return f"No order of versions is possible at {level}. {' '.join(shown)}", tuple(steps.values())


def _told_cycle(speaker: TxnSpeaker, cycle: list[dict[str, Any]], reasons: list[str]) -> str:
    if len(reasons) > _MOST_STEPS:
        more = len(reasons) - _MOST_STEPS
        reasons = [*reasons[: _MOST_STEPS - 1], f"and so on over {more} more", reasons[-1]]
    choices = {(*step["choice"], *step["key"]): step for step in cycle if step["choice"]}
    supposed = [
        f"{speaker.name(one)}'s write of {speaker.speaker.key(Key(*key))} comes before {speaker.name(other)}'s"
        for one, other, *key in choices
    ]
    if not supposed:
        return f"{opening('; '.join(reasons))}: a cycle."
    return f"If {' and '.join(supposed)}: {'; '.join(reasons)}, which is a cycle."


def _told_step(speaker: TxnSpeaker, step: dict[str, Any]) -> str:
    key = None if step["key"] is None else Key(*step["key"])
    source, target, reader = step["source"], step["target"], step["reader"]
    if source == target and key is not None:
        appended, where = ", ".join(speaker.written(source, key)), speaker.speaker.key(key)
        return f"{speaker.name(source)} appended {appended} to {where}, which were not seen one right behind the other"
    if reader < 0 or key is None:
        return _why(speaker, source, target, step["kind"], key)
    where = speaker.speaker.key(key)
    return (
        f"{speaker.name(reader)} saw {speaker.name(source)}, which wrote {where} too, and read there what "
        f"{speaker.name(target)} wrote"
    )


def _why(speaker: TxnSpeaker, source: int, target: int, kind: int, key: Key | None) -> str:
    one, other = speaker.name(source), speaker.name(target)
    if kind == PROCESS:
        return f"process {speaker.rows[source]['process']} ran {one} and then {other}"
    if kind == REALTIME:
        return f"{one} {speaker.speaker.ended(source)}, before {other} {speaker.speaker.began(target)}"
    assert key is not None
    where = speaker.speaker.key(key)
    if speaker.is_register(source, target, key):
        return _why_register(speaker, source, target, kind, key, where)
    if kind == WR:
        seen, end = speaker.read_of(target, source, key)
        return f"{other} read {seen} of {where}, whose last element {end} {one} appended"
    if kind == WW:
        first, then = speaker.written(source, key)[-1], speaker.written(target, key)[0]
        return f"{one} appended {first} to {where}, and {other} appended {then} after that"
    seen, last, missed = speaker.read_without(source, target, key)
    if last is None:
        return f"{one} read {where} while it was empty, and {other} appended {missed} to it"
    return f"{one} read {seen} of {where}, and {other} appended {missed} after {last}"


def _why_register(speaker: TxnSpeaker, source: int, target: int, kind: int, key: Key, where: str) -> str:
    one, other = speaker.name(source), speaker.name(target)
    if kind == WR:
        value = speaker.written(source, key)[-1]
        return f"{one} wrote {value} to {where}, and {other} read it"
    then = speaker.written(target, key)[-1]
    if kind == WW:
        first = speaker.written(source, key)[-1]
        return f"{one} wrote {first} to {where}, and {other} wrote {then}, which is a later version"
    seen = speaker.first_read(source, key)
    return f"{one} read {seen} from {where}, and {other} wrote {then}, which is a later version"


def _internal(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    done, read = speaker.history_in(op, finding.key, finding.facts["mop"])
    return (
        f"{speaker.began(op)} {done} and then read {read}, all of {speaker.speaker.key(finding.key)}. "
        "A transaction must read what it itself wrote or read of a key last."
    )


def _future_read(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    value = speaker.mop_value(op, finding.facts["mop"])
    verb = "wrote" if speaker.is_register(op, op, finding.key) else "appended"
    return (
        f"{speaker.began(op)} read {value} from {speaker.speaker.key(finding.key)} before it {verb} that. "
        "Nothing can be read before it is written."
    )


def _aborted(speaker: TxnSpeaker, finding: Finding) -> str:
    reader, writer = finding.ops[0], finding.ops[-1]
    values = ", ".join(speaker.seen_from(reader, writer, finding.key))
    return (
        f"{speaker.began(reader)} read {values} from {speaker.speaker.key(finding.key)}. "
        f"{speaker.began(writer)} wrote that and {speaker.speaker.failed(writer)}, so nobody may ever see it."
    )


def _intermediate(speaker: TxnSpeaker, finding: Finding) -> str:
    reader, writer = finding.ops[0], finding.ops[-1]
    written = speaker.written(writer, finding.key)
    return (
        f"{speaker.began(reader)} read a state of {speaker.speaker.key(finding.key)} that ends with "
        f"{speaker.last_seen(reader, writer, finding.key)}. {speaker.began(writer)} wrote {', '.join(written)} in one "
        "transaction, so only the last of these may be seen by others."
    )


def _dirty(speaker: TxnSpeaker, finding: Finding) -> str:
    aborted, later = finding.ops
    where = speaker.speaker.key(finding.key)
    written, built = (", ".join(speaker.written(index, finding.key)) for index in finding.ops)
    return (
        f"{speaker.began(aborted)} wrote {written} to {where} and {speaker.speaker.failed(aborted)}, yet "
        f"{speaker.began(later, upper=False)} built on it: its {built} comes behind it in what was read."
    )


def _lost(speaker: TxnSpeaker, finding: Finding) -> str:
    one, other = finding.ops
    where = speaker.speaker.key(finding.key)
    return (
        f"{speaker.began(one)} and {speaker.began(other, upper=False)} both read "
        f"{speaker.first_read(one, finding.key)} "
        f"from {where} and then wrote it ({', '.join(speaker.written(one, finding.key))} and "
        f"{', '.join(speaker.written(other, finding.key))}): one of them overwrote an update that it had not seen."
    )


def _duplicate(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    element, seen = speaker.duplicate(op, finding.key)
    return (
        f"{speaker.began(op)} read {seen} of {speaker.speaker.key(finding.key)}, where {element} comes twice. "
        "It was appended once."
    )


def _incompatible(speaker: TxnSpeaker, finding: Finding) -> str:
    reader, longest = finding.ops[0], finding.ops[-1]
    mine, other = speaker.clash(reader, longest, finding.key)
    return (
        f"{speaker.began(reader)} read {mine} of {speaker.speaker.key(finding.key)}, and "
        f"{speaker.began(longest, upper=False)} read {other}. Neither list is a prefix of the other, so no order of "
        "appends explains both."
    )


def _garbage(speaker: TxnSpeaker, finding: Finding) -> str:
    (op,) = finding.ops
    reads, where = speaker.reads(op, finding.key), speaker.speaker.key(finding.key)
    if any(mop["values"] is not None for mop in reads):
        found = f"read {speaker.first_read(op, finding.key)} of {where}, where at least one element"
        return f"{speaker.began(op)} {found} was never appended by any transaction of the history."
    shown = " and ".join(dict.fromkeys(speaker.read_shown(mop) for mop in reads))
    return f"{speaker.began(op)} read {shown} of {where}, which no transaction of the history wrote."


def _cyclic_versions(speaker: TxnSpeaker, finding: Finding) -> str:
    where, ops = speaker.speaker.key(finding.key), finding.ops
    if len(ops) == 1:
        stated = speaker.speaker.source.stated or speaker.speaker.source.versions
        besides = "" if stated is None else f" and their {stated}"
        return (
            f"What processes and transactions did one after the other{besides} gives the versions of {where} no order."
        )
    if len(ops) == 2:
        early, late = ops
        return (
            f"{speaker.began(early)} had {where} at {speaker.left_at(early, finding.key)} and had completed "
            f"before {speaker.began(late, upper=False)} found it unset again."
        )
    pairs = ((ops[0], ops[1]), (ops[2], ops[3]))
    told = [
        f"{speaker.began(done)} had {where} at {speaker.left_at(done, finding.key)} and had completed before "
        f"{speaker.began(late, upper=False)} had it at {speaker.found_at(late, finding.key)}"
        for done, late in pairs
    ]
    return f"{told[0]}. Yet {told[1][0].lower()}{told[1][1:]}: each of the two versions would have to be the older one."


_EXPLAIN: Final[dict[str, Explain]] = {
    "internal": _internal,
    "future-read": _future_read,
    "G1a": _aborted,
    "G1b": _intermediate,
    "dirty-update": _dirty,
    "lost-update": _lost,
    "duplicate-elements": _duplicate,
    "incompatible-order": _incompatible,
    "garbage-read": _garbage,
    **{f"cyclic-versions{order}": _cyclic_versions for order in ORDERS},
    "no-version-order": lambda speaker, finding: _several_cycles(speaker, finding)[0],
}
