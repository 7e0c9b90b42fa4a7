"""The models of linearizable objects: locks and semaphores, queues, sets, strings and rows of registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from checkers.columns.codes import NEVER, NIL, UNSUPPORTED, Ints, history_value
from checkers.columns.dense import together
from checkers.columns.mops import ADDRESS, Columns, MopProjection, unsupported_rows
from checkers.columns.projection import KeyedOps
from checkers.engines.api import Engine
from checkers.engines.grouped import Sharing, judge_mops
from checkers.findings import Finding, Findings, Key, refuse_unsupported
from checkers.linearizability.driver import INVALID, UNDECIDED, VALID, Budget
from checkers.linearizability.objects.locks import RULES, build_locks
from checkers.linearizability.objects.multi_registers import build_rows
from checkers.linearizability.objects.object_columns import (
    ACQUIRE,
    ADD,
    APPEND,
    BAG,
    DEQUEUE,
    ENQUEUE,
    FADED,
    FIFO,
    GET,
    LOCK,
    MEMBERS,
    MUTEX,
    PUT,
    RELEASE,
    REMOVE,
    ROW,
    STRING,
    Built,
    C,
    ObjectOps,
    R,
    RegisterProjections,
    W,
    lowest,
    only,
    plainly,
    sorted_rows,
    without,
)
from checkers.linearizability.objects.object_search import StuckAt, explain_object, search_objects
from checkers.linearizability.objects.object_sentences import explain_all
from checkers.linearizability.objects.queue_order import judge_queues, what_is_wrong
from checkers.linearizability.objects.queues_and_sets import (
    ELEMENT,
    NIL_READ,
    build_mutex,
    build_queue,
    build_set,
    set_registers,
)
from checkers.linearizability.objects.strings import build_strings, string_registers
from checkers.linearizability.registers.refute_registers import RegisterKernel, decided_verdict
from checkers.options import CheckOptions, initial_setting, int_setting
from checkers.source import Interned, Source
from checkers.verdict import Verdict
from harness.errors import UserError

NONLINEARIZABLE: Final = "nonlinearizable"

EXPANDED: Final = 40
"""To judge objects takes at most 30 times what they take in a shuffle (`python -m bench task_memory`)."""

_NO_WORDS: Final = Interned()

_PLAIN_S: Final = 5.0
"""So long a search without looking ahead may take to say where an object gets stuck."""

_SHOWN: Final = 16
"""Configurations and operations that are reported of a stuck search at most."""

_MOST_ELEMENTS: Final = 64
"""Elements of a state, or registers of a row, that are reported."""


@dataclass(frozen=True, slots=True)
class ObjectModel:
    """What a model's histories are made of: its operations, in words, and how they are projected: as one operation of
    one object each (`single`), or else as transactions over any."""

    about: str
    projection: MopProjection


_LOCKS: Final = {"acquire": ACQUIRE, "release": RELEASE}
_QUEUE: Final = MopProjection({"enqueue": ENQUEUE, "dequeue": DEQUEUE}, keep_failed=False, single=True)

OBJECT_MODELS: Final[dict[str, ObjectModel]] = {
    "multi-register": ObjectModel(
        "a transaction of reads, writes and compare-and-sets of integers",
        MopProjection({"r": R, "w": W, "cas": C}, extras=("expected",), keep_failed=False),
    ),
    "mutex": ObjectModel(
        "an acquire or a release",
        MopProjection(_LOCKS, keep_failed=False, single=True),
    ),
    **dict.fromkeys(
        RULES,
        ObjectModel(
            "an acquire or a release", MopProjection(_LOCKS, extras=("session",), keep_failed=False, single=True)
        ),
    ),
    "causal-reverse": ObjectModel(
        "a write of one element or a read of all",
        MopProjection(
            {"w": ADD, "add": ADD, "r": NIL_READ}, list_kinds=(MEMBERS, ELEMENT), keep_failed=False, single=True
        ),
    ),
    "lin-set": ObjectModel(
        "an add or remove of one element or a read of all",
        MopProjection(
            {"add": ADD, "remove": REMOVE, "r": NIL_READ},
            list_kinds=(MEMBERS, ELEMENT),
            keep_failed=False,
            single=True,
        ),
    ),
    "lin-queue": ObjectModel("an enqueue or dequeue of one element", _QUEUE),
    "fifo-queue": ObjectModel("an enqueue or dequeue of one element", _QUEUE),
    "kv-append": ObjectModel(
        "a get, put or append of one string",
        MopProjection({"r": GET, "w": PUT, "append": APPEND}, keep_failed=False, single=True),
    ),
}


@dataclass(frozen=True, slots=True)
class ObjectKernel:
    """Judges many objects at once. `interned` are the history's interned values, which only strings need; `initial`
    is what the projection lets registers begin as, `permits` how many a semaphore has."""

    model: str
    explain: int
    budget: Budget
    interned: Interned = _NO_WORDS
    initial: int | None = None
    permits: int = 1
    _base: int = field(default=-(2**62) - 1)

    def __call__(self, rows: Columns) -> Findings:
        """Findings over all objects; nothing is judged if there are operations that the model does not know."""
        sorted_out = rows | {"kind": np.where(self._strange(rows), UNSUPPORTED, rows["kind"])}
        problems = unsupported_rows(sorted_out, f"not {OBJECT_MODELS[self.model].about}")
        if problems:
            return Findings(ops=len(np.unique(rows["invoke"])), unsupported=problems)
        count = len(np.unique(rows["invoke"]))
        return self.judged(rows).findings(count) if count else Findings()

    def judged(self, rows: Columns) -> ObjectJudgement:
        """What the kernel finds in rows that it knows all of, before it is made findings."""
        built, registers = self._built(sorted_rows(rows))
        found = ObjectJudgement(self, built)
        if registers is not None:
            found.project(registers)
        found.search()
        return found

    def _strange(self, rows: Columns) -> Any:
        if not OBJECT_MODELS[self.model].projection.single:
            return np.zeros(len(rows["kind"]), np.bool_)
        kind, nothing = rows["kind"], rows["value"] == NIL
        needs = np.isin(kind, (ENQUEUE, ADD, REMOVE, PUT, APPEND, ELEMENT)) & nothing
        needs |= (kind == ACQUIRE) & (rows["value"] != NIL) & (rows["value"] < 1) & (self.model == "semaphore")
        unknown = needs | ((rows["size"] != 1) & (kind != ELEMENT)) | ((kind == NIL_READ) & ~nothing)
        return unknown | self._said_alike(rows) if self.model == "kv-append" else unknown

    def _said_alike(self, rows: Columns) -> Any:
        """Which values are written as another of the same object is, such as 1 beside "1": no string is like that. Else
        a number is the string of its digits."""
        values, place = np.unique(rows["value"], return_inverse=True)
        codes: dict[str, int] = {}
        text = np.array([codes.setdefault(self._text(value), len(codes)) for value in values.tolist()], np.int64)
        if len(codes) == len(values):
            return np.zeros(len(place), np.bool_)
        said, count = together([rows[name] for name in ADDRESS] + [text[place]])
        return rows["value"] != lowest(said, rows["value"], count)[said]  # strings and the like are below all numbers

    def _built(self, rows: Columns) -> tuple[Built, RegisterProjections | None]:
        if self.model == "multi-register":
            return build_rows(rows)
        if self.model == "mutex":
            return build_mutex(rows), None
        if self.model in RULES:
            return build_locks(self.model, rows, self.permits), None
        if self.model in ("lin-set", "causal-reverse"):
            built = build_set(rows)
            return built, set_registers(built)
        if self.model == "kv-append":
            built, node_object = build_strings(rows, self._text)
            return built, string_registers(built, node_object)
        return build_queue(FIFO if self.model == "fifo-queue" else BAG, rows), None

    def _text(self, value: int) -> str:
        place, texts = self._base - value, self.interned.texts
        return texts[place] if 0 <= place < len(texts) else str(value)


@dataclass(slots=True)
class ObjectJudgement:
    """One call of the kernel: which objects are decided, and what was found."""

    kernel: ObjectKernel
    built: Built
    kept: list[Finding] = field(default_factory=list)
    answers: Any = None
    why: str | None = None
    searched: int = 0

    def project(self, registers: RegisterProjections) -> None:
        """Judge each register by itself: refutes its object, or decides it."""
        count = len(self.built.addresses)
        self.answers = np.full(count, UNDECIDED, np.uint8)
        budget = self.kernel.budget
        judge = RegisterKernel(
            max(1, self.kernel.explain),  # what refutes an object is looked for among what is kept
            Budget(budget.time_s / 4, budget.memory_bytes),
            registers.searched,
            self.kernel.initial,
        )
        found = judge(registers.keyed)
        if not found.undecided:
            self.answers[registers.decided] = VALID
        if found.counts:
            self._refute_registers(judge, registers)

    def _refute_registers(self, judge: RegisterKernel, registers: RegisterProjections) -> None:
        found: list[tuple[Finding, int]] = []
        by_object = np.argsort(registers.of, kind="stable")
        objects, begin = np.unique(registers.of[by_object], return_index=True)
        for object_number, mine in zip(objects.tolist(), np.split(by_object, begin[1:]), strict=True):
            one = judge(_part(registers, mine))
            if one.counts:
                self.answers[object_number] = INVALID
                found.append((min(one.kept, key=lambda finding: finding.order), object_number))
        found.sort(key=lambda pair: pair[0].order)
        self.kept += [self._register_finding(first, key) for first, key in found[: self.kernel.explain]]

    def _register_finding(self, first: Finding, key: int) -> Finding:
        """What refutes a register; if that is all of the object, with where the search is stuck, if it soon is."""
        facts = first.facts | {"register": list(first.key), "because": first.anomaly}
        ops = tuple(index for index in first.ops if index >= 0)
        alone, _ = only(self.built.ops, np.array([key]))
        stuck = None
        if alone.model != ROW:
            budget = replace(self.kernel.budget, time_s=_PLAIN_S / self.kernel.explain)
            stuck = explain_object(plainly(alone), budget, _SHOWN)
        if stuck is not None:
            facts |= self._stuck_facts(key, alone, stuck)
            ops = (facts["stuck"], *facts["open"], *facts["before"], *facts["changes"], *ops)
        return Finding(
            NONLINEARIZABLE, first.order, Key.of(self.built.addresses[key]), tuple(dict.fromkeys(ops)), facts
        )

    def search(self) -> None:
        """Decide all objects that are not decided yet: queues by their order, what is left by search."""
        count = len(self.built.ops.offsets) - 1
        if self.answers is None:
            self.answers = np.full(count, UNDECIDED, np.uint8)
        refuted: list[tuple[int, int]] = []
        if self.built.ops.model in (FIFO, BAG):
            self.answers, when = judge_queues(self.built.ops)
            refuted += [(int(when[key]), int(key)) for key in np.flatnonzero(self.answers == INVALID)]
        left = np.flatnonzero(self.answers == UNDECIDED)
        if len(left):
            ops, _ = only(self.built.ops, left)
            found = search_objects(ops, self.kernel.budget)
            self.answers[left] = found.answers
            self.why, self.searched = found.why, len(left)
            stuck = np.flatnonzero(found.answers == INVALID)
            refuted += [(int(ops.invoke[found.stuck[place]]), int(left[place])) for place in stuck]
        self.kept += [self._stuck_finding(key, order) for order, key in sorted(refuted)[: self.kernel.explain]]

        if self.kernel.model == "fenced-mutex":
            self._doubt_unfenced()

    def _doubt_unfenced(self) -> None:
        """Where acquires succeeded and none told a token, nothing of what tokens promise was compared."""
        ops = self.built.ops
        of = np.repeat(np.arange(len(self.answers)), np.diff(ops.offsets))
        done = (ops.kind == ACQUIRE) & (ops.complete != NEVER)
        silent = np.isin(np.arange(len(self.answers)), of[done]) & (self.answers == VALID)
        silent[of[done & (ops.locks.fence > 0)]] = False
        if silent.any():
            self.answers[silent] = UNDECIDED
            self.why = self.why or "no acquire told its token"

    def _stuck_finding(self, key: int, order: int) -> Finding:
        """Where the search is stuck with the few operations that refute a queue; else with all, if it gets there
        without looking ahead; else where looking ahead ended it."""
        ops, _ = only(self.built.ops, np.array([key]))
        wrong = what_is_wrong(ops) if ops.model in (FIFO, BAG) else None
        facts: dict[str, Any] = {}
        if wrong is not None:
            facts = {"pattern": wrong.pattern, "core": [int(ops.invoke[row]) for row in wrong.rows[:_SHOWN]]}
            others = np.ones(len(ops.kind), np.bool_)
            others[list(wrong.rows)] = False
            ops = without(ops, others)
        found = explain_object(plainly(ops), replace(self.kernel.budget, time_s=_PLAIN_S), _SHOWN)
        if found is None:
            facts["ahead"] = True
            found = explain_object(ops, self.kernel.budget, _SHOWN)
        shown = list(facts.get("core", []))
        if found is not None:
            facts |= self._stuck_facts(key, ops, found)
            shown = [facts["stuck"], *facts["open"], *facts["before"], *facts["changes"], *shown]
        return Finding(NONLINEARIZABLE, order, Key.of(self.built.addresses[key]), tuple(dict.fromkeys(shown)), facts)

    def _stuck_facts(self, key: int, ops: ObjectOps, found: StuckAt) -> dict[str, Any]:
        def named(rows: Sequence[int]) -> list[int]:
            return [int(ops.invoke[row]) for row in rows]

        return {
            "stuck": int(ops.invoke[found.row]),
            "open": named(found.open_rows[:_SHOWN]),
            "open_count": len(found.open_rows),
            "before": named(found.before[-_SHOWN:]),
            "changes": named(found.changes),
            "configurations": found.count,
            "states": [{"state": self._state(key, word), "done": named(done)[:_SHOWN]} for word, done in found.states],
        }

    def _state(self, key: int, word: tuple[int, ...]) -> Any:
        """A state to be told: a number, a string, members, or registers with their values."""
        built = self.built
        if built.ops.model == MUTEX:
            return word[0]
        if built.ops.model == LOCK:
            counted, owner = divmod(word[0], built.ops.locks.owners)
            return [built.values.get(owner), counted % (built.ops.locks.most + 1)]
        if built.ops.model == STRING:
            return built.nodes[word[0]] if word[0] else None
        if built.ops.model != ROW:
            return [built.values.get(symbol) for symbol in word[:_MOST_ELEMENTS]]
        first = int(built.ops.rows.width[:key].sum())
        cells = built.cells[first : first + min(len(word), _MOST_ELEMENTS)].tolist()
        return [[cell, self._value(symbol), symbol == FADED] for cell, symbol in zip(cells, word, strict=False)]

    def _value(self, symbol: int) -> int | None:
        """What a register that holds this symbol holds, as the history has it."""
        value = self.built.values.get(symbol)
        return history_value(NIL if value is None else value, self.kernel.initial)

    def findings(self, operations: int) -> Findings:
        """What is to be told."""
        refuted = int((self.answers == INVALID).sum())
        undecided = int((self.answers == UNDECIDED).sum())
        counts: Mapping[str, int] = {NONLINEARIZABLE: refuted} if refuted else {}
        why = (self.why,) if self.why and undecided else ()
        first = sorted(self.kept, key=lambda finding: finding.order)[: self.kernel.explain]
        return Findings(operations, len(self.answers), dict(counts), tuple(first), undecided, why, self.searched)


def _part(registers: RegisterProjections, keys: Ints) -> KeyedOps:
    """Some of the registers."""
    keyed = registers.keyed
    return KeyedOps(keyed.addresses[keys], keyed.columns.select(keys))


def judge_objects(model: str, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Linearizability of every object of the history, by search (`docs/checking.md`)."""
    about = OBJECT_MODELS[model]
    interned = source.interned if model == "kv-append" else _NO_WORDS
    initial = initial_setting(options)
    budget = Budget(options.time_limit_s, options.memory_mib << 20)
    permits = int_setting(options, "permits") or 1
    if permits < 1:
        raise UserError(f"-o permits takes a positive number, not {permits}.")
    kernel = ObjectKernel(model, options.explain, budget, interned, initial, permits)
    projection = replace(about.projection, initial=initial)
    keys = ADDRESS if about.projection.single else ()
    sharing = Sharing(expanded=EXPANDED, linked=not about.projection.single)
    found = judge_mops(engine, source, projection, keys, kernel, options.explain, sharing)
    refuse_unsupported(found, source.path, model)
    return decided_verdict(
        model, engine, found, explain_all(model, replace(source, initial=initial), found.kept), "objects"
    )
