"""The two tears of legacy replication in the simulator (Q2), and reads that are not torn by the same write."""

from __future__ import annotations

from tests.cluster.quorum.quorum_rig import SimQuorumRig, everything, part, play_quorum, wrote
from tests.cluster.quorum.tear_stories import (
    NEW,
    OLD,
    seen,
    torn_by_read_repair,
    torn_by_short_read_protection,
    write_to_one,
)
from tests.support.played import played


def test_read_repair_tears_a_write_that_reached_one_replica() -> None:
    play_quorum(torn_by_read_repair)


def test_short_read_protection_tears_a_write_that_arrives_between_two_answers() -> None:
    play_quorum(torn_by_short_read_protection)


@played(play_quorum)
async def test_without_read_repair_the_same_write_flaps_and_is_seen_whole_or_not_at_all(rig: SimQuorumRig, /) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    await rig.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL")
    await write_to_one(rig, d, a, 20, "new")
    assert seen(await rig.read(e, part(1, 2), (a, b), repair="none")) == {1: "new", 2: "new"}
    assert await rig.held(b) == OLD, "nothing is repaired"
    assert seen(await rig.read(e, everything(), (b, c), repair="none")) == OLD, "seen, and unseen again"
    assert seen(await rig.read(e, everything(), (a, c), repair="none")) == NEW


@played(play_quorum)
async def test_reads_as_wide_as_the_write_repair_all_of_it(rig: SimQuorumRig, /) -> None:
    a, b, c = rig.replicas
    d, e = rig.others
    await rig.write(e, wrote(10, "old", 1, 2, 3, 4), "ALL")
    await write_to_one(rig, d, a, 20, "new")
    assert seen(await rig.read(e, everything(), (a, b))) == NEW
    assert await rig.held(b) == NEW
    assert seen(await rig.read(e, everything(), (b, c))) == NEW
