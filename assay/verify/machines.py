"""What a check sees of nodes behind the plugin's back: their processes, and a proxy that loses answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from harness.protocols import Environment, Fleet

PROCESSES = (
    'echo "$$ self"; for file in /proc/[0-9]*/stat; do read -r line 2>/dev/null <"$file" && echo "$line"; done; true'
)
LISTENING = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; true"
_LISTENS = "0A"
_SSH = 22
CHUNK_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a node: its id, its name, the letter of its state (`T` is stopped), and whose child it is."""

    pid: int
    name: str
    letter: str
    parent: int

    def __str__(self) -> str:
        return f"{self.name} ({self.pid})"


async def processes(fleet: Fleet, node: str) -> frozenset[Process]:
    """All that live on a node, but for the shell that looks."""
    first, *lines = (await fleet.check(node, PROCESSES)).splitlines()
    own = int(first.split()[0])
    found = set()
    for line in lines:
        pid, _, rest = line.partition(" (")
        name, _, fields = rest.rpartition(") ")
        if int(pid) != own and fields[0] not in "XZ":
            found.add(Process(int(pid), name, fields[0], int(fields.split()[1])))
    return frozenset(found)


async def ports(fleet: Fleet, node: str) -> tuple[int, ...]:
    """The TCP ports that programs of a node listen at, but for SSH's."""
    found = set()
    for line in (await fleet.check(node, LISTENING)).splitlines():
        words = line.split()
        if len(words) > 3 and words[3] == _LISTENS:
            found.add(int(words[1].rpartition(":")[2], 16))
    return tuple(sorted(found - {_SSH}))


class ProxiedEnvironment:
    """An environment whose nodes are reached through proxies; all else is that of the environment itself."""

    def __init__(self, environment: Environment, addresses: Mapping[str, str]) -> None:
        self._environment = environment
        self._addresses = addresses

    def data_address(self, node: str) -> str:
        return self._addresses[node]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


class LosingProxy:
    """Stands before nodes at the same ports of other addresses, counts answers, and loses one where it is told to.

    A round is something that clients said and the first answer to it. `armed` is the number of the round whose answer
    is lost, with its connection or, if `silently`, without; 0 lets all pass.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self.armed = 0
        self.silently = False
        self.lost = False
        self.seen = False
        self._asked = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def stand_before(self, address: str, own: str, numbers: Iterable[int]) -> None:
        """Pass on what comes to these ports of one's own address; raises OSError where one is taken."""
        for number in numbers:
            self._servers.append(await asyncio.start_server(self._passing(address, number), own, number))

    def arm(self, number: int, silently: bool = False) -> None:
        """Begin to count anew, and lose the answer of this round."""
        self.rounds, self.armed, self.silently, self.lost, self._asked = 0, number, silently, False, False

    def _passing(self, address: str, number: int) -> Any:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection(address, number)
            except OSError:
                writer.close()
                return
            ways = [self._copy(reader, back, False), self._copy(there, writer, True)]
            tasks = [asyncio.create_task(way) for way in ways]
            self._tasks.update(tasks)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                for each in (writer, back):
                    each.close()
                self._tasks.difference_update(tasks)

        return serve

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        swallowing = False  # the rest of an answer goes with it
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if answers and self._asked:
                    self.rounds, self._asked = self.rounds + 1, False
                    swallowing = self.rounds == self.armed
                    if swallowing:
                        self.lost, self.armed = True, 0
                if swallowing and not self.silently:
                    return
                if swallowing:
                    continue
                self._asked |= not answers
                self.seen = True
                writer.write(data)
                await writer.drain()

    async def close(self) -> None:
        """Let nobody in any more, and end what passes."""
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def own_addresses(nodes: Sequence[str]) -> dict[str, str]:
    """An address of this machine for each node."""
    return {name: f"127.77.{number // 250}.{number % 250 + 1}" for number, name in enumerate(nodes)}
