"""Who the nodes of a reference cluster are: names, roles, zones and ports; the same in every environment."""

from __future__ import annotations

from cluster.wire.messages import MASTER_PORT, TSERVER_PORT
from harness.protocols import Node

MASTER_ROLE = "master"
TSERVER_ROLE = "tserver"


def cluster_nodes(masters: int, tservers: int, zones: int = 1) -> tuple[Node, ...]:
    """Masters `m1`…, tablet servers `t1`…, each kind spread over zones `z1`… in turn."""
    return tuple(
        Node(f"{letter}{number}", role, f"z{(number - 1) % zones + 1}")
        for letter, role, count in (("m", MASTER_ROLE, masters), ("t", TSERVER_ROLE, tservers))
        for number in range(1, count + 1)
    )


def port_of(node: Node) -> int:
    """Where a node of this role listens."""
    return MASTER_PORT if node.role == MASTER_ROLE else TSERVER_PORT
