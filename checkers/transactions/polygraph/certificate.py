"""Replays an order of transactions on a store, and says where it does not explain what a history shows.

The witness that a history is possible at a level is a sequence of numbers of its transactions, which count all of them
in order of invocation. Every committed transaction is in it, none that failed, and of unknown outcomes those that took
place. At `snapshot-isolation` and `prefix` each number stands there twice: where the transaction begins, and where it
commits. At all other levels it stands there once, and the sequence is the arbitration order AR of Cerone, Bernardi and
Gotsman (2015, section 3), by which versions of a key follow each other. What a transaction sees is not part of the
witness. It follows from the level (`TERMS`):

- all that comes before it (serializable, repeatable read), or has committed where it begins (SI, prefix);
- else the least that the axioms allow: whom it read from, whom the form puts before it, at levels with NOCONFLICT who
  wrote before it what it writes, at levels with TRANSVIS all that these saw. Seeing less never hurts: a read must find
  the last version among those that its transaction sees, and what is seen besides could only be later ones.

One pass over the sequence: each step costs as much as the transaction has micro-operations and the lists that it read
elements. Only where a transaction sees less than a prefix, its view is a row of bits, as long as the sequence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from checkers.columns.codes import FAIL, NEVER, OK


class ClientTransaction(NamedTuple):
    """A transaction as its client tells it; `complete` is NEVER where the outcome is unknown.

    Micro-operations are (whether it reads, key, value); a list that was read is a tuple, an unset register None.
    """

    process: int
    invoke: int
    complete: int
    outcome: int
    mops: tuple[tuple[bool, Hashable, Any], ...]


class Unexplained(NamedTuple):
    """The first step of an order that the history contradicts, -1 if the order as a whole does; and why."""

    step: int
    txn: int
    why: str


class Terms(NamedTuple):
    """What a level asks. `prefix`: who sees a transaction sees all that came before; else `seen` says whether it sees
    those that it read from at all (read committed asks nothing of what else is seen)."""

    prefix: bool = False
    split: bool = False  # it begins at one place of the order and commits at another
    seen: bool = True
    closed: bool = False  # TRANSVIS
    conflicts: bool = False  # NOCONFLICT
    internal: bool = True  # INT, of which Adya's levels know nothing


TERMS: Final[Mapping[str, Terms]] = {
    "read-committed": Terms(seen=False, internal=False),
    "read-atomic": Terms(),
    "causal-cerone": Terms(closed=True),
    "update-atomic": Terms(conflicts=True),
    "parallel-snapshot-isolation": Terms(closed=True, conflicts=True),
    "consistent-view": Terms(closed=True, conflicts=True, internal=False),
    "prefix": Terms(prefix=True, split=True),
    "snapshot-isolation": Terms(prefix=True, split=True, conflicts=True),
    "repeatable-read": Terms(prefix=True, internal=False),
    "serializable": Terms(prefix=True),
}


def first_fault(
    history: Sequence[ClientTransaction], lists: bool, level: str, form: int, order: Sequence[int]
) -> Unexplained | None:
    """Where an order fails to explain a history at a level of TERMS, None if it explains it.

    `form` is 0, or 1 if the sessions' order is asked for, 2 if real time is; a session is a process.
    """
    terms = TERMS[level]
    if fault := _miscounted(history, order, 2 if terms.split else 1):
        return fault
    store = _ReplayStore(history, lists, terms, form, order)
    for step, txn in enumerate(order):
        if why := store.take(step, txn):
            return Unexplained(step, txn, why)
    return None


def _miscounted(history: Sequence[ClientTransaction], order: Sequence[int], times: int) -> Unexplained | None:
    count = [0] * len(history)
    for txn in order:
        if not 0 <= txn < len(history):
            return Unexplained(-1, txn, "there is no such transaction")
        count[txn] += 1
    for txn, told in enumerate(history):
        wanted = {OK: (times,), FAIL: (0,)}.get(told.outcome, (0, times))
        if count[txn] not in wanted:
            return Unexplained(-1, txn, f"it is there {count[txn]} times")
    return None


class _FoundVersion(NamedTuple):
    """`value` is what was there before the transaction's own writes; `own` whether it had written there itself."""

    key: Hashable
    value: Any
    own: bool


class _Key:
    """The versions of a key, 0 its initial one: what each shows, and the steps at which they were committed."""

    __slots__ = ("elements", "lists", "numbers", "steps", "writers")

    def __init__(self, lists: bool) -> None:
        self.lists, self.writers = lists, 0
        self.elements: list[Any] = []
        self.steps = [-1]
        self.numbers: dict[Any, int] = {0 if lists else None: 0}

    def version(self, value: Any) -> int | None:
        """The number of the version that was read, None: there is none (yet)."""
        if not self.lists:
            return self.numbers.get(value)
        known = self.numbers.get(len(value))
        return known if known is not None and self.elements[: len(value)] == list(value) else None

    def install(self, written: list[Any], step: int) -> None:
        self.elements += written
        self.numbers[len(self.elements) if self.lists else written[-1]] = len(self.steps)
        self.steps.append(step)
        self.writers |= 1 << step


