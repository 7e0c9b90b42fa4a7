"""The deterministic simulator: virtual time, simulated network, disks and clocks (`ARCHITECTURE.md`)."""

from harness.sim.disk import DiskOptions
from harness.sim.link import LinkOptions
from harness.sim.loop import SimulationStuck
from harness.sim.node import MachineOptions, SimNode
from harness.sim.world import World

__all__ = ["DiskOptions", "LinkOptions", "MachineOptions", "SimNode", "SimulationStuck", "World"]
