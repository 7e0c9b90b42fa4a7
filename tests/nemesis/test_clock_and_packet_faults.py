"""Clocks and links that don't do as they are told are not reported as faults; whose they are, and what is read."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random

import pytest
from fake_cluster import FakeDatabase, FakeEnvironment
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.env.sim import SimEnvironment
from harness.errors import HarnessError
from harness.ops import Op
from harness.protocols import Impairment, ProcessState, Skew
from harness.sim import LinkOptions, World
from nemesis.faults import NetworkPartition, SetClocks
from nemesis.grudges import isolate
from nemesis.kinds.api import Claims, Moment
from nemesis.kinds.clocks import FAMILY, RECENT_NS, ClockFaults, Strobe, reading_of, ways
from nemesis.kinds.disks import DiskTroubles, TroubleDisks
from nemesis.kinds.packets import Impair, Packets
from nemesis.kinds.partition import Cuts
from nemesis.nemesis import FaultNemesis, Patience
from nemesis.observe import DatabaseObserver
from nemesis.view import DEFAULT_CLOCK_OFFSET_NS, View
from nemesis.watch import LONGEST_DOUBT_NS, LONGEST_UNSEEN_NS, Spans

QUICK = Patience(choose_s=0.2, observe_s=0.5, recover_s=0.5, poll_s=0.05, probe_s=0.25)
CLOCK_KINDS = {kind.name: kind for kind in FAMILY.kinds}
STUCK = set(FakeDatabase().states)
NAMES = tuple(FakeDatabase().states)


class Stand:
    def __init__(self) -> None:
        self.environment = FakeEnvironment()
        self.database = FakeDatabase(wall_ns=self.environment.wall_ns, sleep=self.environment.clock.sleep)
        self.nemesis = FaultNemesis(self.database, self.environment, QUICK)

    async def step(self, step: str, fault: str, variant: str, instance: int = 0) -> dict[str, object]:
        value = {"fault": fault, "variant": variant, "instance": instance, "step": step, "seed": 5}
        done = await self.nemesis.invoke(Op("invoke", -1, step, value=value, time=0))
        assert isinstance(done.value, dict)
        return done.value

    def answers_take(self, seconds: float) -> None:
        """Every status is on its way for so long from now on, and tells the clock as it is half-way."""
        answer = type(self.database).status

        async def late(node: str) -> object:
            await self.environment.clock.sleep(seconds / 2)
            status = await answer(self.database, node)
            await self.environment.clock.sleep(seconds / 2)
            return status

        self.database.status = late  # type: ignore[method-assign,assignment]


def carried_out(fault: str, variant: str, meddle: Callable[[Stand], None]) -> tuple[dict[str, object], ...]:
    """Begin a fault on a cluster that was meddled with, and end it."""

    async def scenario() -> tuple[dict[str, object], ...]:
        stand = Stand()
        meddle(stand)
        begun = await stand.step("begin", fault, variant)
        return begun, await stand.step("end", fault, variant)

    return asyncio.run(scenario())


@pytest.mark.parametrize("fault", sorted(CLOCK_KINDS))
def test_a_clock_that_does_not_move_is_not_observed(fault: str) -> None:
    begun, ended = carried_out(fault, "leaseholder-beyond", lambda stand: stand.environment.stuck_clocks.update(STUCK))
    assert begun["observed"] is False
    assert not ended.get("spans")


@pytest.mark.parametrize("variant", ["delay", "loss", "clog", "rate", "duplication", "reorder", "corruption", "jitter"])
def test_links_that_carry_all_the_same_are_not_observed(variant: str) -> None:
    def sturdy(stand: Stand) -> None:
        stand.environment.sturdy = True

    begun, _ = carried_out("packets", variant, sturdy)
    assert begun["observed"] is False
    begun, ended = carried_out("packets", variant, lambda stand: None)
    assert begun["observed"] is ended["observed"] is True


@pytest.mark.parametrize("impairment", [Impairment(clogged=True), Impairment(delay_s=0.2)])
def test_behind_a_cut_nothing_is_known_of_packets(impairment: Impairment) -> None:
    """A clog that had vanished behind a later cut was still in effect; a delay behind one had ended (seed 106)."""

    async def scenario() -> list[bool | None]:
        environment, claims = FakeEnvironment(), Claims()
        observer = DatabaseObserver(FakeDatabase(), environment)
        packets, cuts = Packets(observer, claims), Cuts(observer, claims)
        await packets.carry_out(0, Impair(("t1",), impairment))
        found = [(await packets.look(0)).met]
        await cuts.carry_out(1, NetworkPartition(isolate(NAMES, ("t1",))))
        environment.sturdy = True
        found.append((await packets.look(0)).met)
        await cuts.undo(1)
        return [*found, (await packets.look(0)).met]

    assert asyncio.run(scenario()) == [True, None, False]


def test_chance_seldom_hides_what_packets_meet() -> None:
    """A world that loses 3 % anyway, and a fault that loses 20 %: of 50 datagrams every third look missed it, and one
    miss costs seconds in effect (register, swarm, seed 214)."""
    world, fault = LinkOptions(loss=0.03), Impairment(loss=0.2)

    async def scenario(sim: World) -> list[bool | None]:
        environment = SimEnvironment(sim)
        await environment.setup(FakeDatabase().nodes)
        packets = Packets(DatabaseObserver(FakeDatabase(), environment), Claims())
        await packets.carry_out(0, Impair(("t1",), fault))
        return [(await packets.look(0)).met for _ in range(20)]

    found: list[bool | None] = []
    for seed in range(5):
        with World(seed, network=world) as sim:
            found += sim.run(scenario(sim))
    assert found.count(True) >= 0.97 * len(found)


def test_a_node_that_another_fault_holds_shows_its_clock_if_it_can() -> None:
    """Seed 173 of a swarm: while a node's disk was full, nobody asked it what its clock showed. Of one that is dead
    nothing is known: a clock that was set wrong there alone is not observed."""

    async def scenario(fault: str, variant: str) -> object:
        stand = Stand()
        await stand.step("begin", fault, variant, 1)
        return (await stand.step("begin", "clock-jump", "leaseholder-beyond"))["observed"]

    assert asyncio.run(scenario("full-disk", "leaseholder")) is True
    assert asyncio.run(scenario("kill", "all")) is False


def test_of_a_clock_that_tells_nothing_any_more_nothing_is_claimed_that_it_did_not_tell() -> None:
    """Up to a second more was claimed, for as long as the others still told theirs."""

    async def scenario() -> tuple[int, int]:
        stand = Stand()
        clock = stand.environment.clock
        await stand.step("begin", "clock-jump", "all-within")
        await clock.sleep(2.1)
        stand.database.mute.add("t1")
        muted_ns = clock.now_ns
        await clock.sleep(0.7)
        ending_ns = clock.now_ns
        ended = await stand.step("end", "clock-jump", "all-within")
        ((_, last_ns),) = ended["spans"]  # type: ignore[misc]
        return last_ns + ending_ns, muted_ns

    last_ns, muted_ns = asyncio.run(scenario())
    assert muted_ns - 600 * MS < last_ns <= muted_ns


MS = 1_000_000
OFFSETS = st.integers(-2_000 * MS, 2_000 * MS)
TRIPS = st.integers(0, 2_000 * MS)


@given(true_ns=OFFSETS, due_ns=OFFSETS, trip_ns=TRIPS, at=st.floats(0, 1), slack_ns=st.integers(0, 200 * MS))
def test_what_a_reading_tells_of_a_clock_is_so(
    true_ns: int, due_ns: int, trip_ns: int, at: float, slack_ns: int
) -> None:
    """Whenever in the round trip a node looked at its clock: one never set is not taken for one that was, one
    that is as it should be not for one that isn't, and one that is taken for it is so within twice the error."""
    shown_ns = 10**18 + int(at * trip_ns) + true_ns
    read = reading_of(shown_ns, (10**18, 10**18 + trip_ns), (due_ns, due_ns), 0, slack_ns, otherwise_ns=0)
    assert abs(read.offset_ns - true_ns) <= read.error_ns
    if true_ns == 0:
        assert read.as_due is not True
    if true_ns == due_ns:
        assert read.as_due is not False
        assert (read.as_due is True) or abs(due_ns) <= 2 * read.error_ns
    if read.as_due:
        assert true_ns != 0
        assert abs(true_ns - due_ns) <= 2 * read.error_ns + slack_ns


