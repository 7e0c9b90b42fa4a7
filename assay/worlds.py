"""The world of a simulated run: drawn from its seed, parts of it told with `--world KEY=VALUE,…`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

import msgspec

from cluster.config import Knobs
from cluster.deploy.drawn_knobs import KNOB_KEYS, knobs_of
from harness.adequacy import Floors
from harness.errors import UserError
from harness.protocols import Node
from harness.sim.node import MachineOptions
from harness.sim.worlds import (
    MILLISECOND_NS,
    PHYSICAL_KEYS,
    WAN_REGIONS,
    Among,
    ClockBounds,
    PhysicalWorld,
    Severity,
    Value,
    WorldKey,
    draw_values,
    physical_world,
)

SEVERITY = WorldKey(
    "severity",
    Among(("mild", "harsh")),
    "mild worlds leave progress alone, harsh ones draw from all that clean runs must stand",
    ("mild", "harsh"),
)
WORLD_KEYS: dict[str, WorldKey] = {key.name: key for key in (SEVERITY, *PHYSICAL_KEYS, *KNOB_KEYS)}


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """What one simulated run runs in: links, clocks and disks, and the knobs of the cluster.

    `values` are the keys that were drawn or told, in order; `line()`, given back as `--world`, is the same world.
    """

    values: Mapping[str, Value]
    physical: PhysicalWorld
    knobs: Knobs

    @property
    def zones(self) -> int:
        """How many zones the nodes are spread over: the regions of a wide-area network, or one."""
        return len(WAN_REGIONS) if self.physical.latency == "wan5" else 1

    def eased(self, floors: Floors) -> Floors:
        """The floors of a run in this world: a lower rate where clients wait 0.3 s for each answer."""
        return msgspec.structs.replace(floors, rate=floors.rate / 4) if self.physical.latency == "wan5" else floors

    def machines(self, seed: int, nodes: Sequence[Node]) -> dict[str, MachineOptions]:
        """What each node's machine is like in this world."""
        roles = dict.fromkeys(node.role for node in nodes)
        bounds = ClockBounds(self.knobs.max_clock_drift, self.knobs.max_clock_offset_ms * MILLISECOND_NS)
        groups = [[node.name for node in nodes if node.role == role] for role in roles]
        return self.physical.machines(seed, groups, bounds)

    def line(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values.items())


def parse_world(text: str) -> dict[str, Value]:
    """What `--world` tells; raises UserError for an unknown key, a repeated one, or a value that a key can't have."""
    told: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name:
            raise UserError(f"--world takes KEY=VALUE,…, not {part!r}.")
        if name not in WORLD_KEYS:
            raise UserError(f"A world has no {name!r}; see `assay list worlds`.")
        if name in told:
            raise UserError(f"--world tells {name} twice.")
        try:
            told[name] = WORLD_KEYS[name].values.parse(value)
        except ValueError as error:
            raise UserError(f"--world {name} is {value!r}; it has to be {error}.") from None
    return told


def told_knobs(text: str) -> Knobs:
    """What `--world` tells of a cluster on real machines, where nothing is drawn: knobs; raises UserError for more."""
    told = parse_world(text)
    knobs = {key.name for key in KNOB_KEYS}
    for name in told:
        if name not in knobs:
            raise UserError(
                f"--world {name} is the simulator's; a cluster on real machines can be told its knobs only."
            )
    return knobs_of(told)


def draw_world(seed: int, text: str = "") -> WorldSpec:
    """The seed's world with the told parts in it; raises UserError where they can't be."""
    told = parse_world(text)
    severity = cast(Severity, told.get("severity") or Random(f"{seed}/world/severity").choice(SEVERITY.mild))
    values = draw_values(WORLD_KEYS.values(), seed, severity, {**told, "severity": severity})
    return WorldSpec(values, physical_world(values), knobs_of(values))
