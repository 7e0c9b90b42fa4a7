"""A read of a legacy partition, as its coordinator carries it out (Q2): events in, instructions out. Pure.

One replica is asked for data, the others that the level needs for digests. Where these agree the data is the answer.
Otherwise all of them send their data, which is merged. A replica that stopped at the limit knows nothing of what lies
behind its last row, so the merged rows count up to there only; while they are too few, the replicas that stopped first
are asked for more (short-read protection). With blocking read repair each replica is then sent what it lacks *of the
rows that were read*, and the client is answered when they have it. Both steps can tear a write: one that spans more
rows than the read, and one that arrives between two answers of a replica. That is the design; `quorum.md` shows how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import ClassVar, TypeAlias

from cluster.quorum.choosing import stand_in
from cluster.quorum.keys import KeyBytes
from cluster.quorum.messages import FetchRows, QuorumReply, ReplicaRequest, RowsDigest, RowsFetched, StoreMutation
from cluster.quorum.mutation import PartitionMutation, encode_mutation
from cluster.quorum.replica_sets import Endpoint, ReplicaSet
from cluster.quorum.rows import PartitionContents, merge_contents
from cluster.quorum.slices import Page, Slice, behind, cut_to, live_rows, merge_pages, missing, page_digest
from harness.levels import Demand


class ReadRepair(StrEnum):
    """What is done about replicas that lack what a read has found."""

    BLOCKING = "blocking"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AskForData:
    """Have the replica send the rows of the slice; `again` if it has answered before, and is asked behind that."""

    endpoint: Endpoint
    slice: Slice
    again: bool = False
    brief: ClassVar[bool] = True

    @property
    def point(self) -> str | None:
        """The failpoint to pass before it is sent."""
        return "quorum.before_follow_up" if self.again else None

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return FetchRows(replicas.tablet_id, replicas.epoch, self.slice)


@dataclass(frozen=True, slots=True)
class AskForDigest:
    """Have the replica send a digest of the rows of the slice."""

    endpoint: Endpoint
    slice: Slice
    brief: ClassVar[bool] = True
    point: ClassVar[str | None] = None

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent."""
        return FetchRows(replicas.tablet_id, replicas.epoch, self.slice, digest_only=True)


@dataclass(frozen=True, slots=True)
class SendRepair:
    """Have the replica take what it lacks of the rows that were read."""

    endpoint: Endpoint
    partition: KeyBytes
    contents: PartitionContents
    brief: ClassVar[bool] = False
    point: ClassVar[str | None] = "quorum.before_repair"

    def request(self, replicas: ReplicaSet) -> ReplicaRequest:
        """What is sent: a mutation like any other."""
        encoded = encode_mutation(PartitionMutation(self.partition, self.contents))
        return StoreMutation(replicas.tablet_id, replicas.epoch, encoded)


