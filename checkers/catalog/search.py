"""Linearizability of a catalog by search (Wing and Gong 1993, Lowe's just-in-time form), with its own reductions.

Events are taken in order while a set of configurations (state, which open calls have taken effect) says all that may be
true. At a completion every configuration is led on until the call has taken effect in it. What keeps that small:
- an observation takes effect as soon as a state shows what it saw, for it changes nothing;
- a change is put before the completing call only if it has to be: if each change in front shares a name with something
  behind it, up to that call; else it can as well be put behind it (the two commute);
- of equal changes of unknown outcome the oldest goes first, and a configuration that spent fewer of them, everything
  else being equal, makes another superfluous.

Two answers are certain: a way to the end (`LINEARIZABLE`), whatever was left out on the way, and no way left while
nothing was left out (`STUCK`). Little is tried at first (`Limits`). Where that comes to an end, the search goes back a
little and on with wider limits until it is past that place, then back further (`RETREATS`).

A catalog falls into names that nothing links, which are objects of their own and are searched one after the other
(`parts`). A rename links two names, and so does an id that answers tell of both; a list is of all names at once. What
is linearizable part by part is so as a whole (locality: Herlihy and Wing 1990, theorem 1).

A list that tells every table's id and version says what the state was, whatever came before. So histories fall apart
at such lists (`_pinned`): if no way leads from one to the place where the search can't go on, although every change of
unknown outcome before it is taken to be still unspent, there is none from the beginning either. That is decided exactly
however long the history is. When the work is used up, the answer is `UNDECIDED`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from checkers.catalog.calls import CREATE, RENAME, Bindable, Call, State, after, shows
from checkers.columns.codes import NEVER
from checkers.columns.graph import unite

LINEARIZABLE, STUCK, UNDECIDED = "linearizable", "stuck", "undecided"


class Limits(NamedTuple):
    """At one completion at most `unknown` changes of unknown outcome take effect, up to `most` where there is no other
    way on; the best `kept` configurations stay."""

    unknown: int
    most: int
    kept: int


LEVELS: Final = (Limits(1, 4, 64), Limits(2, 5, 256), Limits(3, 6, 1024), Limits(1 << 30, 1 << 30, 1 << 30))
"""From narrow to wide; the last leaves nothing out."""

START: Final = 1 << 60
RETREATS: Final = ((8, 1), (32, 1), (128, 1), (32, 2), (128, 2), (512, 2), (START, 1), (START, 2), (START, 3))
"""Where there is no way on: how many completions to go back, and with which of the levels to go on from there."""

PIN_AFTER: Final = 3
"""Retreats from a place after which it is asked whether any way leads there from the last lists before it."""

PINS: Final = 4
PIN_WORK_SHARE: Final = 0.1
MOST_OVERLAPPING: Final = 8

PAST: Final = 8
"""Completions behind the place where there was no way on after which the search is narrow again."""

CHECKPOINT: Final = 8
RECENT: Final = 64
"""Completions between checkpoints, and how many of the last ones are all kept; of older ones some are."""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What came of a search: `stuck` is the call that could not take effect, `states` what may have been before it,
    `names` the name behind each place of a state, which are not all names where they were searched `in_parts`."""

    word: str
    work: int
    stuck: Call | None = None
    states: tuple[State, ...] = ()
    names: tuple[int, ...] = ()
    in_parts: bool = False


def search(calls: Sequence[Call], most_work: int) -> SearchAnswer:
    """Whether some order of the calls that respects real time is one that the model allows; `most_work` steps, spent on
    small parts first. Of several that are stuck the one that was stuck first is told."""
    answers, work = [], 0
    pieces = sorted(
        parts([call for call in calls if call.changes or call.seen or call.total]), key=lambda piece: len(piece[0])
    )
    for part, names in pieces:
        answers.append(replace(_Search(part, len(names), most_work - work).run(), names=names))
        work += answers[-1].work
        if work > most_work:
            break
    stuck = [(answer.stuck.complete, answer) for answer in answers if answer.stuck is not None]
    if stuck:
        return replace(min(stuck, key=lambda pair: pair[0])[1], work=work, in_parts=len(pieces) > 1)
    undecided = any(answer.word == UNDECIDED for answer in answers)
    return SearchAnswer(UNDECIDED if undecided else LINEARIZABLE, work)


class Config(NamedTuple):
    """A state, and the slots of open calls that have taken effect, as bits."""

    state: State
    done: int


