"""What a test harness may ask of any node beside its status: to arm a failpoint, and to try its disk."""

from __future__ import annotations

import asyncio
from typing import TypeAlias, cast

from cluster.wire.messages import ArmedReply, ArmFailpoint, DiskReply, ProbeDisk
from harness.ports.api import DiskFull, Ports
from harness.ports.failpoints import Action, Arming

PROBE_PATH = "probe"
PROBE_BYTES = 16 << 10

Inspected: TypeAlias = ArmFailpoint | ProbeDisk


class Inspection:
    """Answers for one node, through its own ports: what it says of the disk is what its log finds there."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._probe: asyncio.Task[DiskReply] | None = None
        self._began_ns = 0
        self._last = 0

    async def answer(self, request: Inspected) -> ArmedReply | DiskReply:
        """Carry a request out."""
        if isinstance(request, ArmFailpoint):
            return self._arm(request)
        return await asyncio.create_task(self._try_disk(request.patience_s), name="inspection.wait")

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._probe is not None:
            self._probe.cancel()

    def _arm(self, request: ArmFailpoint) -> ArmedReply:
        failpoints = self._ports.failpoints
        if 0 < request.number <= self._last:
            return ArmedReply(tuple(failpoints.armed), dict(failpoints.hits))
        self._last = max(self._last, request.number)
        if request.action:
            action = cast(Action, request.action)
            failpoints.arm(Arming(request.point, action, request.group, 0, request.times, request.seconds))
        else:
            failpoints.disarm(request.point)
        return ArmedReply(tuple(failpoints.armed), dict(failpoints.hits))

    async def _try_disk(self, patience_s: float) -> DiskReply:
        """One attempt at a time: whoever asks while one hangs is told for how long it has."""
        if self._probe is None or self._probe.done():
            self._began_ns = self._ports.clock.monotonic_ns()
            self._probe = asyncio.create_task(self._write(), name="inspection.disk")
        try:
            async with asyncio.timeout(patience_s):
                return await asyncio.shield(self._probe)
        except TimeoutError:
            return DiskReply(self._elapsed_ms(), ended=False, full=False)

    async def _write(self) -> DiskReply:
        try:
            await self._ports.disk.write_atomic(PROBE_PATH, bytes(PROBE_BYTES))
        except DiskFull:
            return DiskReply(self._elapsed_ms(), ended=True, full=True)
        return DiskReply(self._elapsed_ms(), ended=True, full=False)

    def _elapsed_ms(self) -> float:
        return (self._ports.clock.monotonic_ns() - self._began_ns) / 1e6
