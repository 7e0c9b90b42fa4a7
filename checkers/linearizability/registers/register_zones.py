"""Linearizability of registers whose written values are unique, by zones (Gibbons and Korach 1997) with cas chains.

Operations are grouped by value into clusters: the write and the reads of its value. The register holds each value for
one stretch of time, so a cluster is contiguous in every linearization; a compare-and-set puts its cluster right behind
the one it read, so a chain of them is one contiguous *block* whose inner order is fixed. With f the earliest completion
and s the latest invocation in a block, A must come before B exactly if f(A) < s(B). A linearization exists if and only
if (1) no block contradicts real time inside, and (2) no two blocks must each come before the other. (2) suffices: in
any cycle of blocks the one with the least f is also bound to follow its predecessor's predecessor, so it and its
predecessor form a cycle of two. With f < s a zone is forward, else backward: (2) says that forward zones do not overlap
and that no backward zone lies inside a forward one. The unset register is a cluster written before everything.

An indeterminate write counts only if its value was observed, and then never ends. Cost: O(n) a key plus a galloping
search per block; no sorting. Where several tasks judge one key (`split_registers`), a block is built in one of them
and compared in another (`blocks_inside`, `conflicts_among`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import CAS, FAILED_CAS, NEVER, NIL, READ, WRITE, Codes, Ids, Int, Ints, RegisterColumns
from checkers.columns.dense import ValueMap, insert, lookup, make_value_map, reset
from checkers.columns.instances import Instances, make_instances, record
from checkers.columns.projection import KeyedOps
from checkers.compiled import lean
from checkers.findings import Finding, Findings, Key
from checkers.linearizability.driver import INVALID, UNDECIDED, VALID
from harness.errors import HarnessError

READ_OF_UNWRITTEN: Final = 0
READ_BEFORE_WRITE: Final = 1
STALE_READ: Final = 2
OVERLAPPING_CLUSTERS: Final = 3
LOST_UPDATE: Final = 4
CAS_CYCLE: Final = 5

_OBSERVED: Final = 1
"""Some read returned the cluster's value."""
_COUNTED: Final = 2
"""The cluster's write took effect."""
_VISITED: Final = 4
"""The cluster is in a block."""
_REPORTED: Final = 8
"""The block of which this is the first cluster is in a conflict that was recorded."""


class Clusters(NamedTuple):
    """Scratch of one key, by cluster: the write of a value and the reads of it. Cluster 0 is the unset register's."""

    writer: Ids  # the row of its write, -1 for cluster 0
    first_read: Ids  # the row of its read that completed first, -1: none
    last_read: Ids  # the row of its read that was invoked last, -1: none
    parent: Ids  # if a compare-and-set wrote it, the cluster that this one found; else -1
    child: Ids  # the cluster that replaced it by compare-and-set, -1: none; parent[child[c]] == c
    flags: Codes  # _OBSERVED, _COUNTED, _VISITED, _REPORTED
    chain: Ids  # by place the clusters of the chain at hand, in order


class ZoneBlocks(NamedTuple):
    """Scratch of one key, by block, which is a chain of clusters. A rank is a number of the key's invocations."""

    root: Ids  # its first cluster
    first_row: Ids  # the row that completed earliest (f), -1: the unset register's imagined write, before everything
    last_row: Ids  # the row that was invoked latest (s), -1 likewise
    first_rank: Ids  # how many invocations come before f completes: its zone is forward if first_rank <= last_rank
    last_rank: Ids  # how many invocations come before s, -1 for the imagined write
    zone_at: Ids  # by rank the widest forward zone that begins there, -1: none
    widest: Ids  # by rank the zone that reaches farthest of those that begin there or before, -1: none


class ZoneScratch(NamedTuple):
    """Room for one key after another."""

    clusters: Clusters
    blocks: ZoneBlocks
    values: ValueMap  # the cluster of each value that the key at hand writes


def make_scratch(writes: int, operations: int) -> ZoneScratch:
    """Scratch for keys of at most `writes` writes and `operations` operations."""
    entries = writes + 1
    writer, first, last, parent, child, chain = (np.empty(entries, np.int32) for _ in range(6))
    clusters = Clusters(writer, first, last, parent, child, np.empty(entries, np.uint8), chain)
    blocks = [np.empty(entries, np.int32) for _ in range(5)]
    ranks = [np.empty(operations + 1, np.int32) for _ in range(2)]
    return ZoneScratch(clusters, ZoneBlocks(*blocks, *ranks), make_value_map(entries))


