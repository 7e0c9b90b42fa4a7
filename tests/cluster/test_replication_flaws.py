"""Each flaw of M9 breaks it in the steps told here, and the same steps are whole without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cluster.config import NodeConfig
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.flaws import FLAWS
from cluster.node import run_node
from cluster.raft.types import ChangeKind
from cluster.wire.identity import IDENTITY_FILE, identity_file, named_cluster
from cluster.wire.messages import WIRE_VERSION, ChangeReplicas, ConfigurationReply, Replica
from harness.cell_address import CellAddress
from harness.errors import DefiniteError
from harness.ports.api import Hello, is_stranger
from harness.ports.sim.world import World
from tests.cluster.table_rig import TableRig

Scenario = Callable[[TableRig], Awaitable[bool]]
"""Whether the mechanism turned out broken."""


def broken(scenario: Scenario, flaws: tuple[str, ...]) -> bool:
    assert set(flaws) <= set(FLAWS)
    with World(1, version=WIRE_VERSION) as world:
        rig = TableRig(world)
        rig.database = SimDatabase(world, Layout(3, 5), flaws=flaws)

        async def main() -> bool:
            await rig.begin()
            await rig.write(5)
            return await asyncio.wait_for(scenario(rig), 120)

        return bool(world.run(main()))


async def reinstall(rig: TableRig, name: str, cluster: str, flaws: tuple[str, ...]) -> None:
    """A master's machine becomes the only master of another cluster, under the address that ours know.

    `cluster` is what it says of its cluster.
    """
    machine, address = rig.world.node(name), rig.database.address(name)
    machine.kill()
    machine.disk.wipe()
    machine.cluster_id = cluster
    machine.disk.put(IDENTITY_FILE, identity_file("other", "x3"))
    config = NodeConfig(
        node_id="x3",
        role="master",
        listen=address,
        masters=(Replica("x3", address),),
        cluster_id="other",
        flaws=flaws,
    )
    machine.start(lambda ports: run_node(ports, config))


async def whole(rig: TableRig) -> bool:
    """Whether every row is there."""
    client = rig.database.admin_client(5.0)
    try:
        return [(await client.read("registers", CellAddress(key))).reply.value for key in range(5)] == list(range(5))
    except DefiniteError:
        return False


@pytest.mark.parametrize("flaws", [(), ("delete-orphans",)])
def test_a_foreign_master_deletes_live_data_only_with_the_flaw(flaws: tuple[str, ...]) -> None:
    """Case 1 of appendix A: it has no record of anything, which says nothing of what is wanted."""

    async def scenario(rig: TableRig) -> bool:
        await reinstall(rig, "m3", named_cluster("other", flaws), flaws)
        await asyncio.sleep(5.0)
        return not await whole(rig)

    assert broken(scenario, flaws) is bool(flaws)


def test_orphans_stay_even_where_nobody_checked_the_cluster() -> None:
    """The rule holds by itself: a foreign master that reached our tablet servers would delete nothing."""

    async def scenario(rig: TableRig) -> bool:
        for name in rig.nodes("tserver"):
            await rig.database.kill(name)
            rig.world.node(name).cluster_id = ""
            rig.world.node(name).start(rig.database._run)
        await reinstall(rig, "m3", "", ())
        await asyncio.sleep(5.0)
        return not await whole(rig)

    assert not broken(scenario, ())


def test_who_names_no_cluster_leaves_it_unchecked() -> None:
    ours, theirs, flawed = (Hello(name, "n", 1, 5) for name in ("ours", "theirs", ""))
    assert is_stranger(ours, theirs) and not is_stranger(ours, flawed) and not is_stranger(flawed, theirs)
    assert is_stranger(flawed, Hello("", "n", 1, 6)), "the wire's version is checked all the same"
    assert named_cluster("ours", ()) == "ours" and named_cluster("ours", ("delete-orphans",)) == ""


@pytest.mark.parametrize("flaws", [(), ("no-config-cas",)])
@pytest.mark.parametrize("kind", [ChangeKind.ADD_LEARNER, ChangeKind.REMOVE])
def test_two_masters_that_saw_one_configuration_both_change_it_only_with_the_flaw(
    kind: ChangeKind, flaws: tuple[str, ...]
) -> None:
    """A deposed leader master and its successor both act on what the same report showed them."""

    async def scenario(rig: TableRig) -> bool:
        leader, group = await rig.leader()
        status = await rig.database.status(leader)
        assert status is not None
        mine = next(each for each in status.groups if each.group == group)
        outside = [name for name in rig.nodes("tserver") if name not in mine.voters]
        others = [name for name in mine.voters if name != leader]
        accepted = 0
        for server in outside if kind is ChangeKind.ADD_LEARNER else others:
            address = rig.database.address(server)
            request = ChangeReplicas(group, kind, server, address, mine.config_term, mine.config_index, 2.0)
            try:
                reply = await rig.database.admin_client(5.0).ask_once(
                    rig.database.address(leader), request, ConfigurationReply
                )
                accepted += isinstance(reply, ConfigurationReply)
            except DefiniteError as error:
                assert "the configuration is that of" in str(error)
        return accepted == 2

    assert broken(scenario, flaws) is bool(flaws)
