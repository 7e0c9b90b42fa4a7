"""Commands that wait to enter a group's log: a bounded queue, whose deadlines count (G7). Pure but for the futures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from cluster.groups.waiters import NEVER_NS, Expired, NotProposed, Overloaded, fail_future


class QueuedProposal(msgspec.Struct, frozen=True):
    """A command, which `stamp` gives where its position in the log is fixed, and who waits for its result.

    `deadline_ns` (monotonic) is for entering the log, `decided_ns` for being applied or known dead.
    """

    stamp: Callable[[], bytes]
    future: asyncio.Future[bytes]
    deadline_ns: int
    decided_ns: int


class ProposalQueue:
    """Commands in the order of their arrival. Whoever leaves it other than by `take` was certainly never proposed."""

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
        """Refuse everything."""
        waiting, self.waiting = self.waiting, []
        self.next_deadline_ns = NEVER_NS
        for proposal in waiting:
            fail_future(proposal.future, error)
