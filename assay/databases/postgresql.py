"""PostgreSQL 15 by `psycopg` 3: one server, or one with a standby that takes its place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors

from assay.databases.sql import SqlClient, table_statements
from assay.plugin import (
    Client,
    Daemon,
    DaemonDatabase,
    Database,
    DatabasePlugin,
    Environment,
    Option,
    Setup,
    UserError,
    WordOption,
)

logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each cancelled query

BIN = "/usr/lib/postgresql/15/bin"
DATA = "/var/lib/assay/postgresql"
INSTALL_S = 120.0
AS_POSTGRES = "setpriv --reuid=postgres --regid=postgres --init-groups"
SETTINGS = (
    "listen_addresses='*'",
    "unix_socket_directories='/tmp'",
    "shared_buffers=32MB",
    "max_connections=200",
    "jit=off",
    "wal_sender_timeout=1500ms",
    "wal_receiver_timeout=1500ms",
)
LEVELS = ("serializable", "repeatable-read", "read-committed")
DECIDED = (errors.SerializationFailure, errors.DeadlockDetected, errors.IntegrityError, errors.DataError)
"""What is refused in words, at COMMIT too."""


class PostgresClient(SqlClient):
    """Implements `Client`, by one connection at a time."""

    def __init__(self, database: PostgresDatabase, timeout_s: float) -> None:
        super().__init__(database.leader, timeout_s, database.workload, int(database.options["tables"]))
        self.database = database
        self.begin = f"BEGIN ISOLATION LEVEL {database.options['isolation'].replace('-', ' ').upper()}"

    async def connect(self) -> Any:
        self.node = self.database.leader
        return await self.database.connect(self.node, self.timeout_s)

    async def execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = await connection.execute(statement, values)
        return list(await cursor.fetchall()) if cursor.description else []

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, DECIDED)

    def is_lost(self, error: Exception) -> bool:
        return isinstance(error, psycopg.Error | OSError)

    async def disconnect(self, connection: Any) -> None:
        await connection.close()

    def upsert(self, table: str, change: str) -> str:
        return f"INSERT INTO {table} (k, v) VALUES (%s, %s) ON CONFLICT (k) DO UPDATE SET v = {change}"

    def append(self, table: str) -> str:
        return self.upsert(table, f"{table}.v || ',' || EXCLUDED.v")

    def write(self, table: str) -> str:
        return self.upsert(table, "EXCLUDED.v")


class PostgresDatabase(DaemonDatabase):
    """One server, whose data were made by `initdb` as it is installed."""

    def __init__(self, environment: Environment, setup: Setup) -> None:
        offered = frozenset({"r", "w", "cas", "append", "add", "transact", "transfer"})
        super().__init__("postgresql", environment, setup.nodes, offered)
        self.options, self.workload = setup.options, setup.workload
        self.leader = self.nodes[0].name

    async def install(self) -> None:
        lines = "\\n".join(SETTINGS)
        steps = (
            f"install -d -o postgres -m 700 {DATA}",
            "cd /",
            f"{AS_POSTGRES} {BIN}/initdb --auth=trust --encoding=UTF8 --no-sync -D {DATA} >/dev/null",
            f'printf "{lines}\\n" >> {DATA}/postgresql.conf',
            f"printf 'host all,replication all all trust\\n' >> {DATA}/pg_hba.conf",
        )
        made = " && ".join(steps)
        await self.on_each(lambda node: self.on(node, made, timeout_s=INSTALL_S))

    def daemons(self, node: str) -> Sequence[Daemon]:
        """TERM would wait for clients to leave."""
        return (Daemon("postgres", [f"{BIN}/postgres", "-D", DATA], user="postgres", stop_signal="INT"),)

    async def connect(self, node: str, timeout_s: float) -> Any:
        where = f"host={self.address(node)} user=postgres dbname=postgres connect_timeout={max(2, round(timeout_s))}"
        async with asyncio.timeout(timeout_s):
            return await psycopg.AsyncConnection.connect(where, autocommit=True)

    async def serves(self, node: str) -> bool:
        try:
            async with asyncio.timeout(1.0), await self.connect(node, 1.0) as connection:
                await connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
        async with await self.connect(self.leader, 10.0) as connection:
            for statement in table_statements(workload, options, int(self.options["tables"]), "TEXT"):
                await connection.execute(statement)

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return PostgresClient(self, timeout_s)


class Postgres(DatabasePlugin):
    name = "postgresql"
    description = "PostgreSQL of Debian 12"
    options = (
        WordOption("isolation", LEVELS, "the level of transactions"),
        WordOption("standby", ("none", "asynchronous", "synchronous"), "whether a second server follows the first"),
        Option("tables", 1, 1, 16, "over how many tables keys are spread"),
    )
    packages = ("postgresql-15",)
    requires = ("psycopg[binary]>=3.1",)
    workloads = ("list-append", "rw-register", "register", "bank", "set", "long-fork", "multi-register")

    def make(self, environment: Environment, setup: Setup) -> Database:
        wanted = 1 if setup.options["standby"] == "none" else 2
        if len(setup.nodes) != wanted:
            raise UserError(f"-d standby={setup.options['standby']} is of {wanted} nodes, not of {len(setup.nodes)}.")
        if wanted == 1:
            return PostgresDatabase(environment, setup)
        from assay.databases.standby import StandbyDatabase

        return StandbyDatabase(environment, setup)


PLUGIN = Postgres()
