"""When a finding became inevitable: how often it shows if the simulator decides anew from a time on, over that time.

    share(t) = of BRANCHES runs by the same inputs, whose decisions are the recorded ones before t, those that show it

Faults and operations stay what they were; each branch has a key of its own for what it draws. A bisection finds where
the share rises from 20 % (or what it is at the beginning, if that is more) to 80 %: what happened there, by faults,
leaders and the nodes' logs, is what made the finding happen.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from assay.reproduce.inputs import Inputs, load_inputs, save_inputs
from assay.reproduce.museum import finding_of
from assay.reproduce.rates import wilson
from assay.reproduce.saved_run import SavedRun
from assay.reproduce.smaller_inputs import explicit
from assay.runner import Keep, RunOrder, run_orders, warm
from harness.atomic_write import scratch_folder
from harness.errors import UserError
from harness.history.rundir import write_atomic
from harness.run.stopping import AskedToEnd
from harness.verdict.facts import load_faults, load_leaderships
from harness.verdict.faults import FOREVER_NS

BRANCHES: Final = 8
LOW, HIGH = 0.2, 0.8
NARROW_S: Final = 0.25
"""The bisection ends once the rise lies between two times no further from each other."""
BEHIND_S: Final = 0.5
"""So long after the finding the curve ends."""
MOST_LINES: Final = 20
"""Lines of the nodes' logs that are told of the rise."""
BILLION: Final = 1_000_000_000


class CurvePoint(msgspec.Struct, frozen=True):
    """Of `runs` branches at a time, seconds since the history began, `hits` showed the finding."""

    at_s: float
    hits: int
    runs: int

    @property
    def share(self) -> float:
        return self.hits / self.runs if self.runs else 0.0

    def line(self) -> str:
        """The point, for people."""
        low, high = wilson(self.hits, self.runs)
        return f"{self.at_s:8.2f} s  {'#' * round(20 * self.share):20}  {self.share:.0%} ({low:.0%} to {high:.0%})"


class Curve(msgspec.Struct, frozen=True):
    """The points in order, between which times the share rises (None: it does not), what happened there, and the file
    that has the picture."""

    points: tuple[CurvePoint, ...]
    rise: tuple[float, float] | None
    events: tuple[str, ...] = ()
    picture: str | None = None

    def lines(self) -> Iterator[str]:
        """What is printed for people."""
        yield from (f"  {point.line()}" for point in self.points)
        if self.rise is None:
            where = "from the beginning" if self.points[0].share >= LOW else "nowhere"
            yield f"  The share rises {where}: what the simulator decided is not what made it happen."
        else:
            low = max(LOW, self.points[0].share)
            yield f"  It rises from {low:.0%} to {HIGH:.0%} between {self.rise[0]:.2f} and {self.rise[1]:.2f} s; then:"
            yield from (f"    {event}" for event in self.events)
        if self.picture is not None:
            yield f"  picture: {self.picture}"


def climbed(point_at: Callable[[float], CurvePoint], end_s: float, narrow_s: float = NARROW_S) -> Curve:
    """The curve from 0 to `end_s`, finest where it rises; `point_at` is asked for each point once."""
    points = [point_at(0.0), point_at(end_s)]
    while True:
        rises = [(low, high) for low, high in pairwise(points) if low.share < (LOW + HIGH) / 2 <= high.share]
        if not rises or rises[-1][1].at_s - rises[-1][0].at_s <= narrow_s:
            break
        low, high = rises[-1]
        points.append(point_at((low.at_s + high.at_s) / 2))
        points.sort(key=lambda point: point.at_s)
    if not rises:
        return Curve(tuple(points), None)
    least = max(LOW, points[0].share)
    below = [point.at_s for point in points if point.share <= least and point.at_s <= rises[-1][0].at_s]
    above = [point.at_s for point in points if point.share >= HIGH and point.at_s >= rises[-1][1].at_s]
    return Curve(tuple(points), (max(below, default=0.0), min(above, default=end_s)))


