"""The simulator as an environment: cuts, probes in both directions, and a heal that undoes only its own cuts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.env.sim import SimEnvironment
from harness.ports.machines import CLIENTS
from harness.ports.sim.world import World
from harness.protocols import Environment, Node
from tests.support.few_seeds import few_examples

NODES = tuple(Node(name, "server") for name in ("a", "b", "c"))
PAIRS = [(x.name, y.name) for x in NODES for y in NODES if x is not y]


async def reach_after(
    environment: Environment, links: list[tuple[str, str]], heal: bool
) -> Mapping[tuple[str, str], bool]:
    await environment.setup(NODES)
    for count in range(len(links)):
        await environment.cut(frozenset(links[: count + 1]))
    if heal:
        await environment.heal_network()
    return await environment.reachability()


@few_examples(25)
@given(links=st.lists(st.sampled_from(PAIRS), max_size=8), heal=st.booleans())
def test_probes_arrive_exactly_over_links_that_are_not_cut(links: list[tuple[str, str]], heal: bool) -> None:
    with World(1) as world:
        found = world.run(reach_after(SimEnvironment(world), links, heal))
    assert found == {pair: heal or pair not in links for pair in PAIRS}


@pytest.mark.parametrize("end", ["heal_network", "teardown"])
def test_healing_leaves_the_cuts_of_others_alone(end: str) -> None:
    with World(1) as world:
        environment = SimEnvironment(world)
        world.network.cut("a", "b")

        async def both() -> tuple[Mapping[tuple[str, str], bool], Mapping[tuple[str, str], bool]]:
            cut = await reach_after(environment, [("a", "b"), ("c", "b")], heal=False)
            await getattr(environment, end)()
            await getattr(environment, end)()
            return cut, await environment.reachability()

        cut, healed = world.run(both())
    assert [pair for pair in PAIRS if not cut[pair]] == [("a", "b"), ("c", "b")]
    assert [pair for pair in PAIRS if not healed[pair]] == [("a", "b")]


@pytest.mark.parametrize("link", [(CLIENTS, "a"), ("a", CLIENTS)])
def test_a_cut_of_clients_holds_for_all_of_them_also_for_those_to_come(link: tuple[str, str]) -> None:
    async def scenario(world: World) -> None:
        environment = SimEnvironment(world)
        names = [
            ("c7", "a") if link[0] == CLIENTS else ("a", "c7"),
            ("c12", "a") if link[0] == CLIENTS else ("a", "c12"),
        ]
        assert not world.network.link(*names[0]).cut
        found = await reach_after(environment, [link], heal=False)
        assert [pair for pair in found if not found[pair]] == [link]
        assert [world.network.link(*name).cut for name in names] == [True, True]
        assert not world.network.link("a", "catalog").cut
        await environment.heal_network()
        assert not any(world.network.link(*name).cut for name in names)
        assert all((await environment.reachability()).values())

    with World(1) as world:
        world.run(scenario(world))


def test_a_probe_needs_no_process_on_the_node() -> None:
    """Partitions are observed between machines, whatever became of the programs on them."""
    with World(1) as world:
        found = world.run(reach_after(SimEnvironment(world), [], heal=False))
        assert all(found.values())
        assert world.node("a").incarnation == 0


def test_a_link_that_stays_cut_is_never_open_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        environment = SimEnvironment(world)
        await environment.setup(NODES)
        await environment.cut(frozenset({("a", "b"), ("a", "c")}))
        opened: list[tuple[str, str]] = []
        uncut = world.network.uncut
        monkeypatch.setattr(world.network, "uncut", lambda *link: (opened.append(link), uncut(*link)))
        await environment.cut(frozenset({("a", "b"), ("c", "b")}))
        assert opened == [("a", "c")]
        assert [pair for pair in PAIRS if world.network.is_cut(*pair)] == [("a", "b"), ("c", "b")]

    with World(1) as world:
        world.run(scenario(world))
