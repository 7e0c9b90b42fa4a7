"""Which levels allow a small history, by definition: some abstract execution, or some version orders, explain it.

An abstract execution is a set of transactions with a total order AR and a relation VIS within it (Cerone, Bernardi and
Gotsman 2015, definition 3). All are tried: each choice of unknown outcomes that took place, each AR, each VIS. A
definition of Adya's (1999, chapter 4) is about version orders: all that an AR of all transactions induces are tried,
which are all without a cycle of D, and those with one are refuted by G0 or G1c.

Values written to a key differ. The versions of a list are one chain in AR order, each with the appends of the one
before it and its transaction's own (Kingsbury and Alvaro 2020, section 4.2), and a read after own appends shows what
the transaction saw besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any, Final, NamedTuple

from weak_store import Txn

AXIOMS: Final[Mapping[str, frozenset[str]]] = {
    "read-atomic": frozenset(),
    "update-atomic": frozenset({"NOCONFLICT"}),
    "causal-cerone": frozenset({"TRANSVIS"}),
    "parallel-snapshot-isolation": frozenset({"TRANSVIS", "NOCONFLICT"}),
    "prefix": frozenset({"PREFIX"}),
    "snapshot-isolation": frozenset({"PREFIX", "NOCONFLICT"}),
    "serializable": frozenset({"TOTALVIS"}),
}
"""Level → its axioms beside INT and EXT (Cerone, Bernardi and Gotsman 2015, figure 1; update atomic: section 3)."""

PROSCRIBED: Final[Mapping[str, str]] = {
    "read-committed": "G1",
    "consistent-view": "G1 G-single",
    "repeatable-read": "G1 G2-item",
}
"""Level → Adya's phenomena that rule it out (1999: PL-2 in section 4.2.3, PL-2+ in 4.2.4, PL-2.99 in 4.2.2)."""

LEVELS: Final = (*PROSCRIBED, *AXIOMS)
FORMS: Final = ("plain", "strong-session", "strong")
"""What lies within VIS besides (for Adya's levels: is an edge of D): nothing; SESSION; real time, which includes it."""

Words = dict[tuple[str, str], bool | None]


class Read(NamedTuple):
    """A read: what it found before own writes; `own`: after some."""

    key: int
    found: Any
    own: bool


class Part(NamedTuple):
    """A transaction that took place: what it read, if that is known, and what it wrote to each key, in order."""

    txn: Txn
    reads: tuple[Read, ...]
    writes: dict[int, tuple[int, ...]]


class Placed(NamedTuple):
    """A part behind others in AR. Sets of those are bits by their place in AR."""

    part: Part
    sources: tuple[tuple[int, int], ...]  # by read its key and the place of whom it read from, -1: the initial version
    views: tuple[int, ...]  # the sets that satisfy EXT
    conflicts: int  # who wrote what it writes
    before: tuple[int, ...]  # by form who must be in VIS


def allowed(history: list[Txn], lists: bool, initial: int | None = None) -> Words:
    """Whether each level in each form allows a history; None where Adya's definitions say nothing, since a read does
    not find its transaction's own write. `initial` is what registers begin as."""
    words: Words = {(level, form): False for level in LEVELS for form in FORMS}
    committed = [parted(txn, lists) for txn in history if txn.outcome == "ok"]
    parts = [part for part in committed if part is not None]
    if len(parts) < len(committed):  # INT refutes
        return {(level, form): None if level in PROSCRIBED else False for level, form in words}
    unknown = [Part(txn, (), _writes(txn)) for txn in history if txn.outcome == "info"]
    search = Search(lists, () if lists else initial, words)
    for count in range(len(unknown) + 1):
        for chosen in combinations(unknown, count):
            search.arbitrations([*parts, *chosen], ())
    return words


def _writes(txn: Txn) -> dict[int, tuple[int, ...]]:
    keys = dict.fromkeys(k for f, k, _ in txn.mops if f != "r")
    return {key: tuple(v for f, k, v in txn.mops if f != "r" and k == key) for key in keys}


def parted(txn: Txn, lists: bool) -> Part | None:
    """What a committed transaction did; None if a read does not find its own write (INT)."""
    own: dict[int, tuple[int, ...]] = {}
    reads = []
    for f, key, value in txn.mops:
        mine = own.get(key, ())
        if f != "r":
            own[key] = (*mine, value)
        elif not mine:
            reads.append(Read(key, value, False))
        elif (value[len(value) - len(mine) :] if lists else (value,)) != (mine if lists else mine[-1:]):
            return None
        elif lists:
            reads.append(Read(key, value[: len(value) - len(mine)], True))
    return Part(txn, tuple(dict.fromkeys(reads)), own)


