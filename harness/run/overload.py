"""A machine that has too much to do: what takes too long on it can't be held against the database (question 4)."""

from __future__ import annotations

import os
from typing import Protocol, runtime_checkable

MOST_WAITING = 4.0
"""For each core. A cluster of eight nodes under an ordinary load has one or two of its own on two cores."""


@runtime_checkable
class Strained(Protocol):
    """The power of an environment whose nodes share a machine with whatever else runs there."""

    def strain(self) -> str | None:
        """Why that machine is too slow to judge by, now, in a few words; None if it is not."""


def strain_of(environment: object) -> str | None:
    """The same of any environment; one in virtual time has none."""
    return environment.strain() if isinstance(environment, Strained) else None


def in_words(waiting: float, cores: int) -> str | None:
    """What so many processes that wait for so many cores say of a machine."""
    if waiting <= MOST_WAITING * cores:
        return None
    return f"this machine is overloaded: {waiting:.0f} processes wait for its {cores} core{'s' * (cores != 1)}"


def of_this_machine() -> str | None:
    """By the load average of the last minute."""
    return in_words(os.getloadavg()[0], os.cpu_count() or 1)
