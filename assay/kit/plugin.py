"""The database `kv` for assay: how its store is put on the nodes and started, and what its clients ask."""

from __future__ import annotations

import asyncio
from pathlib import Path

from assay import plugin as assay

PORT = 7700
HOME = "/var/lib/assay/kv"  # what is below /var/lib/assay goes with the run
STORE = Path(__file__).with_name("store.py")


class KvDatabase(assay.DaemonDatabase):
    """A store on each node, and the keys spread over them."""

    def __init__(self, environment: assay.Environment, setup: assay.Setup) -> None:
        super().__init__("kv", environment, setup.nodes, operations=frozenset({"r", "w", "cas"}))

    def daemons(self, node: str) -> list[assay.Daemon]:
        return [assay.Daemon("kv", ("python3", f"{HOME}/store.py", str(PORT), f"{HOME}/log"))]

    async def install(self) -> None:
        put = self.environment.fleet.upload
        await self.on_each(lambda node: put(node, f"{HOME}/store.py", STORE.read_bytes()))

    async def serves(self, node: str) -> bool:
        return await ask(self.address(node), "r 0", timeout_s=1.0) != ""

    async def open_client(self, process: int, timeout_s: float) -> assay.Client:
        return KvClient([self.address(node.name) for node in self.nodes], timeout_s)


class KvClient:
    """Has a connection for each operation, so that nothing is left of one that was cut off."""

    def __init__(self, addresses: list[str], timeout_s: float) -> None:
        self.addresses, self.timeout_s = addresses, timeout_s

    async def invoke(self, op: assay.Op) -> assay.Op:
        (mop,) = op.mops
        said = await ask(self.addresses[mop.partition % len(self.addresses)], request(mop), self.timeout_s)
        if mop.f == "r":
            return op.complete("ok", mops=(assay.Mop("r", mop.partition, None if said == "nil" else int(said)),))
        if said != "ok":
            raise assay.DefiniteError("cas-mismatch", said)
        return op.complete("ok")

    async def close(self) -> None:
        """Nothing is held open."""


def request(mop: assay.Mop) -> str:
    """The line that asks for one read, write or compare-and-set."""
    old = "nil" if mop.expected is None else mop.expected
    values = {"r": "", "w": f"{mop.value}", "cas": f"{old} {mop.value}"}
    return f"{mop.f} {mop.partition} {values[mop.f]}"


async def ask(address: str, line: str, timeout_s: float) -> str:
    """The answer to one request: a failure is definite while nothing of it was sent, and unknown from then on."""
    failure: type[assay.DefiniteError | assay.IndefiniteError] = assay.DefiniteError
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(address, PORT)
            failure = assay.IndefiniteError
            try:
                writer.write(f"{line}\n".encode())
                return (await reader.readuntil()).decode().strip()
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError) as error:
        raise failure("unreachable", f"{type(error).__name__}: {error}") from error


class Kv(assay.DatabasePlugin):
    """What `--database` finds in this file."""

    name = "kv"
    description = "integers by key; each change is synced before it is answered"
    default_nodes = 3

    def make(self, environment: assay.Environment, setup: assay.Setup) -> assay.Database:
        return KvDatabase(environment, setup)


PLUGIN = Kv()
