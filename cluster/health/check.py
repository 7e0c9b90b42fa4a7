"""What is wrong with a cluster, as pure decisions over its facts: masters, tablet servers, tables, tablets, strays.

Beside them a look at a cluster, until it is healthy or time is over, and the report as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import msgspec

from cluster.client.client import ClusterClient
from cluster.health.facts import CatalogFacts, ClusterFacts, collect
from cluster.master.records import TableState, TabletState
from cluster.master.regional import learners_wanted
from cluster.wire.messages import CATALOG_GROUP, Regional, Replicas, TableInfo, TabletLocation, voters_wanted
from cluster.wire.nouns import describe_replicas
from harness.ports.api import Clock, node_of
from harness.protocols import GroupStatus, Node, NodeStatus
from harness.run.allowances import RepairProgress

MASTER, TSERVER = "master", "tserver"


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: in which part of the cluster (masters, tservers, tables, tablets or replicas), with
    what, and how, in a sentence."""

    section: str
    subject: str
    message: str


class HealthRow(msgspec.Struct, frozen=True):
    """A line of the report: what it is about, and facts by name."""

    subject: str
    facts: dict[str, str]


class ClusterReport(msgspec.Struct, frozen=True):
    """What was looked at, by section, and all that is wrong with it; `healthy` if nothing is.

    Raises ValueError where the two contradict each other, as in a file that was edited.
    """

    healthy: bool
    problems: tuple[Problem, ...]
    masters: tuple[HealthRow, ...] = ()
    tservers: tuple[HealthRow, ...] = ()
    tables: tuple[HealthRow, ...] = ()
    checked: dict[str, int] = {}

    def __post_init__(self) -> None:
        if self.healthy == bool(self.problems):
            raise ValueError("it contradicts itself about what is wrong")


def examine(facts: ClusterFacts) -> ClusterReport:
    """The report on a cluster."""
    problems = tuple(_problems(facts))
    catalog = facts.catalog
    return ClusterReport(
        not problems,
        problems,
        tuple(_rows(facts, MASTER)),
        tuple(_rows(facts, TSERVER)),
        () if catalog is None else tuple(_table_row(catalog, table) for table in catalog.tables),
        _counts(facts),
    )


def _problems(facts: ClusterFacts) -> Iterator[Problem]:
    yield from _silent(facts)
    yield from _masters(facts)
    yield from _unequal(facts)
    if facts.catalog is None:
        yield Problem("masters", CATALOG_GROUP, f"no leader master answers: {facts.silence}")
        return
    yield from _servers(facts, facts.catalog)
    held = facts.groups(TSERVER)
    for table in facts.catalog.tables:
        tablets = facts.catalog.tablets.get(table.table_id, ())
        yield from _table(table, tablets)
        for tablet in tablets:
            replicas = held.get(tablet.tablet_id, {})
            wanted = facts.catalog.wanted[table.table_id]
            yield from _tablet(table, tablet, replicas, wanted)
            if isinstance(wanted, Regional) and table.design == "raft":
                yield from _placed(_subject(table, tablet), replicas, wanted, facts)
            yield from _schema(table, tablet, replicas, facts)
    yield from _strays(facts.catalog, held)


# ---- nodes ----


def _silent(facts: ClusterFacts) -> Iterator[Problem]:
    for node in facts.nodes:
        if facts.statuses.get(node.name) is None:
            yield Problem(f"{node.role}s", node.name, "does not answer its status")


def _masters(facts: ClusterFacts) -> Iterator[Problem]:
    """One leads, and all members know the same configuration; a master that was removed may not have heard of it."""
    found = facts.groups(MASTER).get(CATALOG_GROUP, {})
    if not found:
        yield Problem("masters", CATALOG_GROUP, "no master holds the catalog")
        return
    newest = max(found.values(), key=lambda status: (status.config_index, status.term))
    members = [node_of(member) for member in (*newest.voters, *newest.learners)]
    replicas = {name: status for name, status in found.items() if name in members}
    leaders = [name for name, status in replicas.items() if status.role == "leader"]
    if len(leaders) != 1:
        who = ", ".join(leaders) or "nobody"
        yield Problem("masters", CATALOG_GROUP, f"{who} leads where one master has to")
    terms = {name: status.term for name, status in replicas.items()}
    if len(set(terms.values())) > 1:
        yield Problem("masters", CATALOG_GROUP, f"the masters are in different terms: {_by_name(terms)}")
    configurations = {name: status.config_index for name, status in replicas.items()}
    if len(set(configurations.values())) > 1:
        known = _by_name(configurations)
        yield Problem("masters", CATALOG_GROUP, f"the masters know configurations of different entries: {known}")
    for voter in newest.voters:
        if node_of(voter) not in replicas:
            yield Problem("masters", voter, "is a voter of the masters' group and holds no replica of it")


