"""redis 7 by `redis`: one server, or one with replicas and sentinels that choose another when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import redis.asyncio as driver
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from assay.plugin import (
    Capability,
    Client,
    Daemon,
    DaemonDatabase,
    Database,
    DatabasePlugin,
    DefiniteError,
    Environment,
    GroupStatus,
    IndefiniteError,
    Mop,
    Op,
    Option,
    Setup,
    WordOption,
)

FOLDER = "/var/lib/assay/redis"
PORT, SENTINEL_PORT = 6379, 26379
CAS = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2]) return 1 else return 0 end"


def connection(host: str, port: int, timeout_s: float) -> Any:
    """A driver that tries nothing again: by default it carried out one `set` three times."""
    return driver.Redis(
        host=host,
        port=port,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        decode_responses=True,
    )


class RedisClient:
    """Implements `Client`: asks a sentinel who leads before it connects, and again after each failure."""

    def __init__(self, database: RedisDatabase, process: int, timeout_s: float) -> None:
        self.database, self.process, self.timeout_s = database, process, timeout_s
        self.redis: Any = None
        self.node: str | None = None

    async def invoke(self, op: Op) -> Op:
        (mop,) = op.mops
        try:
            async with asyncio.timeout(self.timeout_s):
                if self.redis is None:
                    await self.connect()
                done = await self.carry_out(mop)
                await self.acknowledged(mop)
        except exceptions.ResponseError as error:
            await self.close()  # in words: READONLY of who leads no more, NOREPLICAS, LOADING
            raise DefiniteError("refused", str(error)) from error
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            unsent = self.redis is None or mop.f == "r"
            await self.close()
            raise (DefiniteError if unsent else IndefiniteError)("no-answer", f"{error!r}"[:200]) from error
        return op.complete("ok", mops=(done,), node=self.node)

    async def connect(self) -> None:
        self.node = await self.database.leader(self.process)
        found = connection(self.database.address(self.node), PORT, self.timeout_s)
        await found.ping()
        self.redis = found

    async def carry_out(self, mop: Mop) -> Mop:
        key = f"k{mop.partition}"
        if mop.f == "r" and self.database.workload == "set":
            return Mop("r", mop.partition, values=tuple(sorted(map(int, await self.redis.smembers(key)))))
        if mop.f == "r":
            value = await self.redis.get(key)
            return Mop("r", mop.partition, None if value is None else int(value))
        if mop.f == "add":
            await self.redis.sadd(key, mop.value)
        elif mop.f == "w":
            await self.redis.set(key, mop.value)
        else:
            absent = mop.expected is None
            swapped = (
                self.redis.set(key, mop.value, nx=True)
                if absent
                else self.redis.eval(CAS, 1, key, mop.expected, mop.value)
            )
            if not await swapped:
                raise DefiniteError("cas-mismatch", "it held another value")
        return mop

    async def acknowledged(self, mop: Mop) -> None:
        """With `-d wait=N` at least N replicas have it, or nobody knows."""
        wanted = int(self.database.options["wait"])
        if wanted and mop.f != "r" and await self.redis.wait(wanted, round(self.timeout_s * 500)) < wanted:
            raise IndefiniteError("too-few-replicas", f"fewer than {wanted} replicas have it")

    async def close(self) -> None:
        found, self.redis = self.redis, None
        if found is not None:
            try:
                await found.aclose()
            except (exceptions.RedisError, OSError):
                return


class RedisDatabase(DaemonDatabase):
    """The first node leads at first; with more than one node each has a sentinel too."""

    def __init__(self, environment: Environment, setup: Setup) -> None:
        super().__init__("redis", environment, setup.nodes, frozenset({"r", "w", "cas", "add"}))
        self.options, self.workload = setup.options, setup.workload
        self.watched = len(self.nodes) > 1

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | ({Capability.TERMS} if self.watched else set())

    async def install(self) -> None:
        await self.on_each(lambda node: self.on(node, self.made(node)))

    def made(self, node: str) -> str:
        """Shell text that writes a node's configuration, which its programs change later on."""
        first = self.nodes[0].name
        lines = [
            "bind 0.0.0.0",
            "protected-mode no",
            f"dir {FOLDER}",
            f"port {PORT}",
            f"replica-announce-ip {node}",
        ]
        if self.options["aof"] != "no":
            lines += ["appendonly yes", f"appendfsync {self.options['aof']}"]
        else:
            lines += ["save 3600 1 300 100 60 10000"]
        lines += [f"replicaof {first} {PORT}"] if node != self.nodes[0].name else []
        quorum = len(self.nodes) // 2 + 1
        sentinel = [f"port {SENTINEL_PORT}", "bind 0.0.0.0", "protected-mode no", f"dir {FOLDER}"]
        sentinel += ["sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"]
        sentinel += [f"sentinel monitor main {first} {PORT} {quorum}", "sentinel down-after-milliseconds main 1500"]
        sentinel += ["sentinel failover-timeout main 5000", "sentinel parallel-syncs main 1"]
        files = {"redis.conf": lines, "sentinel.conf": sentinel}
        texts = [
            f"printf '%s\\n' {' '.join(repr(line) for line in text)} > {FOLDER}/{name}" for name, text in files.items()
        ]
        return f"mkdir -p {FOLDER} && " + " && ".join(texts)

    def daemons(self, node: str) -> Sequence[Daemon]:
        server = Daemon("redis", ["/usr/bin/redis-server", f"{FOLDER}/redis.conf"], directory=FOLDER)
        sentinel = Daemon("sentinel", ["/usr/bin/redis-sentinel", f"{FOLDER}/sentinel.conf"], directory=FOLDER)
        return (server, sentinel) if self.watched else (server,)

    async def leader(self, process: int) -> str:
        """Who leads, as the sentinel that this process asks says."""
        if not self.watched:
            return self.nodes[0].name
        host = self.address(self.nodes[process % len(self.nodes)].name)
        async with connection(host, SENTINEL_PORT, 1.0) as sentinel:
            name, _ = await sentinel.sentinel_get_master_addr_by_name("main")
        return str(name)

    async def replication(self, node: str) -> dict[str, Any]:
        """What a server says of replication; nothing while it loads."""
        try:
            async with connection(self.address(node), PORT, 1.0) as found:
                return dict(await found.info("replication"))
        except exceptions.RedisError:
            return {}

    async def serves(self, node: str) -> bool:
        said = await self.replication(node)
        if said.get("role") == "master":
            return not self.watched or int(said["connected_slaves"]) > 0
        return said.get("master_link_status") == "up"

    async def groups(self, node: str) -> Sequence[GroupStatus]:
        """The epoch is the sentinels': it grows with each failover."""
        if not self.watched:
            return ()
        try:
            async with connection(self.address(node), SENTINEL_PORT, 1.0) as sentinel:
                epoch = int((await sentinel.sentinel_master("main"))["config-epoch"])
        except exceptions.RedisError as error:
            raise OSError(str(error)) from error
        role = "leader" if (await self.replication(node)).get("role") == "master" else "follower"
        return (GroupStatus("main", role, epoch + 1, tuple(each.name for each in self.nodes)),)

    async def open_client(self, process: int, timeout_s: float) -> Client:
        return RedisClient(self, process, timeout_s)


class RedisPlugin(DatabasePlugin):
    name = "redis"
    description = "redis of Debian 12, with sentinels from two nodes on"
    options = (
        WordOption("aof", ("always", "no"), "the log of writes: synced at each, or none (Debian's default)"),
        Option("wait", 0, 0, 8, "how many replicas must have a write before it is acknowledged (WAIT)"),
    )
    packages = ("redis-server", "redis-sentinel")
    requires = ("redis>=5",)
    workloads = ("register", "set")
    default_nodes = 3

    def make(self, environment: Environment, setup: Setup) -> Database:
        return RedisDatabase(environment, setup)


PLUGIN = RedisPlugin()
