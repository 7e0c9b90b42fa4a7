"""Scripts about replicas without leaders (Q2): writes that reach one of them, answers to one read that lie apart.

Both aim at how CEP-45 says that legacy replication tears writes. They hold a coordinator at the step in question, so
that they see it reached, and end or continue it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from nemesis.faults import NO_CUT, Hold, Kill, Partition, Restart
from nemesis.grudges import isolate, shuffle, split
from nemesis.scene import Scene
from nemesis.view import View, names

LEADERLESS = "leaderless"
"""The capability of a database whose tables know no leaders: scripts about leaders reach nothing there."""

REPLICA = "replica"
"""What replicas that know no leader call themselves."""

BEFORE_HINT, BEFORE_FOLLOW_UP, AFTER_ID = "quorum.before_hint", "quorum.before_follow_up", "quorum.after_id"

_LATE_PATIENCE_S = 2.0
"""Writes are frequent, and legacy tables give no ids."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A tablet without leaders: `one` of its replicas, the `others`, and a coordinator that holds none, if any."""

    group: str
    one: str
    others: tuple[str, ...]
    coordinator: str


async def partial_write(scene: Scene) -> None:
    """Cut a coordinator off from all replicas but one; kill it when a write has missed them, before it leaves hints."""
    while (cast := await _cast(scene)) is not None:
        await scene.act(Partition(split([cast.coordinator], list(cast.others))))
        await scene.act(Hold((cast.coordinator,), BEFORE_HINT, cast.group))
        held = await scene.stopped((cast.coordinator,), 1)
        seen = {"coordinator": cast.coordinator, "reached": cast.one, "group": cast.group}
        await scene.act(Kill((cast.coordinator,)), seen if held else None)
        await scene.act(NO_CUT)
        await scene.hold(0.5, 2.0)
        await scene.act(Restart((cast.coordinator,)))
        await scene.hold(0.2, 1.0)


async def short_read(scene: Scene) -> None:
    """Let a replica miss deletions; hold a coordinator as it is about to ask a replica for more, while writes go on.

    Until then only this coordinator reaches that replica: hints of the others would make up for what it missed.
    """
    while (cast := await _cast(scene)) is not None:
        tservers = names(scene.observer.database.nodes, "tserver")
        await scene.act(Partition(isolate(tservers, [cast.one])))
        await scene.hold(0.5, 1.5)
        await scene.act(Hold((cast.coordinator,), BEFORE_FOLLOW_UP, cast.group))
        strangers = [name for name in tservers if name not in (cast.one, cast.coordinator)]
        await scene.act(Partition(split([cast.one], strangers)))
        held = await scene.stopped((cast.coordinator,), 1)
        await scene.act(NO_CUT)
        if held:
            await scene.reached(coordinator=cast.coordinator, missed=cast.one, group=cast.group)
            await scene.hold(0.1, 0.5)
        await scene.act(Restart((cast.coordinator,)))
        await scene.hold(0.2, 1.0)


async def replica_away(scene: Scene) -> None:
    """Cut a replica off for longer than reconciliations and grace periods take; its clients stay with it.

    Before that hold a coordinator that has given a write its id, where tables are logged, so that the write comes long
    after its time, and does not reach that replica.
    """
    while (cast := await _cast(scene)) is not None:
        tservers = names(scene.observer.database.nodes, "tserver")
        await scene.act(Hold((cast.coordinator,), AFTER_ID, cast.group))
        late = await scene.stopped((cast.coordinator,), 1, _LATE_PATIENCE_S)
        await scene.hold(2.0, 3.0)
        await scene.act(Partition(split([cast.coordinator], [cast.one])))
        await scene.act(Restart((cast.coordinator,)))
        await scene.hold(0.5, 1.0)
        await scene.act(Partition(isolate(tservers, [cast.one])))
        await scene.reached(away=cast.one, late=" ".join(late), group=cast.group)
        await scene.hold(4.0, 6.0)
        await scene.act(NO_CUT)
        await scene.hold(1.0, 3.0)


async def _cast(scene: Scene) -> Cast | None:
    return await scene.until(lambda view: _drawn(scene, view))


def _drawn(scene: Scene, view: View) -> Cast | None:
    tservers = names(view.nodes, "tserver")
    found = {group: _holders(view, group) for group in view.groups("tserver")}
    groups = [group for group, holders in found.items() if len(holders) > 1 and len(holders) < len(tservers)]
    if not groups:
        return None
    group = scene.entropy.choice(groups)
    one, *others = shuffle(found[group], scene.entropy)
    coordinator = scene.entropy.choice([name for name in tservers if name not in found[group]])
    return Cast(group, one, tuple(others), coordinator)


def _holders(view: View, group: str) -> tuple[str, ...]:
    return tuple(name for name, status in view.replicas(group).items() if status.role == REPLICA)
