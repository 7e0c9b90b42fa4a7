"""A program: carries out an `assay` command and keeps the steps of one block of its simulation, by any commit's code.

    python traced_block.py FILE BLOCK COMMAND...

It takes nothing from the rest of this program, for it runs with the code of another commit: what the trace of its
simulator (`harness.ports.sim.trace`) hashes between two digests is what happened in a block. FILE gets a line for each
step (`assay.reproduce.blocks`).
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harness.ports.sim import trace as traces

NAMES: Final = (
    *("NOTIFY", "CALL", "REPLY", "APPEND", "FSYNC", "FILE"),
    *("KILL", "PAUSE", "RESUME", "START", "CRASH", "END"),
)
KINDS: Final = {getattr(traces, name): name.lower() for name in NAMES}
"""What records are of."""

OTHERS: Final = "the harness"
"""Whose steps are not those of a node."""


def keep_block(path: Path, block: int) -> None:
    """From now on the traces of this process keep the steps between digest number `block` and the next one, and write
    them there."""
    flush, digest, record = traces.Trace._flush, traces.Trace.digest, traces.Trace.record
    words: list[int] = []
    payloads: list[bytes] = []
    names: dict[int, str] = {}
    digests = 0

    def keeping_flush(trace: traces.Trace) -> None:
        if digests == block:
            words.extend(trace.words)
            payloads.extend(trace.payloads)
        flush(trace)

    def counting_digest(trace: traces.Trace) -> str:
        nonlocal digests
        found = digest(trace)
        if digests == block:
            path.write_text("".join(json.dumps(step) + "\n" for step in steps_in(words, payloads, names)))
        digests += 1
        return found

    def naming_record(trace: traces.Trace, kind: int, tag: int, payload: bytes) -> None:
        if kind == traces.START:
            names[tag] = payload.decode()
        record(trace, kind, tag, payload)

    patched: Any = traces.Trace
    patched._flush, patched.digest, patched.record = keeping_flush, counting_digest, naming_record


def steps_in(words: Sequence[int], payloads: Iterable[bytes], names: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """The steps that a trace has: when each was, ns (None: when the block began), whose it was, and what it did."""
    left, time_ns = iter(payloads), None
    step: dict[str, Any] | None = None
    for word in words:
        if word >= traces.RECORD and step is not None:
            tag, kind = -((word - traces.RECORD) >> 4), -((word - traces.RECORD) & 15)
            step["did"].append([KINDS.get(kind, "record"), names.get(tag, OTHERS), next(left).hex()])
        elif 0 <= word < traces.RECORD:
            time_ns = word
        else:
            if step is not None:
                yield step
            who = "the network" if word == traces.STEP_OF_NETWORK else names.get(word, OTHERS)
            step = {"time_ns": time_ns, "who": who, "did": []}
    if step is not None:
        yield step


if __name__ == "__main__":
    keep_block(Path(sys.argv[1]), int(sys.argv[2]))
    sys.argv = ["assay", *sys.argv[3:]]
    runpy.run_module("assay", run_name="__main__")
