"""Failpoints of a real process, armed from its environment: `ASSAY_FAILPOINTS=tablet.before_fsync=kill@3,x=record`.

Holds are armed at run time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Mapping

VARIABLE = "ASSAY_FAILPOINTS"


class RealFailpoints:
    """Named points at which the process kills itself (SIGKILL) at the n-th pass, or counts passes in `hits`.

    Implements `harness.ports.Failpoints`; free when nothing is armed.
    """

    __slots__ = ("_hold", "_kill_at", "hits")

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.hits: dict[str, int] = {}
        self._kill_at = _parse(environment.get(VARIABLE, ""))
        self._hold: tuple[str, str] | None = None

    def hit(self, name: str, group: str = "") -> None:
        if self._kill_at:
            self._hit(name)
        if self._hold is not None and self._hold == (name, group):
            self._hold = None
            os.kill(os.getpid(), signal.SIGSTOP)

    def hold(self, name: str, group: str) -> None:
        self._hold = (name, group) if name else None

    def rest(self, name: str) -> Awaitable[None] | None:
        self.hit(name)
        return None

    def _hit(self, name: str) -> None:
        kill_at = self._kill_at.get(name)
        if kill_at is None:
            return
        self.hits[name] = self.hits.get(name, 0) + 1
        if self.hits[name] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def _parse(text: str) -> dict[str, int]:
    """Passes until death by point name; 0 for a point that only counts. Raises ValueError."""
    armed: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        word, _, pass_number = action.partition("@")
        if not name or word not in ("kill", "record") or not (pass_number.isdecimal() or not pass_number):
            raise ValueError(f"{VARIABLE} has {item!r}; write NAME=kill, NAME=kill@N or NAME=record")
        armed[name] = int(pass_number or 1) if word == "kill" else 0
    return armed