class _ReplayStore:
    """What was committed so far; see `first_fault`."""

    def __init__(
        self, history: Sequence[ClientTransaction], lists: bool, terms: Terms, form: int, order: Sequence[int]
    ) -> None:
        self.history, self.lists, self.terms, self.form = history, lists, terms, form
        self.keys: dict[Hashable, _Key] = defaultdict(lambda: _Key(lists))
        self.found: dict[int, dict[Hashable, int]] = {}  # by transaction under way the latest versions as it began
        self.begun: dict[int, int] = {}  # by session (or for all) the latest invocation of those that began
        self.views: list[int] = []  # by step what is seen there
        self.before = {} if terms.prefix or not terms.seen else _ordered_before(history, form, order)

    def take(self, step: int, txn: int) -> str | None:
        """The next step; why the history contradicts it, or None."""
        told, began = self.history[txn], txn in self.found
        if not began:
            session = told.process if self.form == 1 else -1
            self.begun[session] = max(self.begun.get(session, -1), told.invoke)
            if why := self._begin(step, txn, told):
                return why
        return None if self.terms.split and not began else self._commit(step, txn, told)

    def _begin(self, step: int, txn: int, told: ClientTransaction) -> str | None:
        writes = {key for reads, key, _ in told.mops if not reads}
        self.found[txn] = {key: self._latest(key) for key in writes}
        reads: list[tuple[_FoundVersion, int]] = []
        for read in _reads(told, self.lists):
            if read is None:
                if self.terms.internal:
                    return "a read does not find the transaction's own write"
                continue
            version = self.keys[read.key].version(read.value)
            if version is None:
                return f"{read.value} of {read.key} was read before it was committed"
            reads.append((read, version))
        return self._unseen(step, txn, reads) or self._torn(reads)

    def _torn(self, reads: list[tuple[_FoundVersion, int]]) -> str | None:
        """INT of reads before a transaction's own write: all of a key find one version."""
        versions = {read.key: version for read, version in reads}
        if self.terms.internal and any(versions[read.key] != version for read, version in reads):
            return "two reads of a key differ"
        return None

    def _unseen(self, step: int, txn: int, reads: list[tuple[_FoundVersion, int]]) -> str | None:
        """EXT: whether some read misses a version that its transaction sees."""
        if self.terms.prefix:
            late = (read.key for read, version in reads if version != self._latest(read.key))
            return next((f"a later version of {key} had been committed" for key in late), None)
        if not self.terms.seen:
            return None
        if self.before.get(txn, 0) >> step:
            return "one that had completed before its invocation comes later"
        view = self._view(txn, reads)
        self.views.append(view)
        for read, version in reads:
            key = self.keys[read.key]
            if (view & key.writers) >> (key.steps[version] + 1):
                return f"it sees a later version of {read.key}"
        return None

    def _view(self, txn: int, reads: list[tuple[_FoundVersion, int]]) -> int:
        """The steps that a transaction sees, as bits."""
        direct = self.before.get(txn, 0)
        for read, version in reads:
            if version:
                direct |= 1 << self.keys[read.key].steps[version]
        if self.terms.conflicts:
            for key in self.found[txn]:
                direct |= self.keys[key].writers
        if not self.terms.closed:
            return direct
        view = direct
        while direct:
            last = direct.bit_length() - 1
            view |= self.views[last]
            direct &= ~(self.views[last] | 1 << last)
        return view

    def _commit(self, step: int, txn: int, told: ClientTransaction) -> str | None:
        session = told.process if self.form == 1 else -1
        if self.form and told.complete != NEVER and told.complete < self.begun.get(session, -1):
            return "one that was invoked after its completion began before"
        for key, latest in self.found[txn].items():
            if self.terms.split and self.terms.conflicts and latest != self._latest(key):
                return f"{key} was written since it began"
        for read in _reads(told, self.lists):
            if read is not None and read.own and self.keys[read.key].version(read.value) != self._latest(read.key):
                return f"it read its own version of {read.key}, but others come before"
        for key in self.found[txn]:
            self.keys[key].install([value for reads, at, value in told.mops if not reads and at == key], step)
        return None

    def _latest(self, key: Hashable) -> int:
        return len(self.keys[key].steps) - 1


def _reads(told: ClientTransaction, lists: bool) -> Iterator[_FoundVersion | None]:
    """What the reads of a transaction say of others' writes; None for one that misses the transaction's own. Those of
    one whose outcome is unknown say nothing."""
    own: dict[Hashable, list[Any]] = defaultdict(list)
    for reads, key, value in told.mops if told.outcome == OK else ():
        if not reads:
            own[key].append(value)
        elif not own[key]:
            yield _FoundVersion(key, value, False)
        elif not lists:
            if value != own[key][-1]:
                yield None
        elif list(value[-len(own[key]) :]) != own[key]:
            yield None
        else:
            yield _FoundVersion(key, value[: -len(own[key])], True)


def _ordered_before(history: Sequence[ClientTransaction], form: int, order: Sequence[int]) -> dict[int, int]:
    """By transaction the steps of those that its form puts before it, as bits."""
    steps = {txn: step for step, txn in enumerate(order)}
    ends = sorted(
        (told.complete, 1, txn) for txn, told in enumerate(history) if txn in steps and told.complete != NEVER
    )
    starts = [(history[txn].invoke, 0, txn) for txn in steps]
    done: dict[int, int] = defaultdict(int)
    before = {}
    for _, ended, txn in sorted([*ends, *starts]) if form else ():
        session = history[txn].process if form == 1 else -1
        if ended:
            done[session] |= 1 << steps[txn]
        else:
            before[txn] = done[session]
    return before
