"""Target selection: whom a process fault hits, given what the nodes say."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.protocols import GroupStatus, Node, NodeStatus
from nemesis.kinds.api import Moment
from nemesis.observe import View
from nemesis.registry import KINDS
from nemesis.targets import SELECTORS, STATUS_SELECTORS, HeldRole, select

MASTERS = tuple(Node(f"m{i}", "master") for i in (1, 2, 3))
TSERVERS = tuple(Node(f"t{i}", "tserver") for i in (1, 2, 3, 4, 5))
NODES = MASTERS + TSERVERS
NAMES = tuple(node.name for node in NODES)


def replica(group: str, role: str, term: int, peers: tuple[str, ...], lease: bool = False) -> GroupStatus:
    return GroupStatus(group, role, term, peers, None, 5, 5, 7, term, lease)


def view_of(groups: dict[str, tuple[tuple[str, ...], str, int]], silent: frozenset[str] = frozenset()) -> View:
    """A view of groups given as name → (voters, leader, term); silent nodes don't answer."""
    statuses = {}
    for node in NODES:
        held = [
            replica(name, "leader" if leader == node.name else "follower", term, voters, leader == node.name)
            for name, (voters, leader, term) in groups.items()
            if node.name in voters
        ]
        if node.name not in silent:
            statuses[node.name] = NodeStatus(node.name, node.role, 1, tuple(held))
    return View(NODES, statuses)


@st.composite
def views(draw: st.DrawFn) -> View:
    masters = ("m1", "m2", "m3")
    groups = {"catalog": (masters, draw(st.sampled_from(masters)), draw(st.integers(1, 9)))}
    for number in range(draw(st.integers(0, 4))):
        voters = tuple(draw(st.permutations([node.name for node in TSERVERS]))[:3])
        groups[f"tablet-{number}"] = (voters, draw(st.sampled_from(voters)), draw(st.integers(1, 9)))
    return view_of(groups, frozenset(draw(st.sets(st.sampled_from(NAMES), max_size=3))))


@settings(deadline=None)
@given(views(), st.sampled_from(SELECTORS), st.sets(st.sampled_from(NAMES)), st.integers(0, 999))
def test_targets_are_free_distinct_nodes(view: View, selector: str, busy: set[str], seed: int) -> None:
    choice = select(selector, view, busy, Random(seed))
    assert len(set(choice.targets)) == len(choice.targets)
    assert set(choice.targets) <= set(NAMES) - busy
    assert choice == select(selector, view, busy, Random(seed))


@settings(deadline=None)
@given(views(), st.sets(st.sampled_from(NAMES), max_size=2), st.integers(0, 999))
def test_quorum_safe_leaves_every_group_a_majority(view: View, busy: set[str], seed: int) -> None:
    targets = select("quorum-safe", view, busy, Random(seed)).targets
    for group in view.groups():
        voters = view.voters(group)
        gone = {name for name in voters if name in targets or name in busy or name not in view.statuses}
        hit = [name for name in voters if name in targets]
        assert not hit or len(gone) <= (len(voters) - 1) // 2


@settings(deadline=None)
@given(views(), st.integers(0, 999))
def test_quorum_safe_sets_have_a_leader_or_none(view: View, seed: int) -> None:
    leaders = {leader.node for leader in view.leaders()}
    with_leader = select("quorum-safe-with-leader", view, (), Random(seed))
    assert not with_leader.targets or with_leader.roles[0].node in leaders & set(with_leader.targets)
    assert not leaders & set(select("quorum-safe-without-leader", view, (), Random(seed)).targets)


@settings(deadline=None)
@given(views(), st.integers(0, 999))
def test_one_too_many_takes_some_group_its_majority(view: View, seed: int) -> None:
    choice = select("one-too-many", view, (), Random(seed))
    if choice.targets:
        voters = view.voters(choice.evidence["unavailable"])
        assert sum(name not in choice.targets for name in voters) < len(voters) // 2 + 1


def test_a_learner_and_a_follower_master_are_what_they_are_hit_for() -> None:
    learner = replica("g", "learner", 3, ("t1", "t2", "t3"))
    statuses = {**view_of({"catalog": (("m1", "m2", "m3"), "m2", 4)}).statuses}
    statuses["t4"] = NodeStatus("t4", "tserver", 1, (learner,))
    view = View(NODES, statuses)
    assert select("learner", view, (), Random(1)).roles == (HeldRole("t4", "learner", "g", 3),)
    assert {select("follower-master", view, (), Random(seed)).targets for seed in range(9)} == {("m1",), ("m3",)}


@settings(deadline=None)
@given(views(), st.integers(0, 999))
def test_leaders_were_leaders_by_their_own_words(view: View, seed: int) -> None:
    for selector, role in (("leader-master", "master"), ("leaseholder", "tserver")):
        choice = select(selector, view, (), Random(seed))
        for name in choice.targets:
            group = choice.evidence["leader"]["group"]
            assert view.replicas(group)[name].role == "leader"
            assert view.statuses[name].role == role


@settings(deadline=None)
@given(views(), st.integers(0, 999))
def test_group_majority_is_one_with_the_leader_in_it(view: View, seed: int) -> None:
    choice = select("group-majority", view, (), Random(seed))
    if choice.targets:
        leader = choice.evidence["leader"]
        voters = view.voters(leader["group"])
        assert leader["node"] in choice.targets
        assert set(choice.targets) <= set(voters)
        assert len(choice.targets) == len(voters) // 2 + 1


@settings(deadline=None)
@given(st.integers(0, 999))
def test_counts_are_per_role(seed: int) -> None:
    view = View(NODES, {})
    roles = {node.name: node.role for node in NODES}
    for selector, masters, tservers in (("minority", 1, 2), ("majority", 2, 3), ("all", 3, 5)):
        hit = [roles[name] for name in select(selector, view, (), Random(seed)).targets]
        assert (hit.count("master"), hit.count("tserver")) == (masters, tservers)


def test_a_deposed_leader_is_no_target() -> None:
    peers = ("t1", "t2", "t3")
    statuses = {
        "t1": NodeStatus("t1", "tserver", 1, (replica("g", "leader", 3, peers, lease=True),)),
        "t2": NodeStatus("t2", "tserver", 1, (replica("g", "leader", 4, peers, lease=True),)),
    }
    assert select("leaseholder", View(NODES, statuses), (), Random(1)).targets == ("t2",)


def test_a_leader_without_a_lease_is_no_leaseholder() -> None:
    peers = ("t1", "t2", "t3")
    view = View(NODES, {"t1": NodeStatus("t1", "tserver", 1, (replica("g", "leader", 3, peers),))})
    choice = select("leaseholder", view, (), Random(1))
    assert choice.targets == ()
    assert "leaseholder" in choice.evidence["reason"]


def test_nobody_knows_a_leader_when_nobody_answers() -> None:
    plans = {
        (kind.name, name): variant.choose(Moment(View(NODES, {}), (), Random(1), kind.settings_with({})))
        for kind in KINDS.values()
        for name, variant in kind.variants.items()
        if name in STATUS_SELECTORS and not name.startswith("quorum-safe")
    }
    assert plans
    for name, plan in plans.items():
        assert plan.action is None, name
        assert "reason" in plan.evidence


@settings(deadline=None)
@given(views(), st.integers(0, 999))
def test_every_variant_plans_a_fault_or_says_why_not(view: View, seed: int) -> None:
    for kind in KINDS.values():
        for variant in kind.variants.values():
            plan = variant.choose(Moment(view, (), Random(seed), kind.settings_with({})))
            assert plan.action is not None or plan.evidence
