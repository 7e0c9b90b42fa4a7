"""The report: tells the verdict and what led to it, escapes everything, and stands what is missing."""

from __future__ import annotations

import json
import re
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sample_run import OUTCOME, RUN, VERDICT, events, sample_run

from harness.errors import UserError
from harness.history.journal import JournalWriter
from harness.history.ops import Op, cas, read
from harness.history.rundir import RunDir, create
from harness.verdict.faults import Fault
from harness.verdict.leaderships import Leadership
from results.findings import Around, checker_block, findings
from results.node_logs import NodeLogs, wall_zero_ns
from results.plots import clock_readings, leader_panel, overview, targets_named
from results.report import build_report
from results.saved import MAX_SAMPLE, Points, load, read_points
from results.words import VERDICT_WORDS, WHY_WORDS

VOID = {"meta", "img", "br"}


class Balance(HTMLParser):
    """Collects the visible text and complains about elements that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)


def page_of(rundir: RunDir) -> tuple[str, str]:
    """The report's source and its visible text."""
    source = build_report(rundir.path).read_text()
    parser = Balance()
    parser.feed(source)
    assert parser.open == []
    return source, " ".join(" ".join(parser.words).split())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return page_of(sample_run(tmp_path_factory.mktemp("store")))


@pytest.fixture
def bare(tmp_path: Path) -> RunDir:
    """A run directory with options only."""
    rundir = create(tmp_path, "register", datetime(2026, 2, 3, 4, 5, 6))
    rundir.write_json(rundir.run_json, RUN)
    return rundir


def test_it_tells_the_verdict_and_the_four_answers(whole: tuple[str, str]) -> None:
    text = whole[1]
    assert "INVALID" in text
    assert "register found the history invalid" in text
    assert "with partition, kill, pause · with the known bug read-without-lease · seed 42" in text
    for words in ("Safety no", "Adequacy yes", "Liveness yes", "Harness yes", "Serving again after 1.40 s"):
        assert words in text


def test_it_explains_anomalies_with_their_operations(whole: tuple[str, str]) -> None:
    text = whole[1]
    assert "Operation 412 read 17 of key 3 after operation 398 had read 18" in text
    assert "stale-read 7 anomalies" in text
    assert "and 6 further anomalies" in text
    for words in ("write 17 to key 3", "cas key 3 from 17 to 18", "read key 3 → 18", "never completed"):
        assert words in text
    assert "412 read 17, which 395 replaced by 18" in text
    assert "partition leaseholder t2" in text


def test_it_sets_requested_against_observed_faults(whole: tuple[str, str]) -> None:
    text = whole[1]
    assert "partition yes 3 2 3 3" in text
    assert "kill yes 2 2 2 1" in text
    assert text.count("not observed") == 1
    assert "4.600 s" in text


def test_it_gives_the_command_options_and_versions(whole: tuple[str, str]) -> None:
    text = whole[1]
    command = "assay run register --on sim --nemesis partition,kill,pause --time-limit 60 --rate 100 --seed 42"
    assert f"{command} --flaw read-without-lease -o keys=12" in text
    assert "numpy 2.2.0" in text
    assert "abc123" in text


def test_it_needs_no_network(whole: tuple[str, str]) -> None:
    addresses = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')\s>]+)", whole[0])
    assert addresses
    assert all(address.startswith("data:") for address in addresses)


def test_the_command_as_saved_is_preferred(bare: RunDir) -> None:
    run = {**RUN, "options": {"command": "assay run register --seed 7"}}
    bare.write_json(bare.run_json, run)
    assert "assay run register --seed 7" in page_of(bare)[1]


