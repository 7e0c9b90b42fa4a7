"""What the timeline draws from: rows, and a tree over time of which the inner tiles say how many operations began
where, and the leaves which.

    columns of the history ─> rows (threads, keys, nodes) ─┐
                           └> plan: halves of halves ──────┴> density of inner tiles
    rows of the history, in the same order ─> bars ─────────> leaves, one after another

A reader zooms from tile to tile, so that what is drawn at any moment is a few tiles, however long the history is. All
but `write_tiles` is pure.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.source import EVIDENCE_COLUMNS, Source
from harness.errors import UnwritableError, shortened
from results.saved import OUTCOMES
from results.words import operation, outcome, outcome_words

MOST_ROWS: Final = 40
"""Of more threads, keys or nodes several neighbours share a row."""

BINS: Final = 256
"""Parts of its time for which a tile says how many operations began."""

MOST_BARS: Final = 4_000
"""Operations of a leaf; and of a page's own."""

FAN: Final = 8
"""Children of an inner tile, which have equal parts of its time."""

_DEEPEST: Final = 10
_LEVELS: Final = 8
"""Steps of a doubling, in which density is told: within 9 %."""

_MOST_LETTERS: Final = 160

COLUMNS: Final = (
    *("process", "type", "invoke_time", "complete_time", "error_class", "node"),
    *("mops.list.element.table", "mops.list.element.partition"),
)

Numbers: TypeAlias = "np.ndarray[Any, Any]"
TimelineKey: TypeAlias = tuple[int, int]
"""Table and partition."""


class TimelineColumns(NamedTuple):
    """Of each client operation, in order: when it began (ns, never going back), whether it did not succeed, its
    process and the number of its node's name; and of each key of each (`key_of` is the operation's place) the table
    and partition. `end_ns` is the last event."""

    begin_ns: Numbers
    bad: Numbers
    process: Numbers
    node: Numbers
    nodes: tuple[str, ...]
    key_of: Numbers
    keys: Numbers
    end_ns: int


class Grouping(NamedTuple):
    """The rows of one view: their labels, the row of each value, and of each (operation, value) its place in the
    columns and its row."""

    labels: list[str]
    row_of: Mapping[Any, int]
    places: Numbers
    rows: Numbers


class Tile(NamedTuple):
    """A part of the time, ns, and the operations that begin in it, from `first` up to `last`."""

    name: str
    begin_ns: int
    end_ns: int
    first: int
    last: int
    leaf: bool


class Bar(msgspec.Struct, array_like=True):
    """An operation as the page has it: `rows` are those of thread, node and keys, `keys` their names."""

    op: int
    begin_ns: int
    lasted_ns: int | None
    outcome: int
    what: str
    process: int
    node: str
    keys: list[str]
    rows: tuple[int, int, list[int]]


# ---- columns and rows ----


def read_columns(source: Source) -> TimelineColumns:
    """One reading of the history, of what rows and density need."""
    nodes: dict[str, int] = {}
    parts: list[tuple[Numbers, ...]] = []
    size, end_ns = 0, 0
    for batch in source.batches(COLUMNS):
        clients = _clients(batch)
        if not clients.num_rows:
            continue
        begin = clients["invoke_time"].to_numpy(zero_copy_only=False)
        names = pc.fill_null(clients["node"].cast(pa.string()), "").dictionary_encode()
        codes = np.array([nodes.setdefault(name, len(nodes)) for name in names.dictionary.to_pylist()], np.int64)
        mops = clients["mops"]
        flat = pc.list_flatten(mops)
        keys = [pc.struct_field(flat, [name]).to_numpy(zero_copy_only=False) for name in ("table", "partition")]
        of = pc.list_parent_indices(mops).to_numpy(zero_copy_only=False) + size
        bad = pc.not_equal(clients["type"].cast(pa.string()), "ok").to_numpy(zero_copy_only=False)
        process = clients["process"].to_numpy(zero_copy_only=False)
        parts.append(
            (begin, bad, process, codes[names.indices.to_numpy()], of, np.stack(keys, axis=1).astype(np.int64))
        )
        size += clients.num_rows
        last = pc.max(clients["complete_time"]).as_py()
        end_ns = max(end_ns, int(begin.max()) + 1, last or 0)
    none = np.zeros(0, np.int64)
    joined = [np.concatenate(each) for each in zip(*parts, strict=True)] or [none] * 5 + [none.reshape(0, 2)]
    begin, bad, process, node, of, keys_of = joined
    return TimelineColumns(np.maximum.accumulate(begin), bad, process, node, tuple(nodes), of, keys_of, end_ns)


def _clients(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater_equal(batch.column("process"), 0))


