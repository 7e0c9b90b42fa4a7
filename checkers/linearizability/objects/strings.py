"""Strings that grow: the trie of all prefixes of what was read, and where each append leads in it.

Where each string that is read was made in one way only, its history is that of a register (`string_registers`). Say
each string that a get returned, and each that those were made of, has one operation that can have made it: a put of it,
an append to the one before, or nothing for the empty string. Then that operation did, and a register does the same
whose values are these strings: such a put is a write, such an append a compare-and-set from the string before, a get a
read, and whatever else changes the string writes a value that nobody reads. Orders are right for the one as for the
other: by induction the register holds one of these strings exactly if it is the string. An operation that would have to
make two of these strings makes only one of the register's, which is refuted by the other. Written values are unique, so
zones decide (`register_zones`), however many operations are open at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from checkers.columns.codes import CAS, NEVER, NIL, READ, WRITE, Ints, RegisterColumns
from checkers.columns.dense import together
from checkers.columns.mops import Columns
from checkers.columns.projection import KeyedOps
from checkers.linearizability.objects.object_columns import (
    APPEND,
    GET,
    PUT,
    STRING,
    UNSEEN,
    Built,
    RegisterProjections,
    StringColumns,
    addresses_of,
    make_ops,
)


class Trie:
    """The nodes of one object: strings that begin a read one and that puts and appends can make."""

    def __init__(self, reads: Iterable[str], first_node: int) -> None:
        self._reads = sorted(set(reads))
        self._first = first_node
        self.nodes: dict[str, int] = {}
        self.edges: list[tuple[int, str, int]] = []

    def node(self, text: str) -> int:
        """The node of a string, made if need be."""
        return self.nodes.setdefault(text, self._first + len(self.nodes))

    def is_begun(self, text: str) -> bool:
        """Whether some read string begins with this one."""
        low, high = 0, len(self._reads)
        while low < high:
            middle = (low + high) // 2
            if self._reads[middle] < text:
                low = middle + 1
            else:
                high = middle
        return low < len(self._reads) and self._reads[low].startswith(text)

    def grow(self, starts: Iterable[str], pieces: Iterable[str]) -> None:
        """All nodes that pieces lead to, and how."""
        by_size: dict[int, set[str]] = {}
        for piece in pieces:
            by_size.setdefault(len(piece), set()).add(piece)
        for text in self._reads:
            self.node(text)
        begun = set(starts)
        for start in sorted(begun):
            if self.is_begun(start):
                self.node(start)
        sizes, longest = {len(start) for start in begun}, max(by_size, default=0)
        before, reached = None, set[int]()
        for text in self._reads:
            same = -1 if before is None else _common(before, text)
            # As far as both texts agree it is known where pieces lead. No earlier text agrees with this one farther
            # than that, for they are sorted, so whatever leads on from there is new.
            reached = {place for place in reached if place <= same}
            ahead = [place for place in reached if place + longest > same]
            ahead += [size for size in sizes if same < size <= len(text) and text[:size] in begun]
            self._walk(text, same, sorted(ahead), reached, by_size)
            before = text

    def _walk(self, text: str, same: int, ahead: list[int], reached: set[int], by_size: dict[int, set[str]]) -> None:
        """Follow the pieces from the places `ahead` along one read string, to where they lead beyond `same`; `reached`
        gets all places."""
        reached.update(ahead)
        while ahead:
            place = heappop(ahead)
            here = self.node(text[:place])
            for size, pieces in by_size.items():
                piece, end = text[place : place + size], place + size
                if end <= same or len(piece) < size or piece not in pieces:
                    continue
                if end not in reached:
                    reached.add(end)
                    heappush(ahead, end)
                self.edges.append((here, piece, self.node(text[:end])))


def _common(one: str, other: str) -> int:
    """How many characters both begin with, where one comes before the other."""
    if other.startswith(one):
        return len(one)
    return next(place for place, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its)


def build_strings(rows: Columns, text_of: Callable[[int], str]) -> tuple[Built, Ints]:
    """Strings that begin as ""; a get of nothing reads that. And the object of each node."""
    known: dict[int, str] = {int(v): "" if v == NIL else text_of(int(v)) for v in np.unique(rows["value"])}
    numbers = {text: number for number, text in enumerate(sorted(set(known.values())))}
    kind, value = rows["kind"], np.zeros(len(rows["kind"]), np.int64)
    objects, key = np.unique(rows["object"], return_inverse=True)
    offsets = np.searchsorted(key, np.arange(len(objects) + 1))
    nodes, rank, last, root, node_object = [""], [0], [0], list[int](), [-1]
    edges: list[tuple[int, int, int]] = []
    for number in range(len(objects)):
        mine = range(offsets[number], offsets[number + 1])
        texts = {row: known[int(rows["value"][row])] for row in mine}
        trie = Trie((texts[row] for row in mine if kind[row] == GET), len(nodes))
        starts = ["", *(texts[row] for row in mine if kind[row] == PUT)]
        trie.grow(starts, (texts[row] for row in mine if kind[row] == APPEND))
        root.append(trie.nodes.get("", UNSEEN))
        for row in mine:
            value[row] = numbers[texts[row]] if kind[row] == APPEND else trie.nodes.get(texts[row], UNSEEN)
        nodes.extend(trie.nodes)
        node_object.extend([number] * len(trie.nodes))
        ranks, lasts = _ranks(trie)
        rank.extend(ranks)
        last.extend(lasts)
        edges.extend((here, numbers[piece], there) for here, piece, there in trie.edges)
    edges.sort()
    gets = np.flatnonzero(kind == GET)
    next_put, next_get, next_first, next_last = _nexts(rows, key, gets)
    columns = StringColumns(
        root=np.array(root, np.int64),
        rank=np.array(rank, np.int64),
        last=np.array(last, np.int64),
        edge_first=np.searchsorted(np.array([edge[0] for edge in edges], np.int64), np.arange(len(nodes) + 1)),
        edge_piece=np.array([edge[1] for edge in edges], np.int32),
        edge_target=np.array([edge[2] for edge in edges], np.int32),
        next_put=next_put,
        next_get=next_get,
        next_first=next_first,
        next_last=next_last,
        get_begin=rows["invoke"][gets],
        get_node=value[gets].astype(np.int32),
    )
    ops = make_ops(STRING, rows, kind, value)._replace(strings=columns)
    return Built(ops, addresses_of(rows), nodes=tuple(nodes)), np.array(node_object)


def _nexts(rows: Columns, key: Ints, gets: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """For each operation the first invocation of a put of its object after it completes, and the first completion of a
    get that begins after that, NEVER if there is none; and `first:last` of the gets that begin before that one ends."""
    begin, done = rows["invoke"], rows["complete"] != NEVER
    span = int(max(begin.max(initial=0), rows["complete"][done].max(initial=0))) + 2
    begins, over = key * span + begin, (key + 1) * span
    ends = key * span + np.where(done, rows["complete"], span - 1)

    def earliest(some: Ints, times: Ints) -> Ints:
        moments = np.append(key[some] * span + times[some], NEVER)
        least = np.minimum.accumulate(moments[::-1])[::-1]
        return np.minimum(least[np.searchsorted(begins[some], ends)], over)

    next_put, next_get = earliest(np.flatnonzero(rows["kind"] == PUT), begin), earliest(gets, rows["complete"])
    first, last = np.searchsorted(begins[gets], ends), np.searchsorted(begins[gets], next_get)
    next_put, next_get = (np.where(time < over, time - key * span, NEVER) for time in (next_put, next_get))
    return next_put, next_get, first, last


def _ranks(trie: Trie) -> tuple[list[int], list[int]]:
    """For each node its place among all, sorted, and the place of the last that begins with its string."""
    ordered = sorted(trie.nodes)
    rank, last = {text: place for place, text in enumerate(ordered)}, dict.fromkeys(ordered, 0)
    open_nodes: list[str] = []
    for place, text in enumerate([*ordered, None]):
        while open_nodes and (text is None or not text.startswith(open_nodes[-1])):
            last[open_nodes.pop()] = place - 1
        if text is not None:
            open_nodes.append(text)
    return [rank[text] for text in trie.nodes], [last[text] for text in trie.nodes]


class _Edges(NamedTuple):
    """Where appending leads: object, nodes before and after, and a number for the piece in its object."""

    object: Ints
    source: Ints
    target: Ints
    piece: Ints


def _needed(built: Built, source: Ints, target: Ints) -> Ints:
    """Flags of the nodes that gets returned or that these were made of."""
    needed = np.zeros(len(built.nodes), np.int64)
    needed[built.ops.value[built.ops.kind == GET]] = 1
    sizes = np.array([len(text) for text in built.nodes], np.int64)
    for edge in np.argsort(-sizes[target], kind="stable").tolist():
        needed[source[edge]] |= needed[target[edge]]
    needed[UNSEEN] = 0
    return needed


def _edges(built: Built, key: Ints, node_object: Ints) -> tuple[_Edges, Ints, Ints]:
    """The edges between needed nodes; which nodes are needed; each append's number of its piece."""
    ops = built.ops
    source = np.repeat(np.arange(len(built.nodes)), np.diff(ops.strings.edge_first))
    target, appends = ops.strings.edge_target.astype(np.int64), ops.kind == APPEND
    needed = _needed(built, source, target)
    chosen = np.flatnonzero(needed[target])
    source, target, owner = source[chosen], target[chosen], node_object[source[chosen]]
    pieces = np.concatenate((ops.strings.edge_piece[chosen], ops.value[appends])).astype(np.int64)
    ids, _ = together([np.concatenate((owner, key[appends])), pieces])
    piece = np.full(len(key), -1)
    piece[appends] = ids[len(chosen) :]
    return _Edges(owner, source, target, ids[: len(chosen)]), needed, piece


