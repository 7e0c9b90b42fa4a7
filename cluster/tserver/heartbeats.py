"""Heartbeats of a tablet server to every master (M3), with full or incremental, edge-triggered tablet reports (M4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from cluster.alarm import Alarm
from cluster.config import NodeConfig
from cluster.nodelog import node_logger
from cluster.wire.messages import Heartbeat, HeartbeatReply, Replica, TabletReport, decode_reply, encode
from harness.ports import CallLost, Ports, Refused, Unreachable

_MS = 1_000_000
_SOON_NS = 20 * _MS
"""News of tablets is gathered this long before it is sent ahead of the next heartbeat."""

Reports = Callable[[Iterable[str] | None], tuple[TabletReport, ...]]
"""Reports of the named tablets as they are now, or of all (None)."""


class MasterLink:
    """What one master was told and has to be told; a pure record of decisions, fed with sends and answers."""

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        self._sent: dict[str, None] = {}
        self._leader_term: int | None = None
        self._full = True
        self._sent_full = False
        self._sequence = 0

    @property
    def has_news(self) -> bool:
        """Whether there is anything to report but being alive."""
        return self._full or bool(self._changed)

    def change(self, tablet_id: str) -> None:
        """A tablet has to be in the next report."""
        self._changed[tablet_id] = None

    def begin(self) -> tuple[int, bool, tuple[str, ...]]:
        """Take what the next heartbeat says: (its sequence, whether it is full, changed tablets)."""
        self._sequence += 1
        self._sent, self._changed = self._changed, {}
        self._sent_full = self._full
        return self._sequence, self._full, tuple(self._sent)

    def lost(self) -> None:
        """It was not answered: what it said has to be said again."""
        self._changed = self._sent | self._changed

    def answered(self, reply: HeartbeatReply) -> None:
        """A leader not seen before gets a full report, unless this very heartbeat was one; so does whoever asks."""
        self._full = reply.need_full_report
        if reply.leader_term is not None and reply.leader_term != self._leader_term:
            self._leader_term = reply.leader_term
            self._full = self._full or not self._sent_full


class HeartbeatSender:
    """Sends them between `start` and `close`."""

    def __init__(self, ports: Ports, config: NodeConfig, reports: Reports) -> None:
        self._ports, self._config, self._reports = ports, config, reports
        self._interval_ns = config.knobs.tserver_heartbeat_ms * _MS
        self._log = node_logger(config.node_id)
        self._links: list[MasterLink] = []
        self._alarms: list[Alarm] = []
        self._busy: list[asyncio.Task[None] | None] = []

    def start(self) -> None:
        """Begin, with a full report to each master."""
        now_ns = self._ports.clock.monotonic_ns()
        for number, master in enumerate(self._config.masters):
            self._links.append(MasterLink())
            self._busy.append(None)
            self._alarms.append(self._alarm(number, master))
            self._alarms[number].set(now_ns)

    def changed(self, tablet_id: str) -> None:
        """What is to be reported of a tablet has changed: tell every master soon."""
        soon_ns = self._ports.clock.monotonic_ns() + _SOON_NS
        for link, alarm in zip(self._links, self._alarms, strict=True):
            link.change(tablet_id)
            alarm.set_earlier(soon_ns)

    async def close(self) -> None:
        """Stop."""
        for alarm in self._alarms:
            alarm.cancel()
        tasks = [task for task in self._busy if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _alarm(self, number: int, master: Replica) -> Alarm:
        def wake() -> None:
            self._alarms[number].set(self._ports.clock.monotonic_ns() + self._interval_ns)
            task = self._busy[number]
            if task is None or task.done():
                self._busy[number] = asyncio.create_task(self._beat(number, master), name=f"heartbeat.{master.node_id}")

        return Alarm(self._ports.clock, wake, f"heartbeats.{master.node_id}")

    async def _beat(self, number: int, master: Replica) -> None:
        link = self._links[number]
        reply = await self._exchange(link, master)
        if reply is None:
            link.lost()
            return
        link.answered(reply)
        if link.has_news:
            self._alarms[number].set_earlier(self._ports.clock.monotonic_ns() + _SOON_NS)

    async def _exchange(self, link: MasterLink, master: Replica) -> HeartbeatReply | None:
        sequence, full, changed = link.begin()
        config, ports = self._config, self._ports
        beat = Heartbeat(
            node_id=config.node_id,
            incarnation=ports.incarnation,
            address=config.address,
            zone=config.zone,
            sequence=sequence,
            full=full,
            reports=self._reports(None if full else changed),
        )
        timeout_s = config.knobs.master_call_timeout_ms / 1e3
        try:
            reply = decode_reply(await ports.network.call(master.address, encode(beat), timeout_s))
        except (Unreachable, CallLost, Refused) as error:
            self._log.debug("heartbeat to %s: %s", master.node_id, error)
            return None
        return reply if isinstance(reply, HeartbeatReply) else None
