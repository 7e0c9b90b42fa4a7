"""Scripts about replicas without leaders (Q2): writes that reach one of them, answers to one read that lie apart.

Both aim at how CEP-45 says that legacy replication tears writes. They hold a coordinator at the step in question, so
that they see it reached, and end or continue it there.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.capabilities import Capability
from harness.ports.machines import Skew
from harness.protocols import Tuning
from nemesis.faults import NO_CUT, Hold, Kill, NetworkPartition, PointDelay, Restart, SetClocks
from nemesis.grudges import isolate, shuffle, split
from nemesis.observe import View, names
from nemesis.scripts.scene import Scene

LEADERLESS = Capability.LEADERLESS
"""The capability of a database whose tables know no leaders: scripts about leaders reach nothing there."""

LOGGED = Capability.LOGGED_TABLES
"""The capability of a database whose tables without leaders log mutations: replicas tell what they have applied."""

SOME_LIMITS, MANY_LIMITS = 0.2, 0.6

REPLICA = "replica"
"""What replicas that know no leader call themselves."""

BEFORE_HINT, BEFORE_FOLLOW_UP, AFTER_ID = "quorum.before_hint", "quorum.before_follow_up", "quorum.after_id"

BEFORE_STORE, AFTER_ROWS = "quorum.before_store", "quorum.after_rows"

_LATE_PATIENCE_S = 2.0
"""Writes are frequent, and legacy tables give no ids."""

_STEP_PATIENCE_S = 2.0
"""Some steps are rare, or never taken by this table: then it is another step's turn."""

_SHORT_PATIENCE_S = 5.0
"""By then reads have made up for what was missed, and another replica is to miss something."""

_NEARLY = 0.9
"""Of the declared maximum offset, that a clock goes back at most."""

_MOST_LIVES = 3

_START_S = 20.0
"""Containers start slowly."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A tablet without leaders: `one` of its replicas, the `others`, and a coordinator that holds none, if any does."""

    group: str
    one: str
    others: tuple[str, ...]
    coordinator: str


async def partial_write(scene: Scene) -> None:
    """Cut a coordinator off from all replicas but one; kill it when a write has missed them, before it leaves hints."""
    while (cast := await _cast(scene)) is not None:
        reached = cast.coordinator if cast.coordinator in cast.others else cast.one
        missed = [name for name in (cast.one, *cast.others) if name != reached]
        await scene.act(NetworkPartition(split([cast.coordinator], missed)))
        await scene.act(Hold((cast.coordinator,), BEFORE_HINT, cast.group))
        held = await scene.stopped((cast.coordinator,), 1)
        seen = {"coordinator": cast.coordinator, "reached": reached, "group": cast.group}
        await scene.act(Kill((cast.coordinator,)), seen if held else None)
        await scene.act(NO_CUT)
        await scene.hold(0.5, 2.0)
        await scene.act(Restart((cast.coordinator,)))
        await scene.hold(0.2, 1.0)


def short_reads(tuning: Tuning) -> bool:
    """Whether reads with limits meet replicas that lack something, and are too short for it.

    Of logged tables the first read of a partition, with a limit or not, makes up for all that a replica missed there.
    Of others it takes some limits: with one read in ten a coordinator often has none to go on with within the run.
    """
    return tuning.limits >= (MANY_LIMITS if tuning.logged else SOME_LIMITS)


async def short_read(scene: Scene) -> None:
    """Let a replica miss deletions; hold a coordinator as it is about to ask a replica for more, while writes go on.

    Until then only this coordinator reaches that replica: hints of the others would make up for what it missed.
    """
    while (cast := await _cast(scene)) is not None:
        tservers = names(scene.observer.database.nodes, "tserver")
        await scene.act(NetworkPartition(isolate(tservers, [cast.one])))
        await scene.hold(0.5, 1.5)
        await scene.act(Hold((cast.coordinator,), BEFORE_FOLLOW_UP, cast.group))
        strangers = [name for name in tservers if name not in (cast.one, cast.coordinator)]
        await scene.act(NetworkPartition(split([cast.one], strangers)))
        held = await scene.stopped((cast.coordinator,), 1, _SHORT_PATIENCE_S)
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
        await scene.act(NetworkPartition(split([cast.coordinator], [cast.one])))
        await scene.act(Restart((cast.coordinator,)))
        await scene.hold(0.5, 1.0)
        await scene.act(NetworkPartition(isolate(tservers, [cast.one])))
        await scene.reached(away=cast.one, late=" ".join(late), group=cast.group)
        await scene.hold(4.0, 6.0)
        await scene.act(NO_CUT)
        await scene.hold(1.0, 3.0)