def groupings(columns: TimelineColumns, threads: int | None, shown: Callable[[int], str]) -> dict[str, Grouping]:
    """The rows by thread (process, where it is not known how many threads there were), by key and by node; `shown`
    names a partition."""
    every = np.arange(len(columns.process))
    process = columns.process if not threads else columns.process % threads
    word = "thread" if threads else "process"
    ids, at = np.unique(process, return_inverse=True)
    found = {"process": _grouping([f"{word} {each}" for each in ids.tolist()], ids.tolist(), every, at)}
    keys, at = _distinct(columns.keys)
    found["key"] = _grouping([key_name(key, shown) for key in keys], keys, columns.key_of, at)
    order = sorted(range(len(columns.nodes)), key=lambda code: (not columns.nodes[code], columns.nodes[code]))
    names = [columns.nodes[code] for code in order]
    at = np.argsort(order)[columns.node] if order else columns.node
    found["node"] = _grouping([node_name(name) for name in names], names, every, at)
    return found


def key_name(key: TimelineKey, shown: Callable[[int], str]) -> str:
    """`key 5`, or `key 5 of table 1`."""
    return f"key {shown(key[1])}" + (f" of table {key[0]}" if key[0] else "")


def node_name(name: str) -> str:
    """The name of a node, or that an operation has none."""
    return name or "no node"


def _distinct(keys: Numbers) -> tuple[list[TimelineKey], Numbers]:
    if not keys[:, 0].any():
        found, at = np.unique(keys[:, 1], return_inverse=True)
        return [(0, key) for key in found.tolist()], at
    found, at = np.unique(keys, axis=0, return_inverse=True)
    return [(table, key) for table, key in found.tolist()], at.reshape(-1)


def _grouping(names: Sequence[str], values: Sequence[Any], places: Numbers, at: Numbers) -> Grouping:
    count = min(len(names), MOST_ROWS)
    row_of = np.arange(len(names)) * count // max(len(names), 1)
    edges = np.searchsorted(row_of, np.arange(count + 1)).tolist()
    labels = [names[a] if b - a == 1 else f"{names[a]} … {names[b - 1]}" for a, b in pairwise(edges)]
    labels = [shortened(label, 80) for label in labels]
    return Grouping(labels, dict(zip(values, row_of.tolist(), strict=True)), places, row_of[at].astype(np.int64))


# ---- the tree ----


