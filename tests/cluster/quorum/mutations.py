"""Mutations drawn at random over few rows, columns and timestamps, so that they collide; and a naive model of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from cluster.quorum.deletions import Deletion
from cluster.quorum.ids import MutationId
from cluster.quorum.keys import ABOVE, LOWEST_KEY, KeyBytes, KeySpan, encode_key
from cluster.quorum.mutation import MutationBuilder, PartitionMutation
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.rows import PartitionContents, merge_contents
from cluster.store.cells import Value


def span_of(prefix: Sequence[Value]) -> KeySpan:
    """All keys that begin with these values; a whole key's own span is that of its values."""
    key = encode_key(prefix)
    return key, key + ABOVE


def has_applied(log: MutationLog, each: MutationId) -> bool:
    """Whether a replica has a mutation by what its log tells."""
    return each.time < log.low_bound or each in log.index


PARTITIONS = tuple(encode_key((name,)) for name in ("a", "b", "c"))
KEYS = tuple(encode_key((first, second)) for first in (0, 1, 300) for second in ("", "x"))
BOUNDS = (LOWEST_KEY, *(bound for key in KEYS for bound in (key, key + ABOVE)), *span_of((1,)), ABOVE)
COLUMNS = (1, 2, 7)

values = st.one_of(st.none(), st.integers(-2, 2), st.sampled_from(["", "x", b"", b"\0", 0.5, True]))
spans = st.tuples(st.sampled_from(BOUNDS), st.sampled_from(BOUNDS)).map(sorted).map(tuple)
"""Some are empty."""


@dataclass
class Statements:
    """One mutation as a list of what it says."""

    partition: KeyBytes
    timestamp: int
    writes: list[tuple[KeyBytes, dict[int, Value], bool]] = field(default_factory=list)
    rows: list[KeyBytes] = field(default_factory=list)
    ranges: list[KeySpan] = field(default_factory=list)
    whole: bool = False

    def mutation(self) -> PartitionMutation:
        builder = MutationBuilder(self.partition, self.timestamp, 1_000 + self.timestamp)
        for key, cells, insert in self.writes:
            builder.write(key, cells, insert)
        for key in self.rows:
            builder.delete_row(key)
        for span in self.ranges:
            builder.delete_range(span)
        if self.whole:
            builder.delete_partition()
        return builder.build()


def statements(
    timestamps: st.SearchStrategy[int], partitions: tuple[KeyBytes, ...] = PARTITIONS[:1]
) -> st.SearchStrategy[Statements]:
    write = st.tuples(
        st.sampled_from(KEYS), st.dictionaries(st.sampled_from(COLUMNS), values, max_size=3), st.booleans()
    )
    return st.builds(
        Statements,
        st.sampled_from(partitions),
        timestamps,
        st.lists(write, max_size=3),
        st.lists(st.sampled_from(KEYS), max_size=1),
        st.lists(spans, max_size=1),
        st.sampled_from([False] * 9 + [True]),
    )


def in_one(parts: list[Statements]) -> PartitionContents:
    return merge_contents([PartitionContents(), *(part.mutation().contents for part in parts)])


class NaiveRows:
    """Every statement is kept; a read looks at all of them."""

    def __init__(self, said: list[Statements]) -> None:
        self.said = said

    def deleted_up_to(self, key: KeyBytes) -> int:
        """The highest timestamp of a deletion that covers the row."""
        found = [-1]
        for each in self.said:
            covered = each.whole or key in each.rows or any(start <= key < end for start, end in each.ranges)
            found += [each.timestamp] if covered else []
        return max(found)

    def cell(self, key: KeyBytes, column: int) -> tuple[int, Value] | None:
        writes = [
            (
                each.timestamp,
                cells[column] is None,
                encode_key(() if cells[column] is None else (cells[column],)),
                cells[column],
            )
            for each in self.said
            for row, cells, _ in each.writes
            if row == key and column in cells and each.timestamp > self.deleted_up_to(key)
        ]
        if not writes:
            return None
        timestamp, _, _, value = max(writes, key=lambda write: write[:3])
        return None if value is None else (timestamp, value)

    def exists(self, key: KeyBytes) -> bool:
        """Whether it was inserted and not deleted since."""
        return any(
            row == key and insert and each.timestamp > self.deleted_up_to(key)
            for each in self.said
            for row, _, insert in each.writes
        )

    def visible(self) -> dict[KeyBytes, dict[int, tuple[int, Value]]]:
        rows = {}
        for key in sorted(KEYS):
            cells = {column: cell for column in COLUMNS if (cell := self.cell(key, column)) is not None}
            if cells or self.exists(key):
                rows[key] = cells
        return rows


def deletion(timestamp: int) -> Deletion:
    return Deletion(timestamp, 1_000 + timestamp)
