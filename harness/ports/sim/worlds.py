"""What a simulated world can be like: its keys with the values that seeds draw, and the physical part as a record.

A key can be told with `--world` or is drawn from the seed, each with a generator of its own, so that telling one leaves
the others as they were. Mild worlds draw from `mild`, harsh ones from `harsh` (docs/design/worlds.md).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import msgspec

from harness.ports.sim.clock import ClockOptions
from harness.ports.sim.disk import DiskOptions, Tear
from harness.ports.sim.incarnation import LONG_TURN_NS, Processor
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.node import MachineOptions

Value: TypeAlias = int | float | str
Severity: TypeAlias = Literal["mild", "harsh"]

MICROSECOND_NS, MILLISECOND_NS = 1_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Among:
    """One of a few names."""

    names: tuple[str, ...]

    def parse(self, text: str) -> Value:
        """The word, if it is one of them; else raises ValueError."""
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
        """The number, if it lies between the bounds; else raises ValueError."""
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

    A key with `share_of` is drawn as a share of another key's value, which stands before it. One with `instead_of` is
    not drawn as 0 where that other key, before it as well, is 0: one of the two has to work. What is drawn is
    `wan_factor` times as much between continents. A key with no choices is never drawn.
    """

    name: str
    values: Among | Between
    meaning: str
    mild: tuple[Value, ...] = ()
    harsh: tuple[Value, ...] = ()
    share_of: str | None = None
    instead_of: str | None = None
    wan_factor: int = 1

    def draw(self, seed: object, severity: Severity, drawn: Mapping[str, Value]) -> Value | None:
        """The seed's value, None where this severity leaves the default; `drawn` are the keys before it."""
        choices = self.harsh if severity == "harsh" and self.harsh else self.mild
        if self.instead_of is not None and not drawn[self.instead_of]:
            choices = tuple(filter(None, choices))
        if not choices:
            return None
        value = random.Random(f"{seed}/world/{self.name}").choice(choices)
        if self.share_of is not None:
            return round(float(value) * float(drawn[self.share_of]))
        if self.wan_factor > 1 and drawn.get("latency") == "wan5":
            return int(value) * self.wan_factor
        return value


def draw_values(
    keys: Iterable[WorldKey], seed: object, severity: Severity, given: Mapping[str, Value]
) -> dict[str, Value]:
    """The value of every key that is given or drawn, in the order of the keys."""
    values: dict[str, Value] = {}
    for key in keys:
        value = given[key.name] if key.name in given else key.draw(seed, severity, values)
        if value is not None:
            values[key.name] = value
    return values


_ODDS = Between(0.0, 0.5)
_ANY_ODDS = Between(0.0, 1.0)
_COST = Between(0, 10_000)
_LATENCIES = ("lan", "lan", "slow", "wan5")
_TURNS = ((0.0,), (0.0, 0.0, 0.0002, 0.001))
_PLACES = ((0, 2), (0, 2, 4))
_RARE = ((0.0,), (0.0, 0.0, 0.0005, 0.002))
_BOUNDED = Among(("none", "within", "beyond"))
_MOSTLY_WITHIN = (("none", "within"), ("none", "within", "within"))

