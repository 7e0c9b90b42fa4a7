"""One log for all groups of a node: group commit, recovery, collection, snapshots (G5)."""

from __future__ import annotations

import asyncio
import random
from typing import get_args

import pytest
from msgspec.structs import replace

from cluster.log.frames import OtherVersion
from cluster.log.segments import parse_path
from cluster.raft.types import HardState
from harness.ports.failpoints import Arming
from harness.ports.machines import ProcessState
from harness.ports.sim.disk import Tear
from tests.cluster.log.node_logs import KNOBS, Machine, Stored, entry, simulate, snapshot


def test_what_all_groups_wait_for_takes_one_fsync() -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        views = [machine.group(f"g{number}") for number in range(16)]
        await machine.clock.sleep(0.1)
        before = machine.disk.syncs
        for view in views:
            machine.put(view, entry(1, 1))
        await machine.until(lambda: all(not view.busy for view in views))
        assert machine.disk.syncs == before + 1

    simulate(scenario)


def test_a_group_that_ran_here_is_not_fresh_again() -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        assert (await machine.recovered("g")).fresh
        await machine.clock.sleep(0.1)
        await machine.restart()
        assert not (await machine.recovered("g")).fresh

    simulate(scenario)


class Model:
    """What is stored of one group after each step, kept the plain way; `history` holds what a crash may leave."""

    def __init__(self) -> None:
        self.state: Stored = (HardState(), None, ())
        self.history: list[Stored] = [self.state]

    @property
    def base(self) -> int:
        return self.state[1].meta.index if self.state[1] else 0

    @property
    def last(self) -> int:
        return self.state[2][-1].index if self.state[2] else self.base

    def change(self, state: Stored) -> None:
        self.state = state
        self.history.append(state)


class Walk:
    """Random steps on some groups, with power cuts in mid-work."""

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine, self.random = machine, random.Random(seed)
        self.models = {f"g{number}": Model() for number in range(4)}
        self.views = {name: machine.group(name) for name in self.models}
        self.term = 0

    async def step(self) -> None:
        name = self.random.choice([*self.models])
        model, view = self.models[name], self.views[name]
        kind = self.random.choice(("append", "append", "append", "hard", "save", "install", "wait", "crash"))
        hard, base, entries = model.state
        self.term += 1
        if kind == "append":
            first = max(model.base + 1, model.last + 1 - self.random.randrange(3))
            new = tuple(
                entry(first + n, self.term, self.random.randbytes(self.random.choice((0, 30, 900))))
                for n in range(self.random.randrange(1, 4))
            )
            self.machine.put(view, *new)
            model.change((hard, base, (*(old for old in entries if old.index < first), *new)))
        elif kind == "hard":
            self.machine.put(view, hard=HardState(self.term, "a", 0))
            model.change((HardState(self.term, "a", 0), base, entries))
        elif kind == "save" and entries and not view.saving:
            await self.settled()
            chosen = self.random.choice(entries)
            saved = snapshot(chosen.index, chosen.term, 300)
            model.change((hard, saved, tuple(old for old in entries if old.index > chosen.index)))
            view.save_snapshot(saved.meta, iter((saved.data,)), lambda _: None)
            if self.random.random() < 0.7:
                await self.machine.until(lambda: not view.saving)
                self.forget_history()
            else:
                await self.crash()
        elif kind == "install":
            new_base = snapshot(model.last + 5, self.term, 200)
            received = await self.machine.receive(view, new_base)
            self.machine.put(view, entry(model.last + 6, self.term), new=received)
            model.change((hard, new_base, (entry(model.last + 6, self.term),)))
        elif kind == "wait":
            await self.machine.clock.sleep(self.random.choice((0.001, 0.01, 0.3)))
        elif kind == "crash":
            await self.crash()

    async def settled(self) -> None:
        await self.machine.until(lambda: not any(view.busy for view in self.views.values()))
        self.forget_history()

    def forget_history(self) -> None:
        for model in self.models.values():
            model.history = [model.state]

    async def crash(self) -> None:
        durable = {name: not view.busy and not view.saving for name, view in self.views.items()}
        await self.machine.restart()
        for name, model in self.models.items():
            found = await self.machine.stored(name)
            assert found in ([model.state] if durable[name] else model.history), name
            self.views[name] = self.machine.group(name)
            model.state = found
        self.forget_history()


@pytest.mark.parametrize("tear", get_args(Tear))
@pytest.mark.parametrize("seed", range(30))
def test_power_cuts_at_any_time_leave_each_group_a_state_since_its_last_durable_one(seed: int, tear: Tear) -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        walk = Walk(machine, seed)
        for _ in range(120):
            await walk.step()
        await walk.settled()
        await walk.crash()

    simulate(scenario, seed, tear=tear)


def test_a_cold_group_never_keeps_a_segment_and_the_log_stays_below_twice_what_is_alive() -> None:
    """A hot group writes 1.2 MB beside cold ones that hold two thirds of what is alive."""
    knobs = replace(KNOBS, log_segment_bytes=16_000)

    async def scenario(machine: Machine) -> None:
        await machine.start()
        cold = [machine.group(f"cold{number}") for number in range(20)]
        hot = machine.group("hot")
        for view in cold:
            await machine.write(view, *(entry(n + 1, 1, bytes(500)) for n in range(4)))
        alive = 20 * 4 * 500 + 40 * 500
        index, largest, written = 0, 0, 0
        for _ in range(300):
            await machine.write(hot, *(entry(index + n + 1, 2, bytes(500)) for n in range(8)))
            index += 8
            written += 8 * 500
            if index % 40 == 0:
                await machine.save(hot, snapshot(index, 2))
            largest = max(largest, machine.log_bytes())
        assert written > 7 * largest
        removing = 8 * 600  # what is written while the removal of a segment waits for its turn at the disk
        assert largest <= 2 * alive + 3 * knobs.log_segment_bytes + removing
        first = parse_path(machine.segments()[0])
        assert first is not None and first.number > 50
        await machine.restart()
        for view in cold:
            assert len((await machine.stored(view.group))[2]) == 4

    simulate(scenario, knobs=knobs)


