"""A table's replication design: chosen at its creation, hosted by its strategy, refused where there is none."""

from __future__ import annotations

import msgspec

from cluster.master.records import new_table
from cluster.tserver.strategy import STRATEGIES
from cluster.wire.messages import DESIGNS, Column, Done, DoneReply, ErrorReply
from tests.cluster.tserver.tserver_rig import TserverRig, create_on, simulate
from tests.support.played import played


def test_the_designs_that_masters_admit_are_those_that_tablet_servers_host() -> None:
    assert tuple(STRATEGIES) == DESIGNS
    assert new_table("t", "people", (Column(0, "value", "int64"),), 3).design == "raft"


@played(simulate, seed=1)
async def test_a_tablet_of_a_design_that_cannot_be_hosted_is_refused_and_nothing_is_kept_of_it(
    servers: TserverRig, /
) -> None:
    servers.start()
    await servers.clock.sleep(0.1)
    for design in ("striped", "quorum"):
        reply = await servers.call("t1", msgspec.structs.replace(create_on("t1"), design=design))
        assert isinstance(reply, ErrorReply) and (reply.kind, reply.definite) == ("UNSUPPORTED_DESIGN", True)
        assert design in reply.message
    assert [path for path in servers.world.node("t1").disk.paths() if "tab" in path] == []
    for name in ("t1", "t2", "t3"):
        assert await servers.call(name, create_on(name)) == DoneReply(True)
    await servers.registered()
    assert isinstance(await servers.write(1, 1), Done)
