"""How far each range of a cluster is closed and resolved, replica by replica, as an operator asks (R4 to R7).

What nodes say is of moments that lie a round trip apart: a lag is that of a replica by the clock of its own node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from cluster.client import operating
from cluster.client.client import ClusterClient
from cluster.health.check import HealthRow, in_columns
from cluster.wire.messages import Regional, Replicas
from cluster.wire.nouns import describe_replicas
from cluster.wire.operating import RangesReply, RangeState
from harness.errors import DefiniteError, IndefiniteError

_MS = 1e6


class RangeReplicaReport(msgspec.Struct, frozen=True):
    """One replica. `closed_lag_ms` and `resolved_lag_ms`: how far behind its node's clock; None where nothing is closed
    there. `answered`: how many reads found their time closed by the log, by what was copied, by the side transport."""

    node: str
    zone: str
    role: str
    closed_lag_ms: float | None
    resolved_lag_ms: float | None
    answered: dict[str, int]


class RangeReport(msgspec.Struct, frozen=True):
    """One range. It is closed `policy_lag_ms` behind the clock; below 0 it leads it by so much. `c_lag_ms` is how far
    C, as its holder has assigned it last, lies behind, and `pushed` how many writes the holder has pushed above C."""

    range_id: str
    table: str
    holder: str | None
    policy_lag_ms: float | None
    c_lag_ms: float | None
    pushed: int
    wanted: str
    stands: str
    as_wanted: bool
    replicas: tuple[RangeReplicaReport, ...]


class RangesReport(msgspec.Struct, frozen=True):
    """All ranges, or those of a table, and the tablet servers that did not say what they know."""

    ranges: tuple[RangeReport, ...]
    silent: tuple[str, ...] = ()

    @property
    def served(self) -> bool:
        """Whether every range has a holder of its lease."""
        return all(each.holder is not None for each in self.ranges)


async def look_at_ranges(client: ClusterClient, table: str = "") -> RangesReport:
    """Ask the leader master where ranges are and each tablet server how far they are closed.

    Raises DefiniteError (`not-found` where there is no such table) and IndefiniteError.
    """
    servers = await client.tablet_servers()
    tables = [each.name for each in await client.list_tables() if each.design == "raft"]
    if table and table not in tables:
        raise DefiniteError("not-found", f"there is no table {table!r} of ranges")
    wanted: dict[str, tuple[str, Replicas]] = {}
    for name in [table] if table else sorted(tables):
        replicas = (await client.catalog.table_schema(name)).replicas
        wanted |= {each.tablet_id: (name, replicas) for each in (await client.table_locations(name)).tablets}
    answers = await asyncio.gather(*(_ask(client, server.address) for server in servers.servers))
    zones = {server.node_id: zone for server, zone in zip(servers.servers, servers.zones, strict=True)}
    silent = [server.node_id for server, said in zip(servers.servers, answers, strict=True) if said is None]
    known = [said for said in answers if said is not None]
    ranges = tuple(report_of(range_id, *about, known, zones) for range_id, about in wanted.items())
    return RangesReport(ranges, tuple(silent))


async def _ask(client: ClusterClient, address: str) -> RangesReply | None:
    try:
        return await operating.ranges_of(client, address)
    except (DefiniteError, IndefiniteError):
        return None


def report_of(
    range_id: str, table: str, wanted: Replicas, answers: Sequence[RangesReply], zones: Mapping[str, str]
) -> RangeReport:
    """What nodes say of one range; of two that take themselves for its holder the one that has closed more is it."""
    said = [(answer, state) for answer in answers for state in answer.ranges if state.range_id == range_id]
    holding = [each for each in said if each[1].holder]
    answer, held = max(holding, key=lambda each: each[1].assigned, default=(None, None))
    members = held or max((state for _, state in said), key=lambda state: state.closed, default=None)
    voters = Counter(zones.get(each, "?") for each in members.voters) if members else Counter[str]()
    learners = Counter(zones.get(each, "?") for each in members.learners) if members else Counter[str]()
    stands = Regional(zones.get(answer.node_id, "?") if answer else "", dict(voters), dict(learners))
    return RangeReport(
        range_id=range_id,
        table=table,
        holder=None if answer is None else answer.node_id,
        policy_lag_ms=None if held is None else held.lag_ns / _MS,
        c_lag_ms=None if answer is None or held is None else _lag_ms(answer, held.assigned),
        pushed=0 if held is None else held.pushed,
        wanted=describe_replicas(wanted),
        stands=_stands(stands),
        as_wanted=_as_wanted(wanted, stands),
        replicas=tuple(_replica(each, state, zones) for each, state in said),
    )


def _replica(answer: RangesReply, state: RangeState, zones: Mapping[str, str]) -> RangeReplicaReport:
    node = answer.node_id
    role = "holder" if state.holder else "learner" if node in state.learners else "voter"
    lags = _lag_ms(answer, state.closed), _lag_ms(answer, state.resolved)
    return RangeReplicaReport(node, zones.get(node, "?"), role, *lags, state.answered)


def _lag_ms(answer: RangesReply, timestamp: int) -> float | None:
    return round((answer.shown - timestamp) / _MS, 1) if timestamp > 0 else None


def _stands(stands: Regional) -> str:
    zones = {"voters": stands.voters, "learners": stands.learners}
    told = (f"{what} {', '.join(f'{each}:{zones[what][each]}' for each in sorted(zones[what]))}" for what in zones)
    return "; ".join((f"lease in {stands.home or 'no zone'}", *told))


def _as_wanted(wanted: Replicas, stands: Regional) -> bool:
    """Whether as many replicas of each kind stand where they are wanted, and the lease is at home."""
    if not isinstance(wanted, Regional):
        return sum(stands.voters.values()) == wanted
    there = (wanted.voters, wanted.learners) == (stands.voters, stands.learners)
    return there and wanted.home in ("", stands.home)


# ---- as text ----


def ranges_text(report: RangesReport) -> str:
    """A table of ranges and one of their replicas, then who did not answer."""
    return "\n".join(_lines(report))


def _lines(report: RangesReport) -> Iterator[str]:
    if not report.ranges:
        yield "There are no ranges."
    for title, rows in (("Ranges", _range_rows(report)), ("Replicas", _replica_rows(report))):
        if rows:
            yield title
            yield from in_columns(rows)
            yield ""
    if report.silent:
        yield f"No answer: {' '.join(report.silent)}"


def _range_rows(report: RangesReport) -> list[HealthRow]:
    return [
        HealthRow(
            each.range_id,
            {
                "table": each.table,
                "policy": _policy(each.policy_lag_ms),
                "holder": each.holder or "nobody",
                "C": _behind(each.c_lag_ms),
                "pushed": str(each.pushed),
                "wanted": each.wanted,
                "stands": each.stands + ("" if each.as_wanted else " (not as wanted)"),
            },
        )
        for each in report.ranges
    ]


def _replica_rows(report: RangesReport) -> list[HealthRow]:
    return [
        HealthRow(
            f"{each.range_id} {replica.node}",
            {
                "zone": replica.zone,
                "role": replica.role,
                "closed": _behind(replica.closed_lag_ms),
                "resolved": _behind(replica.resolved_lag_ms),
                **{f"by {name}": str(count) for name, count in replica.answered.items()},
            },
        )
        for each in report.ranges
        for replica in each.replicas
    ]


def _policy(lag_ms: float | None) -> str:
    return "?" if lag_ms is None else f"lag {lag_ms:g} ms" if lag_ms >= 0 else f"lead {-lag_ms:g} ms"


def _behind(lag_ms: float | None) -> str:
    return "never" if lag_ms is None else f"{lag_ms:g} ms ago" if lag_ms >= 0 else f"{-lag_ms:g} ms ahead"