def _servers(facts: ClusterFacts, catalog: CatalogFacts) -> Iterator[Problem]:
    """Each is known to the leader master, and alive by its heartbeats (M3)."""
    live = {node_of(server) for server in catalog.servers.live}
    for node in facts.nodes:
        if node.role == TSERVER and node.name not in live:
            yield Problem("tservers", node.name, "is not live by what the leader master has heard")
    yield from _unheard(facts, catalog)


def _unheard(facts: ClusterFacts, catalog: CatalogFacts) -> Iterator[Problem]:
    """Every master, whoever leads, has heard of every tablet server, so that the next leader knows them too (M3)."""
    for master, heard in catalog.heard.items():
        if heard is None:
            yield Problem("masters", master, "does not say which tablet servers it has heard of")
            continue
        live = {node_of(server) for server in heard}
        silent = [node.name for node in facts.nodes if node.role == TSERVER and node.name not in live]
        if silent:
            yield Problem("masters", master, f"has not heard of {', '.join(silent)} lately")


# ---- replicas ----


def _unequal(facts: ClusterFacts) -> Iterator[Problem]:
    """Replicas of a group that have applied the same entries are equal, by their checksums (G10)."""
    for role in (MASTER, TSERVER):
        for group, replicas in facts.groups(role).items():
            by_index: dict[int, dict[str, int]] = {}
            for name, status in replicas.items():
                if status.digest:
                    by_index.setdefault(status.applied_index, {})[name] = status.digest
            for index, digests in by_index.items():
                if len(set(digests.values())) > 1:
                    message = f"replicas on {', '.join(digests)} differ at applied index {index}"
                    yield Problem("replicas", group, message)


def _table(table: TableInfo, tablets: Sequence[TabletLocation]) -> Iterator[Problem]:
    if table.state != TableState.RUNNING:
        yield Problem("tables", table.name, f"is {table.state}, at schema version {table.version}")
    buckets = max((tablet.partition.buckets for tablet in tablets), default=1)
    found = sorted(tablet.partition.bucket for tablet in tablets)
    if found != list(range(buckets)):
        shown = " ".join(map(str, found)) or "none"
        yield Problem("tables", table.name, f"has tablets for partitions {shown} of {buckets}")


def _tablet(
    table: TableInfo, tablet: TabletLocation, held: Mapping[str, GroupStatus], wanted: Replicas
) -> Iterator[Problem]:
    """A tablet runs, is led, and its replicas are where the catalog and its own configuration say."""
    subject, factor = _subject(table, tablet), voters_wanted(wanted) + learners_wanted(wanted)
    if tablet.state != TabletState.RUNNING:
        yield Problem("tablets", subject, f"is {tablet.state}")
        return
    by_catalog = {node_of(replica.node_id) for replica in tablet.replicas}
    missing = sorted(by_catalog - set(held))
    if missing:
        yield Problem("tablets", subject, f"has no replica on {', '.join(missing)}, where the catalog has one")
    count = len(tablet.replicas) if len(tablet.replicas) > factor else len(by_catalog)
    if count != factor:
        yield Problem("tablets", subject, f"has {count} replicas by the catalog, and should have {factor}")
    if table.design == "raft":
        yield from _led(subject, by_catalog, held, wanted)


def _subject(table: TableInfo, tablet: TabletLocation) -> str:
    return f"{table.name}:{tablet.partition.bucket} ({tablet.tablet_id})"


def _schema(
    table: TableInfo, tablet: TabletLocation, held: Mapping[str, GroupStatus], facts: ClusterFacts
) -> Iterator[Problem]:
    """A table that runs has its schema at all leaders, or at all replicas where none leads (M5)."""
    if table.state != TableState.RUNNING:
        return
    for name, replica in held.items():
        version = facts.schema_versions(name).get(tablet.tablet_id)
        tells = replica.role == "replica" or (replica.role == "leader" and replica.lease_valid)
        if tells and version != table.version:
            difference = "does not say its schema version" if version is None else f"has schema version {version}"
            yield Problem("tablets", _subject(table, tablet), f"{difference} on {name}; the table has {table.version}")


def _led(subject: str, by_catalog: set[str], held: Mapping[str, GroupStatus], wanted: Replicas) -> Iterator[Problem]:
    newest = _newest_leader(held)
    if newest is None:
        yield Problem("tablets", subject, "has no leader with a lease")
        return
    voters = {node_of(voter) for voter in newest.voters}
    serving = voters.union(map(node_of, newest.learners)) if isinstance(wanted, Regional) else voters
    if serving != by_catalog:
        names = ", ".join(sorted(serving)), ", ".join(sorted(by_catalog))
        yield Problem("tablets", subject, "has the voters {}; the catalog has {}".format(*names))
    if newest.learners and len(newest.voters) >= voters_wanted(wanted) and not isinstance(wanted, Regional):
        yield Problem("tablets", subject, f"has the learners {', '.join(newest.learners)} beside enough voters")
    members = voters | {node_of(learner) for learner in newest.learners}
    for name in sorted(set(held) - members):
        if not _awaits(held[name]):
            yield Problem("replicas", subject, f"has a replica on {name}, which is not in its configuration")


