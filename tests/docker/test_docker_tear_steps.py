"""CEP-45's two stories of torn writes in containers, step by step, with failpoints and cuts (Q2)."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from typing import Any

import pytest

from cluster.quorum.messages import QuorumReply, QuorumRequest
from cluster.wire.messages import WIRE_VERSION
from harness.ports.api import Hello, Unreachable
from harness.ports.real.ports import real_ports
from tests.cluster.quorum.quorum_rig import QuorumRig
from tests.cluster.quorum.tear_stories import torn_by_read_repair, torn_by_short_read_protection
from tests.docker.shared_cluster import Cluster

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]


TRIES, TRY_GAP_S = 20, 0.2


class PatientRig(QuorumRig):
    """Who could not be reached was asked nothing, and is asked again: a busy node is slow to shake hands."""

    async def ask(self, node: str, request: QuorumRequest, timeout_s: float = 6.0) -> QuorumReply:
        for _ in range(TRIES):
            with suppress(Unreachable):
                return await super().ask(node, request, timeout_s)
            await asyncio.sleep(TRY_GAP_S)
        return await super().ask(node, request, timeout_s)


@pytest.mark.parametrize("story", [torn_by_read_repair, torn_by_short_read_protection])
async def test_legacy_replication_tears_a_write(cluster: Cluster, story: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:  # whoever tests writes no files
        ports = real_ports(Hello("", "tester", 1, WIRE_VERSION), folder, seed=1)
        rig = PatientRig(cluster.database, cluster.environment, ports, table=story.__name__)
        await rig.make_table()
        try:
            await story(rig)
        finally:
            await ports.network.close()
            await rig.mend()
            for name in rig.others:
                await rig.database.start(name)
    await cluster.serves()
