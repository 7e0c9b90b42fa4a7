"""What clients ask of a coordinator, checked before anything is sent: each mistake is a typed refusal (Q1); pure."""

from __future__ import annotations

from collections.abc import Mapping

from cluster.log.frames import OtherVersion
from cluster.quorum.messages import READ_REPAIRS, ReadPartition
from cluster.quorum.mutation import InvalidMutation, PartitionMutation, check_mutation, decode_mutation
from cluster.quorum.replica_sets import UNPLACED, ReplicaSet
from cluster.quorum.slices import InvalidToken, Slice, resumed
from cluster.wire.messages import ErrorReply
from harness.errors import UserError
from harness.levels import BY_DATA_CENTRE, LEVELS, Demand, demand

MOST_BYTES = 1 << 20
"""A mutation may be so long, encoded."""

MOST_AHEAD_NS = 3_600_000_000_000
"""A timestamp may lie so far ahead of the coordinator's clock: one beyond would win over every later write."""


class Invalid(Exception):
    """Nothing was sent: `error_reply` says what is wrong with the request."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.error_reply = ErrorReply(kind, message, definite=True)


def checked_mutation(encoded: bytes, wall_ns: int) -> PartitionMutation:
    """The mutation of a write; timestamps are in ns and positive. Raises Invalid."""
    if len(encoded) > MOST_BYTES:
        raise Invalid("TOO_LARGE", f"the mutation has {len(encoded)} bytes; the limit is {MOST_BYTES}")
    try:
        mutation = decode_mutation(encoded)
        check_mutation(mutation)
    except (InvalidMutation, OtherVersion) as error:
        raise Invalid("INVALID", str(error)) from error
    for timestamp in timestamps_of(mutation):
        if not 0 < timestamp <= wall_ns + MOST_AHEAD_NS:
            raise Invalid("TIMESTAMP_OUT_OF_BOUNDS", f"the timestamp {timestamp} is not positive or too far ahead")
    return mutation


def timestamps_of(mutation: PartitionMutation) -> list[int]:
    """Every timestamp in it."""
    contents = mutation.contents
    deletions = [contents.deletion, *(each.deletion for each in contents.ranges)]
    deletions += [row.deletion for row in contents.rows]
    found = [each.timestamp for each in deletions if each is not None]
    found += [cell.timestamp for row in contents.rows for cell in row.cells]
    return found + [row.marker for row in contents.rows if row.marker is not None]


def checked_slice(request: ReadPartition) -> Slice:
    """What a read asks for, behind the page that its token continues; raises Invalid."""
    if request.read_repair not in READ_REPAIRS:
        raise Invalid("INVALID", f"read repair is one of {', '.join(READ_REPAIRS)}, not {request.read_repair!r}")
    if request.slice.limit is not None and request.slice.limit < 1:
        raise Invalid("INVALID", f"a limit is at least 1, not {request.slice.limit}")
    if request.token is None:
        return request.slice
    try:
        return resumed(request.table, request.slice, request.token)
    except InvalidToken as error:
        raise Invalid("INVALID_TOKEN", str(error)) from error


def local_demand(level: str, data_centre: str, replicas: ReplicaSet) -> Demand:
    """What the level asks of this replica set, from this data centre; raises Invalid."""
    if level not in LEVELS:
        raise Invalid("UNKNOWN_LEVEL", f"there is no consistency level {level!r}")
    factors = replicas.factors
    try:
        if UNPLACED in factors and level in BY_DATA_CENTRE:
            return _cautious_demand(level, data_centre, factors)
        return demand(level, data_centre, factors)
    except UserError as error:
        raise Invalid("LEVEL_UNSATISFIABLE", str(error)) from error


def _cautious_demand(level: str, data_centre: str, factors: Mapping[str, int]) -> Demand:
    """The same where masters have not heard of some replicas since they started: any of these may stand here too.

    So a local level asks for what it would ask for then, of replicas that are known to stand here.
    """
    known = factors.get(data_centre, 0)
    wanted = demand(level, data_centre, {data_centre: known + factors[UNPLACED]})
    if level == "EACH_QUORUM" or wanted.total > known:
        message = f"the masters have not heard of {factors[UNPLACED]} replicas, which may stand in any data centre"
        raise Invalid("NOT_LOCATED", message)
    return wanted
