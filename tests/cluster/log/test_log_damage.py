"""Damage of what was acknowledged: the group that it harmed is quarantined for good, the others are served (G7)."""

from __future__ import annotations

import pytest

from cluster.log.node import ASIDE_PATH
from cluster.log.view import Quarantined
from cluster.raft.types import HardState
from harness.failpoints import Arming
from tests.cluster.log.node_logs import Machine, entry, simulate, snapshot


async def three_groups(machine: Machine) -> None:
    """Groups a, b and c, each with entries of their own frames, in this order."""
    await machine.start()
    for name in "abc":
        machine.group(name)
    await machine.clock.sleep(0.3)
    for name in "abc":
        view = machine.group(name)
        await machine.write(view, entry(1, 1, name.encode() * 200), hard=HardState(1, name, 0))


def place_of(machine: Machine, name: str) -> tuple[str, int]:
    """Where the entry of a group stands: its segment and offset."""
    for path in machine.segments():
        offset = machine.disk.peek(path).find(name.encode() * 200)
        if offset >= 0:
            return path, offset
    raise AssertionError(f"no entry of {name}")


async def damaged_in(machine: Machine, name: str, offset: int = -10, size: int = 500) -> str:
    """The segment of three groups of which so many bytes are damaged, this far from a group's entry; nobody runs."""
    await three_groups(machine)
    await machine.clock.sleep(0.3)
    path, start = place_of(machine, name)
    machine.node.kill()
    machine.damage(path, start + offset, size)
    return path


async def served(machine: Machine, *names: str) -> None:
    for name in names:
        found = await machine.stored(name)
        assert found == (HardState(1, name, 0), None, (entry(1, 1, name.encode() * 200),)), name


def test_a_flipped_bit_anywhere_in_the_log_harms_nobody() -> None:
    async def scenario(machine: Machine) -> None:
        await three_groups(machine)
        machine.node.kill()
        path = machine.segments()[-1]
        whole = machine.disk.peek(path)
        for bit in range(0, len(whole) * 8, 97):
            machine.disk.put(path, whole)
            machine.disk.flip_bit(path, bit)
            await machine.start()
            await served(machine, "a", "b", "c")
            machine.node.kill()
            for leftover in machine.segments():
                machine.disk.drop(leftover)

    simulate(scenario)


@pytest.mark.parametrize(("hit", "others"), [("b", "ac"), ("c", "ab")], ids=["in the middle", "the last frame"])
def test_wide_damage_harms_the_group_that_it_hit_and_no_other(hit: str, others: str) -> None:
    """That of the last frame is damage too, once the log was idle."""

    async def scenario(machine: Machine) -> None:
        await damaged_in(machine, hit)
        await machine.start()
        with pytest.raises(Quarantined, match=f"{hit}: "):
            await machine.recovered(hit)
        await served(machine, *others)
        assert [each for each in machine.disk.paths() if each.startswith(ASIDE_PATH)]

    simulate(scenario)


@pytest.mark.parametrize(("size", "words"), [(100, "was damaged, and is repaired"), (500, "a copy of it is aside/")])
def test_a_damaged_segment_is_named_once_and_so_is_its_copy(
    size: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(machine: Machine) -> None:
        path = await damaged_in(machine, "b", 0, size)
        damaged = machine.disk.peek(path)
        await machine.start()
        (line,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert line.startswith(path) and words in line
        if size > 100:
            assert machine.disk.peek(line.split()[-1]) == damaged

    simulate(scenario)


def test_a_quarantine_outlives_restarts_and_the_damaged_segment_goes() -> None:
    async def scenario(machine: Machine) -> None:
        path = await damaged_in(machine, "b")
        for _ in range(3):
            await machine.start()
            await served(machine, "a", "c")
            await machine.clock.sleep(0.5)
            machine.node.kill()
        assert path not in machine.segments()
        await machine.start()
        with pytest.raises(Quarantined, match="damaged"):
            await machine.recovered("b")

    simulate(scenario)


def test_a_destroyed_quarantined_group_begins_afresh() -> None:
    async def scenario(machine: Machine) -> None:
        await damaged_in(machine, "b")
        await machine.start()
        await machine.log.destroy("b")
        assert (await machine.recovered("b")).fresh
        await machine.write(machine.group("b"), entry(1, 9))
        await machine.restart()
        assert await machine.stored("b") == (HardState(), None, (entry(1, 9),))

    simulate(scenario)


def test_a_hole_of_which_nothing_is_known_quarantines_all_that_nothing_proves_whole() -> None:
    """Two frames are gone, headers and all, and the log was cut off before it could say more."""

    async def scenario(machine: Machine) -> None:
        await three_groups(machine)
        path, start = place_of(machine, "b")
        machine.node.kill()
        _, end = place_of(machine, "c")
        machine.damage(path, start - 90, end - start)
        machine.groups.append("unheard")
        await machine.start()
        found = []
        for name in ("a", "b", "c", "unheard"):
            try:
                await machine.recovered(name)
            except Quarantined:
                found.append(name)
        assert found == ["a", "b", "unheard"]

    simulate(scenario)


def test_a_missing_segment_is_a_hole() -> None:
    async def scenario(machine: Machine) -> None:
        await three_groups(machine)
        index = 1
        while len(machine.segments()) < 3:
            index += 1
            await machine.write(machine.group("a"), entry(index, 1, bytes(300)))
        machine.node.kill()
        machine.disk.drop(machine.segments()[1])
        await machine.start()
        with pytest.raises(Quarantined):
            await machine.recovered("a")
        await served(machine, "b", "c")

    simulate(scenario)


@pytest.mark.parametrize("how", ["flipped", "missing", "cut"])
def test_a_damaged_snapshot_quarantines_its_group(how: str) -> None:
    async def scenario(machine: Machine) -> None:
        await three_groups(machine)
        await machine.save(machine.group("b"), snapshot(1, 1))
        machine.node.kill()
        path = next(each for each in machine.disk.paths() if each.startswith("snapshots/b/"))
        if how == "flipped":
            machine.disk.flip_bit(path, 8 * len(machine.disk.peek(path)) // 2)
        elif how == "cut":
            machine.disk.cut_tail(path, len(machine.disk.peek(path)) - 20)
        else:
            machine.disk.drop(path)
        await machine.start()
        with pytest.raises(Quarantined, match="snapshots/b/"):
            await machine.stored("b")
        await served(machine, "a", "c")
        await machine.clock.sleep(0.1)
        await machine.restart()
        with pytest.raises(Quarantined, match="snapshots/b/"):
            await machine.recovered("b")

    simulate(scenario)


def test_an_unfinished_snapshot_is_of_no_account_and_is_removed() -> None:
    async def scenario(machine: Machine) -> None:
        await three_groups(machine)
        machine.node.failpoints.arm(Arming("tablet.after_snapshot"))
        machine.group("b").save_snapshot(snapshot(1, 1).meta, iter((b"x", b"y")), lambda _: None)
        await machine.until(lambda: machine.node.state.value == "dead")
        await machine.start()
        await served(machine, "a", "b", "c")
        assert not [path for path in machine.disk.paths() if path.startswith("snapshots/")]

    simulate(scenario)
