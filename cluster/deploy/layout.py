"""Who the nodes of a reference cluster are: names, roles, zones and ports; the same in every environment."""

from __future__ import annotations

from cluster.wire.messages import MASTER_PORT, TSERVER_PORT
from harness.protocols import Node

MASTER_ROLE = "master"
TSERVER_ROLE = "tserver"


def cluster_nodes(masters: int, tservers: int, zones: int = 1, data_centres: int = 1) -> tuple[Node, ...]:
    """Masters `m1`…, tablet servers `t1`…, each kind spread over zones `z1`… in turn.

    Several data centres have them all: `dc1/z1`, `dc2/z1`, …, in turn as well.
    """

    def zone(place: int) -> str:
        name = f"z{place // data_centres % zones + 1}"
        return name if data_centres == 1 else f"dc{place % data_centres + 1}/{name}"

    return tuple(
        Node(f"{letter}{number}", role, zone(number - 1))
        for letter, role, count in (("m", MASTER_ROLE, masters), ("t", TSERVER_ROLE, tservers))
        for number in range(1, count + 1)
    )


def port_of(node: Node) -> int:
    """Where a node of this role listens."""
    return MASTER_PORT if node.role == MASTER_ROLE else TSERVER_PORT
