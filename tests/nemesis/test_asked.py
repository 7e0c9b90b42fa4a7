"""What `--nemesis` asks for: read, written, drawn, and refused in one sentence."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from fake_cluster import FakeDatabase, FakeEnvironment
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.generators import time_limit
from harness.generators.simulate import simulate
from harness.history.ops import Op, OpType
from nemesis.asked import Asked, expand, parse, parse_all, split
from nemesis.packages import NemesisOptions, NemesisPackage, package
from nemesis.registry import KINDS, NEMESES


def packed(parts: list[str], limit_s: float = 60.0, seed: int = 1) -> NemesisPackage:
    return package(parts, FakeDatabase(), FakeEnvironment(), NemesisOptions(time_limit_s=limit_s), Random(seed))


def begun_and_ended(parts: list[str], limit_s: float = 60.0) -> list[tuple[str, str, float]]:
    """(kind, step, seconds) of a run in which each step takes no time."""

    def quick(op: Op, number: int) -> tuple[int, OpType]:
        return 1, "info"

    events = simulate(time_limit(limit_s, packed(parts, limit_s).generator), nemesis=True, latency=quick)
    return [(e.value["fault"], e.value["step"], e.time / 1e9) for e in events if e.type == "invoke"]


def test_commas_within_brackets_separate_settings_not_kinds() -> None:
    assert split("kill(target=one,every=3s), partition ,,kill(target=one,every=3s)") == (
        "kill(target=one,every=3s)",
        "partition",
    )


@given(
    st.sampled_from(sorted(KINDS)),
    st.none() | st.integers(1, 3600),
    st.none() | st.integers(1, 3600),
    st.data(),
)
def test_what_is_written_is_read_again(name: str, every_s: int | None, for_s: int | None, data: st.DataObject) -> None:
    variants = data.draw(st.lists(st.sampled_from(list(KINDS[name].variants)), unique=True))
    settings = {key: each.low for key, each in KINDS[name].settings.items()}
    names = dict.fromkeys(KINDS[name].names, ("a.b", "c"))
    asked = Asked(name, tuple(variants), every_s, for_s, settings, names)
    assert parse(asked.text()) == asked
    assert split(f"{asked.text()},partition")[0] == asked.text()


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("fire", "no nemesis 'fire'"),
        ("kill(", "takes names"),
        ("kill(every)", "written NAME=VALUE, not 'every'"),
        ("kill(speed=3)", "no setting 'speed'; it has: every, for, target"),
        ("kill(target=moon)", "no target 'moon'; choose from: leader, leader-master,"),
        ("power-cut(target=one)", "no setting 'target'; it has: every, for"),
        ("kill(every=soon)", "every of the nemesis 'kill' takes a number from 0.1 to 3600, not 'soon'"),
        ("kill(for=2h)", "not '2h'"),
        ("all(every=3s)", "'all' has no settings"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(part: str, sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(part)
    assert sentence in str(refused.value)


def test_a_kind_named_twice_and_a_fault_longer_than_the_run_are_refused() -> None:
    with pytest.raises(UserError, match="'kill' is named twice"):
        parse_all(["kill", "kill(every=3s)"])
    with pytest.raises(UserError, match=r"kill\(for=90s\) takes longer than the run, which lasts 60 s"):
        packed(["kill(for=90s)"])
    with pytest.raises(UserError, match=r"kill\(every=3s,for=5s\) leaves no quiet time"):
        packed(["kill(for=5s,every=3s)"])


def test_a_kind_keeps_its_pace_and_its_targets() -> None:
    steps = begun_and_ended(["kill(every=4s,for=1s,target=one)"])
    begins = [at for _, step, at in steps if step == "begin"]
    ends = [at for _, step, at in steps if step == "end"]
    assert len(begins) == 15
    assert all(later - earlier == pytest.approx(4.0, abs=0.01) for earlier, later in pairwise(begins))
    assert all(end - begin == pytest.approx(1.0, abs=0.01) for begin, end in zip(begins, ends, strict=False))


@pytest.mark.parametrize("seed", range(5))
def test_all_draws_as_many_kinds_as_have_time_to_last(seed: int) -> None:
    everything = expand([Asked("all")], FakeDatabase().capabilities | FakeEnvironment().capabilities)
    short, long = packed(["all"], 20.0, seed).kinds, packed(["all"], 600.0, seed).kinds
    assert 1 <= len(short) < len(long) == len(everything)
    assert set(short) <= set(long) <= set(NEMESES)
    assert packed(["all"], 20.0, seed).kinds == short
    named = packed(["all", "pause"], 10.0, seed).kinds
    assert "pause" in named
    first: dict[str, list[float]] = {}
    for kind, step, at in begun_and_ended(["all"], 60.0):
        if step in ("begin", "end"):
            first.setdefault(kind, []).append(at)
    assert all(times[1] - times[0] >= 1.99 for times in first.values() if len(times) > 1)


def test_failpoints_can_be_named_and_only_those_that_there_are() -> None:
    made = packed(["failpoint(target=crash,points=before_vote|after_vote)"])
    begun = next(e for e in simulate(time_limit(20.0, made.generator), nemesis=True) if e.type == "invoke")
    assert begun.value["names"] == {"points": ["before_vote", "after_vote"]}
    with pytest.raises(UserError, match=r"'befor_vote' for points of 'failpoint'; did you mean before_vote or"):
        packed(["failpoint(points=befor_vote)"])
    with pytest.raises(UserError, match=r"nothing named '' for points of 'failpoint'; there are 2\."):
        packed(["failpoint(points=)"])
