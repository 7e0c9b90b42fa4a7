"""Request ids that took effect, with their first answers: what makes a retried change take effect once (R1, M14).

Part of a replicated state machine: changed at apply only, and kept in its snapshots.
"""

from __future__ import annotations

from typing import TypeAlias

from cluster.store.digest import MASK, fingerprint
from cluster.wire.messages import RequestId

RequestRows: TypeAlias = list[tuple[str, int, list[tuple[int, bytes]]]]
"""A table as plain data: (client, done_below, [(sequence, reply)])."""


class RequestTable:
    """First answers by client and sequence. A client promises that what lies below `done_below` is never retried.

    `digest` is of the rows (G10).
    """

    def __init__(self) -> None:
        self._replies: dict[str, dict[int, bytes]] = {}
        self._done_below: dict[str, int] = {}
        self.digest = 0

    def lookup(self, request_id: RequestId) -> bytes | None:
        """The first answer of a request that took effect, or None."""
        replies = self._replies.get(request_id.client)
        return None if replies is None else replies.get(request_id.sequence)

    def stale(self, request_id: RequestId) -> bool:
        """Whether the client called this request answered for good: a late double, which must not take effect."""
        return request_id.sequence < self._done_below.get(request_id.client, 0)

    def record(self, request_id: RequestId, reply: bytes) -> None:
        """Remember an answer, and forget what the client says it will not ask again."""
        client, done_below = request_id.client, request_id.done_below
        replies = self._replies.setdefault(client, {})
        replies[request_id.sequence] = reply
        digest = self.digest + fingerprint((client, request_id.sequence, reply))
        before = self._done_below.get(client, 0)
        if done_below > before:
            self._done_below[client] = done_below
            digest += fingerprint((client, done_below)) - fingerprint((client, before))
            for sequence in [sequence for sequence in replies if sequence < done_below]:
                digest -= fingerprint((client, sequence, replies.pop(sequence)))
        self.digest = digest & MASK

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
            told = sum(fingerprint((client, sequence, reply)) for sequence, reply in replies)
            bound = fingerprint((client, done_below)) - fingerprint((client, 0))
            table.digest = table.digest + told + bound & MASK
        return table
