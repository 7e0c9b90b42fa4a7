"""The deterministic simulator: virtual time, simulated network, disks and clocks (`ARCHITECTURE.md`)."""

from harness.ports.sim.disk import DiskOptions
from harness.ports.sim.link import LinkOptions
from harness.ports.sim.loop import SimulationStuck
from harness.ports.sim.node import MachineOptions, SimNode
from harness.ports.sim.world import World

__all__ = ["DiskOptions", "LinkOptions", "MachineOptions", "SimNode", "SimulationStuck", "World"]