@given(rate=st.floats(-0.9, 10), trip_ns=TRIPS, at=st.floats(0, 1), since_ns=TRIPS)
def test_a_clock_that_drifts_while_it_is_asked_is_as_due(rate: float, trip_ns: int, at: float, since_ns: int) -> None:
    before_ns, after_ns = int(rate * since_ns), int(rate * (since_ns + trip_ns))
    shown_ns = 10**18 + int(at * trip_ns) + int(rate * (since_ns + at * trip_ns))
    read = reading_of(shown_ns, (10**18, 10**18 + trip_ns), (before_ns, after_ns), 0, 0, otherwise_ns=0)
    assert read.as_due is not False


def test_answers_that_take_too_long_to_tell_are_no_evidence_and_are_asked_again() -> None:
    """A clock a fifth of a second wrong can't be told from a right one by answers that take half a second."""

    async def scenario(slow_s: float, quick_s: float) -> tuple[dict[str, object], dict[str, object]]:
        stand = Stand()
        stand.answers_take(slow_s)
        begun = await stand.step("begin", "clock-jump", "leaseholder-within")
        stand.answers_take(quick_s)
        await stand.environment.clock.sleep(2.0)
        return begun, await stand.step("end", "clock-jump", "leaseholder-within")

    begun, ended = asyncio.run(scenario(1.0, 0.02))
    assert begun["observed"] is False
    assert ended["spans"], "it was told later"
    begun, ended = asyncio.run(scenario(1.0, 1.0))
    assert begun["observed"] is False
    assert not ended["spans"]
    assert ended["observed"] is False, "nor can it be told that it is gone"
    begun, ended = asyncio.run(scenario(0.02, 1.0))
    assert begun["observed"] is True
    assert sum(last - first for first, last in ended["spans"]) < 10 * MS, "nothing is claimed of what was not told"  # type: ignore[attr-defined]


