"""What a simulated world can be like: its keys with the values that seeds draw, and the physical part as a record.

A key can be told with `--world` or is drawn from the seed, each with a generator of its own, so that telling one leaves
the others as they were. Mild worlds draw from `mild`, harsh ones from `harsh` ([worlds](docs/design/worlds.md)).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from harness.sim.disk import DiskOptions
from harness.sim.link import LinkOptions

Value: TypeAlias = int | float | str
Severity: TypeAlias = Literal["mild", "harsh"]

MICROSECOND_NS, MILLISECOND_NS = 1_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Among:
    """One of a few names."""

    names: tuple[str, ...]

    def parse(self, text: str) -> Value:
        """Raises ValueError."""
        if text not in self.names:
            raise ValueError(f"one of {', '.join(self.names)}")
        return text

    def __str__(self) -> str:
        return "|".join(self.names)


@dataclass(frozen=True, slots=True)
class Between:
    """A number, whole if both bounds are integers."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def parse(self, text: str) -> Value:
        """Raises ValueError."""
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            value = float("nan")
        if not self.low <= value <= self.high:
            raise ValueError(f"a {'whole ' if self.whole else ''}number between {self.low:.12g} and {self.high:.12g}")
        return value

    def __str__(self) -> str:
        return f"{self.low:.12g}..{self.high:.12g}"


@dataclass(frozen=True, slots=True)
class WorldKey:
    """One thing that differs between worlds: what it may be, and what seeds draw, each value equally likely.

    A key with `share_of` is drawn as a share of another key's value, which stands before it. One with no choices is
    never drawn.
    """

    name: str
    values: Among | Between
    meaning: str
    mild: tuple[Value, ...] = ()
    harsh: tuple[Value, ...] = ()
    share_of: str | None = None

    def draw(self, seed: object, severity: Severity, drawn: Mapping[str, Value]) -> Value | None:
        """The seed's value, None where this severity leaves the default; `drawn` are the keys before it."""
        choices = self.harsh if severity == "harsh" and self.harsh else self.mild
        if not choices:
            return None
        value = random.Random(f"{seed}/world/{self.name}").choice(choices)
        if self.share_of is None:
            return value
        return round(float(value) * float(drawn[self.share_of]))


def draw_values(
    keys: Iterable[WorldKey], seed: object, severity: Severity, told: Mapping[str, Value]
) -> dict[str, Value]:
    """The value of every key that is told or drawn, in the order of the keys."""
    values: dict[str, Value] = {}
    for key in keys:
        value = told[key.name] if key.name in told else key.draw(seed, severity, values)
        if value is not None:
            values[key.name] = value
    return values


_ODDS = Between(0.0, 0.5)

PHYSICAL_KEYS: tuple[WorldKey, ...] = (
    WorldKey("latency", Among(("lan", "slow")), "how long messages take", ("lan",), ("lan", "lan", "slow")),
    WorldKey("loss", _ODDS, "share of messages that are lost", (0.0,), (0.0, 0.0, 0.01, 0.03)),
    WorldKey("duplication", _ODDS, "share of notifications that arrive twice", (0.0,), (0.0, 0.01, 0.05)),
    WorldKey("reorder", _ODDS, "share of messages that others overtake", (0.0,), (0.0, 0.02, 0.1)),
    WorldKey("stall", _ODDS, "share of messages that take up to 50 ms longer", (0.0,), (0.0, 0.01, 0.05)),
    WorldKey(
        "bandwidth",
        Between(0, 100_000_000_000),
        "bytes a second of each link, 0 for no limit",
        (0,),
        (0, 10_000_000, 1_000_000),
    ),
    WorldKey(
        "fsync",
        Among(("fast", "common", "slow")),
        "how long a durable write takes",
        ("fast", "common"),
        ("fast", "common", "slow"),
    ),
)

LATENCIES_NS: dict[str, tuple[int, int]] = {
    "lan": (200 * MICROSECOND_NS, 2 * MILLISECOND_NS),
    "slow": (2 * MILLISECOND_NS, 20 * MILLISECOND_NS),
}
FSYNCS_NS: dict[str, tuple[int, int]] = {
    "fast": (50 * MICROSECOND_NS, 300 * MICROSECOND_NS),
    "common": (200 * MICROSECOND_NS, 3 * MILLISECOND_NS),
    "slow": (1 * MILLISECOND_NS, 20 * MILLISECOND_NS),
}


class PhysicalWorld(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The links and disks of a world; fields are the keys of `PHYSICAL_KEYS`."""

    latency: str = "lan"
    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    stall: float = 0.0
    bandwidth: int = 0
    fsync: str = "common"

    def link_options(self) -> LinkOptions:
        """What every link does with messages."""
        return LinkOptions(
            delay_ns=LATENCIES_NS[self.latency],
            loss=self.loss,
            duplication=self.duplication,
            reorder=self.reorder,
            slow=self.stall,
            rate_bytes_per_s=self.bandwidth or None,
        )

    def disk_options(self) -> DiskOptions:
        """What every disk does."""
        return DiskOptions(sync_ns=FSYNCS_NS[self.fsync])


def physical_world(values: Mapping[str, Value]) -> PhysicalWorld:
    """The record of drawn or told values; keys of other parts are left out."""
    names = {key.name for key in PHYSICAL_KEYS}
    return msgspec.convert({name: value for name, value in values.items() if name in names}, PhysicalWorld)
