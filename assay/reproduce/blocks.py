"""Digests of a simulation's steps, block by block (`steps.jsonl`), the first block in which two runs differ, and what
the first step that differs was in either."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import msgspec

from harness.errors import UserError
from harness.history.rundir import write_atomic


class StepMark(msgspec.Struct, frozen=True):
    """How many steps there had been, the virtual time, ns, and the digest of all of them."""

    step: int
    time_ns: int
    digest: str


class StepBlock(msgspec.Struct, frozen=True):
    """Steps of which the digests of two runs differ for the first time: from `first` to `last`, between two virtual
    times, ns (None: one of the runs ended there)."""

    first: int
    last: int | None
    begin_ns: int
    end_ns: int | None

    def sentence(self) -> str:
        """The block, for people."""
        if self.last is None or self.end_ns is None:
            return f"one of them ends after step {self.first - 1:,}, at {self.begin_ns / 1e9:.3f} s"
        span = f"between {self.begin_ns / 1e9:.3f} and {self.end_ns / 1e9:.3f} s of virtual time"
        return f"the first difference lies in steps {self.first:,} to {self.last:,}, {span}"


class TracedStep(msgspec.Struct, frozen=True):
    """A step as `traced_block` keeps it: when, ns (None: as its block began), whose, and what it did: of each message
    that arrived and each write the kind, the node and the bytes in hexadecimal."""

    time_ns: int | None
    who: str
    did: tuple[tuple[str, str, str], ...] = ()


class StepSides(msgspec.Struct, frozen=True):
    """The first step that differs between two runs, as it was in each, in words."""

    here: str
    there: str


def write_steps(path: Path, marks: Iterable[tuple[int, int, str]]) -> None:
    """Save them; raises HarnessError."""
    write_atomic(path, b"".join(msgspec.json.encode(StepMark(*mark)) + b"\n" for mark in marks))


def read_steps(path: Path) -> list[StepMark] | None:
    """What was saved, None if nothing was; raises UserError for what is no such file."""
    try:
        return msgspec.json.Decoder(StepMark).decode_lines(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{path} can't be read: {error}.") from error


def first_difference(one: Iterable[StepMark], other: Iterable[StepMark]) -> StepBlock | None:
    """The first block in which two runs differ; None if what both have is the same."""
    step = time_ns = 0
    for left, right in zip_longest(one, other):
        if left != right:
            ends = [mark for mark in (left, right) if mark is not None]
            if len(ends) < 2:
                return StepBlock(step + 1, None, time_ns, None)
            return StepBlock(step + 1, ends[0].step, time_ns, max(mark.time_ns for mark in ends))
        step, time_ns = left.step, left.time_ns
    return None


EXCERPT_BYTES = 24
"""The bytes of a record that are shown, from shortly before the first one that differs."""


def first_step(here: Iterable[TracedStep], there: Iterable[TracedStep], begin_ns: int) -> StepSides | None:
    """The first step in which two runs differ, within a block that began then; None if all are the same."""
    for one, other in zip_longest(here, there):
        if one != other:
            return StepSides(_step_words(one, other, begin_ns), _step_words(other, one, begin_ns))
    return None


def _step_words(step: TracedStep | None, other: TracedStep | None, begin_ns: int) -> str:
    if step is None:
        return "the run was over"
    at_ns = begin_ns if step.time_ns is None else step.time_ns
    others = () if other is None else other.did
    told = [_record_words(each, others[n] if n < len(others) else None) for n, each in enumerate(step.did)]
    return f"at {at_ns / 1e9:.9f} s a step of {step.who}: " + ("; ".join(told) or "nothing sent or written")


def _record_words(record: tuple[str, str, str], other: tuple[str, str, str] | None) -> str:
    kind, node, data = record[0], record[1], bytes.fromhex(record[2])
    against = b"" if other is None else bytes.fromhex(other[2])
    pairs = zip(data, against, strict=False)
    same = next((place for place, (one, another) in enumerate(pairs) if one != another), min(len(data), len(against)))
    begin = max(0, same - EXCERPT_BYTES // 3)
    shown = data[begin : begin + EXCERPT_BYTES]
    return f"{kind} at {node}, {len(data)} bytes" + (f", from byte {begin} on {shown!r}" if shown else "")


def read_traced(path: Path) -> list[TracedStep] | None:
    """The steps that were kept, None if none were, as by code that traces otherwise."""
    try:
        return msgspec.json.Decoder(TracedStep).decode_lines(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
