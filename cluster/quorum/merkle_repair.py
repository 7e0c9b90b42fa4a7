"""Merkle-tree repair of legacy tables: replicas are compared by trees of hashes, and what differs is streamed (Q2).

It makes up for hints that were lost with their coordinator, and brings deletions everywhere before they are forgotten.
Its costs are the ones that mutation tracking does away with: every replica reads all that it holds from its disk, and a
leaf that differs is sent with every partition in it, whole.

A repair takes one tablet and needs all of its replicas. Each step is a call that ends soon and says where to go on. So
whoever coordinates can stop at any time, and a replica that dies or refuses ends it; what was streamed by then stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from cluster.knobs import Knobs
from cluster.log.node import Spawn
from cluster.nodelog import node_logger
from cluster.quorum.calls import ReplicaCalls, Unanswered
from cluster.quorum.deletions import Deletion
from cluster.quorum.keys import KeyBytes, token_of
from cluster.quorum.messages import (
    HashLeaves,
    LeavesHashed,
    QuorumReply,
    Repaired,
    RepairRequest,
    SpanStreamed,
    StreamSpan,
    TakePartitions,
)
from cluster.quorum.mutation import PartitionMutation, encode_mutation
from cluster.quorum.partition_store import PartitionStore, Piece
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.rows import PartitionContents, join_contents, without_deletions
from cluster.quorum.slices import ContentsDigest
from cluster.wire.messages import ErrorReply, Replica
from harness.ports.api import Clock, Failpoints, Ports
from harness.ports.failpoints import pass_by

# ---- trees of hashes ----
# Pure. A range of tokens is cut into 2 ** depth leaves of one length. A leaf's hash covers every partition whose token
# lies in it, so that two replicas whose leaves are equal hold the same there; each inner node hashes its two children.
# Replicas are compared from the root down, and what differs is a list of leaves. Partitions of a leaf that differs are
# streamed whole, those that are equal among them: that is the price of a tree with fewer leaves than partitions (over-
# streaming).


Hash: TypeAlias = bytes
Unneeded: TypeAlias = Callable[[Deletion], bool]

_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class TokenLeaves:
    """The leaves of a tree: tokens from `first` to `last`, both included, in 2 ** `depth` parts."""

    first: int
    last: int
    depth: int

    def __post_init__(self) -> None:
        """Raises ValueError where there are fewer tokens than leaves."""
        if not 0 <= self.depth <= 20 or self.last - self.first + 1 < self.count or self.first < 0:
            raise ValueError(f"{self.first} to {self.last} can't be cut into 2 ** {self.depth} leaves")

    @property
    def count(self) -> int:
        """How many leaves there are."""
        return 1 << self.depth

    def leaf_of(self, token: int) -> int:
        """The leaf in which a token lies."""
        return (token - self.first) * self.count // (self.last - self.first + 1)

    def span(self, low: int, high: int) -> tuple[int, int]:
        """The tokens of leaves from `low` to `high`, both included: the first and the last."""
        size = self.last - self.first + 1
        return self.first - (-low * size // self.count), self.first - (-(high + 1) * size // self.count) - 1


class LeafHasher:
    """Hashes partitions that come in order, piece by piece, into leaves from `first_leaf` on.

    What `unneeded` says of a deletion decides whether it counts: replicas that have forgotten one and replicas that
    still keep it are to be equal, once nobody needs it.
    """

    def __init__(self, leaves: TokenLeaves, first_leaf: int, unneeded: Unneeded) -> None:
        self._leaves, self._first_leaf, self._unneeded = leaves, first_leaf, unneeded
        self._hashes: list[Hash] = []
        self._leaf = blake2b(digest_size=_HASH_BYTES)
        self._partition = ContentsDigest()
        self._silent = True
        self.partitions = 0

    def leaf_of(self, piece: Piece) -> int:
        """The leaf that a piece belongs to."""
        return self._leaves.leaf_of(token_of(piece.partition))

    def add(self, piece: Piece) -> None:
        """Take the next piece in."""
        self._close_up_to(self.leaf_of(piece))
        contents = without_deletions(piece.contents, self._unneeded)
        if piece.first:
            self._partition, self._silent = ContentsDigest(), True
        self._silent = self._silent and contents.empty
        self._partition.add(contents)
        if piece.last and not self._silent:
            self.partitions += 1
            self._leaf.update(len(piece.partition).to_bytes(4, "big") + piece.partition + self._partition.digest())

    def hashes(self, end: int) -> tuple[Hash, ...]:
        """The hashes of the leaves from `first_leaf` up to `end` (exclusive), all of whose partitions were added."""
        self._close_up_to(end)
        return tuple(self._hashes)

    def _close_up_to(self, leaf: int) -> None:
        while self._first_leaf + len(self._hashes) < leaf:
            self._hashes.append(self._leaf.digest())
            self._leaf = blake2b(digest_size=_HASH_BYTES)


class MerkleTree:
    """The tree over the hashes of all leaves, of which there are 2 ** depth."""

    def __init__(self, leaves: Sequence[Hash]) -> None:
        self._levels: list[list[Hash]] = [list(leaves)]
        while len(self._levels[0]) > 1:
            below = self._levels[0]
            pairs = zip(below[::2], below[1::2], strict=True)
            self._levels.insert(0, [blake2b(one + two, digest_size=_HASH_BYTES).digest() for one, two in pairs])

    def leaf(self, number: int) -> Hash:
        """The hash of one leaf."""
        return self._levels[-1][number]

    def differing(self, other: MerkleTree) -> Iterator[int]:
        """The leaves that differ, rising; below a node that is equal nothing is looked at."""
        nodes = [(0, 0)]
        while nodes:
            level, number = nodes.pop()
            if self._levels[level][number] == other._levels[level][number]:
                continue
            if level == len(self._levels) - 1:
                yield number
            else:
                nodes += [(level + 1, 2 * number + 1), (level + 1, 2 * number)]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Partitions with tokens from `first` to `last` go, whole, from one replica to others that differ from it there."""

    source: str
    targets: tuple[str, ...]
    first: int
    last: int