def string_registers(built: Built, node_object: Ints) -> RegisterProjections:
    """A register for each string of which that much is known; `node_object[n]` is the object of node n."""
    ops, count = built.ops, len(built.ops.offsets) - 1
    key = np.repeat(np.arange(count), np.diff(ops.offsets))
    edges, needed, piece = _edges(built, key, node_object)
    many = int(max(piece.max(initial=-1), edges.piece.max(initial=-1))) + 1
    appended = np.bincount(piece[piece >= 0], minlength=many)
    makers = np.bincount(ops.value[ops.kind == PUT], minlength=len(needed))
    makers[ops.strings.root] += 1
    np.add.at(makers, edges.target, appended[edges.piece])
    clear = np.ones(count, np.bool_)
    clear[node_object[(makers > 1) & (needed == 1)]] = False
    via = np.full(many, -1)
    via[edges.piece] = np.arange(len(edges.piece))
    edge = np.where(piece >= 0, via[piece], -1) if many else piece
    return _registers(built, key, needed, edge, edges, np.flatnonzero(clear))


def _registers(built: Built, key: Ints, needed: Ints, edge: Ints, edges: _Edges, clear: Ints) -> RegisterProjections:
    """The registers of the objects `clear`; `edge` is the one that an append takes, or -1."""
    ops = built.ops
    puts, gets, glued = ops.kind == PUT, ops.kind == GET, edge >= 0
    root = ops.strings.root[key]
    kind, value, expected = (
        np.full(len(key), WRITE, np.uint8),
        len(needed) + np.arange(len(key)),
        np.full(len(key), NIL),
    )
    made = puts & (needed[np.where(puts, ops.value, UNSEEN)] == 1)
    kind[gets], value[gets | made] = READ, ops.value[gets | made]
    kind[glued], value[glued], expected[glued] = CAS, edges.target[edge[glued]], edges.source[edge[glued]]
    value[gets & (value == root)] = NIL
    expected[glued & (expected == root)] = NIL
    columns = RegisterColumns(ops.offsets, kind, value, expected, ops.invoke, ops.complete)
    return RegisterProjections(KeyedOps(built.addresses[clear], columns.select(clear)), clear, clear)
