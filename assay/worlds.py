"""The world of a simulated run: drawn from its seed, parts of it told with `--world KEY=VALUE,…`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import cast

import msgspec

from cluster.client.client import MAX_ATTEMPT_TIMEOUT_S
from cluster.deploy.drawn_knobs import KNOB_KEYS, knobs_of
from cluster.failpoints import slow_waits, waiting_points
from cluster.knobs import Knobs
from harness.errors import UserError
from harness.ports.sim.node import MachineOptions
from harness.ports.sim.worlds import (
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
from harness.protocols import Node
from harness.verdict.adequacy import Floors

SEVERITY = WorldKey(
    "severity",
    Among(("mild", "harsh")),
    "mild worlds leave progress alone, harsh ones draw from all that clean runs must stand",
    ("mild", "harsh"),
)
MESSAGES_OF_A_READ = 6
"""Of a client and its node, and of that and two other replicas."""
CLOCK = "clock"
CLOCK_KEYS = ("drift", "wall", "jumps")
"""What `--world clock=none` tells at once."""
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

    def eased(self, floors: Floors, rate_hz: float, concurrency: int) -> Floors:
        """The floors of a run in this world: of the asked rate what these clients, each with one request at a time, can
        reach here at most, where one node leads all and takes in only a few. Of the final reads, which a node may
        answer only together with all replicas and which nobody repeats, those of which nothing is lost; by chance twice
        as many are.
        """
        at_a_time = min(concurrency, self.knobs.max_requests)
        share = min(1.0, at_a_time / self.physical.answer_s(MAX_ATTEMPT_TIMEOUT_S) / rate_hz)
        final_reads = floors.final_reads * self.physical.arriving(2 * MESSAGES_OF_A_READ)
        eased = {"rate": floors.rate * share, "each_f": floors.each_f * share, "final_reads": final_reads}
        return msgspec.structs.replace(floors, **eased)

    def machines(self, seed: int, nodes: Sequence[Node]) -> dict[str, MachineOptions]:
        """What each machine is like in this world, of nodes and of clients."""
        roles = dict.fromkeys(node.role for node in nodes)
        bounds = ClockBounds(self.knobs.max_clock_drift, self.knobs.max_clock_offset_ms * MILLISECOND_NS)
        groups = [[node.name for node in nodes if node.role == role] for role in roles]
        places, waits = [waiting_points(role) for role in roles], [slow_waits(role) for role in roles]
        clients = self.physical.client_machines(seed, bounds)
        return self.physical.machines(seed, groups, bounds, places, waits) | clients

    def line(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values.items())


def parse_world(text: str) -> dict[str, Value]:
    """What `--world` tells, `clock` of all keys of clocks; raises UserError for an unknown key, a repeated one, or a
    value that a key can't have."""
    told: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name:
            raise UserError(f"--world takes KEY=VALUE,…, not {part!r}.")
        for key in CLOCK_KEYS if name == CLOCK else (name,):
            if key not in WORLD_KEYS:
                raise UserError(f"A world has no {name!r}; see `assay list worlds`.")
            if key in told:
                raise UserError(f"--world tells {key} twice.")
            try:
                told[key] = WORLD_KEYS[key].values.parse(value)
            except ValueError as error:
                raise UserError(f"--world {name} is {value!r}; it has to be {error}.") from None
    return told


def given_knobs(text: str) -> Knobs:
    """What `--world` tells of a cluster on real machines, where nothing is drawn: knobs; raises UserError for more."""
    told = parse_world(text)
    knobs = {key.name for key in KNOB_KEYS}
    for name in told:
        if name not in knobs:
            raise UserError(
                f"--world {name} is the simulator's; a cluster on real machines can be told its knobs only."
            )
    return knobs_of(told)


REDRAWS = 50
"""How often what is drawn yields to what is told before the two are said to contradict each other."""


def draw_world(seed: int, text: str = "", spared: Sequence[str] = ()) -> WorldSpec:
    """The seed's world with the told parts in it, to which drawn ones yield; raises UserError where they can't be.

    Keys of `spared` are not drawn: what they would be is more than the run can stand.
    """
    told = parse_world(text)
    severity = cast(Severity, told.get("severity") or Random(f"{seed}/world/severity").choice(SEVERITY.mild))
    keys = [key for key in WORLD_KEYS.values() if key.name in told or key.name not in spared]
    contradiction = None
    for draw in (seed, *(f"{seed}/{number}" for number in range(REDRAWS))):
        values = draw_values(keys, draw, severity, {**told, "severity": severity})
        try:
            return WorldSpec(values, physical_world(values), knobs_of(values))
        except UserError as error:
            contradiction = contradiction or error
    assert contradiction is not None
    raise contradiction