def transfers(leaves: TokenLeaves, trees: Mapping[str, MerkleTree]) -> list[Transfer]:
    """What makes all replicas equal: of those that are equal in a leaf the first sends to all that differ from it.

    Replicas are taken in the order of `trees`; leaves beside each other that need the same are one transfer.
    """
    names = list(trees)
    differing = {leaf for name in names[1:] for leaf in trees[names[0]].differing(trees[name])}
    found: list[Transfer] = []
    # Invariant: by sender and targets, the run of neighbouring leaves up to the last one that needs just this transfer.
    going_on: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
    for leaf in [*sorted(differing), None]:
        due = [] if leaf is None else _senders({name: trees[name].leaf(leaf) for name in names})
        for pair, (low, high) in list(going_on.items()):
            if leaf is None or pair not in due or high + 1 < leaf:
                found.append(Transfer(*pair, *leaves.span(low, high)))
                del going_on[pair]
        if leaf is not None:
            for pair in due:
                going_on[pair] = (going_on.get(pair, (leaf, leaf))[0], leaf)
    return found


def _senders(hashes: Mapping[str, Hash]) -> list[tuple[str, tuple[str, ...]]]:
    """Of each group of equal replicas the first, and all that are not of the group."""
    first: dict[Hash, str] = {}
    for name, each in hashes.items():
        first.setdefault(each, name)
    return [(name, tuple([other for other in hashes if hashes[other] != each])) for each, name in first.items()]


def older_than(before_ms: int) -> Unneeded:
    """Deletions that their coordinators took before a time: those whose grace is over, the same at every replica."""
    return lambda deletion: deletion.local_time_ms < before_ms


CALL_TIMEOUT_S = 5.0
"""Five times what a step takes: whoever is gone must not hold up the next repair."""
_TURN_NS = 1_000_000_000
"""How long a step works, about, before it answers."""
_NS_PER_MS = 1_000_000


class RepairAborted(Exception):
    """A replica did not take part to the end; says which and why."""


@dataclass(frozen=True, slots=True)
class RepairRange:
    """What one repair is about: a tablet's replicas, and its tokens, the first and the last."""

    replicas: ReplicaSet
    tokens: tuple[int, int]


# ---- at a replica ----


async def hash_leaves(store: PartitionStore, asked: HashLeaves, clock: Clock) -> QuorumReply:
    """The hashes of the next leaves; raises Quarantined."""
    try:
        leaves = TokenLeaves(asked.first, asked.last, asked.depth)
        begin, _ = leaves.span(asked.first_leaf, asked.first_leaf)
    except ValueError as error:
        return ErrorReply("INVALID", str(error), definite=True)
    hasher = LeafHasher(leaves, asked.first_leaf, older_than(asked.deleted_before_ms))
    read_before, began_ns, end = store.stats.read_bytes, clock.monotonic_ns(), leaves.count
    scan = store.scan(begin, asked.last)
    try:
        while (piece := await scan.next()) is not None:
            leaf = hasher.leaf_of(piece)
            if leaf > asked.first_leaf and piece.first and clock.monotonic_ns() - began_ns >= _TURN_NS:
                end = leaf
                break
            hasher.add(piece)
    finally:
        scan.close()
    return LeavesHashed(hasher.hashes(end), hasher.partitions, store.stats.read_bytes - read_before)


