"""Whom the client asks next (M14); pure."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.client.attempt import Route


def test_it_sticks_with_the_first_until_that_fails() -> None:
    route = Route(("a", "b", "c"), "b")
    route.succeeded()
    assert route.current == "b"
    route.failed()
    assert route.current == "c"


def test_an_unknown_first_target_is_ignored() -> None:
    assert Route(("a", "b"), "z").current == "a"


def test_a_hint_is_followed_at_once() -> None:
    route = Route(("a", "b", "c"))
    assert route.refused("c")
    assert route.current == "c"


def test_a_hint_to_the_target_that_failed_is_not_followed() -> None:
    route = Route(("a", "b", "c"))
    route.failed()
    assert not route.refused("a"), "b still believes in a, which did not answer"
    assert route.current == "c"


def test_two_that_point_at_each_other_do_not_keep_it_busy() -> None:
    route = Route(("a", "b", "c"))
    followed = [route.refused("b" if route.current == "a" else "a") for _ in range(6)]
    assert followed.count(True) <= 2


@settings(deadline=None)
@given(st.integers(1, 5), st.data())
def test_every_target_is_asked_within_one_round_of_failures(count: int, data: st.DataObject) -> None:
    targets = tuple(f"n{number}" for number in range(count))
    route = Route(targets, data.draw(st.sampled_from(targets)))
    asked = []
    for _ in range(count):
        asked.append(route.current)
        route.failed()
    assert sorted(asked) == sorted(targets) and route.exhausted
    route.refreshed()
    assert not route.exhausted
