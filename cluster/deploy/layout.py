"""Who the nodes of a reference cluster are: names, roles, zones and ports; the same in every environment.

Beside them the strangers that a nemesis puts in masters' places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from cluster.config import NodeConfig
from cluster.wire.messages import MASTER_PORT, TSERVER_PORT, Replica
from harness.errors import HarnessError
from harness.protocols import Node, NodeStatus

MASTER_ROLE = "master"
TSERVER_ROLE = "tserver"


@dataclass(frozen=True, slots=True)
class Layout:
    """How many masters `m1`… and tablet servers `t1`… there are, each kind spread over zones `z1`… in turn.

    Several data centres have them all: `dc1/z1`, `dc2/z1`, …, in turn as well.
    """

    masters: int = 3
    tservers: int = 5
    zones: int = 1
    data_centres: int = 1

    def nodes(self) -> tuple[Node, ...]:
        """The masters, then the tablet servers."""
        return tuple(
            Node(f"{letter}{number}", role, self._zone(number - 1))
            for letter, role, count in (("m", MASTER_ROLE, self.masters), ("t", TSERVER_ROLE, self.tservers))
            for number in range(1, count + 1)
        )

    def _zone(self, place: int) -> str:
        name = f"z{place // self.data_centres % self.zones + 1}"
        return name if self.data_centres == 1 else f"dc{place % self.data_centres + 1}/{name}"


USUAL: Final = Layout()
"""Of a cluster of which nothing else is said."""


def port_of(node: Node) -> int:
    """Where a node of this role listens."""
    return MASTER_PORT if node.role == MASTER_ROLE else TSERVER_PORT


# ---- strangers in their places ----
# Masters of another cluster in the place of ours: on their machines, at their addresses (nemesis `foreign-cluster`).
# Kudu, appendix A: "tservers are heartbeating to the wrong master". Nothing of the nodes that stood there is touched.


def foreign_server(node: str) -> str:
    """The server id of the other cluster's master on this machine."""
    return f"{node}.other"


def foreign_cluster(cluster_id: str) -> str:
    """What strangers call their cluster, in the place of ours."""
    return f"{cluster_id}-other"


def foreign_configs(ours: Mapping[str, NodeConfig], nodes: Sequence[str], **changes: str) -> dict[str, NodeConfig]:
    """By machine, what masters of one new cluster are started with; with the program, its knobs and flaws, of ours.

    `changes` are made to each configuration. Raises HarnessError unless the machines are of masters.
    """
    if any(ours[node].role != "master" for node in nodes):
        raise HarnessError("only masters' places can be taken by those of another cluster")
    masters = tuple(Replica(foreign_server(node), ours[node].address) for node in nodes)
    return {
        node: msgspec.structs.replace(
            ours[node],
            masters=masters,
            cluster_id=foreign_cluster(ours[node].cluster_id),
            **changes,
        )
        for node in nodes
    }


def is_foreign(status: NodeStatus) -> bool:
    """Whether a stranger answers for the node, which happens with the flaw `delete-orphans` only."""
    return bool(status.details["server_id"] == foreign_server(status.node))


def own_status(node: str, status: NodeStatus) -> NodeStatus | None:
    """What a node said of itself; None where a stranger did. Raises HarnessError where another node of ours answered:
    whatever was looked at then, it was not this one."""
    if status.node != node:
        raise HarnessError(f"{node} was asked for its status, and {status.node} answered")
    return None if is_foreign(status) else status
