"""Who this node is, as its disk says (G1), and whether its peers can be who they say (G9).

Another cluster, or another wire version, is refused by the handshake (`harness.ports.api.Hello`) on both sides already.
"""

from __future__ import annotations

import random
from collections.abc import Collection

import msgspec

from cluster.log.envelope import read_twice, twice
from cluster.nodelog import node_logger
from cluster.wire.messages import ErrorReply
from harness.ports.api import Disk, Peer, node_of

IDENTITY_FILE = "identity"

_IDENTITY_KIND = 17


class ForeignDisk(Exception):
    """The disk belongs to another node or cluster: starting on it could vote twice or serve foreign data."""


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """What a disk says of the server that it belongs to."""

    cluster_id: str
    server_id: str


_decode_identity = msgspec.msgpack.Decoder(Identity).decode


def identity_file(cluster_id: str, server_id: str) -> bytes:
    """The contents of IDENTITY_FILE."""
    return twice(_IDENTITY_KIND, msgspec.msgpack.encode(Identity(cluster_id, server_id)))


def named_cluster(cluster_id: str, flaws: Collection[str]) -> str:
    """What a node's Hello says of its cluster, for the other side to check (G9); with the flaw nothing, unchecked."""
    return "" if "delete-orphans" in flaws else cluster_id


async def format_disk(disk: Disk, cluster_id: str, node_id: str) -> None:
    """Make a new disk that of the server named like its node, once, at installation (G1); a no-op if it is already.

    Raises ForeignDisk where it is another's, CorruptLog where it is damaged, OtherVersion.
    """
    if await read_identity(disk, cluster_id, node_id) is None:
        await disk.write_atomic(IDENTITY_FILE, identity_file(cluster_id, node_id))


async def identify(
    disk: Disk, cluster_id: str, node_id: str, entropy: random.Random, flaws: Collection[str] = ()
) -> str:
    """The server id that this node starts under.

    A disk that nobody formatted makes a new server, for the node may have lost the votes that its old one cast: it
    belongs to no group, and waits to be added to some as a learner. Raises ForeignDisk, CorruptLog, OtherVersion.
    """
    known = await read_identity(disk, cluster_id, node_id)
    if known is not None:
        return known
    server_id = node_id if "wipe-keeps-id" in flaws else f"{node_id}.{entropy.getrandbits(32):08x}"
    await disk.write_atomic(IDENTITY_FILE, identity_file(cluster_id, server_id))
    return server_id


async def read_identity(disk: Disk, cluster_id: str, node_id: str) -> str | None:
    """The server id on a disk, None on a new one; raises ForeignDisk, CorruptLog, OtherVersion."""
    if IDENTITY_FILE not in disk.list(IDENTITY_FILE):
        return None
    found = _decode_identity(await read_twice(disk, IDENTITY_FILE, _IDENTITY_KIND))
    if found.cluster_id != cluster_id or node_of(found.server_id) != node_id:
        whose, ours = f"server {found.server_id} of cluster {found.cluster_id}", f"node {node_id} of {cluster_id}"
        raise ForeignDisk(f"{IDENTITY_FILE}: the disk belongs to {whose}, and not to {ours}")
    return found.server_id


class PeerCheck:
    """Remembers the highest incarnation `heard` of each node, and refuses what an earlier one still says.

    A message that was under way when its sender died would otherwise speak for the sender's next life.
    """

    def __init__(self, node_id: str) -> None:
        self.heard: dict[str, int] = {}
        self._warned: dict[str, str] = {}
        self._log = node_logger(node_id)

    def refusal(self, peer: Peer, claimed: Collection[str] = (), incarnation: int | None = None) -> str | None:
        """Why nothing is taken from this peer, None if it is welcome.

        `claimed` are the server ids that the message speaks for, `incarnation` what it says of its sender.
        """
        if incarnation is None:
            incarnation = peer.incarnation
            if self.heard.get(peer.node_id) == incarnation and set(claimed) == {peer.node_id}:
                return None
        reason = self._reason(peer, claimed, incarnation)
        if reason is not None and self._warned.get(peer.node_id) != reason:
            self._warned[peer.node_id] = reason
            self._log.warning("refused: %s", reason)
        return reason

    def _reason(self, peer: Peer, claimed: Collection[str], incarnation: int) -> str | None:
        for server_id in claimed:
            if server_id != peer.node_id and node_of(server_id) != node_of(peer.node_id):
                return f"{peer.node_id} speaks for {server_id}"
        if incarnation != peer.incarnation:
            return f"{peer.node_id} connects as incarnation {peer.incarnation} and speaks as {incarnation}"
        known = self.heard.get(peer.node_id, peer.incarnation)
        if peer.incarnation < known:
            return f"incarnation {peer.incarnation} of {peer.node_id}, and {known} was heard already"
        self.heard[peer.node_id] = peer.incarnation
        return None


def stranger(reason: str) -> ErrorReply:
    """The answer to a peer that was refused."""
    return ErrorReply("STRANGER", reason, definite=True)