@lean
def _complete_of(ops: RegisterColumns, row: Int) -> Int:
    return ops.complete[row] if row >= 0 else np.int64(-1)


@lean
def _invoke_of(ops: RegisterColumns, row: Int) -> Int:
    return ops.invoke[row] if row >= 0 else np.int64(-2)


@lean
def _number_values(ops: RegisterColumns, start: Int, stop: Int, scratch: ZoneScratch) -> int:
    """Make one cluster per written value; -1 where values are not unique, else the number of clusters."""
    lowest, highest, writes = np.int64(0), np.int64(-1), 0
    for row in range(start, stop):
        if ops.kind[row] == WRITE or ops.kind[row] == CAS:
            value = ops.value[row]
            lowest = value if writes == 0 else min(lowest, value)
            highest = value if writes == 0 else max(highest, value)
            writes += 1
    reset(scratch.values, writes, lowest, highest)
    clusters = scratch.clusters
    for cluster in range(writes + 1):
        clusters.writer[cluster] = -1
        clusters.first_read[cluster] = -1
        clusters.last_read[cluster] = -1
        clusters.parent[cluster] = -1
        clusters.child[cluster] = -1
        clusters.flags[cluster] = 0
    # Cluster 0 is that of the initial value, which nobody writes.
    count = 1
    for row in range(start, stop):
        if ops.kind[row] == WRITE or ops.kind[row] == CAS:
            if ops.value[row] == NIL or insert(scratch.values, ops.value[row], np.int32(count)) >= 0:
                return -1
            clusters.writer[count] = row
            count += 1
    return count


@lean
def _cluster_of(scratch: ZoneScratch, value: Int) -> Int:
    return np.int32(0) if value == NIL else lookup(scratch.values, value)


@lean
def _failed_writer(ops: RegisterColumns, start: Int, stop: Int, value: Int) -> int:
    for row in range(start, stop):
        if ops.kind[row] >= FAILED_CAS and ops.value[row] == value:
            return row
    return -1


@lean
def _attach_operations(ops: RegisterColumns, key: Int, scratch: ZoneScratch, out: Instances) -> None:
    """Give every read to its cluster and every compare-and-set its parent cluster; reports values never written."""
    start, stop = ops.offsets[key], ops.offsets[key + 1]
    clusters = scratch.clusters
    for row in range(start, stop):
        kind = ops.kind[row]
        if kind == READ:
            cluster = _cluster_of(scratch, ops.value[row])
            if cluster < 0:
                failed = _failed_writer(ops, start, stop, ops.value[row])
                record(out, READ_OF_UNWRITTEN, ops.invoke[row], key, (row, failed, -1, -1))
                continue
            first = clusters.first_read[cluster]
            if first < 0 or ops.complete[row] < ops.complete[first]:
                clusters.first_read[cluster] = row
            clusters.last_read[cluster] = row
            clusters.flags[cluster] |= _OBSERVED
        elif kind == CAS:
            clusters.parent[lookup(scratch.values, ops.value[row])] = _cluster_of(scratch, ops.expected[row])


@lean
def _count_clusters(ops: RegisterColumns, key: Int, count: Int, scratch: ZoneScratch, out: Instances) -> None:
    """Mark the clusters that took effect: completed writes, observed ones, and what their chains build on."""
    clusters = scratch.clusters
    clusters.flags[0] |= _COUNTED
    for cluster in range(1, count):
        if ops.complete[clusters.writer[cluster]] == NEVER and clusters.flags[cluster] & _OBSERVED == 0:
            continue
        # What took effect found what it expected, so the cluster before it in its chain took effect too, and so on.
        current = np.int32(cluster)
        while clusters.flags[current] & _COUNTED == 0:
            clusters.flags[current] |= _COUNTED
            row = clusters.writer[current]
            if ops.kind[row] != CAS:
                break
            if clusters.parent[current] < 0:
                failed = _failed_writer(ops, ops.offsets[key], ops.offsets[key + 1], ops.expected[row])
                record(out, READ_OF_UNWRITTEN, ops.invoke[row], key, (row, failed, clusters.first_read[current], -1))
                break
            current = clusters.parent[current]


