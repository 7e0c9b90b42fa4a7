"""Drawings of anomalies: cycles, stuck searches, and the order of events where there are no times."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from harness.verdict.faults import Fault
from results.drawing import LABEL_WIDTH, MAX_ROWS, WIDTH, roles_of, scale_of, timeline
from results.findings import findings
from results.graph import (
    MOST_AROUND,
    MOST_NODES,
    arrows_of,
    box_of,
    cycle_in_words,
    cycle_order,
    draw_cycle,
    ellipse,
    layout,
)
from results.networks import spread
from results.sections import evidence
from results.words import operation, shown

MS = 1_000_000


def mop(f: str, key: object, value: object = None) -> dict[str, Any]:
    listed = isinstance(value, list)
    return {"f": f, "partition": key, "value": None if listed else value, "values": value if listed else None}


def op(number: int, begin_ms: int, end_ms: int | None, *mops: dict[str, Any], **more: object) -> dict[str, Any]:
    end = {"complete_time": None if end_ms is None else end_ms * MS, "complete_index": end_ms}
    times = {"invoke_time": begin_ms * MS, "invoke_index": begin_ms, **end}
    return {"op": number, "process": number, "type": "ok", "f": "txn", "mops": list(mops), **times, **more}


def ring(count: int, kind: str = "rw") -> list[dict[str, Any]]:
    return [{"source": i, "target": (i + 1) % count, "kind": kind, "why": "so", "key": i} for i in range(count)]


def ring_ops(count: int, mops: int = 2) -> list[dict[str, Any]]:
    many = [mop("r", 17, list(range(40))), mop("append", "long-name-of-a-key", 3)]
    return [op(i, i, i + 5, *(many[j % 2] for j in range(1 + i % mops))) for i in range(count)]


def bars(markup: object) -> list[tuple[float, float]]:
    """Left edge and width of every operation's bar."""
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="14"', str(markup))
    return [(float(left), float(width)) for left, width in found]


def test_steps_in_any_order_are_walked_around() -> None:
    steps = ring(4)
    assert cycle_order([steps[2], steps[0], steps[3], steps[1]]) == ["2", "3", "0", "1"]


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [{"source": 1, "target": 1, "kind": "ww"}],
        [{"source": 1, "target": 2}, {"source": 2, "target": 3}],
        [{"source": 1, "target": 2}, {"source": 1, "target": 3}, {"source": 3, "target": 1}],
    ],
)
def test_what_is_in_no_cycle_is_not_drawn(steps: list[dict[str, Any]]) -> None:
    assert cycle_order(steps) is None
    assert draw_cycle(steps, []) is None


def both_ways(count: int) -> list[dict[str, Any]]:
    """Two ways round the same operations, and back from every other one to the first."""
    back = [{"source": i, "target": 0, "kind": "ww", "why": "so"} for i in range(2, count, 2)]
    return [*ring(count), *ring(count, "ww"), *back]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8, MOST_AROUND])
@pytest.mark.parametrize("several", [False, True])
def test_boxes_of_cycles_keep_clear_of_each_other(several: bool, count: int) -> None:
    steps = both_ways(count) if several else ring(count)
    order = cycle_order(steps)
    assert (order is None) == several
    boxes = {str(node): box_of(str(node), found) for node, found in enumerate(ring_ops(count, 3))}
    places = layout(ellipse(order) if order else spread(steps), boxes, arrows_of(steps, -0.16))
    for one, other in itertools.combinations(boxes, 2):
        (x1, y1), (x2, y2) = places[one], places[other]
        apart_x = abs(x1 - x2) - (boxes[one].width + boxes[other].width) / 2
        apart_y = abs(y1 - y2) - (boxes[one].height + boxes[other].height) / 2
        assert max(apart_x, apart_y) > 0.2


@pytest.mark.parametrize("steps", [ring(3), both_ways(3), both_ways(9), ring(MOST_AROUND + 1)])
def test_cycles_are_the_same_picture_every_time(steps: list[dict[str, Any]]) -> None:
    picture = draw_cycle(steps, ring_ops(3))
    assert picture is not None
    assert picture.startswith(b"<?xml")
    assert picture == draw_cycle(steps, ring_ops(3))


def test_a_cycle_that_is_too_long_is_left_to_words() -> None:
    assert draw_cycle(ring(MOST_NODES + 1), ring_ops(MOST_NODES + 1)) is None


def test_a_cycle_has_a_text_and_may_pass_through_the_initial_state() -> None:
    steps = [{"source": -1, "target": 4, "kind": "so"}, {"source": 4, "target": -1, "kind": "co"}]
    assert cycle_in_words(steps) == "cycle: the initial state -so-> T4 -co-> the initial state"
    assert draw_cycle(steps, [op(4, 0, 1, mop("r", 1))]) is not None


def test_boxes_shorten_what_is_long() -> None:
    box = box_of("7", op(7, 0, 1, *(mop("r", key, list(range(500))) for key in range(9)), node="t1"))
    assert box.lines[0] == "T7 · process 7 · t1"
    assert len(box.lines) == 7
    assert max(map(len, box.lines)) <= 40
    assert shown(list(range(500))).startswith("[0 1 2 3 … 488 more … 492 ")


def test_the_address_of_a_cell_is_told_where_it_says_something() -> None:
    cell = {"f": "w", "partition": ":x", "row": 2, "column": 0, "table": 0, "value": 5}
    assert operation({"mops": [cell]}) == "write 5 to key :x row 2"


