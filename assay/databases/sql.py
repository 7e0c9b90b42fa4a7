"""What a workload's operations are in SQL, for databases that differ in their drivers and a few words."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay.plugin import Client, DefiniteError, IndefiniteError, Mop, Op

LISTS = ("list-append", "set")
"""Workloads whose values are lists: text, elements separated by commas; of sets a row each."""


def table_statements(workload: str, options: Mapping[str, Any], tables: int, text: str) -> Iterator[str]:
    """What makes a workload's tables: `t0`, `t1`, …, over which keys are spread; `text` is the type of long texts."""
    for number in range(tables):
        yield f"DROP TABLE IF EXISTS t{number}"
        if workload == "set":
            yield f"CREATE TABLE t{number} (k BIGINT, v BIGINT, PRIMARY KEY (k, v))"
        else:
            yield f"CREATE TABLE t{number} (k BIGINT PRIMARY KEY, v {text if workload in LISTS else 'BIGINT'})"
    for account in range(int(options["accounts"]) if workload == "bank" else 0):
        yield f"INSERT INTO t{account % tables} (k, v) VALUES ({account}, {options['balance']})"


class SqlClient(Client, ABC):
    """Each operation is one transaction: what fails before its COMMIT is sent did not take effect.

    After any failure but a refusal the next operation begins with a new connection.
    """

    begin = "BEGIN"

    def __init__(self, node: str, timeout_s: float, workload: str, tables: int) -> None:
        self.node, self.timeout_s, self.workload, self.tables = node, timeout_s, workload, tables
        self.connection: Any = None

    @abstractmethod
    async def connect(self) -> Any: ...

    @abstractmethod
    async def execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement."""

    @abstractmethod
    async def disconnect(self, connection: Any) -> None: ...

    @abstractmethod
    def is_refusal(self, error: Exception) -> bool:
        """Whether the server said that the transaction is not committed, be it at its COMMIT."""

    @abstractmethod
    def is_lost(self, error: Exception) -> bool:
        """Whether it is an error of the driver or the network."""

    @abstractmethod
    def append(self, table: str) -> str:
        """Appends text, after a comma, to the value of a key, or inserts it."""

    @abstractmethod
    def write(self, table: str) -> str:
        """Writes the value of a key, or inserts it."""

    async def invoke(self, op: Op) -> Op:
        sent = False
        try:
            async with asyncio.timeout(self.timeout_s):
                if self.connection is None:
                    self.connection = await self.connect()
                await self.execute(self.connection, self.begin)
                mops = await (self.transfer(op) if op.f == "transfer" else self.mops(op))
                sent = any(mop.f != "r" for mop in op.mops) or op.f == "transfer"
                await self.execute(self.connection, "COMMIT")
        except DefiniteError:
            await self.end("ROLLBACK")
            raise
        except Exception as error:
            if not (self.is_lost(error) or isinstance(error, TimeoutError)):
                raise
            refused = self.is_refusal(error)
            await self.end("ROLLBACK" if refused else "")
            kind = "refused" if refused else "no-answer"
            raise (IndefiniteError if sent and not refused else DefiniteError)(kind, str(error)[:200]) from error
        return op.complete("ok", mops=mops, node=self.node)

    async def mops(self, op: Op) -> tuple[Mop, ...]:
        return tuple([await self.one(mop) for mop in op.mops])

    async def one(self, mop: Mop) -> Mop:
        key, table = mop.partition, f"t{mop.partition % self.tables}"
        if mop.f == "r":
            return await self.read(mop, table)
        if mop.f == "append":
            await self.execute(self.connection, self.append(table), (key, str(mop.value)))
        elif mop.f == "add":
            await self.execute(self.connection, f"INSERT INTO {table} (k, v) VALUES (%s, %s)", (key, mop.value))
        else:
            if mop.f == "cas" and (await self.read(Mop("r", key), table)).value != mop.expected:
                raise DefiniteError("cas-mismatch", "it held another value")
            await self.execute(self.connection, self.write(table), (key, mop.value))
        return mop

    async def read(self, mop: Mop, table: str) -> Mop:
        rows = await self.execute(self.connection, f"SELECT v FROM {table} WHERE k = %s", (mop.partition,))
        if self.workload == "set":
            return Mop("r", mop.partition, values=tuple(row[0] for row in rows))
        if self.workload in LISTS:
            return Mop("r", mop.partition, values=tuple(map(int, rows[0][0].split(","))) if rows else ())
        return Mop("r", mop.partition, rows[0][0] if rows else None)

    async def transfer(self, op: Op) -> tuple[Mop, ...]:
        for account, change in ((op.value["from"], -op.value["amount"]), (op.value["to"], op.value["amount"])):
            table = f"t{account % self.tables}"
            balance = (await self.read(Mop("r", account), table)).value or 0
            if balance + change < 0:
                raise DefiniteError("too-little", "the account holds less")
            await self.execute(self.connection, self.write(table), (account, balance + change))
        return ()

    async def end(self, statement: str) -> None:
        """Go on with the connection after a statement, or give it up."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        try:
            async with asyncio.timeout(1.0):
                if statement:
                    await self.execute(connection, statement)
                    self.connection = connection
                else:
                    await self.disconnect(connection)
        except Exception as error:
            if not (self.is_lost(error) or isinstance(error, TimeoutError)):
                raise

    async def close(self) -> None:
        await self.end("")
