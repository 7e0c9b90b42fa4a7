"""Logging of a node: the standard module, one logger per node, time stamps from the node's own clock only."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from harness.ports.api import Clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def node_logger(node_id: str) -> logging.Logger:
    """The logger that everything inside a node writes to: `cluster.NODE`."""
    return logging.getLogger(f"cluster.{node_id}")


class ClockFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER MESSAGE`, with the wall-clock time of the given clock: virtual in the simulator."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._clock = clock

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """ISO 8601 in UTC with microseconds."""
        moment = _EPOCH + timedelta(microseconds=self._clock.wall_ns() // 1_000)
        return moment.isoformat(timespec="microseconds")