def test_without_times_the_order_of_events_is_drawn() -> None:
    ops = [op(1, 0, 3, clock="none"), op(2, 1, 2, clock="none")]
    drawn = str(timeline([{**o, "invoke_time": 0, "complete_time": None} for o in ops], (), {}))
    assert "event 0" in drawn
    assert "event 3" in drawn
    (left, width), (inner_left, inner_width) = bars(drawn)
    assert left < inner_left
    assert inner_left + inner_width < left + width


def test_nothing_to_draw_by_is_no_drawing() -> None:
    assert timeline([{"op": 1}], (), {}) is None
    assert timeline([], (), {}) is None


def test_open_operations_do_not_hide_what_is_certain() -> None:
    long_open = op(1, 0, 90_000, type="info")
    ops = [long_open, op(2, 90_000, 90_004), op(3, 90_002, 90_006)]
    widths = [width for _, width in bars(timeline(ops, (), {}))]
    assert min(widths[1:]) > (WIDTH - LABEL_WIDTH) / 3
    assert scale_of(ops, by_index=False).begin > 89_000 * MS


def test_a_stuck_search_shows_roles_the_moment_and_the_states() -> None:
    ops = [op(1, 0, 2), op(2, 3, None, type="info"), op(3, 4, 6, mop("r", 1, 9))]
    states = [{"state": 5, "done": [2], "why": "a read of 9 needs 9"}, {"state": [1, 2], "done": [], "why": "the same"}]
    details = {"stuck": 3, "before": [1], "open": [2], "states": states}
    assert roles_of(details) == {"1": "before", "2": "open", "3": "stuck"}
    anomaly = {"message": "No order.", "ops": ops, "details": details}
    page = findings({"register": {"valid": False, "anomalies": {"nonlinearizable": [anomaly]}, "counts": {}}})
    for words in ("T3, process 3 · can&#x27;t go next", "has taken effect", "still open", "stuck here", "[1 2]"):
        assert words in page
    assert "a read of 9 needs 9" in page
    assert "<td>T2</td>" in page


def test_of_very_many_operations_the_stuck_and_open_ones_stay() -> None:
    ops = [op(i, 10 * i, 10 * i + 5) for i in range(MAX_ROWS * 3)]
    drawn = str(timeline(ops, (), {}, details={"stuck": 0, "open": [1]}))
    assert drawn.count("<rect") == MAX_ROWS
    assert "T0, process 0" in drawn
    assert f"T{MAX_ROWS * 3 - 1}, process" in drawn


def test_reasons_are_arrows_from_end_to_beginning() -> None:
    ops = [op(1, 0, 2), op(2, 6, 8)]
    drawn = str(timeline(ops, (), {}, [{"source": 1, "target": 2, "kind": "realtime", "why": "1 came first"}]))
    assert "realtime: 1 came first" in drawn
    assert drawn.count("<path") == 3
    strangers = [{"source": 1, "target": 77, "kind": "ww"}, {"source": 2, "target": 2, "kind": "ww"}]
    assert "<path" not in str(timeline(ops, (), {}, strangers))


def test_dependencies_of_overlapping_operations_go_straight() -> None:
    ops = [op(1, 0, 6), op(2, 2, 8)]
    drawn = str(timeline(ops, (), {}, [{"source": 2, "target": 1, "kind": "rw", "why": ""}]))
    x1, x2 = re.findall(r'd="M ([\d.]+) [\d.]+ C [^"]*, ([\d.]+) [\d.]+"', drawn)[0]
    assert x1 == x2
    (left, width), (inner_left, _) = bars(drawn)
    assert inner_left < float(x1) < left + width


@pytest.mark.parametrize("strange", [5, "x", [], {}, [5], {"stuck": [], "open": 5, "states": 7}, {"states": [5, {}]}])
def test_strange_evidence_breaks_nothing(strange: object) -> None:
    steps = [{"source": [1], "target": {}, "kind": [], "key": {}}, {"source": {}, "target": [1]}]
    anomaly = {"message": 5, "ops": [{"op": strange, "mops": strange, "invoke_time": 1}], "steps": steps}
    anomalies = {"odd": [{**anomaly, "details": strange}]}
    assert "odd" in findings({"m": {"valid": False, "anomalies": anomalies, "not": strange}})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"offsets_s": {"t1": -0.2, "t2": 0.15}, "bound_s": 0.5}, "clocks -0.2 to +0.15 s ahead, 0.5 s allowed"),
        ({"states": {"t1": "dead"}, "voters": ["m1"]}, "t1 dead"),
        ({"voters": ["m1", "m3"], "removed": ["m2"]}, "voters m1, m3; removed m2"),
        ({"offsets_s": {"t1": "odd"}, "long": "x" * 999}, "offsets s {'t1': 'odd'}"),
    ],
)
def test_what_probes_saw_is_told_in_words(found: dict[str, object], words: str) -> None:
    assert evidence(found) == words


def test_names_of_faults_that_last_at_the_same_time_stand_below_each_other() -> None:
    """Of a run with `clock-jump` and `partition` both names were written at one place."""
    lasting = [Fault(kind, i, None, ("t1",), 0, 0, 10**9, 10**9) for i, kind in enumerate(("clock-jump", "partition"))]
    drawn = str(timeline([op(1, 10, 20), op(2, 30, 40)], lasting, {"clock-jump": "#111111", "partition": "#222222"}))
    heights = [re.search(rf'y="(\d+)"[^>]*>{kind}', drawn) for kind in ("clock-jump", "partition")]
    assert [found and found[1] for found in heights] == ["14", "24"]
