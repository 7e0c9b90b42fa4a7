"""The database under verification: operations that any of its clients can do, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from harness.errors import DefiniteError, IndefiniteError
from harness.history.ops import Mop, Op, read, write
from harness.protocols import Client, Database, Environment


@dataclass(frozen=True, slots=True)
class Waits:
    """How long, in seconds, is waited: for an operation (its deadline) and for one that leaves that behind; until the
    database serves; for processes to be gone and states to be seen; for a value to be read; for what a second start
    does; for another leader; for a clock to be seen."""

    operation: float = 2.0
    beyond: float = 4.0
    ready: float = 60.0
    settle: float = 3.0
    appear: float = 5.0
    second_start: float = 1.0
    election: float = 20.0
    clock: float = 1.0


WAYS = {
    "w": ("write", lambda key, value: write(key, value), "read"),
    "append": ("txn", lambda key, value: Mop("append", key, value), "txn"),
    "add": ("add", lambda key, value: Mop("add", key, value), "read"),
}
"""By the micro-operation with which something is written: the operation, how it is made, and how it is read."""

Way = tuple[str, Callable[[int, int], Mop], str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an operation: `ok`, `fail` (definite) or `info`, with why, and the completion of an `ok`."""

    word: str
    why: str = ""
    op: Op | None = None

    @property
    def values(self) -> frozenset[int]:
        """What a read saw."""
        mops = () if self.op is None else self.op.mops
        seen = [value for mop in mops for value in (mop.value, *(mop.values or ()))]
        return frozenset(value for value in seen if value is not None)


@dataclass(slots=True)
class Subject:
    """A database on an environment. `behind` makes the same database on another view of the environment, of which only
    clients are used; None where its clients can't be led through a proxy."""

    environment: Environment
    database: Database
    workload: str
    behind: Callable[[Environment], Database] | None = None
    waits: Waits = Waits()
    values: Iterable[int] = field(default_factory=lambda: count(900_001))
    processes: Iterable[int] = field(default_factory=lambda: count(0))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.database.nodes)

    @property
    def way(self) -> Way | None:
        """How something can be written and read; None where clients do nothing of the kind."""
        return next((way for f, way in WAYS.items() if f in self.database.operations), None)

    async def client(self, database: Database | None = None) -> Client:
        """A new one, of this database or of that one."""
        return await (database or self.database).open_client(next(iter(self.processes)), self.waits.operation)

    async def fresh(self, op: Op) -> Outcome:
        """What comes of an operation of a client that is opened for it."""
        try:
            client = await self.client()
        except (DefiniteError, IndefiniteError) as error:
            return Outcome("fail", error.kind)  # nothing of the operation was sent
        try:
            return await self.attempt(client, op)
        finally:
            await client.close()

    async def attempt(self, client: Client, op: Op) -> Outcome:
        """What comes of one operation; what a plugin may not raise is raised."""
        try:
            async with asyncio.timeout(self.waits.operation + self.waits.beyond):
                done = await client.invoke(op)
        except DefiniteError as error:
            return Outcome("fail", error.kind)
        except IndefiniteError as error:
            return Outcome("info", error.kind)
        except TimeoutError:
            return Outcome("info", "it did not keep its deadline")
        return Outcome(done.type, done.error_class or "", done)

    def reading(self, key: int, node: str | None = None) -> Op:
        assert self.way is not None
        return Op("invoke", 0, self.way[2], (read(key),), node=node)

    def writing(self, key: int, value: int) -> Op:
        assert self.way is not None
        return Op("invoke", 0, self.way[0], (self.way[1](key, value),))

    async def appears(self, key: int, value: int) -> bool:
        """Whether a value is read, at once or soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.waits.appear):
                while True:
                    if value in (await self.fresh(self.reading(key))).values:
                        return True
                    await asyncio.sleep(0.1)
        return False
