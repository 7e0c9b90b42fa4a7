"""Who this node is, as its disk says, and whether its peers can be who they say (G9).

Another cluster, or another wire version, is refused by the handshake (`harness.ports.Hello`) on both sides already.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cluster.log.envelope import frame, unframe
from cluster.nodelog import node_logger
from cluster.wire.messages import Fault
from harness.ports import Disk, Peer
from harness.protocols import node_of

IDENTITY_FILE = "identity"

_IDENTITY_KIND = 17


class ForeignDisk(Exception):
    """The disk belongs to another node or cluster: starting on it could vote twice or serve foreign data."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    cluster_id: str
    node_id: str


_decode_identity = msgspec.msgpack.Decoder(Identity).decode


async def check_identity(disk: Disk, cluster_id: str, node_id: str) -> None:
    """Claim a new disk for this node; raises ForeignDisk where it is another's, CorruptLog where it is damaged."""
    own = Identity(cluster_id, node_id)
    if IDENTITY_FILE not in disk.list(IDENTITY_FILE):
        await disk.write_atomic(IDENTITY_FILE, frame(_IDENTITY_KIND, msgspec.msgpack.encode(own)))
        return
    found = _decode_identity(unframe(_IDENTITY_KIND, await disk.read(IDENTITY_FILE)))
    if found != own:
        raise ForeignDisk(f"the disk belongs to node {found.node_id} of cluster {found.cluster_id}")


class PeerCheck:
    """Remembers the highest incarnation heard of each node, and refuses what an earlier one still says.

    A message that was under way when its sender died would otherwise speak for the sender's next life.
    """

    def __init__(self, node_id: str) -> None:
        self._incarnations: dict[str, int] = {}
        self._told: dict[str, str] = {}
        self._log = node_logger(node_id)

    def refusal(self, peer: Peer, claimed: Iterable[str] = (), incarnation: int | None = None) -> str | None:
        """Why nothing is taken from this peer, None if it is welcome.

        `claimed` are the server ids that the message speaks for, `incarnation` what it says of its sender.
        """
        reason = self._reason(peer, claimed, peer.incarnation if incarnation is None else incarnation)
        if reason is not None and self._told.get(peer.node_id) != reason:
            self._told[peer.node_id] = reason
            self._log.warning("refused: %s", reason)
        return reason

    def _reason(self, peer: Peer, claimed: Iterable[str], incarnation: int) -> str | None:
        for server_id in claimed:
            if node_of(server_id) != node_of(peer.node_id):
                return f"{peer.node_id} speaks for {server_id}"
        if incarnation != peer.incarnation:
            return f"{peer.node_id} connects as incarnation {peer.incarnation} and speaks as {incarnation}"
        known = self._incarnations.get(peer.node_id, peer.incarnation)
        if peer.incarnation < known:
            return f"incarnation {peer.incarnation} of {peer.node_id}, and {known} was heard already"
        self._incarnations[peer.node_id] = peer.incarnation
        return None


def stranger(reason: str) -> Fault:
    """The answer to a peer that was refused."""
    return Fault("STRANGER", reason, definite=True)
