"""`assay shrink RUN`: a run becomes small, keeps its family, goes on where it was stopped, refuses in words."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from assay.night.records import RunFinding, RunMeasures
from assay.options import RunOptions
from assay.reproduce.candidates import CandidateRuns
from assay.reproduce.inputs import Inputs, load_inputs
from assay.reproduce.reduction import Pass
from assay.reproduce.saved_run import saved_run
from assay.reproduce.shrink_run import KEYS, PASSES, RunSearch
from assay.reproduce.smaller_inputs import LEAST_NODES, by_faults, by_free_chance, explicit, size_of
from assay.runner import Keep, RunOrder, RunResult, run_orders
from assay.worlds import draw_world
from harness.history.ops import Op, read
from harness.run.provenance import provenance
from harness.run.stopping import AskedToEnd
from nemesis.planned import PlannedFault
from tests.assay.command_line import assay

PANIC = RunOptions(
    "catalog", nemesis=("master-partition",), time_limit=4.0, seed=1, flaw=("abort-on-failed-replication",)
)


def made(options: RunOptions) -> RunResult:
    ((_, result),) = run_orders([RunOrder(options, Keep.ALL, measured=True)], 1)
    return result


@pytest.fixture(scope="module")
def refuted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = made(replace(PANIC, store=tmp_path_factory.mktemp("store")))
    assert result.overall == "invalid" and result.run is not None
    return result.run


@pytest.mark.parametrize("passes", [PASSES[:1], pytest.param(PASSES, marks=pytest.mark.campaign)])
def test_a_run_becomes_small_and_breaks_as_before(
    passes: tuple[Pass[Inputs], ...],
    refuted: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the coarsest passes, which end by themselves; with all of them in `make torture`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.reproduce.shrink_run.PASSES", passes)
    monkeypatch.setattr("assay.reproduce.shrink_run.KEYS", KEYS[: 1 if len(passes) < 3 else None])
    told = assay(capsys, "shrink", refuted, "--to", "small", "--budget", "1h", "--json")
    assert told.code == 1
    (small,) = told.objects
    assert small["after"]["seconds"] < small["before"]["seconds"]
    assert small["after"]["operations"] < (small["before"]["operations"] if len(passes) < 3 else 41)
    assert small["after"]["faults"] <= (2 if len(passes) < 3 else 1)
    assert small["necessary"]
    assert small["after"]["decisions"] == 0 and small["digest"]
    assert sum(path.stat().st_size for path in Path("small/inputs").iterdir()) < 100_000
    again = made(replace(load_inputs(Path("small/inputs")).options, inputs=Path("small/inputs"), store=tmp_path))
    (family,) = {each.family for each in again.measures.findings if each.kind != "harness"}
    assert family == saved_run(refuted).refuted("shrink").family

    answers = Path("small/answers.jsonl").read_bytes()
    resumed = assay(capsys, "shrink", refuted, "--to", "small", "--budget", "1h", "--json").objects[0]
    assert Path("small/answers.jsonl").read_bytes() == answers
    assert (resumed["after"], resumed["runs"]) == (small["after"], 2 if len(passes) < 3 else 5)
    assert "is there already" in assay(capsys, "shrink", refuted, "--to", ".").complaint


@pytest.mark.parametrize("edit", ["valid", "unfinished", "docker", "other"])
def test_what_can_not_be_shrunk_is_one_sentence(
    edit: str, refuted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "verdict.json", "outcome.json", "faults.json"):
        (run / name).write_bytes((refuted / name).read_bytes())
    verdict, record = (msgspec.json.decode((run / name).read_bytes()) for name in ("verdict.json", "run.json"))
    if edit == "unfinished":
        (run / "verdict.json").unlink()
    elif edit == "valid":
        verdict |= {"overall": "valid", "checkers": {}, "liveness": {"answer": True}}
    elif edit == "docker":
        record["options"]["on"] = "docker"
    else:
        record["options"]["seed"] = 12345
        record["options"]["flaw"] = []
    if edit != "unfinished":
        (run / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    (run / "run.json").write_bytes(msgspec.json.encode(record))
    says = {
        "valid": "is valid, so there is nothing to shrink",
        "unfinished": "did not end",
        "docker": "runs in real time would slow each other down",
        "other": "made again is another run",
    }[edit]
    told = assay(capsys, "shrink", run, "--to", tmp_path / "small", "--jobs", "2")
    assert (told.code, says in told.complaint) == (254, True)
    assert not (tmp_path / "small").exists()


def finding(name: str) -> RunFinding:
    return RunFinding(kind="safety", family=name * 12, detail="d", family_words={"invariant": name}, title=f"{name}: …")


EARLY, LATE, NEW = map(finding, "aef")


class MadeUpRuns(CandidateRuns):
    """Runs with two flaws: one shows first of all if client 2 does anything, another later on if fault 3 is there. With
    three nodes a third finding comes before both."""

    def results(self, candidates: Iterable[Inputs]) -> Generator[tuple[int, RunResult], None, None]:
        for number, each in enumerate(candidates):
            shown = (
                (NEW, each.options.nodes == LEAST_NODES),
                (EARLY, any(op.process == 2 for op in each.operations)),
                (LATE, any(fault.instance == 3 for fault in each.faults)),
            )
            found = tuple(one for one, shows in shown if shows)
            yield number, RunResult(each.options, "invalid", measures=RunMeasures(families=found))


@pytest.mark.parametrize(
    ("wanted", "before", "sizes"),
    [
        (EARLY, [], {"operations": 1, "faults": 0}),
        (LATE, [EARLY], {"operations": 0, "faults": 1}),
    ],
)
def test_each_of_two_findings_shrinks_to_its_own(
    wanted: RunFinding, before: list[RunFinding], sizes: dict[str, int], tmp_path: Path
) -> None:
    operations = tuple(Op("invoke", n % 4, "read", (read(n),), time=n * 10**8) for n in range(40))
    faults = tuple(PlannedFault(n, "kill", "one", n, n * 10**9, n * 10**9 + 1) for n in range(5))
    options = RunOptions("register", nemesis=("kill",), time_limit=6.0, concurrency=4, nodes=5)
    whole = explicit(Inputs(replace(options, world=draw_world(1).line()), faults, operations))
    asked = AskedToEnd(lambda times: None)
    runs = MadeUpRuns(wanted, tmp_path, 1, asked, frozenset(each.family for each in before))
    small = RunSearch(runs, 60.0).run(whole, None)
    assert small is not None
    assert {name: size_of(small)[name] for name in sizes} == sizes
    assert small.options.nodes == LEAST_NODES + 1, "a finding that comes before is not followed"
    assert (
        list(runs.seen) == [NEW.family] and load_inputs(tmp_path / "others" / NEW.family).options.nodes == LEAST_NODES
    )


def test_a_finding_that_the_run_does_not_have_is_one_sentence(
    refuted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = assay(capsys, "shrink", refuted, "--to", tmp_path / "small", "--anomaly", "stale-read")
    assert (told.code, "No stale-read refutes" in told.complaint) == (254, True)
    assert "what does: no-panic, not-recovered." in told.complaint
    assert not (tmp_path / "small").exists()


def test_the_search_for_another_finding_goes_elsewhere(
    refuted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it was answered of one says nothing of another."""
    (tmp_path / "small").mkdir()
    found = saved_run(refuted).refuted("shrink")
    mark = {"run": str(refuted.resolve()), "commit": provenance().get("git_commit"), "family": found.family}
    (tmp_path / "small" / "search.json").write_bytes(msgspec.json.encode(mark))
    told = assay(capsys, "shrink", refuted, "--to", tmp_path / "small", "--anomaly", "not-recovered")
    assert (told.code, "is of another run, commit or finding" in told.complaint) == (254, True)


@pytest.mark.campaign
def test_two_flaws_at_once_shrink_each_to_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One shows in what masters do by themselves, and first; the other only behind a partition."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.reproduce.shrink_run.PASSES", (by_free_chance, by_faults))
    monkeypatch.setattr("assay.reproduce.shrink_run.KEYS", KEYS[:1])
    both = made(replace(PANIC, flaw=(*PANIC.flaw, "delete-rpc-early"), store=tmp_path)).run
    assert both is not None
    names = [each.name for each in saved_run(both).findings]
    assert names[0] == "calls-are-committed" and "no-panic" in names
    for asked, faults in ((names[0], 0), ("no-panic", 1)):
        told = assay(capsys, "shrink", both, "--to", asked, "--budget", "1h", "--anomaly", asked, "--json").objects[0]
        assert (told["necessary"], told["after"]["faults"]) == (True, faults)
        assert set(told["beside"]) == {name for name in names if name != asked}
        inputs = Path(asked, "inputs")
        again = made(replace(load_inputs(inputs).options, inputs=inputs, store=tmp_path))
        shown = {each.name for each in again.measures.families}
        assert asked in shown and ("no-panic" in shown) == (asked == "no-panic")
