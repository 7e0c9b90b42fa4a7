"""Reads that need not be of now, or by the leaseholder (R7, R8): what is asked, and how it was served.

Times are HLC timestamps, spans of time are nanoseconds.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Path: TypeAlias = Literal[
    "leaseholder", "closed-at-leaseholder", "follower", "strong-anywhere", "global", "global-at-leaseholder"
]
"""How a read was served: by the lease; by what is closed, at the holder of the lease or at another replica; at a
replica that had asked the leaseholder for a time (R8); or strongly by what is closed ahead of time (R6), at a replica
or at the holder of the lease."""

KnownBy: TypeAlias = Literal["", "log", "copied", "side-transport"]
"""Who knew that the time was closed; nobody where nobody had to."""


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """How fresh a read has to be, which is served as fresh as can be without waiting; one of the two bounds is given.

    `max_staleness` becomes a `min_timestamp` by the clock of the first node asked. With `nearest_only` nobody else is
    asked where the replica does not know enough: NOT_CLOSED. With `negotiate` nothing is read, only the time is told
    that could be served. `anywhere` has no bound: it is strong, and any replica may serve it.
    """

    min_timestamp: int | None = None
    max_staleness: int | None = None
    nearest_only: bool = False
    negotiate: bool = False
    anywhere: bool = False


class HowServed(msgspec.Struct, frozen=True, array_like=True):
    """How a read was served, or, in a refusal, what there was to serve it by.

    `asked` is the time that was asked for, exact or least, or of a strong read when it was begun, as the first node
    fixed it; `closed` and `resolved` are as far as this replica knows for the spans read, and `blocked_ns` is how long
    it waited for what it lacked, and for its time.
    """

    path: Path = "leaseholder"
    known_by: KnownBy = ""
    asked: int = 0
    closed: int = 0
    resolved: int = 0
    blocked_ns: int = 0
