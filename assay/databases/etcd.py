"""etcd 3.4 by its JSON gateway (`httpx`): registers, transactions, locks with leases, watches."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

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
    watched,
)

PREFIX, PREFIX_END = "k/", "k0"


def coded(text: str) -> str:
    """Keys and values as the gateway has them."""
    return base64.b64encode(text.encode()).decode()


def number(text: str) -> int:
    """An integer that was coded."""
    return int(base64.b64decode(text).decode().removeprefix(PREFIX))


class EtcdClient:
    """Implements `Client` at one node; a lock is kept by a lease that nobody renews."""

    def __init__(self, node: str, http: httpx.AsyncClient, options: Mapping[str, Any], timeout_s: float) -> None:
        self.node, self.http, self.options, self.timeout_s = node, http, options, timeout_s
        self.held: dict[int, str] = {}

    async def ask(self, path: str, body: Mapping[str, Any], changes: bool, timeout_s: float | None = None) -> Any:
        """The gateway's answer; who `changes` nothing has failed for certain where there is none."""
        try:
            answer = await self.http.post(f"/v3/{path}", json=body, timeout=timeout_s or self.timeout_s)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise DefiniteError("refused", f"{self.node}: {error!r}") from error
        except (httpx.HTTPError, AttributeError) as error:  # anyio asks for the name of a peer that has just gone
            raise (IndefiniteError if changes else DefiniteError)("no-answer", f"{self.node}: {error!r}") from error
        if answer.status_code != httpx.codes.OK:
            raise (IndefiniteError if changes else DefiniteError)("error", answer.text[:200])
        return answer.json()

    async def invoke(self, op: Op) -> Op:
        how = {"acquire": self.acquire, "release": self.release, "watch": self.watch, "cas": self.compare_and_set}
        return await how.get(op.f, self.transact)(op)

    async def transact(self, op: Op) -> Op:
        serializable = self.options["read"] == "serializable"
        asked = [
            {"requestRange": {"key": coded(f"{PREFIX}{mop.partition}"), "serializable": serializable}}
            if mop.f == "r"
            else {"requestPut": {"key": coded(f"{PREFIX}{mop.partition}"), "value": coded(str(mop.value))}}
            for mop in op.mops
        ]
        changes = any(mop.f != "r" for mop in op.mops)
        if len(asked) == 1:  # a range of its own, not in a transaction, may be served by a follower alone
            (body,) = asked[0].values()
            answer = await self.ask("kv/put" if changes else "kv/range", body, changes)
            answers = [answer]
        else:
            answer = await self.ask("kv/txn", {"success": asked}, changes)
            answers = [next(iter(each.values())) for each in answer["responses"]]
        mops = tuple(_answered(mop, found) for mop, found in zip(op.mops, answers, strict=True))
        revision = int(answer["header"]["revision"]) if op.f == "write" and self.options["timestamps"] else None
        return op.complete("ok", mops=mops, node=self.node, served_ts=revision)

    async def compare_and_set(self, op: Op) -> Op:
        (mop,) = op.mops
        key = coded(f"{PREFIX}{mop.partition}")
        wanted = {"target": "VALUE", "value": coded(str(mop.expected))}
        absent = {"target": "CREATE", "create_revision": "0"}
        compare = {"key": key, "result": "EQUAL", **(absent if mop.expected is None else wanted)}
        put = {"requestPut": {"key": key, "value": coded(str(mop.value))}}
        answer = await self.ask("kv/txn", {"compare": [compare], "success": [put]}, True)
        if not answer.get("succeeded"):
            raise DefiniteError("cas-mismatch", "it held another value")
        return op.complete("ok", node=self.node)

    async def acquire(self, op: Op) -> Op:
        lock = op.mops[0].partition
        lease = (await self.ask("lease/grant", {"TTL": self.options["lease"]}, False))["ID"]
        try:
            answer = await self.ask("lock/lock", {"name": coded(f"l/{lock}"), "lease": lease}, True, self.timeout_s / 3)
        except IndefiniteError:
            await self.ask("lease/revoke", {"ID": lease}, True)  # with it goes the lock, and the wait for it
            raise DefiniteError("held", "it was not free in time") from None
        self.held[lock] = answer["key"]
        return op.complete("ok", node=self.node)

    async def release(self, op: Op) -> Op:
        await self.ask("lock/unlock", {"key": self.held.pop(op.mops[0].partition)}, True)
        return op.complete("ok", node=self.node)

    async def watch(self, op: Op) -> Op:
        span = {"key": coded(PREFIX), "range_end": coded(PREFIX_END)}
        last = await self.ask("kv/range", {**span, "sort_order": "DESCEND", "sort_target": "MOD", "limit": 1}, False)
        begun, newest = op.requested_ts or 0, max((int(kv["mod_revision"]) for kv in last.get("kvs", ())), default=0)
        rows: list[tuple[int, int, int | None]] = []
        if newest > begun:
            create = {"create_request": {**span, "start_revision": begun + 1}}
            try:
                async with self.http.stream("POST", "/v3/watch", json=create, timeout=self.timeout_s) as answer:
                    async for line in answer.aiter_lines():
                        for event in json.loads(line)["result"].get("events", ()):
                            kv = event["kv"]
                            rows.append((int(kv["mod_revision"]), number(kv["key"]), number(kv["value"])))
                        if rows and rows[-1][0] >= newest:
                            break
            except (httpx.HTTPError, KeyError) as error:
                raise DefiniteError("no-answer", f"{self.node}: {error!r}") from error
        return watched(op, rows, rows[-1][0] if rows else max(begun, newest)).complete("ok", node=self.node)

    async def close(self) -> None:
        await self.http.aclose()


