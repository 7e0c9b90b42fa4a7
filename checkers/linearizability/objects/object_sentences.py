"""Why no order of an object's operations is right, in words: what was stuck, in which states, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkers.explain.speaker import Speaker, key_in, listed, opening
from checkers.findings import Finding, Key
from checkers.linearizability.objects.locks import RULES
from checkers.linearizability.objects.queue_order import COVERED, MISSING, OVERTAKEN, STUCK_IN
from checkers.source import Source
from checkers.verdict import Anomaly

_NAMED: Final = 4
_NAMED_IN_STATE: Final = 16
"""Operations or states that are named in a sentence at most."""

_CORE: Final = 8
"""Operations that are named in a sentence at most where each of them counts."""


def explain_all(model: str, source: Source, findings: Sequence[Finding]) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations; reads just those operations from the source."""
    rows = source.operations([index for finding in findings for index in finding.ops])
    told = _Teller("lin-set" if model == "causal-reverse" else model, Speaker(source, rows))
    explained: dict[str, tuple[Anomaly, ...]] = {}
    for finding in findings:
        explained[finding.anomaly] = (*explained.get(finding.anomaly, ()), told.anomaly(finding))
    return explained


class _Teller:
    """Tells findings of one model."""

    def __init__(self, model: str, speaker: Speaker) -> None:
        self._model = model
        self._speaker = speaker

    def anomaly(self, finding: Finding) -> Anomaly:
        rows = self._speaker.rows
        ops = tuple(rows[index] for index in dict.fromkeys(finding.ops) if index in rows)
        said = [self._pattern(finding)] if "pattern" in finding.facts else []
        if "because" in finding.facts and self._model == "multi-register":
            return Anomaly(self._of_register(finding), self._key(finding), ops)
        if "because" in finding.facts and "states" not in finding.facts:
            return Anomaly(self._of_reads(finding), self._key(finding), ops)
        if "states" not in finding.facts:
            said = said or [f"No order of the operations on {self._where(finding)} is right."]
            said.append("The search was not repeated to say where it got stuck.")
            return Anomaly(" ".join(said), self._key(finding), ops)
        said.append(self._stuck(finding))
        return Anomaly(" ".join(said), self._key(finding), ops, details=self._details(finding))

    def _key(self, finding: Finding) -> Any:
        return self._speaker.source.shown_key(finding.key)

    def _where(self, finding: Finding) -> str:
        return self._speaker.key(finding.key)

    def _noun(self, index: int) -> str:
        """`process 1's enqueue of 18`."""
        row = self._speaker.rows[index]
        who = f"process {row['process']}'s"
        if self._model == "multi-register":
            return f"{who} transaction {self._mops(row)}"
        mop = row["mops"][0]
        name = {"r": "get" if self._model == "kv-append" else "read", "w": "put"}.get(mop["f"], mop["f"])
        if name in ("acquire", "release"):
            value = mop["value"] if row["type"] == "ok" else None
            of = {"semaphore": "permits: ", "fenced-mutex": "token "}.get(self._model) if value is not None else None
            return f"{who} {name}" + (f" ({of}{value})" if of else "")
        if mop["values"] is not None:
            return f"{who} read of {self._set(mop['values'])}"
        if mop["value"] is None:
            nothing = {"dequeue": "nothing", "get": "nothing", "read": "no elements"}
            unknown = row["type"] == "info" and name == "dequeue"
            return f"{who} {name} of {'an unknown element' if unknown else nothing.get(name, 'nil')}"
        return f"{who} {name} of {self._shown(mop['value'])}"

    def _shown(self, value: int | None) -> str:
        text = self._speaker.source.shown(value)
        return f'"{_shortened(text)}"' if self._model == "kv-append" else text

    def _set(self, values: Sequence[int | None]) -> str:
        shown = [self._shown(value) for value in values[:16]]
        return "{" + ", ".join(shown) + (", …" if len(values) > 16 else "") + "}"

    def _mops(self, row: Mapping[str, Any]) -> str:
        return "[" + ", ".join(self._mop(mop) for mop in row["mops"][:8]) + "]"

    def _mop(self, mop: Mapping[str, Any]) -> str:
        where = self._speaker.key(key_in(mop))
        value, expected = self._shown(mop["value"]), self._shown(mop["expected"])
        return {"r": f"reads {value} of {where}", "w": f"writes {value} to {where}"}.get(
            mop["f"], f"changes {where} from {expected} to {value}"
        )

    def _of_register(self, finding: Finding) -> str:
        register = self._speaker.key(Key(*finding.facts["register"]))
        ops = [self._noun(index) for index in dict.fromkeys(finding.ops) if index >= 0]
        return (
            f"Already by itself {register} is not linearizable: {finding.facts['because']}, shown by "
            f"{listed(ops[:_NAMED], len(ops) - len(ops[:_NAMED]))}.{self._hint(finding)}"
        )

    def _hint(self, finding: Finding) -> str:
        """Of a register that showed 0 before anybody wrote it."""
        if finding.facts["because"] != "read-of-unwritten":
            return ""
        mops = [mop for mop in self._speaker.rows[finding.ops[0]]["mops"] if mop["f"] in ("r", "cas")]
        shown = {mop["expected" if mop["f"] == "cas" else "value"] for mop in mops}
        return self._speaker.initially(0) if 0 in shown else ""

    def _of_reads(self, finding: Finding) -> str:
        what = "One element" if self._model == "lin-set" else "The string"
        shown, where = self._listed(finding.ops), self._where(finding)
        return f"{what} of {where} can't have changed as was seen: {finding.facts['because']}, shown by {shown}."

    def _pattern(self, finding: Finding) -> str:
        """What is wrong with a queue, without states."""
        core = [int(index) for index in finding.facts["core"]]
        told = {
            MISSING: self._missing,
            OVERTAKEN: self._overtaken,
            STUCK_IN: self._short_of_takes,
            COVERED: self._covered,
        }
        return told[finding.facts["pattern"]](core, f"the queue of {self._where(finding)}")

    def _missing(self, core: list[int], queue: str) -> str:
        element = self._shown(self._speaker.rows[core[0]]["mops"][0]["value"])
        puts = [index for index in core[1:] if self._f(index) == "enqueue"]
        gets = [index for index in core[1:] if self._f(index) == "dequeue"]
        first = f"{opening(self._noun(core[0]))} took from {queue} what was not in"
        moment = f"when it completed at {self._speaker.when(core[0], 'complete')}"
        if not puts:
            return f"{first}: {moment}, no enqueue of {element} had begun."
        came = f"{element} had been put in only by {self._listed(puts)}"
        return f"{first}: {moment}, {came}" + (f", and taken out by {self._listed(gets)}." if gets else ".")

    def _overtaken(self, core: list[int], queue: str) -> str:
        early, late, out, *rest = core
        said = self._speaker
        one, other = (self._shown(said.rows[index]["mops"][0]["value"]) for index in (early, late))
        first = f"{opening(queue)} is not first in, first out: {one} was put in before {other}"
        order = f"{self._noun(early)} {said.ended(early)}, before {self._noun(late)} {said.began(late)}"
        if not rest:
            return f"{first} ({order}), but {self._noun(out)} took {other} out, and {one} never came out."
        left = f"{self._noun(out)} {said.ended(out)}, before {self._noun(rest[0])} {said.began(rest[0])}"
        return f"{first} ({order}), but {other} came out before {one} ({left})."

    def _short_of_takes(self, core: list[int], queue: str) -> str:
        takes = [index for index in core if self._is_take(index)]
        shown = [index for index in core if self._f(index) == "dequeue" and index not in takes]
        known = {self._speaker.rows[index]["mops"][0]["value"] for index in shown}
        puts = [index for index in core if self._f(index) == "enqueue"]
        due = [index for index in puts if self._speaker.rows[index]["mops"][0]["value"] not in known]
        many = f"only {len(takes)} dequeue{'s' if len(takes) > 1 else ''} of unknown outcome could have taken them"
        why = f"nobody returned what {self._listed(due)} put into {queue}, and {many}"
        return f"{opening(self._listed(shown))} came too early: {why}." if shown else f"{opening(why)}."

    def _covered(self, core: list[int], queue: str) -> str:
        look, said = core[0], self._speaker
        ran = f"from {said.when(look, 'invoke')} to {said.when(look, 'complete')}"
        times = []
        for index in core[1:]:
            took = self._f(index) == "dequeue"
            times.append(f"{self._noun(index)} {said.began(index) if took else said.ended(index)}")
        inside = f"something was in all that time: {listed(times[:_CORE], len(times) - len(times[:_CORE]))}"
        return f"{opening(self._noun(look))} found {queue} empty {ran}, yet {inside}."

    def _listed(self, indices: Sequence[int]) -> str:
        nouns = [self._noun(index) for index in indices if index in self._speaker.rows]
        return listed(nouns[:_NAMED], len(nouns) - len(nouns[:_NAMED]))

    def _f(self, index: int) -> str:
        return str(self._speaker.rows[index]["mops"][0]["f"])

    def _is_take(self, index: int) -> bool:
        return self._f(index) == "dequeue" and self._speaker.rows[index]["type"] == "info"

    def _stuck(self, finding: Finding) -> str:
        facts, stuck = finding.facts, int(finding.facts["stuck"])
        alone = "of these operations" if "pattern" in facts else "of the operations"
        where = "" if self._model == "multi-register" else f" ({self._where(finding)})"
        first = f"{opening(self._noun(stuck))}{where} fits into no order {alone}."
        states = list(dict.fromkeys(self._state(state["state"]) for state in facts["states"]))
        more = facts["configurations"] > len(facts["states"])
        could = " or ".join(states[:_NAMED]) + (" or others" if more or len(states) > _NAMED else "")
        second = f"When it completed at {self._speaker.when(stuck, 'complete')}, {self._thing()} could only be {could}"
        if facts["changes"]:
            last = "change to complete" if len(facts["changes"]) == 1 else "changes to complete"
            second += f" (the last {last} before: {self._listed(facts['changes'])})"
        why = self._why(finding, facts["states"][0]["state"]) if len(states) == 1 else ""
        if not facts["open"]:
            return f"{first} {second}, and no other operation was open" + (f": {why}." if why else ".")
        opened = [self._noun(index) for index in facts["open"]]
        others = listed(opened[:_NAMED], facts["open_count"] - len(opened[:_NAMED]))
        said = f"{first} {second}" + (f": {why}" if why else "")
        return f"{said}. Nor does it fit after what was open with it ({others}), in any order."

    def _thing(self) -> str:
        things = {
            **dict.fromkeys(RULES, "lock"),
            "semaphore": "semaphore",
            "mutex": "lock",
            "fifo-queue": "queue",
            "lin-queue": "queue",
            "lin-set": "set",
        }
        return f"the {things.get(self._model, 'value')}" if self._model != "multi-register" else "the registers"

    def _state(self, state: Any) -> str:
        """`held`, `[3, 4]`, `{1, 2}`, `"x y"`, `key :x = 1 and key :y = 2`."""
        if self._model == "mutex":
            return "held" if state else "free"
        if self._model == "semaphore":
            return f"without {state[1]} of its permits" if state[1] else "with all its permits"
        if self._model in RULES:
            return _held(*state)
        if self._model == "kv-append":
            return "a string that no get returns" if state is None else f'"{_shortened(state)}"'
        if self._model == "multi-register":
            cells = [(self._speaker.key(Key(*cell)), self._cell(value, gone)) for cell, value, gone in state[:8]]
            return listed([f"{name} = {value}" for name, value in sorted(cells)])
        unseen = "an element that no read shows" if self._model == "lin-set" else "an element that nobody returns"
        shown = [self._shown(value) if value is not None else unseen for value in state[:_NAMED_IN_STATE]]
        shown += [f"… {len(state) - len(shown):,} more"] if len(state) > len(shown) else []
        if not shown:
            return "empty"
        return ("[{}]" if self._model == "fifo-queue" else "{{{}}}").format(", ".join(shown))

    def _cell(self, value: int | None, gone: bool) -> str:
        return "what nobody reads" if gone else self._shown(value)

    def _why(self, finding: Finding, state: Any) -> str:
        """Why the stuck operation can't be next in a state."""
        index = int(finding.facts["stuck"])
        row, shown = self._speaker.rows[index], self._state(state)
        mop = row["mops"][0]
        if self._model in RULES:
            return self._why_lock(mop["f"] == "acquire", state)
        if mop["f"] == "acquire":
            return "a lock that is held can't be acquired"
        if mop["f"] == "release":
            return "a lock that is free can't be released"
        if mop["f"] == "dequeue" and mop["value"] is None:
            return f"a dequeue finds nothing only in an empty queue, and this one is {shown}"
        if mop["f"] == "dequeue":
            place = "at the head" if self._model == "fifo-queue" else "in the queue"
            return f"{self._shown(mop['value'])} has to be {place}, and the queue is {shown}"
        if mop["f"] in ("enqueue", "add", "append", "remove") or (mop["f"] == "w" and self._model == "kv-append"):
            return f"what operations that begin later see can't come of it when {self._thing()} is {shown}"
        if self._model == "lin-set":
            return self._why_members(mop["values"] or (), state)
        if self._model == "multi-register":
            return self._why_registers(row["mops"], state)
        return f"the get returned {self._shown(mop['value']) if mop['value'] is not None else 'nothing'}"

    def _why_lock(self, acquires: bool, state: Sequence[Any]) -> str:
        if self._model == "semaphore":
            return "more permits were not free" if acquires else "more permits were not taken"
        if not acquires:
            return "only who holds a lock can release it"
        return "a lock that is held can't be acquired" if state[1] else "a token has to be higher than those before it"

    def _why_members(self, seen: Sequence[int], state: Sequence[int | None]) -> str:
        unexpected = [self._shown(value) for value in seen if value not in state]
        missed = [self._shown(value) if value is not None else "something" for value in state if value not in seen]
        parts = (
            [f"it shows {listed(unexpected[:_NAMED], len(unexpected) - _NAMED)} that was not in"] if unexpected else []
        )
        parts += [f"it does not show {listed(missed[:_NAMED], len(missed) - _NAMED)} that was in"] if missed else []
        twice = [self._shown(value) for value, times in Counter(seen).items() if times > 1]
        parts += [f"it shows {listed(twice[:_NAMED], len(twice) - _NAMED)} more than once"] if twice else []
        return " and ".join(parts)

    def _why_registers(self, mops: Sequence[Mapping[str, Any]], state: Sequence[Any]) -> str:
        held = {Key(*cell): self._cell(value, gone) for cell, value, gone in state}
        wrong = []
        for mop in mops:
            cell = key_in(mop)
            wanted = self._shown(mop["value"] if mop["f"] == "r" else mop["expected"])
            if mop["f"] != "w" and held.get(cell, wanted) != wanted:
                wrong.append(f"{wanted} in {self._speaker.key(cell)}, which has {held[cell]}")
            if mop["f"] != "r":
                held[cell] = self._shown(mop["value"])
        return f"it found {listed(wrong[:_NAMED])}" if wrong else "it does not fit there"

    def _details(self, finding: Finding) -> dict[str, Any]:
        facts, rows = finding.facts, self._speaker.rows
        stuck = int(facts["stuck"])
        states = []
        for found in facts["states"]:
            done = [rows[index]["op"] for index in found["done"] if index in rows]
            why = self._why_none(finding, found)
            states.append({"state": self._state(found["state"]), "done": done, "why": why})
        return {
            "stuck": rows[stuck]["op"],
            "before": [rows[index]["op"] for index in facts["before"] if index in rows],
            "open": [rows[index]["op"] for index in facts["open"] if index in rows],
            "states": states,
            "configurations": facts["configurations"],
        }

    def _why_none(self, finding: Finding, found: Mapping[str, Any]) -> str:
        left = [index for index in finding.facts["open"] if index not in found["done"]]
        why = self._why(finding, found["state"])
        if not left:
            return f"{why}, and nothing else is open"
        return f"{why}, and {self._listed(left)} can't be put before it so that it fits"


def _held(session: int | None, count: int) -> str:
    """By whom a lock is held; a session below 0 is a process."""
    if session is None or not count:
        return "free"
    by = f"process {-1 - session}" if session < 0 else f"session {session}"
    return f"held by {by}" + (f", {count} times" if count > 1 else "")


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:30]}…{text[-40:]}"
