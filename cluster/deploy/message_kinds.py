"""What kind of message one is that a node sends: by these names a nemesis asks for one to be held back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from cluster.raft.types import AppendEntries, AppendReply, Message, PreVoteReply, RequestVote, RequestVoteReply
from cluster.wire.clocked import unclocked
from cluster.wire.closing import MARK
from cluster.wire.known_masters import request_itself
from cluster.wire.messages import Heartbeat, PeerEnvelope
from harness.errors import UNDECODABLE

HEARTBEAT, REPORT, SIDE = "heartbeat", "report", "side-transport"
RAFT_KINDS: Mapping[type, str] = MappingProxyType(
    {
        AppendEntries: "entries",
        AppendReply: "answer",
        RequestVote: "vote-request",
        RequestVoteReply: "vote",
        PreVoteReply: "pre-vote",
    }
)
MESSAGE_KINDS: tuple[str, ...] = (HEARTBEAT, REPORT, SIDE, *RAFT_KINDS.values())
"""A tablet server's heartbeat that says nothing of replicas, and one that does; what is closed beside the logs; then
messages of Raft groups."""

_NO_REPORTS = msgspec.msgpack.encode(())
_heartbeat = msgspec.msgpack.Decoder(Heartbeat).decode
_envelope = msgspec.msgpack.Decoder(PeerEnvelope).decode


def kinds_in(message: bytes) -> frozenset[str]:
    """The kinds of `MESSAGE_KINDS` that a message between nodes is of: several where some travel together."""
    body = request_itself(unclocked(message))
    if body.startswith(MARK):
        return frozenset({SIDE})
    try:
        beat = _heartbeat(body)
    except UNDECODABLE:
        return frozenset(_raft_kinds(body))
    return frozenset({REPORT if beat.full or bytes(beat.reports) != _NO_REPORTS else HEARTBEAT})


def _raft_kinds(body: bytes) -> Iterator[str]:
    try:
        envelope = _envelope(body)
    except UNDECODABLE:
        return
    for batch in envelope.groups:
        yield from (kind for kind in map(_raft_kind, batch.messages) if kind is not None)


def _raft_kind(message: Message) -> str | None:
    if isinstance(message, AppendEntries) and not message.entries:
        return None
    return RAFT_KINDS.get(type(message))
