"""What replicas of logged tables tell of their logs and summaries reaches the invariants: planted breaks are seen."""

from __future__ import annotations

import pytest

from cluster.invariants.reconciled import COLLECTED, IDS, SUMMARIES
from cluster.knobs import Knobs
from cluster.quorum.ids import LOWEST_TIME, IdTimes
from cluster.quorum.messages import ReadSnapshot, SnapshotRead, Written
from cluster.quorum.mutation_log import MutationLog
from cluster.quorum.summaries import Summary
from cluster.wire.messages import WIRE_VERSION
from harness.ports.sim.world import World
from tests.cluster.quorum.quorum_rig import SimQuorumRig, everything, wrote

SMALL = Knobs(poll_period_ms=0, reconcile_period_ms=0, memtable_bytes=2_000)


def broken_by_a_load() -> dict[str, int]:
    """What breaks while a coordinator writes, the last time to one replica only, and each replica is read."""
    with World(1, version=WIRE_VERSION) as world:
        rig = SimQuorumRig(world, design="logged", knobs=SMALL)

        async def run() -> None:
            await rig.begin()
            for timestamp in range(1, 60):
                assert isinstance(await rig.write(rig.others[0], wrote(timestamp, "x" * 60, 1, 2), "ALL"), Written)
            rig.cut(rig.others[0], *rig.replicas[1:])
            await rig.write(rig.others[0], wrote(99, "partial", 1), "ONE")
            for name in rig.replicas:
                reply = await rig.ask(name, ReadSnapshot(rig.tablet_id, 0, everything()))
                assert isinstance(reply, SnapshotRead)

        world.run(run())
        record = rig.watch.record()
        assert record.checked[IDS] == 60 and record.checked[SUMMARIES] == 3
        return dict(record.broken)


def test_nothing_breaks_where_nothing_is_planted() -> None:
    assert broken_by_a_load() == {}


def test_a_log_that_forgets_what_is_not_reconciled_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MutationLog, "needs_from", None)
    assert set(broken_by_a_load()) == {COLLECTED}


def test_summaries_that_leave_something_out_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MutationLog, "summary", lambda self, partition: Summary(LOWEST_TIME, 0, b""))
    assert set(broken_by_a_load()) == {SUMMARIES}


def test_ids_that_stand_still_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdTimes, "_next", lambda self, wall_ns: 7)
    assert IDS in broken_by_a_load()
