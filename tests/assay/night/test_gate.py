"""The gate: each key of a policy is flipped by a night that was made for it alone."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import assay
from made_nights import NOON, cell, found, night, run, runs, write_night

from assay.night.gate import GateInput, GateLine, GatePolicy, exit_code, judge_nights, read_policy
from assay.night.rates import in_words, interval, runs_for, too_many, upper_bound
from assay.night.records import Night, RunFigures, StepEnded, StepRecord
from assay.night.triage import TriageEntry
from harness.errors import UserError

FLAWED = cell("flawed", expect="found", flaw=("lose-writes",), rate=0.5)
CELLS = (cell(), FLAWED)
FINDING = found()
POLICY = GatePolicy(
    new_findings=0,
    regressed=0,
    missed_flaws=0,
    expired_known=0,
    adequate_runs_per_cell=10,
    judge="7",
    virtual_hours=0.3,
    unknown_share=0.01,
    harness_share=0.01,
    slower=0.1,
    max_age="48h",
    commit="aaaaaaa",
    clean_tree=True,
)


def made(*more: Any, day: int = 30, flawed: Any = None, count: int = 20, slow: float = 1.0, **other: Any) -> Night:
    """A night that passes, but for what is told."""
    flawed = [run(100 + n, found("flaw"), of="flawed") for n in range(20)] if flawed is None else flawed
    latencies = [run(n, figures=RunFigures(p99_ms=slow * (10 + n % 7))) for n in range(count)]
    mine = [*latencies, *flawed, *more]
    return night(mine, CELLS, day=day, **other)


EARLIER = [made(day=day) for day in range(14, 30)]


def gate(*nights: Night, entries: Any = (), earlier: Any = EARLIER, policy: GatePolicy = POLICY) -> dict[str, GateLine]:
    given = GateInput(nights, earlier, entries, NOON, lambda commit, fixed: commit >= fixed)
    return {each.name: each for each in judge_nights(policy, given)}


TAKEN = {"family": FINDING.family, "ticket": "T-1", "until": dt.date(2027, 6, 1)}
OURS = TriageEntry(family=found("oom").family, ticket="T-2", until=dt.date(2027, 6, 1))
IDLE = night([*made().runs, run(70, of="idle", word="unknown", why="vacuous", vacuous=True)], (*CELLS, cell("idle")))
SHORT = [run(100 + n, found("flaw"), of="flawed", virtual_s=1.0) for n in range(20)]

STEP = StepRecord(name="s", argv=("x",), limit_s=9.0)


def ended(word: Any) -> StepEnded:
    return StepEnded(name="s", at=NOON.isoformat(), spent_s=1.0, word=word, code=0, wall_s=1.0)


FLIPS: dict[str, tuple[str, Night, list[TriageEntry], set[str]]] = {
    "new-findings": ("FAIL", made(run(50, FINDING)), [], set()),
    "regressed": ("FAIL", made(run(50, FINDING)), [TriageEntry(**TAKEN, fixed="0" * 40)], set()),
    "missed-flaws": ("FAIL", made(flawed=runs(20, 100, "flawed")), [], set()),
    "expired-known": (
        "FAIL", made(run(50, FINDING)), [TriageEntry(**TAKEN | {"until": dt.date(2026, 12, 31)})], set(),
    ),
    "adequate-runs-per-cell": ("UNKNOWN", made(flawed=[run(100, found("flaw"), of="flawed")]), [], set()),
    "judge": ("UNKNOWN", made(head={"judge": "6"}), [], set()),
    "virtual-hours": ("UNKNOWN", made(flawed=SHORT, count=12), [], set()),
    "unknown-share": ("UNKNOWN", made(run(50, word="unknown", why="undecided")), [], set()),
    "harness-share": (
        "UNKNOWN", made(run(50, found("oom", kind="harness"), word="memory")), [OURS], {"unknown-share"},
    ),
    "slower": ("FAIL", made(slow=1.2), [], set()),
    "max-age": ("UNKNOWN", made(day=28), [], set()),
    "commit": ("UNKNOWN", made(head={"commit": "b" * 40}), [], set()),
    "clean-tree": ("UNKNOWN", made(head={"clean": False}), [], set()),
    "over": ("UNKNOWN", made(done=None), [], set()),
    "as-written": ("UNKNOWN", made(damage=("line 3 does not follow",)), [], set()),
    "steps": ("FAIL", made(steps=(ended("timeout"),)), [], set()),
    "tested": ("UNKNOWN", IDLE, [], {"adequate-runs-per-cell", "unknown-share"}),
}  # fmt: skip
"""A key, what it says of the night made for it, under which triage, and what such a night flips beside it."""


def test_a_night_that_passes() -> None:
    conditions = gate(made())
    assert set(FLIPS) == set(conditions)
    assert {each.word for each in conditions.values()} == {"PASS"}
    assert str(conditions["new-findings"]) == "PASS new-findings: 0 of 40: below 7.2 %, 95 %, limit 0"
    assert exit_code(tuple(conditions.values())) == 0


@pytest.mark.parametrize("key", FLIPS)
def test_each_key_alone(key: str) -> None:
    """Its own night flips it and nothing else; FAIL is 1, UNKNOWN 2."""
    word, made_for_it, entries, beside = FLIPS[key]
    conditions = gate(made_for_it, entries=entries)
    assert {name for name, each in conditions.items() if each.word != "PASS"} == {key} | beside
    assert conditions[key].word == word
    assert exit_code(tuple(conditions.values())) == {"FAIL": 1, "UNKNOWN": 2}[word]


def test_a_step_that_was_left_out_says_nothing() -> None:
    assert gate(made(head={"steps": (STEP,)}))["steps"].word == "UNKNOWN"
    assert gate(made(head={"steps": (STEP,)}, steps=(ended("passed"),)))["steps"].word == "PASS"


def test_too_little_is_no_miss() -> None:
    """Two runs at a rate of a half may both miss the flaw; nothing run proves nothing; a few nights know no noise."""
    assert gate(made(flawed=runs(2, 100, "flawed")))["missed-flaws"].word == "UNKNOWN"
    assert gate(made(count=0, flawed=[]))["new-findings"].word == "UNKNOWN"
    assert gate(made(), earlier=EARLIER[:11])["slower"].word == "UNKNOWN"
    assert gate(made(run(50, FINDING), flawed=runs(2, 100, "flawed")))["new-findings"].word == "FAIL"


REFUSED = {
    "empty": ("", "asks for nothing"),
    "a table alone": ("[gate]", "asks for nothing"),
    "an unknown key": ("new-finding = 0", "new-finding"),
    "not TOML": ("new-findings =", "no policy"),
    "negative": ("[gate]\nunknown-share = -0.1", "negative"),
    "no share": ("unknown-share = 2.0", "a share"),
    "not asked": ("clean-tree = false", "leave it out"),
    "no age": ("max-age = '36'", "36h"),
}


@pytest.mark.parametrize(("policy", "why"), REFUSED.values(), ids=REFUSED)
def test_policies_that_are_refused(policy: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    with pytest.raises(UserError, match=why):
        read_policy(file)


@pytest.mark.parametrize(
    ("policy", "silent"),
    [
        (GatePolicy(missed_flaws=0), night(runs(9))),
        (GatePolicy(judge="7"), night(runs(9), head={"judge": None})),
        (GatePolicy(commit="aaaaaaa"), night(runs(9), head={"commit": None})),
        (GatePolicy(clean_tree=True), night(runs(9), head={"clean": None})),
        (GatePolicy(commit="HEAD"), night(runs(9))),
    ],
)
def test_what_nights_do_not_say(policy: GatePolicy, silent: Night) -> None:
    """A condition whose data do not exist is refused."""
    with pytest.raises(UserError):
        gate(silent, policy=policy)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines, JSON and JUnit; a journal that is damaged or newer is a sentence and 254."""
    store, policy, junit = tmp_path / "store", tmp_path / "policy.toml", tmp_path / "gate.xml"
    policy.write_text("new-findings = 0\n")
    good, bad = write_night(store, made(day=30)), write_night(store, made(run(50, FINDING), day=31))
    words = ("gate", str(policy), "--store", str(store), "--triage", str(tmp_path / "none.toml"))
    passed = assay(capsys, *words, good.name)
    assert (passed.code, passed.out.splitlines()[-1].split(":")[0]) == (0, "PASS new-findings")
    copied = shutil.copytree(good, tmp_path / "copy")
    assert "one and the same" in assay(capsys, *words, good.name, copied).complaint, "its runs would count twice"
    failed = assay(capsys, *words, "--json", "--junit", str(junit))
    assert (failed.code, json.loads(failed.out)["code"]) == (1, 1)
    assert b"<failure" in junit.read_bytes()
    journal = bad / "night.jsonl"
    whole = journal.read_bytes()
    for content in (whole.replace(b'"entry":{', b'"entry":[', 1), whole.replace(b'"version":1', b'"version":9', 1)):
        journal.write_bytes(content)
        assert assay(capsys, *words).code == 254
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:5] + lines[6:-2] + lines[-1:]))  # without the finding, and one run more
    assert assay(capsys, *words, bad.name).code == 2


def test_rates() -> None:
    """Of 0 in 300 the rule of three, Wilson's interval as tables have it, and when chance does not explain it."""
    assert in_words(0, 300) == "0 of 300: below 1.0 %, 95 %"
    assert upper_bound(0, 0) == upper_bound(4, 4) == 1
    assert interval(7, 60) == pytest.approx((0.0577, 0.2218), abs=1e-4)
    assert interval(0, 0) == (0, 1)
    assert [too_many(k, 100, 0.02) for k in (0, 2, 6, 7)] == [False, False, False, True]
    assert (runs_for(0.2, 0.01), runs_for(0.0, 0.01), runs_for(1.0, 0.01)) == (21, None, 1)
