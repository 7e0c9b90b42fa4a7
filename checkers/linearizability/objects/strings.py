"""Strings that grow: the trie of all prefixes of what was read, and where each append leads in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

import numpy as np

from checkers.columns.codes import NEVER, NIL, Ints
from checkers.columns.mops import Columns
from checkers.linearizability.objects.built import Built, addresses_of, make_ops
from checkers.linearizability.objects.kinds import APPEND, GET, PUT, STRING, UNSEEN, StringColumns


class _Trie:
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
        done: set[tuple[int, int]] = set()
        for text in self._reads:
            self.node(text)
        for start in sorted(set(starts)):
            if self.is_begun(start):
                self.node(start)
        begun = set(starts)
        sizes = {len(start) for start in begun}
        for text in self._reads:
            self._walk(text, [size for size in sizes if len(text) >= size and text[:size] in begun], by_size, done)

    def _walk(self, text: str, places: list[int], by_size: dict[int, set[str]], done: set[tuple[int, int]]) -> None:
        """Follow the pieces along one read string."""
        ahead, reached = sorted(places), set(places)
        while ahead:
            place = heappop(ahead)
            here = self.node(text[:place])
            for size, pieces in by_size.items():
                piece = text[place : place + size]
                if len(piece) < size or piece not in pieces:
                    continue
                if place + size not in reached:
                    reached.add(place + size)
                    heappush(ahead, place + size)
                there = self.node(text[: place + size])
                if (here, there) not in done:
                    done.add((here, there))
                    self.edges.append((here, piece, there))


def build_strings(rows: Columns, text_of: Callable[[int], str]) -> tuple[Built, Ints]:
    """Strings that begin as ""; a get of nothing reads that. And the object of each node."""
    known: dict[int, str] = {int(v): "" if v == NIL else text_of(int(v)) for v in np.unique(rows["value"])}
    numbers = {text: number for number, text in enumerate(sorted(set(known.values())))}
    kind, value = rows["kind"], np.zeros(len(rows["kind"]), np.int64)
    objects, key = np.unique(rows["object"], return_inverse=True)
    offsets = np.searchsorted(key, np.arange(len(objects) + 1))
    nodes, last_seen, root, node_object = [""], [-1], list[int](), [-1]
    edges: list[tuple[int, int, int]] = []
    for number in range(len(objects)):
        mine = range(offsets[number], offsets[number + 1])
        texts = {row: known[int(rows["value"][row])] for row in mine}
        trie = _Trie((texts[row] for row in mine if kind[row] == GET), len(nodes))
        starts = ["", *(texts[row] for row in mine if kind[row] == PUT)]
        trie.grow(starts, (texts[row] for row in mine if kind[row] == APPEND))
        root.append(trie.nodes.get("", UNSEEN))
        for row in mine:
            value[row] = numbers[texts[row]] if kind[row] == APPEND else trie.nodes.get(texts[row], UNSEEN)
        nodes.extend(trie.nodes)
        node_object.extend([number] * len(trie.nodes))
        last_seen.extend(_last_reads(trie, [(texts[r], int(rows["complete"][r])) for r in mine if kind[r] == GET]))
        edges.extend((here, numbers[piece], there) for here, piece, there in trie.edges)
    edges.sort()
    next_put, next_get = _nexts(rows, key)
    columns = StringColumns(
        root=np.array(root, np.int64),
        last_seen=np.array(last_seen, np.int64),
        edge_first=np.searchsorted(np.array([edge[0] for edge in edges], np.int64), np.arange(len(nodes) + 1)),
        edge_piece=np.array([edge[1] for edge in edges], np.int32),
        edge_target=np.array([edge[2] for edge in edges], np.int32),
        next_put=next_put,
        next_get=next_get,
    )
    ops = make_ops(STRING, rows, kind, value)._replace(strings=columns)
    return Built(ops, addresses_of(rows), nodes=tuple(nodes)), np.array(node_object)


def _nexts(rows: Columns, key: Ints) -> tuple[Ints, Ints]:
    """For each operation the first invocation of a put of its object after it completes, and the first completion of a
    get that begins after that; NEVER if there is none."""
    found = []
    begin, done = rows["invoke"], rows["complete"] != NEVER
    span = int(max(begin.max(initial=0), rows["complete"][done].max(initial=0))) + 2
    ends = key * span + np.where(done, rows["complete"], span - 1)
    for chosen, times in ((rows["kind"] == PUT, begin), (rows["kind"] == GET, rows["complete"])):
        mine = np.flatnonzero(chosen)
        mine = mine[np.argsort(key[mine] * span + begin[mine])]
        moments = np.append(key[mine] * span + times[mine], NEVER)
        earliest = np.minimum.accumulate(moments[::-1])[::-1]
        time = earliest[np.searchsorted(key[mine] * span + begin[mine], ends)]
        found.append(np.where(time < (key + 1) * span, time - key * span, NEVER))
    return found[0], found[1]


def _last_reads(trie: _Trie, gets: list[tuple[str, int]]) -> list[int]:
    """For each node when the last read of a string that begins so completes."""
    last: dict[str, int] = {}
    for text, complete in gets:
        last[text] = max(last.get(text, -1), complete)
    ordered = sorted(trie.nodes)
    found = dict.fromkeys(ordered, -1)
    open_nodes: list[str] = []
    for text in ordered:
        while open_nodes and not text.startswith(open_nodes[-1]):
            gone = open_nodes.pop()
            if open_nodes:
                found[open_nodes[-1]] = max(found[open_nodes[-1]], found[gone])
        found[text] = last.get(text, -1)
        open_nodes.append(text)
    while len(open_nodes) > 1:
        gone = open_nodes.pop()
        found[open_nodes[-1]] = max(found[open_nodes[-1]], found[gone])
    return [found[text] for text in trie.nodes]
