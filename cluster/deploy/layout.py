"""Who the nodes of a reference cluster are: names, roles, zones and ports; the same in every environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster.wire.messages import MASTER_PORT, TSERVER_PORT
from harness.protocols import Node

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