async def stream_span(
    store: PartitionStore, asked: StreamSpan, calls: ReplicaCalls, ports: Ports, batch_bytes: int
) -> QuorumReply:
    """Send the next partitions to the targets, `batch_bytes` at a time or a larger one alone; raises Quarantined."""
    streaming = _Streaming(asked, calls, ports.failpoints, batch_bytes)
    began_ns, last_token = ports.clock.monotonic_ns(), -1
    scan = store.scan(asked.first, asked.last)
    try:
        while (piece := await scan.next()) is not None:
            token = token_of(piece.partition)
            if piece.first and token != last_token and ports.clock.monotonic_ns() - began_ns >= _TURN_NS:
                await streaming.send()
                return SpanStreamed(streaming.partitions, streaming.sent_bytes, token)
            last_token = token
            if streaming.take(piece):
                await streaming.send()
        await streaming.send()
    except Unanswered as error:
        return ErrorReply("UNAVAILABLE", f"a target did not take what was streamed: {error}", definite=True)
    finally:
        scan.close()
    return SpanStreamed(streaming.partitions, streaming.sent_bytes, None)


class _Streaming:
    """Partitions gathered from pieces, and sent to every target."""

    def __init__(self, asked: StreamSpan, calls: ReplicaCalls, failpoints: Failpoints, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._asked, self._calls, self._failpoints = asked, calls, failpoints
        self._pieces: list[PartitionContents] = []
        self._waiting: list[bytes] = []
        self._bytes = 0
        self.partitions = self.sent_bytes = 0

    def take(self, piece: Piece) -> bool:
        """Take the next piece in; whether enough waits to be sent."""
        self._pieces.append(piece.contents)
        if piece.last:
            self._add(piece.partition, join_contents(self._pieces))
            self._pieces = []
        return self._bytes >= self._batch_bytes

    async def send(self) -> None:
        """Send what waits; raises Unanswered."""
        mutations, size = tuple(self._waiting), self._bytes
        self._waiting, self._bytes = [], 0
        if not mutations:
            return
        await pass_by(self._failpoints, "quorum.before_stream", self._asked.tablet_id)
        message = TakePartitions(self._asked.tablet_id, self._asked.epoch, mutations)
        await asyncio.gather(*(self._send(target, message) for target in self._asked.targets))
        self.partitions += len(mutations) * len(self._asked.targets)
        self.sent_bytes += size * len(self._asked.targets)

    def _add(self, partition: KeyBytes, contents: PartitionContents) -> None:
        if not contents.empty:
            self._waiting.append(encode_mutation(PartitionMutation(partition, contents)))
            self._bytes += len(self._waiting[-1])

    async def _send(self, target: Replica, message: TakePartitions) -> None:
        await self._calls.ask(Endpoint(target.node_id, target.address), message, CALL_TIMEOUT_S)


# ---- at the coordinator ----


class Repairs:
    """Repairs that this node coordinates: of tablets that it is the first replica of, and those that operators ask for.

    `own` gives the former.
    """

    def __init__(
        self, ports: Ports, knobs: Knobs, calls: ReplicaCalls, own: Callable[[], Iterable[RepairRange]]
    ) -> None:
        self._ports, self._knobs, self._calls, self._own = ports, knobs, calls, own
        self._log = node_logger(ports.node_id)
        self._periodic: asyncio.Task[None] | None = None
        self._running: dict[asyncio.Task[Repaired], None] = {}
        self._busy: dict[str, asyncio.Lock] = {}

    def start(self, spawn: Spawn) -> None:
        """Repair in the background, if the knob says so, in a task that the node does not outlive."""
        if self._knobs.repair_period_ms:
            self._periodic = spawn(self._repair_periodically())

    def close(self) -> None:
        """Break everything off."""
        if self._periodic is not None:
            self._periodic.cancel()
        self.stop()

    def stop(self) -> None:
        """Break off what is under way."""
        for task in list(self._running):
            task.cancel()

    async def repair(self, ranges: Sequence[RepairRange], timeout_s: float | None = None) -> Repaired:
        """Repair tablets one after the other; raises RepairAborted, also where it was stopped or took too long."""
        task = asyncio.create_task(self._within(ranges, timeout_s), name="repair")
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise RepairAborted("it was stopped")
        return task.result()

    async def _within(self, ranges: Sequence[RepairRange], timeout_s: float | None) -> Repaired:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._repair_all(ranges)
        except TimeoutError:
            raise RepairAborted(f"it took longer than {timeout_s} s") from None

    async def _repair_periodically(self) -> None:
        while True:
            await self._ports.clock.sleep(self._knobs.repair_period_ms / 1e3)
            for each in list(self._own()):
                try:
                    await self.repair([each])
                except RepairAborted as error:
                    self._log.info("no repair of %s: %s", each.replicas.tablet_id, error)

    async def _repair_all(self, ranges: Sequence[RepairRange]) -> Repaired:
        total = Repaired()
        for each in ranges:
            async with self._busy.setdefault(each.replicas.tablet_id, asyncio.Lock()):
                total = _sum(total, await self._repair_one(each))
        return total

    async def _repair_one(self, repaired: RepairRange) -> Repaired:
        replicas = repaired.replicas
        leaves = TokenLeaves(*repaired.tokens, self._knobs.repair_tree_depth)
        before_ms = self._ports.clock.wall_ns() // _NS_PER_MS - self._knobs.deletion_grace_ms
        asked = HashLeaves(replicas.tablet_id, replicas.epoch, leaves.first, leaves.last, leaves.depth, 0, before_ms)
        trees, read_bytes = await self._trees(replicas, asked, leaves.count)
        due = transfers(leaves, trees)
        differing = {leaf for tree in trees.values() for leaf in tree.differing(trees[replicas.endpoints[0].node_id])}
        result = Repaired(1, len(differing), 0, read_bytes, 0)
        for each in due:
            result = _sum(result, await self._carry_out(replicas, each))
        return result

    async def _trees(self, replicas: ReplicaSet, asked: HashLeaves, count: int) -> tuple[Mapping[str, MerkleTree], int]:
        """The tree of every replica, and what all of them have read for it."""
        building = [asyncio.create_task(self._tree(each, asked, count)) for each in replicas.endpoints]
        try:
            built = await asyncio.gather(*building)
        finally:
            for task in building:
                task.cancel()
        trees = {each.node_id: tree for each, (tree, _) in zip(replicas.endpoints, built, strict=True)}
        return trees, sum(read for _, read in built)

    async def _tree(self, endpoint: Endpoint, asked: HashLeaves, count: int) -> tuple[MerkleTree, int]:
        hashes: list[bytes] = []
        read_bytes = 0
        while len(hashes) < count:
            step = msgspec.structs.replace(asked, first_leaf=len(hashes))
            reply = await self._ask(endpoint, step)
            if not isinstance(reply, LeavesHashed) or not 0 < len(reply.hashes) <= count - len(hashes):
                raise RepairAborted(f"{endpoint.node_id} answered what nobody asked for")
            hashes += reply.hashes
            read_bytes += reply.read_bytes
        return MerkleTree(hashes), read_bytes

    async def _carry_out(self, replicas: ReplicaSet, transfer: Transfer) -> Repaired:
        targets = tuple(_address(replicas.named(target)) for target in transfer.targets)
        token: int | None = transfer.first
        partitions = sent_bytes = 0
        while token is not None:
            step = StreamSpan(replicas.tablet_id, replicas.epoch, token, transfer.last, targets)
            reply = await self._ask(replicas.named(transfer.source), step)
            if not isinstance(reply, SpanStreamed):
                raise RepairAborted(f"{transfer.source} answered what nobody asked for")
            partitions, sent_bytes = partitions + reply.partitions, sent_bytes + reply.sent_bytes
            token = reply.next_token
            await self._ports.clock.sleep(reply.sent_bytes / self._knobs.bulk_bytes_per_s)
        return Repaired(0, 0, partitions, 0, sent_bytes)

    async def _ask(self, endpoint: Endpoint, request: RepairRequest) -> QuorumReply:
        try:
            return await self._calls.ask(endpoint, request, CALL_TIMEOUT_S)
        except Unanswered as error:
            raise RepairAborted(f"{endpoint.node_id}: {error}") from error


def _sum(one: Repaired, other: Repaired) -> Repaired:
    both = zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    return Repaired(*map(sum, both))


def _address(endpoint: Endpoint) -> Replica:
    return Replica(endpoint.node_id, endpoint.address)
