"""Masters of another cluster in the place of ours: on their machines, at their addresses (nemesis `foreign-cluster`).

Kudu, appendix A: "tservers are heartbeating to the wrong master". Nothing of the nodes that stood there is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cluster.config import NodeConfig
from cluster.wire.messages import Replica
from harness.errors import HarnessError
from harness.protocols import NodeStatus


def foreign_server(node: str) -> str:
    """The server id of the other cluster's master on this machine."""
    return f"{node}.other"


def foreign_cluster(cluster_id: str) -> str:
    """The other cluster's id."""
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
