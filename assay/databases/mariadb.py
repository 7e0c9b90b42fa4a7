"""MariaDB 10.11 with Galera by `asyncmy`: a cluster of which every node takes writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import asyncmy
from asyncmy import errors

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
    WordOption,
)

DATA = "/var/lib/assay/mariadb"
USER = "assay"
INSTALL_S = 120.0
DEADLOCK, LOCK_TIMEOUT, CHANGED = 1213, 1205, 1020
"""How a transaction is refused that conflicts with another, at its COMMIT too; CHANGED by `innodb_snapshot_isolation`.
"""
LEVELS = ("repeatable-read", "serializable", "read-committed")


class GaleraClient(SqlClient):
    """Implements `Client` at one node, by one connection at a time."""

    def __init__(self, database: GaleraDatabase, node: str, timeout_s: float) -> None:
        super().__init__(node, timeout_s, database.workload, int(database.options["tables"]))
        self.database = database

    async def connect(self) -> Any:
        return await self.database.connect(self.node, self.timeout_s)

    async def execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        async with connection.cursor() as cursor:
            await cursor.execute(statement, values or None)
            return list(await cursor.fetchall()) if cursor.description else []

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, errors.MySQLError) and error.args[0] in (DEADLOCK, LOCK_TIMEOUT, CHANGED)

    def is_lost(self, error: Exception) -> bool:
        return isinstance(error, errors.MySQLError | OSError | EOFError)

    async def disconnect(self, connection: Any) -> None:
        connection.close()

    def append(self, table: str) -> str:
        return f"INSERT INTO {table} (k, v) VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = CONCAT(v, ',', VALUES(v))"

    def write(self, table: str) -> str:
        return f"INSERT INTO {table} (k, v) VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = VALUES(v)"


class GaleraDatabase(DaemonDatabase):
    """The first node makes the cluster; the others join it, one after the other, and take their data from a member."""

    def __init__(self, environment: Environment, setup: Setup) -> None:
        offered = frozenset({"r", "w", "cas", "append", "add", "transact", "transfer"})
        super().__init__("mariadb", environment, setup.nodes, offered)
        self.options, self.workload = setup.options, setup.workload
        self.alone: set[str] = set()
        self.leaving = asyncio.Lock()

    async def install(self) -> None:
        made = (
            f"install -d -o mysql -m 700 {DATA} && install -d -o mysql /run/mysqld && mariadb-install-db --user=mysql"
        )
        made += f" --datadir={DATA} --auth-root-authentication-method=normal --skip-test-db >/dev/null"
        await self.on_each(lambda node: self.on(node, made, timeout_s=INSTALL_S))

    def daemons(self, node: str) -> Sequence[Daemon]:
        here = self.address(node)
        members = ",".join(self.address(each.name) for each in self.nodes)
        level, snapshots = self.options["isolation"].upper(), self.options["snapshot-isolation"].upper()
        settings = {
            "datadir": DATA,
            "bind-address": "0.0.0.0",
            "skip-name-resolve": "ON",
            "binlog-format": "ROW",
            "innodb-autoinc-lock-mode": "2",
            "innodb-buffer-pool-size": "64M",
            "innodb-lock-wait-timeout": "3",
            "innodb-snapshot-isolation": snapshots,
            "transaction-isolation": level,
            "wsrep-on": "ON",
            "wsrep-provider": "/usr/lib/galera/libgalera_smm.so",
            "wsrep-provider-options": "gcache.size=32M",
            "wsrep-cluster-name": "assay",
            "wsrep-cluster-address": f"gcomm://{members}",
            "wsrep-node-address": here,
            "wsrep-sst-method": "rsync",
        }
        argv = ["/usr/sbin/mariadbd", "--no-defaults", *(f"--{name}={value}" for name, value in settings.items())]
        argv += ["--wsrep-new-cluster"] if node in self.alone else []
        return (Daemon("mariadbd", argv, user="mysql"),)

    async def start(self, node: str) -> None:
        """Who left last, of a cluster that was stopped as a whole, makes it anew; so does who is told to be alone."""
        last = await self.on(node, f"grep -c '^safe_to_bootstrap: 1' {DATA}/grastate.dat 2>/dev/null || true")
        if last.strip() == "1":
            self.alone.add(node)
        await super().start(node)
        self.alone.discard(node)

    async def stop(self, node: str) -> None:
        """One after the other: of nodes that leave at once none knows that it was the last."""
        async with self.leaving:
            await super().stop(node)

    async def first_start(self) -> None:
        first, *others = (node.name for node in self.nodes)
        self.alone.add(first)
        await self.start(first)
        await self.until_serving(first)
        await self.on(first, f"mariadb -u root -e \"CREATE USER {USER}@'%'; GRANT ALL ON *.* TO {USER}@'%'\"")
        for node in others:
            await self.start(node)
            await self.until_serving(node)

    async def until_serving(self, node: str) -> None:
        """Until it is a synced member, as it says itself on its own machine."""
        look = "mariadb -u root -NBe \"SHOW STATUS LIKE 'wsrep_local_state_comment'\" 2>/dev/null | grep -q Synced"
        await self.on(node, f"for i in $(seq 300); do {look} && exit 0; sleep 0.2; done; exit 1", timeout_s=INSTALL_S)

    async def connect(self, node: str, timeout_s: float) -> Any:
        how: dict[str, Any] = {"user": USER, "autocommit": True, "db": "mysql", "init_command": "SET sql_notes = 0"}
        async with asyncio.timeout(timeout_s):
            return await asyncmy.connect(host=self.address(node), port=3306, **how)

    async def serves(self, node: str) -> bool:
        try:
            async with asyncio.timeout(1.0), await self.connect(node, 1.0) as link, link.cursor() as cursor:
                await cursor.execute("SHOW STATUS LIKE 'wsrep_ready'")
                return bool((await cursor.fetchone())[1] == "ON")
        except (errors.MySQLError, EOFError):
            return False

    async def setup_workload(self, workload: str, options: Mapping[str, Any]) -> None:
        client = GaleraClient(self, self.nodes[0].name, 10.0)
        async with await client.connect() as connection:
            for statement in table_statements(workload, options, int(self.options["tables"]), "LONGTEXT"):
                await client.execute(connection, statement)
        for node in self.nodes:  # each applies what the others made in its own time
            async with await self.connect(node.name, 10.0) as connection:
                await client.execute(connection, "SET SESSION wsrep_sync_wait = 15")
                await client.execute(connection, "SELECT COUNT(*) FROM t0")

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return GaleraClient(self, self.nodes[process % len(self.nodes)].name, timeout_s)


class Galera(DatabasePlugin):
    name = "mariadb"
    description = "MariaDB of Debian 12, as a Galera cluster"
    options = (
        WordOption("isolation", LEVELS, "the level of transactions"),
        WordOption("snapshot-isolation", ("on", "off"), "innodb_snapshot_isolation: who writes what has changed fails"),
        Option("tables", 1, 1, 16, "over how many tables keys are spread"),
    )
    packages = ("mariadb-server", "galera-4", "rsync")
    requires = ("asyncmy>=0.2.9",)
    workloads = ("list-append", "rw-register", "register", "bank", "set", "long-fork", "multi-register")
    default_nodes = 3

    def make(self, environment: Environment, setup: Setup) -> Database:
        return GaleraDatabase(environment, setup)


PLUGIN = Galera()
