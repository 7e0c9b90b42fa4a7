"""Why no order of an object's operations is right, in words: what was stuck, in which states, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkers.findings import Finding
from checkers.source import Source
from checkers.verdict import Anomaly
from checkers.words import Speaker, listed

_NAMED: Final = 4
"""So many operations or states are named in a sentence."""


def explain_all(model: str, source: Source, findings: Sequence[Finding]) -> dict[str, tuple[Anomaly, ...]]:
    """Every finding as an anomaly with its operations; reads just those operations from the source."""
    rows = source.operations([index for finding in findings for index in finding.ops])
    told = _Teller(model, Speaker(source, rows))
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
        if "because" in finding.facts:
            return Anomaly(self._of_register(finding), self._key(finding), ops)
        if "states" not in finding.facts:
            first = f"No order of the operations allows {self._noun(finding.order)} of {self._where(finding)}."
            return Anomaly(f"{first} The search was not repeated to say where it got stuck.", self._key(finding), ops)
        return Anomaly(self._stuck(finding), self._key(finding), ops, details=self._details(finding))

    def _key(self, finding: Finding) -> Any:
        table, partition, row, column = finding.key
        shown = self._speaker.source.shown(partition)
        if shown != str(partition):
            return shown
        return partition if (table, row, column) == (0, 0, 0) else list(finding.key)

    def _where(self, finding: Finding) -> str:
        return self._speaker.key(finding.key)

    def _noun(self, index: int) -> str:
        """`process 1's enqueue of 18`."""
        row = self._speaker.rows[index]
        who = f"process {row['process']}'s"
        if self._model == "multi-register":
            return f"{who} transaction {self._mops(row)}"
        mop = row["mops"][0]
        name = {"r": "read", "w": "put"}.get(mop["f"], mop["f"])
        if name in ("acquire", "release"):
            return f"{who} {name}"
        if mop["values"] is not None:
            return f"{who} read of {self._set(mop['values'])}"
        if mop["value"] is None:
            nothing = {"dequeue": "nothing", "read": "no elements" if self._model == "lin-set" else "nothing"}
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
        where = self._speaker.key((mop["table"], mop["partition"], mop["row"], mop["column"]))
        value, expected = self._shown(mop["value"]), self._shown(mop["expected"])
        return {"r": f"reads {value} of {where}", "w": f"writes {value} to {where}"}.get(
            mop["f"], f"changes {where} from {expected} to {value}"
        )

    def _of_register(self, finding: Finding) -> str:
        register = self._speaker.key(_as_key(finding.facts["register"]))
        ops = [self._noun(index) for index in dict.fromkeys(finding.ops) if index >= 0]
        return (
            f"Already by itself {register} is not linearizable: {finding.facts['because']}, shown by "
            f"{listed(ops[:_NAMED], len(ops) - len(ops[:_NAMED]))}."
        )

    def _stuck(self, finding: Finding) -> str:
        facts, stuck = finding.facts, int(finding.facts["stuck"])
        first = f"{_upper(self._noun(stuck))} of {self._where(finding)} fits into no order of the operations."
        states = list(dict.fromkeys(self._state(state["state"]) for state in facts["states"]))
        more = facts["configurations"] > len(facts["states"])
        could = " or ".join(states[:_NAMED]) + (" or others" if more or len(states) > _NAMED else "")
        moment = self._speaker.when(stuck, "complete")
        second = f"When it completed at {moment}, {self._thing(finding)} could only be {could}"
        opened = [self._noun(index) for index in facts["open"]]
        if not opened:
            return f"{first} {second}, and no other operation was open: {self._why(stuck, states[0])}."
        others = listed(opened[:_NAMED], facts["open_count"] - len(opened[:_NAMED]))
        return f"{first} {second}, and no order of what was open with it ({others}) makes room for it."

    def _thing(self, finding: Finding) -> str:
        things = {"mutex": "lock", "fifo-queue": "queue", "lin-queue": "queue", "lin-set": "set"}
        return f"the {things.get(self._model, 'value')} of {self._where(finding)}"

    def _state(self, state: Any) -> str:
        """`held`, `[3, 4]`, `{1, 2}`, `"x y"`."""
        if self._model == "mutex":
            return "held" if state else "free"
        if self._model == "kv-append":
            return "a string that nobody reads" if state is None else f'"{_shortened(state)}"'
        if self._model == "multi-register":
            return "(" + ", ".join(self._shown(value) for value in state) + ")"
        shown = [self._shown(value) if value is not None else "an element nobody returns" for value in state]
        if not shown:
            return "empty"
        return ("[{}]" if self._model == "fifo-queue" else "{{{}}}").format(", ".join(shown))

    def _why(self, index: int, state: str) -> str:
        """Why an operation can't be next."""
        row = self._speaker.rows[index]
        f = row["mops"][0]["f"]
        if f == "acquire":
            return "a lock that is held can't be acquired"
        if f == "release":
            return "a lock that is free can't be released"
        if f == "dequeue" and self._model == "fifo-queue":
            return f"{self._noun(index)} needs it to be at the head, and the queue is {state}"
        if f == "dequeue":
            return f"{self._noun(index)} needs it to be there, and the queue is {state}"
        if f in ("enqueue", "add", "append", "w", "remove"):
            return f"what is seen later rules out {self._noun(index)} when it is {state}"
        return f"{self._noun(index)} does not see {state}"

    def _details(self, finding: Finding) -> dict[str, Any]:
        facts, rows = finding.facts, self._speaker.rows
        stuck = int(facts["stuck"])
        states = []
        for found in facts["states"]:
            state = self._state(found["state"])
            done = [rows[index]["op"] for index in found["done"] if index in rows]
            states.append({"state": state, "done": done, "why": self._why_none(stuck, state, facts, found)})
        return {
            "stuck": rows[stuck]["op"],
            "before": [rows[index]["op"] for index in facts["before"] if index in rows],
            "open": [rows[index]["op"] for index in facts["open"] if index in rows],
            "states": states,
            "configurations": facts["configurations"],
        }

    def _why_none(self, stuck: int, state: str, facts: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        left = [index for index in facts["open"] if index not in found["done"]]
        why = self._why(stuck, state)
        if not left:
            return f"{why}, and nothing else is open"
        others = listed([self._noun(index) for index in left[:_NAMED]], len(left) - len(left[:_NAMED]))
        return f"{why}, and {others} can't be put before it so that it fits"


def _as_key(parts: Sequence[int]) -> tuple[int, int, int, int]:
    table, partition, row, column = parts
    return table, partition, row, column


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:30]}…{text[-40:]}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