def _newest_leader(held: Mapping[str, GroupStatus]) -> GroupStatus | None:
    leading = [status for status in held.values() if status.role == "leader" and status.lease_valid]
    return max(leading, key=lambda status: status.term, default=None)


def _placed(subject: str, held: Mapping[str, GroupStatus], wanted: Regional, facts: ClusterFacts) -> Iterator[Problem]:
    """Replicas of a REGIONAL table stand in the zones that it names, and the lease is at home (R6)."""
    newest, zones = _newest_leader(held), {node.name: node.zone for node in facts.nodes}
    if newest is None:
        return
    for what, members, counts in (
        ("voters", newest.voters, wanted.voters),
        ("learners", newest.learners, wanted.learners),
    ):
        there = Counter(zones.get(node_of(member), "nowhere") for member in members)
        if there != counts:
            shown = ", ".join(f"{zone}:{count}" for zone, count in sorted(there.items())) or "nowhere"
            yield Problem("tablets", subject, f"has {what} in {shown}; the table wants {describe_replicas(wanted)}")
    leader = next(name for name, status in held.items() if status is newest)
    if wanted.home and zones.get(leader) != wanted.home:
        yield Problem("tablets", subject, f"is led by {leader} in {zones.get(leader)}, and at home in {wanted.home}")


def _awaits(status: GroupStatus) -> bool:
    """Whether a replica was created to be added and nobody has told it anything yet; the answer may have been lost.

    It holds nothing, does nothing, and goes with the next configuration that is without it (M9, case 3).
    """
    return status.role == "learner" and not status.voters and not status.learners and status.last_index == 0


def _strays(catalog: CatalogFacts, held: Mapping[str, Mapping[str, GroupStatus]]) -> Iterator[Problem]:
    """Replicas of tablets that no table has: deletions that were not carried out, or orphans, which stay (M9)."""
    for tablet_id, state in catalog.hosted.items():
        servers = ", ".join(sorted(held.get(tablet_id, {})))
        if state is None:
            yield Problem("replicas", tablet_id, f"is on {servers}, and the catalog has no record of it: an orphan")
        elif state in (TabletState.DELETED, TabletState.REPLACED):
            yield Problem("replicas", tablet_id, f"is {state}, and still on {servers}")


# ---- the report's lines ----


def _rows(facts: ClusterFacts, role: str) -> Iterator[HealthRow]:
    for node in facts.nodes:
        if node.role == role:
            status = facts.statuses.get(node.name)
            yield HealthRow(node.name, {"state": "silent"} if status is None else _node_facts(status))


def _node_facts(status: NodeStatus) -> dict[str, str]:
    catalog = next((group for group in status.groups if group.group == CATALOG_GROUP), None)
    if catalog is not None:
        return {
            "state": catalog.role,
            "term": str(catalog.term),
            "applied": str(catalog.applied_index),
            "configuration": f"{catalog.config_index} ({', '.join(catalog.voters)})",
        }
    leads = sum(group.role == "leader" for group in status.groups)
    return {"state": "running", "tablets": str(len(status.groups)), "leads": str(leads)}


def _table_row(catalog: CatalogFacts, table: TableInfo) -> HealthRow:
    tablets = catalog.tablets.get(table.table_id, ())
    running = sum(tablet.state == TabletState.RUNNING for tablet in tablets)
    return HealthRow(
        table.name,
        {
            "state": table.state,
            "schema version": str(table.version),
            "tablets": f"{running} of {len(tablets)} run",
            "replicas": describe_replicas(catalog.wanted[table.table_id]),
        },
    )


def _counts(facts: ClusterFacts) -> dict[str, int]:
    catalog = facts.catalog
    tablets = 0 if catalog is None else sum(map(len, catalog.tablets.values()))
    held = sum(len(replicas) for replicas in facts.groups(TSERVER).values())
    tables = 0 if catalog is None else len(catalog.tables)
    return {"nodes": len(facts.nodes), "tables": tables, "tablets": tablets, "replicas": held}


def _by_name(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


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


def report_text(report: ClusterReport) -> str:
    """The report as text: a table a section, then what is wrong, then one line that says it all."""
    return "\n".join(_lines(report))


def _lines(report: ClusterReport) -> Iterator[str]:
    sections = (("Masters", report.masters), ("Tablet servers", report.tservers), ("Tables", report.tables))
    for title, rows in sections:
        if rows:
            yield title
            yield from in_columns(rows)
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


def in_columns(rows: Sequence[HealthRow]) -> Iterator[str]:
    """Lines of a table with a column for each fact that any of the rows has."""
    heads = ["name", *dict.fromkeys(name for row in rows for name in row.facts)]
    cells = [heads, *([row.subject, *(row.facts.get(name, "") for name in heads[1:])] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    for line in cells:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