class _Checkpoint(NamedTuple):
    """A moment of the search that it can go back to: how many events and completions it had passed, what was open, and
    the configurations; `left_out` says whether anything was left out until then."""

    event: int
    completions: int
    left_out: bool
    configs: list[Config]
    tables: tuple[dict[Any, Any], ...]
    vacant: list[int]
    bits: tuple[int, int, int]


class _Search:
    def __init__(self, calls: Sequence[Call], names: int, most_work: int, whole: _Search | None = None) -> None:
        """`whole` is the search that this one is a part of: which ids acknowledged creations claim is of all calls."""
        self._calls = calls
        self._limits = LEVELS[0]
        self._all = (1 << names) - 1
        self._most_work = most_work
        self._work = 0
        self._left_out = False
        self._open: dict[int, Call] = {}
        self._slots: dict[int, int] = {}
        self._names: dict[int, int] = {}
        self._vacant: list[int] = []
        self._reads = self._unknown = self._plain_reads = 0
        self._certain: dict[int, int] = {}
        self._equal: dict[tuple[int, int, int], int] = {}
        self._equal_names: dict[tuple[int, int, int], int] = {}
        self._claimed = {call.id for call in calls if call.changes and call.kind == CREATE and call.id is not None}
        self._first_answered: dict[int, int] = {}
        for call in calls:
            for table_id in answered_ids(call):
                self._first_answered[table_id] = min(call.complete, self._first_answered.get(table_id, NEVER))
        if whole is not None:
            self._claimed = whole._claimed
        self._tellers: dict[int, int] = {}
        self._now = 0
        self._none: State = (None,) * names
        self._configs = [Config(self._none, 0)]
        self._events = self._in_order()
        self._checkpoints = [self._checkpoint(0, 0)]

    def run(self) -> SearchAnswer:
        at = completions = 0
        stuck_at, wide_until, retreats = -1, -1, 0
        while at < len(self._events):
            call, begins = self._events[at]
            at += 1
            if begins:
                self._begin(call)
                continue
            before = self._configs
            self._complete(call)
            if self._work > self._most_work:
                return SearchAnswer(UNDECIDED, self._work)
            if not self._configs:
                retreats = 0 if at > stuck_at else retreats
                stuck_at, wide_until = max(stuck_at, at), max(wide_until, completions + PAST)
                if not self._left_out or (retreats == PIN_AFTER and self._cut_off(call)):
                    states = tuple(dict.fromkeys(config.state for config in before))
                    return SearchAnswer(STUCK, self._work, call, states)
                back, level = RETREATS[retreats]
                at, completions = self._backtrack(completions + 1 - back)
                self._limits, retreats = LEVELS[level], retreats + 1
                continue
            self._forget(call)
            completions += 1
            if completions > wide_until:
                self._limits = LEVELS[0]
            if completions % CHECKPOINT == 0:
                self._keep(self._checkpoint(at, completions))
        return SearchAnswer(LINEARIZABLE, self._work)

    def run_from(self, state: State, opened: Sequence[Call], until: Call) -> bool:
        """Whether there is, with nothing left out, a way from this state to the completion of a call.

        `opened` have begun by then, and those of them that complete may have taken effect before. True as well where
        the work is used up.
        """
        self._limits, known = LEVELS[-1], {call.order for call in opened}
        for call in opened:
            self._begin(call)
        self._configs = [Config(state, bits) for bits in self._subsets(opened)]
        for call, begins in self._events:
            if begins:
                if call.order not in known:
                    self._begin(call)
                continue
            self._complete(call)
            if not self._configs or self._work > self._most_work or call is until:
                break
            self._forget(call)
        return bool(self._configs) or self._work > self._most_work

    def _subsets(self, calls: Sequence[Call]) -> list[int]:
        """Which of these calls, of those that complete, may have taken effect: every choice, as bits of their slots."""
        bits = [0]
        for call in [call for call in calls if call.complete != NEVER]:
            bits += [each | 1 << self._slots[call.order] for each in bits]
        return bits

    def _in_order(self) -> list[tuple[Call, bool]]:
        """Invocations and completions in order. An answer that may be old begins right behind the event `since`."""
        events = []
        for i, call in enumerate(self._calls):
            events.append((2 * call.since + (call.since < call.order), 0, i))
            if call.complete != NEVER:
                events.append((2 * call.complete, 1, i))
        return [(self._calls[i], not ends) for _, ends, i in sorted(events)]

    # ---- back to where there was a choice ----

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        return self._open, self._slots, self._names, self._certain, self._equal, self._equal_names, self._tellers

    def _checkpoint(self, event: int, completions: int) -> _Checkpoint:
        copies = tuple(dict(table) for table in self._tables())
        bits = self._reads, self._unknown, self._plain_reads
        return _Checkpoint(event, completions, self._left_out, self._configs, copies, list(self._vacant), bits)

    def _keep(self, checkpoint: _Checkpoint) -> None:
        """Take a checkpoint; of those that are not recent every other one goes, again and again."""
        self._checkpoints.append(checkpoint)
        if len(self._checkpoints) > 2 * RECENT:
            old = self._checkpoints[:-RECENT]
            self._checkpoints = [old[0], *old[1::2], *self._checkpoints[-RECENT:]]

    def _backtrack(self, completions: int) -> tuple[int, int]:
        """Go back to the last checkpoint with at most that many completions; its event and completions."""
        while len(self._checkpoints) > 1 and self._checkpoints[-1].completions > completions:
            self._checkpoints.pop()
        checkpoint = self._checkpoints[-1]
        for table, copy in zip(self._tables(), checkpoint.tables, strict=True):
            table.clear()
            table.update(copy)
        self._reads, self._unknown, self._plain_reads = checkpoint.bits
        self._vacant, self._configs, self._left_out = list(checkpoint.vacant), checkpoint.configs, checkpoint.left_out
        return checkpoint.event, checkpoint.completions

    def _cut_off(self, stuck: Call) -> bool:
        """Whether no way leads to a call from one of the last lists before it, see the module."""
        lists = [call for call in self._calls if _pins(call) and call.complete < stuck.complete]
        for pin in sorted(lists, key=lambda call: call.complete)[: -PINS - 1 : -1]:
            allowed = self._work + int(PIN_WORK_SHARE * self._most_work)
            if self._pinned(pin, stuck, min(allowed, self._most_work)):
                return True
        return False

    def _pinned(self, pin: Call, stuck: Call, most_work: int) -> bool:
        """Changes that overlap the list may have taken effect before it or not; what other questions saw meanwhile is
        passed over."""
        live = [call for call in self._calls if call.complete > pin.order and call.since < stuck.complete]
        early = [call for call in live if call.since < pin.complete]
        overlapping = [call for call in early if call.changes and call.complete != NEVER]
        asked_meanwhile = not stuck.changes and stuck.since < pin.complete
        if asked_meanwhile or len(overlapping) > MOST_OVERLAPPING:
            return False
        opened = [replace(call, since=pin.order) for call in early if call.changes]
        later = [call for call in live if call.since >= pin.complete]
        part = _Search([*opened, *later], len(self._none), most_work - self._work, self)
        state = list(self._none)
        for seen in pin.seen:
            assert seen.id is not None and seen.version is not None, "the list tells everything"
            state[seen.name] = (seen.id, seen.version)
        until = next(call for call in part._calls if call.order == stuck.order)
        found = part.run_from(tuple(state), opened, until)
        self._work += part._work
        return not found

    # ---- calls come and go ----

    def _begin(self, call: Call) -> None:
        slot = heappop(self._vacant) if self._vacant else len(self._open)
        bit = 1 << slot
        self._open[slot], self._slots[call.order] = call, slot
        self._names[slot] = self._names_of(call)
        for table_id in answered_ids(call):
            self._tellers[table_id] = self._tellers.get(table_id, 0) | bit
        if call.changes and call.complete == NEVER:
            self._unknown |= bit
            like = call.kind, call.name, call.new
            self._equal[like] = self._equal.get(like, 0) | bit
            self._equal_names[like] = self._names[slot]
            return
        self._certain[slot] = self._names[slot]
        if not call.changes:
            self._reads |= bit
            if all(table_id in self._claimed for table_id in answered_ids(call)):
                self._plain_reads |= bit
            self._configs = [_noted(config, call, bit) for config in self._configs]

    def _forget(self, call: Call) -> None:
        slot = self._slots.pop(call.order)
        bit = 1 << slot
        del self._open[slot], self._names[slot], self._certain[slot]
        heappush(self._vacant, slot)
        self._reads &= ~bit
        self._plain_reads &= ~bit
        for table_id in answered_ids(call):
            self._tellers[table_id] &= ~bit
        self._configs = [Config(config.state, config.done & ~bit) for config in self._configs]

    def _names_of(self, call: Call) -> int:
        if call.total:
            return self._all
        if not call.changes:
            return sum({1 << seen.name for seen in call.seen})
        return 1 << call.name | (1 << call.new if call.kind == RENAME else 0)

    # ---- one completion ----

    def _complete(self, call: Call) -> None:
        """Lead every configuration on until the call has taken effect in it; none is left where that can't be."""
        self._now = call.complete
        before = self._configs
        most = len(self._open)
        for unknown in range(min(self._limits.unknown, most), min(self._limits.most, most) + 1):
            self._configs = self._kept(self._completed(call, before, unknown))
            if self._configs or self._work > self._most_work:
                return

    def _completed(self, call: Call, configs: Sequence[Config], most_unknown: int) -> list[Config]:
        bit = 1 << self._slots[call.order]
        reached: dict[Config, None] = {}
        for config in configs:
            if config.done & bit:
                reached[config] = None
            else:
                for found in self._led_on(config, call, bit, most_unknown):
                    reached[found] = None
        return list(reached)

    def _led_on(self, config: Config, call: Call, bit: int, most_unknown: int) -> Iterator[Config]:
        """Every configuration in which the call has just taken effect, reached from this one by others in front.

        `unlinked` are the calls in front that nothing behind them has shared a name with yet.
        """
        start = (config, 0)
        seen = {start}
        level = [(start, 0)]
        while level and self._work <= self._most_work:
            deeper = []
            for (at, unlinked), unknown in level:
                self._work += 1
                last = self._taken(at, call, bit)
                if last is not None and not self._unlinked(unlinked, self._names_of(call)):
                    yield last
                for slot in self._candidates(at, bit):
                    spent = unknown + (self._unknown >> slot & 1)
                    if spent > most_unknown:
                        self._left_out = True
                        continue
                    following = self._taken(at, self._open[slot], 1 << slot)
                    if following is None:
                        continue
                    bound = self._unlinked(unlinked, self._names[slot]) | 1 << slot
                    node = (following, self._justified(bound, at, following, 1 << slot))
                    if node not in seen:
                        seen.add(node)
                        deeper.append((node, spent))
            level = deeper

    def _taken(self, at: Config, call: Call, bit: int) -> Config | None:
        """The configuration after a call took effect; observations that are right there have taken effect too."""
        bindable = self._bindable(at)
        state = after(at.state, call, bindable) if call.changes else shows(at.state, call, bindable)
        if state is None:
            return None
        config = Config(state, at.done | bit)
        for slot in _bits(self._reads & ~config.done):
            config = _noted(config, self._open[slot], 1 << slot)
        return config

    def _candidates(self, at: Config, bit: int) -> Iterator[int]:
        """Open calls that may have to go in front: changes, and observations that make anonymous tables known."""
        spent = at.done | bit
        oldest = {like: left & -left for like, slots in self._equal.items() if (left := slots & ~spent)}
        near = self._near(bit, spent, oldest)
        for slot, names in self._certain.items():
            if names & near and not spent >> slot & 1:
                yield slot
        for like, lowest in oldest.items():
            if self._equal_names[like] & near:
                yield lowest.bit_length() - 1

    def _near(self, bit: int, spent: int, oldest: Iterable[tuple[int, int, int]]) -> int:
        """The names that matter to the completing call, by way of calls that share names."""
        near = self._names[bit.bit_length() - 1]
        waiting = [names for slot, names in self._certain.items() if not spent >> slot & 1]
        waiting += [self._equal_names[like] for like in oldest]
        linking = [names for names in waiting if names & (names - 1)]
        while True:
            wider = near
            for names in linking:
                if names & wider:
                    wider |= names
            if wider == near:
                return near
            near = wider

    def _justified(self, unlinked: int, before: Config, following: Config, bit: int) -> int:
        """`unlinked` without the calls that share a name with an observation that has just taken effect behind them."""
        for slot in _bits(following.done & ~before.done & ~bit):
            unlinked = self._unlinked(unlinked, self._names[slot])
        return unlinked

    def _unlinked(self, unlinked: int, names: int) -> int:
        return sum(1 << slot for slot in _bits(unlinked) if not self._names[slot] & names)

    def _bindable(self, at: Config) -> Bindable:
        """An anonymous table may have an id that no acknowledged creation claims and that no other table has had."""

        def bindable(table_id: int) -> bool:
            return (
                table_id not in self._claimed
                and self._first_answered[table_id] >= self._now
                and not at.done & self._tellers.get(table_id, 0)
                and all(table is None or table[0] != table_id for table in at.state)
            )

        return bindable

    # ---- which are kept ----

    def _kept(self, configs: list[Config]) -> list[Config]:
        """Without those that another makes superfluous: the same state and changes, more seen, less of doubt spent.

        An observation that tells the id of a table whose creation was not acknowledged is more than seen: with it, that
        id is given.
        """
        free = self._plain_reads | self._unknown
        groups: dict[tuple[State, int], list[Config]] = {}
        for config in configs:
            groups.setdefault((config.state, config.done & ~free), []).append(config)
        kept = [config for group in groups.values() for config in self._undominated(group)]
        if len(kept) > self._limits.kept:
            self._left_out = True
            kept = sorted(kept, key=lambda config: (config.done & self._unknown).bit_count())[: self._limits.kept]
        return kept

    def _undominated(self, group: list[Config]) -> list[Config]:
        if len(group) == 1:
            return group
        kept: list[Config] = []
        for config in sorted(group, key=self._cost):
            seen, spent = config.done & self._plain_reads, config.done & self._unknown
            if not any(not seen & ~other.done and not other.done & self._unknown & ~spent for other in kept):
                kept.append(config)
        return kept

    def _cost(self, config: Config) -> int:
        return (config.done & self._unknown).bit_count() - (config.done & self._plain_reads).bit_count()


