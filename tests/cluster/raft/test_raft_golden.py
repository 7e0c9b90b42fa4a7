"""Whole conversations, message by message, compared with golden transcripts; `ASSAY_GOLDEN=write` writes them anew.

A change of the protocol shows as a diff of these files, to be reviewed like code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raft_bench import STREAMS, Bench

from cluster.raft.types import ChangeKind, Message, Role, SnapshotChunk

GOLDEN = Path(__file__).parent / "golden"


def recording(**options: Any) -> Bench:
    bench = Bench(**options)
    bench.transcript = []
    return bench


def election() -> Bench:
    """§3.4, §9.6: pre-vote, election, the leader's first entry; then a rival who was cut off."""
    bench = recording()
    bench.elect("a")
    bench.note("-- b hears nothing of a, asks around and is refused within the lease")
    bench.cut("a", "b")
    bench.stand("b")
    bench.run(30)
    bench.heal()
    bench.run(150)
    bench.note("-- a is cut off for good: c stands")
    bench.isolate("a")
    bench.elect("c")
    return bench


def conflict() -> Bench:
    """§3.5, figure 3.6: the uncommitted entries of a deposed leader give way; whole terms are skipped."""
    bench = recording()
    bench.elect("a")
    bench.isolate("a")
    for command in (b"x", b"y", b"z"):
        bench.propose("a", command)
    bench.note("-- a holds x, y, z alone; b leads the next term")
    bench.elect("b")
    bench.propose("b", b"p")
    bench.run(150)
    bench.note("-- b hands over to c, which knows nothing of the log of a")
    bench.transfer("b", "c")
    bench.run(120)
    bench.note("-- a comes back")
    bench.heal()
    bench.run(250)
    logs = [bench.raft(name).entries(1, bench.raft(name).last_index) for name in bench.names]
    assert logs[0] == logs[1] == logs[2]
    return bench


def is_second_chunk(message: Message) -> bool:
    return isinstance(message, SnapshotChunk) and 0 < message.offset <= STREAMS.chunk_bytes


def snapshot() -> Bench:
    """§5.1, figure 5.3: a follower that needs compacted entries gets the snapshot in chunks, then the log behind it.

    A chunk is lost on the way: the offer is made again, and the stream goes on from where it was cut.
    """
    bench = recording(retained_entries=0)
    bench.elect("a")
    bench.isolate("c")
    for command in (b"x" * 60, b"y" * 60, b"w" * 60):
        bench.propose("a", command)
    bench.run(120)
    bench.note("-- a compacts while c is away")
    bench.compact("a")
    bench.propose("a", b"z")
    bench.run(20)
    bench.note("-- c comes back")
    bench.heal()
    bench.run_until(lambda: any(is_second_chunk(flight.message) for flight in bench.flights))
    bench.flights = [flight for flight in bench.flights if not is_second_chunk(flight.message)]
    bench.note("-- the second chunk is lost")
    bench.run(450)
    assert bench.commands("c") == [b"x" * 60, b"y" * 60, b"w" * 60, b"z"]
    return bench


def transfer() -> Bench:
    """§3.10: the target is brought up to date, told to stand, and wins within the others' leases."""
    bench = recording()
    bench.elect("a")
    bench.propose("a", b"x")
    bench.note("-- a hands over to c")
    bench.transfer("a", "c")
    bench.run(120)
    assert bench.raft("c").role is Role.LEADER
    return bench


def membership() -> Bench:
    """§4.1, §4.2: a server learns, is promoted, and replaces another; then the leader removes itself."""
    bench = recording(spares=1)
    bench.elect("a")
    bench.note("-- d is added as a learner")
    bench.change("a", ChangeKind.ADD_LEARNER, "d")
    bench.run(120)
    bench.note("-- d is promoted: it has all there is")
    bench.change("a", ChangeKind.PROMOTE, "d")
    bench.run(120)
    bench.note("-- b is removed, and hears no more of the group")
    bench.change("a", ChangeKind.REMOVE, "b")
    bench.run(120)
    bench.note("-- a removes itself: it commits that, counting c and d, and tells one of them to stand")
    bench.change("a", ChangeKind.REMOVE, "a")
    bench.run(120)
    heir = bench.leader()
    assert bench.raft(heir).configuration.voter_ids == ("c", "d")
    assert bench.raft("a").role is not Role.LEADER
    return bench


def without_repeated_heartbeats(lines: list[str]) -> list[str]:
    """Empty AppendEntries and successful answers are shown once in every part of a scene."""
    kept: list[str] = []
    shown: list[str] = []
    for line in lines:
        if line.startswith("--"):
            shown.clear()
        if line in shown and (" -> " in line) and ("commit=" in line or "success=True" in line):
            continue
        shown.append(line)
        kept.append(line)
    return kept


@pytest.mark.parametrize(
    "scene", [election, conflict, snapshot, transfer, membership], ids=lambda scene: scene.__name__
)
def test_transcript(scene: Callable[[], Bench]) -> None:
    bench = scene()
    assert bench.violations == []
    assert bench.transcript is not None
    text = "\n".join(without_repeated_heartbeats(bench.transcript)) + "\n"
    path = GOLDEN / f"{scene.__name__}.txt"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
