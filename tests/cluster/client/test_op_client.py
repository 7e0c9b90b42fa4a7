"""What a client of the workload tells the harness of who answered it."""

from __future__ import annotations

import pytest

from cluster.client.client import ClusterClient, ServedRead
from cluster.client.rows import ServedChange
from cluster.deploy.adapter import ClusterOpClient
from cluster.wire.messages import Done, ReadReply
from harness.history.ops import Mop, Op, cas, read, write
from harness.ports.sim.world import World


@pytest.mark.parametrize("mop", [read(1), write(1, 5), cas(1, None, 5)], ids=["read", "write", "cas"])
def test_a_server_that_began_anew_on_a_node_has_the_nodes_name(mop: Mop, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a wipe the history named servers, whom no list of nodes has: faults there hit nobody, as it seemed."""

    async def reads(*_: object, **__: object) -> ServedRead:
        return ServedRead(ReadReply(5, 7), "t4.7041eb74")

    async def changes(*_: object) -> ServedChange:
        return ServedChange(Done(True, None, 7), "t4.7041eb74", 6)

    for name, answer in (("read", reads), ("write", changes), ("compare_and_set", changes)):
        monkeypatch.setattr(ClusterClient, name, answer)
    with World(1) as world:
        client = ClusterOpClient(world.harness_ports("client"), ("m1",), 1.0, lambda node: node)
        done = world.run(client.invoke(Op("invoke", 0, mop.f, (mop,))))
    asked = None if mop.f == "r" else 6
    assert (done.type, done.node, done.requested_ts, done.served_ts) == ("ok", "t4", asked, 7)
