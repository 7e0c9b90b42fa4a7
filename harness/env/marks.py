"""By what a run is told from all else on a machine: the names of its chains, agents and files, and its port."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a run on one machine. `tag` is in all of them; a container is one run's own, and needs none.

    `ssh_port` is set where the harness comes over the interface that faults act on: what is said over it is spared.
    """

    tag: str = ""
    ssh_port: int | None = None

    @property
    def cut(self) -> str:
        """The chain that drops what arrives."""
        return f"ASSAY-CUT{self.tag}"

    @property
    def cut_out(self) -> str:
        """The chain that drops what leaves."""
        return f"ASSAY-CUT-OUT{self.tag}"

    @property
    def loss(self) -> str:
        """The chain that drops some of what arrives."""
        return f"ASSAY-LOSS{self.tag}"

    @property
    def probe_agent(self) -> str:
        return f"/tmp/assay{self.tag}-probe-agent.py"

    @property
    def clock_agent(self) -> str:
        return f"/tmp/assay{self.tag}-clock-agent.py"

    @property
    def clock_file(self) -> str:
        """In memory: libfaketime reads it whenever the program looks at its wall clock."""
        return f"/dev/shm/assay{self.tag}-clock"

    @property
    def probe_port(self) -> int:
        """Where agents hear each other's datagrams."""
        return 7999 if not self.tag else 20_000 + int(self.tag.lstrip("-"), 16) % 10_000


IN_CONTAINERS = Marks()
