"""Everything that a database, workload, nemesis or model of one's own stands on, under one import that stays.

    from assay.plugin import Capability, Client, Daemon, DaemonDatabase, DatabasePlugin, Op, Setup

What a name promises says its docstring; what changes here stands in CHANGELOG.md. A file or an installed package gives
an object that is a `DatabasePlugin`, and `assay run WORKLOAD --database FILE.py` runs it (`docs/your-database.md`).
Nothing of it is called from two threads: all of a run happens on one event loop, which nothing may block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from harness import generators
from harness.capabilities import Capability
from harness.env.daemon_database import DaemonDatabase
from harness.errors import ELSEWHERE, DefiniteError, HarnessError, IndefiniteError, UserError
from harness.generators import Context, Generator, draw, invoke
from harness.history.ops import Mop, Op, cas, read, watched, write
from harness.ports.machines import Daemon, ProcessState
from harness.protocols import (
    Client,
    Database,
    Directed,
    Environment,
    Examination,
    Examined,
    FailsOver,
    Fleet,
    GroupStatus,
    Nemesis,
    Node,
    NodeStatus,
    Sharded,
    Transferable,
)
from workloads.api import Option, WordOption, Workload

__all__ = [
    "ELSEWHERE",
    "AnyOption",
    "Capability",
    "Client",
    "Context",
    "Daemon",
    "DaemonDatabase",
    "Database",
    "DatabasePlugin",
    "DefiniteError",
    "Directed",
    "Environment",
    "Examination",
    "Examined",
    "FailsOver",
    "Fleet",
    "Generator",
    "GroupStatus",
    "HarnessError",
    "IndefiniteError",
    "Mop",
    "Nemesis",
    "Node",
    "NodeStatus",
    "Op",
    "Option",
    "ProcessState",
    "Setup",
    "Sharded",
    "Transferable",
    "UserError",
    "WordOption",
    "Workload",
    "cas",
    "draw",
    "generators",
    "invoke",
    "read",
    "watched",
    "write",
]

AnyOption: TypeAlias = Option | WordOption


@dataclass(frozen=True, slots=True)
class Setup:
    """What one run wants of a database: its nodes, the plugin's options (`-d`), each with a value, the workload with
    its own, and the seed of all choices. `variables` are for programs whose wall clock faults are to move."""

    nodes: tuple[Node, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    workload: str = ""
    workload_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class DatabasePlugin(Protocol):
    """What an entry point of the group `assay.databases`, or a file, gives: a database that can be set up.

    Who derives from it need only say `name` and `make`.
    """

    name: str
    """In small letters, digits and dashes."""

    description: str = ""
    """A line, for `assay list databases`."""

    options: tuple[AnyOption, ...] = ()
    """What `-d KEY=VALUE` takes."""

    packages: tuple[str, ...] = ()
    """Debian's, that the nodes' image has beside Python and SSH. `assay` installs them, and starts nothing of them."""

    image: str = ""
    """Instead of `packages`: an image that the engine has, with sshd and Python 3.9."""

    requires: tuple[str, ...] = ()
    """Python's packages that the harness's side needs, such as `redis>=5`; without them a run is refused."""

    workloads: tuple[str, ...] = ("register",)
    """The workloads that its clients can serve; the first is what `assay verify` runs."""

    default_nodes: int = 1
    """How many nodes there are without `--nodes`: `n1`, `n2`, …"""

    def make(self, environment: Environment, setup: Setup) -> Database:
        """The database of one run; starts nothing, and does not block. Raises UserError for a setup that can't be."""
        ...
