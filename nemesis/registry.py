"""The one literal registry of nemeses: families of plain faults, and scripts."""

from __future__ import annotations

from collections.abc import Mapping

from nemesis.kinds import (
    clocks,
    damage,
    disks,
    failpoint,
    leadership,
    masters,
    packets,
    partition,
    process,
    roles,
    scripted,
)
from nemesis.kinds.api import Family, FaultKind
from nemesis.scripts.registry import SCRIPTS, ScriptInfo

FAMILIES: tuple[Family, ...] = (
    partition.FAMILY,
    process.FAMILY,
    process.RESTARTS,
    clocks.FAMILY,
    packets.FAMILY,
    failpoint.FAMILY,
    disks.FAMILY,
    damage.FAMILY,
    scripted.REQUESTS,
    masters.STRANGERS,
    masters.FAMILY,
    scripted.DELAYS,
    leadership.FAMILY,
)
"""A family a line; the order is that in which faults are listed."""

AIMED: tuple[str, ...] = (
    *(kind.name for kind in (*roles.KINDS, *masters.STRANGERS.kinds, *masters.FAMILY.kinds)),
    *("late-call", "unheard-tablets"),
)
"""Kinds and scripts that aim at one role; `all` leaves them out."""

KINDS: Mapping[str, FaultKind] = {
    kind.name: kind for kinds in (*(family.kinds for family in FAMILIES), roles.KINDS) for kind in kinds
}
"""The plain faults by name."""


NEMESES: dict[str, FaultKind | ScriptInfo] = {**KINDS, **SCRIPTS}
"""Every name that `--nemesis` takes, but for `all` and `none`."""
