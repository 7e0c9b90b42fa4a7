"""What one node of the reference cluster is started with, read from a JSON file."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from cluster.flaws import FLAWS
from cluster.knobs import Knobs
from cluster.wire.messages import Replica
from harness.errors import UserError

NodeRole: TypeAlias = Literal["master", "tserver"]


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node: who it is, where it listens, who the masters are, and the flaws it is started with.

    `listen` is what it binds, `advertise` (default: `listen`) the address that others are told. `data_dir`, `torture`
    and `seed` matter to the real entry only: in the simulator the ports come from the world.
    """

    node_id: str
    role: NodeRole
    listen: str
    masters: tuple[Replica, ...]
    cluster_id: str = "sim"
    zone: str = "z1"
    advertise: str = ""
    data_dir: str = ""
    torture: bool = False
    seed: int = 0
    flaws: tuple[str, ...] = ()
    knobs: Knobs = Knobs()

    @property
    def address(self) -> str:
        """Where other nodes and clients reach this one."""
        return self.advertise or self.listen


def load_config(text: bytes) -> NodeConfig:
    """A checked configuration from JSON; raises UserError with one sentence when it is not one."""
    try:
        config = msgspec.json.decode(text, type=NodeConfig)
    except msgspec.MsgspecError as error:
        raise UserError(f"The node configuration is not valid: {error}.") from error
    for flaw in config.flaws:
        if flaw not in FLAWS:
            raise UserError(f"The node configuration names the unknown flaw {flaw!r}.")
    return config


def dump_config(config: NodeConfig) -> bytes:
    """The JSON that `load_config` reads back."""
    return msgspec.json.encode(config)
