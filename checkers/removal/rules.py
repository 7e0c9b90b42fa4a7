"""What may be left out of the histories of each model: never what makes a valid one invalid.

A rule names what units make and want (`checkers.removal.needs`); why that keeps valid histories valid stands with it.
What it says nothing of can always be left out: a read, what failed, an event of the nemesis. With most models the end
can be cut off too: what is under way there becomes an operation of unknown outcome, and each prefix of a valid history
is valid. `docs/design/reproduce.md` has the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import FAIL, INFO, NEVER, NIL, OK, Bools, Ints
from checkers.columns.dense import spread
from checkers.columns.graph import unite
from checkers.linearizability.judge_etcd import requests_of
from checkers.linearizability.own_model.calls import calls_of
from checkers.linearizability.own_model.child import ChildQuestion, answer_of
from checkers.linearizability.own_model.own_graph import OwnGraph
from checkers.linearizability.own_model.search_own import partitions_of
from checkers.options import CheckOptions
from checkers.removal.needs import Needs, NeedsOf
from checkers.removal.units import Units, digest, places_of
from checkers.source import Source
from checkers.transactions.lattice import DEFAULT_CONSISTENCY, friendly_name
from checkers.transactions.polygraph.conditions import CAUSAL, CONDITIONS, SEEN, UPDATES

_READS: Final = ("r", "read", "get")
_WRITES: Final = ("w", "write", "put", "append", "add", "cas")

(
    _ALL,
    _NOTHING,
    _ELEMENT,
    _LAST,
    _UNKNOWN,
    _FEED,
    _VALUE,
    _OPERATION,
    _OWNER,
    _WITNESS,
    _SIGHT,
    _NAME,
    _TABLE,
    _TABLET,
) = range(14)
"""What items are about; the first part of their digests."""


@dataclass(frozen=True, slots=True)
class JudgedHistory:
    """A history whose rule is asked for, and how it is judged."""

    source: Source
    units: Units
    model: str
    options: CheckOptions

    @property
    def failed_cas_observed(self) -> bool:
        """Whether a failed compare-and-set says that it found another value."""
        return (self.options.failed_cas or self.source.failed_cas) == "observed"


@dataclass(frozen=True, slots=True)
class Removal:
    """The rule of a model: its `words`, what `needs` what, and whether its `end` can be cut off (not with `until_final`
    where any read is marked as final)."""

    words: str
    collect: Callable[[JudgedHistory, NeedsOf], None]
    end: bool = True
    until_final: bool = False

    def ends(self, units: Units) -> bool:
        """Whether the end of a history can be cut off."""
        return self.end and not (self.until_final and units.operations.final.any())

    def needs(self, asked: JudgedHistory) -> Needs:
        """What the units of the history need."""
        needs = NeedsOf(asked.units)
        self.collect(asked, needs)
        return needs.done()


# ---- whole histories, whole objects ----


def _nothing(asked: JudgedHistory, needs: NeedsOf) -> None:
    needs.tie(np.ones(len(asked.units), np.bool_), digest(_ALL))


def _anything(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Each operation is right or wrong by itself, or beside one other that succeeded."""
    _whole_operations(asked.units, needs)


def _whole_operations(units: Units, needs: NeedsOf) -> None:
    needs.tie(~units.bare, digest(_OPERATION, units.op))


def _strings(asked: JudgedHistory, needs: NeedsOf) -> None:
    """A get shows the last put before it, with all that was appended since. Of a put that began when every change begun
    before it had ended, nobody who begins after it sees what was there before; so a get wants what began from the last
    such put on that ended before the get began, until the get ended. What is of unknown outcome may take effect at any
    time after, so all that later gets want it. Changes want those before them, which says the same in fewer pairs."""
    units = asked.units
    changes = units.client & (units.outcome != FAIL) & ~units.called(*_READS)
    rows = np.flatnonzero(changes | (units.done & units.called(*_READS)))
    cell = units.cell()[rows]
    order = np.argsort(cell, kind="stable")
    for mine in np.split(rows[order], np.flatnonzero(np.diff(cell[order])) + 1) if len(rows) else ():
        complete = units.operations.complete[units.op[mine]]
        known, changed = complete != NEVER, changes[mine]
        gets = mine[~changed]
        _want_since_put(units, needs, mine[changed & known], gets)
        loose = mine[changed & ~known]
        _chain(needs, loose, np.zeros(len(loose), np.bool_))
        _want_begun(units, needs, loose, gets)