@lean
def _link_chains(ops: RegisterColumns, key: Int, count: Int, scratch: ZoneScratch, out: Instances) -> None:
    """Hang each counted compare-and-set behind its parent; a second one behind the same parent is a lost update."""
    clusters = scratch.clusters
    for cluster in range(1, count):
        parent = clusters.parent[cluster]
        if clusters.flags[cluster] & _COUNTED == 0 or parent < 0:
            continue
        # Values are unique, so a value can be replaced once.
        other = clusters.child[parent]
        if other < 0:
            clusters.child[parent] = cluster
            continue
        row, rival = clusters.writer[cluster], clusters.writer[other]
        record(
            out, LOST_UPDATE, ops.invoke[row], key, (row, rival, clusters.writer[parent], clusters.first_read[cluster])
        )
        clusters.parent[cluster] = -1


@lean
def _check_inside(ops: RegisterColumns, key: Int, length: Int, scratch: ZoneScratch, out: Instances) -> tuple[Int, Int]:
    """Condition (1) for the block whose clusters are `chain[:length]`, from its end: nothing may complete before
    something earlier in the block begins. Returns the rows of earliest completion and latest invocation."""
    clusters = scratch.clusters
    # `first` completed earliest and `last` began latest of what was looked at. All of that comes behind what is looked
    # at now, which must not have begun after `first` completed. In a cluster the reads come behind the write.
    first, last, some = np.int32(-1), np.int32(-1), False
    for position in range(length - 1, -1, -1):
        cluster = clusters.chain[position]
        writer, read = clusters.writer[cluster], clusters.last_read[cluster]
        if read >= 0:
            if some and _complete_of(ops, first) < ops.invoke[read]:
                record(
                    out,
                    STALE_READ,
                    ops.invoke[read],
                    key,
                    (read, first, writer, clusters.writer[clusters.child[cluster]]),
                )
            if not some or ops.invoke[read] > _invoke_of(ops, last):
                last = read
            early = clusters.first_read[cluster]
            if not some or ops.complete[early] < _complete_of(ops, first):
                first = early
            some = True
        if some and _complete_of(ops, first) < _invoke_of(ops, writer):
            record(out, READ_BEFORE_WRITE, ops.invoke[writer], key, (first, writer, -1, -1))
        if not some or _invoke_of(ops, writer) > _invoke_of(ops, last):
            last = writer
        if not some or _complete_of(ops, writer) < _complete_of(ops, first):
            first = writer
        some = True
    return first, last


@lean
def _rank(ops: RegisterColumns, start: Int, stop: Int, event: Int, near: Int) -> Int:
    """How many of the key's operations were invoked before `event`; gallops from row `near`."""
    # Rows are in order of invocation. An operation's completion is near its invocation: steps double from there, then
    # bisection, with `low` invoked before the event and `high` not.
    low, step = max(near, start), 1
    if low >= stop or ops.invoke[low] >= event:
        low = start
    high = low + 1
    while high < stop and ops.invoke[high] < event:
        low = high
        step *= 2
        high = min(stop, low + step)
    if low == start and (start == stop or ops.invoke[start] >= event):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        if ops.invoke[middle] < event:
            low = middle
        else:
            high = middle
    return low + 1 - start


@lean
def _build_blocks(ops: RegisterColumns, key: Int, count: Int, scratch: ZoneScratch, out: Instances) -> int:
    """Walk every chain from its first cluster, check it inside and note its zone; returns the number of blocks."""
    start, stop = ops.offsets[key], ops.offsets[key + 1]
    clusters, blocks = scratch.clusters, scratch.blocks
    made = 0
    for root in range(count):
        # Every chain that begins somewhere is walked once; what is not visited then is a circle (`_report_cycles`).
        if clusters.flags[root] & _COUNTED == 0 or clusters.parent[root] >= 0:
            continue
        length, current = 0, np.int32(root)
        while current >= 0:
            clusters.flags[current] |= _VISITED
            clusters.chain[length] = current
            length += 1
            current = clusters.child[current]
        first, last = _check_inside(ops, key, length, scratch, out)
        event = _complete_of(ops, first)
        blocks.root[made] = root
        blocks.first_row[made] = first
        blocks.last_row[made] = last
        blocks.first_rank[made] = stop - start if event == NEVER else _rank(ops, start, stop, event, first)
        blocks.last_rank[made] = last - start if last >= 0 else -1
        made += 1
    return made


