"""Who stands first in a new group: one founder, at once; and nobody else for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from cluster.groups.spec import GroupSpec, first_to_stand, recovered_raft
from cluster.knobs import Knobs
from cluster.log.view import Recovered
from cluster.raft.log import bootstrap
from cluster.raft.types import Member, PreVote, Tick
from cluster.wire.messages import Replica
from harness.ports.sim.world import World

FOUNDERS = tuple(Replica(name, f"{name}:1") for name in ("t1", "t2", "t3"))


def test_founders_agree_who_stands_and_take_turns_over_groups() -> None:
    turns: Counter[str | None] = Counter()
    for number in range(300):
        spec = GroupSpec(f"{Random(number).getrandbits(128):032x}", "t1", FOUNDERS)
        chosen = {first_to_stand(replace(spec, founders=order)) for order in (FOUNDERS, FOUNDERS[::-1])}
        turns[chosen.pop()] += 1
        assert not chosen
    assert set(turns) == {"t1", "t2", "t3"} and min(turns.values()) > 60
    assert first_to_stand(GroupSpec("g", "t1", ())) is None, "who is not a founder waits to be told"


def asked_at_once(node: str, fresh: bool) -> int:
    """How many are asked for their vote by the first look at the clock."""
    spec = GroupSpec("g", node, FOUNDERS, Knobs())
    hard_state, entry = bootstrap(tuple(Member(each.node_id, each.address) for each in FOUNDERS))
    with World(1) as world:
        ports = world.harness_ports(node)
        raft = recovered_raft(spec, Recovered(hard_state, None, (entry,), fresh), ports, liveness=None)  # type: ignore[arg-type]
        ready = raft.step(Tick(), ports.clock.monotonic_ns())
    return sum(isinstance(message, PreVote) for message in ready.send_now)


def test_the_chosen_founder_asks_at_once_and_nobody_who_was_here_before() -> None:
    chosen = first_to_stand(GroupSpec("g", "t1", FOUNDERS))
    for founder in FOUNDERS:
        assert asked_at_once(founder.node_id, fresh=True) == (2 if founder.node_id == chosen else 0)
        assert asked_at_once(founder.node_id, fresh=False) == 0