@dataclass
class Search:
    """All abstract executions of some transactions; writes into `words` which levels allow one."""

    lists: bool
    initial: Any
    words: Words

    def arbitrations(self, left: list[Part], placed: tuple[Placed, ...]) -> None:
        """Every AR that begins so. One in which a read finds no version yet satisfies neither EXT nor G1."""
        if not left:
            self._visibilities(placed)
            self._version_orders(placed)
        for part in left:
            if (one := self._place(part, placed)) is not None and not all(self.words.values()):
                self.arbitrations([other for other in left if other is not part], (*placed, one))

    def _place(self, part: Part, placed: tuple[Placed, ...]) -> Placed | None:
        versions = {read.key: self._versions(read.key, placed) for read in part.reads}
        sources = []
        for read in part.reads:
            of_key = versions[read.key]
            found = [place for place, shown in of_key if shown == read.found]
            if not found or (read.own and found[-1] != of_key[-1][0]):
                return None
            sources.append((read.key, found[-1]))
        views = tuple(
            view
            for view in range(1 << len(placed))
            if all(self._last(versions[key], view) == source for key, source in sources)
        )
        conflicts = _bits(other.part.writes.keys() & part.writes.keys() for other in placed)
        earlier = [
            other.part.txn.complete is not None and other.part.txn.complete < part.txn.invoke for other in placed
        ]
        same = [other.part.txn.process == part.txn.process for other in placed]
        before = (0, _bits(a and b for a, b in zip(earlier, same, strict=True)), _bits(earlier))
        return Placed(part, tuple(sources), views, conflicts, before)

    def _versions(self, key: int, placed: tuple[Placed, ...]) -> list[tuple[int, Any]]:
        """The versions of a key: the place of who wrote it, and what it shows."""
        versions = [(-1, self.initial)]
        for place, other in enumerate(placed):
            if written := other.part.writes.get(key):
                versions.append((place, (*versions[-1][1], *written) if self.lists else written[-1]))
        return versions

    def _last(self, versions: list[tuple[int, Any]], view: int) -> int:
        return max(place for place, _ in versions if place < 0 or view >> place & 1)

    def _open(self, levels: Iterable[str], placed: tuple[Placed, ...]) -> Iterator[tuple[str, int]]:
        """The levels and forms that nothing allowed yet, if AR includes the form's order."""
        for number, form in enumerate(FORMS):
            if all(not _late(placed, place, number) for place in range(len(placed))):
                yield from ((level, number) for level in levels if not self.words[level, form])

    def _visibilities(self, placed: tuple[Placed, ...]) -> None:
        for level, form in self._open(AXIOMS, placed):
            if _some_execution(placed, AXIOMS[level], form):
                self.words[level, FORMS[form]] = True

    def _version_orders(self, placed: tuple[Placed, ...]) -> None:
        for level, form in self._open(PROSCRIBED, placed):
            if not _phenomena(placed, form) & set(PROSCRIBED[level].split()):
                self.words[level, FORMS[form]] = True


def _bits(flags: Iterable[Any]) -> int:
    return _bits_at(place for place, flag in enumerate(flags) if flag)


def _late(placed: tuple[Placed, ...], place: int, form: int) -> bool:
    """Whether the form puts one behind in AR before the one at a place."""
    mine = placed[place].part.txn
    return form > 0 and any(
        (txn := other.part.txn).complete is not None
        and txn.complete < mine.invoke
        and (form == 2 or txn.process == mine.process)
        for other in placed[place + 1 :]
    )


def _some_execution(placed: tuple[Placed, ...], axioms: frozenset[str], form: int) -> bool:
    """Whether some VIS satisfies all axioms. All but TRANSVIS say of each transaction by itself whom it may see."""
    views = []
    for place, one in enumerate(placed):
        least = one.before[form] | (one.conflicts if "NOCONFLICT" in axioms else 0)
        if "TOTALVIS" in axioms:
            least |= (1 << place) - 1
        prefixes = "PREFIX" in axioms
        views.append([v for v in one.views if least & ~v == 0 and not (prefixes and v & (v + 1))])
    return _some_closed(views, ()) if "TRANSVIS" in axioms else all(views)


def _some_closed(views: list[list[int]], chosen: tuple[int, ...]) -> bool:
    """Whether views can be chosen, one a place, of which each includes those of whom it shows."""
    return len(chosen) == len(views) or any(
        _some_closed(views, (*chosen, view))
        for view in views[len(chosen)]
        if all(seen & ~view == 0 for place, seen in enumerate(chosen) if view >> place & 1)
    )


def _phenomena(placed: tuple[Placed, ...], form: int) -> set[str]:
    """Which of G-single and G2-item the version orders of AR show; G1 they don't, for D lies within AR."""
    behind: list[int] = []  # by place from where paths of D lead there
    for one in placed:
        direct = one.conflicts | one.before[form] | _bits_at(source for _, source in one.sources if source >= 0)
        behind.append(direct | _union(behind[place] for place in range(len(behind)) if direct >> place & 1))
    anti = [
        (reader, writer)
        for reader, one in enumerate(placed)
        for key, source in one.sources
        for writer, other in enumerate(placed)
        if writer > source and writer != reader and key in other.part.writes
    ]
    shown = {"G-single"} if any(behind[reader] >> writer & 1 for reader, writer in anti) else set()
    return shown | ({"G2-item"} if _cyclic(behind, anti) else set())


def _cyclic(behind: list[int], more: list[tuple[int, int]]) -> bool:
    before = [
        mask | _bits_at(source for source, target in more if target == place) for place, mask in enumerate(behind)
    ]
    left = set(range(len(before)))
    while free := {place for place in left if not any(before[place] >> other & 1 for other in left)}:
        left -= free
    return bool(left)


def _bits_at(places: Iterable[int]) -> int:
    return _union(1 << place for place in places)


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)
