"""By which names messages between nodes can be asked for, to be held back."""

from __future__ import annotations

import msgspec
import pytest

from cluster.deploy.message_kinds import MESSAGE_KINDS, kinds_in
from cluster.raft.types import AppendEntries, AppendReply, PreVoteReply, RequestVote, RequestVoteReply
from cluster.wire.closing import MARK
from cluster.wire.known_masters import asking
from cluster.wire.messages import GetStatus, GroupMessages, Heartbeat, PeerEnvelope, encode


def beat(full: bool, reports: tuple[object, ...] = ()) -> bytes:
    return encode(Heartbeat("t1", 1, "t1:1", "", 1, full, msgspec.Raw(msgspec.msgpack.encode(reports))))


def sent(*kinds: type) -> bytes:
    """An envelope with a message of each type, with whatever it takes."""
    made = [msgspec.convert(_filled(kind), kind) for kind in kinds]
    return encode(PeerEnvelope("a", 1, 0, 0, (GroupMessages("g", tuple(made)),)))


def _filled(kind: type) -> list[object]:
    tag = kind.__struct_config__.tag  # type: ignore[attr-defined]
    values: list[object] = [tag]
    for field in msgspec.structs.fields(kind):
        if not field.required:
            break
        values.append({"source": "a", "target": "b", "entries": []}.get(field.name, 0 if field.type is int else False))
    return values


@pytest.mark.parametrize(
    ("message", "kinds"),
    [
        (beat(full=False), {"heartbeat"}),
        (MARK + b"closed", {"side-transport"}),
        (asking(beat(full=False), 7), {"heartbeat"}),
        (beat(full=True), {"report"}),
        (beat(full=False, reports=("one",)), {"report"}),
        (sent(AppendReply, RequestVote), {"answer", "vote-request"}),
        (sent(RequestVoteReply, PreVoteReply), {"vote", "pre-vote"}),
        (sent(AppendEntries), set()),
        (encode(GetStatus()), set()),
        (b"", set()),
        (b"\xc1cut short", set()),
    ],
)
def test_a_message_is_of_the_kinds_that_travel_in_it(message: bytes, kinds: set[str]) -> None:
    assert kinds_in(message) == kinds <= set(MESSAGE_KINDS)