PHYSICAL_KEYS: tuple[WorldKey, ...] = (
    WorldKey("latency", Among(("lan", "slow", "wan5")), "how long messages take", ("lan",), _LATENCIES),
    WorldKey("transport", Among(("datagram", "tcp")), "what messages ride on", ("datagram",), ("datagram", "tcp")),
    WorldKey("loss", _ODDS, "share of messages that are lost; on tcp they come later", (0.0,), (0.0, 0.0, 0.01, 0.03)),
    WorldKey("duplication", _ODDS, "share of notifications that arrive twice, not on tcp", (0.0,), (0.0, 0.01, 0.05)),
    WorldKey("reorder", _ODDS, "share of messages that others overtake, not on tcp", (0.0,), (0.0, 0.02, 0.1)),
    WorldKey("stall", _ODDS, "share of messages that take up to 50 ms longer", (0.0,), (0.0, 0.01, 0.05)),
    WorldKey("clog", _ODDS, "odds that a message stops its link for up to 1 s", (0.0,), (0.0, 0.0, 0.001)),
    WorldKey("breaks", _ODDS, "odds that a message breaks its tcp connection", (0.0,), (0.0, 0.0, 0.0005)),
    WorldKey(
        "client-outages",
        _ODDS,
        "odds that a message begins an outage between its client and a node, one way",
        (0.0,),
        (0.0, 0.0, 0.002),
    ),
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
        "how long durable writes take, and reads",
        ("fast", "common"),
        ("fast", "common", "slow"),
    ),
    WorldKey("fsync-hang", _ANY_ODDS, "odds that a durable write hangs one disk of each role for seconds", *_RARE),
    WorldKey("disk-full", _ANY_ODDS, "odds that a write finds one disk of each role full for seconds", *_RARE),
    WorldKey(
        "disk-tear",
        Among(("prefix", "pages", "stale")),
        "what crashes leave of what was not synced",
        ("prefix",),
        ("prefix", "pages", "pages"),
    ),
    WorldKey("bit-flips", _ANY_ODDS, "odds that a crash flips a synced bit on one disk of each role"),
    WorldKey("drift", _BOUNDED, "rate of monotonic clocks, against max-clock-drift", *_MOSTLY_WITHIN),
    WorldKey("wall", _BOUNDED, "error of wall clocks, against max-clock-offset-ms", *_MOSTLY_WITHIN),
    WorldKey("jumps", _BOUNDED, "jumps of wall clocks, against max-clock-offset-ms", ("none",), ("none", "within")),
    WorldKey("step-us", _COST, "what a step costs on every machine, us", (0,), (0, 0, 10, 50)),
    WorldKey("slow-step-us", _COST, "what it costs on one machine of each role, us", (0,), (0, 0, 100, 300)),
    WorldKey("long-turns", _ODDS, "share of steps that take 1 to 50 ms, tenfold for a stretch on one machine", *_TURNS),
    WorldKey("slow-places", Between(0, 16), "places of the nodes' code that are slow for all of the run", *_PLACES),
    WorldKey("slow-waits", Between(0, 16), "kinds of waits of the nodes that are slow for all of it; swarms draw them"),
)

LATENCIES_NS: dict[str, tuple[int, int]] = {
    "lan": (200 * MICROSECOND_NS, 2 * MILLISECOND_NS),
    "slow": (2 * MILLISECOND_NS, 20 * MILLISECOND_NS),
}
BEYOND_BOUND: dict[str, float] = {"none": 0.0, "within": 0.95, "beyond": 10.0}
"""How many times the declared bound clocks may be off."""
FSYNCS_NS: dict[str, tuple[int, int]] = {
    "fast": (50 * MICROSECOND_NS, 300 * MICROSECOND_NS),
    "common": (200 * MICROSECOND_NS, 3 * MILLISECOND_NS),
    "slow": (1 * MILLISECOND_NS, 20 * MILLISECOND_NS),
}


READS_NS: dict[str, tuple[int, int]] = {
    "fast": (10 * MICROSECOND_NS, 100 * MICROSECOND_NS),
    "common": (20 * MICROSECOND_NS, 500 * MICROSECOND_NS),
    "slow": (200 * MICROSECOND_NS, 5 * MILLISECOND_NS),
}
"""By the speed of durable writes."""


SLOWEST_S = (0.003, 0.02, 0.1)
"""How long what passes a slow place may have to wait; each has one of these."""

STEPS_OF_A_REQUEST = 50
"""About how many steps of one process a request takes."""

TCP_RETRY_S = 0.3
"""How long a connection is quiet after a loss: the first timeout, now and then the next ones."""

CLIENT_MACHINES = ("c0", "c1", "c2", "c3", "c4")
"""The machines that clients run on, several on each; faults of the network know them by these names."""

CLIENTS = frozenset(CLIENT_MACHINES)

WAN_REGIONS = ("us-east", "us-west", "eu-west", "ap-northeast", "ap-southeast")
WAN_ROUND_TRIPS_MS = (
    (1, 66, 87, 160, 197),
    (66, 1, 131, 90, 140),
    (87, 131, 1, 212, 255),
    (160, 90, 212, 1, 105),
    (197, 140, 255, 105, 1),
)
"""Round trips between regions of a public cloud, rounded to what is seen on most days."""
WAN_ONE_WAY_NS = sum(map(sum, WAN_ROUND_TRIPS_MS)) * MILLISECOND_NS // len(WAN_REGIONS) ** 2 // 2
"""Of two machines anywhere, on average."""


