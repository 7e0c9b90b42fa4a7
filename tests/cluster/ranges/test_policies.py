"""Closed-timestamp policies (R6): what they say, how far a lead is, and which leases are too short for it."""

from __future__ import annotations

import pytest

from cluster.knobs import Knobs
from cluster.ranges.policies import InvalidPolicy, RoundTrips, lag_ns, lead_ns, unmet

MS = 1_000_000
LONG = Knobs(tablet_lease_ms=4_000, support_ms=4_000)


@pytest.mark.parametrize(("policy", "ms"), [("", 3_000), ("lag:0", 0), ("lag:1500", 1_500), ("global", None)])
def test_a_policy_is_a_lag_or_global(policy: str, ms: int | None) -> None:
    assert lag_ns(policy, Knobs()) == (None if ms is None else ms * MS)


@pytest.mark.parametrize("policy", ["lag", "lag:", "lag:-1", "lag:1.5", "lag:3600001", "Global", "lag:99999999999"])
def test_anything_else_is_none(policy: str) -> None:
    with pytest.raises(InvalidPolicy, match="a policy is 'global', or 'lag:MS'"):
        lag_ns(policy, Knobs())


@pytest.mark.parametrize(
    ("trip_ms", "interval_ms", "ms"),
    [(0, 200, 500 + 200 + 25), (60, 200, 500 + 230 + 25), (100, 50, 500 + 270 + 25), (280, 200, 500 + 540 + 25)],
)
def test_the_lead_is_the_offset_and_the_slower_of_both_ways_that_closing_travels(
    trip_ms: int, interval_ms: int, ms: int
) -> None:
    assert lead_ns(Knobs(side_transport_ms=interval_ms), trip_ms * MS) == ms * MS


@pytest.mark.parametrize(
    ("policy", "knobs", "trip_ms", "why"),
    [
        ("lag:0", Knobs(), 0, None),
        ("global", LONG, 280, None),
        ("global", Knobs(), 0, "lease record lasts 600 ms"),
        ("global", Knobs(tablet_lease_ms=4_000), 0, "support lasts 600 ms"),
        ("global", Knobs(tablet_lease_ms=925, support_ms=925), 0, "a lead of 725 ms, a round trip of 0 ms and an"),
        ("global", Knobs(tablet_lease_ms=926, support_ms=926), 0, None),
        ("global", Knobs(side_transport_ms=0, tablet_lease_ms=4_000, support_ms=4_000), 0, "side_transport_ms is 0"),
        ("global", LONG, 2_000, "a lead of 3645 ms, a round trip of 2000 ms"),
    ],
)
def test_leases_have_to_last_for_a_lead_a_round_trip_and_an_interval(
    policy: str, knobs: Knobs, trip_ms: int, why: str | None
) -> None:
    problem = unmet(policy, knobs, trip_ms * MS)
    assert (problem is None) == (why is None) and (why or "") in (problem or "")


def test_the_longest_round_trip_that_is_known_counts_and_who_watches_it_hears_of_steps() -> None:
    trips, heard = RoundTrips(), list[int | None]()
    trips.watch("r", ("a", "b"), lambda: heard.append(trips.longest(("a", "b"))))
    assert trips.longest(("a", "b")) is None and list(trips.watched()) == ["a", "b"]
    for address, took_ms in (("a", 3), ("a", 19), ("b", 95), ("c", 900), ("b", 96), ("b", 75), ("b", 72)):
        trips.measured(address, took_ms * MS)
    assert heard == [20 * MS, 100 * MS] and trips.longest(("a", "b", "nobody")) == 100 * MS
    for _ in range(20):
        trips.measured("b", 45 * MS)
    assert heard[2:] == [80 * MS, 60 * MS], "a step down once it is half of one further"
    trips.unwatch("r")
    trips.measured("b", 900 * MS)
    assert len(heard) == 4
