"""A node of the cluster in containers that loses its disk.

It comes last of what shares the cluster: until the masters take the lost server for dead, and another in its place,
groups have no voter to spare, and whoever asks for one waits.
"""

from __future__ import annotations

import pytest

from tests.docker.shared_cluster import Cluster

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("docker")]


async def test_a_wiped_node_is_another_server(cluster: Cluster) -> None:
    before = await cluster.database.server_id("t3")
    await cluster.whole()
    await cluster.database.kill("t3")
    await cluster.database.wipe("t3")
    await cluster.back("t3")
    server = await cluster.database.server_id("t3")
    assert server is not None and server.startswith("t3.") and server != before