def region_of(machine: str) -> int:
    """Where a machine stands: the number at the end of its name, in turn, as zones go; without one in the first."""
    number = machine[len(machine.rstrip("0123456789")) :]
    return (int(number) - 1) % len(WAN_REGIONS) if number else 0


def wan_delay_ns(source: str, target: str) -> tuple[int, int]:
    """One way between two machines: half of the round trip of their regions, up to a tenth and 1 ms more."""
    one_way_ns = WAN_ROUND_TRIPS_MS[region_of(source)][region_of(target)] * MILLISECOND_NS // 2
    return one_way_ns, one_way_ns * 11 // 10 + MILLISECOND_NS


@dataclass(frozen=True, slots=True)
class ClockBounds:
    """What a cluster declares of its clocks: the drift of monotonic ones, and how far two wall clocks are apart."""

    max_drift: float
    max_offset_ns: int


class PhysicalWorld(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The links, disks, clocks and processors of a world; fields are the keys of `PHYSICAL_KEYS`."""

    latency: str = "lan"
    transport: str = "datagram"
    loss: float = 0.0
    duplication: float = 0.0
    reorder: float = 0.0
    stall: float = 0.0
    clog: float = 0.0
    breaks: float = 0.0
    client_outages: float = 0.0
    bandwidth: int = 0
    fsync: str = "common"
    fsync_hang: float = 0.0
    disk_full: float = 0.0
    disk_tear: Tear = "prefix"
    bit_flips: float = 0.0
    drift: str = "none"
    wall: str = "none"
    jumps: str = "none"
    step_us: int = 0
    slow_step_us: int = 0
    long_turns: float = 0.0
    slow_places: int = 0
    slow_waits: int = 0

    def link_options(self, source: str, target: str) -> LinkOptions:
        """What the link between two machines does with messages."""
        return LinkOptions(
            delay_ns=wan_delay_ns(source, target) if self.latency == "wan5" else LATENCIES_NS[self.latency],
            loss=self.loss,
            duplication=self.duplication,
            reorder=self.reorder,
            slow=self.stall,
            rate_bytes_per_s=self.bandwidth or None,
            clog=self.clog,
            tcp=self.transport == "tcp",
            breaks=self.breaks,
            outage=self.client_outages if {source, target} & CLIENTS else 0.0,
        )

    def answer_s(self, retry_s: float) -> float:
        """About how long a client waits for an answer when no fault is in effect, with what the links lose on average.

        A request and its replication take four messages and a durable write, on machines that may be slow. `retry_s` is
        how long a client waits for a message that was lost; a connection waits less.
        """
        delay_ns = WAN_ONE_WAY_NS if self.latency == "wan5" else LATENCIES_NS[self.latency][1]
        steps_ns = max(self.step_us, self.slow_step_us) * STEPS_OF_A_REQUEST * MICROSECOND_NS
        lost = 1 - (1 - self.loss) * (1 - self.clog) * (1 - self.breaks) * (1 - self.client_outages)
        waits_s = 2 * lost * (min(retry_s, TCP_RETRY_S) if self.transport == "tcp" else retry_s)
        turns_ns = self.long_turns * STEPS_OF_A_REQUEST * sum(LONG_TURN_NS) // 2
        places_s = SLOWEST_S[-1] / 2 if self.slow_places or self.slow_waits else 0.0
        return (4 * delay_ns + FSYNCS_NS[self.fsync][1] + steps_ns + turns_ns) / 1e9 + waits_s + places_s

    def arriving(self, messages: int) -> float:
        """The odds that `messages` all arrive; on a connection what is lost comes later."""
        lost = 0.0 if self.transport == "tcp" else self.loss
        return float(((1 - lost) * (1 - self.client_outages)) ** messages)

    def disk_options(self) -> DiskOptions:
        """What every disk does."""
        return DiskOptions(sync_ns=FSYNCS_NS[self.fsync], read_ns=READS_NS[self.fsync], tear=self.disk_tear)

    def machines(
        self,
        seed: object,
        roles: Iterable[Sequence[str]],
        bounds: ClockBounds,
        places: Sequence[Collection[str]] = (),
        waits: Sequence[Collection[str]] = (),
    ) -> dict[str, MachineOptions]:
        """What each machine is like, by name; of each role one is worse off, a minority of any group's voters.

        `places` and `waits` have for each role the names of the points and of the waits of its code that may be slow.
        """
        made: dict[str, MachineOptions] = {}
        slow, longer = self.slow_points(seed, places), self.longer_waits(seed, waits)
        for number, names in enumerate(roles):
            worse = random.Random(f"{seed}/world/worse/{number}").choice(names)
            own = {**_of_role(slow, places, number), **_of_role(longer, waits, number)}
            made |= {name: self._machine(seed, name, name == worse, bounds, own) for name in names}
        return made

    def client_machines(self, seed: object, bounds: ClockBounds) -> dict[str, MachineOptions]:
        """What each machine of clients is like: their clocks err as the nodes' do."""
        return {name: MachineOptions(self._clock(seed, name, bounds)) for name in CLIENT_MACHINES}

    def slow_points(self, seed: object, places: Iterable[Collection[str]]) -> dict[str, float]:
        """The points that are slow in this world, each with how long what passes it waits at most, s."""
        return _slow_ones(random.Random(f"{seed}/world/slow-places"), places, self.slow_places)

    def longer_waits(self, seed: object, waits: Iterable[Collection[str]]) -> dict[str, float]:
        """The waits that are longer in this world, and by how much at most, s."""
        return _slow_ones(random.Random(f"{seed}/world/slow-waits"), waits, self.slow_waits)

    def _machine(
        self, seed: object, name: str, worse: bool, bounds: ClockBounds, slow: Mapping[str, float]
    ) -> MachineOptions:
        disk = self.disk_options()
        if worse:
            disk = replace(disk, hang=self.fsync_hang, fill=self.disk_full, flip=self.bit_flips)
        step_us = max(self.step_us, self.slow_step_us if worse else 0)
        processor = Processor(step_us * MICROSECOND_NS, self.long_turns, _stretch_ns(seed) if worse else (0, 0))
        return MachineOptions(self._clock(seed, name, bounds), disk, processor, slow)

    def _clock(self, seed: object, name: str, bounds: ClockBounds) -> ClockOptions:
        drift = bounds.max_drift * BEYOND_BOUND[self.drift]
        # Two clocks are as far apart as both are wrong: each may be wrong by half of the bound.
        offset_ns = bounds.max_offset_ns // 2
        return ClockOptions(
            drift=random.Random(f"{seed}/world/drift/{name}").uniform(-drift, drift),
            wander_ns=int(offset_ns * BEYOND_BOUND[self.wall]),
            jump_ns=int(offset_ns * BEYOND_BOUND[self.jumps]),
        )


def _slow_ones(entropy: random.Random, names: Iterable[Collection[str]], count: int) -> dict[str, float]:
    known = sorted({each for role in names for each in role})
    return {each: entropy.choice(SLOWEST_S) for each in entropy.sample(known, min(count, len(known)))}


def _of_role(slow: Mapping[str, float], names: Sequence[Collection[str]], number: int) -> dict[str, float]:
    return {name: most_s for name, most_s in slow.items() if number < len(names) and name in names[number]}


def _stretch_ns(seed: object) -> tuple[int, int]:
    """When the long turns of a machine that is worse off are longer still."""
    entropy = random.Random(f"{seed}/world/stretch")
    begin_ns = entropy.randint(2_000, 20_000) * MILLISECOND_NS
    return begin_ns, begin_ns + entropy.randint(1_000, 5_000) * MILLISECOND_NS


def physical_world(values: Mapping[str, Value]) -> PhysicalWorld:
    """The record of drawn or told values; keys of other parts are left out."""
    names = {key.name for key in PHYSICAL_KEYS}
    return msgspec.convert({name: value for name, value in values.items() if name in names}, PhysicalWorld)