def _pins(call: Call) -> bool:
    """Whether an answer says all of the state at one moment while it was asked for."""
    whole = all(seen.id is not None and seen.version is not None for seen in call.seen)
    return call.total and whole and call.since == call.order and call.complete != NEVER


def _noted(config: Config, call: Call, bit: int) -> Config:
    """An observation takes effect at once where the state shows what it saw."""
    return Config(config.state, config.done | bit) if shows(config.state, call) is not None else config


def _bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


_NAME, _ID = 0, 1
_Node: TypeAlias = tuple[int, int]
"""A name, or an id."""

Names: TypeAlias = tuple[int, ...]
"""The name behind each number."""


def parts(calls: Sequence[Call]) -> Iterator[tuple[list[Call], Names]]:
    """The calls about names that are linked, in their order and about names numbered from 0, part by part in order of
    their first calls."""
    if any(call.total for call in calls):
        yield _renamed(calls)
        return
    numbers: dict[_Node, int] = {}
    touched = [(op, numbers.setdefault(node, len(numbers))) for op, call in enumerate(calls) for node in _nodes(call)]
    op, number = np.array(touched, np.int64).reshape(-1, 2).T
    parents = np.arange(len(numbers))
    unite(np.ascontiguousarray(op), np.ascontiguousarray(number), parents)
    found: dict[int, list[Call]] = {}
    for call in calls:
        found.setdefault(int(parents[numbers[next(_nodes(call))]]), []).append(call)
    for part in found.values():
        yield _renamed(part)


def answered_ids(call: Call) -> Iterator[int]:
    """The ids that a call's answer tells; a creation makes its own."""
    if call.changes and call.id is not None and call.kind != CREATE:
        yield call.id
    for seen in call.seen:
        if seen.id is not None:
            yield seen.id


def _nodes(call: Call) -> Iterator[_Node]:
    if call.changes:
        yield _NAME, call.name
        if call.kind == RENAME:
            yield _NAME, call.new
        if call.id is not None:
            yield _ID, call.id
    for seen in call.seen:
        yield _NAME, seen.name
        if seen.id is not None:
            yield _ID, seen.id


def _renamed(calls: Sequence[Call]) -> tuple[list[Call], Names]:
    met = {call.name for call in calls if call.changes}
    met |= {call.new for call in calls if call.changes and call.kind == RENAME}
    met |= {seen.name for call in calls for seen in call.seen}
    place = {name: i for i, name in enumerate(sorted(met))}
    dense = []
    for call in calls:
        seen = tuple(replace(each, name=place[each.name]) for each in call.seen)
        dense.append(replace(call, name=place.get(call.name, 0), new=place.get(call.new, 0), seen=seen))
    return dense, tuple(sorted(met))