def likelihood(run: SavedRun, jobs: int, asked: AskedToEnd, picture: Path | None = None) -> Curve:
    """The curve of a simulated run, also drawn into a file; raises UserError for a run that shows another finding when
    it is made again."""
    wanted = run.refuted("follow")
    start_ns = round(run.history_start_s * BILLION)
    with scratch_folder("likelihood") as scratch:
        warm(run.options.workload)
        folder = Path(scratch) / "whole"
        recording = replace(run.options, record=folder, store=Path(scratch))
        with closing(run_orders([RunOrder(recording, Keep.NOTHING, measured=True)], 1, asked=asked)) as found:
            made = finding_of(next(found)[1])
        if made is None or made.family != wanted.family:
            raise UserError(f"{run.path} made again is another run; `assay replay` says what differs.")
        whole = explicit(load_inputs(folder), run.load_s)

        def point_at(at_s: float) -> CurvePoint:
            branches = branches_at(whole, start_ns + int(at_s * BILLION))
            orders = (_order(each, Path(scratch) / f"branch-{number}", number) for number, each in enumerate(branches))
            with closing(run_orders(orders, jobs, asked=asked)) as found:
                shown = [finding_of(result) for _, result in found]
            hits = sum(each is not None and each.family == wanted.family for each in shown)
            return CurvePoint(at_s, hits, len(shown))

        found_s = whole.options.time_limit if wanted.at_s is None else max(0.0, wanted.at_s - start_ns / BILLION)
        curve = climbed(point_at, round(found_s + BEHIND_S, 3))
    if curve.rise is not None:
        curve = msgspec.structs.replace(curve, events=tuple(events_in(run, *curve.rise)))
    if picture is None:
        return curve
    write_atomic(picture, drawn(run, curve))
    return msgspec.structs.replace(curve, picture=str(picture))


def drawn(run: SavedRun, curve: Curve) -> bytes:
    """The curve over the faults and leaders of its run; an SVG."""
    from results.plots import SharePoint, shares_over_time
    from results.saved import load

    shares = [SharePoint(point.at_s, point.share, *wilson(point.hits, point.runs)) for point in curve.points]
    title = "How often the finding shows if the simulator decides anew from a time on"
    return shares_over_time(title, shares, curve.rise, load(run.rundir))


def branches_at(whole: Inputs, from_ns: int) -> list[Inputs]:
    """The inputs whose decisions are drawn anew from this virtual time on, each by a key of its own."""
    return [replace(whole, anew_ns=from_ns, key=f"branch-{number}") for number in range(BRANCHES)]


def _order(inputs: Inputs, folder: Path, number: int) -> RunOrder:
    shutil.rmtree(folder, ignore_errors=True)
    save_inputs(inputs, folder)
    options = replace(inputs.options, inputs=folder, store=folder.parent)
    return RunOrder(options, Keep.NOTHING, number, measured=True, refusal_fails=True)


def events_in(run: SavedRun, begin_s: float, end_s: float) -> Iterator[str]:
    """What the run went through between two times, seconds since the history began: faults, leaders, and what the nodes
    logged."""
    begin_ns, end_ns = int(begin_s * BILLION), int(end_s * BILLION)
    for fault in load_faults(run.rundir):
        spans = fault.seen(FOREVER_NS)
        if any(first <= end_ns and begin_ns <= last for first, last in spans):
            yield f"{fault.kind} {fault.variant or ''} of {', '.join(fault.targets) or 'nobody'} was in effect"
    for led in load_leaderships(run.rundir):
        if led.since_ns <= end_ns and begin_ns <= led.seen_ns:
            yield f"{led.node} led {led.group} in term {led.term} from {led.since_ns / BILLION:.2f} s on"
    lines = [line for line in _logged(run) if begin_ns <= line[0] <= end_ns]
    yield from (f"{at_ns / BILLION:.3f} s  {node}: {text}" for at_ns, node, text in lines[:MOST_LINES])
    if len(lines) > MOST_LINES:
        yield f"and {len(lines) - MOST_LINES:,} more lines of the nodes' logs"


def _logged(run: SavedRun) -> list[tuple[int, str, str]]:
    """The lines of the nodes' logs: when, ns since the history began, of which node, and the line."""
    from results.node_logs import NodeLogs, wall_zero_ns
    from results.plots import clock_readings
    from results.saved import load

    saved = load(run.rundir)
    clocks = {} if saved.points is None else clock_readings(saved.points)
    return NodeLogs(run.rundir.nodes, run.path, wall_zero_ns(saved.run, saved.outcome), clocks).lines()