def test_everything_is_escaped(tmp_path: Path) -> None:
    rundir = sample_run(tmp_path)
    evil = "<script>alert('&')</script>"
    stale = {"message": evil, "key": evil, "ops": [{"op": evil, "f": evil, "node": evil, "invoke_time": 1}]}
    stale["steps"] = [{"source": evil, "target": evil, "kind": evil, "why": evil}]
    checkers = {evil: {"valid": False, "reason": evil, "anomalies": {evil: [stale]}, "counts": {}}}
    rundir.write_json(rundir.verdict_json, {**VERDICT, "reasons": [evil], "checkers": checkers})
    run = {**RUN, "workload": evil, "database": evil, "options": {evil: evil}, "provenance": {evil: evil}}
    rundir.write_json(rundir.run_json, run)
    fault = {"kind": evil, "instance": 0, "variant": "$evil$" + evil, "targets": [evil], "requested_ns": 5}
    rundir.write_json(rundir.faults_json, [{**fault, "observed_ns": 9, "evidence": {"reason": evil}}])
    source, text = page_of(rundir)
    assert evil not in source and source.count("<script") == 2, "the timeline's data and code"
    assert text.count(evil) >= 12


def test_a_run_that_was_cut_short_says_so(bare: RunDir) -> None:
    text = page_of(bare)[1]
    assert "UNFINISHED" in text
    assert "has no verdict" in text
    assert "There is no history to draw." in text
    assert "No checker judged this run." in text


def test_the_sealed_part_of_a_journal_is_drawn(bare: RunDir) -> None:
    journal = JournalWriter(bare.journal)
    for event in events(rate_hz=20):
        journal.append(event)
    journal.close()
    source, text = page_of(bare)
    assert "data:image/svg+xml" in source
    assert "partition yes 3 2 3 3" in text


def test_unreadable_parts_are_named_and_cost_nothing_else(tmp_path: Path) -> None:
    rundir = sample_run(tmp_path)
    rundir.history_parquet.write_bytes(b"not parquet")
    rundir.outcome_json.write_bytes(b"{")
    rundir.faults_json.write_text('{"no": "list"}')
    text = page_of(rundir)[1]
    assert "INVALID" in text
    assert "outcome.json can't be read" in text
    assert "faults.json is not what a run" in text


@pytest.mark.parametrize("verdict", [{}, [], {"overall": 5, "safety": [], "checkers": {"x": 1}}])
def test_a_strange_verdict_breaks_nothing(bare: RunDir, verdict: object) -> None:
    bare.write_json(bare.verdict_json, verdict)
    assert "UNFINISHED" in page_of(bare)[1]


def test_an_edited_verdict_is_not_believed(tmp_path: Path) -> None:
    run = sample_run(tmp_path)
    run.write_json(run.verdict_json, {**VERDICT, "valid": True, "overall": "valid"})
    text = page_of(run)[1]
    assert text.startswith("invalid: ") and "verdict.json says valid, but what the run saved comes to invalid" in text


def test_the_verdict_of_another_run_is_not_believed(tmp_path: Path) -> None:
    """The checkers that it names found nothing, and the run's own facts are as they were."""
    run = sample_run(tmp_path)
    found = {name: {"valid": True} for name in VERDICT["checkers"]}
    run.write_json(run.verdict_json, {**VERDICT, "valid": True, "overall": "valid", "checkers": found})
    text = page_of(run)[1]
    assert not text.startswith("valid: ") and "is not what was said of these files" in text


def test_the_word_says_why(tmp_path: Path) -> None:
    """A run whose saved verdict has no such word is explained by its saved facts."""
    run = sample_run(tmp_path)
    assert f"INVALID refuted: {WHY_WORDS['refuted']} {VERDICT_WORDS['invalid']}" in page_of(run)[1]