def _want_since_put(units: Units, needs: NeedsOf, changed: Ints, gets: Ints) -> None:
    """Gets want what was done to their string, of known outcomes, as far as they can have seen it."""
    invoke, complete = units.operations.invoke[units.op], units.operations.complete[units.op]
    ended = np.maximum.accumulate(np.concatenate(([-1], complete[changed])))[:-1]
    anew = units.called("w", "write", "put")[changed] & (ended < invoke[changed])
    _chain(needs, changed, anew)
    _want_begun(units, needs, changed, gets)
    puts = np.flatnonzero(anew)
    for get in gets.tolist():
        # A put that the get overlaps may come after it: then it shows what was there before.
        last = int(np.searchsorted(complete[changed[puts]], invoke[get]))
        beyond = puts[last : np.searchsorted(invoke[changed[puts]], complete[get])]
        before = changed[beyond[beyond > 0] - 1]
        needs.pairs(wanted=(np.full(len(before), get), digest(_OPERATION, before)))


def _chain(needs: NeedsOf, made: Ints, anew: Bools) -> None:
    """Each of these units is wanted by the next one, unless that begins anew."""
    needs.pairs(made=(made, digest(_OPERATION, made)))
    after = np.flatnonzero(~anew[1:]) + 1
    needs.pairs(wanted=(made[after], digest(_OPERATION, made[after - 1])))


def _want_begun(units: Units, needs: NeedsOf, made: Ints, seeing: Ints) -> None:
    """Each unit that sees something wants the last of the others, in their order, that had begun when it ended."""
    last = np.searchsorted(units.operations.invoke[units.op[made]], units.operations.ended[units.op[seeing]]) - 1
    any_begun = last >= 0
    needs.pairs(wanted=(seeing[any_begun], digest(_OPERATION, made[last[any_begun]])))


_GIVES: Final = ("acquire", "add", "inc", "increment")
_TAKES: Final = ("release", "dec", "decrement", "sub", "subtract")
_MOST_SUMMED: Final = 1 << 31
"""Larger amounts are not summed."""


def _sums(asked: JudgedHistory, needs: NeedsOf) -> None:
    """What was done to an object between two moments at which nobody is at work on it, and as much had been added as
    taken away, may as well not have been: who comes later finds the object as it was. All else is wanted by whoever
    comes later.

    Of locks and single permits this is so even if changes of unknown outcome, which all that come later want, took
    effect meanwhile: they lead from one number of permits to the other, and do so in some order without ever taking one
    that is not there. Of other amounts, and of sums that reads show, it is not so after such a change.
    """
    units, complete = asked.units, asked.units.operations.complete
    reads = units.called(*_READS)
    sign = units.called(*_GIVES).astype(np.int64) - units.called(*_TAKES)
    amount = np.where((units.value == NIL) | (asked.model == "mutex"), 1, units.value)
    rows = np.flatnonzero(units.client & (units.outcome != FAIL) & (~reads | (units.outcome == OK)))
    cell = units.cell()[rows]
    order = np.argsort(cell, kind="stable")
    for mine in np.split(rows[order], np.flatnonzero(np.diff(cell[order])) + 1) if len(rows) else ():
        done = _OfObject(mine, complete[units.op[mine]], reads[mine], sign[mine], amount[mine])
        _in_blocks(asked, needs, done)


class _OfObject(NamedTuple):
    """What was done to one object: units, the events at which they ended (NEVER: the outcome is unknown), whether they
    read, and what they add or take."""

    unit: Ints
    ended: Ints
    reads: Bools
    sign: Ints
    amount: Ints