@dataclass(frozen=True, slots=True)
class PageFound:
    """The read is over: the rows, deletions among them, and the replicas of whose answers they are made."""

    page: Page
    replicas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The read is over: this replica did not answer, and nobody can stand in for it."""

    node_id: str


LegacyQuestion: TypeAlias = AskForData | AskForDigest | SendRepair
Instruction: TypeAlias = LegacyQuestion | PageFound | GiveUp


class _ReadStage(Enum):
    DIGESTS = "one replica's data, the others' digests"
    DATA = "everybody's data"
    REPAIR = "acknowledgements of repairs"
    OVER = "nothing"


class ReadState:
    """One read under way, of `slice`, from the `chosen` replicas, for some of which `spares` may stand in."""

    def __init__(
        self, slice: Slice, chosen: Sequence[Endpoint], spares: Sequence[Endpoint], wanted: Demand, repair: ReadRepair
    ) -> None:
        self._slice, self._wanted, self._repair = slice, wanted, repair
        self._asked = {endpoint.node_id: endpoint for endpoint in chosen}
        self._spares = list(spares)
        self._stage = _ReadStage.DIGESTS
        self._awaited: dict[str, None] = {}
        self._pages: dict[str, Page] = {}
        self._digests: dict[str, bytes] = {}
        self._data_from = chosen[0].node_id
        self._found: PageFound | None = None

    def begin(self) -> list[Instruction]:
        """Data from the first, digests from the others."""
        self._awaited = dict.fromkeys(self._asked)
        return [self._ask(endpoint) for endpoint in self._asked.values()]

    # ---- events ----

    def on_answer(self, asked: LegacyQuestion, reply: QuorumReply) -> list[Instruction]:
        """A replica has answered."""
        if isinstance(reply, RowsFetched):
            return self.on_data(asked.endpoint.node_id, reply.page)
        if isinstance(reply, RowsDigest):
            return self.on_digest(asked.endpoint.node_id, reply.digest)
        return self.on_repaired(asked.endpoint.node_id)

    def on_data(self, node_id: str, page: Page) -> list[Instruction]:
        """A replica has sent rows, for the first time or behind those that it had sent."""
        if not self._expected(node_id):
            return []
        before = self._pages.get(node_id)
        if before is not None:
            # It may know of a deletion of the whole partition by now, which counts for all that it sent.
            page = Page(merge_contents([before.contents, page.contents]), page.end)
        self._pages[node_id] = page
        return self._go_on()

    def on_digest(self, node_id: str, digest: bytes) -> list[Instruction]:
        """A replica has sent a digest."""
        if not self._expected(node_id):
            return []
        self._digests[node_id] = digest
        return self._go_on()

    def on_repaired(self, node_id: str) -> list[Instruction]:
        """A replica has made durable what it lacked."""
        return self._go_on() if self._expected(node_id) else []

    def on_missed(self, asked: LegacyQuestion) -> list[Instruction]:
        """A replica could not be reached, refused, or took too long: another one is asked in its place, if any can be.

        Nobody stands in for one that is being repaired: monotonic reads need the repair on as many as were asked.
        """
        node_id = asked.endpoint.node_id
        if not self._expected(node_id):
            return []
        other = None if self._stage is _ReadStage.REPAIR else stand_in(self._asked[node_id], self._spares, self._wanted)
        if other is None:
            self._stage = _ReadStage.OVER
            return [GiveUp(node_id)]
        self._spares.remove(other)
        del self._asked[node_id]
        self._pages.pop(node_id, None)
        self._asked[other.node_id] = other
        self._awaited[other.node_id] = None
        if node_id == self._data_from:
            self._data_from = other.node_id
        return [self._ask(other)]

    # ---- decisions ----

    def _expected(self, node_id: str) -> bool:
        """Whether an answer of this replica is due; from now on it is not."""
        if node_id not in self._awaited or self._stage is _ReadStage.OVER:
            return False
        del self._awaited[node_id]
        return True

    def _ask(self, endpoint: Endpoint) -> Instruction:
        """The first question to a replica in this stage."""
        digest = self._stage is _ReadStage.DIGESTS and endpoint.node_id != self._data_from
        return AskForDigest(endpoint, self._slice) if digest else AskForData(endpoint, self._slice)

    def _go_on(self) -> list[Instruction]:
        if self._awaited:
            return []
        if self._stage is _ReadStage.DIGESTS:
            return self._compare()
        if self._stage is _ReadStage.DATA:
            return self._resolve()
        return self._end()

    def _compare(self) -> list[Instruction]:
        (page,) = self._pages.values()
        expected = page_digest(page)
        if all(digest == expected for digest in self._digests.values()):
            self._found = PageFound(page, tuple(self._asked))
            return self._end()
        self._stage, self._pages = _ReadStage.DATA, {}
        self._awaited = dict.fromkeys(self._asked)
        return [self._ask(endpoint) for endpoint in self._asked.values()]

    def _resolve(self) -> list[Instruction]:
        """Merge as far as each of them has told; ask on, or repair, or answer."""
        merged = merge_pages(self._slice, list(self._pages.values()))
        limit = self._slice.limit
        lack = 0 if limit is None else limit - live_rows(merged.contents)
        if merged.end is not None and lack > 0 and behind(self._slice, merged.end, lack).spans:
            return self._ask_behind(merged.end, lack)
        self._found = PageFound(merged, tuple(self._asked))
        return self._end() if self._repair is ReadRepair.NONE else self._send_repairs(merged)

    def _ask_behind(self, end: KeyBytes, lack: int) -> list[Instruction]:
        """Short-read protection: those that stopped first may have rows that sort before what others sent."""
        rest = behind(self._slice, end, lack)
        stopped = [self._asked[node_id] for node_id, page in self._pages.items() if page.end == end]
        self._awaited = dict.fromkeys(endpoint.node_id for endpoint in stopped)
        return [AskForData(endpoint, rest, again=True) for endpoint in stopped]

    def _send_repairs(self, merged: Page) -> list[Instruction]:
        """To each replica what it lacks of what was read, and of nothing else: this is where writes are torn."""
        due = []
        for node_id, endpoint in self._asked.items():
            held = cut_to(self._pages[node_id].contents, self._slice, merged.end)
            lacks = missing(merged.contents, held)
            if not lacks.empty:
                due.append(SendRepair(endpoint, self._slice.partition, lacks))
        if not due:
            return self._end()
        self._stage = _ReadStage.REPAIR
        self._awaited = dict.fromkeys(each.endpoint.node_id for each in due)
        return list(due)

    def _end(self) -> list[Instruction]:
        assert self._found is not None
        self._stage = _ReadStage.OVER
        return [self._found]