def _answered(mop: Mop, found: Mapping[str, Any]) -> Mop:
    if mop.f != "r":
        return mop
    kvs = found.get("kvs", ())
    return Mop("r", mop.partition, number(kvs[0]["value"]) if kvs else None)


class EtcdDatabase(DaemonDatabase):
    """A cluster of members that are all there from the beginning."""

    def __init__(self, environment: Environment, setup: Setup) -> None:
        offered = frozenset({"r", "w", "cas", "transact", "acquire", "release", "watch"})
        super().__init__("etcd", environment, setup.nodes, offered)
        self.options = {**setup.options, "timestamps": setup.workload == "watch"}

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | {Capability.TERMS}

    async def install(self) -> None:
        await self.on_each(lambda node: self.on(node, "mkdir -p -m 700 /var/lib/assay/etcd"))

    def daemons(self, node: str) -> Sequence[Daemon]:
        here = f"http://{self.address(node)}"
        members = ",".join(f"{each.name}=http://{self.address(each.name)}:2380" for each in self.nodes)
        argv = ["/usr/bin/etcd", "--name", node, "--data-dir", "/var/lib/assay/etcd", "--logger", "zap"]
        argv += ["--listen-client-urls", f"{here}:2379", "--advertise-client-urls", f"{here}:2379"]
        argv += ["--listen-peer-urls", f"{here}:2380", "--initial-advertise-peer-urls", f"{here}:2380"]
        return (Daemon("etcd", [*argv, "--initial-cluster", members]),)

    def http(self, node: str, timeout_s: float) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://{self.address(node)}:2379", timeout=timeout_s, trust_env=False)

    async def serves(self, node: str) -> bool:
        try:
            async with self.http(node, 1.0) as http:
                return bool((await http.get("/health")).json()["health"] == "true")
        except (httpx.HTTPError, ValueError, KeyError):
            return False

    async def groups(self, node: str) -> Sequence[GroupStatus]:
        async with self.http(node, 1.0) as http:
            try:
                found = (await http.post("/v3/maintenance/status", json={})).raise_for_status().json()
            except httpx.HTTPError as error:
                raise OSError(str(error)) from error
        role = "leader" if found.get("leader") == found["header"]["member_id"] else "follower"
        return (GroupStatus("etcd", role, int(found["raftTerm"]), tuple(each.name for each in self.nodes)),)

    async def open_client(self, process: int, timeout_s: float) -> Client:
        node = self.nodes[process % len(self.nodes)].name
        return EtcdClient(node, self.http(node, timeout_s), self.options, timeout_s)


class Etcd(DatabasePlugin):
    name = "etcd"
    description = "etcd of Debian 12, by its JSON gateway"
    options = (
        WordOption("read", ("linearizable", "serializable"), "how keys are read"),
        Option("lease", 2, 1, 3600, "seconds for which a lock is kept, whatever its holder does"),
    )
    packages = ("etcd-server",)
    requires = ("httpx>=0.27",)
    workloads = ("register", "multi-register", "mutex", "watch")
    default_nodes = 3

    def make(self, environment: Environment, setup: Setup) -> Database:
        return EtcdDatabase(environment, setup)


PLUGIN = Etcd()