def _in_blocks(asked: JudgedHistory, needs: NeedsOf, done: _OfObject) -> None:
    """Needs of one object's units: those of a block together, with what lasts of the blocks before."""
    units, unit, reads = asked.units, done.unit, done.reads
    known = done.ended != NEVER
    summed = bool((reads | (done.sign != 0) & (np.abs(done.amount) < _MOST_SUMMED)).all())
    single = summed and asked.model in ("mutex", "semaphore") and bool((done.amount == 1).all())
    loose = ~known & single
    invoke = units.operations.invoke[units.op[unit]]
    quiet = np.maximum.accumulate(np.where(loose, -1, done.ended))[:-1] < invoke[1:]
    level = np.concatenate(([0], np.cumsum(done.sign * done.amount * (known & ~reads))))
    bounds = [0, *((np.flatnonzero(quiet) + 1).tolist() if summed else ()), len(unit)]
    begins = _balanced(bounds, level.tolist())
    block = np.repeat(np.arange(len(begins)), np.diff([*begins, len(unit)]))
    balanced = level[begins] == level[[*begins[1:], len(unit)]]

    cell = unit[0]
    name = digest(_OPERATION, cell, block, loose)
    needs.pairs(made=(unit[~reads], name[~reads]), wanted=(unit, name))
    needs.pairs(wanted=(unit, digest(_OPERATION, cell, block, True)))
    lasts = ~reads & (loose | ~balanced[block])
    lasting = digest(_ALL, cell, block)
    needs.pairs(made=(unit[lasts], lasting[lasts]))
    latest = np.where(np.bincount(block[lasts], minlength=len(begins)) > 0, np.arange(len(begins)), -1)
    before = np.concatenate(([-1], np.maximum.accumulate(latest)[:-1]))[block]
    after = before >= 0
    needs.pairs(wanted=(unit[after], digest(_ALL, cell, before)[after]))


def _balanced(bounds: list[int], level: list[int]) -> list[int]:
    """Where blocks begin, of places at which they may: each goes on to the next place of its level, if there is one."""
    again: dict[int, int] = {}
    follows = dict[int, int]()
    for place, following in zip(reversed(bounds[:-1]), reversed(bounds[1:]), strict=True):
        again[level[following]] = following
        follows[place] = again.get(level[place], following)
    begins = [0]
    while follows[begins[-1]] != bounds[-1]:
        begins.append(follows[begins[-1]])
    return begins


