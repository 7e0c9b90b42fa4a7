"""Crashes at every point, damage and disks that misbehave, against a model that keeps every statement."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster.log.view import Quarantined
from cluster.quorum.deletions import Deletion
from cluster.quorum.rows import PartitionContents, merge_contents, without_deletions
from cluster.quorum.slices import Slice, page_of, visible_rows
from harness.ports.failpoints import SYNC, Arming
from harness.ports.sim.disk import DiskOptions
from harness.ports.sim.world import World
from tests.cluster.quorum.mutations import PARTITIONS, Statements, in_one, statements
from tests.cluster.quorum.sorted.sorted_stores import KNOBS, SMALL, StoreMachine, simulate
from tests.support.played import played


def of(said: list[Statements], partition: bytes) -> PartitionContents:
    return in_one([each for each in said if each.partition == partition])


def explains(said: list[Statements], found: dict[bytes, PartitionContents], bound: int) -> bool:
    """Whether a store that was told this may hold that, deletions below `bound` being forgotten or not."""
    for partition in PARTITIONS:
        expected, contents = of(said, partition), found.get(partition, PartitionContents())
        needed = without_deletions(expected, lambda each: each.timestamp < bound)
        if visible_rows(contents) != visible_rows(expected) or merge_contents([contents, expected]) != expected:
            return False
        if merge_contents([contents, needed]) != contents:
            return False
    return True


class Model:
    """What was acknowledged, and what is on its way and may have happened or not."""

    def __init__(self) -> None:
        self.acknowledged: list[Statements] = []
        self.coming: list[tuple[Statements, asyncio.Task[None]]] = []
        self.bound = 0

    def settle(self) -> None:
        for said, task in list(self.coming):
            if task.done() and task.exception() is None:
                self.acknowledged.append(said)
                self.coming.remove((said, task))

    def match(self, found: dict[bytes, PartitionContents], final: bool) -> None:
        """What was found is what was settled before, and some of what was on its way; if `final` no more will come."""
        unsure = [said for said, _ in self.coming]
        for size in range(len(unsure) + 1):
            for some in itertools.combinations(unsure, size):
                if explains([*self.acknowledged, *some], found, self.bound):
                    if final:
                        self.acknowledged += some
                        self.coming.clear()
                    return
        raise AssertionError("the store holds what it was not told, or lost what it acknowledged")


class SortedStoreWalk(RuleBasedStateMachine):
    """Writes, flushes, compactions, purges and reads beside crashes, full and slow disks."""

    @initialize(seed=st.integers(0, 1 << 16), tear=st.sampled_from(["prefix", "pages", "stale"]), purges=st.booleans())
    def begin(self, seed: int, tear: str, purges: bool) -> None:
        options = replace(DiskOptions(), tear=tear, tear_tail=0.4, lose_tail=0.3)
        self.world = World(seed, disk=options)
        self.world.__enter__()
        self.model, self.purges, self.clock_ms = Model(), purges, 1
        self.machine = StoreMachine(self.world, SMALL, self.purgeable, KNOBS)
        self.world.run(self.machine.start())

    def purgeable(self, partition: bytes, deletion: Deletion) -> bool:
        return deletion.timestamp < self.model.bound

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.machine.disk.full = False
            self.world.run(self.recover())
            self.world.run(self.everything())
            assert self.machine.failures == [] and self.machine.quarantined == []
            self.world.__exit__(None, None, None)

    @rule(said=statements(st.integers(1, 9), PARTITIONS), wait=st.booleans())
    def write(self, said: Statements, wait: bool) -> None:
        said.timestamp += self.model.bound
        if not said.mutation().contents.empty and len(self.model.coming) < 5:
            self.world.run(self.write_one(said, wait))

    async def write_one(self, said: Statements, wait: bool) -> None:
        await self.recover()
        task = self.machine.begin(self.machine.store.apply(said.mutation()))
        self.model.coming.append((said, task))
        while wait and not task.done() and self.machine.alive and not self.machine.disk.full:
            await self.machine.clock.sleep(0.001)
        if task.done() and task.exception() is not None:
            self.model.coming.remove((said, task))  # refused: it never happened
        self.model.settle()

    @rule(seconds=st.sampled_from([0.0, 0.0007, 0.003, 0.02]))
    def time_passes(self, seconds: float) -> None:
        self.world.run(self.machine.clock.sleep(seconds))

    @rule()
    def flush(self) -> None:
        if not self.machine.disk.full:
            self.world.run(self.doing("flush"))

    @rule()
    def compact(self) -> None:
        if not self.machine.disk.full:
            self.world.run(self.doing("compact_all"))

    async def doing(self, name: str) -> None:
        await self.recover()
        await self.machine.do(getattr(self.machine.store, name)())

    @precondition(lambda self: self.purges)
    @rule()
    def forget(self) -> None:
        """From now on nothing is written at or below what was written; what is on its way still arrives."""
        said = [*self.model.acknowledged, *(each for each, _ in self.model.coming)]
        self.model.bound = max([self.model.bound, *(each.timestamp for each in said)])

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:
        self.machine.disk.full = full

    @rule(extra_ms=st.sampled_from([0, 50]))
    def slow(self, extra_ms: int) -> None:
        self.machine.disk.extra_sync_ns = extra_ms * 1_000_000

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.01]))
    def kill(self, seconds: float) -> None:
        self.world.run(self.machine.clock.sleep(seconds))
        self.machine.kill()

    @rule(skip=st.integers(0, 12))
    def crash_at_a_durable_step(self, skip: int) -> None:
        if self.machine.alive:
            self.machine.node.failpoints.arm(Arming(SYNC, skip=skip))

    @rule()
    def read(self) -> None:
        self.world.run(self.everything())

    @rule(partition=st.sampled_from(PARTITIONS), limit=st.integers(1, 3))
    def page(self, partition: bytes, limit: int) -> None:
        self.world.run(self.one_page(Slice(partition, limit=limit)))

    async def one_page(self, asked: Slice) -> None:
        """A page is what the whole would give; both are read in one go, so that nothing comes between."""
        await self.recover()
        if self.machine.disk.full:
            return
        for _ in range(3):
            pages = [
                self.machine.begin(self.machine.store.read(asked)),
                self.machine.begin(self.machine.store.read(Slice(asked.partition))),
            ]
            while not all(task.done() for task in pages) and self.machine.alive:
                await self.machine.clock.sleep(0.0001)
            if all(task.done() for task in pages):
                assert pages[0].result() == page_of(pages[1].result().contents, asked)

    @invariant()
    def nothing_failed(self) -> None:
        if hasattr(self, "machine"):
            assert self.machine.failures == [] and self.machine.quarantined == []

    async def recover(self) -> None:
        """Start again if the process died; what is found then decides what happened to the rest."""
        self.model.settle()
        while not self.machine.alive:
            self.machine.disk.full = False
            await self.machine.start()
            if self.machine.alive:
                found = await self.machine.do(self.machine.scanned())
                if found is not None:
                    self.model.match(found, final=True)

    async def everything(self) -> None:
        await self.recover()
        self.model.settle()
        found = await self.machine.do(self.machine.scanned())
        if found is not None:
            self.model.match(found, final=False)


TestSortedStoreWalk = SortedStoreWalk.TestCase
TestSortedStoreWalk.settings = settings(stateful_step_count=40, deadline=None)


def said_at(number: int) -> Statements:
    """A write for the scripted runs."""
    chance = random.Random(number)
    said = Statements(chance.choice(PARTITIONS), number + 1)
    from tests.cluster.quorum.mutations import COLUMNS, KEYS

    said.writes = [(key, dict.fromkeys(COLUMNS, number), True) for key in chance.sample(KEYS, 3)]
    if number % 5 == 0:
        said.rows = [chance.choice(KEYS)]
    return said


def crashes_at(step: int, tear: str) -> bool:
    """A scripted run whose process dies at its n-th durable step, and goes on; whether there was such a step."""
    died: list[bool] = []

    async def scenario(machine: StoreMachine) -> None:
        model = Model()
        await machine.start()
        machine.node.failpoints.arm(Arming(SYNC, skip=step))
        for number in range(24):
            said = said_at(number)
            task = machine.begin(machine.store.apply(said.mutation()))
            model.coming.append((said, task))
            while not task.done() and machine.alive:
                await machine.clock.sleep(0.0005)
            if number % 8 == 7 and machine.alive:
                await machine.do(machine.store.flush())
                await machine.do(machine.store.compact_all()) if machine.alive else None
            model.settle()
            if not machine.alive:
                died.append(True)
                await machine.start()
                model.match(await machine.scanned(), final=True)
        await machine.restart()
        model.match(await machine.scanned(), final=True)
        assert len(model.acknowledged) >= 23 and machine.failures == [] and machine.quarantined == []

    simulate(scenario, seed=step, tear=tear, tear_tail=0.5, lose_tail=0.3)
    return bool(died)


def test_a_crash_at_each_durable_step_loses_nothing() -> None:
    step = 0
    while crashes_at(step, ("pages", "stale")[step % 2]):
        step += 1
    assert step > 40


async def written(machine: StoreMachine) -> dict[bytes, PartitionContents]:
    await machine.start()
    for number in range(30):
        await machine.store.apply(said_at(number).mutation())
    await machine.store.flush()
    return await machine.scanned()


@pytest.mark.parametrize("seed", range(24))
def test_a_flipped_bit_gives_right_rows_or_quarantine_never_wrong_rows(seed: int) -> None:
    async def scenario(machine: StoreMachine) -> None:
        expected = await written(machine)
        await machine.clock.sleep(0.5)  # nothing is obsolete or under way
        chance = random.Random(seed)
        path = chance.choice(machine.files())
        machine.disk.flip_bit(path, chance.randrange(8 * len(machine.disk.peek(path))))
        try:
            if seed % 2:
                await machine.restart()
            assert await machine.scanned() == expected
            # A manifest has two copies; a footer that was read before is in memory.
            assert path.endswith("manifest") or seed % 2 == 0
        except Quarantined:
            assert not path.endswith("manifest")
            await machine.clock.sleep(0.05)
            with pytest.raises(Quarantined):
                await machine.restart()
        assert machine.failures == []

    simulate(scenario, seed=seed)


@pytest.mark.parametrize("harm", ["shorten", "remove", "manifest", "manifest-twice"])
@played(simulate)
async def test_files_that_are_cut_or_missing_quarantine_the_replica(machine: StoreMachine, /, harm: str) -> None:
    await written(machine)
    await machine.clock.sleep(0.5)
    path = machine.store.files[0].ref.path
    manifest = next(each for each in machine.files() if each.endswith("manifest"))
    if harm == "shorten":
        machine.disk.shorten(path, len(machine.disk.peek(path)) - 3)
    elif harm == "remove":
        machine.disk.drop(path)
    elif harm == "manifest":
        machine.disk.drop(manifest)
    else:
        half = len(machine.disk.peek(manifest)) // 2
        for bit in (100, 8 * half + 100):
            machine.disk.flip_bit(manifest, bit)
    with pytest.raises(Quarantined):
        await machine.restart()
    await machine.clock.sleep(0.05)
    with pytest.raises(Quarantined):
        await machine.restart()


@played(simulate)
async def test_damage_that_a_compaction_finds_quarantines_the_replica(machine: StoreMachine, /) -> None:
    await written(machine)
    path = machine.store.files[-1].ref.path
    machine.disk.flip_bit(path, 300)
    with pytest.raises(Quarantined):
        await machine.store.compact_all()
    assert len(machine.quarantined) == 1
    assert path in machine.files()  # kept for whoever wants to look at it
    with pytest.raises(Quarantined):
        await machine.contents(PARTITIONS[0])