@lean
def _report_cycles(ops: RegisterColumns, key: Int, count: Int, scratch: ZoneScratch, out: Instances) -> None:
    """Counted clusters on no chain that starts somewhere build on each other in a circle."""
    clusters = scratch.clusters
    for cluster in range(1, count):
        if clusters.flags[cluster] & (_COUNTED | _VISITED) != _COUNTED:
            continue
        current = np.int32(cluster)
        while clusters.flags[current] & _VISITED == 0:
            clusters.flags[current] |= _VISITED
            current = clusters.child[current]
        row, before = clusters.writer[cluster], clusters.writer[clusters.parent[cluster]]
        record(out, CAS_CYCLE, ops.invoke[row], key, (row, before, -1, -1))


@lean
def _report_conflict(
    ops: RegisterColumns, key: Int, one: Int, other: Int, scratch: ZoneScratch, out: Instances
) -> None:
    """Two blocks that must each come before the other, unless `one` was reported before.

    The rows kept: the late operation of the older block, what had completed of the newer one, what had completed of the
    older one before the newer one's (last row) began."""
    blocks, clusters = scratch.blocks, scratch.clusters
    if clusters.flags[blocks.root[one]] & _REPORTED:
        return
    clusters.flags[blocks.root[one]] |= _REPORTED
    # `one` is the older block: what completed first is its.
    if _complete_of(ops, blocks.first_row[other]) < _complete_of(ops, blocks.first_row[one]):
        one, other = other, one
    settled, late = blocks.first_row[one], blocks.last_row[one]
    done, begun = blocks.first_row[other], blocks.last_row[other]
    writer = clusters.writer[blocks.root[other]]
    anomaly = OVERLAPPING_CLUSTERS
    if _invoke_of(ops, writer) > _complete_of(ops, settled):
        anomaly, begun = STALE_READ, writer
        if ops.complete[writer] < _invoke_of(ops, late):
            done = writer
    record(out, anomaly, _invoke_of(ops, late), key, (late, done, settled, begun))


@lean
def _place_forward_zones(ops: RegisterColumns, key: Int, made: Int, scratch: ZoneScratch, out: Instances) -> None:
    """Put each forward zone at the rank of its beginning; two at one rank overlap. The wider one stays."""
    blocks = scratch.blocks
    for block in range(made):
        rank = blocks.first_rank[block]
        if rank > blocks.last_rank[block]:
            continue
        there = blocks.zone_at[rank]
        wider = there < 0 or blocks.last_rank[block] > blocks.last_rank[there]
        if there >= 0:
            _report_conflict(ops, key, block if wider else there, there if wider else block, scratch, out)
        if wider:
            blocks.zone_at[rank] = block


@lean
def check_zones(ops: RegisterColumns, key: Int, made: Int, scratch: ZoneScratch, out: Instances) -> None:
    """Condition (2): sweep the forward zones by their beginnings, then look each backward zone up."""
    blocks = scratch.blocks
    size = ops.offsets[key + 1] - ops.offsets[key] + 1
    for rank in range(size):
        blocks.zone_at[rank] = -1
    _place_forward_zones(ops, key, made, scratch, out)
    # In order of beginnings a forward zone overlaps some earlier one exactly if it begins within the one that reaches
    # farthest.
    widest = np.int32(-1)
    for rank in range(size):
        block = blocks.zone_at[rank]
        if block >= 0:
            if widest >= 0 and blocks.last_rank[widest] >= rank:
                _report_conflict(ops, key, widest, block, scratch, out)
            if widest < 0 or blocks.last_rank[block] > blocks.last_rank[widest]:
                widest = block
        blocks.widest[rank] = widest
    for block in range(made):
        last = blocks.last_rank[block]
        if blocks.first_rank[block] <= last or last < 0:
            continue
        # It lies inside a forward zone exactly if the farthest of those that begin before it reaches its end.
        around = blocks.widest[last]
        if around >= 0 and blocks.last_rank[around] >= blocks.first_rank[block]:
            _report_conflict(ops, key, around, block, scratch, out)


@lean
def build_key(ops: RegisterColumns, key: Int, scratch: ZoneScratch, out: Instances) -> int:
    """Find a key's blocks and check each inside; how many there are, or -1 where values are not unique."""
    count = _number_values(ops, ops.offsets[key], ops.offsets[key + 1], scratch)
    if count < 0:
        return -1
    _attach_operations(ops, key, scratch, out)
    _count_clusters(ops, key, count, scratch, out)
    _link_chains(ops, key, count, scratch, out)
    made = _build_blocks(ops, key, count, scratch, out)
    _report_cycles(ops, key, count, scratch, out)
    return made


