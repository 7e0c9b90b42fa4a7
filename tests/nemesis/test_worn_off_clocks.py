"""How long clocks that had run ahead leave something behind, once they have been set right."""

from __future__ import annotations

import pytest

from harness.ops import Op
from harness.wear import MOST_S, wear_s
from nemesis.nemesis import FaultNemesis
from nemesis.view import DEFAULT_CLOCK_OFFSET_NS
from tests.nemesis.fake_cluster import FakeDatabase, FakeEnvironment


@pytest.mark.parametrize("fault", ["clock-jump", "clock-drift"])
@pytest.mark.parametrize("seed", range(6))
async def test_a_clock_that_was_set_back_has_worn_off_when_what_it_showed_is_within_the_bound(
    fault: str, seed: int
) -> None:
    """Swarm seed 1281: two of a group's three voters ran 27 s ahead together, and others refused them for as long."""
    environment = FakeEnvironment()
    clock = environment.clock
    nemesis = FaultNemesis(FakeDatabase(wall_ns=environment.wall_ns, sleep=clock.sleep), environment)
    value = {"fault": fault, "variant": "minority-beyond", "instance": 0, "step": "begin", "seed": seed}
    await nemesis.invoke(Op("invoke", -1, "begin", value=value, time=0))
    await clock.sleep(3.0)
    offsets_ns = [skew.after(clock.now_ns - since_ns) for skew, since_ns in environment.skews.values()]
    assert nemesis.worn_off_ns == 0 and min(map(abs, offsets_ns)) > DEFAULT_CLOCK_OFFSET_NS
    ahead_ns = max(0, max(offsets_ns) - DEFAULT_CLOCK_OFFSET_NS)
    began_ns = clock.monotonic_ns()
    await nemesis.teardown()
    assert nemesis.worn_off_ns == (began_ns + ahead_ns if ahead_ns else 0)
    assert wear_s(nemesis, began_ns) == ahead_ns / 1e9
    assert wear_s(nemesis, began_ns + ahead_ns) == 0.0


async def test_clocks_within_the_bound_leave_nothing_behind() -> None:
    environment = FakeEnvironment()
    nemesis = FaultNemesis(FakeDatabase(wall_ns=environment.wall_ns, sleep=environment.clock.sleep), environment)
    value = {"fault": "clock-jump", "variant": "all-within", "instance": 0, "step": "begin", "seed": 1}
    await nemesis.invoke(Op("invoke", -1, "begin", value=value, time=0))
    assert max(skew.after(0) for skew, _ in environment.skews.values()) > 0
    await nemesis.teardown()
    assert nemesis.worn_off_ns == 0


def test_who_sets_clocks_ahead_for_hours_has_nobody_wait_for_hours() -> None:
    class Ahead:
        worn_off_ns = 3_600 * 10**9

    assert wear_s(Ahead(), 0) == MOST_S
    assert wear_s(object(), 0) == 0.0
