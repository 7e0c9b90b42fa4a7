"""Scripts that hit nodes as they store what they must not lose: entries that a leader sent, a snapshot of its."""

from __future__ import annotations

from collections.abc import Sequence

from harness.protocols import Tuning
from nemesis.faults import NO_CUT, Bounce, Flood, Hold, Kill, NetworkPartition, Pause, PointDelay, Restart
from nemesis.grudges import isolate, shuffle, split
from nemesis.observe import MASTER, Leader, View
from nemesis.scripts.elections import last_index
from nemesis.scripts.scene import Scene
from nemesis.scripts.successors import BEFORE_FSYNC

SHORT_LOG = 250
"""Writes that come together make one entry, so that a log grows by some tens of entries a second, however many come."""

FLOOD_WRITES = 250
"""How many writes are sent at first to make a log long enough to be cut short by snapshots; then twice what it took in,
for more would only keep clients waiting."""
LEAST_WRITES, MOST_WRITES = 20, 4_000
FRAME_WRITES = 64
"""How many writes gather in one frame: several pages of the disk."""
SLOW_FSYNC_S = 0.5
"""Longer than a flood is waited for."""
MOST_FLOODS = 24
"""However long fail-overs take here: each of them costs as much as all that clients do meanwhile."""
CLIENTS_WRITES_S = 10.0
"""For how long clients' own writes are waited for where a group takes no others (the masters')."""


def short_log(tuning: Tuning) -> bool:
    """Whether a follower that is cut off for some seconds needs a snapshot."""
    return tuning.kept <= SHORT_LOG


async def power_cut(scene: Scene) -> None:
    """Kill a group's leader and its followers as they store what it sent: whatever is not durable is lost.

    The followers are held as they take entries in or are about to sync them, with time for the leader to answer
    clients, should it. Then all are killed, or the leader and a majority with the rest cut off; the leader starts again
    when the others have a new one.
    """
    while (leader := await scene.group(writable=True)) is not None:
        peers = shuffle(leader.others, scene.entropy)
        count = len(leader.voters) // 2 if scene.entropy.random() < 0.5 else len(peers)
        hit, spared = peers[:count], peers[count:]
        if spared:
            await scene.act(NetworkPartition(split(spared, [leader.node, *hit])))
        held = await storing(scene, leader, hit)
        await scene.hold(0.01, 0.1)
        await scene.act(Kill((leader.node, *hit)), {"held": list(held)} if held else None)
        await scene.hold(0.0, 0.2)
        await scene.act(NO_CUT)
        if not spared or scene.entropy.random() < 0.5:
            await scene.act(Restart(tuple(hit)))
        await scene.new_leader(leader.group, leader.term, leader.others, patience_s=3.0)
        await scene.act(Restart((leader.node, *hit)))
        await scene.new_leader(leader.group, leader.term)
        await scene.hold(0.2, 1.0)


async def storing(scene: Scene, leader: Leader, hit: Sequence[str]) -> tuple[str, ...]:
    """Hold followers as they take an entry in, or, every other time, with a frame of many entries appended and not
    synced, which a crash may tear: writes gather behind a slow fsync. Those held; () if not all are."""
    if scene.entropy.random() < 0.5:
        await scene.act(Hold(tuple(hit), "before_accept", leader.group))
    else:
        point = BEFORE_FSYNC[scene.role(leader.node)]
        await scene.act(Flood(leader.node, leader.group, 1))
        for name in hit:
            await scene.act(PointDelay(name, point, SLOW_FSYNC_S))
        await scene.act(Flood(leader.node, leader.group, FRAME_WRITES))
        for name in hit:
            await scene.act(PointDelay(name, point, 0.0))
        await scene.act(Hold(tuple(hit), point, ""))
    return await scene.stopped(hit, len(hit), patience_s=2.0)


async def snapshot_race(scene: Scene) -> None:
    """Cut a follower off until it needs a snapshot, and hit it while it installs one: killed, cut off again or paused.

    It is held with the snapshot in hand, which is not durable yet; after the hit it has to become whole all the same.
    """
    while (leader := await scene.group(writable=True)) is not None:
        victim = scene.entropy.choice(leader.others)
        await scene.act(Flood(leader.node, leader.group, 1))
        cut = NetworkPartition(isolate(leader.voters, [victim]))
        await scene.act(cut)
        if await behind(scene, leader, victim):
            await scene.act(Hold((victim,), "before_install", leader.group))
            await scene.act(NO_CUT)
            if await scene.stopped((victim,), 1):
                await _hit(scene, victim, cut)
        await scene.act(Restart((victim,)))
        await scene.act(NO_CUT)
        await caught_up(scene, leader, victim)
        await scene.hold(0.2, 1.0)


async def _hit(scene: Scene, victim: str, cut: NetworkPartition) -> None:
    seen = {"held": victim, "point": "before_install"}
    way = scene.entropy.choice(("kill", "kill", "cut", "pause"))
    if way == "kill":
        await scene.act(Bounce((victim,)), seen)
    elif way == "cut":
        await scene.act(cut, seen)
        await scene.act(Restart((victim,)))
        await scene.hold(0.2, 1.5)
    else:
        await scene.act(Pause((victim,)), seen)
        await scene.hold(0.5, 2.5)


async def behind(scene: Scene, leader: Leader, victim: str) -> bool:
    """Wait until the leader's log begins above the end of the victim's: with writes to pass the time where the group
    takes them, else for what clients write."""

    def cut_short(view: View) -> bool | None:
        replicas = view.replicas(leader.group)
        ahead, late = replicas.get(leader.node), replicas.get(victim)
        return True if ahead is not None and late is not None and ahead.first_index > late.last_index + 1 else None

    of = (leader.node, victim)
    if scene.role(leader.node) == MASTER:
        return bool(await scene.until(cut_short, of, patience_s=CLIENTS_WRITES_S))
    writes, last = FLOOD_WRITES, await last_index(scene, leader)
    for _ in range(MOST_FLOODS):
        if await scene.until(cut_short, of, patience_s=0.2, poll_s=0.1):
            return True
        await scene.act(Flood(leader.node, leader.group, writes))
        before, last = last, await last_index(scene, leader)
        writes = max(LEAST_WRITES, min(2 * (last - before), MOST_WRITES))
    return False


async def caught_up(scene: Scene, leader: Leader, victim: str) -> None:
    """Wait until the victim has applied what the leader had committed."""

    def applied(view: View) -> bool | None:
        late = view.replicas(leader.group).get(victim)
        return True if late is not None and late.applied_index >= leader.commit_index else None

    await scene.until(applied, (victim,))