@lean
def _judge_key(ops: RegisterColumns, key: Int, scratch: ZoneScratch, out: Instances) -> int:
    before = out.counts.sum()
    made = build_key(ops, key, scratch, out)
    if made < 0:
        return UNDECIDED
    check_zones(ops, key, made, scratch, out)
    if out.counts.sum() > before:
        return INVALID
    for row in range(ops.offsets[key], ops.offsets[key + 1]):
        if ops.kind[row] == FAILED_CAS:
            return UNDECIDED
    return VALID


@lean
def _judge_keys(ops: RegisterColumns, scratch: ZoneScratch, out: Instances, answers: Codes) -> None:
    for key in range(answers.shape[0]):
        answers[key] = _judge_key(ops, key, scratch, out)


@lean
def largest(ops: RegisterColumns) -> tuple[int, int]:
    """The most writes and the most operations that any key has."""
    writes, operations = 0, 0
    for key in range(ops.offsets.shape[0] - 1):
        here = 0
        for row in range(ops.offsets[key], ops.offsets[key + 1]):
            here += ops.kind[row] == WRITE or ops.kind[row] == CAS
        writes = max(writes, here)
        operations = max(operations, ops.offsets[key + 1] - ops.offsets[key])
    return writes, operations


def judge_zones(ops: RegisterColumns, out: Instances) -> Codes:
    """Judge every key: VALID, INVALID (its anomalies are in `out`), or UNDECIDED where a search has to decide.

    Undecided are keys that write a value twice or write nil, and keys with compare-and-sets that failed on a mismatch.
    """
    writes, operations = largest(ops)
    answers = np.empty(len(ops.offsets) - 1, np.uint8)
    _judge_keys(ops, make_scratch(writes, operations), out, answers)
    return answers


class BlockRows(NamedTuple):
    """Rows of each block: the write of its first value, the earliest completion, the latest invocation. -1 stands for
    the unset register's imagined write, which is over before everything."""

    writer: Ints
    first: Ints
    last: Ints


@lean
def _conflicts(ops: RegisterColumns, scratch: ZoneScratch, unheard: Instances, out: Instances) -> int:
    made = build_key(ops, 0, scratch, unheard)
    if made >= 0:
        check_zones(ops, 0, made, scratch, out)
    return made


def blocks_inside(ops: RegisterColumns, out: Instances) -> BlockRows | None:
    """The blocks of the only key that some operation of it belongs to; what contradicts real time inside one goes to
    `out`. None where values are not unique."""
    scratch = make_scratch(*largest(ops))
    made = build_key(ops, 0, scratch, out)
    if made < 0:
        return None
    blocks = scratch.blocks
    first, last = blocks.first_row[:made], blocks.last_row[:made]
    writer = scratch.clusters.writer[blocks.root[:made]]
    some = last >= 0
    return BlockRows(*(rows[some].astype("int64") for rows in (writer, first, last)))


def conflicts_among(ops: RegisterColumns, out: Instances) -> None:
    """Which blocks of the only key must each come before the other; what is wrong inside a block is not told."""
    unheard = make_instances(len(out.counts), 1)
    if _conflicts(ops, make_scratch(*largest(ops)), unheard, out) < 0:
        raise HarnessError("Blocks of a register that are to be compared have equal values.")


NO_REGISTER: Final = "not one read, write or compare-and-set of one integer cell"
"""What is wrong with an operation that is none of a register's."""

ZONE_ANOMALIES: Final = (
    "read-of-unwritten",
    "read-before-write",
    "stale-read",
    "overlapping-clusters",
    "lost-update",
    "cas-cycle",
)
"""By the zone kernel's codes; the first three are also found where values repeat."""


def zone_findings(keyed: KeyedOps, out: Instances) -> Findings:
    """The anomalies that a kernel counted and kept in these operations."""
    counts = {name: int(n) for name, n in zip(ZONE_ANOMALIES, out.counts, strict=True) if n}
    found = []
    for code, name in enumerate(ZONE_ANOMALIES):
        for order, key, *rows in out.kept[code, : out.counts[code]]:
            ops = tuple(int(keyed.columns.invoke[row]) if row >= 0 else -1 for row in rows)
            found.append(Finding(name, int(order), Key.of(keyed.addresses[key]), ops))
    return Findings(counts=counts, kept=tuple(found))
