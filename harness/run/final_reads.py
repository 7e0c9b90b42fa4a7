"""The final reads that go to each node in turn: all of them, but to a node that may be gone the first one alone.

A node that is gone lets whoever asks wait for the whole timeout: once is enough. One that answers, however late, is
asked for everything. A cluster serves before each of its nodes does: who has just got its clock back, say, refuses for
a while. So each is asked for something before until it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from harness.errors import ELSEWHERE, HarnessError
from harness.generators import Generator, Source, any_of, cycle, delay, limit, map_ops, until
from harness.generators.core import DONE, PENDING, Context, Pending, Step
from harness.history.ops import Op
from harness.ports.machines import ProcessState
from harness.protocols import Database

READS_OF_A_NODE = 200
"""Final reads that go to each node as well, at most: those of the first keys, where there are more."""


class OnceItAnswers(msgspec.Struct, frozen=True):
    """The first of a node's reads, and the others when the node has answered it; none if it has not."""

    inner: Generator
    node: str
    asked: bool = False
    answers: bool | None = None

    def step(self, context: Context) -> Step:
        if self.answers is False:
            return DONE
        if self.asked and self.answers is None:
            return PENDING, self
        op, after = self.inner.step(context)
        if op is None or after is None:
            return op, None
        return op, replace(self, inner=after, asked=not isinstance(op, Pending))

    def update(self, context: Context, event: Op) -> Generator:
        inner = self.inner.update(context, event)
        if self.answers is None and event.node == self.node and event.type != "invoke":
            return replace(self, inner=inner, answers=answered(event))
        return self if inner is self.inner else replace(self, inner=inner)


def answered(event: Op) -> bool:
    """Whether a node answered what it was asked, be it that others serve it."""
    return event.type == "ok" or event.error_class == ELSEWHERE


def until_each_answers(nodes: Iterable[str], suspects: frozenset[str], reads: Source, gap_s: float) -> Generator:
    """A read of each node that is no suspect, again and again until it answers one."""
    asked = (named(name, delay(gap_s, cycle(reads))) for name in nodes if name not in suspects)
    return any_of(*(until(answered, each) for each in asked))


def named(node: str, reads: Source) -> Generator:
    """The reads, sent to that node."""
    return map_ops(lambda op: replace(op, node=node), reads)


def reads_of_each(nodes: Iterable[str], suspects: frozenset[str], reads: Source) -> Generator:
    """The reads, of every node; of a suspect the others wait until it has answered the first."""
    return any_of(*(_of_one(name, name in suspects, reads) for name in nodes))


def _of_one(name: str, suspect: bool, reads: Source) -> Generator:
    some = named(name, limit(READS_OF_A_NODE, reads))
    return OnceItAnswers(some, name) if suspect else some


async def suspects(database: Database, nodes: Sequence[str]) -> frozenset[str]:
    """Nodes that may be gone: no process runs there, or nobody can tell. One that is only slow runs."""
    found = await asyncio.gather(*(database.process_state(name) for name in nodes), return_exceptions=True)
    failed = [each for each in found if isinstance(each, BaseException)]
    for each in failed:
        if not isinstance(each, HarnessError):
            raise each
    gone = (name for name, state in zip(nodes, found, strict=True) if state in (ProcessState.DEAD, *failed))
    return frozenset(gone)
