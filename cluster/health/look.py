"""Looking at a cluster until it is healthy or time is over, and telling what was seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from cluster.client.client import ClusterClient
from cluster.health.check import ClusterReport, HealthRow, examine
from cluster.health.facts import collect
from harness.ports.api import Clock
from harness.protocols import Node, NodeStatus
from harness.run.allowances import RepairProgress

LOOK_GAP_S = 0.25


async def look(
    client: ClusterClient,
    nodes: Sequence[Node],
    status: Callable[[str], Awaitable[NodeStatus | None]],
    clock: Clock,
    timeout_s: float,
) -> ClusterReport:
    """The first healthy report, or the last one when it came no nearer to that for `timeout_s`."""
    nearing = RepairProgress(clock, timeout_s)
    while True:
        facts = await collect(client, nodes, status)
        report = examine(facts)
        nearing.note(dict.fromkeys(report.problems, facts.entries_lacked()))
        if report.healthy or nearing.over():
            return report
        await clock.sleep(LOOK_GAP_S)


def told(report: ClusterReport) -> str:
    """The report as text: a table a section, then what is wrong, then one line that says it all."""
    return "\n".join(_lines(report))


def _lines(report: ClusterReport) -> Iterator[str]:
    sections = (("Masters", report.masters), ("Tablet servers", report.tservers), ("Tables", report.tables))
    for title, rows in sections:
        if rows:
            yield title
            yield from _table(rows)
            yield ""
    counts = ", ".join(f"{count} {name}" for name, count in report.checked.items())
    if report.healthy:
        yield f"HEALTHY: {counts}"
        return
    yield "Problems"
    for problem in report.problems:
        yield f"  {problem.section}: {problem.subject} {problem.message}"
    yield ""
    number = len(report.problems)
    yield f"NOT HEALTHY: {number} problem{'s' if number > 1 else ''}; {counts}"


def _table(rows: Sequence[HealthRow]) -> Iterator[str]:
    heads = ["name", *dict.fromkeys(name for row in rows for name in row.facts)]
    cells = [heads, *([row.subject, *(row.facts.get(name, "") for name in heads[1:])] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    for line in cells:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