def test_a_damaged_history_is_not_drawn(tmp_path: Path) -> None:
    run = sample_run(tmp_path)
    whole = run.history_parquet.read_bytes()
    for place in range(5, len(whole), len(whole) // 40):
        run.history_parquet.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        text = page_of(run)[1]
        assert "damaged" in text and "There is no history to draw." in text


def test_a_verdict_of_a_run_that_saved_no_outcome_is_not_valid(bare: RunDir) -> None:
    bare.write_json(bare.run_json, {**RUN, "requested_faults": []})
    bare.write_json(bare.verdict_json, {**VERDICT, "overall": "valid", "checkers": {"register": {"valid": True}}})
    text = page_of(bare)[1]
    assert text.startswith("unknown: ") and "verdict.json says valid" in text
    assert "No faults were requested." in text
    assert "Nothing wrong was found." in text


def test_the_actions_of_scripts_are_listed(bare: RunDir) -> None:
    journal = JournalWriter(bare.journal)
    value = {"fault": "figure-8", "variant": "figure-8", "instance": 0, "step": "begin"}
    for number, (f, action) in enumerate((("start-figure-8", "t1 | t2 t3"), ("step-figure-8", "t2 -/-> t3"))):
        op = Op("invoke", -1, f, value=value, index=2 * number, time=number)
        journal.append(op)
        done = {**value, "action": action, "targets": ["t1"], "observed": True}
        journal.append(op.complete("info", value=done, index=2 * number + 1))
    journal.close()
    text = page_of(bare)[1]
    assert "2 actions, in the order" in text
    assert "t2 -/-> t3" in text


@pytest.mark.parametrize(
    ("started", "words"),
    [
        ("2026-02-03T04:05:06+01:00", "commit abc123 · started 2026-02-03 03:05:06 UTC"),
        ("2026-02-03T04:05:06.789", "commit abc123 · started 2026-02-03 04:05:06, local time"),
        ("yesterday", "commit abc123 UNFINISHED"),
    ],
)
def test_the_head_has_the_commit_and_the_start(started: str, words: str, bare: RunDir) -> None:
    bare.write_json(bare.run_json, {**RUN, "started": started})
    assert words in page_of(bare)[1]


def breach(at_s: float) -> dict[str, Any]:
    """An invariant that broke at this time of a history that began half a second after its run."""
    where = {"time_ns": round((at_s + 0.5) * 1e9), "step": 7, "nodes": ["t2"], "group": "g"}
    return {"message": f"a read is served by a lease that ended {at_s} s ago", "details": where}


def found_with(*breaches: dict[str, Any], **stale: Any) -> tuple[str, str]:
    """What is told of the stale read from 4.9 to 4.916 s and of an invariant that broke: its source and its words."""
    register = VERDICT["checkers"]["register"]
    (read,) = register["anomalies"]["stale-read"]
    found = {"valid": False, "anomalies": {"served-within-the-lease": list(breaches)}, "counts": {}}
    checkers = {"register": {**register, "anomalies": {"stale-read": [{**read, **stale}]}}, "invariants": found}
    source = str(findings(checkers, Around(history_start_ns=500_000_000)))
    parser = Balance()
    parser.feed(source)
    return source, " ".join(" ".join(parser.words).split())


def test_what_broke_in_the_window_of_an_anomaly_stands_beside_it_and_is_linked() -> None:
    source, text = found_with(breach(4.95))
    assert "Meanwhile broke inside the database: served-within-the-lease at 4.950 s" in text
    assert "In the window of register: stale-read at 4.900 s" in text
    anchors, links = (set(re.findall(rf'{name}="#?(found-[0-9]+)"', source)) for name in ("id", "href"))
    assert anchors == links == {"found-1", "found-2"}
    for far_s in (3.8, 6.0):
        far = found_with(breach(far_s))[1]
        assert "Meanwhile" not in far and "In the window" not in far


def test_ten_alike_are_one_card_with_a_count() -> None:
    source, text = found_with(*(breach(20.0 + number) for number in range(10)))
    assert source.count('class="anomaly"') == 2 and "10 times" in text and "9 more like it" in text
    assert all(f"ended {20.0 + number} s ago" in text for number in range(10)), "none is left out"
    assert "served-within-the-lease 10 anomalies" in text and "further" not in text.split("served-within")[1]


def test_names_of_operations_and_what_they_were_told_stand_where_they_are() -> None:
    op = VERDICT["checkers"]["register"]["anomalies"]["stale-read"][0]["ops"][0]
    source, text = found_with(message="x" * 10**6, ops=[{**op, "type": "fail", "error": "timed out"}])
    assert "T390 is the operation with the number 390 in the history." in text
    assert "fail: timed out" in text and "(1,000,000 characters)" in text and len(source) < 20_000


def test_logs_of_nodes_are_linked_at_the_time_with_the_lines_around_it(tmp_path: Path) -> None:
    run = sample_run(tmp_path / "store", rate_hz=5)
    lines = [f"2023-11-14T22:13:{20 + second}.000000+00:00 INFO t2 second {second}" for second in range(30)]
    run.write_logs({"t2/node.log": "\n".join(lines).encode()})
    source, text = page_of(run)
    assert "Node logs at that time: t2, line 5" in text and "INFO t2 second 4" in text
    assert 'href="nodes/t2/node.log#:~:text=2023%2D11%2D14T22%3A13%3A24.000000%2B00%3A00"' in source
    zero_ns = wall_zero_ns(RUN, OUTCOME)
    (href,) = re.findall(r'href="([^"#]+)#:~:', str(NodeLogs(run.nodes, tmp_path, zero_ns).at(["t2"], 0)))
    assert (tmp_path / href).resolve() == (run.nodes / "t2" / "node.log").resolve(), "from a page that lies elsewhere"
    run.write_logs({"t2/node.log": b"1999-11-14T22:13:20.000000+00:00 INFO of another time"})
    logs = NodeLogs(run.nodes, run.path, zero_ns)
    assert 'href="nodes/t2/node.log">t2</a>' in str(logs.at(["t2"], 0)), "linked as a whole"
    assert logs.at(["..", "../t2", "t9", None], 0) is None


def test_a_vacuous_run_has_no_green_badge_and_says_what_to_change(tmp_path: Path) -> None:
    run = sample_run(tmp_path, rate_hz=5)
    run.write_json(run.run_json, {**RUN, "requested_faults": ["clock-jump"]})
    reasons = ["the fault clock-jump was never observed in effect"]
    vacuous = {"adequacy": {"answer": False, "reasons": reasons}, "safety": {"answer": True}, "reasons": reasons}
    checkers = {"register": {"valid": True}}
    run.write_json(
        run.verdict_json, {**VERDICT, **vacuous, "overall": "unknown", "why": "vacuous", "checkers": checkers}
    )
    source, text = page_of(run)
    assert "UNKNOWN" in text and "What to change: give faults more time (--time-limit)" in text
    assert "badge valid" not in source and source.count("badge void") >= 4


def test_a_history_of_one_open_operation_is_drawn(bare: RunDir) -> None:
    journal = JournalWriter(bare.journal)
    journal.append(Op("invoke", 0, "read", (read(1),), index=0, time=0))
    journal.close()
    assert "read 1 0 0 1 0 0.0%" in page_of(bare)[1]


def test_a_failed_compare_and_set_is_no_error(bare: RunDir) -> None:
    journal = JournalWriter(bare.journal)
    told = (("cas-mismatch", "fail", "found 7"), ("timeout", "info", "no answer"), ("timeout", "info", "none either"))
    for number, (error_class, type, error) in enumerate(told):
        op = Op("invoke", number, "cas", (cas(1, 2, 3),), index=2 * number, time=number)
        journal.append(op)
        journal.append(op.complete(type, index=2 * number + 1, time=9, error_class=error_class, error=error))
    journal.close()
    text = page_of(bare)[1]
    assert "cas 3 0 1 2 0 33.3%" in text, "in all, ok, found another value, unknown, failed"
    assert "timeout unknown outcome 2 2 cas no answer" in text
    assert "cas-mismatch" not in text


def test_a_node_that_says_who_else_serves_has_answered(bare: RunDir) -> None:
    journal = JournalWriter(bare.journal)
    for number, error_class in enumerate((None, "elsewhere", "elsewhere", "timeout")):
        op = Op("invoke", number, "read", (read(1),), index=2 * number, time=number, phase="each-node")
        type = "ok" if error_class is None else "fail"
        journal.append(op)
        journal.append(op.complete(type, index=2 * number + 1, time=9, error_class=error_class, error="t2 leads"))
    journal.close()
    text = page_of(bare)[1]
    points = load(bare).points
    assert points is not None and (points.count("read", "fail"), points.count("read", "elsewhere")) == (1, 2)
    assert "others serve it" in text
    assert "read 4 1 0 2 0 1 75.0%" in text, "in all, ok, found another value, others serve it, unknown, failed"
    assert "timeout failed for certain 1 1 read t2 leads" in text
    assert "elsewhere" not in text


def test_leaders_are_drawn_as_bands(bare: RunDir) -> None:
    points = Points(end_s=10.0)
    led = [Leadership("catalog", 1, "m1", 0, 4 * 10**9), Leadership("catalog", 3, "m2", 5 * 10**9, 9 * 10**9)]
    panel = leader_panel([*led, Leadership("ab" * 16, 1, "t1", 0, 0)], 10.0)
    assert panel.labels == ("catalog", "tablet ababab")
    axis = Figure().add_subplot()
    panel.draw(axis)
    spans = [(patch.get_x(), round(patch.get_width(), 6)) for patch in axis.patches if isinstance(patch, Rectangle)]
    assert spans == [(0.0, 5.0), (0.0, 4.0), (5.0, 5.0), (5.0, 4.0), (0.0, 10.0), (0.0, 0.0)], "pale and full, in turn"
    assert [text.get_text() for text in axis.texts] == ["m1, term 1", "m2, term 3", "t1, term 1"]
    assert len(overview(points, (), {}, led)) > len(overview(points, (), {}))
    bare.write_json(bare.leaders_json, led)
    assert load(bare).leaders == tuple(led)


def test_what_invariants_were_checked_is_told() -> None:
    verdict = {"valid": True, "ops": 0, "details": {"checked": {"state-digest": 1_000, "no-panic": 8}}}
    assert "1,008 checks of 2 invariants" in str(checker_block("invariants", verdict))


def test_large_histories_are_sampled_but_counted_exactly(tmp_path: Path) -> None:
    rundir = sample_run(tmp_path, rate_hz=2_000)
    points = read_points(rundir)
    assert points is not None
    assert points.stride > 1
    assert sum(series.count for series in points.series.values()) == 2_000 * 60
    drawn = sum(len(series.sample()[0]) for series in points.series.values())
    assert MAX_SAMPLE / 2 < drawn < 3 * MAX_SAMPLE
    assert max(series.sample()[1].max() for series in points.series.values()) > 1.9


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the directory of a run"):
        build_report(tmp_path)


def test_readings_of_clocks_are_curves_by_node_and_fault() -> None:
    points = Points()
    points.steps += [
        {"f": "stop-clock-jump", "value": json.dumps({"readings": {"t2": [[10**9, 5 * 10**8], [2 * 10**9, 0]]}})},
        {
            "f": "stop-clock-jump",
            "value": json.dumps({"readings": {"t2": [[3 * 10**9, -(10**9)]], "m1": [[10**9, 7]]}}),
        },
        {"f": "kill", "value": json.dumps({"targets": ["t1"]})},
        {"f": "strange", "value": "{"},
    ]
    assert clock_readings(points) == {"m1": [[(1.0, 7e-9)]], "t2": [[(1.0, 0.5), (2.0, 0.0)], [(3.0, -1.0)]]}
    with_clocks = overview(points, (), {})
    points.steps.clear()
    assert clock_readings(points) == {}
    assert len(overview(points, (), {})) < len(with_clocks)


def test_faults_carry_the_names_of_those_they_hit_where_there_is_room() -> None:
    def fault(instance: int, requested_s: float, *targets: str) -> Fault:
        return Fault("kill", instance, None, targets, round(requested_s * 1e9))

    eight = [f"t{number}" for number in range(1, 9)]
    faults = [fault(0, 10, "t1", "m1"), fault(1, 50, *eight), fault(2, 57, "t3"), fault(3, 57.5), fault(4, 99.9, "t1")]
    told = [(found.instance, words) for found, words in targets_named(faults, 100.0)]
    assert told == [(0, "t1 m1"), (1, "8 nodes")]
