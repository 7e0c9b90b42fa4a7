"""The states of one group's replicas: equal at equal applied index."""

from __future__ import annotations

from cluster.invariants.facts import KEPT, Positions
from cluster.invariants.findings import Scope

STATE_DIGEST = "state-digest"


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
