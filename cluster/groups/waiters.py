"""Commands that wait to enter a group's log, and callers that wait for the fate of one or of a read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from cluster.raft.types import ChangeResult, Reason

NEVER_NS = 1 << 63


class NotProposed(Exception):
    """Definite: the command is not in the log and will never be; `kind` is that of the ErrorReply that says so."""

    kind = ""
    leader: str | None = None


class Overloaded(NotProposed):
    """More commands than allowed wait for the log of this group."""

    kind = "OVERLOADED"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} commands wait already")


class Expired(NotProposed):
    """The deadline passed while the command waited for the log."""

    kind = "TIMED_OUT"

    def __init__(self) -> None:
        super().__init__("the deadline passed before the command entered the log")


class NotLeader(NotProposed):
    """This replica does not lead, or must not propose; `leader` is the leader's node id, if known."""

    kind = "NOT_THE_LEADER"

    def __init__(self, leader: str | None, message: str = "") -> None:
        super().__init__(message or f"not the leader (leader: {leader or 'unknown'})")
        self.leader = leader


class ChangeRefused(Exception):
    """Definite: the group's configuration was not changed, for this reason, told in a sentence."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class OutcomeUnknown(Exception):
    """The deadline passed, or the group stopped, before the command's fate (or the read's leave) was known."""


class _Proposal(msgspec.Struct):
    future: asyncio.Future[bytes]
    deadline_ns: int


class _Read(msgspec.Struct):
    """`index` is -1 until Raft has fixed the read point."""

    future: asyncio.Future[None]
    deadline_ns: int
    index: int = -1


class Waiters:
    """Waiting proposals by (term, index), reads, and changes of the configuration until they have a place in the log.

    A proposal outlives its proposer's leadership.

    Terms never fall along the log, so once an entry of a term is applied, every waiting proposal of an older term is
    refused for good: what is applied later has that term or a higher one, and what was applied before it was told.
    """

    def __init__(self) -> None:
        self._proposals: dict[tuple[int, int], _Proposal] = {}
        self._reads: dict[int, _Read] = {}
        self._changes: dict[int, _Proposal] = {}
        self._next_context = 0
        self.next_deadline_ns = NEVER_NS

    def add(self, position: tuple[int, int], future: asyncio.Future[bytes], deadline_ns: int) -> None:
        """Wait for the entry at `position` (term, index) to be applied."""
        self._proposals[position] = _Proposal(future, deadline_ns)
        if deadline_ns < self.next_deadline_ns:
            self.next_deadline_ns = deadline_ns

    def add_read(self, deadline_ns: int) -> tuple[int, asyncio.Future[None]]:
        """A new read: its context for Raft, and its future."""
        self._next_context += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reads[self._next_context] = _Read(future, deadline_ns)
        self._note_deadline(deadline_ns)
        return self._next_context, future

    def place_read(self, context: int, index: int) -> None:
        """The read with this context may be served once `index` is applied."""
        read = self._reads.get(context)
        if read is not None:
            read.index = index

    def fail_reads(self, contexts: Sequence[int], error: NotLeader) -> None:
        """Raft gave these reads up."""
        for context in contexts:
            read = self._reads.pop(context, None)
            if read is not None:
                fail_future(read.future, error)

    def add_change(self, deadline_ns: int) -> tuple[int, asyncio.Future[bytes]]:
        """A change of the configuration: its context for Raft, and the future of its entry once that is applied."""
        self._next_context += 1
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._changes[self._next_context] = _Proposal(future, deadline_ns)
        self._note_deadline(deadline_ns)
        return self._next_context, future

    def settle_change(self, result: ChangeResult) -> None:
        """The change stands in the log and shares the fate of its entry, or Raft has refused it or given it up."""
        change = self._changes.pop(result.context, None)
        if change is None:
            return
        if result.position is not None:
            self._proposals[result.position.term, result.position.index] = change
        elif result.reason is not None:
            fail_future(change.future, ChangeRefused(result.reason, result.message))

    def resolve(self, term: int, index: int, result: bytes) -> None:
        """The entry (term, index) was applied with this result."""
        proposals = self._proposals
        proposal = proposals.pop((term, index), None) if proposals else None
        if proposal is not None and not proposal.future.done():
            proposal.future.set_result(result)

    def resolve_reads(self, applied_index: int) -> None:
        """Everything up to `applied_index` is applied."""
        if not self._reads:
            return
        served = [context for context, read in self._reads.items() if 0 <= read.index <= applied_index]
        for context in served:
            future = self._reads.pop(context).future
            if not future.done():
                future.set_result(None)

    def refuse_older(self, term: int, leader: str | None) -> None:
        """An entry of `term` is about to be applied: proposals of older terms are refused for good."""
        for position in [position for position in self._proposals if position[0] < term]:
            fail_future(self._proposals.pop(position).future, NotLeader(leader))

    def skip(self, index: int, term: int, leader: str | None) -> None:
        """A snapshot up to (term, index) replaced the state: the fate of what it covers is not known here."""
        for position in [position for position in self._proposals if position[1] <= index]:
            fail_future(self._proposals.pop(position).future, OutcomeUnknown("covered by a snapshot"))
        self.refuse_older(term, leader)

    def expire(self, now_ns: int) -> None:
        """Give up what is past its deadline."""
        if now_ns < self.next_deadline_ns:
            return
        for position in [position for position, item in self._proposals.items() if item.deadline_ns <= now_ns]:
            fail_future(self._proposals.pop(position).future, OutcomeUnknown("the deadline passed"))
        for context in [context for context, item in self._reads.items() if item.deadline_ns <= now_ns]:
            fail_future(self._reads.pop(context).future, OutcomeUnknown("the deadline passed"))
        for context in [context for context, item in self._changes.items() if item.deadline_ns <= now_ns]:
            fail_future(self._changes.pop(context).future, OutcomeUnknown("the deadline passed"))
        deadlines = [item.deadline_ns for item in (*self._proposals.values(), *self._changes.values())]
        deadlines += [item.deadline_ns for item in self._reads.values()]
        self.next_deadline_ns = min(deadlines, default=NEVER_NS)

    def abandon(self) -> None:
        """Give everything up: the group stops."""
        self.expire(NEVER_NS)

    def _note_deadline(self, deadline_ns: int) -> None:
        self.next_deadline_ns = min(self.next_deadline_ns, deadline_ns)


def fail_future(future: asyncio.Future[bytes] | asyncio.Future[None], error: Exception) -> None:
    """Give a future an error unless its caller has gone."""
    if not future.done():
        future.set_exception(error)


class QueuedProposal(msgspec.Struct, frozen=True):
    """A command, which `stamp` gives where its position in the log is fixed, and who waits for its result.

    `deadline_ns` (monotonic) is for entering the log, `decided_ns` for being applied or known dead.
    """

    stamp: Callable[[], bytes]
    future: asyncio.Future[bytes]
    deadline_ns: int
    decided_ns: int


class ProposalQueue:
    """Commands that wait to enter the log, in the order of their arrival: bounded, and their deadlines count (G7).

    Whoever leaves it other than by `take` was certainly never proposed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.waiting: list[QueuedProposal] = []
        self.next_deadline_ns = NEVER_NS

    def add(self, proposal: QueuedProposal) -> None:
        """Queue a command, or refuse it with Overloaded."""
        if len(self.waiting) >= self._limit:
            fail_future(proposal.future, Overloaded(self._limit))
            return
        self.waiting.append(proposal)
        if proposal.deadline_ns < self.next_deadline_ns:
            self.next_deadline_ns = proposal.deadline_ns

    def take(self, count: int, now_ns: int) -> list[QueuedProposal]:
        """The first commands, those that are past their deadline left out."""
        if now_ns >= self.next_deadline_ns:
            self.expire(now_ns)
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def expire(self, now_ns: int) -> None:
        """Refuse what is past its deadline."""
        if now_ns < self.next_deadline_ns:
            return
        late = [proposal for proposal in self.waiting if proposal.deadline_ns <= now_ns]
        self.waiting = [proposal for proposal in self.waiting if proposal.deadline_ns > now_ns]
        self.next_deadline_ns = min((proposal.deadline_ns for proposal in self.waiting), default=NEVER_NS)
        for proposal in late:
            fail_future(proposal.future, Expired())

    def refuse(self, error: NotProposed) -> None:
        """Refuse all that wait."""
        waiting, self.waiting = self.waiting, []
        self.next_deadline_ns = NEVER_NS
        for proposal in waiting:
            fail_future(proposal.future, error)