def _locks(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Between an owner's acquire and its release nobody else's operation takes effect, so both may as well not be
    there; and after an acquire that it never gave back nobody's does. What an owner did is left out whole where an
    operation of unknown outcome is not its last, or operations overlap: nobody knows there which belong together."""
    units, operations = asked.units, asked.units.operations
    rows = np.flatnonzero(units.client & (units.outcome != FAIL))
    owner = digest(_OWNER, units.cell(), units.of_operations(operations.session))
    pairs: dict[int, list[int]] = {}
    for unit in rows.tolist():
        pairs.setdefault(int(owner[unit]), []).append(unit)
    acquires, tied = units.called("acquire"), owner.copy()
    for mine in pairs.values():
        if _one_by_one(units, mine):
            _pair_up(mine, acquires, tied)
    needs.tie(rows, tied)


def _one_by_one(units: Units, mine: list[int]) -> bool:
    op = units.op[mine]
    return bool((units.operations.complete[op[:-1]] < units.operations.invoke[op[1:]]).all())


def _pair_up(mine: list[int], acquires: Bools, tied: Ints) -> None:
    held: list[int] = []
    for unit in mine:
        tied[unit] = digest(_OPERATION, unit)[0]
        if acquires[unit]:
            held.append(unit)
        elif held:
            tied[unit] = tied[held.pop()]


# ---- values ----


def _registers(asked: JudgedHistory, needs: NeedsOf) -> None:
    """In an order of all operations each observation follows the write that it shows, which is kept, and those between
    them show nothing that is left: so what is left, in that order, is right. Of several writes of one value it may show
    those that can come last before it: from the invocation of one until something that began after it had ended has
    ended too."""
    units = asked.units
    changes = units.client & (units.outcome != FAIL) & units.called("w", "write", "cas")
    refused = units.client & (units.outcome == FAIL) & units.called("cas")
    cell = units.cell()
    if asked.failed_cas_observed:
        needs.make(changes, digest(_ALL, cell))
        needs.want(refused, digest(_ALL, cell))
    observes = units.done & units.called("r", "read")
    compares = changes & units.called("cas")
    unit = np.concatenate((np.flatnonzero(observes), np.flatnonzero(compares)))
    seen = np.concatenate((units.value[observes], units.expected[compares]))
    _by_sight(units, needs, np.flatnonzero(changes), (unit, seen), cell)


def _by_sight(units: Units, needs: NeedsOf, made: Ints, observed: tuple[Ints, Ints], cell: Ints) -> None:
    """Each observation wants the writes of its value that can have been the last before it. Where there is none, as in
    no valid history, it wants the last that had begun, so that no other finding takes the place of this one."""
    unit, seen = observed
    invoke, complete = units.operations.invoke[units.op], units.operations.complete[units.op]
    gone = _overwritten(cell[made], invoke[made], complete[made])
    value = np.concatenate((digest(_VALUE, cell[made], units.value[made]), digest(_VALUE, cell[unit], seen)))
    _, group = np.unique(value, return_inverse=True)
    of_made, of_seen = group[: len(made)], group[len(made) :]
    lasting = gone == NEVER
    needs.pairs(made=(made[lasting], digest(_VALUE, of_made)[lasting]), wanted=(unit, digest(_VALUE, of_seen)))
    order = np.flatnonzero(~lasting)[np.lexsort((invoke[made[~lasting]], of_made[~lasting]))]
    events = np.unique(np.concatenate((invoke[made], gone, invoke[unit], complete[unit])))

    def keyed(group: Ints, event: Ints) -> Ints:
        return group * (len(events) + 1) + np.searchsorted(events, event)

    begun = keyed(of_made[order], invoke[made[order]])
    reached = np.maximum.accumulate(keyed(of_made[order], gone[order]))
    high = np.searchsorted(begun, keyed(of_seen, complete[unit]))
    low = np.minimum(np.searchsorted(reached, keyed(of_seen, invoke[unit])), high)
    none = (low == high) & (high > 0) & ~np.isin(of_seen, of_made[lasting])
    none[none] = of_made[order[high[none] - 1]] == of_seen[none]
    places, of = spread(low - none, high)
    held = (gone[order[places]] >= invoke[unit[of]]) | none[of]
    item = digest(_SIGHT, np.arange(len(unit)))
    needs.pairs(made=(made[order[places[held]]], item[of[held]]), wanted=(unit, item))


def _overwritten(cell: Ints, invoke: Ints, complete: Ints) -> Ints:
    """By write the event from which on nobody can begin to see it: the first completion of a write that began after its
    own; NEVER if there is none."""
    _, group = np.unique(cell, return_inverse=True)
    order = np.lexsort((invoke, group))
    events = np.unique(np.concatenate((invoke, complete)))
    width, base = len(events) + 1, group * (len(events) + 1)
    begun = base[order] + np.searchsorted(events, invoke[order])
    ended = base[order] + np.searchsorted(events, complete[order])
    least = np.minimum.accumulate(ended[::-1])[::-1] if len(ended) else ended
    # Of other cells, which come behind, all ends are higher than those of this one.
    place = np.searchsorted(begun, base + np.searchsorted(events, complete), side="right")
    found = np.append(least, np.int64(width) * (int(group.max(initial=0)) + 2))[place]
    held = found < base + width
    return np.where(held, events[np.minimum(found - base, len(events) - 1)], NEVER) if len(events) else complete


def _values(units: Units, needs: NeedsOf) -> None:
    """A value that is shown was written, by any that wrote it to the cell; nil by what deleted there, if anything."""
    cell = units.cell()
    changes = units.client & units.called(*_WRITES)
    deletes = units.client & units.called("delete")
    shows = units.done & units.called(*_READS)

    def item(unit: Ints, value: Ints) -> Ints:
        return digest(_VALUE, cell[unit], value)

    every = np.arange(len(units))
    needs.make(changes & ~units.listed, item(every, units.value))
    needs.make_elements(changes & units.listed, item)
    needs.want(shows & ~units.listed, item(every, units.value))
    needs.want_elements(shows & units.listed, item)
    needs.want(changes & units.called("cas") & (units.outcome != FAIL), item(every, units.expected))
    partition = digest(_NOTHING, units.cell(2))
    needs.make(deletes | (changes & (units.listed | (units.value == NIL))), partition)
    needs.want((shows & (units.listed | (units.value == NIL))) | units.called("page"), partition)


def _cells(asked: JudgedHistory, needs: NeedsOf) -> None:
    """The order of versions is one of those that are left, and each that is shown is. Three things that a history says
    as a whole stay said: which data centres there are, where nobody states a replication; that it is a quorum table;
    and by what versions of a partition are ordered, where only some writes state timestamps: such a partition is whole.
    Pages say what is not there, so they are whole."""
    units, operations = asked.units, asked.units.operations
    _values(units, needs)
    paged = np.isin(units.op, units.op[units.called("page")])
    needs.tie(paged, digest(_OPERATION, units.op))
    whole = units.client & np.isin(units.cell(2), units.cell(2)[_mixed_timestamps(units)])
    needs.tie(whole, digest(_ALL, units.cell(2)))
    client = operations.process >= 0
    says = [operations.states[name] & client for name in ("write_ts", "data_centre", "replication")]
    witnesses = [np.flatnonzero(flags)[:1] for flags in says]
    if not says[2].any():
        centre = np.where(client, operations.centre, -1)
        _, first = np.unique(centre, return_index=True)
        witnesses.append(first[centre[first] >= 0])
    for op in np.unique(np.concatenate(witnesses)).tolist():
        first_of = np.searchsorted(units.op, op)
        needs.make(np.array([first_of]), digest(_WITNESS, op))
        needs.want(units.client, digest(_WITNESS, op))


def _mixed_timestamps(units: Units) -> Bools:
    """Writes that state no commit timestamp in a partition of which others do."""
    writes = units.client & units.called(*_WRITES) & (units.outcome != FAIL)
    stated = units.of_operations(units.operations.states["served_ts"])
    partition = units.cell(2)
    mixed: Bools = writes & ~stated & np.isin(partition, partition[writes & stated])
    return mixed


def _reads_of_groups(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Reads of one group of keys are compared, so each is whole."""
    _values(asked.units, needs)
    _whole_operations(asked.units, needs)


# ---- elements ----


def _elements(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Without all that was done to some elements, and without these in what reads show, an order of all operations is
    one of what is left."""
    units = asked.units
    cell = units.cell()
    changes = units.client & (units.outcome != FAIL) & ~units.called(*_READS)
    needs.tie(changes & ~units.listed, digest(_ELEMENT, cell, units.value))
    needs.show(units.done & units.listed, lambda unit, value: digest(_ELEMENT, cell[unit], value))


def _elements_and_last_read(asked: JudgedHistory, needs: NeedsOf) -> None:
    """No element's fate depends on another's. Without a read no element is missed that was not, but by the last one, of
    which all reads are left out with it."""
    _elements(asked, needs)
    units, reads = asked.units, np.flatnonzero(asked.units.done & asked.units.called(*_READS))
    cell = units.cell()
    for by in (units.operations.invoke, units.operations.complete):
        order = reads[np.lexsort((by[units.op[reads]], cell[reads]))]
        last = np.append(cell[order][1:] != cell[order][:-1], True)[: len(order)]
        needs.make(order[last], digest(_LAST, cell))
    needs.want(reads, digest(_LAST, cell))


def _queues(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Without some values, in and out, what is left comes out as it did. One of unknown outcome may have taken any, so
    it stays while anything does; so does a drain while any of its elements does."""
    units = asked.units
    cell = units.cell()
    puts = units.client & units.called("enqueue")
    takes = units.client & units.called("dequeue", "drain")
    out = takes & (units.outcome == OK)
    needs.tie(puts | (out & ~units.listed & (units.value != NIL)), digest(_ELEMENT, cell, units.value))

    def item(unit: Ints, value: Ints) -> Ints:
        return digest(_ELEMENT, cell[unit], value)

    needs.show(out & units.listed, item)
    needs.make_elements(out & units.listed, lambda unit, value: digest(_LAST, cell[unit], value))
    needs.want(puts, digest(_LAST, cell, units.value))
    needs.make(takes & (units.outcome == INFO), digest(_UNKNOWN, cell))
    needs.want(puts, digest(_UNKNOWN, cell))


# ---- transactions ----


def _transactions(asked: JudgedHistory, needs: NeedsOf) -> None:
    """An order of versions without those of writes that nothing left observes is one of those that are left, and each
    dependency between these was a path before, with as many rw. Of lists, elements are left out with their appends.
    Where a consistency model asks for more than what closes no cycle, a key that is read has all of its writers."""
    units, lists = asked.units, asked.model == "list-append"
    named = friendly_name(asked.options.consistency or DEFAULT_CONSISTENCY)
    condition = CONDITIONS.get(named, (UPDATES, 0))[0]
    if condition is UPDATES or (lists and condition in (SEEN, CAUSAL)):
        access = units.client & ~units.bare
        needs.make(access & ~units.called("r"), digest(_ALL, units.cell()))
        needs.want(access, digest(_ALL, units.cell()))
    elif lists:
        cell = units.cell()
        needs.make(units.client & ~units.called("r"), digest(_ELEMENT, cell, units.value))
        needs.show(units.done & units.called("r"), lambda unit, value: digest(_ELEMENT, cell[unit], value))
    else:
        _values(units, needs)


def _plain_transactions(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Each condition is about who reads from whom and who else wrote there: fewer of either ask for less."""
    _values(asked.units, needs)


# ---- what tells of a whole ----


def _final_reads(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Of each node and object the last read counts, so an earlier one is not left without it; and reads are final that
    began after the last of anything else, where none is marked so."""
    units, operations = asked.units, asked.units.operations
    _whole_operations(units, needs)
    reads = np.flatnonzero(units.client & units.called("r", "read", "page"))
    partition = digest(_LAST, units.cell(2))
    needs.tie(reads, partition)
    op = np.arange(len(operations.invoke))
    reading = np.isin(op, units.op[units.called("r", "read", "page")])
    others = op[(operations.process >= 0) & (operations.outcome != FAIL) & ~reading]
    if len(others):
        ended = np.where(operations.complete == NEVER, operations.invoke, operations.complete)[others]
        last = np.searchsorted(units.op, others[np.argmax(ended)])
        needs.make(np.array([last]), digest(_WITNESS))
        needs.want(reads, digest(_WITNESS))


def _feeds(asked: JudgedHistory, needs: NeedsOf) -> None:
    """What was written to a cell and what feeds told of it are kept or left out together. A mark alone asks for what
    came before. What names the tables that a feed covers, and where it begins, stays while any of its events does."""
    units, operations = asked.units, asked.units.operations
    told = units.called("feed-row") | np.isin(units.op, np.flatnonzero(_op_called(units, "feed-row")))
    marks = np.isin(units.op, np.flatnonzero(_op_called(units, "feed-resolved")))
    writes = units.client & ~told & ~marks & units.called(*_WRITES)
    needs.tie(writes | (told & ~units.bare), digest(_ELEMENT, units.cell()))
    feed = digest(_FEED, units.of_operations(operations.session))
    of_feed = np.flatnonzero(told | marks)
    table = np.where(units.bare, -1, units.address[0])
    requested = units.of_operations(operations.requested)
    naming = of_feed[~units.bare[of_feed] | (requested[of_feed] != NIL)]
    _, first = np.unique(digest(feed, table, requested)[naming], return_index=True)
    needs.make(naming[first], feed)
    needs.want(of_feed, feed)


def _op_called(units: Units, name: str) -> Bools:
    if name not in units.names:
        return np.zeros(len(units.operations.f), np.bool_)
    found: Bools = units.operations.f == units.names.index(name)
    return found


def _requests(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Answers state revisions, and each is one of a write: what writes, or may have, and had begun when an answer came
    stays with it. What began later comes after it in any order."""
    units = asked.units
    requests, problems = requests_of(asked.source)
    writing = [request.invoke for request in requests if request.writes] + [event for event, _ in problems]
    ops = np.unique(np.array(list(places_of(units, writing)), np.int64))
    writes = np.searchsorted(units.op, ops)
    _chain(needs, writes, np.zeros(len(writes), np.bool_))
    _want_begun(units, needs, writes, np.flatnonzero(units.client & (units.outcome != INFO)))
    _whole_operations(units, needs)


_CHANGES: Final = ("create", "delete", "alter", "rename", "reshape")
_NAMED: Final = (*_CHANGES[:4], "table", "schema", "created", "altered", "locations")


def _catalogs(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Names that no table ever moved between, and tables under them, are catalogs of their own: what was changed in one
    does not bear on others. An answer about it changes nothing; but of the lists that are made when all is over the
    last one counts."""
    units = asked.units
    part = _catalog_of(units)
    changes = units.client & (units.outcome != FAIL) & units.called(*_CHANGES)
    needs.tie(changes, part)
    needs.want(units.client & ~units.bare, part)
    _whole_operations(units, needs)
    lists = np.flatnonzero(units.client & units.of_operations(_op_called(units, "list") & (units.operations.final > 0)))
    if len(lists):
        needs.make(np.flatnonzero(units.op == units.op[lists[-1]]), digest(_LAST))
        needs.want(lists, digest(_LAST))


def _catalog_of(units: Units) -> Ints:
    """By unit the catalog that it is about: that of the names, tables and tablets which operations tell together. A
    list tells each table by itself."""
    named, tablets = units.called(*_NAMED), units.called("tablet", "known", "unknown")
    tokens = [(named, digest(_NAME, units.address[1])), (units.called("rename"), digest(_NAME, units.address[2]))]
    tokens += [(named & (units.value != NIL), digest(_TABLE, units.value)), (tablets, digest(_TABLET, units.value))]
    tokens += [(units.called("column", "reshape"), np.broadcast_to(digest(_ALL), len(units)))]
    unit = np.concatenate([np.flatnonzero(flags) for flags, _ in tokens])
    _, node = np.unique(np.concatenate([item[flags] for flags, item in tokens]), return_inverse=True)
    together = np.where(units.of_operations(_op_called(units, "list")), len(units) + np.arange(len(units)), units.op)
    order = np.argsort(together[unit], kind="stable")
    parents = np.arange(len(node))
    unite(together[unit][order], node[order], parents)
    part = np.full(len(units), -1)
    part[unit] = parents[node]
    return digest(_ALL, part)


def _own(asked: JudgedHistory, needs: NeedsOf) -> None:
    """Nobody knows what the user's own code makes of the rest; partitions are what it says to be independent."""
    code = asked.options.code
    assert code is not None
    calls = calls_of(asked.source)
    numbers = answer_of(ChildQuestion(code, partitions_of, (calls,)), asked.options.time_limit_s)
    ops = np.array(list(places_of(asked.units, [call.invoke for call in calls])), np.int64)
    partition = np.full(len(asked.units.operations.invoke), -1)
    partition[ops] = 0 if isinstance(numbers, OwnGraph) else numbers
    mine = partition[asked.units.op]
    needs.tie(mine >= 0, digest(_ALL, mine))


def _rows(asked: JudgedHistory, needs: NeedsOf) -> None:
    """All that was done to a row is kept or left out together, but for reads and scans, which change nothing. What is
    neither says which columns there are."""
    units = asked.units
    row = digest(_ALL, units.cell(2))
    on_rows = units.called("r", "w", "cas", "erase", "read", "write") & ~units.bare
    reads = units.called("r", "read") & ~np.isin(units.op, np.flatnonzero(_op_called(units, "erase")))
    counts = units.client & (units.outcome != FAIL) & on_rows
    needs.tie(counts & ~reads, row)
    needs.want(counts & reads, row)
    needs.make(units.client & ~on_rows, digest(_WITNESS))
    needs.want(units.client, digest(_WITNESS))


REMOVALS: Final[dict[str, Removal]] = {
    "nothing, nor the end": Removal("nothing", _nothing, end=False),
    "anything": Removal("any operation", _anything),
    "strings": Removal("reads, what came before a put, appends that nothing left shows", _strings),
    "sums": Removal("reads, what leaves an object as it was", _sums),
    "owners": Removal("an acquire with its release", _locks),
    "registers": Removal("reads, writes that nothing left shows", _registers),
    "values": Removal("reads, writes that nothing left shows", _cells),
    "groups": Removal("whole reads, writes that nothing left shows", _reads_of_groups),
    "elements": Removal("reads, all of an element", _elements),
    "elements, last read": Removal("reads but the last, all of an element", _elements_and_last_read, end=False),
    "queues": Removal("all of a value; looks that found nothing", _queues),
    "queues, whole": Removal("all of a value; looks that found nothing", _queues, end=False),
    "transactions": Removal("reads, writes that nothing left shows, also within a transaction", _transactions),
    "plain transactions": Removal("the same", _plain_transactions),
    "final reads": Removal("all final reads of an object, writes but the last", _final_reads, end=False),
    "feeds": Removal("all of a cell, marks", _feeds),
    "catalogs": Removal("answers, whole catalogs of names", _catalogs, until_final=True),
    "requests": Removal("what wrote nothing, writes that began after all answers", _requests),
    "partitions": Removal("whole partitions", _own),
    "rows": Removal("reads, whole rows", _rows),
}
"""By the names that models have for them (`ModelInfo.removal`)."""
