"""Whole conversations, message by message, compared with golden transcripts; `ASSAY_GOLDEN=write` writes them anew.

A change of the protocol shows as a diff of these files, to be reviewed like code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.raft.types import ChangeKind, Message, Role, SnapshotChunk
from tests.cluster.raft.raft_rig import STREAMS, RaftRig

GOLDEN = Path(__file__).parent / "golden"


def recording(**options: Any) -> RaftRig:
    rig = RaftRig(**options)
    rig.transcript = []
    return rig


def election() -> RaftRig:
    """§3.4, §9.6: pre-vote, election, the leader's first entry; then a rival who was cut off."""
    rig = recording()
    rig.elect("a")
    rig.note("-- b hears nothing of a, asks around and is refused within the lease")
    rig.cut("a", "b")
    rig.stand("b")
    rig.run(30)
    rig.heal()
    rig.run(150)
    rig.note("-- a is cut off for good: c stands")
    rig.isolate("a")
    rig.elect("c")
    return rig


def conflict() -> RaftRig:
    """§3.5, figure 3.6: the uncommitted entries of a deposed leader give way; whole terms are skipped."""
    rig = recording()
    rig.elect("a")
    rig.isolate("a")
    for command in (b"x", b"y", b"z"):
        rig.propose("a", command)
    rig.note("-- a holds x, y, z alone; b leads the next term")
    rig.elect("b")
    rig.propose("b", b"p")
    rig.run(150)
    rig.note("-- b hands over to c, which knows nothing of the log of a")
    rig.transfer("b", "c")
    rig.run(120)
    rig.note("-- a comes back")
    rig.heal()
    rig.run(250)
    logs = [rig.raft(name).entries(1, rig.raft(name).last_index) for name in rig.names]
    assert logs[0] == logs[1] == logs[2]
    return rig


def is_second_chunk(message: Message) -> bool:
    return isinstance(message, SnapshotChunk) and 0 < message.offset <= STREAMS.chunk_bytes


def snapshot() -> RaftRig:
    """§5.1, figure 5.3: a follower that needs compacted entries gets the snapshot in chunks, then the log behind it.

    A chunk is lost on the way: the offer is made again, and the stream goes on from where it was cut.
    """
    rig = recording(retained_entries=0)
    rig.elect("a")
    rig.isolate("c")
    for command in (b"x" * 60, b"y" * 60, b"w" * 60):
        rig.propose("a", command)
    rig.run(120)
    rig.note("-- a compacts while c is away")
    rig.compact("a")
    rig.propose("a", b"z")
    rig.run(20)
    rig.note("-- c comes back")
    rig.heal()
    rig.run_until(lambda: any(is_second_chunk(flight.message) for flight in rig.flights))
    rig.flights = [flight for flight in rig.flights if not is_second_chunk(flight.message)]
    rig.note("-- the second chunk is lost")
    rig.run(450)
    assert rig.commands("c") == [b"x" * 60, b"y" * 60, b"w" * 60, b"z"]
    return rig


def transfer() -> RaftRig:
    """§3.10: the target is brought up to date, told to stand, and wins within the others' leases."""
    rig = recording()
    rig.elect("a")
    rig.propose("a", b"x")
    rig.note("-- a hands over to c")
    rig.transfer("a", "c")
    rig.run(120)
    assert rig.raft("c").role is Role.LEADER
    return rig


def membership() -> RaftRig:
    """§4.1, §4.2: a server learns, is promoted, and replaces another; then the leader removes itself."""
    rig = recording(spares=1)
    rig.elect("a")
    rig.note("-- d is added as a learner")
    rig.change("a", ChangeKind.ADD_LEARNER, "d")
    rig.run(120)
    rig.note("-- d is promoted: it has all there is")
    rig.change("a", ChangeKind.PROMOTE, "d")
    rig.run(120)
    rig.note("-- b is removed, and hears no more of the group")
    rig.change("a", ChangeKind.REMOVE, "b")
    rig.run(120)
    rig.note("-- a removes itself: it commits that, counting c and d, and tells one of them to stand")
    rig.change("a", ChangeKind.REMOVE, "a")
    rig.run(120)
    heir = rig.leader()
    assert rig.raft(heir).configuration.voter_ids == ("c", "d")
    assert rig.raft("a").role is not Role.LEADER
    return rig


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
def test_transcript(scene: Callable[[], RaftRig]) -> None:
    rig = scene()
    assert rig.violations == []
    assert rig.transcript is not None
    text = "\n".join(without_repeated_heartbeats(rig.transcript)) + "\n"
    path = GOLDEN / f"{scene.__name__}.txt"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()