def plan(begin_ns: Numbers, start_ns: int, end_ns: int) -> list[Tile]:
    """The tiles in order of time, each inner one before its children."""
    found: list[Tile] = []

    def split(name: str, since_ns: int, until_ns: int, first: int, last: int) -> None:
        leaf = last - first <= MOST_BARS or len(name) > _DEEPEST or until_ns - since_ns < FAN
        found.append(Tile(name, since_ns, until_ns, first, last, leaf))
        if leaf:
            return
        edges_ns = [since_ns + (until_ns - since_ns) * part // FAN for part in range(FAN + 1)]
        inner = np.searchsorted(begin_ns[first:last], edges_ns[1:-1]).tolist()
        edges = [first, *(first + place for place in inner), last]
        for part in range(FAN):
            split(f"{name}{part}", edges_ns[part], edges_ns[part + 1], edges[part], edges[part + 1])

    split("r", start_ns, end_ns, 0, len(begin_ns))
    return found


def density(columns: TimelineColumns, grouped: Mapping[str, Grouping], tile: Tile) -> dict[str, str]:
    """By view the levels of rows × BINS, first of all operations, then of those that did not succeed; as base64.

    Level 0 is none, level n ≥ 1 about 2^((n-1)/8) operations.
    """
    span_ns = max(tile.end_ns - tile.begin_ns, 1)
    found = {}
    for view, grouping in grouped.items():
        first, last = np.searchsorted(grouping.places, (tile.first, tile.last)).tolist()
        places, rows = grouping.places[first:last], grouping.rows[first:last]
        bins = np.minimum((columns.begin_ns[places] - tile.begin_ns) * BINS // span_ns, BINS - 1)
        cells, size = rows * BINS + bins, len(grouping.labels) * BINS
        counts = [np.bincount(chosen, minlength=size) for chosen in (cells, cells[columns.bad[places]])]
        found[view] = base64.b64encode(b"".join(map(_levels, counts))).decode()
    return found


def _levels(counts: Numbers) -> bytes:
    levels = np.where(counts > 0, 1 + np.rint(_LEVELS * np.log2(np.maximum(counts, 1))), 0)
    return bytes(levels.astype(np.uint8))


# ---- bars ----


class BarMaker(NamedTuple):
    """Makes bars of rows of the history."""

    source: Source
    grouped: Mapping[str, Grouping]
    threads: int | None

    def bar(self, row: Mapping[str, Any]) -> Bar:
        """A bar of a row with EVIDENCE_COLUMNS."""
        process, node = row["process"], row["node"] or ""
        keys = list(dict.fromkeys((mop["table"], mop["partition"]) for mop in row["mops"] or ()))
        told = operation({**row, "mops": [self._shown(mop) for mop in row["mops"] or ()]})
        ended = outcome(row)
        what = told if ended == "ok" else f"{told} · {outcome_words(row)}"
        thread = process % self.threads if self.threads else process
        return Bar(
            row["op"],
            row["invoke_time"],
            None if row["complete_time"] is None else row["complete_time"] - row["invoke_time"],
            OUTCOMES.index(ended) if ended in OUTCOMES else 0,
            shortened(what, _MOST_LETTERS),
            process,
            node_name(node),
            [shortened(key_name(key, self.source.shown), 80) for key in keys],
            (
                self.grouped["process"].row_of[thread],
                self.grouped["node"].row_of[node],
                sorted({self.grouped["key"].row_of[key] for key in keys}),
            ),
        )

    def _shown(self, mop: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.source.dictionary:
            return mop
        named = ("partition", "row", "column", "value", "expected")
        told = {name: None if mop[name] is None else self.source.shown(mop[name]) for name in named}
        lists = mop["values"] and [self.source.shown(each) for each in mop["values"]]
        return {**mop, **told, "row": mop["row"] and told["row"], "column": mop["column"] and told["column"],
                "values": lists}  # fmt: skip

    def all(self) -> Iterator[Bar]:
        """Of every client operation, in order."""
        for batch in self.source.batches(EVIDENCE_COLUMNS):
            yield from map(self.bar, _clients(batch).to_pylist())

    def near(self, windows: Sequence[tuple[int, int]], most: int) -> Iterator[Bar]:
        """Of operations that were under way in some windows (ns), of each window at most this number, those nearest to
        its middle; an operation in several comes several times."""
        held: list[list[dict[str, Any]]] = [[] for _ in windows]
        for batch in self.source.batches(EVIDENCE_COLUMNS) if windows else ():
            clients = _clients(batch)
            for rows, (first_ns, last_ns) in zip(held, windows, strict=True):
                end = pc.fill_null(clients.column("complete_time"), first_ns)
                begun = pc.less_equal(clients.column("invoke_time"), last_ns)
                rows += clients.filter(pc.and_(begun, pc.greater_equal(end, first_ns))).to_pylist()
                middle_ns = (first_ns + last_ns) // 2
                rows.sort(key=lambda row: abs(row["invoke_time"] - middle_ns))
                del rows[most:]
        yield from (self.bar(row) for rows in held for row in rows)


# ---- files ----


def write_tiles(folder: Path, columns: TimelineColumns, tiles: Sequence[Tile], bars: BarMaker) -> None:
    """Write all but the first tile, each as a script that gives itself to the page, since a page that was opened from a
    disk may read nothing else. Raises UnwritableError."""
    rest = tiles[1:] if len(tiles) > 1 else tiles
    every, carried = bars.all(), list[Bar]()
    for tile in rest:
        if not tile.leaf:
            write_script(folder, tile.name, inner_tile(columns, bars.grouped, tile))
            continue
        inside = [*carried, *islice(every, tile.last - tile.first)]
        write_script(folder, tile.name, {"begin": tile.begin_ns, "end": tile.end_ns, "bars": inside})
        carried = [bar for bar in inside if bar.begin_ns + (bar.lasted_ns or 0) > tile.end_ns]


def inner_tile(columns: TimelineColumns, grouped: Mapping[str, Grouping], tile: Tile) -> dict[str, Any]:
    """What the page has of an inner tile."""
    return {"begin": tile.begin_ns, "end": tile.end_ns, "density": density(columns, grouped, tile)}


def write_script(folder: Path, name: str, content: object) -> None:
    """A file that calls the page's `assayTile` with its name and content; raises UnwritableError."""
    try:
        (folder / f"{name}.js").write_bytes(b'assayTile("%s",%s);\n' % (name.encode(), as_data(content)))
    except OSError as error:
        raise UnwritableError(f"{folder / name}.js can't be written: {error.strerror}.") from error


def as_data(content: object) -> bytes:
    """JSON that is also a script, and holds no markup wherever it stands."""
    return msgspec.json.encode(content).replace(b"<", rb"\u003c").replace("\u2028".encode(), rb"\u2028")


def few(bars: Iterable[Bar], most: int = MOST_BARS) -> list[Bar]:
    """The first of them, each operation once, in order of time."""
    chosen: dict[int, Bar] = {}
    for bar in bars:
        if len(chosen) == most:
            break
        chosen.setdefault(bar.op, bar)
    return sorted(chosen.values(), key=lambda bar: (bar.begin_ns, bar.op))
