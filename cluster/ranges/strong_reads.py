"""Strong reads at any replica, as Spanner serves them (R8): by a time and a position that the leaseholder tells.

"从 leader 获取对应的 log position，并等待本地回放超过这个 log position 之后才进行读取": get a log position from the
leader, and read only once the local replay has passed it. The leaseholder's answer is small; what is read is nearby.
"""

from __future__ import annotations

import msgspec

from cluster.groups.group import Group, OutcomeUnknown
from cluster.ranges import requests
from cluster.ranges.closed_here import ClosedHere
from cluster.ranges.observer import RangeObserver
from cluster.ranges.requests import Read
from cluster.ranges.tablet import TabletMachine
from cluster.wire.messages import AskReadTime, ErrorReply, ReadTime, decode_reply, encode
from cluster.wire.staleness import HowServed
from harness.ports.api import Address, CallLost, Ports, Refused, Unreachable


class StrongReads:
    """Of one replica that does not hold the lease; `attach` it to its group when that is open."""

    def __init__(
        self, ports: Ports, machine: TabletMachine, closed: ClosedHere, observer: RangeObserver, timeout_s: float
    ) -> None:
        self._network, self._monotonic_ns = ports.network, ports.clock.monotonic_ns
        self._machine, self._closed, self._observer, self._timeout_s = machine, closed, observer, timeout_s
        self._log: Group | None = None
        self._group_id = ""

    def attach(self, log: Group, group_id: str) -> None:
        """The replica's group is open."""
        self._log, self._group_id = log, group_id

    async def read(self, read: Read, timestamp: int | None = None, blocked_ns: int = 0) -> bytes:
        """A strong read from its arrival to its answer, an encoded reply or ErrorReply: all failures are definite.

        With a `timestamp` the leaseholder has told that already, and what it has to find is applied here, but for what
        was open then: it has waited for that for so long. Raises OpenIntent.
        """
        if timestamp is not None:
            return self._serve(read, timestamp, blocked_ns)
        log, leader = self._log, self.leader()
        if log is None or leader is None:
            return encode(ErrorReply("NOT_THE_LEADER", "no leaseholder is known here", definite=True))
        ask = AskReadTime(self._group_id, msgspec.structs.replace(read, bound=msgspec.UNSET))
        try:
            told = decode_reply(await self._network.call(leader, encode(ask), self._timeout_s))
        except (Unreachable, CallLost, Refused) as error:
            message = f"the leaseholder did not tell a time: {error}"
            return encode(ErrorReply("TIMED_OUT", message, definite=True, leader=log.leader))
        if not isinstance(told, ReadTime):
            return encode(told)
        asked_ns = self._monotonic_ns()
        try:
            await log.applied(told.index, self._timeout_s)
        except OutcomeUnknown:
            return encode(ErrorReply("TIMED_OUT", f"entry {told.index} is not applied here", definite=True))
        return self._serve(read, told.timestamp, self._monotonic_ns() - asked_ns)

    def _serve(self, read: Read, timestamp: int, blocked_ns: int) -> bytes:
        if self._log is None or self._log.installing or timestamp < self._machine.threshold:
            return encode(ErrorReply("TRY_AGAIN", "this replica's state is being replaced", definite=True))
        spans = requests.spans_of(read)
        found = requests.carry_out(read, spans, self._machine, timestamp)
        self._observer.remote_read_answered(self._group_id, read, spans, timestamp, found)
        closed = self._closed.highest()
        served = HowServed("strong-anywhere", "", timestamp, closed, closed, blocked_ns)
        return encode(found if isinstance(found, ErrorReply) else msgspec.structs.replace(found, served=served))

    def leader(self) -> Address | None:
        """Where the group's leader listens, as far as is known here."""
        if self._log is None or self._log.leader is None:
            return None
        members = self._log.configuration.members
        return next((member.address for member in members if member.server_id == self._log.leader), None)
