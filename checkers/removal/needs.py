"""Which units of a history need which others, and what of it can be kept at all.

Needs go through *items*: a unit that observes something wants it, and all that made it have to be kept with the unit.
So a write can be left out once nothing that is left observed it; units that make and want one item are kept or left out
together; and what was observed of nobody asks for nothing. Elements of lists need nobody: they are left out with all
that made them.

    valid history, flags of units ─> largest part of them that has what it needs   (`within`)
                                  └─> smallest part around them that has           (`around`)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from checkers.columns.codes import Bools, Ints
from checkers.columns.dense import spread
from checkers.removal.units import NO_END, Kept, Units


class _Groups(NamedTuple):
    """What belongs to each number: that of number n is `others[first[n]:first[n + 1]]`."""

    first: Ints
    others: Ints

    @classmethod
    def of(cls, numbers: Ints, others: Ints, count: int) -> _Groups:
        order = np.argsort(numbers, kind="stable")
        return cls(np.searchsorted(numbers[order], np.arange(count + 1)), others[order])

    def __call__(self, numbers: Ints) -> Ints:
        places, _ = spread(self.first[numbers], self.first[numbers + 1])
        return np.unique(self.others[places])


@dataclass(frozen=True)
class Needs:
    """Pairs of a unit and an item that it makes, and that it wants; by element of a list the item that it shows (-1:
    one that stays), where elements are left out."""

    units: Units
    made: tuple[Ints, Ints]
    wanted: tuple[Ints, Ints]
    items: int
    shown: Ints | None

    def within(self, flags: Bools) -> Bools:
        """The flagged units without those that want what others made which are not flagged, and so on."""
        kept, lost = flags.copy(), np.flatnonzero(~flags)
        while len(lost):
            lost = self._wants(self._makes(lost))
            lost = lost[kept[lost]]
            kept[lost] = False
        return kept

    def around(self, flags: Bools) -> Bools:
        """The flagged units with all that made what they want, and so on."""
        kept, more = flags.copy(), np.flatnonzero(flags)
        while len(more):
            more = self._made(self._wanted(more))
            more = more[~kept[more]]
            kept[more] = True
        return kept

    def beside(self, flags: Bools) -> Bools:
        """The flagged units with those that made what they show, or show what they made; one step."""
        kept = self.around(flags)
        if self.shown is None:
            return kept
        element, unit = np.flatnonzero(self.shown >= 0), self._showing
        shows = np.isin(self.shown[element], self._makes(np.flatnonzero(flags)))
        made = self._made(np.unique(self.shown[element[flags[unit[element]]]]))
        kept[made] = True
        kept[unit[element[shows]]] = True
        return self.around(kept)

    def kept(self, flags: Bools, end: int = NO_END) -> Kept:
        """What the history of some units, which have what they need, consists of."""
        if self.shown is None:
            return Kept(flags, np.ones(len(self.units.items), np.bool_), end)
        alive = np.zeros(self.items + 1, np.bool_)
        alive[self.made[1][flags[self.made[0]]]] = True
        alive[-1] = True
        return Kept(flags, alive[self.shown], end)

    @cached_property
    def _showing(self) -> Ints:
        """By element of a list the unit that shows it."""
        showing = np.zeros(len(self.units.items), np.int64)
        places, of = spread(self.units.start, self.units.stop)
        showing[places] = of
        return showing

    @cached_property
    def _makes(self) -> _Groups:
        return _Groups.of(*self.made, len(self.units))

    @cached_property
    def _wanted(self) -> _Groups:
        return _Groups.of(*self.wanted, len(self.units))

    @cached_property
    def _made(self) -> _Groups:
        return _Groups.of(self.made[1], self.made[0], self.items)

    @cached_property
    def _wants(self) -> _Groups:
        return _Groups.of(self.wanted[1], self.wanted[0], self.items)


class NeedsOf:
    """Collects what a rule says of a history's units. Items are named by any integers (`units.digest`)."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self._made: list[tuple[Ints, Ints]] = []
        self._wanted: list[tuple[Ints, Ints]] = []
        self._shown: Ints | None = None

    def pairs(self, made: tuple[Ints, Ints] | None = None, wanted: tuple[Ints, Ints] | None = None) -> None:
        """Units and what each makes or wants."""
        self._made += [] if made is None else [made]
        self._wanted += [] if wanted is None else [wanted]

    def make(self, which: Any, item: Any) -> None:
        """The chosen units (flags or numbers) make an item each (by unit, or one for all)."""
        self.pairs(made=self._by_unit(which, item))

    def want(self, which: Any, item: Any) -> None:
        """The chosen units want an item each."""
        self.pairs(wanted=self._by_unit(which, item))

    def tie(self, which: Any, item: Any) -> None:
        """The chosen units of one item are kept or left out together."""
        self.make(which, item)
        self.want(which, item)

    def show(self, which: Any, item_of: Any) -> None:
        """Elements of the chosen units' lists are left out with what made them; `item_of` names the items of elements,
        given the units that show them and their values."""
        element, unit = self._elements(which)
        if self._shown is None:
            self._shown = np.zeros(len(self.units.items), np.int64)
            self._named = np.zeros(len(self.units.items), np.bool_)
        self._shown[element], self._named[element] = item_of(unit, self.units.items[element]), True

    def want_elements(self, which: Any, item_of: Any) -> None:
        """The chosen units want what made the elements of their lists."""
        element, unit = self._elements(which)
        self.pairs(wanted=(unit, item_of(unit, self.units.items[element])))

    def make_elements(self, which: Any, item_of: Any) -> None:
        """The chosen units make the elements of their lists."""
        element, unit = self._elements(which)
        self.pairs(made=(unit, item_of(unit, self.units.items[element])))

    def _elements(self, which: Any) -> tuple[Ints, Ints]:
        unit = _numbers(which)
        places, of = spread(self.units.start[unit], self.units.stop[unit])
        return places, unit[of]

    def _by_unit(self, which: Any, item: Any) -> tuple[Ints, Ints]:
        unit = _numbers(which)
        item = np.asarray(item, np.int64)
        return unit, np.broadcast_to(item, len(unit)) if item.ndim == 0 or len(item) == 1 else item[unit]

    def done(self) -> Needs:
        """The needs; wanted items that nobody made are forgotten."""
        made_unit, made_item = _together(self._made)
        names, made = np.unique(made_item, return_inverse=True)
        unit, item = _together(self._wanted)
        wanted, known = _places(names, item)
        shown = None
        if self._shown is not None:
            place, stated = _places(names, self._shown)
            shown = np.where(stated & self._named, place, -1)
        return Needs(self.units, (made_unit, made), (unit[known], wanted[known]), len(names), shown)


def _numbers(which: Any) -> Ints:
    which = np.asarray(which)
    return np.flatnonzero(which) if which.dtype == np.bool_ else which.astype(np.int64)


def _together(pairs: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    nothing = (np.empty(0, np.int64), np.empty(0, np.int64))
    units, items = zip(nothing, *pairs, strict=True)
    return np.concatenate(units), np.concatenate(items)


def _places(names: Ints, items: Ints) -> tuple[Ints, Bools]:
    """The place of each item among sorted names, and whether it is one of them."""
    place = np.minimum(np.searchsorted(names, items), max(0, len(names) - 1))
    return place, (names[place] == items) if len(names) else np.zeros(len(items), np.bool_)
