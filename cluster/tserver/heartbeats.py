"""Heartbeats of a tablet server to every master (M3), with full or incremental, edge-triggered tablet reports (M4).

Beside them who the masters are, as they last said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from cluster.alarm import Alarm
from cluster.config import NodeConfig
from cluster.log.envelope import CorruptLog, read_twice, twice
from cluster.nodelog import node_logger
from cluster.wire.known_masters import KnownMasters, asking, decode_masters, masters_in
from cluster.wire.messages import (
    GetStatus,
    Heartbeat,
    HeartbeatReply,
    Replica,
    TabletReport,
    decode_reply,
    encode,
    encode_reports,
)
from harness.ports.api import CallLost, Clock, Disk, DiskFull, Ports, Refused, Unreachable
from harness.ports.failpoints import InjectedFailure, pass_by

# ---- who the masters are ----
# The configuration that the node is started with may be older than what masters said last: they come and go while the
# cluster runs (G1, M12).


MASTERS_FILE = "masters"

_MASTERS_KIND = 19


async def save_masters(disk: Disk, known: KnownMasters) -> None:
    """Make them durable; raises DiskFull."""
    await disk.write_atomic(MASTERS_FILE, twice(_MASTERS_KIND, encode(known)))


async def load_masters(disk: Disk) -> KnownMasters | None:
    """What was saved last; None if nothing was, or it is damaged: then those that the node was started with must do.

    Raises OtherVersion.
    """
    if MASTERS_FILE not in disk.list(MASTERS_FILE):
        return None
    try:
        return decode_masters(await read_twice(disk, MASTERS_FILE, _MASTERS_KIND))
    except CorruptLog:
        return None


# ---- heartbeats ----


_MS = 1_000_000
_SOON_NS = 20 * _MS
"""News of tablets is gathered this long before it is sent ahead of the next heartbeat."""

Reports = Callable[[Iterable[str] | None], tuple[TabletReport, ...]]
"""Reports of the named tablets as they are now, or of all (None)."""


class MasterLink:
    """What one master was told and has to be told; a pure record of decisions, fed with sends and answers."""

    def __init__(self, flaws: Collection[str] = ()) -> None:
        self._heeds_new_leaders = "no-full-report" not in flaws
        """Whether a leader that is new gets a full report."""
        self._changed: dict[str, None] = {}
        """Tablets to be reported next."""
        self._sent: dict[str, None] = {}
        """Tablets that the last heartbeat reported: to be said again if it is lost."""
        self._leader_term: int | None = None
        """The term in which this master last said that it leads; None where it said that it does not."""
        self._full = True
        """Whether the next report is to be full; at first it is."""
        self._sent_full = False
        """Whether the last one was."""

    @property
    def has_news(self) -> bool:
        """Whether there is anything to report but being alive."""
        return self._full or bool(self._changed)

    def change(self, tablet_id: str) -> None:
        """A tablet has to be in the next report."""
        self._changed[tablet_id] = None

    def begin(self) -> tuple[bool, tuple[str, ...]]:
        """Take what the next heartbeat says: (whether it is full, changed tablets)."""
        self._sent, self._changed = self._changed, {}
        self._sent_full = self._full
        return self._full, tuple(self._sent)

    def lost(self) -> None:
        """The heartbeat was not answered: what it said has to be said again."""
        self._changed = self._sent | self._changed

    def answered(self, reply: HeartbeatReply) -> None:
        """A leader not seen before gets a full report, unless this very heartbeat was one; so does whoever asks.

        One that could not prove that it leads has ignored what it was told: to be told anew when it can.
        """
        self._full = reply.need_full_report
        new_leader = reply.leader_term is not None and reply.leader_term != self._leader_term
        self._leader_term = reply.leader_term
        if new_leader and self._heeds_new_leaders:
            self._full = self._full or not self._sent_full


class _Line:
    """What belongs to one master: the record of what it was told, and the alarm and task that send to it."""

    def __init__(self, master: Replica, clock: Clock, wake: Callable[[str], None], link: MasterLink) -> None:
        self.master = master
        self.link = link
        self.alarm = Alarm(clock, lambda: wake(master.node_id))
        self.task: asyncio.Task[None] | None = None
        self.lost = False
        """Whether the last heartbeat was not answered."""

    def stop(self) -> None:
        """Send no more; an exchange under way comes to its end, or to its timeout."""
        self.alarm.cancel()


class HeartbeatSender:
    """Sends them between `start` and `close`, to the masters that were named and then to those that masters name."""

    def __init__(self, ports: Ports, config: NodeConfig, reports: Reports, peers: Callable[[], Iterable[str]]) -> None:
        self._ports, self._config, self._reports, self._peers = ports, config, reports, peers
        self._interval_ns = config.knobs.tserver_heartbeat_ms * _MS
        self._log = node_logger(config.node_id)
        self._lines: dict[str, _Line] = {}
        """By node id one for each master that is known."""
        self._sequences: dict[str, int] = {}
        """By address the number of this life's last heartbeat to whoever listens there: it takes what has a lower one
        for overtaken, and may have got some that were meant for the master which stood there before."""
        self.known = KnownMasters(0, config.masters)
        """The masters as they were named by the highest index so far."""
        self._asked_peers = 0
        """How often a peer was asked who the masters are."""
        self._saving: asyncio.Task[None] | None = None
        """Makes them durable; one at a time."""
        self._follows_leader = "heartbeat-leader-only" in config.flaws
        """Whether only one master hears of this server."""
        self._followed = next((master.node_id for master in config.masters), "")
        """The one master that hears of this server then."""

    async def recover(self) -> None:
        """Go back to the masters that were learnt last (G1); before `start`."""
        self.known = await load_masters(self._ports.disk) or self.known

    def start(self) -> None:
        """Begin, with a full report to each master."""
        self._address(self.known.masters)

    def changed(self, tablet_id: str) -> None:
        """What is to be reported of a tablet has changed: tell every master soon."""
        soon_ns = self._ports.clock.monotonic_ns() + _SOON_NS
        for line in self._lines.values():
            line.link.change(tablet_id)
            line.alarm.set_earlier(soon_ns)

    async def close(self) -> None:
        """Send no more, and break off what is under way."""
        tasks = [task for line in self._lines.values() if (task := line.task) is not None]
        tasks += [] if self._saving is None else [self._saving]
        for line in self._lines.values():
            line.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _address(self, masters: Iterable[Replica]) -> None:
        """Send to these masters from now on; one that is new gets a full report."""
        known, self._lines = self._lines, {}
        for master in masters:
            line = known.pop(master.node_id, None)
            if line is None or line.master != master:
                if line is not None:
                    line.stop()
                line = _Line(master, self._ports.clock, self._wake, MasterLink(self._config.flaws))
                line.alarm.set(self._ports.clock.monotonic_ns())
            self._lines[master.node_id] = line
        for line in known.values():
            line.stop()

    def _wake(self, node_id: str) -> None:
        line = self._lines[node_id]
        line.alarm.set(self._ports.clock.monotonic_ns() + self._interval_ns)
        if self._is_addressed(node_id) and (line.task is None or line.task.done()):
            line.task = asyncio.create_task(self._beat(line), name=f"heartbeat.{node_id}")

    def _is_addressed(self, node_id: str) -> bool:
        """Every master hears that this server lives, so that whoever leads next knows it (M3, KUDU-1358)."""
        return not self._follows_leader or self._followed == node_id

    def _follow(self, line: _Line, reply: HeartbeatReply | None) -> None:
        """With the flaw: go on to the next master while this one does not lead."""
        if reply is None or reply.leader_term is None:
            names = list(self._lines)
            at = names.index(line.master.node_id) if line.master.node_id in names else -1
            self._followed = names[(at + 1) % len(names)]

    async def _beat(self, line: _Line) -> None:
        reply = await self._exchange(line.link, line.master)
        if self._follows_leader:
            self._follow(line, reply)
        line.lost = reply is None
        if reply is None:
            line.link.lost()
            if all(each.lost for each in self._lines.values()):
                await self._ask_peer()
            return
        line.link.answered(reply)
        if line.link.has_news:
            line.alarm.set_earlier(self._ports.clock.monotonic_ns() + _SOON_NS)

    async def _ask_peer(self) -> None:
        """No master answers: all may be others by now, and tablet servers that share tablets with this one know."""
        peers = [*self._peers()]
        if not peers:
            return
        self._asked_peers += 1
        payload = asking(encode(GetStatus()), self.known.index)
        timeout_s = self._config.knobs.master_call_timeout_ms / 1e3
        try:
            answer = await self._ports.network.call(peers[self._asked_peers % len(peers)], payload, timeout_s)
        except (Unreachable, CallLost, Refused):
            return
        self._learn(masters_in(answer)[0])

    def _learn(self, latest: KnownMasters | None) -> None:
        if latest is not None and latest.index > self.known.index:
            self.known = latest
            self._address(latest.masters)
            if self._saving is None or self._saving.done():
                self._saving = asyncio.create_task(self._save(), name="heartbeats.masters")

    async def _save(self) -> None:
        """Make the latest masters durable; what comes meanwhile is saved next."""
        saved = KnownMasters(0, ())
        while saved != self.known:
            saved = self.known
            try:
                await save_masters(self._ports.disk, saved)
            except DiskFull:
                return  # Whatever start comes before the next change begins with those it knew.

    async def _exchange(self, link: MasterLink, master: Replica) -> HeartbeatReply | None:
        full, changed = link.begin()
        sequence = self._sequences[master.address] = self._sequences.get(master.address, 0) + 1
        config, ports = self._config, self._ports
        reports = self._reports(None if full else changed)
        beat = Heartbeat(
            node_id=config.node_id,
            incarnation=ports.incarnation,
            address=config.address,
            zone=config.zone,
            sequence=sequence,
            full=full,
            reports=encode_reports(reports),
        )
        timeout_s = config.knobs.master_call_timeout_ms / 1e3
        try:
            await pass_by(self._ports.failpoints, "tserver.before_heartbeat")
            payload = asking(encode(beat), self.known.index)
            masters, answer = masters_in(await ports.network.call(master.address, payload, timeout_s))
            await pass_by(self._ports.failpoints, "tserver.after_heartbeat")
        except (Unreachable, CallLost, Refused, InjectedFailure) as error:
            self._log.debug("heartbeat to %s: %s", master.node_id, error)
            return None
        self._learn(masters)
        reply = decode_reply(answer)
        return reply if isinstance(reply, HeartbeatReply) else None
