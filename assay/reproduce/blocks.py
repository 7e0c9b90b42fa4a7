"""Digests of a simulation's steps, block by block (`steps.jsonl`), and the first block in which two runs differ."""

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
