"""What every replica of a logged tablet has below its low bound, and deletions that are forgotten there (Q6 to Q8)."""

from __future__ import annotations

from collections.abc import Collection

from cluster.invariants.findings import Findings
from cluster.quorum.ids import LOWEST_TIME, MutationId

RECONCILED = "reconciled-everywhere"
PURGED = "purged-below-bound"


class _Tablet:
    """Who has had each mutation durably. What a life has told binds later ones of its node."""

    __slots__ = ("everywhere", "highest", "partly")

    def __init__(self) -> None:
        self.everywhere: dict[MutationId, None] = {}
        self.partly: dict[MutationId, dict[str, None]] = {}
        self.highest = LOWEST_TIME


class Reconciled:
    """Watches all logged tablets; replicas are nodes by their names."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._tablets: dict[str, _Tablet] = {}

    def stored(self, life: int, group: str, replicas: Collection[str], each: MutationId) -> None:
        """A mutation is durable at a replica; `replicas` are all that there are."""
        tablet = self._tablets.setdefault(group, _Tablet())
        if each in tablet.everywhere:
            return
        self._findings.checked[RECONCILED] += 1
        having = tablet.partly.setdefault(each, {})
        having[self._findings.lives.node(life)] = None
        if all(name in having for name in replicas):
            tablet.everywhere[each] = None
            del tablet.partly[each]
        elif each.time < tablet.highest:
            message = f"a mutation of time {each.time} came to be below the low bound {tablet.highest}"
            self._findings.tell(RECONCILED, message, (life,), group)

    def bound_raised(self, life: int, group: str, bound: int) -> None:
        """A low bound is durable at a replica: all have everything below it."""
        tablet = self._tablets.setdefault(group, _Tablet())
        self._findings.checked[RECONCILED] += 1
        if bound <= tablet.highest:
            return
        tablet.highest = bound
        lacking = [each for each in tablet.partly if each.time < bound]
        if lacking:
            having = ", ".join(tablet.partly[lacking[0]])
            message = f"the low bound {bound} is above {len(lacking)} mutations that not all have, one only {having}"
            self._findings.tell(RECONCILED, message, (life,), group)

    def purged(self, life: int, group: str, timestamp: int, low_bound: int) -> None:
        """A replica forgets a deletion, its low bound being this."""
        self._findings.checked[PURGED] += 1
        if timestamp >= low_bound:
            message = f"a deletion of time {timestamp} is forgotten above the low bound {low_bound}"
            self._findings.tell(PURGED, message, (life,), group)
