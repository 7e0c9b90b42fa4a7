"""Request ids that took effect, with their first answers: what makes a retried change take effect once (R1, M14).

Part of a replicated state machine: changed at apply only, and kept in its snapshots.
"""

from __future__ import annotations

from typing import TypeAlias

from cluster.wire.messages import RequestId

RequestRows: TypeAlias = list[tuple[str, int, list[tuple[int, bytes]]]]
"""A table as plain data: (client, done_below, [(sequence, reply)])."""


class RequestTable:
    """First answers by client and sequence. A client promises that what lies below `done_below` is never retried."""

    def __init__(self) -> None:
        self._replies: dict[str, dict[int, bytes]] = {}
        self._done_below: dict[str, int] = {}

    def lookup(self, request_id: RequestId) -> bytes | None:
        """The first answer of a request that took effect, or None."""
        replies = self._replies.get(request_id.client)
        return None if replies is None else replies.get(request_id.sequence)

    def stale(self, request_id: RequestId) -> bool:
        """Whether the client called this request answered for good: a late double, which must not take effect."""
        return request_id.sequence < self._done_below.get(request_id.client, 0)

    def record(self, request_id: RequestId, reply: bytes) -> None:
        """Remember an answer, and forget what the client says it will not ask again."""
        replies = self._replies.setdefault(request_id.client, {})
        replies[request_id.sequence] = reply
        if request_id.done_below > self._done_below.get(request_id.client, 0):
            self._done_below[request_id.client] = request_id.done_below
            for sequence in [sequence for sequence in replies if sequence < request_id.done_below]:
                del replies[sequence]

    def rows(self) -> RequestRows:
        """The whole table, for a snapshot; the same table gives the same rows whatever its history."""
        return [
            (client, self._done_below.get(client, 0), sorted(self._replies[client].items()))
            for client in sorted(self._replies)
        ]

    @classmethod
    def from_rows(cls, rows: RequestRows) -> RequestTable:
        """The table that `rows` was taken of."""
        table = cls()
        for client, done_below, replies in rows:
            table._replies[client] = dict(replies)
            table._done_below[client] = done_below
        return table
