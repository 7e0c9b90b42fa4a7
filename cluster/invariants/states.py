"""The states of one group's replicas: equal at equal applied index, and their data at equal write index."""

from __future__ import annotations

from cluster.invariants.facts import KEPT, Positions
from cluster.invariants.findings import Scope
from cluster.ranges.tablet import WrittenState

STATE_DIGEST = "state-digest"
WRITTEN_STATE = "data-at-write-index"

_NOTHING: WrittenState = (-1, 0, 0, 0, 0, 0)


class States:
    """Fed with the digest of each replica's state after each entry, and after each snapshot it was restored from."""

    def __init__(self, scope: Scope, kept: int = KEPT) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._digests = Positions(kept)

    def applied(self, life: int, index: int, digest: int) -> None:
        """Replicas that have applied the same prefix are in the same state, however they came to it.

        What one life says first, or again, is compared with nothing and isn't counted.
        """
        fact = digest or 1
        stands, first = self._digests.claim(index, fact, life)
        if first != life:
            self._checked[STATE_DIGEST] += 1
        if stands != fact:
            self._scope.tell(STATE_DIGEST, f"the states after entry {index} differ", first, life)


class WrittenStates:
    """Fed with each replica's `written_state` when `States` is."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._checked = scope.checked
        self._last: dict[int, WrittenState] = {}
        """By life: what it has told last."""

    def opened(self, life: int) -> None:
        """A replica begins, maybe not the first of this life."""
        self._last[life] = _NOTHING

    def applied(self, life: int, written: WrittenState) -> None:
        """What has not moved the write index has changed no data; nor has a snapshot that stands at the same one (G6).

        As states are equal at equal applied index, all replicas at one write index hold the same data then.
        """
        last = self._last[life]
        self._last[life] = written
        if last[0] == written[0]:
            self._checked[WRITTEN_STATE] += 1
            if last != written:
                self._scope.tell(WRITTEN_STATE, f"the data at write index {written[0]} have changed", life)