def test_a_log_that_is_long_by_its_frames_alone_is_not_rewritten_for_ever() -> None:
    """Of many small groups and small segments a segment's directory takes more than what is alive: 100 000 frames of
    nothing new were written in a test of five seconds."""

    async def scenario(machine: Machine) -> None:
        await machine.start()
        views = [machine.group(f"a-group-with-a-long-name-{number}") for number in range(60)]
        for index in range(4):
            for view in views:
                await machine.write(view, entry(index + 1, 1))
            await machine.clock.sleep(1)
            before = parse_path(machine.segments()[-1])
            await machine.clock.sleep(5)
            after = parse_path(machine.segments()[-1])
            assert before is not None and after is not None
            assert after.number <= before.number + 1, index
        await machine.restart()
        assert all([len((await machine.stored(view.group))[2]) == 4 for view in views])

    simulate(scenario, knobs=replace(KNOBS, log_segment_bytes=2_000))


def test_a_destroyed_group_is_void_and_its_name_begins_afresh() -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        view, other = machine.group("g"), machine.group("other")
        await machine.write(view, entry(1, 1), entry(2, 1), hard=HardState(3, "a", 0))
        await machine.write(other, entry(1, 1))
        await machine.save(view, snapshot(1, 1))
        await machine.log.destroy("g")
        assert not [path for path in machine.disk.paths() if path.startswith("snapshots/")]
        assert (await machine.recovered("g")).fresh
        await machine.write(machine.group("g"), entry(1, 7))
        await machine.restart()
        assert await machine.stored("g") == (HardState(), None, (entry(1, 7),))
        assert await machine.stored("other") == (HardState(), None, (entry(1, 1),))

    simulate(scenario)


def test_a_segment_that_begins_promises_nothing_that_still_waits() -> None:
    """Seed 183 of a swarm of `catalog`: groups that began while a frame filled the segment were in the next one's
    directory, and a crash before they were written had them quarantined on a whole disk."""

    async def scenario(machine: Machine) -> None:
        await machine.start()
        old, gone, full = machine.group("old"), machine.group("gone"), machine.group("full")
        for view in (old, gone):
            await machine.write(view, entry(1, 1), hard=HardState(3, "a", 0))
        machine.put(full, entry(1, 1, bytes(KNOBS.log_segment_bytes)))
        await machine.clock.sleep(0)  # its frame is on its way
        machine.node.failpoints.arm(Arming("tablet.after_roll"))
        machine.group("new").found(HardState(1, None, 0), entry(1, 1))
        going = asyncio.create_task(machine.log.destroy("gone"))
        await machine.until(lambda: machine.node.state is ProcessState.DEAD)
        going.cancel()
        await machine.start()
        assert (await machine.recovered("new")).fresh
        for name in ("old", "gone"):
            assert await machine.stored(name) == (HardState(3, "a", 0), None, (entry(1, 1),))

    simulate(scenario)


def test_a_full_disk_keeps_everything_waiting_and_tells_every_view() -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        one, two = machine.group("one"), machine.group("two")
        await machine.write(one, entry(1, 1))
        calls: list[str] = []
        for view in (one, two):
            view.attach(
                lambda batch, g=view.group: machine.durable[g].extend(item.sequence for item in batch),  # type: ignore[misc]
                lambda full, g=view.group: calls.append(f"{g} {full}"),
            )  # type: ignore[misc]
        machine.disk.full = True
        sequence = machine.put(one, entry(2, 1))
        await machine.clock.sleep(0.2)
        assert one.full and two.full and calls == ["one True", "two True"]
        assert sequence not in machine.durable["one"]
        machine.disk.full = False
        await machine.until(lambda: sequence in machine.durable["one"])
        assert not one.full and calls[2:] == ["one False", "two False"]
        await machine.restart()
        assert [each.index for each in (await machine.stored("one"))[2]] == [1, 2]

    simulate(scenario)


def test_a_log_begins_once_the_disk_has_room() -> None:
    async def scenario(machine: Machine) -> None:
        machine.disk.full = True
        starting = asyncio.create_task(machine.start())
        await machine.clock.sleep(1)
        assert not starting.done() and not machine.disk.paths()
        machine.disk.full = False
        await starting
        await machine.write(machine.group("one"), entry(1, 1))
        await machine.restart()
        assert [each.index for each in (await machine.stored("one"))[2]] == [1]

    simulate(scenario)


def test_a_log_of_another_format_version_is_refused_and_left_as_it_is() -> None:
    async def scenario(machine: Machine) -> None:
        await machine.start()
        await machine.write(machine.group("g"), entry(1, 1))
        machine.node.kill()
        path = machine.segments()[0]
        segment = parse_path(path)
        assert segment is not None
        from cluster.log import frames

        version, frames.LOG_VERSION = frames.LOG_VERSION, 99  # type: ignore[misc]
        machine.disk.put(path, frames.build([], 0, segment.salt))
        frames.LOG_VERSION = version  # type: ignore[misc]
        before = {each: machine.disk.peek(each) for each in machine.disk.paths()}
        with pytest.raises(OtherVersion, match=f"^{path}: the log has format version 99; this program reads"):
            await machine.start()
        assert {each: machine.disk.peek(each) for each in machine.disk.paths()} == before

    simulate(scenario)