def test_a_walk_of_failpoints_goes_on_where_a_node_can_t_be_told_to_forget_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 519 of a swarm: a node that was just starting did not answer, and the walk was over."""

    async def scenario() -> dict[str, object]:
        stand, left = Stand(), [25]
        disarm = stand.database.disarm

        async def busy(node: str, point: str = "") -> None:
            if left[0]:
                left[0] -= 1
                raise HarnessError("no answer")
            await disarm(node, point)

        monkeypatch.setattr(stand.database, "disarm", busy)
        await stand.step("begin", "failpoint", "delay")
        await stand.environment.clock.sleep(20.0)
        return await stand.step("end", "failpoint", "delay")

    ended = asyncio.run(scenario())
    spans = ended["spans"]
    assert spans[-1][1] - spans[0][0] > 18_500 * MS, "it went on to the end"  # type: ignore[index]
    assert ended["observed"] is True


LOOKS = st.lists(st.tuples(st.integers(1, 7_000 * MS), st.sampled_from((True, False, None))), max_size=20)


@given(LOOKS)
def test_looks_that_can_t_tell_add_nothing_to_a_span(looks: list[tuple[int, bool | None]]) -> None:
    """Every span runs from a look that saw to one that saw, with no miss between, nor doubt that lasts."""
    spans, at_ns, seen = Spans(), 0, []
    for wait_ns, met in looks:
        at_ns += wait_ns
        spans.saw(at_ns, met)
        seen.append((at_ns, met))
    told = {at for at, met in seen if met}
    for first, last in spans.closed():
        inside = [(at, met) for at, met in seen if first <= at <= last]
        assert {first, last} <= told
        assert all(met is not False for _, met in inside)
        sure = [at for at, met in inside if met]
        for before, after in itertools.pairwise(sure):
            doubted = any(met is None and before < at < after for at, met in inside)
            assert not doubted or after - before <= LONGEST_DOUBT_NS
        looks_at = [at for at, _ in inside]
        assert all(after - before <= LONGEST_UNSEEN_NS for before, after in itertools.pairwise(looks_at))
    assert sum(len([at for at in told if first <= at <= last]) for first, last in spans.closed()) == len(told)


async def test_a_clock_that_stays_wrong_is_our_failure() -> None:
    stand = Stand()
    assert (await stand.step("begin", "clock-jump", "leaseholder-beyond"))["observed"] is True
    wrong = dict(stand.environment.skews)
    shown = stand.database.wall_ns
    stand.database.wall_ns = lambda node: shown(node) + (5_000_000_000 if node in wrong else 0)
    ended = await stand.step("end", "clock-jump", "leaseholder-beyond")
    assert (ended["observed"], ended["blame"]) == (False, "harness")


async def test_a_node_that_does_not_answer_any_more_is_the_database_s_failure() -> None:
    stand = Stand()
    begun = await stand.step("begin", "clock-jump", "leaseholder-within")
    stand.database.states[begun["targets"][0]] = ProcessState.PAUSED  # type: ignore[index]
    ended = await stand.step("end", "clock-jump", "leaseholder-within")
    assert (ended["observed"], ended["blame"]) == (False, "database")


@pytest.mark.parametrize("stays", [False, True])
def test_a_heal_that_another_fault_hides_is_looked_at_once_that_is_over(stays: bool) -> None:
    """Of a node that is dead nothing is known: its clock was taken for healed, and stayed wrong in a valid run."""

    async def scenario() -> tuple[dict[str, object], dict[str, object]]:
        stand = Stand()
        hit = (await stand.step("begin", "clock-jump", "leaseholder-beyond"))["targets"]
        await stand.step("begin", "kill", "all", 1)
        if stays:
            shown = stand.database.wall_ns
            stand.database.wall_ns = lambda node: shown(node) + (5_000_000_000 if node in hit else 0)  # type: ignore[operator]
        began_ns = stand.environment.clock.now_ns
        ended = await stand.step("end", "clock-jump", "leaseholder-beyond")
        assert stand.environment.clock.now_ns - began_ns < 400 * MS, "nobody waits for what can't be seen"
        return ended, await stand.step("end", "kill", "all", 1)

    ended, last = asyncio.run(scenario())
    assert (ended["observed"], ended["blame"], ended["others"]) == (False, None, [1])
    assert last["observed"] is True
    [late] = last["late"]  # type: ignore[misc]
    assert (late["fault"], late["instance"], late["observed"]) == ("clock-jump", 0, not stays)
    assert late.get("blame") == ("harness" if stays else None)


async def test_what_was_never_seen_to_be_gone_is_told_by_the_teardown() -> None:
    stand = Stand()
    hit = (await stand.step("begin", "clock-jump", "leaseholder-beyond"))["targets"]
    await stand.step("begin", "kill", "all", 1)
    await stand.step("end", "clock-jump", "leaseholder-beyond")
    shown = stand.database.wall_ns
    stand.database.wall_ns = lambda node: shown(node) + (5_000_000_000 if node in hit else 0)  # type: ignore[operator]
    with pytest.raises(HarnessError, match="healed and not seen to be gone: clock-jump 0"):
        await stand.nemesis.teardown()
    await stand.nemesis.teardown()


def test_a_disk_of_a_node_that_another_fault_took_over_is_looked_at_later() -> None:
    async def scenario() -> list[bool | None]:
        stand, claims = Stand(), Claims()
        disks = DiskTroubles(DatabaseObserver(stand.database, stand.environment), claims)  # type: ignore[arg-type]
        await disks.carry_out(0, TroubleDisks(("t1", "t2"), "full"))
        await disks.undo(0)
        found = [(await disks.look_gone(0)).met]
        claims.take(1, ("t2",), "killed")
        found.append((await disks.look_gone(0)).met)
        claims.release("t2")
        await stand.database.fill_disk("t2")
        return [*found, (await disks.look_gone(0)).met]

    assert asyncio.run(scenario()) == [True, None, False]


async def test_links_that_could_not_be_made_well_are_tried_again() -> None:
    """What failed once was forgotten: the packets of a node were lost for good, and the database was blamed."""
    stand = Stand()
    await stand.step("begin", "packets", "loss")
    impair = stand.environment.impair

    async def fails(links: object) -> None:
        raise HarnessError("no way to the node")

    stand.environment.impair = fails  # type: ignore[method-assign]
    with pytest.raises(HarnessError, match="no way"):
        await stand.step("end", "packets", "loss")
    assert stand.environment.impaired
    stand.environment.impair = impair  # type: ignore[method-assign]
    await stand.nemesis.teardown()
    assert not stand.environment.impaired


async def test_links_that_a_cut_hides_are_not_taken_for_well() -> None:
    stand = Stand()
    await stand.step("begin", "packets", "loss")
    await stand.step("begin", "partition", "halves", 1)
    stand.environment.links_cut = {(a, b) for a, b in await stand.environment.reachability()}
    ended = await stand.step("end", "packets", "loss")
    assert (ended["observed"], ended["blame"]) == (False, None)
    last = await stand.step("end", "partition", "halves", 1)
    assert [late["observed"] for late in last["late"]] == [True]  # type: ignore[attr-defined]


@pytest.mark.parametrize("stuck", [False, True])
def test_a_strobe_is_seen_by_answers_that_take_longer_than_its_periods(stuck: bool) -> None:
    """In containers answers of busy nodes outlasted the periods, and told nothing: half of a strobe was not seen."""

    async def scenario() -> tuple[dict[str, object], dict[str, object]]:
        stand = Stand()
        if stuck:
            stand.environment.stuck_clocks.update(STUCK)
        stand.answers_take(0.7)
        begun = await stand.step("begin", "clock-strobe", "leaseholder-beyond")
        await stand.environment.clock.sleep(4.0)
        return begun, await stand.step("end", "clock-strobe", "leaseholder-beyond")

    begun, ended = asyncio.run(scenario())
    assert begun["observed"] is not stuck, begun["evidence"]
    assert bool(ended["spans"]) is not stuck


@given(true=st.booleans(), wrong_ns=OFFSETS, trip_ns=TRIPS, at=st.floats(0, 1))
def test_which_way_a_strobed_clock_was_is_never_told_wrongly(
    true: bool, wrong_ns: int, trip_ns: int, at: float
) -> None:
    shown_ns = 10**18 + int(at * trip_ns) + (wrong_ns if true else 0)
    read = reading_of(shown_ns, (10**18, 10**18 + trip_ns), (0, 0), 0, 0, None)
    assert true in ways(read, wrong_ns, 0)
    assert len(ways(read, wrong_ns, 0)) == 1 or abs(wrong_ns) <= 2 * read.error_ns


def test_a_clock_that_can_t_be_told_counts_as_it_was_a_moment_ago() -> None:
    """Each of many nodes is slow to answer at times; one that says nothing for longer ends what is claimed."""

    async def scenario() -> list[bool | None]:
        stand, found = Stand(), []
        clocks = ClockFaults(DatabaseObserver(stand.database, stand.environment), Claims())  # type: ignore[arg-type]
        await clocks.carry_out(0, SetClocks((("t1", Skew(10**9)), ("t2", Skew(-(10**9))))))
        found.append((await clocks.look(0)).met)
        stand.database.mute = {"t2"}
        found.append((await clocks.look(0)).met)
        await stand.environment.clock.sleep(RECENT_NS / 1e9 + 0.1)
        found.append((await clocks.look(0)).met)
        stand.database.mute = set()
        stand.environment.stuck_clocks.add("t1")
        return [*found, (await clocks.look(0)).met]

    assert asyncio.run(scenario()) == [True, True, None, False]


async def test_a_clock_belongs_to_one_fault_at_a_time() -> None:
    stand = Stand()
    assert (await stand.step("begin", "clock-jump", "all-within"))["observed"] is True
    skews = dict(stand.environment.skews)
    second = await stand.step("begin", "clock-drift", "all-beyond", instance=1)
    assert second["observed"] is False
    assert "others hold" in str(second["evidence"])
    await stand.step("end", "clock-drift", "all-beyond", instance=1)
    assert stand.environment.skews == skews


def test_what_was_read_of_each_clock_is_told_with_its_times() -> None:
    begun, ended = carried_out("clock-jump", "leaseholder-beyond", lambda stand: None)
    readings = ended["readings"]
    assert isinstance(readings, dict)
    assert list(readings) == begun["targets"]
    offsets = [offset_ns for _, offset_ns in readings[begun["targets"][0]]]  # type: ignore[index]
    assert abs(offsets[0]) > DEFAULT_CLOCK_OFFSET_NS
    assert offsets[-1] == 0
    times = [at_ns for at_ns, _ in readings[begun["targets"][0]]]  # type: ignore[index]
    assert times == sorted(times)
    assert "readings" not in ended["evidence"]  # type: ignore[operator]


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(sorted(CLOCK_KINDS)))
def test_offsets_are_within_the_bound_or_beyond_it_as_their_names_say(seed: int, kind: str) -> None:
    nodes = FakeDatabase().nodes
    for name in ("all-within", "all-beyond", "minority-within", "random-beyond"):
        values = CLOCK_KINDS[kind].settings_with({})
        plan = CLOCK_KINDS[kind].variants[name].choose(Moment(View(nodes, {}), (), Random(seed), values))
        assert isinstance(plan.action, SetClocks | Strobe)
        offsets = [abs(skew.after(4_000_000_000)) for _, skew in plan.action.skews]
        if name.endswith("within"):
            assert min(offsets) > 0 and max(offsets) < DEFAULT_CLOCK_OFFSET_NS / 2, (
                "two of them are no further apart than it"
            )
        else:
            assert min(offsets) > DEFAULT_CLOCK_OFFSET_NS


async def test_what_a_node_sends_belongs_to_one_fault_at_a_time() -> None:
    stand = Stand()
    await stand.step("begin", "packets", "loss")
    before = dict(stand.environment.impaired)
    second = await stand.step("begin", "packets", "loss", instance=1)
    assert second["observed"] is False
    assert stand.environment.impaired == before
    assert all(isinstance(each, Impairment) and each.loss for each in before.values())
