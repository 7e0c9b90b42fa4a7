"""Which replicas a read asks first: the nearest that are enough for its level (Q1); pure."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.quorum.replica_sets import Endpoint
from harness.levels import Demand


def contacts(ordered: Sequence[Endpoint], wanted: Demand) -> tuple[list[Endpoint], list[Endpoint]]:
    """The first endpoints that together meet the demand, in order, and those that are left, to stand in for them.

    Where the demand names data centres, each gives what is asked of it; what is asked anywhere comes from the first.
    """
    left = dict(wanted.in_each)
    chosen: list[Endpoint] = []
    for endpoint in ordered:
        if left.get(endpoint.data_centre, 0) > 0:
            left[endpoint.data_centre] -= 1
            chosen.append(endpoint)
    others = [endpoint for endpoint in ordered if endpoint not in chosen]
    more = wanted.anywhere
    return [*chosen, *others[:more]], others[more:]


def stand_in(failed: Endpoint, spares: Sequence[Endpoint], wanted: Demand) -> Endpoint | None:
    """Who may be asked in the place of one that failed: where the demand names data centres, one of the same."""
    if failed.data_centre in wanted.in_each:
        return next((spare for spare in spares if spare.data_centre == failed.data_centre), None)
    return next(iter(spares), None)