SERVED = ("before_write", "after_id", "before_send", "after_write", "before_hint", "before_read", "before_repair")
READ_ON = ("before_follow_up", "after_read")
RECONCILED = ("before_fencing", "before_comparing", "before_collecting", "before_delivering", "before_raising")
"""The steps of a write and a read at their coordinator, and of a reconciliation at the replica that carries it out."""


async def coordinator_kill(scene: Scene) -> None:
    """Hold whoever coordinates a write, a read or a reconciliation at one of its steps, and kill it there.

    Most times a replica was away just before, so that there is something to make up for.
    """
    while (cast := await _cast(scene)) is not None:
        reconciles = scene.entropy.random() < 0.4
        point = scene.entropy.choice(RECONCILED if reconciles else (*SERVED, *READ_ON))
        among = (cast.one, *cast.others) if reconciles else (cast.coordinator,)
        tservers = names(scene.observer.database.nodes, "tserver")
        if scene.entropy.random() < 0.7:
            await scene.act(NetworkPartition(isolate(tservers, [cast.one])))
            await scene.hold(0.5, 1.0)
        await scene.act(Hold(among, f"quorum.{point}", cast.group))
        if point != "before_hint":
            await scene.act(NO_CUT)
        held = await scene.stopped(among, 1, _STEP_PATIENCE_S)
        if held:
            await scene.act(Kill(held), {"killed": " ".join(held), "at": f"quorum.{point}", "group": cast.group})
        await scene.act(NO_CUT)
        await scene.hold(0.2, 1.0)
        await scene.act(Restart(among))
        await scene.hold(0.2, 0.8)


async def restart_clock_back(scene: Scene) -> None:
    """Kill a tablet server and start it with its clock moved back, again and again, so that it lives a time anew.

    The clock is never further back than the declared maximum offset; ids have to rise all the same (Q3).
    """
    while (cast := await _cast(scene)) is not None:
        name: str = scene.entropy.choice((cast.coordinator, cast.one, *cast.others))
        most_ns = _NEARLY * (await scene.view()).max_clock_offset_ns
        lives = scene.entropy.randint(1, _MOST_LIVES)
        for life in range(1, lives + 1):
            await scene.hold(0.3, 0.6)
            await scene.act(Kill((name,)))
            back = Skew(-int(most_ns * life / lives))
            await scene.act(SetClocks(((name, back),)))
            await scene.act(Restart((name,)))
            if await _answers(scene, name):
                await scene.reached(restarted=name, clock=str(back), life=life)
        await scene.hold(0.5, 1.5)
        await scene.act(SetClocks(()))
        await scene.hold(0.5, 1.5)


async def split_snapshot(scene: Scene) -> None:
    """Let writes come late to one replica of three, and what it answers to reads lie between rows and summary (Q5).

    So what it lacked when it read its rows is there when it tells what it has applied.
    """
    while (cast := await _cast(scene)) is not None:
        late_s = scene.entropy.uniform(0.1, 0.3)
        await scene.act(PointDelay(cast.one, BEFORE_STORE, late_s))
        await scene.act(PointDelay(cast.one, AFTER_ROWS, late_s * scene.entropy.uniform(1.0, 2.0)))
        await scene.hold(0.5, 1.0)
        await scene.reached(replica=cast.one, late_s=round(late_s, 3), group=cast.group)
        await scene.hold(1.0, 3.0)
        await scene.act(PointDelay(cast.one, BEFORE_STORE, 0.0))
        await scene.act(PointDelay(cast.one, AFTER_ROWS, 0.0))
        await scene.hold(0.2, 1.0)


async def _answers(scene: Scene, name: str) -> bool:
    """Wait until a node says how it is."""
    patience_s = max(scene.patience_s, _START_S)
    return await scene.until(lambda view: view.statuses.get(name), (name,), patience_s) is not None


async def _cast(scene: Scene) -> Cast | None:
    return await scene.until(lambda view: _drawn(scene, view))


def _drawn(scene: Scene, view: View) -> Cast | None:
    """Where every server holds a replica, the coordinator is one of the `others`."""
    tservers = names(view.nodes, "tserver")
    found = {group: _holders(view, group) for group in view.groups("tserver")}
    groups = [group for group, holders in found.items() if len(holders) > 1]
    if not groups:
        return None
    group = scene.entropy.choice(groups)
    one, *others = shuffle(found[group], scene.entropy)
    coordinator = scene.entropy.choice([name for name in tservers if name not in found[group]] or others)
    return Cast(group, one, tuple(others), coordinator)


def _holders(view: View, group: str) -> tuple[str, ...]:
    return tuple(name for name, status in view.replicas(group).items() if status.role == REPLICA)
