"""Drawing the keys of a world: from the seed alone, each key by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.ports.sim.worlds import PHYSICAL_KEYS, Among, Between, WorldKey, draw_values, physical_world

SEEDS = range(60)
DESIGN = Path(__file__).parents[4] / "docs/design/worlds.md"


def test_each_key_is_drawn_by_itself() -> None:
    for seed in SEEDS:
        drawn = draw_values(PHYSICAL_KEYS, seed, "harsh", {})
        told = draw_values(PHYSICAL_KEYS, seed, "harsh", {"loss": 0.25})
        assert told == {**drawn, "loss": 0.25}
        assert draw_values(PHYSICAL_KEYS[2:], seed, "harsh", {}).items() <= drawn.items()


def test_harsh_worlds_draw_every_choice_and_mild_ones_only_theirs() -> None:
    for key in PHYSICAL_KEYS:
        for severity, choices in (("mild", key.mild), ("harsh", key.harsh or key.mild)):
            drawn = {key.draw(seed, severity, {}) for seed in range(300)}  # type: ignore[arg-type]
            assert drawn == (set(choices) or {None}), key.name


def test_what_is_never_drawn_is_what_the_design_calls_a_negative_control() -> None:
    """`disk-tear` was drawn as `prefix` only, though a clean run is to stand `pages`: no run tore any."""
    never: set[str] = set()
    for key in PHYSICAL_KEYS:
        drawn = {key.draw(seed, severity, {}) for seed in range(300) for severity in ("mild", "harsh")}  # type: ignore[arg-type]
        if isinstance(key.values, Among):
            never |= {f"{key.name}={name}" for name in key.values.names if name not in drawn}
        elif drawn == {None} and key.name != "slow-waits":  # swarms draw them
            never.add(f"{key.name}=…")
    (told,) = re.findall("comes only when it is told: (.*?)\\.", DESIGN.read_text().replace("\n", " "))
    assert never == set(re.findall("`(.*?)`", told))


def test_every_drawn_value_is_one_that_could_be_told() -> None:
    for key in PHYSICAL_KEYS:
        for value in (*key.mild, *key.harsh):
            assert key.values.parse(str(value)) == value


def test_every_physical_key_is_a_field_and_makes_options() -> None:
    for seed in SEEDS:
        for severity in ("mild", "harsh"):
            world = physical_world(draw_values(PHYSICAL_KEYS, seed, severity, {}))  # type: ignore[arg-type]
            assert world.link_options("a1", "b2").loss == world.loss
            low, high = world.disk_options().sync_ns
            assert 0 < low < high


def test_names_and_numbers_are_checked() -> None:
    assert Among(("a", "b")).parse("b") == "b"
    assert Between(0, 10).parse("7") == 7 and isinstance(Between(0, 10).parse("7"), int)
    assert Between(0.0, 1.0).parse("1") == 1.0
    for values, text in (
        (Among(("a", "b")), "c"),
        (Between(0, 10), "11"),
        (Between(0, 10), "-1"),
        (Between(0, 10), "1.5"),
        (Between(0.0, 1.0), "nan"),
        (Between(0.0, 1.0), "much"),
    ):
        with pytest.raises(ValueError, match=r"one of|between"):
            values.parse(text)


def test_a_share_follows_what_it_is_a_share_of() -> None:
    whole = WorldKey("whole", Between(0, 1000), "", (100, 200))
    half = WorldKey("half", Between(0, 1000), "", (0.5,), share_of="whole")
    assert draw_values((whole, half), 1, "mild", {"whole": 600}) == {"whole": 600, "half": 300}
    assert draw_values((whole, half), 1, "mild", {"whole": 600, "half": 1}) == {"whole": 600, "half": 1}
